"""Inputs: what the examples of a competition are: pixels in a table, one array of images, or
columns (`pipeline.inspection.image_folders`: image files).

The first that fits is taken, in this order; each says how a config describes it, and why.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Data
from pipeline.data import tabular as encoding
from pipeline.errors import DataError
from pipeline.inspection import column_types, duplicates_and_leaks
from pipeline.inspection.column_types import CATEGORY, NUMBER, OUT, Column
from pipeline.inspection.duplicates_and_leaks import Headers
from pipeline.inspection.tables import CHOSEN, FOUND, TESTS, WARNING, Contents, Finding, grid

TRAINS = re.compile("train", re.IGNORECASE)
LOOKED_AT = 20_000  # images at most
MOST = 64  # categories of a column that are told apart
EDIT = "Set data.{} in the config."


@dataclass(frozen=True)
class Inputs:
    """What examples are.

    Attributes:
        data: as a config says it, without augmentation. findings: why.
        keys, test_keys: equal where two examples have the same content; None: like no other. Of the
            rows that were looked at.
        rows, test_rows: int64, these rows.
        pixels, test_pixels: uint8 (n, height, width, channels) of these rows; None of a table.
        headers: of image files. columns: of a table. broken, test_broken: why a file cannot be
            decoded, by its id.
    """

    data: Data
    findings: tuple[Finding, ...]
    keys: Sequence[Hashable] = field(repr=False)
    test_keys: Sequence[Hashable] = field(repr=False)
    rows: np.ndarray = field(repr=False)
    test_rows: np.ndarray = field(repr=False)
    pixels: np.ndarray | None = field(default=None, repr=False)
    test_pixels: np.ndarray | None = field(default=None, repr=False)
    headers: Headers | None = None
    columns: tuple[Column, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    test_broken: dict[str, str] = field(default_factory=dict)


def find(held: Contents) -> Inputs | None:
    """Return what the examples are if they are no image files; None where nothing was found for
    them.

    Raises:
        DataError: if arrays or tables are not of the form that the pipeline reads.
    """
    return _pixels(held) or _arrays(held) or _table(held)


def some(count: int) -> np.ndarray:
    """Return which of so many rows are looked at, int64 and sorted."""
    if count <= LOOKED_AT:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, LOOKED_AT, replace=False))


def base(held: Contents) -> dict[str, Any]:
    """Return the fields of `Data` that every kind has."""
    return {
        "train_csv": held.train,
        "sample_submission": held.sample,
        "id_column": held.ids or str(held.wanted.columns[0]),
        "label_column": held.labels if len(held.labels) > 1 else held.labels[0],
    }


# -- pixels and arrays


def _pixels(held: Contents) -> Inputs | None:
    """Return columns of pixels as inputs, if their names and values are those of images."""
    if not held.pixels or held.test is None:
        return None
    shape = grid(held.pixels)
    if shape is None:
        return None
    first = str(held.wanted.columns[0])
    height, width, channels = shape
    data = Data(
        **base(held), kind="pixels", test_csv=held.test, height=height, width=width, channels=channels
    )  # fmt: skip
    others = (data.id_column, first, *held.labels)
    extra = [str(name) for name in held.labelled if name not in others]
    if extra:
        raise DataError(
            f"{held.folder / held.train} has {len(held.pixels)} columns of pixels and {', '.join(extra[:6])} beside them; expected pixels alone.\n"
            'Describe it by hand: kind="pixels" takes no other columns; kind="table" takes all as numbers.'
        )
    pixels = encoding.pixels(held.folder / held.train, data, others, EDIT.format("train_csv"))
    test_pixels = encoding.pixels(held.folder / held.test, data, others, EDIT.format("test_csv"))
    size = f"{height}x{width}x{channels}"
    told = f"columns of pixels: {len(held.pixels)} of them, {held.pixels[0]} to {held.pixels[-1]}, are whole numbers from 0 to 255"
    findings = (
        Finding(CHOSEN, "inputs", told),
        Finding(
            CHOSEN,
            "size",
            f"{size} (height x width x channels), by rows; the pictures of the page show whether it is so",
        ),
    )
    return _array(held, data, findings, pixels, test_pixels)


def _arrays(held: Contents) -> Inputs | None:
    """Return two arrays of as many images as the tables have rows."""
    shapes = {name: _shape(held.folder / name) for name in held.arrays}
    found = []
    for count, hint in ((len(held.labelled), TRAINS), (len(held.wanted), TESTS)):
        fitting = [
            name for name, shape in shapes.items() if len(shape) in (3, 4) and shape[0] == count
        ]
        called = [name for name in fitting if hint.search(Path(name).stem)]
        if not fitting:
            return None
        if len(called or fitting) > 1:
            raise DataError(
                f"{held.folder} holds {len(called or fitting)} arrays of {count:,} images: {', '.join(called or fitting)}; expected one.\n"
                "Move the others away, or describe the data by hand: data.train_array and data.test_array."
            )
        found.append((called or fitting)[0])
    train, test = found
    if shapes[train][1:] != shapes[test][1:]:
        return None
    height, width, *more = shapes[train][1:]
    # The rows of the array are those of the test table, where there is one: the sample may have
    # another order.
    tables: dict[str, Any] = {"test_csv": held.test} if held.test else {}
    data = Data(
        **base(held), **tables, kind="arrays", train_array=train, test_array=test, height=height, width=width, channels=(more or [1])[0]
    )  # fmt: skip
    pixels = encoding.array(
        held.folder / train, data, len(held.labelled), EDIT.format("train_array")
    )
    test_pixels = encoding.array(
        held.folder / test, data, len(held.wanted), EDIT.format("test_array")
    )
    told = f"arrays of images: {train} {shapes[train]} has as many as {held.train} has rows, {test} {shapes[test]} as {held.sample}"
    return _array(held, data, (Finding(CHOSEN, "inputs", told),), pixels, test_pixels)


def _shape(path: Path) -> tuple[int, ...]:
    """Return the shape of an array on the disk; () of what is none."""
    try:
        found: Any = np.load(
            path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False
        )
        if not isinstance(found, np.ndarray):
            names = list(found)
            return tuple(found[names[0]].shape) if len(names) == 1 else ()
    except Exception:  # what is not ours makes numpy and zipfile raise a dozen kinds; whoever reads it is told by `pipeline.data.tabular`
        return ()
    return tuple(found.shape)


def _array(
    held: Contents,
    data: Data,
    findings: tuple[Finding, ...],
    pixels: np.ndarray,
    test_pixels: np.ndarray,
) -> Inputs:
    rows, test_rows = some(len(pixels)), some(len(test_pixels))
    one, other = pixels[rows], test_pixels[_places(held, data, len(test_pixels))[test_rows]]
    return Inputs(
        data,
        findings,
        duplicates_and_leaks.digests(one),
        duplicates_and_leaks.digests(other),
        rows,
        test_rows,
        one,
        other,
    )


def _places(held: Contents, data: Data, count: int) -> np.ndarray:
    """Return in which row of the test table each id of the sample stands, as inference finds it; as
    they lie, where no ids say so.
    """
    ids = list(held.wanted.iloc[:, 0])
    names = () if held.tested is None else (data.id_column, str(held.wanted.columns[0]))
    for name in names:
        if held.tested is not None and name in held.tested:
            order = {text: row for row, text in enumerate(held.tested[name])}
            if len(order) == count and set(order) == set(ids):
                return np.array([order[text] for text in ids])
    return np.arange(count)


# -- tables


def _table(held: Contents) -> Inputs | None:
    """Return the columns that a model should read."""
    if held.tested is None or held.test is None:
        return None
    skip = {held.ids, str(held.wanted.columns[0]), *held.labels, ""}
    labelled, tested = held.labelled, held.tested
    if held.pixels:
        return None
    columns = tuple(
        column_types.judge(labelled[name], tested.get(name))
        for name in labelled
        if name not in skip
    )
    used = {
        use: tuple(column.name for column in columns if column.use == use)
        for use in (NUMBER, CATEGORY)
    }
    shared = [column for column in columns if column.missing_test is not None]
    if not any(used.values()):
        if not shared or held.images:  # then it is the images that ought to be found
            return None
        told = "; ".join(f"{column.name}: {column.why}" for column in shared[:12])
        raise DataError(
            f"{held.folder / held.train} has {len(shared)} columns that {held.test} has, too, and a model can read none of them: {told}.\n"
            "Correct the tables, or name others: --train FILE, --test FILE."
        )
    most = max((column.distinct for column in columns if column.use == CATEGORY), default=0)
    data = Data(
        **base(held), kind="table", test_csv=held.test, numeric_columns=used[NUMBER], categorical_columns=used[CATEGORY],
        most_categories=min(most + 2, MOST) if used[CATEGORY] else MOST,
    )  # fmt: skip
    findings = [
        Finding(
            CHOSEN,
            "inputs",
            f"a table: {len(used[NUMBER])} columns of numbers, {len(used[CATEGORY])} of categories",
        )
    ]
    for use, name in ((NUMBER, "numbers"), (CATEGORY, "categories")):
        if used[use]:
            findings.append(Finding(CHOSEN, name, _names(used[use])))
    reasons: dict[str, list[str]] = {}
    for column in columns:
        if column.why.startswith(column_types.WITH_COMMAS):
            done = "left out" if column.use == OUT else "read as a category"
            findings.append(Finding(WARNING, "commas", f"{column.name} is {done}: {column.why}"))
        elif column.use == OUT:
            reasons.setdefault(column.why, []).append(column.name)
    findings += [
        Finding(CHOSEN, "left out", f"{_names(names)}: {why}") for why, names in reasons.items()
    ]
    gaps = [
        column
        for column in columns
        if column.use != OUT and (column.missing or column.missing_test)
    ]
    if gaps:
        shown = ", ".join(
            f"{column.name} {column.missing:.0%}/{column.missing_test or 0:.0%}"
            for column in gaps[:8]
        )
        text = f"{shown}{' …' if len(gaps) > 8 else ''} of the rows (training/test) lack a value; a missing number is marked as one"
        findings.append(Finding(FOUND, "missing", text))
    read = [*used[NUMBER], *used[CATEGORY]]
    keys, test_keys = (
        [tuple(row) for row in part[read].itertuples(index=False)] for part in (labelled, tested)
    )
    if held.ids in tested:
        order = {name: place for place, name in enumerate(tested[held.ids])}
        test_keys = [test_keys[order[name]] for name in held.wanted.iloc[:, 0] if name in order]
    rows, test_rows = np.arange(len(labelled)), np.arange(len(test_keys))
    return Inputs(data, tuple(findings), keys, test_keys, rows, test_rows, columns=columns)


def _names(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" … ({len(names)})" if len(names) > most else "")

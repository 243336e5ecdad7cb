"""What the examples of a competition are, if no image files (`workbench.inspect.image_inputs`):
pixels in a table, arrays of images, or columns.

The first kind that fits is chosen, in this order. Each says how a config describes it, and why.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from pipeline.config import Data
from pipeline.data import duplicates, table_features
from pipeline.data.image_arrays import Source
from pipeline.errors import DataError
from workbench.inspect import column_types, unsupported
from workbench.inspect.column_types import CATEGORY, NUMBER, OUT, Column
from workbench.inspect.folder_files import TESTS, TRAINS, shortened
from workbench.inspect.image_headers import Headers
from workbench.inspect.pixel_columns import grid
from workbench.inspect.tables import CHOSEN, FOUND, UNKNOWN, WARNING, Contents, Finding

MOST_IMAGES = 20_000  # that are read; of more, a random sample
MOST_CATEGORIES = 64  # of a column
NAMELESS = re.compile(r"(Unnamed: \d+)?")  # as pandas calls it


@dataclass(frozen=True)
class Inputs:
    """What the examples are.

    Attributes:
        data: the config's description, without augmentation.
        findings: with the reasons.
        keys, test_keys: of the rows that were read: equal for the same content; None equals none.
        rows, test_rows: the numbers of these rows, int64.
        pixels, test_pixels: uint8 (n, height, width, channels) of these rows; None for a table.
        headers: of image files.
        columns: of a table.
        broken, test_broken: {id: why its file cannot be decoded}.
        sources: of image files and TFRecords: where these rows were decoded from.
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
    sources: Sequence[Source] = field(default=(), repr=False)


def find(contents: Contents) -> Inputs | None:
    """Return the examples, or None where nothing was found for them.

    Raises:
        DataError: if the pipeline cannot read arrays or tables as they are.
    """
    return _pixels(contents) or _arrays(contents) or _table(contents)


def some(count: int) -> np.ndarray:
    """Return which of `count` images to read, int64 and sorted."""
    if count <= MOST_IMAGES:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MOST_IMAGES, replace=False))


def base(contents: Contents) -> dict[str, Any]:
    """Return the fields of `Data` that every kind has."""
    labels = contents.labels
    train = {"train_csv": None if contents.class_folders else contents.train}
    return {
        **({} if contents.records else train),
        "sample_submission": contents.sample,
        "id_column": contents.ids or str(contents.sample_table.columns[0]),
        "label_column": labels if len(labels) > 1 else labels[0],
    }


# -- pixels and arrays


def _pixels(contents: Contents) -> Inputs | None:
    shape = grid(contents.pixels) if contents.pixels else None
    if shape is None or contents.test is None:
        return None
    height, width, channels = shape
    data = Data(
        **base(contents),
        kind="pixels",
        test_csv=contents.test,
        height=height,
        width=width,
        channels=channels,
    )
    others = (data.id_column, str(contents.sample_table.columns[0]), *contents.labels)
    extra = [str(name) for name in contents.train_table if name not in others]
    if extra:
        raise DataError(
            f"{contents.folder / contents.train} has {len(contents.pixels)} columns of pixels and "
            f"{', '.join(extra[:6])} beside them; expected pixels alone.\n"
            'Write the config by hand: kind="pixels" allows no other columns; kind="table" reads '
            "all as numbers."
        )
    folder = contents.folder
    pixels, _ = table_features.pixels(folder / contents.train, data, others)
    test_pixels, _ = table_features.pixels(folder / contents.test, data, others)
    names = contents.pixels
    text = f"columns of pixels: {len(names)}, {names[0]} to {names[-1]}, whole numbers 0 to 255"
    shown = f"{'x'.join(map(str, shape))} (height x width x channels), by rows"
    findings = (
        Finding(CHOSEN, "inputs", text),
        Finding(CHOSEN, "size", f"{shown}; check it by the pictures of the page"),
    )
    return _array(contents, data, findings, pixels, test_pixels)


def _arrays(contents: Contents) -> Inputs | None:
    """Return two arrays with as many images as the tables have rows."""
    shapes = {name: _shape(contents.folder / name) for name in contents.arrays}
    chosen = []
    for table, hint in ((contents.train_table, TRAINS), (contents.sample_table, TESTS)):
        count = len(table)
        fits = [
            name for name, shape in shapes.items() if len(shape) in (3, 4) and shape[0] == count
        ]
        if not fits:
            return None
        found = [name for name in fits if hint.search(Path(name).stem)] or fits
        if len(found) > 1:
            raise DataError(
                f"{contents.folder} holds {len(found)} arrays of {count:,} images: "
                f"{', '.join(found)}; expected one.\n"
                "Move the others away, or write the config by hand: data.train_array and "
                "data.test_array."
            )
        chosen += found
    train, test = chosen
    if shapes[train][1:] != shapes[test][1:]:
        return None
    height, width, *channels = shapes[train][1:]
    # The rows of the array are those of the test table, if there is one; the sample submission may
    # have another order.
    tables: dict[str, Any] = {"test_csv": contents.test} if contents.test else {}
    data = Data(
        **base(contents),
        **tables,
        kind="arrays",
        train_array=train,
        test_array=test,
        height=height,
        width=width,
        channels=(channels or [1])[0],
    )

    pixels = table_features.array(contents.folder / train, data, len(contents.train_table))
    test_pixels = table_features.array(contents.folder / test, data, len(contents.sample_table))
    text = (
        f"arrays of images: {train} {shapes[train]} has as many as {contents.train} has rows, "
        f"{test} {shapes[test]} as many as {contents.sample}"
    )
    return _array(contents, data, (Finding(CHOSEN, "inputs", text),), pixels, test_pixels)


def _shape(path: Path) -> tuple[int, ...]:
    """Return the shape of an array on the disk; () where the file holds none, or several."""
    try:
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            (name,) = found
            found = found[name]
    except Exception:  # numpy and zipfile raise a dozen kinds; reading it later names the problem
        return ()
    return tuple(found.shape)


def _array(
    contents: Contents,
    data: Data,
    findings: tuple[Finding, ...],
    pixels: np.ndarray,
    test_pixels: np.ndarray,
) -> Inputs:
    rows, test_rows = some(len(pixels)), some(len(test_pixels))
    one, other = pixels[rows], test_pixels[_places(contents, data, len(test_pixels))[test_rows]]
    keys, test_keys = map(duplicates.row_digests, (one, other))
    return Inputs(data, findings, keys, test_keys, rows, test_rows, one, other)


def _places(contents: Contents, data: Data, count: int) -> np.ndarray:
    """Return the row of the test table for each id of the sample submission, as inference finds it;
    without ids the order of the rows.
    """
    ids, tested = contents.sample_ids, contents.test_table
    for name in (data.id_column, str(contents.sample_table.columns[0])):
        if tested is not None and name in tested:
            order = {text: row for row, text in enumerate(tested[name])}
            if len(order) == count and set(order) == set(ids):
                return np.array([order[text] for text in ids])
    return np.arange(count)


# -- tables


def _table(contents: Contents) -> Inputs | None:
    """Return the columns that a model should read."""
    labelled, tested = contents.train_table, contents.test_table
    if tested is None or contents.test is None or contents.pixels:
        return None
    skip = {contents.ids, str(contents.sample_table.columns[0]), *contents.labels}
    nameless = [
        name for name in map(str, labelled) if NAMELESS.fullmatch(name) and name not in skip
    ]
    skip |= set(nameless)
    columns = tuple(
        column_types.judge(labelled[name], tested.get(name))
        for name in labelled
        if name not in skip
    )
    numbers, categories = (
        tuple(column.name for column in columns if column.use == use) for use in (NUMBER, CATEGORY)
    )
    read = [*numbers, *categories]
    if not read:
        shared = [column for column in columns if column.missing_test is not None]
        if not shared or contents.images:  # then the examples are the images, which were not found
            return None
        path = contents.folder / contents.train
        for column in shared:
            if words := unsupported.prose(labelled[column.name], least=2):
                what = f"{column.name!r} ({column.distinct:,} distinct, of about {words} words)"
                raise unsupported.text(f"{path} has texts in {what} and nothing else to read")
        reasons = "; ".join(f"{column.name}: {column.why}" for column in shared[:12])
        raise DataError(
            f"{path} shares {len(shared)} columns with {contents.test}, and a model can read none "
            f"of them: {reasons}.\n"
            "Correct the tables, or name others: --train FILE, --test FILE"
        )
    most = max((column.distinct for column in columns if column.use == CATEGORY), default=0)
    data = Data(
        **base(contents),
        kind="table",
        test_csv=contents.test,
        numeric_columns=numbers,
        categorical_columns=categories,
        most_categories=min(most + 2, MOST_CATEGORIES) if categories else MOST_CATEGORIES,
    )
    keys, test_keys = _keys(labelled[read], tested[read])
    if contents.ids in tested:
        order = {name: place for place, name in enumerate(tested[contents.ids])}
        test_keys = [test_keys[order[name]] for name in contents.sample_ids if name in order]
    findings = _column_findings(columns, numbers, categories)
    if nameless:
        text = f"{', '.join(map(repr, nameless))}: a column without a name is an index of the rows"
        findings += (Finding(CHOSEN, "left out", f"{text}, or a comma too many"),)
    return Inputs(
        data,
        findings,
        keys,
        test_keys,
        np.arange(len(labelled)),
        np.arange(len(test_keys)),
        columns=columns,
    )


def _keys(one: pd.DataFrame, other: pd.DataFrame) -> tuple[list[Hashable], list[Hashable]]:
    """Return the keys of the rows of two tables of the same columns: None for a row that no other
    one equals.
    """
    numbers = np.zeros(len(one) + len(other), np.int64)
    for name in one:
        both = union_categoricals([_coded(one[name]), _coded(other[name])])
        numbers = pd.factorize(numbers * len(both.categories) + both.codes)[0]
    shared = np.bincount(numbers)[numbers] > 1
    keys: list[Hashable] = [
        each if more else None for each, more in zip(numbers.tolist(), shared, strict=True)
    ]
    return keys[: len(one)], keys[len(one) :]


def _coded(column: pd.Series) -> pd.Categorical:
    """Return a column of texts as a categorical whose categories are objects, for pandas 3 makes
    them objects or its own texts, and unites only equal types.
    """
    given = pd.Categorical(column)
    return pd.Categorical.from_codes(given.codes, pd.Index(given.categories, dtype=object))


def _column_findings(
    columns: Sequence[Column], numbers: Sequence[str], categories: Sequence[str]
) -> tuple[Finding, ...]:
    text = f"a table: {len(numbers)} columns of numbers, {len(categories)} of categories"
    findings = [Finding(CHOSEN, "inputs", text)]
    for about, names in (("numbers", numbers), ("categories", categories)):
        if names:
            findings.append(Finding(CHOSEN, about, shortened(names, 12)))
    reasons: dict[str, list[str]] = {}
    for column in columns:
        if column.why.startswith((column_types.WITH_COMMAS, column_types.WITH_SIGNS)):
            use = "left out" if column.use == OUT else "read as a category"
            about = "commas" if column.why.startswith(column_types.WITH_COMMAS) else "signs"
            findings.append(Finding(WARNING, about, f"{column.name} is {use}: {column.why}"))
        elif column.why.startswith(column_types.MOSTLY):
            text = f"{column.name} is read as a category: {column.why}. To have it read as numbers,"
            text += " leave these cells empty, or write a number, in copies of both tables"
            findings.append(Finding(UNKNOWN, "mixed", text))
        elif column.why.startswith(column_types.PROSE):
            text = f"{column.name} is left out, since text is not supported: {column.why}"
            findings.append(Finding(WARNING, "text", text))
        elif column.use == OUT:
            reasons.setdefault(column.why, []).append(column.name)
    for why, left_out in reasons.items():
        findings.append(Finding(CHOSEN, "left out", f"{shortened(left_out, 12)}: {why}"))
    gaps = [
        f"{column.name} {column.missing:.0%}/{column.missing_test or 0:.0%}"
        for column in columns
        if column.use != OUT and (column.missing or column.missing_test)
    ]
    if gaps:
        text = f"{shortened(gaps, 8)} of the rows (training/test) have no value; "
        findings.append(Finding(FOUND, "missing", text + "a missing number is marked as one"))
    return tuple(findings)

"""Read training and test examples from pixel columns, image arrays or table columns.

See `workbench.inspect.images` for image files.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.config import Data
from pipeline.data import duplicates, samples, table_features
from pipeline.data.image_arrays import Source
from pipeline.errors import DataError
from workbench.inspect import columns
from workbench.inspect.columns import CATEGORY, DATE, NUMBER, Column
from workbench.inspect.folder import ARRAYS, TESTS, TRAINS, Findings
from workbench.inspect.tables import Contents

MOST_IMAGES = 20_000  # if there are more, a random sample is read
MOST_CATEGORIES = 64  # per column
NAMELESS = re.compile(r"(Unnamed: \d+)?")  # the name that pandas gives such a column


@dataclass(frozen=True)
class Seen:
    """A training or test set of which some or all examples were read.

    Attributes:
        ids: ids of the whole set, as texts.
        rows: position in `ids` of each example that was read, int64 (n,).
        keys: a key for each example that was read. Examples with the same content have the same
            key. A key of None does not match any other key.
        pixels: uint8 (n, height, width, channels), or None for a table.
        sources: paths of image files, or locations of images in TFRecords.
        broken: maps each id whose file cannot be decoded to the reason.
    """

    ids: Sequence[str] = field(repr=False)
    rows: np.ndarray = field(repr=False)
    keys: Sequence[Hashable] = field(default=(), repr=False)
    pixels: np.ndarray | None = field(default=None, repr=False)
    sources: Sequence[Source] = field(default=(), repr=False)
    broken: Mapping[str, str] = field(default_factory=dict)

    def id(self, place: int) -> str:
        return str(self.ids[self.rows[place]])


@dataclass(frozen=True)
class Reader:
    """A custom reader that is written into the config if no built-in reader supports the data.

    Attributes:
        template: name of the config template: "masks", "texts" or "pictures_and_columns".
        values: values for the template.
        pictures: the config fields for reading the images, if there are any.
        features: additional features for the baseline, besides the images: dense or sparse float32
            (n, k), with a row for each labelled example.
        otherwise: the inputs that can be used without this reader, if there are any.
    """

    template: str
    values: Mapping[str, Any]
    pictures: Data | None = None
    features: Any = field(default=None, repr=False)
    otherwise: "Inputs | None" = field(default=None, repr=False)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a competition.

    Attributes:
        data: the config's `data`, without augmentation.
        headers: output of `workbench.inspect.images.headers`, for image files.
        columns: the columns of a table, and how to read them.
    """

    data: Data
    train: Seen
    test: Seen
    headers: pd.DataFrame | None = field(default=None, repr=False)
    columns: tuple[Column, ...] = ()
    reader: Reader | None = None


def some(count: int, most: int = MOST_IMAGES) -> np.ndarray:
    """Return the positions of all `count` images, or of `most` random ones, sorted, int64."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def base(contents: Contents, *, tested: bool = False) -> dict[str, Any]:
    """Return the fields of `Data` that are the same for all kinds of inputs.

    If `tested` is True, `test_csv` is included even if the ids come from a sample submission.
    """
    labels, read = contents.labels, tested or contents.sample is None
    ids = contents.ids or contents.sample_id
    if contents.sample is None and contents.sample_id == samples.COUNTED:
        ids = contents.sample_id  # ids are row numbers in the test table
    train = {"train_csv": None if contents.source.class_folders else contents.train}
    return {
        **({} if contents.source.records else train),
        **({"test_csv": contents.test} if read and contents.test else {}),
        "sample_submission": contents.sample,
        "id_column": ids,
        "label_column": labels if len(labels) > 1 else labels[0],
    }


def train_ids(contents: Contents) -> list[str]:
    table = contents.table
    return list(map(str, range(len(table)) if contents.ids is None else table[contents.ids]))


def of_pixels(contents: Contents, findings: Findings) -> Inputs | None:
    names, folder = contents.source.pixels, contents.folder
    shape = columns.grid(names) if names else None
    if shape is None or contents.test is None:
        return None
    size: dict[str, Any] = dict(zip(("height", "width", "channels"), shape, strict=True))
    data = Data(**base(contents, tested=True), kind="pixels", **size)
    others = (data.id_column, contents.sample_id, *contents.labels)
    extra = [name for name in map(str, contents.table) if name not in others]
    if extra:
        raise DataError(
            f"{folder / contents.train} has {len(names)} pixel columns and other columns "
            f"({', '.join(extra[:6])}), but inspect supports only pixel columns here.\n"
            'Remove the other columns in a copy of each table, or write a config with kind="table" '
            "to read all columns."
        )
    text = f"{len(names)} pixel columns, {names[0]} to {names[-1]}, with values from 0 to 255"
    findings.chosen("inputs", text)
    shown = f"{'x'.join(map(str, shape))} (height x width x channels), row by row"
    findings.chosen("size", f"{shown}. Use --page to check that the images look right")
    pixels, _ = table_features.pixels(folder / contents.train, data, others)
    test_pixels, _ = table_features.pixels(folder / contents.test, data, others)
    return _in_memory(contents, data, pixels, test_pixels)


def of_arrays(contents: Contents, findings: Findings) -> Inputs | None:
    """Read image arrays with an image for each row of the training and test tables."""
    folder, chosen = contents.folder, []
    shapes = {name: _shape(folder / name) for name in contents.files.ending(*ARRAYS)}
    for table, hint in ((contents.table, TRAINS), (contents.sample_table, TESTS)):
        fits = [name for name in shapes if len(shapes[name]) in (3, 4)]
        fits = [name for name in fits if shapes[name][0] == len(table)]
        found = [name for name in fits if hint.search(Path(name).stem)] or fits
        if len(found) > 1:
            raise DataError(
                f"{folder} has {len(found)} arrays with {len(table):,} images: "
                f"{', '.join(found)}. There must be only one.\n"
                "Move the other arrays to a different folder."
            )
        chosen += found
    if len(chosen) < 2 or shapes[chosen[0]][1:] != shapes[chosen[1]][1:]:
        return None
    train, test = chosen
    height, width, *channels = shapes[train][1:]
    size: dict[str, Any] = {"height": height, "width": width, "channels": (channels or [1])[0]}
    # Array rows follow the test table if there is one; the sample's order may differ.
    arrays: dict[str, Any] = {"train_array": train, "test_array": test}
    data = Data(**base(contents, tested=True), kind="arrays", **arrays, **size)
    text = (
        f"image arrays: {train} {shapes[train]} has one image per row of {contents.train}, and "
        f"{test} {shapes[test]} has one per row of {contents.asking}"
    )
    findings.chosen("inputs", text)
    pixels = table_features.array(folder / train, data, len(contents.table))
    test_pixels = table_features.array(folder / test, data, len(contents.sample_table))
    return _in_memory(contents, data, pixels, test_pixels)


def _shape(path: Path) -> tuple[int, ...]:
    try:
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            (name,) = found
            found = found[name]
    except Exception:  # many types of errors, which are reported when the array is read
        return ()
    return tuple(found.shape)


def _in_memory(
    contents: Contents, data: Data, pixels: np.ndarray, test_pixels: np.ndarray
) -> Inputs:
    ids, tested = contents.sample_ids, contents.source.tested
    order = np.arange(min(len(ids), len(test_pixels)))
    for name in (data.id_column, contents.sample_id):  # as in inference
        places = {} if tested is None else _places(tested, name)
        if len(places) == len(test_pixels) and places.keys() == set(ids):
            order = np.array([places[each] for each in ids])
            break

    def seen(ids: Sequence[str], images: np.ndarray) -> Seen:
        rows = some(len(images))
        return Seen(ids, rows, duplicates.row_digests(images[rows]), images[rows])

    test = seen(ids, test_pixels[order])
    return Inputs(data, seen(train_ids(contents), pixels), test)


def of_table(contents: Contents, findings: Findings) -> Inputs | None:
    labelled, tested = contents.table, contents.source.tested
    if tested is None or contents.test is None or contents.source.pixels:
        return None
    skip = {contents.ids, contents.sample_id, *contents.labels}
    others = [name for name in map(str, labelled) if name not in skip]
    nameless = [name for name in others if NAMELESS.fullmatch(name)]
    every = tuple(
        columns.judge(labelled[name], tested.get(name)) for name in others if name not in nameless
    )
    numbers, categories, dates = (
        tuple(column.name for column in every if column.use == use)
        for use in (NUMBER, CATEGORY, DATE)
    )
    read, test_ids = [*numbers, *categories, *dates], contents.sample_ids
    if not read:
        return None
    most = max((column.distinct for column in every if column.use == CATEGORY), default=0)
    data = Data(
        **base(contents, tested=True),
        kind="table",
        numeric_columns=numbers,
        categorical_columns=categories,
        date_columns=dates,
        most_categories=min(most + 2, MOST_CATEGORIES) if categories else MOST_CATEGORIES,
    )
    columns.describe(every, findings)
    if nameless:
        text = f"{', '.join(map(repr, nameless))}: a column without a name is only a row index"
        findings.chosen("left out", text)
    keys = pd.concat([labelled[read], tested[read]]).groupby(read, sort=False).ngroup().tolist()
    train = Seen(train_ids(contents), np.arange(len(labelled)), keys[: len(labelled)])
    in_order = dict(zip(test_ids, range(len(tested)), strict=False))
    places = _places(tested, contents.ids) or in_order
    test_rows = np.array([row for row, name in enumerate(test_ids) if name in places], int)
    test_keys = [keys[len(labelled) + places[test_ids[row]]] for row in test_rows]
    return Inputs(data, train, Seen(test_ids, test_rows, test_keys), columns=every)


def _places(table: pd.DataFrame, ids: str | None) -> dict[str, int]:
    return {name: row for row, name in enumerate(table[ids])} if ids in table else {}

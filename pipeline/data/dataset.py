"""Read a competition's labelled examples and test set, and create training batches.

A batch depends only on (seed, step), so a run can stop at any step and resume on any machine. All
batches have the same shape.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.augment.streams import Stream
from pipeline.config import Config, custom_code
from pipeline.config.data_layout import Data
from pipeline.config.rules import as_tuple
from pipeline.data import (
    csv_files,
    custom_readers,
    duplicates,
    image_arrays,
    image_files,
    labels,
    row_gathering,
    samples,
    table_features,
    tfrecords,
)
from pipeline.data.csv_files import check_column
from pipeline.data.image_arrays import Show
from pipeline.data.labels import Target
from pipeline.data.sampler import Sampler
from pipeline.data.table_features import ADVICE, Encoding
from pipeline.errors import DataError

MOST_WEIGHT = 1e6  # maximum weight of a row, so that sums remain precise


@dataclass(frozen=True)
class Examples:
    """Labelled examples in memory.

    Attributes:
        ids: n strings in table order.
        inputs: images as uint8 (n, height, width, channels) or `image_arrays.FileImages`, rows of a
            table as float32 (n, features), or custom inputs from `custom_readers.pack`.
        labels: labels from `pipeline.data.labels.read`.
        groups: int32 (n,), or None unless `data.group_column` or `data.group_duplicates` is set.
        encoding: encoding of a table, state of a custom reader as JSON, or None for images.
        broken: {id: reason} for each skipped image.
        weights: float64 (n,), or None unless `data.weight_column` is set.
        first_file: file content of the first image, or None if there are no image files.
    """

    ids: tuple[str, ...]
    inputs: np.ndarray
    labels: np.ndarray
    target: Target
    groups: np.ndarray | None = None
    encoding: Encoding | str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    weights: np.ndarray | None = None
    first_file: bytes | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.target.names

    @property
    def codes(self) -> np.ndarray:
        return np.asarray(labels.codes(self.labels))

    @cached_property  # shared by all folds of a run
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join(self.ids).encode())
        # Rows are hashed separately, because `FileImages` stores their digests.
        digest.update(b"".join(duplicates.row_digests(self.inputs)))
        for array in (self.labels, self.groups, self.weights):
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()


def read_training(
    folder: Path,
    config: Config,
    *,
    cache: Path | None = None,
    prepared: Sequence[Path] = (),
    show: Show = lambda line: None,
) -> Examples:
    """Load a competition's labelled examples, in the order of its table, records or class folders.

    Up to `image_files.most_skipped` images can be missing or broken. They are skipped and listed in
    `broken`, as are rows with invalid pixel values.

    Args:
        cache: folder in which large decoded images are stored for the next run.
        prepared: folders that may contain decoded images.

    Raises:
        DataError: if a file is missing, too many images are broken, or labels or columns do not
            match the config.
    """
    data = config.data
    path, table, ids, sources, custom = _rows(folder, config, show)
    inputs: Any
    encoding: Encoding | str | None = None
    reasons = dict[int, str]()
    if sources:
        in_files = config.feed == "files"
        inputs, reasons = image_arrays.read(
            sources, data, cache, show, base=folder, prepared=prepared, in_files=in_files
        )
    elif custom is not None:
        inputs, encoding = custom.inputs, custom.state
        custom_readers.check_test(folder, config, custom.state, show)
    elif data.kind == "pixels":
        inputs, reasons = table_features.pixels(path, data, {data.id_column, *_columns(data)})
    elif data.kind == "arrays":
        inputs = table_features.array(folder / data.train_array, data, len(ids))
    else:
        encoding = table_features.fit(table, data, path)
        inputs = table_features.encode(table, encoding, path)
    broken = {ids[row]: reason for row, reason in reasons.items()}
    if len(broken) > image_files.most_skipped(len(ids)):
        raise DataError(image_files.describe_broken(broken, len(ids), data))
    if broken:
        kept = np.setdiff1d(np.arange(len(ids)), list(reasons))
        inputs, table = image_arrays.some(inputs, kept), table.iloc[kept]
        ids = tuple(ids[row] for row in kept)
    whole = (source for row, source in enumerate(sources) if row not in reasons)
    first = next(map(image_arrays.readable, whole), None)
    if custom is not None and custom.labels is not None:
        target, values = Target("custom", ()), custom.labels
    else:
        target, values = labels.read(table, config, path)
    groups = None if data.group_column is None else group_codes(table[data.group_column], path)
    weights = None if data.weight_column is None else _weights(table[data.weight_column], path)
    if data.group_duplicates:
        groups = duplicates.groups(inputs, groups)
        number = f"{len(ids):,} images in {len(np.unique(groups)):,} groups of duplicates"
        show(f"{number}, which are kept together")
    return Examples(ids, inputs, values, target, groups, encoding, broken, weights, first)


def training_images(folder: Path, config: Config) -> image_arrays.Paths:
    """Return the source of each training image, in the same order as `read_training`.

    Raises the same errors as `read_training`.
    """
    return _rows(folder, config).sources


class _Rows(NamedTuple):
    path: Path
    table: pd.DataFrame
    ids: tuple[str, ...]
    sources: image_arrays.Paths = ()  # empty unless images are stored in files
    custom: custom_readers.Checked | None = None


def _columns(data: Data) -> list[str]:
    return [*data.labels, *data.input_columns, *data.row_columns]


def _rows(folder: Path, config: Config, show: Show | None = None) -> _Rows:
    data, names = config.data, _columns(config.data)
    sources: image_arrays.Paths = ()
    custom = None
    if data.kind == "custom":
        path = Path(custom_code.described(config, "read_training"))
        custom = custom_readers.read_training(folder, config)
        table = custom.table
    elif data.kind == "tfrecords":
        path = folder / ", ".join(as_tuple(data.train_records))
        features = (data.id_column, *names)
        sources, table = tfrecords.read(folder, data.train_records, data.image_feature, features)
    elif data.train_csv is None:
        path = folder / ", ".join(as_tuple(data.train_images))
        sources, table = image_files.class_folders(folder, data, show)
    else:
        path, key = folder / data.train_csv, (data.id_column,)
        # Only image files require ids.
        needed = (*key, *names) if data.kind == "images" else names
        table = csv_files.read(
            path, DataError, ADVICE, key, required=needed, numbers=data.numeric_columns
        )
    ids = tuple(map(str, range(len(table))))
    if data.id_column in table.columns:
        ids = table_features.unique_ids(table[data.id_column], path)
    if data.kind == "images" and not sources:
        sources = image_files.find(folder, ids, data)
    return _Rows(path, table, ids, sources, custom)


def group_codes(column: pd.Series, path: Path) -> np.ndarray:
    edit = "Fill in a group, which can be unique to its row, or omit group_column."
    check_column(path, column, column == "", "the group of each row", edit)
    return pd.factorize(column, sort=True)[0].astype(np.int32)


def _weights(column: pd.Series, path: Path) -> np.ndarray:
    numbers = csv_files.as_numbers(column)
    edit = "Correct the table, or omit data.weight_column."
    expected = f"weights from 0 to {MOST_WEIGHT:g}"
    check_column(path, column, ~numbers.between(0, MOST_WEIGHT), expected, edit)
    return numbers.to_numpy(np.float64)


@dataclass(frozen=True)
class TestSet:
    """A test set, in the order of the sample submission. It can be read in blocks.

    Attributes:
        source: inputs of shape (n, …): an array, or an object that reads rows on every access.
        broken: {row: reason} for each unusable row. If `source` is an object, it adds the rows
            that it could not read.
    """

    __test__ = False  # not a pytest class, despite its name

    ids: tuple[str, ...]
    source: Any
    broken: Mapping[int, str] = field(default_factory=dict)
    images: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def inputs(self, rows: np.ndarray) -> np.ndarray:
        """Read the inputs of some rows, with zeros for rows that cannot be decoded."""
        return np.asarray(self.source[np.asarray(rows)])

    def blocks(self, size: int) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
        """Read blocks of `size` rows, and yield (first row, inputs, {broken row: reason}) for each.

        The last block may be shorter. Later blocks are decoded in the background.

        Raises:
            DataError: if a file is missing or cannot be read.
        """
        first = 0
        for block, real in row_gathering.blocks(self.source, np.arange(len(self)), size):
            rows = range(first, first + real)
            yield first, block[:real], {row: self.broken[row] for row in rows if row in self.broken}
            first += real


def read_test(folder: Path, config: Config, encoding: Encoding | str | None = None) -> TestSet:
    """Load the complete test set.

    Args:
        encoding: encoding of a table, or state of a custom reader, from training.

    Raises:
        DataError: if ids do not match the examples, or a table or array does not match the config.
    """
    data = config.data
    sample = samples.ids(folder, data)
    names = sample.table.iloc[:, 0]
    first, ids = str(names.name), table_features.unique_ids(names, sample.path)
    if data.kind in ("images", "tfrecords"):
        images = image_arrays.FileImages(image_files.find(folder, ids, data, test=True), data)
        return TestSet(ids, images, images.broken)
    if isinstance(encoding, str):
        source = custom_readers.TestInputs(folder, config, ids, encoding)
        return TestSet(ids, source, source.broken, images=data.images)

    keys, path = (data.id_column, first), folder / data.test_csv
    table, columns = pd.DataFrame(), (*keys, *data.row_columns, *data.labels)
    if data.kind != "arrays" or path.is_file():
        numbers, needed = data.numeric_columns, data.input_columns
        table = csv_files.read(path, DataError, ADVICE, columns, required=needed, numbers=numbers)
    broken = dict[int, str]()
    if data.kind == "pixels":
        inputs, broken = table_features.pixels(path, data, columns)
    elif data.kind == "arrays":
        inputs = table_features.array(folder / data.test_array, data, len(ids))
    else:
        assert encoding is not None  # noqa: S101 - always set after training on a table
        rerun = bool(os.environ.get(image_files.RERUN))  # users cannot correct the table there
        inputs = table_features.encode(table, encoding, path, lenient=rerun)
    key = next((name for name in keys if name in table.columns), None)
    if key is not None:
        given = pd.Index(table_features.unique_ids(table[key], path))
        edit = "Use files from the same download."
        check_column(path, table[key], ~table[key].isin(ids), f"ids of {sample.path.name}", edit)
        check_column(sample.path, names, ~names.isin(given), f"ids of {path.name}", edit)
        rows = given.get_indexer(pd.Index(ids))
        if not np.array_equal(rows, np.arange(len(rows))):  # avoids loading a memory map
            inputs = inputs[rows]
        broken = {place: broken[row] for place, row in enumerate(rows.tolist()) if row in broken}
    elif len(inputs) != len(ids):
        raise DataError(
            f"{path} has {len(inputs)} rows, but {sample.path.name} has {len(ids)}. They must have "
            f"the same number, because {path.name} has no {data.id_column!r} or {first!r} column.\n"
            "Use files from the same download, or correct id_column in the config."
        )
    return TestSet(ids, inputs, broken, images=data.images)


class Weighted(NamedTuple):
    """A batch's labels, (batch,) or (batch, k), and loss weights, float32 (batch,)."""

    labels: Any
    weights: Any


@dataclass(eq=False)
class Batches:
    """Training batches, accessed by step.

    Every epoch is a permutation of all images, and the permutations are concatenated. Step s uses
    the positions from s x batch to (s + 1) x batch, so all batches have the same shape. A sampler
    replaces the permutations.

    Args:
        inputs: uint8 (m, height, width, channels) or float32 (m, features).
        labels: (m,) or (m, k).
        rows: int64 (n,), rows to train on. None uses all.
        weights: float32 (m,), each row's weight in the loss. None gives all rows the same weight.
        sampler: see `pipeline.data.sampler.of`. If None, each image is used once per epoch.
    """

    inputs: np.ndarray
    labels: np.ndarray
    _: KW_ONLY
    batch: int
    seed: int
    rows: np.ndarray | None = None
    weights: np.ndarray | None = None
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        self._rows = np.arange(len(self.labels)) if self.rows is None else self.rows
        self._order = -1, self._rows  # the most recently used permutation

    def __len__(self) -> int:
        return len(self._rows)

    def order(self, epoch: int) -> np.ndarray:
        """Return an epoch's permutation or sample of the n training rows, int64 (n,)."""
        if self._order[0] != epoch:
            random = np.random.default_rng((self.seed, Stream.ORDER, epoch))
            sampled = self.sampler(epoch) if self.sampler else random.permutation(len(self))
            self._order = epoch, sampled
        return self._order[1]

    def indices(self, step: int) -> np.ndarray:
        """Return the step's indices into the n training rows, int64 (batch,)."""
        positions = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, places = np.divmod(positions, len(self))
        every = np.unique(epochs).tolist()
        return np.concatenate([self.order(epoch)[places[epochs == epoch]] for epoch in every])

    def rows_of(self, step: int) -> np.ndarray:
        """Return the step's rows of `inputs`, int64 (batch,)."""
        return np.asarray(self._rows[self.indices(step)])

    def labels_of(self, step: int) -> Any:
        rows = self.rows_of(step)
        labels = self.labels[rows]
        return labels if self.weights is None else Weighted(labels, self.weights[rows])

    def at(self, step: int) -> tuple[np.ndarray, Any]:
        # A .npy file can store its axes in any order.
        return np.ascontiguousarray(self.inputs[self.rows_of(step)]), self.labels_of(step)

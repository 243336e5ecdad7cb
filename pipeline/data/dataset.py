"""Data: a competition folder as Kaggle mounts it → arrays, and arrays → batches.

Reads  CSVs of ids and labels, and what each example is: an image file, columns of a table, or a
part of an array Gives  `Examples` (images stay uint8 until the device), `TestSet` (in blocks),
`Batches` (training) and `padded` (evaluation, prediction)

Content and augmentation of a training batch are functions of (seed, step) and of nothing else, so a
run can stop anywhere and go on elsewhere. Every phase has one static shape.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from pipeline.config import Config
from pipeline.config.data_layout import Data
from pipeline.data import crop_and_flip, image_files, rand_augment, tabular, tfrecords
from pipeline.data import labels as targets
from pipeline.data.labels import Target
from pipeline.data.tabular import Encoding
from pipeline.errors import DataError, reading
from pipeline.storage import csv_text as tables

# Independent streams of random numbers from one seed: what is drawn for one never moves the other.
# Others are in folds, mixture, augmentation.
ORDER, AUGMENTATION = 1, 2


@dataclass(frozen=True)
class Examples:
    """Labelled examples in RAM.

    Attributes:
        ids: n texts, in the order of the table they came from.
        inputs: of images uint8 (n, height, width, channels), of a table float32 (n, features).
        labels: as `pipeline.data.labels.read` gives them. target: what they mean.
        groups: int32 (n,), equal for examples of one group; None where the config names no group
            column.
        encoding: of a table; None of images.
        broken: what was left out, since it cannot be decoded: why, by id.
    """

    ids: tuple[str, ...]
    inputs: np.ndarray
    labels: np.ndarray
    target: Target
    groups: np.ndarray | None = None
    encoding: Encoding | None = None
    broken: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def classes(self) -> tuple[str, ...]:
        """The texts of the labels."""
        return self.target.names

    def fingerprint(self) -> str:
        """Return a sha256 over ids, inputs, labels and groups: equal data, equal text."""
        digest = hashlib.sha256("\n".join(self.ids).encode())
        digest.update(np.ascontiguousarray(self.inputs).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        if self.groups is not None:
            digest.update(np.ascontiguousarray(self.groups).data)
        return digest.hexdigest()


def read_table(
    path: Path, names: Sequence[str], advice: str, *, optional: Collection[str] = ()
) -> pd.DataFrame:
    """Return these columns of a CSV as texts, exactly as written ("001" stays "001", "NA" stays
    "NA").

    Args:
        names: that must be there. optional: that are returned if they are there.

    Raises:
        DataError: if the file is missing, cannot be parsed, has no rows or lacks one of `names`.
    """
    with reading(path, DataError, advice):
        if not path.is_file():
            siblings = (
                sorted(p.name for p in path.parent.iterdir())[:10] if path.parent.is_dir() else []
            )
            raise DataError(
                f"{path} is missing; its folder holds: {', '.join(siblings) or 'nothing'}.\n"
                f"Expected a table with the columns {', '.join(names)}. {advice}"
            )
    table = tables.read(path, DataError, advice, {*names, *optional})
    missing = [name for name in names if name not in table.columns]
    if missing:
        header = tables.header(path, DataError, advice)
        raise DataError(
            f"{path} has the columns {', '.join(header[:20])[:1000]}; expected also {', '.join(missing)[:1000]}.\n"
            "Set id_column, label_column and the other columns in the config to the table's own."
        )
    if not len(table):
        raise DataError(
            f"{path} has a header and no rows; expected one row an example.\nComplete the download. {advice}"
        )
    return table


def read_training(
    folder: Path,
    config: Config,
    *,
    cache: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> Examples:
    """Return the labelled examples of a competition folder, in the table's order; of TFRecords file
    by file.

    Args:
        cache: a folder where decoded images are kept for the next run
            (`pipeline.data.parallel_decoding.read`), if they are not small.
        show: takes lines of text on it.

    Image files that cannot be decoded are left out and named in `broken`, as long as they are few
    (one in a hundred).

    Raises:
        DataError: if a file is missing, or too many are broken, or labels or columns are not what
            the config says.
    """
    data = config.data
    path, advice, places = folder / data.train_csv, "Set data.train_csv in the config.", None
    names = [*data.labels, *data.numeric_columns, *data.categorical_columns]
    names += [name for name in (data.group_column,) if name is not None]
    if data.kind == "tfrecords":
        path = folder / (
            data.train_records
            if isinstance(data.train_records, str)
            else ", ".join(data.train_records)
        )
        places, table = tfrecords.read(
            folder, data.train_records, data.image_feature, (data.id_column, *names)
        )
    else:
        # Files are found by id; the others are known by their place, if they have no id.
        named = [data.id_column] if data.kind == "images" else []
        table = read_table(path, [*named, *names], advice, optional=(data.id_column,))
    known = data.id_column in table.columns
    ids = _unique(table[data.id_column], path) if known else tuple(map(str, range(len(table))))
    encoding, broken = None, {}
    if data.kind in ("images", "tfrecords"):
        paths = places or image_files.find(folder, data.train_images, ids, data)
        inputs, found = image_files.read(paths, data, cache, show)
        broken = {ids[row]: reason for row, reason in found.items()}
        if len(broken) > len(ids) * image_files.MOST_LEFT_OUT:
            raise DataError(image_files.told(broken, len(ids), data))
        if broken:
            kept = np.setdiff1d(np.arange(len(ids)), list(found))
            inputs, table, ids = inputs[kept], table.iloc[kept], tuple(ids[row] for row in kept)
    elif data.kind == "pixels":
        inputs = tabular.pixels(path, data, (data.id_column, *names), advice)
    elif data.kind == "arrays":
        inputs = tabular.array(
            folder / data.train_array, data, len(ids), "Set data.train_array in the config."
        )
    else:
        encoding = tabular.fit(table, data, path)
        inputs = tabular.encode(table, encoding, path)
    target, labels = targets.read(table, config, path)
    groups = None if data.group_column is None else _groups(table, data.group_column, path)
    return Examples(ids, inputs, labels, target, groups, encoding, broken)


def _unique(column: pd.Series, path: Path) -> tuple[str, ...]:
    repeated = column[column.duplicated()]
    if len(repeated):
        raise DataError(
            f"{path} repeats {len(repeated)} ids, for example {', '.join(map(repr, repeated[:5]))}; expected each once.\nRemove the repeated rows."
        )
    return tuple(column)


def _groups(table: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    """Return the number of each row's group, int32 (n,): its place among the sorted texts of the
    column.
    """
    alone = int((table[column] == "").sum())
    if alone:
        raise DataError(
            f"{path} has {alone} rows without a text in {column!r}; expected the group of each image.\n"
            "Fill it in (an image of no group gets a text of its own), or set data.group_column=None."
        )
    return np.unique(table[column].to_numpy(str), return_inverse=True)[1].astype(np.int32)


@dataclass(frozen=True)
class TestSet:
    """The test set of a competition folder, in the order of sample_submission.csv; image files are
    decoded only as they are asked for.

    Attributes:
        ids: n texts.
        images: whether the inputs are images.
        blocks: takes a size, and yields (first row, inputs of the next rows, why a row cannot be
            decoded, by its number); from one row to before another, if they are given.
    """

    __test__ = False  # it is no test of pytest's

    ids: tuple[str, ...]
    blocks: image_files.Blocks
    images: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def inputs(self, rows: np.ndarray) -> np.ndarray:
        """Return the inputs of some rows, which are read again for it; zeros for those that cannot
        be decoded.
        """
        return np.stack(
            [next(iter(self.blocks(1, int(row), int(row) + 1)))[1][0] for row in np.asarray(rows)]
        )


def read_test(folder: Path, config: Config, encoding: Encoding | None = None) -> TestSet:
    """Return the test set.

    Args:
        encoding: of a table, as `read_training` found it.

    Raises:
        DataError: if an id has no example, an example has no id, or a table or array is not what
            the config says. No row is ever dropped.
    """
    data = config.data
    sample, advice = folder / data.sample_submission, "Set data.sample_submission in the config."
    with reading(sample, DataError, advice):
        first = tables.header(sample, DataError, advice)[0] if sample.is_file() else data.id_column
    # A submission may call its ids otherwise than the tables do; they are its first column in any
    # case.
    ids = _unique(read_table(sample, (first,), advice)[first], sample)
    if data.kind in ("images", "tfrecords"):
        return TestSet(ids, image_files.test_blocks(folder, ids, data))
    if data.kind == "arrays":
        return _array(folder, data, ids, first)
    path, advice = folder / data.test_csv, "Set data.test_csv in the config."
    names = (*data.numeric_columns, *data.categorical_columns)
    others = (
        data.id_column,
        first,
        *((data.group_column,) if data.group_column else ()),
        *data.labels,
    )
    table = read_table(path, names or others[:0], advice, optional=others)
    broken: dict[int, str] | None = (
        {} if os.environ.get(image_files.RERUN) else None
    )  # where nobody can mend them
    inputs = tabular.pixels(path, data, others, advice, broken) if data.kind == "pixels" else None
    if inputs is None:
        if encoding is None:
            raise DataError(
                "The artifact has no encoding of the table; expected one.\nTrain again with this config."
            )
        inputs = tabular.encode(
            table, encoding, path, lenient=bool(os.environ.get(image_files.RERUN))
        )
    key = next((name for name in (data.id_column, first) if name in table.columns), None)
    if key is not None:
        places = _places(table[key], ids, path, sample.name)
        inputs = inputs[places]
        broken = (
            {row: broken[place] for row, place in enumerate(places) if place in broken}
            if broken
            else None
        )
    elif len(inputs) != len(ids):
        raise DataError(
            f"{path} has {len(inputs)} rows and no column {data.id_column!r} or {first!r}, and {sample.name} has {len(ids)} rows; expected as "
            "many.\n"
            "Take them from the same download, or correct id_column in the config."
        )
    return TestSet(ids, _cut(inputs, broken=broken or {}), images=data.kind != "table")


def _array(folder: Path, data: Data, ids: tuple[str, ...], first: str) -> TestSet:
    """Return the test set of an array: its rows are those of test_csv, where there is one with ids,
    and else those of the sample.
    """
    path, rows = folder / data.test_csv, None
    if path.is_file():
        table = tables.read(
            path, DataError, "Set data.test_csv in the config.", {data.id_column, first}
        )
        key = next((name for name in (data.id_column, first) if name in table.columns), None)
        rows = None if key is None else _places(table[key], ids, path, data.sample_submission)
    inputs = tabular.array(
        folder / data.test_array, data, len(ids), "Set data.test_array in the config."
    )
    return TestSet(ids, _cut(inputs, rows))


def _places(column: pd.Series, ids: tuple[str, ...], path: Path, sample: str) -> np.ndarray:
    """Return in which row of a table each id stands: int64 (n,)."""
    order = {name: row for row, name in enumerate(_unique(column, path))}
    if set(order) != set(ids):
        missing, extra = sorted(set(ids) - set(order)), sorted(set(order) - set(ids))
        raise DataError(
            f"{path} and {sample} differ in {len(missing) + len(extra)} ids, for example {', '.join((missing + extra)[:5])}.\n"
            "Expected one row an id in both. Take them from the same download."
        )
    return np.array([order[name] for name in ids])


def _cut(
    inputs: np.ndarray,
    rows: np.ndarray | None = None,
    broken: Mapping[int, str] = MappingProxyType({}),
) -> image_files.Blocks:
    """Return `TestSet.blocks` of inputs; `rows`: which of them, in their order; None: all, as they
    lie. `broken`: why one cannot be used.
    """

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[image_files.Block]:
        end = len(inputs) if last is None else last
        for start in range(first, end, size):
            part = slice(start, min(start + size, end))
            told = {row: broken[row] for row in range(part.start, part.stop) if row in broken}
            yield start, inputs[part] if rows is None else inputs[rows[part]], told

    return blocks


class Batches:
    """Training batches, addressed by step.

    Step s takes the positions s x batch … (s + 1) x batch of an endless row of permutations of all
    images, one permutation an epoch. So every image is seen exactly once in each epoch, whatever
    the batch, and no shape ever differs.

    Args:
        inputs: uint8 (m, height, width, channels) or float32 (m, features), of which batches copy
            what they take, and nothing else is copied.
        labels: (m,) or (m, k).
        rows: int64 (n,), which of them are the images of these batches; None: all.
        batch: images a step.
        seed: of order and augmentation.
        crop_padding: zeros around an image, in pixels, before a random crop of its own size.
        flip: mirror each image left to right with probability 1/2.
        rand_augment, rand_magnitude: operations on each image and their strength, of
            `pipeline.data.rand_augment`; 0 operations: none.
    """

    def __init__(
        self,
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        rows: np.ndarray | None = None,
        batch: int,
        seed: int,
        crop_padding: int = 0,
        flip: bool = False,
        rand_augment: int = 0,
        rand_magnitude: float = 0.0,
    ) -> None:
        self._inputs, self._labels = inputs, labels
        self._rows = np.arange(len(labels)) if rows is None else rows
        self.batch, self.seed, self.crop_padding, self.flip = batch, seed, crop_padding, flip
        self.rand_augment, self.rand_magnitude = rand_augment, rand_magnitude
        self._order: tuple[int, np.ndarray] | None = None

    @classmethod
    def of(
        cls,
        examples: Examples,
        config: Config,
        rows: np.ndarray | None = None,
        *,
        batch: int | None = None,
        seed: int | None = None,
    ) -> "Batches":
        """Return the batches of a config, augmented as it says; `batch` and `seed` in place of its
        own.
        """
        return cls(
            examples.inputs,
            examples.labels,
            rows=rows,
            batch=config.batch if batch is None else batch,
            seed=config.seed if seed is None else seed,
            crop_padding=config.data.crop_padding,
            flip=config.data.flip,
            rand_augment=config.data.rand_augment,
            rand_magnitude=config.data.rand_magnitude,
        )

    def __len__(self) -> int:
        """Return how many images an epoch has."""
        return len(self._rows)

    def order(self, epoch: int) -> np.ndarray:
        """Return the permutation of all images that is that epoch: int64 (n,)."""
        if self._order is None or self._order[0] != epoch:
            self._order = (
                epoch,
                np.random.default_rng((self.seed, ORDER, epoch)).permutation(len(self)),
            )
        return self._order[1]

    def indices(self, step: int) -> np.ndarray:
        """Return which of the n images the step takes: int64 (batch,)."""
        epoch, place = divmod(step * self.batch, len(self))
        parts, needed = [], self.batch
        while needed > 0:
            part = self.order(epoch)[place : place + needed]
            parts.append(part)
            needed -= len(part)
            epoch, place = epoch + 1, 0
        return np.concatenate(parts)

    def at(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the step's inputs, of images uint8 (batch, height, width, channels), augmented,
        and its labels.
        """
        rows = self._rows[self.indices(step)]
        random = np.random.default_rng((self.seed, AUGMENTATION, step))
        down, right = random.integers(0, 2 * self.crop_padding + 1, (2, self.batch))
        mirrored = random.random(self.batch) < 0.5
        images = np.ascontiguousarray(
            self._inputs[rows]
        )  # of a .npy file whose axes lie otherwise it is not
        if self.crop_padding:
            images = crop_and_flip.shifted(images, self.crop_padding, down, right)
        if self.flip:
            images[mirrored] = crop_and_flip.mirrored(images[mirrored])
        if self.rand_augment:
            images = np.ascontiguousarray(
                rand_augment.randomly(
                    images, self.seed, step, self.rand_augment, self.rand_magnitude
                )
            )
        return images, self._labels[rows]


def padded(inputs: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (batch rows of the inputs, how many of them are real); zeros fill the last one. Drops
    nothing.
    """
    for start in range(0, len(inputs), batch):
        part = inputs[start : start + batch]
        if len(part) < batch:
            filled = np.zeros((batch, *inputs.shape[1:]), inputs.dtype)
            filled[: len(part)] = part
            yield filled, len(part)
        else:
            yield part, batch

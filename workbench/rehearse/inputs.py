"""The inputs of a competition folder, by kind: which belong to a test set, and copies of some rows.

Images are linked. Of tables, arrays and records, the wanted rows are written anew. Images of a test
set of labelled rows are copied in its order, so that inodes and times tell no more than names.
"""

import csv
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from formats.errors import writing
from pipeline.config.data_layout import ENDINGS, Data
from pipeline.config.rules import as_tuple
from pipeline.data import csv_files, image_arrays, image_files, table_features, tfrecords
from pipeline.errors import DataError

ADVICE = "Correct the folder, or the config."
Place = Callable[[Path, Path], None]
"""Makes the content of a file, the first, appear as another: `link` or `copy`."""


class Inputs(Protocol):
    """The inputs of a folder.

    Attributes:
        named: files that belong to labelled rows or to the test set, relative to the folder.
        endings: of what may be a test set.
    """

    named: set[str]
    endings: tuple[str, ...] = ()

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has a test set for these ids of its sample submission."""

    def like_test(self, names: Sequence[str], ids: Sequence[str]) -> str:
        """Return which of these other files looks like a part of the test set; "" if none does."""
        return next((name for name in names if name.endswith(self.endings)), "")

    def broken(self, rows: np.ndarray) -> list[int]:
        """Return which of these rows have no file, or one that cannot be decoded."""
        return []  # what is not in a file of its own is read by a session, as a whole

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, with these ids."""

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids, in the order of the sample."""


class Images(Inputs):
    """Image files, named by id.

    Args:
        folder: of the competition.
        data: its layout.
        ids: of the labelled rows.
        place: how files get into the folder of a session.
    """

    def __init__(self, folder: Path, data: Data, ids: Sequence[str], place: Place) -> None:
        self._folder, self._data, self._place = folder, data, place
        self._paths: list[str | None]
        if data.train_csv is None:  # ids are paths
            self._paths = [os.fspath(folder / name) for name in ids]
        else:
            found = image_files.find(folder, ids, data)
            self._paths = [None if path == image_arrays.MISSING else str(path) for path in found]
        self.named = {self._relative(path) for path in self._paths if path}
        self.named |= set() if data.train_csv is None else {data.train_csv}
        self._tests: dict[str, str | None] = {}

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has an input for any of these ids of the sample."""
        known = image_files.paths_by_id(self._folder, self._data.test_images, ids, self._data)
        self._tests = {name: known.get(name) for name in ids}
        self.named |= {self._relative(path) for path in self._tests.values() if path}
        return any(self._tests.values())

    def like_test(self, names: Sequence[str], ids: Sequence[str]) -> str:
        """Return an image that is called as an id of the sample."""
        known = {Path(name).name for name in ids}
        images = map(Path, (name for name in names if name.endswith(ENDINGS)))
        return next((str(path) for path in images if {path.name, path.stem} & known), "")

    def broken(self, rows: np.ndarray) -> list[int]:
        """Return which of these rows have no file, or one that cannot be decoded."""
        paths = [self._paths[row] or image_arrays.MISSING for row in rows]
        _, reasons = image_arrays.read(paths, self._data, None, None)
        return [int(rows[place]) for place in sorted(reasons)]

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""
        if self._data.train_csv is not None:
            _table(self._folder / self._data.train_csv, out / self._data.train_csv, rows)
        self._put(out, [path for path in (self._paths[row] for row in rows) if path])

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, with these ids."""
        place, ending = as_tuple(self._data.test_images)[0], self._data.suffix
        for row, name in zip(rows, names, strict=True):
            path = self._paths[row]
            if path:  # with the suffix "*" each file keeps its own; with "" names have one
                own = Path(path).suffix if ending == "*" else ending
                copy(Path(path), out / place / f"{name}{own}")

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids."""
        self._put(out, [path for path in map(self._tests.get, ids) if path])

    def _put(self, out: Path, paths: Sequence[str]) -> None:
        for path in paths:
            self._place(Path(path), out / self._relative(path))

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._folder)


class Tables(Inputs):
    """Rows of a table, which hold the inputs themselves: a table, or pixels in columns."""

    def __init__(self, folder: Path, data: Data, ids: Sequence[str], place: Place) -> None:
        self._folder, self._data = folder, data
        self._train, self._test = str(data.train_csv), folder / data.test_csv
        self.named = {self._train, data.test_csv}

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has a table of the test set."""
        return self._test.is_file()

    def like_test(self, names: Sequence[str], ids: Sequence[str]) -> str:
        """Return a table with the inputs of the training table, and without labels."""
        given = csv_files.header(self._folder / self._train, DataError, ADVICE)
        labels = set(self._data.labels)
        inputs = set(given) - labels - {self._data.id_column, *self._data.row_columns}
        tables = [name for name in names if name.lower().endswith((".csv", csv_files.PARQUET))]
        found = (set(csv_files.header(self._folder / name, DataError, ADVICE)) for name in tables)
        pairs = zip(tables, found, strict=True)
        return next((name for name, has in pairs if inputs <= has and not labels <= has), "")

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""
        _table(self._folder / self._train, out / self._train, rows)

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, with these ids."""
        _as_test_table(self._folder, self._data, out, rows, names)

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids."""
        _some(self._folder, self._data, out, ids)


class OwnFiles(Inputs):
    """What a custom reader reads: rows of the tables, and files that are named by id.

    It has to find them where the config says: `data.train_csv` and `train_images`, `data.test_csv`
    and `test_images`. A file `<id>`, or `<id>` with any ending, belongs to that row.
    """

    def __init__(self, folder: Path, data: Data, ids: Sequence[str], place: Place) -> None:
        self._folder, self._data, self._ids, self._place = folder, data, ids, place
        self._train, self._test = str(data.train_csv), folder / data.test_csv
        self._files = self._named_by(ids, data.train_images)
        self._tests: dict[str, list[tuple[str, str]]] = {}
        self.named = {self._train, data.test_csv} | self._names(self._files)

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has a table of the test set, or files for any of these ids."""
        self._tests = self._named_by(ids, self._data.test_images)
        self.named |= self._names(self._tests)
        return bool(ids) and (self._test.is_file() or bool(self._tests))

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""
        _table(self._folder / self._train, out / self._train, rows)
        self._put(out, self._files, [self._ids[row] for row in rows])

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, with these ids."""
        _as_test_table(self._folder, self._data, out, rows, names)
        place = as_tuple(self._data.test_images)[0]
        for row, name in zip(rows, names, strict=True):
            for path, ending in self._files.get(self._ids[row], ()):
                copy(self._folder / path, out / place / f"{name}{ending}")

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids."""
        if self._test.is_file():
            _some(self._folder, self._data, out, ids)
        self._put(out, self._tests, ids)

    def _put(
        self, out: Path, files: Mapping[str, Sequence[tuple[str, str]]], ids: Sequence[str]
    ) -> None:
        for name in ids:
            for path, _ in files.get(name, ()):
                self._place(self._folder / path, out / path)

    def _named_by(
        self, ids: Sequence[str], places: str | tuple[str, ...]
    ) -> dict[str, list[tuple[str, str]]]:
        """Return the files of each id that has any: (path in the folder, what follows the id)."""
        known, found = set(ids), dict[str, list[tuple[str, str]]]()
        for place in as_tuple(places):
            for path in sorted((self._folder / place).rglob("*")):
                name = whole = path.relative_to(self._folder / place).as_posix()
                while name not in known and "." in name.rpartition("/")[2]:
                    name = name.rpartition(".")[0]  # a.tar.gz may be of the id a
                if name in known and path.is_file():
                    relative = path.relative_to(self._folder).as_posix()
                    found.setdefault(name, []).append((relative, whole.removeprefix(name)))
        return found

    @staticmethod
    def _names(files: Mapping[str, Sequence[tuple[str, str]]]) -> set[str]:
        return {path for some in files.values() for path, _ in some}


class Arrays(Inputs):
    """Images in one array, and a table with their labels."""

    endings = (".npy", ".npz")

    def __init__(self, folder: Path, data: Data, ids: Sequence[str], place: Place) -> None:
        self._folder, self._data, self._count = folder, data, len(ids)
        self._train = str(data.train_csv)
        self.named = {self._train, data.test_csv, data.train_array, data.test_array}
        self._ids: tuple[str, ...] = ()

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has an array of the test set."""
        self._ids = tuple(ids)
        return (self._folder / self._data.test_array).is_file()

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""
        data = self._data
        _table(self._folder / self._train, out / self._train, rows)
        _array(self._images(data.train_array, self._count)[rows], out / data.train_array)

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, in the order of the sample."""
        data = self._data
        _array(self._images(data.train_array, self._count)[rows], out / data.test_array)
        if (self._folder / data.test_csv).is_file():
            _as_test_table(self._folder, data, out, rows, names)

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids."""
        data, path = self._data, self._folder / self._data.test_csv
        images, kept = self._images(data.test_array, len(self._ids)), np.arange(len(ids))
        if path.is_file():
            kept = _some(self._folder, data, out, ids)
        _array(images[kept], out / data.test_array)

    def _images(self, name: str, rows: int) -> np.ndarray:
        return table_features.array(self._folder / name, self._data, rows)


class Records(Inputs):
    """TFRecord files."""

    endings = (".tfrec", ".tfrecord")

    def __init__(self, folder: Path, data: Data, ids: Sequence[str], place: Place) -> None:
        self._folder, self._data = folder, data
        self.named = self._files(data.train_records)

    def has_test(self, ids: Sequence[str]) -> bool:
        """Return whether the folder has records of the test set."""
        found = self._files(self._data.test_records)
        self.named |= found
        return bool(found)

    def write_training(self, out: Path, rows: np.ndarray) -> None:
        """Write what a session trains on."""
        self._copy(self._data.train_records, out, rows)

    def write_test(self, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
        """Write labelled rows as a test set, with these ids, and of their features the image."""
        import tensorflow as tf

        data, wanted = self._data, set(rows.tolist())
        places = {
            row: (path, start, len(record))
            for row, (path, start, record) in enumerate(self._records(data.train_records))
            if row in wanted
        }
        pattern = as_tuple(data.test_records)[0]
        target = out / pattern.replace("*", "0").replace("?", "0")
        with writing(target), tf.io.TFRecordWriter(new_file(target)) as writer:
            for row, name in zip(rows.tolist(), names, strict=True):
                path, start, length = places[row]
                with path.open("rb") as file:
                    file.seek(start)
                    old = tf.train.Example.FromString(file.read(length)).features.feature
                key = tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()]))
                features = {data.image_feature: old[data.image_feature], data.id_column: key}
                made = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(made.SerializeToString(deterministic=True))

    def write_own_test(self, out: Path, ids: Sequence[str]) -> None:
        """Write the folder's own test set, cut to these ids."""
        data = self._data
        image, column = data.image_feature, data.id_column
        _, table = tfrecords.read(self._folder, data.test_records, image, (column,))
        self._copy(data.test_records, out, np.flatnonzero(table[column].isin(set(ids))))

    def _files(self, patterns: str | tuple[str, ...]) -> set[str]:
        return {
            path.relative_to(self._folder).as_posix()
            for pattern in as_tuple(patterns)
            for path in self._folder.glob(pattern)
        }

    def _records(self, patterns: str | tuple[str, ...]) -> Iterator[tuple[Path, int, bytes]]:
        """Yield the file of each record, its first byte there, and its bytes."""
        for path in tfrecords.files(self._folder, patterns):
            for _, start, record in tfrecords.records(path):
                yield path, start, record

    def _copy(self, patterns: str | tuple[str, ...], out: Path, rows: np.ndarray) -> None:
        """Copy the records with these numbers, from 0, to files of the same names."""
        import tensorflow as tf

        kept, writers = set(rows.tolist()), dict[Path, Any]()
        with writing(out), ExitStack() as stack:
            for row, (path, _, record) in enumerate(self._records(patterns)):
                if row in kept:
                    if path not in writers:
                        target = new_file(out / path.relative_to(self._folder))
                        writers[path] = stack.enter_context(tf.io.TFRecordWriter(target))
                    writers[path].write(record)


KINDS: dict[str, Callable[[Path, Data, Sequence[str], Place], Inputs]] = {
    "images": Images,
    "pixels": Tables,
    "table": Tables,
    "arrays": Arrays,
    "tfrecords": Records,
    "custom": OwnFiles,
}


def link(source: Path, target: Path) -> None:
    """Make a file's content appear at `target`, without a copy where the file system allows it.

    Raises:
        DiskError: if it cannot be written, or there is something.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A session sees the folder read-only, so the original cannot change.
            os.link(os.path.realpath(source), target)
        except FileExistsError:
            raise
        except OSError:  # another file system, or one without links
            copy(source, target)


def copy(source: Path, target: Path) -> None:
    """Copy a file's content, without its times.

    Raises:
        DiskError: if it cannot be written, or there is something.
    """
    with writing(target):
        shutil.copyfile(source, new_file(target))


def new_file(path: Path) -> str:
    """Make an empty file and return its path. What is there may be a link to the user's own file.

    Raises:
        OSError: if there is something.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    return os.fspath(path)


def _write(target: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with writing(target), Path(new_file(target)).open("w", newline="", encoding="utf-8") as file:
        if csv_files.is_parquet(target):
            pd.DataFrame(list(map(list, rows)), columns=list(header), dtype="string").to_parquet(
                target, index=False
            )
        else:
            csv.writer(file, lineterminator="\n").writerows((header, *rows))


def _table(source: Path, target: Path, kept: np.ndarray) -> None:
    """Copy the rows of a table with these numbers, from 0, in its own order."""
    rows, wanted = csv_files.rows(source, DataError, ADVICE), set(kept.tolist())
    header = next(rows)
    _write(target, header, (row for number, row in enumerate(rows) if number in wanted))


def _as_test_table(
    folder: Path, data: Data, out: Path, rows: np.ndarray, names: Sequence[str]
) -> None:
    """Write labelled rows as the table of a test set, with its columns, in the order of `rows`."""
    path, test = folder / str(data.train_csv), folder / data.test_csv
    given, keys = csv_files.header(path, DataError, ADVICE), _id_columns(folder, data)
    inputs = {*data.numeric_columns, *data.categorical_columns}
    if test.is_file():
        wanted = csv_files.header(test, DataError, ADVICE)
    else:  # nothing but inputs: another column may tell the label
        hidden = {*keys, *data.row_columns, *data.labels}
        kept = inputs if data.kind == "table" else set(given) - hidden
        wanted = [data.id_column, *(name for name in given if name in kept)]
    places = {name: place for place, name in enumerate(given) if name not in data.labels}
    numbers, lines = set(rows.tolist()), csv_files.rows(path, DataError, ADVICE)
    next(lines)
    found = {number: row for number, row in enumerate(lines) if number in numbers}

    def cell(name: str, column: str, row: list[str]) -> str:
        if column in keys:
            return name
        return row[places[column]] if column in places else ""

    _write(
        out / data.test_csv,
        wanted,
        (
            [cell(name, column, found[row]) for column in wanted]
            for row, name in zip(rows.tolist(), names, strict=True)
        ),
    )


def _some(folder: Path, data: Data, out: Path, ids: Sequence[str]) -> np.ndarray:
    """Copy the rows of the test table that these ids ask for, and return their numbers.

    A table without ids is in the order of the sample.
    """
    source = folder / data.test_csv
    header = csv_files.header(source, DataError, ADVICE)
    key = next((name for name in _id_columns(folder, data) if name in header), None)
    kept = np.arange(len(ids))
    if key is not None:
        table = csv_files.read(source, DataError, ADVICE, (key,))
        kept = np.flatnonzero(table[key].isin(set(ids)))
    _table(source, out / data.test_csv, kept)
    return kept


def _id_columns(folder: Path, data: Data) -> tuple[str, ...]:
    """Return what the column of ids may be called (`pipeline.data.dataset.read_test`)."""
    path = folder / data.sample_submission
    sample = csv_files.header(path, DataError, ADVICE)[:1] if path.is_file() else []
    return (data.id_column, *sample)


def _array(images: np.ndarray, target: Path) -> None:
    with writing(target), Path(new_file(target)).open("wb") as file:
        if target.suffix == ".npz":
            np.savez(file, images)
        else:
            np.save(file, images)

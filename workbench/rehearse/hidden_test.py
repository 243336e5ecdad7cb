"""Create a rehearsal's hidden test set from some of a folder's labelled rows.

The folder itself is not modified. Sessions get links to its files. Tables, arrays and records are
copied instead, without the hidden rows. Only this process knows the labels of the hidden rows.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from formats import archives
from formats.errors import writing
from pipeline.config import Config, Data, custom_code
from pipeline.config.rules import as_tuple
from pipeline.data import (
    csv_files,
    image_arrays,
    image_files,
    labels,
    samples,
    table_features,
    tfrecords,
)
from pipeline.data.dataset import Examples, group_codes, read_training
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import held_out_rows, metrics
from pipeline.infer import submission
from workbench.rehearse import records, scoring
from workbench.rehearse.hold_out import HoldOut

ADVICE = "Correct the folder or the config."
SHOWN = 3  # maximum number of ids in a message


class Scored(NamedTuple):
    """A score and its standard error, which is estimated by resampling rows."""

    score: float
    error: float


class HiddenTest:
    """A competition folder with a hidden test set, which is selected with the config's seed.

    The selection is stratified by label, and all rows of a group are in the same set.

    Args:
        folder: competition folder, as mounted by Kaggle, with or without a test set.
        copied: whether to copy files instead of linking to them, because a session could write to
            the original files through links.

    Attributes:
        labelled: number of labelled rows.
        tests: number of rows in the larger of the two test sets.
        train, visible, hidden: sorted row indices of the training set and of both test sets, int64.
            `visible` is empty if the folder has its own test set.
        test_ids: ids of the folder's own test set, or empty if it has none.
        baseline: the config's baseline, or None if it uses a different metric.
        scored: the last score, or None if there is no score yet.
        made_up: messages about missing files that the rehearsal creates.

    Raises:
        DataError: if there are too few rows, if the config does not specify the folder's sample
            submission or test set, or if `pipeline.data.dataset.read_training` raises this error.
    """

    def __init__(self, config: Config, folder: Path, *, copied: bool = False) -> None:
        self._config, self._folder, self._copied = config, folder, copied
        data = config.data
        table, path = _labelled(config, folder)
        self._table = table
        self.labelled = len(table)
        if config.target == "custom":  # splits ignore custom labels
            self._target, values = Target("custom", ()), np.zeros(len(table))
        else:
            self._target, values = labels.read(table, config, path)
        ids = tuple(map(str, range(len(table))))
        if data.id_column in table.columns:
            ids = table_features.unique_ids(table[data.id_column], path)
        groups = _groups(config, folder, table, ids, path)
        nothing = np.zeros((len(ids), 1))  # splits ignore inputs
        self._examples = Examples(ids, nothing, values, self._target, groups)
        self._files = self._files_of(ids)
        self._names = _names(config, ids)
        self._own = _own_sample(folder, data)
        self.test_ids = () if self._own is None else tuple(self._own.iloc[:, 0])
        self._test_files = self._files_of(self.test_ids, test=True) if self.test_ids else {}
        self.made_up: tuple[str, ...] = ()
        if not self.test_ids:
            lacking = f"there is no {data.sample_submission} with rows, so it is created"
            stands_in = "there is no test set, so some labelled rows become the visible test set"
            self.made_up = (*([lacking] if data.sample_submission else []), stands_in)
        self._hold_out = HoldOut(self._examples, config)
        self.train, self.hidden = self._split(np.arange(len(ids)))
        self.visible = np.array([], np.int64)
        if not self.test_ids:
            self.train, self.visible = self._split(self.train)
        self.tests = max(len(self.hidden), len(self.visible), len(self.test_ids))
        self.metric = metrics.of(config)
        self.lower_is_better = not self.metric.greater_is_better
        self.baseline = None if held_out_rows.differing(config) else config.baseline
        self.scored: Scored | None = None

    def limit(self, train: int | None, tests: int | None) -> None:
        """Reduce the number of rows in each set. The remaining rows are stratified by label.

        Args:
            train: maximum number of training rows, or None to keep all of them. More rows are kept
                if the session's split requires them.
            tests: maximum number of rows in each test set, or None to keep all of them. More rows
                are kept if a label would be missing otherwise.
        """
        self.train = self._fewer(self.train, train)
        self.hidden = self._fewer(self.hidden, tests)
        self.visible = self._fewer(self.visible, tests)
        self.test_ids = self.test_ids[:tests]

    def _split(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held = self._hold_out.hide(rows)
        if not len(held):
            raise DataError(
                f"{len(rows)} labelled rows are too few to hold out any of them. In a session, each"
                f" label must occur in {max(self._config.folds or 0, 2)} groups or rows.\n"
                "Use fewer folds in the config, or add rows."
            )
        return np.setdiff1d(rows, held), held

    def _fewer(self, rows: np.ndarray, most: int | None) -> np.ndarray:
        """Select fewer rows, and drop broken images, which could be many among so few rows."""
        kept = self._hold_out.fewer(rows, most)
        if len(kept) == len(rows) or self._config.data.kind != "images":
            return kept
        paths = [next(iter(self._files.get(row, [])), image_arrays.MISSING) for row in kept]
        whole = [str(self._folder / path) if path else path for path in paths]
        _, reasons = image_arrays.read(whole, self._config.data)
        broken = kept[sorted(reasons)]
        if not len(broken) or len(broken) > len(kept) / 2:  # if there are many, training fails
            return kept
        names = ", ".join(self._examples.ids[row] for row in broken[:SHOWN])
        reason = f"broken or missing images, such as {names}, and are skipped"
        self.made_up += (f"{len(broken)} of {len(kept):,} selected rows have {reason}",)
        return np.setdiff1d(kept, broken)

    # Scoring of submissions

    @property
    def solution(self) -> scoring.Columns:
        """The labels of the hidden test set, with the columns of the sample submission."""
        texts = self._table[list(self._config.data.labels)].agg(" ".join, axis=1)
        truth = dict(zip(self._called(self.hidden), texts.iloc[self.hidden], strict=True))
        return dict.fromkeys(map(str, self._sample(self.hidden).columns[1:]), truth)

    def sample(self) -> bytes:
        text: str = self._sample(self.hidden).to_csv(index=False, lineterminator="\n")
        return text.encode()

    def score(self, given: scoring.Columns) -> float:
        """Return the score of a submission on the hidden test set, using the config's metric.

        Args:
            given: {column: {id: text}}, with the same ids as `solution`.

        Raises:
            SubmissionError: if a value is invalid.
            DataError: if the metric is undefined.
        """
        if self._target.kind == "custom":
            both = self._read_as_labels(self.solution), self._read_as_labels(given)
        else:
            shown = self._sample(self.hidden).iloc[:, 1].tolist()
            target = replace(self._target, separator=submission.separator(self._target, shown))
            keys, positive = self._called(self.hidden), self._config.data.positive_label
            texts = {name: [column[key] for key in keys] for name, column in given.items()}
            predicted = scoring.predictions(target, self.metric, texts, positive)
            both = self._target.truth(self._examples.labels[self.hidden]), predicted
        error = metrics.standard_error(self.metric, *both, self._config.seed)
        self.scored = Scored(self.metric(*both), error)
        return self.scored.score

    def _read_as_labels(self, columns: scoring.Columns) -> np.ndarray:
        """Read a submission with the config's reader, as if it were the labels in a training table.

        The labels are returned in the order of the hidden test set.
        """
        data, ids = self._config.data, [self._names[row] for row in self.hidden]
        texts = zip(data.labels, columns.values(), strict=True)
        table = pd.DataFrame({data.id_column: ids} | {n: [c[i] for i in ids] for n, c in texts})
        with tempfile.TemporaryDirectory(prefix="scored-") as scratch:
            _write(table, Path(scratch) / str(data.train_csv))
            for row in self.hidden:
                for path in self._files.get(row, ()):
                    self._place(path, Path(scratch) / path)
            read = read_training(Path(scratch), self._config)
        places = {name: place for place, name in enumerate(read.ids)}
        return read.labels[[places[name] for name in ids if name in places]]

    def _sample(self, rows: np.ndarray) -> pd.DataFrame:
        """Return a sample submission. If the folder has one, its values are used."""
        data, own = self._config.data, self._own
        if own is not None and len(own) and data.sample_submission is not None:
            shown = own
        else:
            columns = submission.columns_of(self._target, self.metric, data.labels)
            shown = self._table.reindex(columns=[data.id_column, *columns], fill_value="0").head(1)
        sample = shown.iloc[np.arange(len(rows)) % len(shown)].copy()
        sample.isetitem(0, self._called(rows))
        return sample

    def _called(self, rows: np.ndarray) -> list[str]:
        if samples.counts_rows(self._folder, self._config.data):
            return list(map(str, range(len(rows))))
        return [self._names[row] for row in rows]

    # Folders for sessions

    def write(self, out: Path, *, hidden: bool = False) -> None:
        """Write the folder of a session, including the hidden test set if `hidden` is True.

        Files that come from archives are packed into archives again, as on Kaggle.

        Raises:
            DiskError: if a file cannot be written.
        """
        data, rows = self._config.data, self.hidden if hidden else self.visible
        for path in self._others():
            self._place(path, out / path)
        for row in self.train:
            for path in self._files.get(row, ()):
                self._place(path, out / path)
        if data.train_csv is not None and data.kind != "tfrecords":
            table = csv_files.read(self._folder / data.train_csv, DataError, ADVICE)
            between = csv_files.separator(self._folder / data.train_csv)
            if data.kind == "custom":  # an example can have several rows
                ids = {self._examples.ids[row] for row in self.train}
                table = table[table[data.id_column].isin(ids)]
            else:
                table = table.iloc[self.train]
            _write(table, out / data.train_csv, between)
        if data.kind == "arrays":
            images = self._images(data.train_array, self.labelled)
            _write(images[self.train], out / data.train_array)
        if data.kind == "tfrecords":
            records.copy(self._folder, data.train_records, out, self.train)
        if len(rows):
            self._write_test(out, rows)
            sample = self._sample(rows)
        else:
            self._write_own_test(out)
            assert self._own is not None  # noqa: S101 - otherwise the test set has labelled rows
            sample = self._own.head(len(self.test_ids))
        if data.sample_submission is not None:
            _write(sample, out / data.sample_submission)
        archives.pack(out, archives.packed_in(self._folder))

    def _others(self) -> set[str]:
        """Return the relative paths of all files that do not contain training or test rows."""
        data, folder = self._config.data, self._folder
        found = {f"{inside / name}" for inside, names in image_files.walk(folder) for name in names}
        named = {data.train_csv or "", data.sample_submission or ""}
        if data.kind != "images" or self._has_test_table():
            named |= {data.test_csv}
        if data.kind == "arrays":
            named |= {data.train_array, data.test_array}
        if data.kind == "tfrecords":
            for each in (*as_tuple(data.train_records), *as_tuple(data.test_records)):
                named |= {str(path.relative_to(folder)) for path in folder.glob(each)}
        files = (*self._files.values(), *self._test_files.values())
        return found - named - {path for some in files for path in some}

    def _write_test(self, out: Path, rows: np.ndarray) -> None:
        data, names = self._config.data, self._called(rows)
        place = as_tuple(data.test_images)[0]
        for row, name in zip(rows, names, strict=True):
            for path in self._files.get(row, ()):
                ending = Path(path).name.removeprefix(Path(self._examples.ids[row]).name)
                if not ending and Path(name).suffix != Path(path).suffix:  # class folders
                    ending = Path(path).suffix
                self._place(path, out / place / f"{name}{ending}")
        if data.kind == "arrays":
            images = self._images(data.train_array, self.labelled)
            _write(images[rows], out / data.test_array)
        if data.kind == "tfrecords":
            records.as_test(self._folder, data, out, rows, names)
        own = self._folder / data.test_csv
        if data.kind in ("pixels", "table", "custom") or self._has_test_table():
            source = self._folder / str(data.train_csv)
            table = self._table  # created from class folders
            if data.train_csv is not None:
                table = csv_files.read(source, DataError, ADVICE)
            if self._target.kind == "custom":  # an example can have several rows
                table = table.drop_duplicates(data.id_column)
            table = table.iloc[rows]
            keys, hidden = self._keys(), {*data.labels, *data.row_columns}
            if own.is_file():
                columns = csv_files.header(own, DataError, ADVICE)
            elif data.kind == "table":  # only inputs, because other columns may leak the label
                columns = [keys[0], *data.input_columns]
            else:
                columns = [keys[0], *(str(name) for name in table if name not in {*keys, *hidden})]
            test = table.drop(columns=list(data.labels), errors="ignore")
            test = test.reindex(columns=columns, fill_value="")
            test = test.assign(**{key: names for key in keys if key in columns})
            between = csv_files.separator(own if own.is_file() else source)
            _write(test, out / data.test_csv, between)

    def _write_own_test(self, out: Path) -> None:
        data, every = self._config.data, len(self._own) if self._own is not None else 0
        for row in range(len(self.test_ids)):
            for path in self._test_files.get(row, ()):
                self._place(path, out / path)
        kept = np.arange(len(self.test_ids))
        own = self._folder / data.test_csv
        if self._has_test_table():
            table = csv_files.read(own, DataError, ADVICE)
            key = next((name for name in self._keys() if name in table.columns), None)
            if key is not None:  # otherwise, it has the same order as the sample
                kept = np.flatnonzero(table[key].isin(self.test_ids))
            _write(table.iloc[kept], out / data.test_csv, csv_files.separator(own))
        if data.kind == "arrays":
            _write(self._images(data.test_array, every)[kept], out / data.test_array)
        if data.kind == "tfrecords":
            column = (data.id_column,)
            _, table = tfrecords.read(self._folder, data.test_records, data.image_feature, column)
            kept = np.flatnonzero(table[data.id_column].isin(self.test_ids))
            records.copy(self._folder, data.test_records, out, kept)

    def _has_test_table(self) -> bool:
        data = self._config.data
        read = data.kind not in ("images", "tfrecords") or (
            data.kind == "images" and data.sample_submission is None
        )
        return read and (self._folder / data.test_csv).is_file()

    def _keys(self) -> tuple[str, ...]:
        return (self._config.data.id_column, *([] if self._own is None else self._own.columns[:1]))

    def _images(self, name: str, rows: int) -> np.ndarray:
        return table_features.array(self._folder / name, self._config.data, rows)

    def _files_of(self, ids: Sequence[str], *, test: bool = False) -> dict[int, list[str]]:
        """Map each row to its relative paths. Rows without files are omitted.

        Raises:
            DataError: if the config's test set is not found, or if too many images are missing.
        """
        data, folder = self._config.data, self._folder
        if data.kind == "images" and data.train_csv is None and not test:  # ids are paths
            return {row: [name] for row, name in enumerate(ids)}
        if data.kind == "images":
            paths = enumerate(map(str, image_files.find(folder, ids, data, test=test)))
            known = ((row, path) for row, path in paths if path != image_arrays.MISSING)
            return {row: [os.path.relpath(path, folder)] for row, path in known}
        found = dict[int, list[str]]()
        if data.kind == "custom":
            found = _named_by(folder, ids, data.test_images if test else data.train_images)
        field = {"arrays": "test_array", "tfrecords": "test_records"}.get(data.kind, "test_csv")
        where = getattr(data, field)
        if test and not found and not any(any(folder.glob(each)) for each in as_tuple(where)):
            raise DataError(
                f"data.{field}={where!r} was not found in {folder}; expected a test set with the"
                f" {len(ids):,} ids of {data.sample_submission or 'the test set'}.\n"
                "Correct it in the config, or rehearse the folder without its sample submission."
            )
        return found

    def _place(self, path: str, target: Path) -> None:
        """Link or copy a file from the folder to `target`, which must not exist yet."""
        source = os.path.realpath(self._folder / path)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self._copied:
                try:  # sessions have read-only access, so they cannot modify the original
                    return os.link(source, target)
                except FileExistsError:
                    raise
                except OSError:  # a different file system, or links are not supported
                    pass
            target.touch(exist_ok=False)  # an existing file may be a link to the user's file
            shutil.copyfile(source, target)


def _labelled(config: Config, folder: Path) -> tuple[pd.DataFrame, Path]:
    """Return the ids, labels and groups of the labelled rows as texts, and the path of their file.

    With target="custom", all rows with the same id belong to one example, such as an image with
    several masks. Their values are joined.

    Raises:
        ConfigError: if the labels cannot be hidden, because only a custom reader knows where they
            are.
    """
    data = config.data
    names = [*data.labels, *data.row_columns]
    if data.kind == "tfrecords":
        path = folder / ", ".join(as_tuple(data.train_records))
        features = (data.id_column, *names)
        return tfrecords.read(folder, data.train_records, data.image_feature, features)[1], path
    there = data.train_csv is not None and (folder / data.train_csv).is_file()
    lacking = "" if there else f"data.train_csv={data.train_csv!r} is not a file in {folder}"
    if there and config.target == "custom":
        known = csv_files.header(folder / str(data.train_csv), DataError, ADVICE)
        if absent := set(data.labels) - {*known}:
            lacking = f"{data.train_csv} has no column {', '.join(sorted(absent))}"
    if data.kind == "custom" and lacking:
        raise ConfigError(
            f"The labels read by {custom_code.described(config, 'read_training')} cannot be hidden:"
            f" {lacking}. A rehearsal requires a table with {data.id_column!r} and the labels. If"
            " target='custom', the labels must have the format of a submission.\nSet data.train_csv"
            " and data.label_column, or train and infer on this machine without a score"
            " (docs/custom-code.md):\n"
            f"python -m pipeline train --config {config.name} --input {folder} --output run"
        )
    if data.train_csv is None:
        return image_files.class_folders(folder, data)[1], folder
    names += [data.id_column] if data.kind in ("images", "custom") else []
    advice, path = "Set data.train_csv in the config.", folder / data.train_csv
    table = csv_files.read(path, DataError, advice, (data.id_column,), required=names)
    if config.target == "custom":
        joined = dict.fromkeys(data.row_columns, "first") | dict.fromkeys(data.labels, " ".join)
        table = table.groupby(data.id_column, sort=False, as_index=False).agg(joined)
    return table, path


def _own_sample(folder: Path, data: Data) -> pd.DataFrame | None:
    """Return the sample submission or the test ids, or None if the folder has neither."""
    if samples.is_there(folder, data):
        return samples.of(folder, data).table
    if data.sample_submission is None:
        return None
    name = data.sample_submission
    other = next((path.name for path in sorted(folder.glob("*[sS]ubmission*.csv"))), None)
    if other is None:
        return None
    raise DataError(
        f"{folder / name} is missing; {other} appears to be the sample submission.\n"
        f"Set data.sample_submission to {other!r} in the config, or to None if the competition has"
        " no sample submission."
    )


def _groups(
    config: Config, folder: Path, table: pd.DataFrame, ids: tuple[str, ...], path: Path
) -> np.ndarray | None:
    column = config.data.group_column
    if not config.data.group_duplicates:
        return None if column is None else group_codes(table[column], path)
    read = read_training(folder, config)
    assert read.groups is not None  # noqa: S101 - group_duplicates creates groups
    known = dict(zip(read.ids, read.groups.tolist(), strict=True))
    # Images that cannot be decoded get their own group.
    return np.array([known.get(name, len(ids) + row) for row, name in enumerate(ids)], np.int32)


def _names(config: Config, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of labelled rows in a test set.

    Paths such as "cats/1.jpg" are replaced, because they would reveal the label.
    """
    if config.data.train_csv is not None or config.data.kind != "images":
        return ids
    whole = not config.data.suffix  # ids are whole file names
    return tuple(f"h{row:06d}{Path(ids[row]).suffix * whole}" for row in range(len(ids)))


def _named_by(
    folder: Path, ids: Sequence[str], places: str | tuple[str, ...]
) -> dict[int, list[str]]:
    """Map each row to the files that are named after its id, with any suffix."""
    known, found = {name: row for row, name in enumerate(ids)}, dict[int, list[str]]()
    for place in as_tuple(places):
        for path in sorted((folder / place).rglob("*")):
            name = path.relative_to(folder / place).as_posix()
            while name not in known and "." in name.rpartition("/")[2]:
                name = name.rpartition(".")[0]  # a.tar.gz can belong to id a
            name = name if name in known else name.rpartition("/")[2]  # ids without the folder
            if name in known and path.is_file():
                found.setdefault(known[name], []).append(path.relative_to(folder).as_posix())
    return found


def _write(content: pd.DataFrame | np.ndarray, target: Path, between: str = ",") -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # may be a link to the user's file
        if isinstance(content, pd.DataFrame):
            if csv_files.is_parquet(target):
                content.astype("string").to_parquet(target, index=False)
            else:
                content.to_csv(target, sep=between, index=False, lineterminator="\n")
        elif target.suffix == ".npz":
            np.savez(target, content)
        else:
            np.save(target, content)

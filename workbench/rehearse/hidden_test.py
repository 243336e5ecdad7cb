"""Makes a part of a folder's labelled rows the hidden test set of a rehearsal.

The folder stays as it is. Sessions get links to its images, and copies of its tables, arrays and
records without those rows. The labels of the hidden rows stay in this process. Neither name nor
place of a row in a test set follows from anything that a session sees.
"""

import os
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.config.rules import as_tuple
from pipeline.data import csv_files, image_files, labels, table_features, tfrecords
from pipeline.data.dataset import Examples, group_codes, read_training
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from workbench.rehearse import scoring, served_folder
from workbench.rehearse.inputs import KINDS, copy, link, new_file
from workbench.rehearse.row_choice import RowChoice

ADVICE = "Correct the folder, or the config."
SHOWN = 3  # files that are listed by name


class HiddenTest:
    """A competition folder with a hidden test set, chosen by the config's seed.

    Rows are stratified by label; a group is on one side. Names and order of the rows of a test set
    are drawn anew each time, or follow from a secret.

    Args:
        config: for the folder.
        folder: as Kaggle would mount it, with a test set or without one.
        copied: copy in place of links, for sessions that could write through them.
        secret: that no session sees; "": none, everything is drawn anew.

    Attributes:
        labelled: rows that the folder has labels for.
        tests: rows of the larger test set.
        train, visible, hidden: which of these are trained on, sorted, and which are the two test
            sets, in their order: int64. `visible` is empty where the folder has a test set.
        test_ids: of the folder's own test set; empty where there is none.
        metric: of the config.
        lower_is_better: whether a lower score is better.
        left_out: files that no session gets, each with the reason.
        made_up: what the folder lacks and a rehearsal makes, in words.

    Raises:
        DataError: as `pipeline.data.dataset.read_training` says; if there are too few rows; or if
            the config names no sample submission or test set, and the folder seems to have one.
    """

    def __init__(
        self, config: Config, folder: Path, *, copied: bool = False, secret: str = ""
    ) -> None:
        self._config, self._folder, self._copied = config, folder, copied
        self._place = copy if copied else link
        self._draw = random.Random(secret) if secret else secrets.SystemRandom()  # noqa: S311
        self._written: tuple[Path, tuple[Path, ...]] | None = None
        data = config.data
        if data.kind == "custom":
            _require_table(config, folder)
        table, path = _labelled(config, folder)
        self.labelled = len(table)
        self._target, values = labels.read(table, config, path)
        ids = tuple(map(str, range(len(table))))
        if data.id_column in table.columns:
            ids = table_features.unique_ids(table[data.id_column], path)
        self._names = _neutral(ids, config, self._draw)
        self._inputs = KINDS[data.kind](folder, data, ids, self._place)
        self._own = _own_sample(folder, data.sample_submission)
        self.test_ids = tuple(self._own.iloc[:, 0]) if self._own is not None else ()
        self.made_up: tuple[str, ...] = ()
        if self._own is None:
            self.made_up = (f"there is no {data.sample_submission}: one is made",)
        if not self._inputs.has_test(self.test_ids):
            self._refuse_forgotten_test()
            self.test_ids = ()
            self.made_up += ("there is no test set: labelled rows stand in for the visible one",)
        nothing = np.zeros((len(ids), 1))  # a split looks at no input
        groups = _groups(config, folder, table, ids, path)
        self._examples = Examples(ids, nothing, values, self._target, groups)
        self._choice = RowChoice(self._examples, config)
        self.train, self.hidden = self._split(np.arange(len(ids)))
        self.visible = np.array([], np.int64)
        if not self.test_ids:
            self.train, self.visible = self._split(self.train)
        self.tests = max(len(self.hidden), len(self.visible), len(self.test_ids))
        self.metric = metrics.of(config)
        self.lower_is_better = not self.metric.greater_is_better
        self._placeholders = self._columns(table)
        self.left_out, self._linked = self._others(data.id_column in table.columns)
        self._labels = table[list(data.labels)].agg(" ".join, axis=1).tolist()

    @property
    def sources(self) -> tuple[Path, ...]:
        """The folders elsewhere that hold files of this one, to which its links lead."""
        return served_folder.sources(self._folder)

    def limit(self, train: int | None, tests: int | None) -> None:
        """Keep fewer rows, stratified by label.

        Args:
            train: most rows to train on, or more if the session's split needs them; None: all.
            tests: most rows of each test set, or one of each label; None: all.
        """
        self.train = self._fewer(self.train, train, split=True)
        self.hidden = self._fewer(self.hidden, tests)
        self.visible = self._fewer(self.visible, tests)
        self.test_ids = self.test_ids[:tests]

    def _fewer(self, rows: np.ndarray, most: int | None, *, split: bool = False) -> np.ndarray:
        """Return some rows without broken inputs: one is too large a share of few rows."""
        while True:
            kept = self._choice.fewer(rows, most, split=split)
            broken = self._inputs.broken(kept) if most is not None else []
            if not broken or len(broken) > len(kept) / 2:  # a session says that of half of them
                return kept
            names = ", ".join(self._examples.ids[row] for row in broken[:SHOWN])
            reason = f"broken or missing, such as {names}: others are taken"
            self.made_up += (f"{len(broken)} of {len(kept):,} chosen rows are {reason}",)
            rows = rows[~np.isin(rows, broken)]

    def _refuse_forgotten_test(self) -> None:
        """Raise `DataError` if files that the config does not name look like the test set."""
        data, known = self._config.data, {*self._inputs.named, self._config.data.sample_submission}
        others = [name for name in served_folder.files(self._folder) if name not in known]
        found = self._inputs.like_test(others, self.test_ids)
        if found:
            what = {"images": "test_images", "arrays": "test_array", "tfrecords": "test_records"}
            field = what.get(data.kind, "test_csv")
            raise DataError(
                f"data.{field}={getattr(data, field)!r}: {self._folder} has no test set there;"
                f" expected one for {data.sample_submission}, as {found} seems to be.\n"
                f"Correct data.{field} in the config."
            )

    def _split(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows without a test set, and the test set in an order that nobody can tell."""
        held = self._choice.hide(rows)
        if not len(held):
            raise DataError(
                f"{len(rows)} labelled rows are too few to hide any: a session needs each label in"
                f" {max(self._config.folds or 0, 2)} groups or rows; expected more.\n"
                "Lower folds in the config, or add rows."
            )
        order = held.tolist()
        self._draw.shuffle(order)
        return np.setdiff1d(rows, held), np.array(order, np.int64)

    @property
    def solution(self) -> scoring.Columns:
        """{column: {id: label}} of the hidden test set, with the sample's columns."""
        labels = {self._names[row]: self._labels[row] for row in self.hidden}
        return dict.fromkeys(list(self._placeholders)[1:], labels)

    def sample(self) -> bytes:
        """Return the sample submission to the hidden test set."""
        return _csv(self._sample(self.hidden))

    def score(self, given: scoring.Columns) -> float:
        """Return the config's metric of a submission to the hidden test set.

        Args:
            given: {column: {id: text}}, with the ids of `solution`.

        Raises:
            SubmissionError, DataError: as `workbench.rehearse.scoring.score` says.
        """
        keys = [self._names[row] for row in self.hidden]
        truth = self._target.truth(self._examples.labels[self.hidden])
        _, shown, *_ = self._sample(self.hidden).values()
        separator = submission.separator(self._target, shown)
        target = replace(self._target, separator=separator)
        positive = self._config.data.positive_label
        return scoring.score(target, self.metric, keys, truth, given, positive)

    def write(self, out: Path, *, hidden: bool = False) -> None:
        """Write what a session sees: with the visible test set, or, in a scored rerun, the hidden.

        Raises:
            DiskError: if it cannot be written.
        """
        self._write_training(out)
        rows = self.hidden if hidden else self.visible
        if len(rows):
            self._inputs.write_test(out, rows, [self._names[row] for row in rows])
            sample = self._sample(rows)
        else:
            self._inputs.write_own_test(out, self.test_ids)
            count = len(self.test_ids)
            sample = {name: texts[:count] for name, texts in self._placeholders.items()}
        path = out / self._config.data.sample_submission
        with writing(path):
            Path(new_file(path)).write_bytes(_csv(sample))

    def _write_training(self, out: Path) -> None:
        """Write what does not belong to a test set: once, and then links to it."""
        if self._written is not None and not self._copied:
            first, names = self._written
            for name in names:
                link(first / name, out / name)
            return
        for other in self._linked:
            self._place(self._folder / other, out / other)
        self._inputs.write_training(out, self.train)
        files = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
        self._written = out, tuple(files)

    def _columns(self, table: pd.DataFrame) -> dict[str, list[str]]:
        """Return {column: placeholders} of a sample submission, ids first."""
        if self._own is not None and len(self._own):
            return {name: list(self._own[name]) for name in self._own.columns}
        data, names = self._config.data, self._target.names
        columns = list(data.labels)
        several = len(names) > 2 or self._target.kind == "multilabel"
        if self.metric.takes == "scores" and self._target.kind != "regression" and several:
            columns = list(names)  # a probability each
        values = {name: list(table[name]) if name in table.columns else ["0"] for name in columns}
        return {data.id_column: [], **{name: texts[:1] for name, texts in values.items()}}

    def _sample(self, rows: np.ndarray) -> dict[str, list[str]]:
        """Return the sample submission for labelled rows, by column, ids first."""
        key, *others = self._placeholders
        given = {name: self._placeholders[name] for name in others}
        repeated = {
            name: [texts[place % len(texts)] for place in range(len(rows))]
            for name, texts in given.items()
        }
        return {key: [self._names[row] for row in rows], **repeated}

    def _others(self, with_ids: bool) -> tuple[tuple[str, ...], list[str]]:
        """Return what is left out, with the reasons, and the files that are linked."""
        data, target, ids = self._config.data, self._target, self._examples.ids
        known = set(map(os.path.normpath, (*self._inputs.named, data.sample_submission)))
        hidden = [ids[row] for row in self.hidden]
        words = served_folder.rarest_words(hidden, ids) if with_ids else set()
        labels = {name.lower() for name in target.names if target.kind != "regression"}
        tests = () if self.test_ids else as_tuple(data.test_images)
        places = tuple(f"{os.path.normpath(place)}/" for place in tests)
        left_out: dict[tuple[str, str], list[str]] = {}
        if self._own is not None and not len(self._own):
            left_out["", "it has a header and no rows"] = [data.sample_submission]
        linked = []
        for name in served_folder.files(self._folder):
            if name in known:
                continue
            reason = served_folder.refusal(self._folder, name, words, labels, self.labelled)
            if name.startswith(places):
                reason = "no sample submission asks for it"
            if reason:
                left_out.setdefault((str(Path(name).parent), reason), []).append(name)
            else:
                linked.append(name)
        return tuple(
            f"{', '.join(names[:SHOWN])}"
            f"{f' and {len(names) - SHOWN:,} more' * (len(names) > SHOWN)}: {reason}"
            for (_, reason), names in left_out.items()
        ), linked


def _require_table(config: Config, folder: Path) -> None:
    """Refuse a custom reader whose labels are in no table: they could not be hidden.

    Raises:
        ConfigError: if they are not.
    """
    table = config.data.train_csv
    if config.target == "custom":
        lacking = 'with target="custom" only the reader knows the labels'
    elif table is None or not (folder / table).is_file():
        lacking = f"data.train_csv={table!r} is no file of {folder}"
    else:
        return
    raise ConfigError(
        f"The labels that {custom_code.described(config, 'read_training')} reads cannot be hidden:"
        f" {lacking}. A rehearsal expects a table with {config.data.id_column!r} and the labels.\n"
        "Set data.train_csv, or train and infer here without a score (docs/custom-code.md):\n"
        f"python -m pipeline train --config {config.name} --input {folder} --output run"
    )


def _labelled(config: Config, folder: Path) -> tuple[pd.DataFrame, Path]:
    """Return ids, labels and groups of the labelled rows, as texts, and where they are from."""
    data = config.data
    names = [*data.labels, *data.row_columns]
    if data.kind == "tfrecords":
        path = folder / ", ".join(as_tuple(data.train_records))
        features = (data.id_column, *names)
        return tfrecords.read(folder, data.train_records, data.image_feature, features)[1], path
    if data.train_csv is None:
        return image_files.class_folders(folder, data)[1], folder
    path = folder / data.train_csv
    advice = "Set data.train_csv in the config."
    names += [data.id_column] if data.kind in ("images", "custom") else []
    return csv_files.read(path, DataError, advice, (data.id_column,), required=names), path


def _own_sample(folder: Path, name: str) -> pd.DataFrame | None:
    """Return the folder's sample submission; None if it has none.

    Raises:
        DataError: if a file with another name seems to be it.
    """
    if (folder / name).is_file():
        return csv_files.read(folder / name, DataError, ADVICE)
    other = next((path.name for path in sorted(folder.glob("*[sS]ubmission*.csv"))), None)
    if other is None:
        return None
    raise DataError(
        f"{folder / name} is missing; expected the sample submission, as {other} seems to be.\n"
        f"Set data.sample_submission={other!r} in the config."
    )


def _groups(
    config: Config, folder: Path, table: pd.DataFrame, ids: tuple[str, ...], path: Path
) -> np.ndarray | None:
    """Return the group of each labelled row, as `Examples.groups`."""
    column = config.data.group_column
    if not config.data.group_duplicates:
        return None if column is None else group_codes(table[column], path)
    read = read_training(folder, config)
    assert read.groups is not None  # noqa: S101 - with group_duplicates there are some
    known = dict(zip(read.ids, read.groups.tolist(), strict=True))
    # An image that cannot be decoded has none: it is alone.
    return np.array([known.get(name, len(ids) + row) for row, name in enumerate(ids)], np.int32)


def _neutral(ids: tuple[str, ...], config: Config, draw: random.Random) -> tuple[str, ...]:
    """Return what the rows are called in a test set.

    A name such as "cat.0" may tell the label, and so may a number, where rows are sorted by label.
    A letter before the digits keeps a program from taking a name for a number.
    """
    whole = config.data.kind == "images" and not config.data.suffix  # ids are whole file names
    suffixes = (Path(name).suffix if whole else "" for name in ids)
    return tuple(f"x{draw.getrandbits(64):016x}{suffix}" for suffix in suffixes)


def _csv(columns: Mapping[str, Sequence[str]]) -> bytes:
    text: str = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
    return text.encode()

"""Find the role of each table in a competition folder, and the ids and labels.

Roles are determined from the contents of files, or from their names if the contents are not
conclusive. If a folder is ambiguous, an error suggests an option that resolves the ambiguity.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.config.data_layout import ENDINGS
from pipeline.data import csv_files
from pipeline.errors import ConfigError, DataError
from workbench.inspect import columns, folder, no_sample, records, refusals
from workbench.inspect.folder import (
    ADVICE,
    ARRAYS,
    LABEL_TABLES,
    TESTS,
    Files,
    Findings,
    Labelled,
    called,
    counted,
    folded,
    shortened,
)
from workbench.inspect.no_sample import Headers
from workbench.inspect.records import Records

SAMPLES = re.compile("sample|submission", re.IGNORECASE)
LABEL_ARRAYS = re.compile("label|target|(^|[-_])y([-_]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Given:
    """The user's choices. If a field is "" or (), inspect makes the choice itself.

    Attributes:
        train: path of a table, or of a folder with one subfolder for each label.
        labels: columns to predict.
        alone: "pictures" or "columns" to use only one kind of inputs if a folder has both.
    """

    sample: str = ""
    train: str = ""
    test: str = ""
    labels: tuple[str, ...] = ()
    metric: str = ""
    alone: str = ""


@dataclass(frozen=True)
class Source:
    """The table, folder or TFRecords from which the training ids and labels were read.

    Attributes:
        name: name of the table, name of the folder that contains the class folders, or patterns of
            the TFRecords.
        table, tested: the training and test tables, as texts and without pixel columns.
        class_folders: whether `table` was created from folders named after labels.
        records: TFRecords from which `table` was created, if any.
    """

    name: str
    table: pd.DataFrame = field(repr=False)
    tested: pd.DataFrame | None = field(default=None, repr=False)
    pixels: tuple[str, ...] = field(default=(), repr=False)
    class_folders: bool = False
    records: Records | None = None


@dataclass(frozen=True)
class Contents:
    """The tables of a competition folder and their roles.

    Attributes:
        sample, test: paths of the sample submission and test table in the folder, or None.
        sample_table: the sample submission as texts, or the table that replaces a missing one.
        ids: name of the id column in the source's table, or None.
        labels: names of the label columns, ordered as in a submission.
        masks: whether the labels are run-length encoded masks, with one row per image.
    """

    files: Files
    sample: str | None
    sample_table: pd.DataFrame = field(repr=False)
    test: str | None
    source: Source
    ids: str | None
    labels: tuple[str, ...]
    masks: bool = False

    @property
    def train(self) -> str:
        return self.source.name

    @property
    def table(self) -> pd.DataFrame:
        return self.source.table

    @property
    def folder(self) -> Path:
        return self.files.folder

    @property
    def asking(self) -> str:
        """The file that lists the ids to predict, for messages."""
        return self.sample or self.test or "the test set"

    @property
    def sample_id(self) -> str:
        return str(self.sample_table.columns[0])

    @property
    def sample_ids(self) -> list[str]:
        return list(self.sample_table.iloc[:, 0])


def read(place: Path, given: Given, findings: Findings) -> Contents:
    """Determine the role of each table.

    Raises:
        DataError: if the test set, labels or a header is missing, if a role is ambiguous, or if the
            folder has masks that cannot be described by a config.
        ConfigError: if a table or column that the user specified does not exist.
    """
    files = folder.read(place)
    sample = _find_sample(files, given.sample)
    headers = {name: _header(place / name) for name in files.tables if name != sample}
    given = replace(given, train=os.path.normpath(given.train) if given.train else "")
    asked = None
    if sample is not None:
        wanted = csv_files.read(place / sample, DataError, ADVICE)
        _check_sample(place / sample, wanted)
        findings.found("sample submission", _described(sample, wanted, wanted.columns))
        test = _find_test(place, headers, wanted, given.test, given.train)
    else:
        named = _given(place, headers, given.test, "--test") if given.test else ""
        asked = no_sample.asked(files, headers, given.train, named, given.labels)
        wanted, test = asked.table, asked.test
        findings.chosen("sample submission", asked.why)
    source = _find_source(files, headers, wanted, test, given, findings)
    train, labelled, held = source.name, source.table, source.records
    every = list(map(str, labelled))
    likely = [name for name in every if name in (given.labels or wanted.columns[1:])]
    masks = refusals.masks(labelled, likely or every)
    asking = "the sample submission" if sample else test or "the test set"
    ids, why = _find_ids(labelled, wanted, files, held, asking)
    findings.chosen("ids", why)
    if masks and ids is not None:
        refusals.classes(place / train, labelled, ids, list(wanted.columns[1:]))
        joined = dict.fromkeys(set(labelled) - {ids}, "first") | {masks: " ".join}
        labelled = labelled.groupby(ids, sort=False, as_index=False).agg(joined)[list(labelled)]
        source = replace(source, table=labelled)
        findings.chosen("labels", f"{masks}, which contains run-length encoded masks")
        return Contents(files, sample, wanted, test, source, ids, (masks,), masks=True)
    asks = [] if sample is None or given.labels else [*wanted.columns[1:]]
    if name := refusals.masks(wanted, asks, sample=True):
        raise refusals.segmentation(f"{place / str(sample)} has run-length masks in {name!r}")
    repeated = [] if ids is None else list(labelled[ids][labelled[ids].duplicated()])
    if repeated:
        raise DataError(
            f"{place / train} has {counted(len(repeated), 'duplicate id')} in {ids!r}, for example "
            f"{shortened(repeated, 3)}. Each id must have exactly one row.\n"
            "Remove the duplicate rows, or select another table: --train FILE"
        )
    if set(labelled) <= {ids} and (masked := refusals.mask_folder(files.images)):
        raise refusals.segmentation(f"{place / masked} contains masks of the images")
    beside = headers[test] if test else None if held is None else [*map(str, held.test_table)]
    labels, why = _find_labels(place / train, labelled, wanted, beside, ids, given)
    if asked is not None:
        why = f"{shortened(labels)}, {asked.grounds}"
    findings.chosen("labels", why)
    return Contents(files, sample, wanted, test, source, ids, labels)


def _find_source(
    files: Files,
    headers: Headers,
    wanted: pd.DataFrame,
    test: str | None,
    given: Given,
    findings: Findings,
) -> Source:
    place, tfrecords, chosen = files.folder, files.ending(*folder.RECORDS), given.train
    others = {name: header for name, header in headers.items() if name != test}
    if not (chosen in others if chosen else any(_with_labels(others, wanted))):
        made = None
        if not given.labels:  # these are columns or features, not folders
            asked = {*wanted.columns[1:], *wanted.iloc[:, 1:].to_numpy().ravel()}
            made = folder.class_folders(files.images, asked, chosen, by_name=not others)
        if made is not None:
            return _of_folders(made, files, wanted, findings)
        if tfrecords and not chosen and not (others and files.images):
            held = records.find(place, tfrecords, findings)
            return Source(", ".join(held.train), held.table, records=held)
        if not others and (masks := refusals.mask_folder(files.images)):
            raise refusals.segmentation(f"{place / masks} contains masks of the images")
    train, why = _find_train(files, others, wanted, chosen)
    pixels = columns.pixels(place / train, headers[train])
    table = csv_files.read(place / train, DataError, ADVICE, {*headers[train]} - {*pixels})
    findings.found("training table", f"{train}: {len(table):,} rows, {why}")
    if tfrecords:
        patterns = dict.fromkeys(map(records.pattern, tfrecords))
        findings.found(
            "records", f"{shortened(patterns)} are not read, because {train} has the labels"
        )
    if test is None:
        return Source(train, table, pixels=pixels)
    tested = csv_files.read(place / test, DataError, ADVICE, {*headers[test]} - {*pixels})
    findings.found("test table", _described(test, tested, headers[test]))
    return Source(train, table, tested, pixels)


def _of_folders(made: Labelled, files: Files, wanted: pd.DataFrame, findings: Findings) -> Source:
    place, label = made.place, wanted.columns[1] if len(wanted.columns) == 2 else "label"
    table = pd.DataFrame(made.rows, columns=[wanted.columns[0], label], dtype=object)
    text = f"not used, because {table[label].nunique():,} folders in {place}/ are named after "
    findings.chosen("training table", f"{text}labels ({len(table):,} images); train_csv=None")
    if loose := len(files.images.get(place, ())):
        text = (
            f"{counted(loose, 'image')} directly in {place}/ not used, because they have no label"
        )
        findings.warning("unlabelled", text)
    if made.beside:
        text = f"there are also folders for these labels in {shortened(made.beside)}. To use them, "
        text += f"add {shortened(made.beside)} to train_images"
        findings.unknown("folders", text)
    return Source(place, table, class_folders=True)


def _described(name: str, table: pd.DataFrame, names: Iterable[object]) -> str:
    return f"{name}: {counted(len(table), 'row')} with columns {shortened(names)}"


def _header(path: Path) -> list[str]:
    names = csv_files.header(path, DataError, ADVICE)
    numbers = csv_files.as_numbers(pd.Series(names, dtype=object)).dropna()
    rising = len(numbers) > 1 and bool((np.diff(numbers) > 0).all())
    data = any(name.lower().endswith(ENDINGS) for name in names) or 2 * len(numbers) >= len(names)
    if data and not rising:
        raise DataError(
            f"{path} has no header. Its first line must contain column names, but it is "
            f"{shortened(names)}.\n"
            "Add a line of column names at the top."
        )
    return names


# -- roles of the tables


def _only(place: Path, found: Sequence[str], what: str, fix: str) -> str:
    if len(found) == 1:
        return found[0]
    tables = f": {shortened(found)}" if found else ""
    advice = f"Select one: {fix} {found[0]}" if found else fix
    number = counted(len(found), "table")
    raise DataError(f"{place} has {number} that could be {what}{tables}.\n{advice}")


def _given(place: Path, tables: Collection[str], given: str, option: str) -> str:
    name = os.path.normpath(given)
    if name not in tables:
        raise ConfigError(
            f"{option} {given}: no such table in {place}. Available tables: "
            f"{shortened(sorted(tables))}.\nCorrect the option."
        )
    return name


def _find_sample(files: Files, given: str) -> str | None:
    """Return the file that `given` selects, or else the only file with a typical name, or None."""
    tables = files.ending(folder.CSV)  # the only format that Kaggle accepts
    if given:
        return _given(files.folder, tables, given, "--sample")
    if found := called(tables, SAMPLES):
        return _only(files.folder, found, "the sample submission; expected one", "--sample")
    if any(SAMPLES.search(name) for name in files.ending(*folder.UNPACK)):
        files.refuse_packed("sample submission", SAMPLES)
    return None


def _check_sample(path: Path, wanted: pd.DataFrame) -> None:
    if len(wanted.columns) < 2 or not len(wanted):
        raise DataError(
            f"{path} has {len(wanted.columns)} columns ({shortened(wanted.columns)[:300]}) and "
            f"{len(wanted)} rows. It must contain ids and a column to predict.\n"
            "Finish the download, or select another file: --sample FILE"
        )


def _find_test(
    place: Path, headers: Headers, wanted: pd.DataFrame, given: str, train: str
) -> str | None:
    """Return the path of the test table, or None if there is no test table.

    The test table is the table with the same ids as the sample submission. If no table has these
    ids, it is a table with the same number of rows. The name of such a table must contain "test",
    or all of its columns must also occur in a labelled table. In the test table, the columns to
    predict are missing or empty.
    """
    if given:
        return _given(place, headers, given, "--test")
    first, ids, asked = wanted.columns[0], set(wanted.iloc[:, 0]), folded(wanted.columns[1:])
    labelled = [folded(names) for names in headers.values() if asked <= folded(names)]
    same, similar = [], []
    for name, header in headers.items():
        # Both sets may have the same ids, such as 1 to n, but the test set has no labels.
        if name == train or (asked <= folded(header) and not _is_empty(place / name, asked)):
            continue
        kept = csv_files.read(place / name, DataError, ADVICE, {first, header[0]})
        if first in kept and set(kept[first]) == ids:
            same.append(name)
        elif len(kept) == len(wanted) and (
            called([name], TESTS) or any(folded(header) <= names for names in labelled)
        ):
            similar.append(name)
    found = same or similar
    if len(by_name := called(found, TESTS)) == 1:
        found = by_name
    what = "the test table, judging by their ids or rows; expected one"
    return _only(place, found, what, "--test") if found else None


def _is_empty(path: Path, asked: Collection[str]) -> bool:
    if not called([path.name], TESTS):
        return False
    names = [name for name in csv_files.header(path, DataError, ADVICE) if name.casefold() in asked]
    table = csv_files.read(path, DataError, ADVICE, names)
    return all(table[name].str.strip().isin(csv_files.MISSING).all() for name in names)


def lacking_ids(contents: Contents) -> str:
    """Return a message if a table named "test" lacks some ids of the sample submission, or else "".

    A table is ignored if it also contains ids that are not in the sample submission.
    """
    first, ids = contents.sample_id, contents.sample_table.iloc[:, 0]
    for name in called(contents.files.tables, TESTS):
        table = csv_files.read(contents.folder / name, DataError, ADVICE, {first})
        kept = set(table[first]) if first in table else set()
        lacking = ids[~ids.isin(kept)]
        if kept and len(lacking) and kept <= set(ids):
            return (
                f"{name} is missing {len(lacking):,} of the {len(ids):,} ids in the sample "
                f"submission, for example {lacking.iloc[0]!r}.\n"
                "Download both files again, or remove these ids from a copy of the sample."
            )
    return ""


def _with_labels(headers: Headers, wanted: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the tables with the columns to predict, and the tables with typical names."""
    asked = folded(wanted.columns[1:])
    strong = [name for name in headers if asked <= folded(headers[name])]
    return strong, called(headers, LABEL_TABLES)


def _find_train(
    files: Files, headers: Headers, wanted: pd.DataFrame, given: str
) -> tuple[str, str]:
    if given:
        return _given(files.folder, headers, given, "--train"), "set by --train"
    strong, by_name = _with_labels(headers, wanted)
    both = [name for name in strong if name in by_name]
    found, why = strong or by_name, "chosen by its name"
    if strong:
        why = f"chosen because it has the columns to predict: {shortened(wanted.columns[1:])}"
    if len(strong) > 1 == len(both):
        found, why = both, "chosen because of its name and its columns"
    if not found:
        found, why = list(headers), "chosen because there is no other table"
    what = f"the training table; expected one with {shortened(wanted.columns[1:])} or a name with "
    what, fix = f"{what}train in it", "--train"
    if not found:
        refusals.refuse_kind(files)
        fix = "Finish the download, write a table with a row per labelled example, or move the "
        fix += "images into one folder per label (train/cats/1.jpg)."
        if named := called(files.ending(*ARRAYS), LABEL_ARRAYS):
            what = f"the training table, only {named[0]}; labels must be in a CSV file"
            table = "pandas.DataFrame({'id': range(len(labels)), 'label': labels})"
            fix = f"Convert it in Python: {table}.to_csv('train.csv', index=False)"
        else:
            files.refuse_packed("table with the labels", LABEL_TABLES)
    return _only(files.folder, found, what, fix), why


# -- roles of the columns


def _find_ids(
    labelled: pd.DataFrame, wanted: pd.DataFrame, files: Files, held: Records | None, asking: str
) -> tuple[str | None, str]:
    """Return the id column of the training table, and the reason for this choice."""
    first = str(wanted.columns[0])
    every = list(map(str, labelled))
    same = [name for name in every if name == first]
    named = same or [name for name in every if name.casefold() == first.casefold()]
    if held is not None:
        asked = set(wanted.iloc[:, 0])
        table = held.test_table
        found = [name for name in map(str, table) if asked.issuperset(table[name])]
        if not (found := [*(name for name in named if name in found), *found]):
            raise DataError(
                f"No TFRecord feature in {files.folder} contains the ids of the sample submission "
                f"({first!r}).\n{records.BY_HAND}"
            )
        return found[0], f"{found[0]!r}, because it contains the ids of the sample submission"
    names = {name for names in files.images.values() for name in names}
    stems = names | {name.rpartition(".")[0] for name in names}

    def share(column: str) -> float:  # ids may include folders
        return float(labelled[column].str.rpartition("/")[2].isin(stems).mean())

    if not (named and (not names or share(named[0]))):
        asked = folded(wanted.columns[1:])
        likely = [name for name in every if names and name.casefold() not in asked]
        shares = {name: share(name) for name in likely if labelled[name].is_unique}
        best = max(shares, key=lambda name: shares[name], default=None)
        if best is not None and shares[best] > 0.5:
            return best, (
                f"{best!r}, because {shares[best]:.0%} of its texts are image file names. The id "
                f"column of {asking} is {first!r}"
            )
    if named:
        return named[0], f"{named[0]!r}, as in {asking}"
    return None, f"row order, because there is no column {first!r} as in {asking}"


def _find_labels(
    path: Path,
    labelled: pd.DataFrame,
    wanted: pd.DataFrame,
    test: Sequence[str] | None,
    ids: str | None,
    given: Given,
) -> tuple[tuple[str, ...], str]:
    asked = list(map(str, wanted.columns[1:]))
    others = [name for name in map(str, labelled) if name not in (ids, "")]
    if given.labels:
        absent = [name for name in given.labels if name not in others]
        if absent:
            raise ConfigError(
                f"--label: {path} has no column {', '.join(absent)} besides its ids. Available "
                f"columns: {shortened(others, 20)}.\nCorrect the option."
            )
        return given.labels, f"{shortened(given.labels)}, set by --label"
    by_name = {name.casefold(): name for name in others}
    named = [by_name[name.casefold()] for name in asked if name.casefold() in by_name]
    if len(named) == len(asked) == len(set(named)):
        return tuple(named), f"{shortened(named)}, as in the sample submission"
    if len(asked) > 1:
        holding = [name for name in others if set(asked) <= set(labelled[name])]
        if len(holding) == 1:
            why = "the columns of the sample submission are among its values"
            return (holding[0],), f"{holding[0]}, because {why}"
    only = [name for name in others if test is None or name not in test]
    where = "besides the ids" if test is None else "missing from the test table"
    context = f"The sample submission has {shortened(asked)}."
    label, why = no_sample.only_label(path, only, where, context)
    return (label,), f"{label}, {why}"

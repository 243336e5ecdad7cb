"""The tables of a competition folder: which part each plays, and which columns are ids and labels.

The contents of the files decide, and their names where the contents do not. An ambiguous folder is
refused with the option that resolves it; nothing is guessed without a word. Where no table has the
labels, it is made of folders that are named after them, or of TFRecords.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from pipeline.data import csv_files
from pipeline.errors import ConfigError, DataError
from workbench.inspect import folder_files, pixel_columns, records, table_roles, unsupported
from workbench.inspect.folder_files import ADVICE, Files, Images, shortened
from workbench.inspect.records import LABELS, Records
from workbench.inspect.table_roles import folded

FOUND, CHOSEN, UNKNOWN, WARNING = "found", "chosen", "unknown", "warning"


@dataclass(frozen=True)
class Finding:
    """A line of the result. `level`: "found", "chosen" (with the reason), "unknown" (the reader has
    to decide) or "warning".
    """

    level: str
    about: str
    text: str


@dataclass(frozen=True)
class Given:
    """What the user chose: paths of tables below the folder (of `train` also a folder of class
    folders), label columns, and the competition's metric. "" and (): to be found.
    """

    sample: str = ""
    train: str = ""
    test: str = ""
    labels: tuple[str, ...] = ()
    metric: str = ""


@dataclass(frozen=True)
class Contents:
    """The parts of a folder.

    Attributes:
        sample, train, test: paths of tables below `folder`; test may be None. Without a training
            table, `train` is the folder of class folders, or the patterns of TFRecords.
        sample_table, train_table, test_table: these tables as texts, without pixels; of the last
            two the columns may be categoricals of texts.
        ids: the column of ids in `train_table`; None where it has none.
        labels: the label columns of `train_table`, in the order of a submission.
        pixels: columns of the training table that are pixels, by their names.
        images: {folder: names of its image files}.
        others: {folder: names of files that nothing here reads}.
        arrays: .npy and .npz files.
        class_folders: whether the training table was made of folders named after labels.
        records: whose ids and labels the training table has; None: of no TFRecords.
    """

    folder: Path
    sample: str
    train: str
    test: str | None
    sample_table: pd.DataFrame = field(repr=False)
    train_table: pd.DataFrame = field(repr=False)
    test_table: pd.DataFrame | None = field(repr=False)
    ids: str | None
    labels: tuple[str, ...]
    pixels: tuple[str, ...] = field(repr=False)
    images: Images = field(repr=False)
    arrays: tuple[str, ...]
    findings: tuple[Finding, ...] = field(repr=False)
    class_folders: bool = False
    records: Records | None = None
    others: Images = field(default_factory=dict, repr=False)

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the test set, in the order of the sample submission."""
        return list(self.sample_table.iloc[:, 0])


def read(folder: Path, given: Given) -> Contents:
    """Return the parts of a folder.

    Raises:
        DataError: if there is no sample submission or nothing with labels, if a table has no
            header, if a part is ambiguous, or if masks are to be predicted.
    """
    files = folder_files.read(folder)
    # Kaggle takes CSVs alone.
    samples = [name for name in files.tables if name.lower().endswith(folder_files.CSV)]
    sample = table_roles.find_sample(folder, samples, given.sample)
    wanted = csv_files.read(folder / sample, DataError, ADVICE)
    if len(wanted.columns) < 2 or not len(wanted):
        raise DataError(
            f"{folder / sample} has {len(wanted.columns)} columns "
            f"({shortened(wanted.columns)[:300]}) and {len(wanted)} rows; expected ids, at least "
            "one column to predict, commas between them, and a row for each id.\n"
            "Complete the download, write the tables with commas, or name another file: "
            "--sample FILE"
        )
    asked = [str(name) for name in wanted.columns[1:]]
    if not given.labels:
        unsupported.refuse_masks(folder / sample, wanted, asked, sample=True)
    headers = {name: table_roles.header(folder / name) for name in files.tables if name != sample}
    chosen = os.path.normpath(given.train) if given.train else ""
    test = table_roles.find_test(folder, headers, wanted, given.test, chosen)
    if not (chosen in headers if chosen else any(table_roles.with_labels(headers, wanted, test))):
        others = bool(headers.keys() - {test})
        made = _without_table(folder, files, sample, wanted, given, chosen, others=others)
        if made is not None:
            return made
    masks = unsupported.mask_folder(files.images)
    if masks and not headers.keys() - {test}:
        raise unsupported.segmentation(f"{folder / masks} holds a mask for each image")
    train, why = table_roles.find_train(folder, headers, wanted, test, chosen)
    pixels = pixel_columns.find(folder / train, headers[train])

    def read_table(name: str) -> pd.DataFrame:
        kept = set(headers[name]) - set(pixels)
        return csv_files.read(folder / name, DataError, ADVICE, kept).astype("category")

    labelled = read_table(train)
    if not len(labelled):
        raise DataError(
            f"{folder / train} has a header and no rows; expected labelled ones.\n"
            "Complete the download."
        )
    every = [str(name) for name in labelled]
    own = [name for name in every if name in (given.labels or asked)]
    unsupported.refuse_masks(folder / train, labelled, own or every)
    tested = None if test is None else read_table(test)
    ids, why_ids = _find_ids(labelled, wanted, files.images)
    repeated = [] if ids is None else list(labelled[ids][labelled[ids].duplicated()])
    if repeated:
        raise DataError(
            f"{folder / train} repeats {len(repeated):,} ids in {ids!r}, for example "
            f"{shortened(repeated, 3)}; expected one row for each example.\n"
            "Make a table with one row for each id, or name another: --train FILE"
        )
    if masks and set(labelled) <= {ids}:
        raise unsupported.segmentation(f"{folder / masks} holds a mask for each image")
    columns = headers[test] if test else None
    labels, why_labels = _find_labels(folder / train, labelled, wanted, columns, ids, given)
    findings = [
        Finding(FOUND, "sample submission", _described(sample, wanted)),
        Finding(FOUND, "training table", f"{train}: {len(labelled):,} rows, {why}"),
        Finding(CHOSEN, "ids", why_ids),
        Finding(CHOSEN, "labels", why_labels),
    ]
    if test is not None and tested is not None:
        text = f"{test}: {len(tested):,} rows of {shortened(headers[test])}"
        findings.insert(2, Finding(FOUND, "test table", text))
    if files.records:
        patterns = list(dict.fromkeys(map(records.pattern, files.records)))
        text = f"{shortened(patterns)} are not read, since {train} has the labels"
        findings.append(Finding(FOUND, "records", text))
    return Contents(
        folder=folder,
        sample=sample,
        train=train,
        test=test,
        sample_table=wanted,
        train_table=labelled,
        test_table=tested,
        ids=ids,
        labels=labels,
        pixels=pixels,
        images=files.images,
        arrays=files.arrays,
        findings=tuple(findings),
        others=files.others,
    )


def _without_table(
    folder: Path,
    files: Files,
    sample: str,
    wanted: pd.DataFrame,
    given: Given,
    place: str,
    *,
    others: bool,
) -> Contents | None:
    """Return the parts of a folder whose labels are names of folders, or in TFRecords; None where
    neither is.

    Args:
        folder, files, sample, wanted, given: as `read` found them.
        place: the folder of class folders that the user named; "": to be found.
        others: whether tables are there that could have labels under other names.
    """
    asked = {*map(str, wanted.columns[1:]), *wanted.iloc[:, 1:].to_numpy().ravel()}
    found = None
    if not given.labels:  # these name columns, or features
        found = folder_files.labelled_folder(files.images, asked, place, by_name=not others)
    held: Records | None = None
    labels: tuple[str, ...]
    if found is not None:
        train, rows, beside = found
        label = str(wanted.columns[1]) if len(wanted.columns) == 2 else "label"
        ids, labels = str(wanted.columns[0]), (label,)
        table = pd.DataFrame(rows, columns=[ids, label], dtype=object)
        text = f"none: each of {table[label].nunique():,} folders in {train}/ is a label, so "
        findings = [
            Finding(CHOSEN, "training table", f"{text}train_csv=None ({len(table):,} images)"),
            Finding(CHOSEN, "ids", f"of training images, their paths, such as {rows[0][0]}"),
        ]
        if loose := len(files.images.get(train, ())):
            text = f"{loose:,} images of {train}/ are in no folder of a label and do not train"
            findings.append(Finding(WARNING, "unlabelled", text))
        if beside:
            text = f"{shortened(beside)} hold folders of these labels, too; train_images may name "
            findings.append(Finding(UNKNOWN, "folders", f"{text}several folders"))
    elif files.records and not place and not (others and files.images):
        held = records.find(folder, files.records, wanted, given.labels)
        train, table, ids, labels = ", ".join(held.train), held.table, held.ids, held.labels
        findings = [Finding(FOUND, "records", text) for text in held.described]
        findings += [
            Finding(CHOSEN, "ids", f"{ids!r}, which has the ids of the sample submission"),
            Finding(CHOSEN, "labels", f"{shortened(labels)}, which the test records lack"),
        ]
        if held.unused:
            text = f"{shortened(held.unused)} are not read; to read them, set train_records and "
            findings.append(Finding(UNKNOWN, "records", f"{text}test_records"))
    else:
        return None
    return Contents(
        folder=folder,
        sample=sample,
        train=train,
        test=None,
        sample_table=wanted,
        train_table=table,
        test_table=None,
        ids=ids,
        labels=labels,
        pixels=(),
        images=files.images,
        arrays=files.arrays,
        findings=(Finding(FOUND, "sample submission", _described(sample, wanted)), *findings),
        class_folders=found is not None,
        records=held,
        others=files.others,
    )


def _described(name: str, table: pd.DataFrame) -> str:
    return f"{name}: {len(table):,} rows of {shortened(table.columns)}"


def _find_ids(
    labelled: pd.DataFrame, wanted: pd.DataFrame, images: Images
) -> tuple[str | None, str]:
    """Return the column of ids of the labelled table, and why."""
    first = str(wanted.columns[0])
    same = [str(name) for name in labelled if name == first]
    named = same or [str(name) for name in labelled if str(name).casefold() == first.casefold()]
    names = {name for folder in images.values() for name in folder}
    stems = names | {name.rpartition(".")[0] for name in names}

    def share(column: str) -> float:
        # An id may name folders too; `workbench.inspect.image_folders` looks where a file is.
        return float(labelled[column].str.rpartition("/")[2].isin(stems).mean())

    if not (named and (not names or share(named[0]))):
        asked = folded(wanted.columns[1:])
        unique = [str(name) for name in labelled if not labelled[name].duplicated().any()]
        shares = {name: share(name) for name in unique if names and name.casefold() not in asked}
        best = max(shares, key=lambda name: shares[name], default=None)
        if best is not None and shares[best] > 0.5:
            return best, (
                f"{best!r}: {shares[best]:.0%} of its texts are names of image files; the sample "
                f"submission has {first!r}"
            )
    if named:
        return named[0], f"{named[0]!r}, as in the sample submission"
    return None, f"no column {first!r}, as in the sample submission: the order of the rows counts"


def _find_labels(
    path: Path,
    labelled: pd.DataFrame,
    wanted: pd.DataFrame,
    test: Sequence[str] | None,
    ids: str | None,
    given: Given,
) -> tuple[tuple[str, ...], str]:
    """Return the label columns, and why."""
    asked = list(wanted.columns[1:])
    others = [str(name) for name in labelled if name not in (ids, "")]
    if given.labels:
        absent = [name for name in given.labels if name not in others]
        if absent:
            raise ConfigError(
                f"--label {', '.join(given.labels)}: {path} has no column {', '.join(absent)} "
                f"beside its ids; it has {shortened(others, 20)}.\nCorrect the option."
            )
        return given.labels, f"{shortened(given.labels)}, named by --label"
    by_name = {name.casefold(): name for name in others}
    named = [by_name[name.casefold()] for name in asked if name.casefold() in by_name]
    if len(named) == len(asked) == len(set(named)):
        return tuple(named), f"{shortened(named)}, as in the sample submission"
    if len(asked) > 1:
        holding = [name for name in others if set(asked) <= set(labelled[name])]
        if len(holding) == 1:
            why = "its values include the columns of the sample submission"
            return (holding[0],), f"{holding[0]}: {why}"
    only = [name for name in others if test is None or name not in test]
    where = "beside the ids" if test is None else "that the test table lacks"
    if len(only) == 1:
        return (only[0],), f"{only[0]}, the only column {where}"
    usual = [name for name in only if name.casefold() in LABELS]
    if len(usual) == 1:
        return (usual[0],), f"{usual[0]}, by its name, of {len(only)} columns {where}"
    raise DataError(
        f"{path} has {len(only)} columns {where}{': ' + shortened(only, 12) if only else ''}; "
        f"expected one label. The sample submission asks for {shortened(asked)}.\n"
        f"Name it, or several with commas between: --label {only[0] if only else 'COLUMN'}"
    )

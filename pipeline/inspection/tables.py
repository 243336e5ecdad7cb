"""The tables of a competition folder: which part each plays, and which columns are ids and labels.

The contents of the files decide, and their names where the contents do not. An ambiguous folder is
refused with the option that resolves it; nothing is guessed without a word.
"""

import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pandas as pd

from pipeline.data.image_decoding import ENDINGS
from pipeline.errors import DataError
from pipeline.inspection import pixel_columns
from pipeline.runtime import mounts
from pipeline.storage import csv_files

FOUND, CHOSEN, UNKNOWN, WARNING = "found", "chosen", "unknown", "warning"
ADVICE = "Give a folder as Kaggle mounts it, with a sample submission, a table of labels, and data."
DEPTH = 6  # levels of folders that are read
SAMPLES = re.compile("sample|submission", re.IGNORECASE)
TESTS = re.compile("test", re.IGNORECASE)
TRAINS = re.compile("train|label", re.IGNORECASE)
LABELS = {"label", "labels", "target", "class", "category", "y"}
PACKED = (".zip", ".7z", ".gz", ".tar", ".rar", ".parquet", ".tsv", ".json", ".feather")


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
    """What the user chose: paths of tables below the folder, and label columns. "" and (): to be
    found.
    """

    sample: str = ""
    train: str = ""
    test: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The parts of a folder.

    Attributes:
        sample, train, test: paths of tables below `folder`; test may be None.
        sample_table, train_table, test_table: these tables as texts, without pixels.
        ids: the column of ids in `train_table`; None where it has none.
        labels: the label columns of `train_table`, in the order of a submission.
        pixels: columns of the training table that are pixels, by their names.
        images: {folder: names of its image files}.
        arrays: .npy and .npz files.
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
    images: dict[str, frozenset[str]] = field(repr=False)
    arrays: tuple[str, ...]
    findings: tuple[Finding, ...] = field(repr=False)

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the test set, in the order of the sample submission."""
        return list(self.sample_table.iloc[:, 0])


def read(folder: Path, given: Given) -> Contents:
    """Return the parts of a folder.

    Raises:
        DataError: if there is no sample submission or no table with labels, if a table has no
            header, or if a part is ambiguous.
    """
    tables, images, arrays = _list_files(folder)
    sample = _find_sample(folder, tables, given.sample)
    wanted = csv_files.read(folder / sample, DataError, ADVICE)
    if len(wanted.columns) < 2 or not len(wanted):
        raise DataError(
            f"{folder / sample} has {len(wanted.columns)} columns "
            f"({shortened(wanted.columns)[:300]}) and {len(wanted)} rows; expected ids, at least "
            "one column to predict, commas between them, and a row for each id.\n"
            "Complete the download, write the tables with commas, or name another file: "
            "--sample FILE"
        )
    headers = {name: _header(folder / name) for name in tables if name != sample}
    test = _find_test(folder, headers, wanted, given)
    train, why = _find_train(folder, headers, wanted, test, given)
    pixels = pixel_columns.find(folder / train, headers[train])

    def read_table(name: str) -> pd.DataFrame:
        return csv_files.read(folder / name, DataError, ADVICE, set(headers[name]) - set(pixels))

    labelled = read_table(train)
    if not len(labelled):
        raise DataError(
            f"{folder / train} has a header and no rows; expected labelled ones.\n"
            "Complete the download."
        )
    tested = None if test is None else read_table(test)
    ids, why_ids = _find_ids(labelled, wanted, images)
    repeated = [] if ids is None else list(labelled[ids][labelled[ids].duplicated()])
    if repeated:
        raise DataError(
            f"{folder / train} repeats {len(repeated):,} ids in {ids!r}, for example "
            f"{shortened(repeated, 3)}; expected one row for each example.\n"
            "Make a table with one row for each id, or name another: --train FILE"
        )
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
        images=images,
        arrays=arrays,
        findings=tuple(findings),
    )


def _list_files(folder: Path) -> tuple[list[str], dict[str, frozenset[str]], tuple[str, ...]]:
    """Return the tables, the names of image files by folder, and the arrays below `folder`."""

    def stop(error: OSError) -> None:
        raise DataError(
            f"Could not read {error.filename}: {error.strerror}; expected folders that this user "
            "may read.\nCorrect its permissions."
        ) from error

    tables, arrays, packed = [], [], []
    images: dict[str, frozenset[str]] = {}
    for place, below, names in os.walk(folder, onerror=stop, followlinks=True):
        inside = Path(place).relative_to(folder)
        deep = len(inside.parts) >= DEPTH
        below[:] = sorted(name for name in below if not (deep or name.startswith((".", "__"))))
        paths = [str(inside / name) for name in sorted(names)]
        tables += [path for path in paths if path.lower().endswith(".csv")]
        arrays += [path for path in paths if path.endswith((".npy", ".npz"))]
        packed += [path for path in paths if path.lower().endswith(PACKED)]
        pictures = [name for name in names if name.lower().endswith(ENDINGS) and name[0] != "."]
        if pictures:
            images[str(inside)] = frozenset(pictures)
    if not tables:
        more = f" There is {shortened(packed)}: unpack archives, and convert other tables to CSV."
        raise DataError(
            f"{mounts.listing(folder)}; expected tables (.csv), and found none."
            f"{more if packed else ''}\n{ADVICE}"
        )
    return tables, images, tuple(arrays)


def _described(name: str, table: pd.DataFrame) -> str:
    return f"{name}: {len(table):,} rows of {shortened(table.columns)}"


def shortened(names: Sequence[str] | pd.Index, most: int = 6) -> str:
    """Return the first `most` names, and how many there are.

    >>> shortened("abc", 2)
    'a, b … (3)'
    """
    return ", ".join(map(str, names[:most])) + (f" … ({len(names)})" if len(names) > most else "")


def _folded(names: Collection[str] | pd.Index) -> set[str]:
    return {str(name).casefold() for name in names}


def _find_sample(folder: Path, tables: Sequence[str], given: str) -> str:
    if given:
        return _check_option(folder, tables, given, "--sample")
    found = [name for name in tables if SAMPLES.search(Path(name).stem)]
    if len(found) == 1:
        return found[0]
    others = found or [name for name in tables if not TRAINS.search(Path(name).stem)]
    raise DataError(
        f"{folder} holds {len(found)} tables that could be the sample submission"
        f"{': ' + shortened(found) if found else ''}; expected one with sample or submission in "
        f"its name. The tables are {shortened(tables)}.\n"
        + (
            f"Name it: --sample {others[0]}"
            if others
            else "Complete the download, or write a table of ids and placeholders."
        )
    )


def _check_option(folder: Path, tables: Collection[str], given: str, option: str) -> str:
    name = os.path.normpath(given)
    if name not in tables:
        raise DataError(
            f"{option} {given}: there is no such table in {folder}; expected one of "
            f"{shortened(sorted(tables))}.\nCorrect the option."
        )
    return name


def _header(path: Path) -> list[str]:
    """Return the names of a table's columns. Raises `DataError` where they are a row of data."""
    names = csv_files.header(path, DataError, ADVICE)
    numbers = [float(name) for name in names if _is_number(name)]
    rising = len(numbers) > 1 and all(one < other for one, other in pairwise(numbers))
    data = any(name.lower().endswith(ENDINGS) for name in names) or 2 * len(numbers) >= len(names)
    if data and not rising:
        raise DataError(
            f"{path} begins with the line {shortened(names)}, which looks like data; expected the "
            "names of its columns.\nWrite a line of names above it."
        )
    return names


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _find_test(
    folder: Path, headers: dict[str, list[str]], wanted: pd.DataFrame, given: Given
) -> str | None:
    """Return the table of the test set: the one with the sample's ids, or with as many rows and
    "test" in its name.
    """
    if given.test:
        return _check_option(folder, headers, given.test, "--test")
    first, ids = wanted.columns[0], set(wanted.iloc[:, 0])
    same, similar = [], []
    asked = _folded(wanted.columns[1:])
    for name, header in headers.items():
        # Ids may begin at 1 in both sets; the test set is the one without labels.
        if name == given.train or asked <= _folded(header):
            continue
        kept = csv_files.read(folder / name, DataError, ADVICE, {first, header[0]})
        if first in kept and set(kept[first]) == ids:
            same.append(name)
        elif TESTS.search(Path(name).stem) and len(kept) == len(wanted):
            similar.append(name)
    found = same or similar
    if len(found) < 2:
        return found[0] if found else None
    by_name = [name for name in found if TESTS.search(Path(name).stem)]
    if len(by_name) == 1:
        return by_name[0]
    raise DataError(
        f"{folder} holds {len(found)} tables with the ids of the test set: {shortened(found)}; "
        f"expected one.\nName it: --test {found[0]}"
    )


def _find_train(
    folder: Path,
    headers: dict[str, list[str]],
    wanted: pd.DataFrame,
    test: str | None,
    given: Given,
) -> tuple[str, str]:
    """Return the table of labelled rows, and why it is that one."""
    others = [name for name in headers if name != test]
    if given.train:
        return _check_option(folder, others, given.train, "--train"), "named by --train"
    asked = _folded(wanted.columns[1:])
    strong = [name for name in others if asked <= _folded(headers[name])]
    by_name = [name for name in others if TRAINS.search(Path(name).stem)]
    columns = shortened(wanted.columns[1:])
    for found, why in (
        (strong, f"it has the columns of a submission: {columns}"),
        (
            [name for name in strong if name in by_name],
            "it has the columns of a submission, and the name",
        ),
        ([] if strong else by_name, "by its name"),
        ([] if strong or by_name else others, "the only other table"),
    ):
        if len(found) == 1:
            return found[0], why
    found = strong or by_name or others
    raise DataError(
        f"{folder} holds {len(found)} tables that could have the labels"
        f"{': ' + shortened(found) if found else ''}; expected one, with {columns} or train in its "
        "name, beside the sample submission and the test set.\n"
        + (
            f"Name it: --train {found[0]}"
            if found
            else "Complete the download, or make a table with a row for each labelled example."
        )
    )


def _find_ids(
    labelled: pd.DataFrame, wanted: pd.DataFrame, images: dict[str, frozenset[str]]
) -> tuple[str | None, str]:
    """Return the column of ids of the labelled table, and why."""
    first = str(wanted.columns[0])
    same = [str(name) for name in labelled if name == first]
    named = same or [str(name) for name in labelled if str(name).casefold() == first.casefold()]
    names = {name for folder in images.values() for name in folder}
    stems = names | {name.rpartition(".")[0] for name in names}

    def share(column: str) -> float:
        # An id may name folders too; `pipeline.inspection.image_folders` looks where a file is.
        return float(labelled[column].str.rpartition("/")[2].isin(stems).mean())

    if not (named and (not names or share(named[0]))):
        asked = _folded(wanted.columns[1:])
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
            raise DataError(
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

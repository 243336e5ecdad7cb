"""Which part each table of a competition folder plays: sample submission, test set, or labels."""

import math
import os
import re
import shlex
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd

from pipeline.config.data_layout import ENDINGS
from pipeline.data import csv_files, image_files
from pipeline.errors import ConfigError, DataError
from workbench.inspect import folder_files, unsupported
from workbench.inspect.folder_files import ADVICE, ARRAYS, TESTS, shortened

SAMPLES = re.compile("sample|submission", re.IGNORECASE)
TRAINS = re.compile("train|label", re.IGNORECASE)
LABELS = re.compile("label|target|(^|[-_])y([-_]|$)", re.IGNORECASE)  # of arrays
UNPACK = {".csv.zip": "unzip {path} -d {to}", ".csv.gz": "gunzip {path}"}


def folded(names: Collection[str] | pd.Index) -> set[str]:
    """Return names as they are compared: capitals do not count."""
    return {str(name).casefold() for name in names}


def find_sample(folder: Path, tables: Sequence[str], given: str) -> str:
    """Return the sample submission: `given`, or the table that is called so.

    Raises:
        DataError: if there is none, or several.
        ConfigError: if there is none of the given name.
    """
    if given:
        return _check_option(folder, tables, given, "--sample")
    found = [name for name in tables if SAMPLES.search(Path(name).stem)]
    if len(found) == 1:
        return found[0]
    if not found and (
        packed := [name for name in _packed(folder) if SAMPLES.search(Path(name).name)]
    ):
        raise DataError(
            f"{folder} holds the sample submission as {shortened(packed)}; archives are not read, "
            f"expected a CSV.\nUnpack it: {_unpack(folder / packed[0])}"
        )
    # The table of the test set is none: it has inputs, and nothing to fill in.
    others = found or [
        name
        for name in tables
        if not TRAINS.search(Path(name).stem) and not TESTS.search(Path(name).stem)
    ]
    raise DataError(
        f"{folder} holds {len(found)} tables that could be the sample submission"
        f"{': ' + shortened(found) if found else ''}; expected one with sample or submission in "
        f"its name. The tables are {shortened(tables)}.\n"
        + (
            f"Name it: --sample {others[0]}"
            if others
            else "Download it from the competition's page, or write one: the ids of the test set,"
            " and a column for each thing to predict."
        )
    )


def _check_option(folder: Path, tables: Collection[str], given: str, option: str) -> str:
    name = os.path.normpath(given)
    if name not in tables:
        raise ConfigError(
            f"{option} {given}: there is no such table in {folder}; expected one of "
            f"{shortened(sorted(tables))}.\nCorrect the option."
        )
    return name


def header(path: Path) -> list[str]:
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


def find_test(
    folder: Path, headers: dict[str, list[str]], wanted: pd.DataFrame, given: str, train: str
) -> str | None:
    """Return the table of the test set: the one with the sample's ids, or with as many rows, and
    either "test" in its name or no column that the labelled table lacks; None if there is none. It
    has no labels: the columns of a submission are not there, or empty.

    Args:
        folder: of the competition.
        headers: of its tables, without the sample submission.
        wanted: the sample submission.
        given: what the user named; "": to be found.
        train: what the user named as the training table.

    Raises:
        DataError: if there are several.
        ConfigError: if there is none of the given name.
    """
    if given:
        return _check_option(folder, headers, given, "--test")
    first, ids = wanted.columns[0], set(wanted.iloc[:, 0])
    same, similar = [], []
    asked = folded(wanted.columns[1:])
    labelled = [folded(names) for names in headers.values() if asked <= folded(names)]
    for name, header in headers.items():
        # Ids may begin at 1 in both sets; the test set is the one without labels.
        if name == train or (asked <= folded(header) and not _empty_test(folder / name, asked)):
            continue
        kept = csv_files.read(folder / name, DataError, ADVICE, {first, header[0]})
        if first in kept and set(kept[first]) == ids:
            same.append(name)
        elif len(kept) == len(wanted) and (
            TESTS.search(Path(name).stem) or any(folded(header) <= names for names in labelled)
        ):
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


def _empty_test(path: Path, asked: Collection[str]) -> bool:
    """Return whether a table called as the test set has no value in the columns of a submission."""
    if not TESTS.search(path.stem):
        return False
    rows = csv_files.rows(path, DataError, ADVICE)
    places = [place for place, name in enumerate(next(rows)) if name.casefold() in asked]
    return all(row[place].strip() in csv_files.MISSING for row in rows for place in places)


def short_test(folder: Path, wanted: pd.DataFrame) -> str:
    """Return what to say of a table called as the test set that lacks ids of the sample submission
    and has no others; "" if there is none.
    """
    ids = wanted.iloc[:, 0]
    for name in folder_files.read(folder).tables:
        first = str(wanted.columns[0])
        if TESTS.search(Path(name).stem) and first in header(folder / name):
            kept = set(csv_files.read(folder / name, DataError, ADVICE, {first})[first])
            lacking = ids[~ids.isin(kept)]
            if kept and len(lacking) and kept <= set(ids):
                return (
                    f"{name} is called as the test set, but lacks {len(lacking):,} of the "
                    f"{len(ids):,} ids of the sample submission, for example {lacking.iloc[0]!r}; "
                    "expected a row for each.\n"
                    "Take both from the same download, or remove the other ids from a copy of the "
                    "sample submission."
                )
    return ""


def with_labels(
    headers: dict[str, list[str]], wanted: pd.DataFrame, test: str | None
) -> tuple[list[str], list[str]]:
    """Return the tables with the columns of a submission, and those that are called as labels."""
    others = [name for name in headers if name != test]
    asked = folded(wanted.columns[1:])
    strong = [name for name in others if asked <= folded(headers[name])]
    return strong, [name for name in others if TRAINS.search(Path(name).stem)]


def _files(folder: Path) -> list[str]:
    return [str(inside / name) for inside, names in image_files.walk(folder) for name in names]


def _packed(folder: Path) -> list[str]:
    """Return the archives of tables."""
    return [name for name in _files(folder) if name.lower().endswith(tuple(UNPACK))]


def _unpack(path: Path) -> str:
    """Return the command that unpacks the archive of a table."""
    command = next(UNPACK[end] for end in UNPACK if path.name.lower().endswith(end))
    return command.format(path=shlex.quote(str(path)), to=shlex.quote(str(path.parent)))


def _refuse_packed(folder: Path) -> None:
    """Raise `DataError` if what holds the labels may be an archive of a table, or an array."""
    if tables := _packed(folder):
        named = next((name for name in tables if TRAINS.search(Path(name).stem)), tables[0])
        raise DataError(
            f"{folder} holds no table that could have the labels, but {shortened(tables)}; archives"
            " are not read, expected CSVs.\n"
            f"Unpack them: {_unpack(folder / named)}"
        )
    arrays = [name for name in _files(folder) if name.lower().endswith(ARRAYS)]
    if named := next((name for name in arrays if LABELS.search(Path(name).stem)), ""):
        raise DataError(
            f"{folder} has no table with labels, but {named}; arrays are read as images alone, and "
            "labels must stand in a CSV, in the order of the images.\n"
            "Write one, with the columns of the sample submission, in Python: "
            "pandas.DataFrame({'id': range(len(labels)), 'label': labels})"
            ".to_csv('train.csv', index=False)"
        )


def find_train(
    folder: Path,
    headers: dict[str, list[str]],
    wanted: pd.DataFrame,
    test: str | None,
    given: str,
) -> tuple[str, str]:
    """Return the table of labelled rows, and why it is that one.

    The arguments and errors are those of `find_test`.
    """
    others = [name for name in headers if name != test]
    if given:
        return _check_option(folder, others, given, "--train"), "named by --train"
    strong, by_name = with_labels(headers, wanted, test)
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
    if not found:
        _refuse_packed(folder)
        unsupported.refuse_kind(folder)
    raise DataError(
        f"{folder} holds {len(found)} tables that could have the labels"
        f"{': ' + shortened(found) if found else ''}; expected one, with {columns} or train in its "
        "name, beside the sample submission and the test set.\n"
        + (
            f"Name it: --train {found[0]}"
            if found
            else "Complete the download, or make a table with a row for each labelled example, or "
            "put the images into a folder for each label (train/cats/1.jpg)."
        )
    )

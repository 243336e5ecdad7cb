"""Determine what to predict if a folder has no sample submission.

The ids to predict are the ids of the test set, as in `pipeline.data.samples`. The columns to
predict are the columns that are missing from the test set.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pandas as pd

from pipeline.config import Data
from pipeline.data import csv_files, image_files
from pipeline.data.samples import COUNTED
from pipeline.errors import DataError
from pipeline.runtime import mounts
from workbench.inspect import records, refusals
from workbench.inspect.folder import (
    ADVICE,
    LABEL_TABLES,
    LABELS,
    RECORDS,
    TESTS,
    Files,
    called,
    counted,
    holds_extras,
    shortened,
)

# Matches names of id columns, such as id, image_id, ID_code and PassengerId.
IDS = re.compile(r"(?i:^id$|[ _.-]id$|^id[ _.-])|[a-z]I[dD]$")
Headers = Mapping[str, Sequence[str]]  # table -> column names


class Asked(NamedTuple):
    """A table that replaces a missing sample submission.

    Attributes:
        table: the sample submission, in which every row has a label from the training table.
        test: path of the test table, or None if the test set is an image folder.
        grounds: why the label columns were chosen.
        why: the complete explanation to show to the user.
    """

    table: pd.DataFrame
    test: str | None
    grounds: str
    why: str


def asked(files: Files, headers: Headers, train: str, test: str, labels: tuple[str, ...]) -> Asked:
    """Determine what to predict in a folder that has no sample submission.

    Args:
        headers: column names of the folder's tables.
        train, test, labels: tables and label columns that the user specified, or "" and ().

    Raises:
        DataError: if there is no test set, or if it is unclear what to predict.
    """
    tables = [name for name in headers if name != train]
    tested = test or _likeliest(called(tables, TESTS), "test")
    others = [name for name in headers if name != tested]
    # If the user specified a folder of class folders, there are no columns.
    train = train or _likeliest(called(others, LABEL_TABLES) or others, "train")
    columns, place = headers.get(train, ()), files.folder
    if tested in headers:
        key, ids = _ids(place / tested, headers[tested], columns)
        absent = [name for name in columns if name not in headers[tested]]
        named, grounds = f"in {key!r} of {tested}", f"missing from {tested}"
        if key not in headers[tested]:
            named = f"row numbers of {tested} from 0, because it has no id column"
    else:
        where = _test_folder(files)
        key, whole = _naming(files, place / train) if columns else (COUNTED, True)
        as_read = Data(
            height=1, width=1, channels=1, test_images=where, suffix="" if whole else "*"
        )
        ids = image_files.names(place, as_read)
        absent = [name for name in columns if name != key]
        named, grounds = f"names of {counted(len(ids), 'image')} in {where}/", "besides the ids"
    if not columns:
        labels, grounds = labels or ("label",), "the names of the image folders"
    elif labels:
        grounds = "set by --label"
    else:
        labels, grounds = _labels(place / train, columns, absent, grounds)
    values = csv_files.read(place / train, DataError, ADVICE, labels) if columns else pd.DataFrame()
    first = str(values.iloc[0, 0]) if values.size else ""  # a placeholder
    table = pd.DataFrame({key: list(ids), **dict.fromkeys(labels, first)}, dtype=object)
    why = (
        f"not found, so sample_submission=None. The ids are {named}. The columns to submit are "
        f"{key}, {shortened(labels)} ({grounds}). If the competition page specifies others, edit "
        "id_column, label_column and metric, or pass --sample FILE"
    )
    return Asked(table, tested if tested in headers else None, grounds, why)


def _likeliest(tables: Sequence[str], name: str) -> str:
    """Return the table with the given name, or the only table, or "" if there are no tables."""
    exact = [table for table in tables if Path(table).stem.casefold() == name]
    found = exact if len(exact) == 1 else tables
    if len(found) > 1:
        raise DataError(
            f"There is no sample submission, and the {name} table could be any of "
            f"{shortened(found)}.\nSelect one: --{name} {found[0]}"
        )
    return found[0] if found else ""


def _ids(path: Path, header: Sequence[str], train: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the name of a test table's id column, and the ids.

    The id column is recognized by its name, or is the first column if its texts are unique. Without
    an id column, row numbers are used as ids.
    """
    likely = sorted(
        (name for name in header if IDS.search(name)), key=lambda name: name.casefold() != COUNTED
    )
    shared = [name for name in header[:1] if name and (name in train or not train)]
    table = csv_files.read(path, DataError, ADVICE, [*likely, *shared])
    for name in [*likely, *shared]:
        texts = name in likely or bool(csv_files.as_numbers(table[name]).isna().all())
        if texts and table[name].is_unique:
            return name, list(table[name])
    return COUNTED, list(map(str, range(len(table))))


def _labels(
    path: Path, header: Sequence[str], absent: Sequence[str], grounds: str
) -> tuple[tuple[str, ...], str]:
    """Return the label columns, and the reason for this choice.

    Args:
        absent: columns that are missing from the test set.
    """
    found = [name for name in absent if name]
    if len(found) > 1:
        found = [name for name in found if not IDS.search(name)] or found
    if len(found) > 1:
        values = csv_files.read(path, DataError, ADVICE, found)
        if values.isin(("0", "1", "0.0", "1.0")).all(axis=None):
            return tuple(found), f"{grounds}, and all contain only 0 and 1"
    found = found or [name for name in header if name.casefold() in LABELS]
    label, why = only_label(path, found, grounds, "There is no sample submission.")
    return (label,), why


def only_label(path: Path, found: Sequence[str], where: str, context: str) -> tuple[str, str]:
    """Return the only possible label column, or the column with a typical name, and the reason.

    Args:
        path: path of the table, for the error message.
        where: description of the columns.
        context: an additional sentence for the error message.

    Raises:
        DataError: if no column or several columns are possible.
    """
    if len(found) == 1:
        return found[0], f"the only column {where}"
    usual = [name for name in found if name.casefold() in LABELS]
    if len(usual) == 1:
        return usual[0], f"chosen by name from {len(found)} columns {where}"
    columns = f": {shortened(found, 12)}" if found else ""
    raise DataError(
        f"{path} has {counted(len(found), 'column')} {where}{columns}. It is therefore unclear "
        f"which column has the labels. {context}\nSelect one, or several separated by commas: "
        f"--label {found[0] if found else 'COLUMN'}"
    )


# -- images


def _test_folder(files: Files) -> str:
    tops: dict[str, list[str]] = {}
    for place in files.images:
        parts = PurePosixPath(place).parts
        depth = next((n for n, part in enumerate(parts) if TESTS.search(part)), None)
        if depth is not None and not any(map(holds_extras, parts)):
            tops.setdefault("/".join(parts[: depth + 1]), []).append(place)
    if len(tops) == 1:
        [found] = tops.values()
        return os.path.commonpath(found)
    if not tops:
        refusals.refuse_kind(files)
        if files.ending(*RECORDS):
            raise DataError(
                f"{files.folder} has TFRecord files but no sample submission, which is required.\n"
                f"{records.BY_HAND} With sample_submission=None, ids come from the test records."
            )
        if masks := refusals.mask_folder(files.images):
            raise refusals.segmentation(f"{files.folder / masks} contains masks of the images")
        files.refuse_packed("test set", TESTS)
    several = f"the test set could be {shortened(tops)}" if tops else "nothing is named test"
    raise DataError(
        f"{mounts.listing(files.folder)}. There is no sample submission, and {several}. There must "
        "be one test table (test.csv) or one folder of test images (test/).\nFinish the download, "
        "select the table (--test FILE), or hold out some labelled rows or images as a test set."
    )


def _naming(files: Files, path: Path) -> tuple[str, bool]:
    """Return the training table's id column, and whether its ids have file extensions.

    The id column is the column whose texts match image files, or else a column with a typical name.
    """
    whole = {name for names in files.images.values() for name in names}
    stems = {name.rpartition(".")[0] for name in whole}
    table = csv_files.read(path, DataError, ADVICE)
    texts = {str(name): table[name].str.rpartition("/")[2] for name in table}
    shares = {name: texts[name].isin(whole | stems).mean() for name in texts}
    best = max(shares, key=lambda name: (table[name].is_unique, shares[name]))
    if shares[best] <= 0.5:
        best = next(filter(IDS.search, texts), COUNTED)
    return best, best in texts and bool(texts[best].isin(whole).any())

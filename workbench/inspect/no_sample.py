"""What to predict without a sample submission: the ids of the test set, as `pipeline.data.samples`
reads them, and the columns that the test set lacks.
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

# Names of columns of ids: id, image_id, ID_code, PassengerId.
IDS = re.compile(r"(?i:^id$|[ _.-]id$|^id[ _.-])|[a-z]I[dD]$")
Headers = Mapping[str, Sequence[str]]  # column names by table


class Asked(NamedTuple):
    """What a sample submission would ask for.

    Attributes:
        table: a sample submission, with a label of the training table in each column.
        test: the table of the test set; None if its images lie in a folder.
        grounds: the reason for the columns, in words.
        why: the reason for all of it.
    """

    table: pd.DataFrame
    test: str | None
    grounds: str
    why: str


def asked(files: Files, headers: Headers, train: str, test: str, labels: tuple[str, ...]) -> Asked:
    """Return what to predict in a folder without a sample submission.

    Args:
        headers: of its tables.
        train, test, labels: that the user named, or "" and ().

    Raises:
        DataError: if there is no test set, or if it is not clear what to predict.
    """
    tables = [name for name in headers if name != train]
    tested = test or _likeliest(called(tables, TESTS), "test")
    others = [name for name in headers if name != tested]
    # If the user named a folder of class folders, there are no columns.
    train = train or _likeliest(called(others, LABEL_TABLES) or others, "train")
    columns, place = headers.get(train, ()), files.folder
    if tested in headers:
        key, ids = _ids(place / tested, headers[tested], columns)
        absent = [name for name in columns if name not in headers[tested]]
        named, grounds = f"{key!r} of {tested}", f"that {tested} lacks"
        if key not in headers[tested]:
            named = f"the row numbers of {tested} from 0, since it has no column of ids"
    else:
        where = _test_folder(files)
        key, whole = _naming(files, place / train) if columns else (COUNTED, True)
        as_read = Data(
            height=1, width=1, channels=1, test_images=where, suffix="" if whole else "*"
        )
        ids = image_files.names(place, as_read)
        absent = [name for name in columns if name != key]
        named, grounds = f"the names of {counted(len(ids), 'image')} in {where}/", "beside the ids"
    if not columns:
        labels, grounds = labels or ("label",), "the folders that images lie in"
    elif labels:
        grounds = "named by --label"
    else:
        labels, grounds = _labels(place / train, columns, absent, grounds)
    values = csv_files.read(place / train, DataError, ADVICE, labels) if columns else pd.DataFrame()
    first = str(values.iloc[0, 0]) if values.size else ""  # a placeholder
    table = pd.DataFrame({key: list(ids), **dict.fromkeys(labels, first)}, dtype=object)
    why = (
        f"none, so sample_submission=None: ids are {named}; columns are {key}, "
        f"{shortened(labels)} ({grounds}). If the competition's page wants others, edit id_column, "
        "label_column and metric, or name a file: --sample FILE"
    )
    return Asked(table, tested if tested in headers else None, grounds, why)


def _likeliest(tables: Sequence[str], name: str) -> str:
    """Return the only table, or the one with this name, or "".

    Raises:
        DataError: if there are several.
    """
    exact = [table for table in tables if Path(table).stem.casefold() == name]
    found = exact if len(exact) == 1 else tables
    if len(found) > 1:
        raise DataError(
            f"There is no sample submission, and {shortened(found)} may be the {name} table; "
            f"expected one.\nName it: --{name} {found[0]}"
        )
    return found[0] if found else ""


def _ids(path: Path, header: Sequence[str], train: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the column of ids in a test table, and the ids.

    It is a column with such a name, or the first one if its texts are all different. Otherwise ids
    are row numbers.
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
    """Return the label columns of a training table, and the reason.

    Args:
        absent: columns that the test set lacks.
    """
    found = [name for name in absent if name]
    if len(found) > 1:
        found = [name for name in found if not IDS.search(name)] or found
    if len(found) > 1:
        values = csv_files.read(path, DataError, ADVICE, found)
        if values.isin(("0", "1", "0.0", "1.0")).all(axis=None):
            return tuple(found), f"{grounds}, all of 0 and 1"
    found = found or [name for name in header if name.casefold() in LABELS]
    label, why = only_label(path, found, grounds, "There is no sample submission.")
    return (label,), why


def only_label(path: Path, found: Sequence[str], where: str, context: str) -> tuple[str, str]:
    """Return the label among these columns of a table, and the reason.

    Args:
        path: of the table, for the message.
        found: the columns, of which one may have the usual name of a label.
        where: a description of them.
        context: another sentence for the message.

    Raises:
        DataError: if it could be several, or none.
    """
    if len(found) == 1:
        return found[0], f"the only column {where}"
    usual = [name for name in found if name.casefold() in LABELS]
    if len(usual) == 1:
        return usual[0], f"by its name, of {len(found)} columns {where}"
    columns = f": {shortened(found, 12)}" if found else ""
    raise DataError(
        f"{path} has {counted(len(found), 'column')} {where}{columns}; expected one label. "
        f"{context}\nName it, or several with commas between: "
        f"--label {found[0] if found else 'COLUMN'}"
    )


# -- of images


def _test_folder(files: Files) -> str:
    """Return the folder of a test set of images. Raises `DataError` unless there is exactly one."""
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
                f"{files.folder} holds TFRecord files and no sample submission; expected one.\n"
                f"{records.BY_HAND} With sample_submission=None, the test records have the ids."
            )
        if masks := refusals.mask_folder(files.images):
            raise refusals.segmentation(f"{files.folder / masks} holds a mask for each image")
        files.refuse_packed("test set", TESTS)
    several = f"{shortened(tops)} may be the test set" if tops else "nothing is named test"
    raise DataError(
        f"{mounts.listing(files.folder)}. There is no sample submission, and {several}; expected "
        "one table (test.csv) or one folder of images (test/).\nComplete the download, name the "
        "table (--test FILE), or set some labelled rows or images aside as a test set."
    )


def _naming(files: Files, path: Path) -> tuple[str, bool]:
    """Return the column of a training table that names image files, or one with the name of an id,
    and whether it has whole file names.
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

"""Contents: which file of a competition folder plays which part, and which columns of its tables
are ids and labels.

By what is in the files, and by their names where that does not tell. What could be either of two is
refused with the option that says which; nothing is guessed in silence.
"""

import csv
import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import pandas as pd

from pipeline.data.image_decoding import ENDINGS
from pipeline.errors import DataError
from pipeline.runtime import mounts
from pipeline.storage import csv_text

FOUND, CHOSEN, UNKNOWN, WARNING = "found", "chosen", "unknown", "warning"
ADVICE = "Give a folder as Kaggle mounts it: a sample submission, a table of labels, and what the rows are."
DEPTH = 6  # levels of folders that are looked at
SAMPLES, TESTS, TRAINS = (
    re.compile(words, re.IGNORECASE) for words in ("sample|submission", "test", "train|label")
)
LABELS = {"label", "labels", "target", "class", "category", "y"}
PACKED = (".zip", ".7z", ".gz", ".tar", ".rar", ".parquet", ".tsv", ".json", ".feather")
# Of a pixel: pixel7, px_7, 7, pixel_3_4 or 3x4.
PIXEL = re.compile(r"(?:pi?x(?:el)?s?[ _-]?)?(\d+)(?:[ _x-](\d+))?", re.IGNORECASE)
LEAST_PIXELS = 49
LEVELS = frozenset(map(str, range(256)))


@dataclass(frozen=True)
class Finding:
    """A line of what was found. `level`: "found", "chosen" (and why), "unknown" (who reads has to
    say it) or "warning".
    """

    level: str
    about: str
    text: str


@dataclass(frozen=True)
class Given:
    """What a person said in place of the folder: paths of tables below it, and label columns; ""
    and (): to be found.
    """

    sample: str = ""
    train: str = ""
    test: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What a folder holds, by the part that it plays.

    Attributes:
        sample, train, test: paths of tables below `folder`; test: None where there is none.
        wanted, labelled, tested: these tables as texts, without columns of pixels. tested: None as
            `test`.
        ids: the ids' column of `labelled`; None where it has none.
        labels: the label columns of `labelled`, in the order in which a submission has them.
        pixels: columns of `labelled` that are pixels by their names.
        images: names of the image files of each folder that has some. arrays: .npy and .npz files.
    """

    folder: Path
    sample: str
    train: str
    test: str | None
    wanted: pd.DataFrame = field(repr=False)
    labelled: pd.DataFrame = field(repr=False)
    tested: pd.DataFrame | None = field(repr=False)
    ids: str | None
    labels: tuple[str, ...]
    pixels: tuple[str, ...] = field(repr=False)
    images: dict[str, frozenset[str]] = field(repr=False)
    arrays: tuple[str, ...]
    findings: tuple[Finding, ...] = field(repr=False)


def read(folder: Path, given: Given) -> Contents:
    """Return what the folder holds.

    Raises:
        DataError: if there is no sample submission, no table with labels, a table without a header,
            or more than one thing could be meant.
    """
    tables, images, arrays = _walk(folder)
    sample = _sample(folder, tables, given.sample)
    wanted = csv_text.read(folder / sample, DataError, ADVICE)
    if len(wanted.columns) < 2 or not len(wanted):
        raise DataError(
            f"{folder / sample} has {len(wanted.columns)} columns ({_listed(wanted.columns)[:300]}) and {len(wanted)} rows; expected ids, at least "
            "one column to predict, commas between them, and a row for each id.\n"
            "Complete the download, write the tables with commas, or name another file: --sample FILE"
        )
    findings = [
        Finding(
            FOUND,
            "sample submission",
            f"{sample}: {len(wanted):,} rows of {_listed(wanted.columns)}",
        ),
    ]
    headers = {name: _header(folder / name) for name in tables if name != sample}
    test = _test(folder, headers, wanted, given)
    train, why = _train(folder, headers, wanted, test, given)
    pixels = _pixels(headers[train])
    if pixels and all(name[0].isdigit() for name in pixels) and not _levels(folder / train, pixels):
        pixels = ()
    keep = [name for name in headers[train] if name not in set(pixels)]
    labelled = csv_text.read(folder / train, DataError, ADVICE, keep)
    if not len(labelled):
        raise DataError(
            f"{folder / train} has a header and no rows; expected labelled ones.\nComplete the download."
        )
    tested = (
        None
        if test is None
        else csv_text.read(folder / test, DataError, ADVICE, set(headers[test]) - set(pixels))
    )
    findings.append(Finding(FOUND, "training table", f"{train}: {len(labelled):,} rows, {why}"))
    if test is not None and tested is not None:
        findings.append(
            Finding(
                FOUND, "test table", f"{test}: {len(tested):,} rows of {_listed(headers[test])}"
            )
        )
    ids, told = _ids(labelled, wanted, images)
    findings.append(Finding(CHOSEN, "ids", told))
    repeated = [] if ids is None else list(labelled[ids][labelled[ids].duplicated()])
    if repeated:
        raise DataError(
            f"{folder / train} repeats {len(repeated):,} ids in {ids!r}, for example {_listed(repeated, 3)}; expected a row for each example.\n"
            "Make a table with one row for each id, or name another: --train FILE."
        )
    labels, told = _labels(
        folder / train, labelled, wanted, headers[test] if test else None, ids, given
    )
    findings.append(Finding(CHOSEN, "labels", told))
    return Contents(
        folder,
        sample,
        train,
        test,
        wanted,
        labelled,
        tested,
        ids,
        labels,
        pixels,
        images,
        arrays,
        tuple(findings),
    )


def _walk(folder: Path) -> tuple[list[str], dict[str, frozenset[str]], tuple[str, ...]]:
    """Return the tables, the names of image files by their folder, and the arrays: paths below
    `folder`.
    """

    def stop(error: OSError) -> None:
        raise DataError(
            f"Could not read {error.filename}: {error.strerror}.\nExpected folders that this user may read. Correct its permissions."
        ) from error

    tables, arrays, packed = [], [], []
    images: dict[str, frozenset[str]] = {}
    for place, below, names in os.walk(folder, onerror=stop, followlinks=True):
        inside = Path(place).relative_to(folder)
        below[:] = sorted(
            name for name in below if not name.startswith((".", "__")) and len(inside.parts) < DEPTH
        )
        tables += [str(inside / name) for name in sorted(names) if name.lower().endswith(".csv")]
        arrays += [str(inside / name) for name in sorted(names) if name.endswith((".npy", ".npz"))]
        packed += [str(inside / name) for name in sorted(names) if name.lower().endswith(PACKED)]
        pictures = frozenset(
            name for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")
        )
        if pictures:
            images[str(inside)] = pictures
    if not tables:
        more = (
            f" There is {_listed(packed)}: unpack what is packed, and make a CSV of any other table."
            if packed
            else ""
        )
        raise DataError(
            f"{mounts.listing(folder)}; expected tables (.csv), and found none.{more}\n{ADVICE}"
        )
    return tables, images, tuple(arrays)


def _listed(names: Sequence[str] | pd.Index, most: int = 6) -> str:
    return ", ".join(map(str, names[:most])) + (f" … ({len(names)})" if len(names) > most else "")


def _sample(folder: Path, tables: Sequence[str], given: str) -> str:
    if given:
        return _named(folder, tables, given, "--sample")
    found = [name for name in tables if SAMPLES.search(Path(name).stem)]
    if len(found) != 1:
        others = found or [name for name in tables if not TRAINS.search(Path(name).stem)]
        way = (
            f"Say which: --sample {others[0]}"
            if others
            else "Complete the download, or write a table of ids and placeholders."
        )
        raise DataError(
            f"{folder} holds {len(found)} tables that could be the sample submission{': ' + _listed(found) if found else ''}; expected one "
            f"with sample or submission in its name. The tables are {_listed(tables)}.\n{way}"
        )
    return found[0]


def _named(folder: Path, tables: Collection[str], given: str, option: str) -> str:
    name = os.path.normpath(given)
    if name not in tables:
        raise DataError(
            f"{option} {given}: there is no such table in {folder}; expected one of {_listed(sorted(tables))}.\nCorrect the option."
        )
    return name


def _header(path: Path) -> list[str]:
    """Return the names of a table's columns. Raises `DataError` where they are a row of data."""
    names = csv_text.header(path, DataError, ADVICE)
    numbers = [float(name) for name in names if _number(name)]
    rising = len(numbers) > 1 and all(one < other for one, other in pairwise(numbers))
    data = any(name.lower().endswith(ENDINGS) for name in names) or 2 * len(numbers) >= len(names)
    if data and not rising:
        raise DataError(
            f"{path} begins with the line {_listed(names)}, which looks like data; expected the names of its columns.\n"
            "Write a line of names above it."
        )
    return names


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _test(
    folder: Path, headers: dict[str, list[str]], wanted: pd.DataFrame, given: Given
) -> str | None:
    """Return the table of the test set: that which has the sample's ids, or as many rows and "test"
    in its name.
    """
    if given.test:
        return _named(folder, headers, given.test, "--test")
    first, ids = wanted.columns[0], set(wanted.iloc[:, 0])
    same, called = [], []
    asked = {name.casefold() for name in wanted.columns[1:]}
    for name, header in headers.items():
        # Ids may begin at 1 in both sets; what has the labels is no test set.
        if name == given.train or asked <= {column.casefold() for column in header}:
            continue
        kept = csv_text.read(folder / name, DataError, ADVICE, {first, header[0]})
        if first in kept and set(kept[first]) == ids:
            same.append(name)
        elif TESTS.search(Path(name).stem) and len(kept) == len(wanted):
            called.append(name)
    found = same or called
    if len(found) > 1:
        found = [name for name in found if TESTS.search(Path(name).stem)]
        if len(found) != 1:
            raise DataError(
                f"{folder} holds {len(same or called)} tables with the ids of the test set: {_listed(same or called)}; expected one.\n"
                f"Say which: --test {(same or called)[0]}"
            )
    return found[0] if found else None


def _train(
    folder: Path,
    headers: dict[str, list[str]],
    wanted: pd.DataFrame,
    test: str | None,
    given: Given,
) -> tuple[str, str]:
    """Return the table of labelled rows, and why it is that one."""
    others = [name for name in headers if name != test]
    if given.train:
        return _named(folder, others, given.train, "--train"), "named by --train"
    asked = {name.casefold() for name in wanted.columns[1:]}
    strong = [name for name in others if asked <= {column.casefold() for column in headers[name]}]
    called = [name for name in others if TRAINS.search(Path(name).stem)]
    for found, why in (
        (strong, f"has what a submission tells: {_listed(wanted.columns[1:])}"),
        (
            [name for name in strong if name in called],
            "has what a submission tells, and is called so",
        ),
        ([] if strong else called, "called so"),
        ([] if strong or called else others, "the only other table"),
    ):
        if len(found) == 1:
            return found[0], why
    shown = strong or called or others
    raise DataError(
        f"{folder} holds {len(shown)} tables that could have the labels{': ' + _listed(shown) if shown else ''}; expected one, with "
        f"{_listed(wanted.columns[1:])} or train in its name, beside the sample submission and the test set.\n"
        + (
            f"Say which: --train {shown[0]}"
            if shown
            else "Complete the download, or make a table with a row for each labelled example."
        )
    )


def _pixels(header: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are pixels by their names, if there are enough of them.

    >>> _pixels(["label", *(f"pixel{n}" for n in range(64))])[:2], _pixels([f"feature_{n}" for n in range(64)])
    (('pixel0', 'pixel1'), ())
    """
    found = tuple(name for name in header if PIXEL.fullmatch(name))
    return found if len(found) >= LEAST_PIXELS and grid(found) else ()


def _levels(path: Path, names: Sequence[str]) -> bool:
    """Return whether the first rows hold whole numbers from 0 to 255 there; columns that are only
    numbered may be any features.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(islice(csv.DictReader(file), 100))
    except (OSError, ValueError, csv.Error):  # which `pipeline.storage.csv_text` puts in words
        return True
    return all(
        (row[name] or "").strip().removesuffix(".0") in LEVELS for row in rows for name in names
    )


def grid(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return height, width and channels of images with these columns, a square where names do not
    tell; None where there is none.

    >>> grid([f"pixel{n}" for n in range(784)]), grid([f"{r}x{c}" for r in range(4) for c in range(5)])
    ((28, 28, 1), (4, 5, 1))
    """
    pairs = [re.findall(r"\d+", name) for name in names]
    if all(len(pair) == 2 for pair in pairs):
        down, along = (len({pair[place] for pair in pairs}) for place in (0, 1))
        if down * along == len(names):
            return down, along, 1
    for channels in (1, 3):
        side = math.isqrt(len(names) // channels)
        if side * side * channels == len(names):
            return side, side, channels
    return None


def _ids(
    labelled: pd.DataFrame, wanted: pd.DataFrame, images: dict[str, frozenset[str]]
) -> tuple[str | None, str]:
    """Return the ids' column of the labelled table, and why."""
    first = str(wanted.columns[0])
    called = [str(name) for name in labelled if name == first] or [
        str(name) for name in labelled if str(name).casefold() == first.casefold()
    ]
    names = {name for folder in images.values() for name in folder}
    stems = names | {name.rpartition(".")[0] for name in names}
    if called and not (names and not set(labelled[called[0]].str.rpartition("/")[2]) & stems):
        return called[0], f"{called[0]!r}, as the sample submission calls them"
    # What names folders, too, is looked at without them; `pipeline.inspection.image_folders` looks
    # where the files lie.
    asked = {name.casefold() for name in wanted.columns[1:]}
    named = [
        name
        for name in labelled
        if str(name).casefold() not in asked and not labelled[name].duplicated().any()
    ]
    hits = (
        {str(name): labelled[name].str.rpartition("/")[2].isin(stems).mean() for name in named}
        if names
        else {}
    )
    best = max(hits, key=lambda name: hits[name], default=None)
    if best is not None and hits[best] > 0.5:
        return (
            best,
            f"{best!r}: {hits[best]:.0%} of its texts are names of image files; the sample calls them {first!r}",
        )
    if called:
        return called[0], f"{called[0]!r}, as the sample submission calls them"
    return (
        None,
        f"the table has no {first!r}, as the sample submission calls them: its rows are known by their place",
    )


def _labels(
    path: Path,
    labelled: pd.DataFrame,
    wanted: pd.DataFrame,
    test: Sequence[str] | None,
    ids: str | None,
    given: Given,
) -> tuple[tuple[str, ...], str]:
    """Return the label columns, and why."""
    asked, others = (
        list(wanted.columns[1:]),
        [str(name) for name in labelled if name not in (ids, "")],
    )
    if given.labels:
        absent = [name for name in given.labels if name not in others]
        if absent:
            raise DataError(
                f"--label {', '.join(given.labels)}: {path} has no column {', '.join(absent)} beside its ids; it has {_listed(others, 20)}.\n"
                "Correct the option."
            )
        return given.labels, f"{_listed(given.labels)}, named by --label"
    by_name = {name.casefold(): name for name in others}
    named = [by_name[name.casefold()] for name in asked if name.casefold() in by_name]
    if len(named) == len(asked) == len(set(named)):
        return tuple(
            named
        ), f"{_listed(named)}, as the sample submission calls {'them' if len(named) > 1 else 'it'}"
    if len(asked) > 1:
        holding = [name for name in others if set(asked) <= set(labelled[name])]
        if len(holding) == 1:
            return tuple(
                holding
            ), f"{holding[0]}: the columns of the sample submission are among its values"
    only = [name for name in others if test is None or name not in test]
    where = "beside the ids" if test is None else "in the training table alone"
    if len(only) == 1:
        return tuple(only), f"{only[0]}, the only column {where}"
    usual = [name for name in only if name.casefold() in LABELS]
    if len(usual) == 1:
        return tuple(usual), f"{usual[0]}, by its name, of {len(only)} columns {where}"
    raise DataError(
        f"{path} has {len(only)} columns {where} that could be the label{': ' + _listed(only, 12) if only else ''}; the sample submission "
        f"asks for {_listed(asked)}.\nSay which: --label {only[0] if only else 'COLUMN'}  (several: with commas between)"
    )

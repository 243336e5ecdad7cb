"""How a model should read each column of a table: as a number, a category, a date, a pixel, or not
at all.

A column that is left out gets a reason. One that only the training table has is never read.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.data import csv_files, dates
from pipeline.data.csv_files import MISSING
from pipeline.errors import DataError
from workbench.inspect import refusals
from workbench.inspect.folder import Findings, counted, shortened

NUMBER, CATEGORY, DATE, OUT = "number", "category", "date", "left out"
FEW = 12  # distinct whole numbers: up to this many are a category
REPEATS = 2  # rows per distinct text: with fewer there is nothing to learn
LEAST = 30  # rows: with fewer a column may number them by chance
COMMAS = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?)")  # "12,50"; "1,234,567.8"
SIGNS = re.compile(r"[$€£¥%\s]")
SHOWN = 24  # characters of a text in a message
PLAIN = "write numbers with a decimal point, without units and thousands separators"
PIXEL = re.compile(  # pixel7, px_7, x7, 7, pixel_3_4 or 3x4
    r"(?:(pi?x(?:el)?s?|[a-z])[ _-]?)?(\d+)(?:[ _x-](\d+))?", re.IGNORECASE
)
LEAST_PIXELS = 49  # columns
LEVELS = frozenset(map(str, range(256)))
FEW_LEVELS = frozenset(map(str, range(16)))  # flags and small counts have no more


@dataclass(frozen=True)
class Column:
    """A column of the training table.

    Attributes:
        use: "number", "category", "date" or "left out".
        why: the reason, in words.
        about: what a person should check: "mixed" (nearly numbers), "text", "exchanged" (the day
            and month of a date may be), or "".
        distinct: number of distinct values.
        missing: share of the rows without a value.
        missing_test: the same for the test table; None if it has no such column.
        shown: the least, median and largest number, or the most frequent texts.
    """

    name: str
    use: str
    why: str
    about: str
    distinct: int
    missing: float
    missing_test: float | None
    shown: str


def numbers(texts: pd.Series) -> np.ndarray:
    """Return texts as float64 (n,), with NaN for what is not a number."""
    return csv_files.as_numbers(texts.str.strip()).to_numpy(np.float64)


def known(column: pd.Series) -> pd.Series:
    """Return the stripped texts of a column, without missing values."""
    texts = column.str.strip()
    return texts[~texts.isin(MISSING)]


def judge(train: pd.Series, test: pd.Series | None) -> Column:
    """Return how a model should read a column of texts.

    >>> judge(pd.Series(["1.5", "2", "", "7"], name="age"), pd.Series(["3"])).use
    'number'
    >>> judge(pd.Series(["a", "a", "b", "a"], name="kind"), None).why
    'in the training table alone'
    """
    texts = known(train)
    counts = texts.value_counts()
    tested = texts[:0] if test is None else known(test)
    values, values_test = numbers(texts), numbers(tested)
    number = bool(len(values)) and bool(np.isfinite(values).all())
    shown = ", ".join(f"{text:.{SHOWN}}" for text in counts.index[:3])
    if number and len(counts) > FEW:
        shown = " … ".join(f"{value:.4g}" for value in np.quantile(values, (0, 0.5, 1)))
    missing = 1 - len(texts) / max(len(train), 1)
    missing_test = None if test is None else 1 - len(tested) / max(len(test), 1)
    use, why, about = OUT, "in the training table alone", ""
    if test is not None:
        odd = pd.concat([texts[~np.isfinite(values)], tested[~np.isfinite(values_test)]])
        use, why, about = _use(counts, None if len(odd) else values, missing)
        every, constant = len(texts) + len(tested), len(counts) == 1 and not missing
        form = _date_form(counts.index, tested) if len(odd) == every and not constant else ""
        if form:
            use, why = DATE, f"dates as {form}"
            about = "exchanged" if dates.is_ambiguous(pd.concat([texts, tested]), form) else ""
        elif mixed := _mixed(odd, every, len(counts)):
            why, about = mixed, "mixed"
        elif use == CATEGORY and len(counts) > FEW and not counts.index.isin(tested).any():
            use, why = OUT, "none of its values is in the test set"
    return Column(str(train.name), use, why, about, len(counts), missing, missing_test, shown)


def _date_form(distinct: pd.Index, tested: pd.Series) -> str:
    """Return the date format that all texts of both tables have, as a training finds it, or ""."""
    texts = distinct.to_series()
    form = dates.form(texts) if dates.form(texts[: dates.TRIED]) else ""
    has_year = form == dates.ISO or "%Y" in form or "%y" in form
    return form if has_year and dates.fits(pd.concat([texts, tested]), form) else ""


def _mixed(odd: pd.Series, every: int, distinct: int) -> str:
    """Return why a column counts as nearly numbers, and what to write instead; or "".

    Args:
        odd: the texts that are not numbers.
        every: number of known texts.
        distinct: number of distinct texts in the training table.
    """
    bare, plain = odd.str.replace(SIGNS, "", regex=True), every - len(odd)
    likely = np.isfinite(numbers(bare)) | bare.str.fullmatch(COMMAS).to_numpy(bool)
    many = distinct - odd.nunique() > FEW or likely.all()
    if not (len(odd) and many and plain + likely.sum() > (~likely).sum()):
        return ""
    named = ", ".join(f"{text[:SHOWN]!r}" for text in odd.unique()[:3])
    return f"{plain / every:.0%} are plain numbers, others are like {named}: {PLAIN}"


def _use(counts: pd.Series, values: np.ndarray | None, missing: float) -> tuple[str, str, str]:
    """Return `use`, `why` and `about` of a `Column`.

    Args:
        counts: rows of each known text.
        values: the known texts as numbers; None if any is not one, here or in the test set.
        missing: share of the rows without a value.
    """
    rows, distinct = int(counts.sum()), len(counts)
    if not distinct:
        return OUT, "no value in any row", ""
    if distinct == 1 and not missing:
        return OUT, "the same in every row", ""
    if values is None:
        if rows >= REPEATS * distinct:
            return CATEGORY, f"{distinct:,} distinct texts", ""
        if words := refusals.prose(counts.index.to_series()):
            return OUT, f"free text, {distinct:,} distinct texts of about {words} words", "text"
        return OUT, f"{distinct:,} distinct texts in {rows:,} rows: almost none repeats", ""
    whole = bool((values == np.floor(values)).all())
    if set(np.unique(values)) <= {0, 1}:  # an embedding for each of 600 such is slow to compile
        return NUMBER, "0 and 1", ""
    if whole and distinct <= FEW:
        return CATEGORY, f"{distinct} distinct whole numbers", ""
    if whole and distinct == rows >= LEAST and np.ptp(values) < 1.2 * rows:
        return OUT, "it numbers the rows", ""
    return NUMBER, "numbers", ""


def commas(texts: pd.Series) -> bool:
    """Return whether all texts that are not plain numbers are numbers with commas.

    >>> [commas(pd.Series(texts)) for texts in (["12,50", "7"], ["1,234.5"], ["71,78,45"], ["7"])]
    [True, True, False, False]
    >>> commas(pd.Series(["NA", "0"]))
    False
    """
    odd = known(texts[~np.isfinite(numbers(texts))])
    return bool(len(odd)) and bool(odd.str.fullmatch(COMMAS).all())


def describe(every: Sequence[Column], findings: Findings) -> None:
    """Add findings on the columns of a table."""
    uses = [column.use for column in every]
    text = f"a table: {counted(uses.count(NUMBER), 'column')} of numbers, {uses.count(CATEGORY)} of"
    text += f" categories, {uses.count(DATE)} of dates" if DATE in uses else " categories"
    findings.chosen("inputs", text)
    describe_left_out(every, findings)
    for column in every:
        texts = f"{column.name}: {column.why}"
        if column.use == DATE and column.about:
            findings.unknown("dates", f"{texts}; if the day comes first, set data.day_first=True")
        elif column.use == DATE:
            findings.chosen("dates", texts)
    gaps = [
        f"{column.name} {column.missing:.0%}/{column.missing_test or 0:.0%}"
        for column in every
        if column.use != OUT and (column.missing or column.missing_test)
    ]
    if gaps:
        text = f"{shortened(gaps, 8)} of the rows (training/test) have no value; "
        findings.found("missing", text + "a missing number is marked as missing")


def describe_left_out(
    every: Sequence[Column], findings: Findings, read: Sequence[str] = (NUMBER, CATEGORY, DATE)
) -> None:
    """Add findings on columns that are not read, and on those that are nearly numbers.

    Args:
        read: the uses of a column that are read.
    """
    reasons: dict[str, list[str]] = {}
    for column in every:
        use = "read as a category" if column.use in read else "left out"
        if column.about == "mixed":
            findings.warning("mixed", f"{column.name} is {use}: {column.why}, or leave it empty")
        elif column.about == "text":
            text = f"{column.name} is left out, since no texts are read: {column.why}"
            findings.warning("text", text)
        elif column.use not in read:
            why = column.why + "; to read dates: --alone columns" * (column.use == DATE)
            reasons.setdefault(why, []).append(column.name)
    for why, left_out in reasons.items():
        findings.chosen("left out", f"{shortened(left_out, 12)}: {why}")


# -- pixels


def pixels(path: Path, header: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are the pixels of one image per row, or () if there are too few."""
    matches = [match for name in header if (match := PIXEL.fullmatch(name))]
    found = tuple(match[0] for match in matches)
    if len(found) < LEAST_PIXELS or not grid(found):
        return ()
    said = any(len(match[1] or "") > 1 for match in matches)
    return found if said or _levels(path, found) else ()


def _levels(path: Path, names: Sequence[str]) -> bool:
    """Return whether the first rows of these columns hold whole numbers from 0 to 255, and not only
    small ones: columns that merely have numbers for names may be any features.
    """
    try:
        header, *rows = islice(csv_files.rows(path, DataError, ""), 101)
    except DataError:  # reading the whole table reports it
        return True
    places = [place for place, name in enumerate(header) if name in set(names)]
    texts = {row[place].strip().removesuffix(".0") for row in rows for place in places}
    return texts <= LEVELS and not texts <= FEW_LEVELS


def grid(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return height, width and channels of images with these columns, or None. Unless the names
    tell, an image is square.

    >>> grid([f"pixel{n}" for n in range(784)])
    (28, 28, 1)
    >>> grid([f"{row}x{column}" for row in range(4) for column in range(5)])
    (4, 5, 1)
    """
    pairs = [re.findall(r"\d+", name) for name in names]
    if all(len(pair) == 2 for pair in pairs):
        height, width = (len({pair[place] for pair in pairs}) for place in (0, 1))
        if height * width == len(names):
            return height, width, 1
    for channels in (1, 3):
        side = math.isqrt(len(names) // channels)
        if side * side * channels == len(names):
            return side, side, channels
    return None

"""Decide how a model reads each column of a table.

Columns that are missing from the test table are always left out.
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
FEW = 12  # up to this many distinct whole numbers are read as categories
REPEATS = 2  # rows per distinct text; if there are fewer, nothing can be learned
LEAST = 30  # rows; in a smaller table, values may be consecutive by chance
COMMAS = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?)")  # 12,50 or 1,234,567.8
SIGNS = re.compile(r"[$€£¥%\s]")
SHOWN = 24  # maximum length of a text in a message, in characters
PLAIN = "write numbers with a decimal point and without units or thousands separators"
PIXEL = re.compile(  # such as pixel7, px_7, x7, 7, pixel_3_4 or 3x4
    r"(?:(pi?x(?:el)?s?|[a-z])[ _-]?)?(\d+)(?:[ _x-](\d+))?", re.IGNORECASE
)
LEAST_PIXELS = 49  # columns
LEVELS = frozenset(map(str, range(256)))
FEW_LEVELS = frozenset(map(str, range(16)))  # flags and small counts stay in this range


@dataclass(frozen=True)
class Column:
    """A column of the training table.

    Attributes:
        use: "number", "category", "date" or "left out".
        why: the reason for `use`, to be shown to the user.
        about: what the user should check: "mixed" (almost all values are numbers), "text",
            "exchanged" (day and month of the dates may be swapped) or "".
        missing: fraction of training rows that have no value.
        missing_test: fraction of test rows that have no value, or None if the test table lacks the
            column.
        shown: minimum, median and maximum of the numbers, or the most frequent texts.
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
    """Convert texts to float64 (n,). Texts that are not numbers become NaN."""
    return csv_files.as_numbers(texts.str.strip()).to_numpy(np.float64)


def known(column: pd.Series) -> pd.Series:
    texts = column.str.strip()
    return texts[~texts.isin(MISSING)]


def judge(train: pd.Series, test: pd.Series | None) -> Column:
    """Decide how a model should read a column of strings.

    >>> judge(pd.Series(["1.5", "2", "", "7"], name="age"), pd.Series(["3"])).use
    'number'
    >>> judge(pd.Series(["a", "a", "b", "a"], name="kind"), None).why
    'only in the training table'
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
    use, why, about = OUT, "only in the training table", ""
    if test is not None:
        odd = pd.concat([texts[~np.isfinite(values)], tested[~np.isfinite(values_test)]])
        use, why, about = _use(counts, None if len(odd) else values, missing)
        every, constant = len(texts) + len(tested), len(counts) == 1 and not missing
        form = _date_form(counts.index, tested) if len(odd) == every and not constant else ""
        if form:
            use, why = DATE, f"dates in the format {form}"
            about = "exchanged" if dates.is_ambiguous(pd.concat([texts, tested]), form) else ""
        elif mixed := _mixed(odd, every, len(counts)):
            why, about = mixed, "mixed"
        elif use == CATEGORY and len(counts) > FEW and not counts.index.isin(tested).any():
            use, why = OUT, "its values do not occur in the test set"
    return Column(str(train.name), use, why, about, len(counts), missing, missing_test, shown)


def _date_form(distinct: pd.Index, tested: pd.Series) -> str:
    """Return the date format of all texts in both tables, or ""."""
    texts = distinct.to_series()
    form = dates.form(texts) if dates.form(texts[: dates.TRIED]) else ""
    has_year = form == dates.ISO or "%Y" in form or "%y" in form
    return form if has_year and dates.fits(pd.concat([texts, tested]), form) else ""


def _mixed(odd: pd.Series, every: int, distinct: int) -> str:
    """Return how to correct a column in which almost all texts are numbers, or "".

    Args:
        odd: texts that are not numbers.
        every: number of texts, excluding missing values.
        distinct: number of distinct texts in the training table.
    """
    bare, plain = odd.str.replace(SIGNS, "", regex=True), every - len(odd)
    likely = np.isfinite(numbers(bare)) | bare.str.fullmatch(COMMAS).to_numpy(bool)
    many = distinct - odd.nunique() > FEW or likely.all()
    if not (len(odd) and many and plain + likely.sum() > (~likely).sum()):
        return ""
    named = ", ".join(f"{text[:SHOWN]!r}" for text in odd.unique()[:3])
    text = f"{plain / every:.0%} of the values are numbers, but others look like {named}. "
    return f"{text}To read all of them, {PLAIN}"


def _use(counts: pd.Series, values: np.ndarray | None, missing: float) -> tuple[str, str, str]:
    """Return the `use`, `why` and `about` fields of a `Column`.

    Args:
        counts: number of rows with each text, excluding missing values.
        values: the texts as numbers, or None if a text in either table is not a number.
        missing: fraction of rows that have no value.
    """
    rows, distinct = int(counts.sum()), len(counts)
    if not distinct:
        return OUT, "all rows are empty", ""
    if distinct == 1 and not missing:
        return OUT, "all rows have the same value", ""
    if values is None:
        if rows >= REPEATS * distinct:
            return CATEGORY, f"{distinct:,} distinct texts", ""
        if words := refusals.prose(counts.index.to_series()):
            return OUT, f"free text ({distinct:,} distinct texts of about {words} words)", "text"
        return OUT, f"few of its texts repeat ({distinct:,} distinct texts in {rows:,} rows)", ""
    whole = bool((values == np.floor(values)).all())
    if set(np.unique(values)) <= {0, 1}:  # 600 embeddings for such columns are slow to compile
        return NUMBER, "only 0 and 1", ""
    if whole and distinct <= FEW:
        return CATEGORY, f"{distinct} distinct whole numbers", ""
    if whole and distinct == rows >= LEAST and np.ptp(values) < 1.2 * rows:
        return OUT, "it looks like a row number", ""
    return NUMBER, "numbers", ""


def commas(texts: pd.Series) -> bool:
    """Return whether a column contains only numbers, at least one of which has a comma.

    >>> [commas(pd.Series(texts)) for texts in (["12,50", "7"], ["1,234.5"], ["71,78,45"], ["7"])]
    [True, True, False, False]
    >>> commas(pd.Series(["NA", "0"]))
    False
    """
    odd = known(texts[~np.isfinite(numbers(texts))])
    return bool(len(odd)) and bool(odd.str.fullmatch(COMMAS).all())


def describe(every: Sequence[Column], findings: Findings) -> None:
    uses = [column.use for column in every]
    text = f"a table with {counted(uses.count(NUMBER), 'numeric column')} and "
    text += counted(uses.count(CATEGORY), "categorical column")
    text += f", plus {counted(uses.count(DATE), 'date column')}" if DATE in uses else ""
    findings.chosen("inputs", text)
    describe_left_out(every, findings)
    for column in every:
        texts = f"{column.name}: {column.why}"
        if column.use == DATE and column.about:
            text = f"{texts}. If the day comes before the month, set data.day_first=True"
            findings.unknown("dates", text)
        elif column.use == DATE:
            findings.chosen("dates", texts)
    gaps = [
        f"{column.name} {column.missing:.0%}/{column.missing_test or 0:.0%}"
        for column in every
        if column.use != OUT and (column.missing or column.missing_test)
    ]
    if gaps:
        text = f"missing values (training/test): {shortened(gaps, 8)}. For each missing number, "
        findings.found("missing", text + "an additional feature is set to 1")


def describe_left_out(
    every: Sequence[Column], findings: Findings, read: Sequence[str] = (NUMBER, CATEGORY, DATE)
) -> None:
    """Add findings about columns that are left out, or in which almost all values are numbers."""
    reasons: dict[str, list[str]] = {}
    for column in every:
        use = "read as a category" if column.use in read else "left out"
        if column.about == "mixed":
            text = f"{column.name} is {use}: {column.why}, or leave these cells empty"
            findings.warning("mixed", text)
        elif column.about == "text":
            text = f"{column.name} is left out because it is {column.why}, which is not read"
            findings.warning("text", text)
        elif column.use not in read:
            why = column.why + "; to read dates, pass --alone columns" * (column.use == DATE)
            reasons.setdefault(why, []).append(column.name)
    for why, left_out in reasons.items():
        findings.chosen("left out", f"{shortened(left_out, 12)}: {why}")


# -- pixels


def pixels(path: Path, header: Sequence[str]) -> tuple[str, ...]:
    matches = [match for name in header if (match := PIXEL.fullmatch(name))]
    found = tuple(match[0] for match in matches)
    if len(found) < LEAST_PIXELS or not grid(found):
        return ()
    said = any(len(match[1] or "") > 1 for match in matches)
    return found if said or _levels(path, found) else ()


def _levels(path: Path, names: Sequence[str]) -> bool:
    """Return whether the first rows contain only whole numbers up to 255, and not only small ones.

    This check is needed because columns with numbers as names can contain any kind of feature.
    """
    try:
        header, *rows = islice(csv_files.rows(path, DataError, ""), 101)
    except DataError:  # reported when the whole table is read
        return True
    places = [place for place, name in enumerate(header) if name in set(names)]
    texts = {row[place].strip().removesuffix(".0") for row in rows for place in places}
    return texts <= LEVELS and not texts <= FEW_LEVELS


def grid(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return the height, width and channels of images with these pixel columns, or None.

    Images are assumed to be square unless the column names contain row and column numbers.

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

"""Convert dates to numbers, such as days since 1970, weekdays, and days between two columns.

A column's format, such as %d/%m/%Y, is detected in the training table and also used for the test
table, because 03/04 on its own is ambiguous.
"""

import warnings
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from pipeline.config.data_layout import DATE_PARTS
from pipeline.data.csv_files import MISSING, check_column

ISO = "ISO8601"  # pandas' name for formats such as 2026-11-28 and 2026-11-28T10:30:00Z
TRIED = 100  # number of texts from which formats are guessed
# Formats that pandas cannot guess.
MORE = ("%d.%m.%y", "%d-%b-%y", "%b-%y", "%B %Y", "%b %Y")
NEVER = "0000-00-00"  # MySQL's value for a missing date
YEARS = (1678, 2261)  # range supported by pandas before 3.0


def form(column: pd.Series, *, day_first: bool = False) -> str:
    """Return the format, in pandas' notation, that matches most dates in a column, or "".

    >>> form(pd.Series(["03/04/2026", "25/12/2026"])), form(pd.Series(["2026-04-03", "NA"]))
    ('%d/%m/%Y', 'ISO8601')
    """
    texts = pd.Series(_clean(column).dropna().unique(), dtype=object)
    with warnings.catch_warnings(action="ignore"):  # about the order of day and month
        guesses = [
            guess_datetime_format(text, dayfirst=first)
            for first in (day_first, not day_first)
            for text in texts[:TRIED]
        ]
    short = ["%m/%d/%y", "%d/%m/%y"]
    forms = dict.fromkeys(
        [ISO, *filter(None, guesses), *sorted(short, reverse=not day_first), *MORE]
    )
    read = {each: int(_moments(texts, each).notna().sum()) for each in forms}
    best = max(read, key=lambda each: read[each])
    return best if read[best] else ""


def is_ambiguous(texts: pd.Series, expected: str) -> bool:
    """Return whether the day and the month could be swapped in every date in a column."""
    other = expected.translate(str.maketrans("dm", "md"))
    return (
        other != expected
        and expected != ISO
        and {"%d", "%m"} <= {other[place : place + 2] for place in range(len(other))}
        and fits(texts, other)
    )


def fits(texts: pd.Series, expected: str) -> bool:
    known = pd.Series(_clean(texts).dropna().unique(), dtype=object)
    return bool(_moments(known, expected).notna().all())


def numbers(
    table: pd.DataFrame, forms: Mapping[str, str], path: Path, *, lenient: bool = False
) -> list[np.ndarray]:
    """Convert date columns to float64 arrays (n,), in the order of `Data.number_names`.

    Missing dates become NaN. Days are counted from 1970.

    Args:
        forms: format of each date column, from `form`.
        lenient: whether to treat invalid dates as missing.

    Raises:
        DataError: if a text is not a date in its column's format.
    """
    parts, days = list[np.ndarray](), list[np.ndarray]()
    for name, expected in forms.items():
        texts = _clean(table[name])
        moments = _moments(texts, expected)
        if not lenient:
            edit = "Correct the table, or remove the column from date_columns in the config."
            words = f"dates in the format {expected or ISO}, from {YEARS[0]} to {YEARS[1]}"
            check_column(path, table[name], texts.notna() & moments.isna(), words, edit)
        since = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        found = {
            "days": since,
            "month": moments.dt.month,
            "day": moments.dt.day,
            "weekday": moments.dt.day_of_week,
            "hour": moments.dt.hour + moments.dt.minute / 60,
        }
        parts += [found[part].to_numpy(np.float64) for part in DATE_PARTS]
        days.append(since.to_numpy(np.float64))
    return [*parts, *(later - earlier for earlier, later in combinations(days, 2))]


def _clean(column: pd.Series) -> pd.Series:
    texts = column.astype(object).map(str).str.strip()
    return texts.mask(texts.isin(MISSING) | texts.str.startswith(NEVER))


def _moments(texts: pd.Series, expected: str) -> pd.Series:
    moments = pd.to_datetime(texts, format=expected or ISO, errors="coerce", utc=True)
    return moments.where(moments.dt.year.between(*YEARS))

"""Dates as numbers: since when, the month, day, weekday and hour, and the days between two columns.

The form of a column (%d/%m/%Y or another) is found in the training table and travels in the
artifact, so that the test table is read in the same way: 03/04 alone is the 3rd of April, or not.
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

ISO = "ISO8601"  # pandas' name for 2026-11-28, 2026-11-28T10:30:00Z and others of that standard
TRIED = 100  # texts of a column from which forms are guessed
# Forms that pandas does not guess.
MORE = ("%d.%m.%y", "%d-%b-%y", "%b-%y", "%B %Y", "%b %Y")
NEVER = "0000-00-00"  # as MySQL writes a missing date
YEARS = (1678, 2261)  # pandas before 3.0 knows no others


def form(column: pd.Series, *, day_first: bool = False) -> str:
    """Return the form that most texts of a column have, as pandas names it; "" if none is a date.

    Args:
        day_first: where day and month could be exchanged, the day comes first.

    >>> form(pd.Series(["03/04/2026", "25/12/2026"])), form(pd.Series(["2026-04-03", "NA"]))
    ('%d/%m/%Y', 'ISO8601')
    """
    texts = pd.Series(_clean(column).dropna().unique(), dtype=object)
    with warnings.catch_warnings(action="ignore"):  # the other order of day and month
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
    """Return whether day and month could be exchanged in each text of a column."""
    other = expected.translate(str.maketrans("dm", "md"))
    return (
        other != expected
        and expected != ISO
        and {"%d", "%m"} <= {other[place : place + 2] for place in range(len(other))}
        and fits(texts, other)
    )


def fits(texts: pd.Series, expected: str) -> bool:
    """Return whether each text of a column is a date of this form, or missing."""
    known = pd.Series(_clean(texts).dropna().unique(), dtype=object)
    return bool(_moments(known, expected).notna().all())


def numbers(
    table: pd.DataFrame, forms: Mapping[str, str], path: Path, *, lenient: bool = False
) -> list[np.ndarray]:
    """Return what the date columns become, in the order of `Data.number_names`: float64 (n,) each,
    NaN where a date is missing. Days count from 1970 on.

    Args:
        forms: of each date column, as `form` returns them.
        path: of the table, for messages.
        lenient: take a text that is no date for a missing one.

    Raises:
        DataError: if a text is no date of its column's form.
    """
    parts, days = list[np.ndarray](), list[np.ndarray]()
    for name, expected in forms.items():
        texts = _clean(table[name])
        moments = _moments(texts, expected)
        if not lenient:
            edit = "Correct the table, or remove the column from date_columns in the config."
            words = f"dates as {expected or ISO}, from {YEARS[0]} to {YEARS[1]}"
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
    """Return the moments of texts, NaT where one has another form."""
    moments = pd.to_datetime(texts, format=expected or ISO, errors="coerce", utc=True)
    return moments.where(moments.dt.year.between(*YEARS))

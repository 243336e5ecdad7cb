"""Features: which columns of a table a model should read, and as what; and what about a column a
person should look at.

A column is a number or a category, or it is left out with the reason. Columns of the training table
alone are never read: nobody has them for the test set.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.data.tabular import MISSING

NUMBER, CATEGORY, OUT = "number", "category", "left out"
FEW = 12  # different whole numbers, up to which they are taken for a category
SPOILED = 0.02  # share of the values that are no numbers, up to which they are what is wrong with a column
REPEATS = 2  # rows for each different text, below which there is nothing to learn from it
COMMAS = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?)")  # "12,50"; "1,234,567.8"
WITH_COMMAS, WITHOUT_COMMAS = (
    "numbers with commas",
    "write decimals with a point, and thousands without a sign",
)
LEAST = 30  # rows, below which a column that fits the labels may do so by chance
GROUPS = re.compile(
    r"(patient|subject|person|user|customer|client|author|group|site|scene|session|series|study|location|record|video|family|house|camera)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Column:
    """A column of the training table.

    Attributes:
        use: "number", "category" or "left out". why: in words.
        distinct: different values. missing: share of the rows without one. missing_test: the same;
            None where the test set has no such column.
        shown: least, middle and largest number, or the most frequent texts.
    """

    name: str
    use: str
    why: str
    distinct: int
    missing: float
    missing_test: float | None
    shown: str


def judge(train: pd.Series, test: pd.Series | None) -> Column:
    """Return what is to be done with a column of texts.

    >>> judge(pd.Series(["1.5", "2", "", "7"], name="age"), pd.Series(["3"])).use
    'number'
    >>> judge(pd.Series(["a", "a", "b", "a"], name="kind"), None).why
    'in the training table alone'
    """
    there, share = _there(train)
    distinct = there.nunique()
    shown = ", ".join(f"{text!s:.24}" for text in there.value_counts().index[:3])
    values = numbers(there)
    number = bool(len(values)) and bool(np.isfinite(values).all())
    if number and distinct > FEW:
        shown = " … ".join(
            f"{value:.4g}" for value in (values.min(), float(np.median(values)), values.max())
        )
    if test is None:
        return Column(
            str(train.name), OUT, "in the training table alone", distinct, share, None, shown
        )
    seen, lacking = _there(test)
    number = number and bool(np.isfinite(numbers(seen)).all())
    use, why = _use(there, values if number else None, distinct, share)
    odd = [str(text) for texts in (there, seen) for text in texts[~np.isfinite(numbers(texts))]]
    if use == OUT and 0 < len(odd) <= SPOILED * (len(there) + len(seen)):
        why = f"numbers but for {', '.join(map(repr, odd[:3]))}: correct the tables, and it can be read"
    elif use != NUMBER and commas(there, seen):
        why = f"{WITH_COMMAS}, as {odd[0]!r}: {WITHOUT_COMMAS}"
    return Column(str(train.name), use, why, distinct, share, lacking, shown)


def commas(*columns: pd.Series) -> bool:
    """Return whether what is no number in these columns is one with commas, as some countries and
    spreadsheets write it.

    >>> commas(pd.Series(["12,50", "7"])), commas(pd.Series(["1,234.5"])), commas(pd.Series(["71,78,45"])), commas(pd.Series(["7"]))
    (True, True, False, False)
    """
    odd = [text for column in columns for text in column[~np.isfinite(numbers(column))].str.strip()]
    return bool(odd) and all(COMMAS.fullmatch(text) for text in odd if text not in MISSING)


def _use(
    there: pd.Series, values: np.ndarray | None, distinct: int, missing: float
) -> tuple[str, str]:
    if not distinct:
        return OUT, "no value in any row"
    if distinct == 1 and not missing:
        return OUT, "the same in every row"
    if values is not None:
        whole = bool((values == np.floor(values)).all())
        if whole and distinct <= FEW:
            return CATEGORY, f"{distinct} different whole numbers"
        if (
            whole
            and distinct == len(there)
            and len(there) >= LEAST
            and values.max() - values.min() < 1.2 * len(there)
        ):
            return OUT, "it counts the rows"
        return NUMBER, "numbers"
    if len(there) < REPEATS * distinct:
        return OUT, f"{distinct:,} different texts in {len(there):,} rows: hardly one comes twice"
    return CATEGORY, f"{distinct:,} different texts"


def numbers(texts: pd.Series) -> np.ndarray:
    """Return float64 (n,), not a number where the text says none."""
    return pd.to_numeric(texts.str.strip(), errors="coerce").to_numpy(np.float64, copy=True)


def _there(texts: pd.Series) -> tuple[pd.Series, float]:
    """Return the values that are there, without blanks around them, and the share of rows without
    one.
    """
    texts = texts.str.strip()
    lacking = texts.isin(MISSING)
    return texts[~lacking], float(lacking.mean()) if len(texts) else 0.0


def tellers(table: pd.DataFrame, columns: Collection[Column], labels: np.ndarray) -> list[str]:
    """Return the names of columns that tell the label alone, without an error: often something that
    is known only afterwards.

    Args:
        labels: of the rows: classes by their number, int (n,), or numbers, float (n,).
    """
    found = []
    for column in columns:
        texts = table[column.name].str.strip()
        if len(texts) < LEAST or column.distinct < 2:
            continue
        if column.use == CATEGORY and labels.dtype.kind in "iu":
            grouped = pd.Series(labels, index=texts.index).groupby(texts).nunique()
            if (grouped == 1).all() and len(texts) >= 5 * column.distinct:
                found.append(column.name)
        elif column.use == NUMBER:
            values = numbers(texts)
            rows = np.flatnonzero(np.isfinite(values))
            if len(rows) >= LEAST and _separates(values[rows], labels[rows]):
                found.append(column.name)
    return found


def _separates(values: np.ndarray, labels: np.ndarray) -> bool:
    order = np.argsort(values, kind="stable")
    if labels.dtype.kind in "iu":
        classes = len(np.unique(labels))
        changes = int((np.diff(labels[order]) != 0).sum())
        # Equal values with different labels are told apart by nothing.
        mixed = bool(((np.diff(values[order]) == 0) & (np.diff(labels[order]) != 0)).any())
        return classes > 1 and changes == classes - 1 and not mixed
    ranks = pd.Series(values).rank(), pd.Series(labels).rank()
    return bool(abs(np.corrcoef(*ranks)[0, 1]) > 0.9999) if values.std() and labels.std() else False


def groups(
    train: pd.DataFrame, test: pd.DataFrame | None, skip: Collection[str]
) -> list[tuple[str, str]]:
    """Return columns whose rows may belong together, as those of one patient, each with the sign of
    it. It is advice: only a person knows.

    >>> table = pd.DataFrame({"patient": ["a", "a", "b", "b", "c", "c"]})
    >>> groups(table, None, ())
    [('patient', '3 different texts in 6 rows, and its name')]
    """
    found = []
    for name in train:
        if name in skip:
            continue
        there, _ = _there(train[name])
        distinct = there.nunique()
        if not 2 < distinct <= len(there) / REPEATS:
            continue
        apart = False
        if (
            test is not None
            and name in test
            and distinct > FEW
            and not (numbers(there) % 1 > 0).any()
        ):
            apart = not set(there) & set(_there(test[name])[0])
        if apart or GROUPS.search(str(name)):
            sign = "none of them is in the test set" if apart else "its name"
            found.append(
                (str(name), f"{distinct:,} different texts in {len(there):,} rows, and {sign}")
            )
    return found

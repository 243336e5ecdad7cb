"""What a model should read each column of a table as, and which columns a person should check.

A column is a number or a category, or is left out with the reason. A column that only the training
table has is never read: it is unknown for the test set. Ids are never read; what they reveal of the
label shows how the data were made.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.data.csv_files import MISSING
from workbench.inspect import unsupported

NUMBER, CATEGORY, OUT = "number", "category", "left out"
FEW = 12  # distinct whole numbers: up to so many are a category
SPOILED = 0.02  # share of values that are no numbers: up to so many are errors in a column of them
REPEATS = 2  # rows for each distinct text: with fewer there is nothing to learn
LEAST = 30  # rows: with fewer a column or the ids may match the labels by chance
SIGMAS, SHUFFLES = 6.0, 20
COMMAS = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?)")  # "12,50"; "1,234,567.8"
SIGNS = re.compile(r"[$€£¥%]")
WITH_COMMAS, WITH_SIGNS = "numbers with commas", "numbers with signs"
PROSE = "free text"
MOSTLY = "mostly numbers"
SHOWN = 24  # characters of a text in a message
WITHOUT_COMMAS = "write decimals with a point, and thousands without a separator"
GROUPS = re.compile(
    "patient|subject|person|user|customer|client|author|group|site|scene|session|series|study|"
    "location|record|video|family|house|camera",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Column:
    """A column of the training table.

    Attributes:
        use: "number", "category" or "left out".
        why: the reason, in words.
        distinct: number of distinct values.
        missing: share of the rows without a value.
        missing_test: the same of the test table; None where it has no such column.
        shown: least, median and largest number, or the most frequent texts.
    """

    name: str
    use: str
    why: str
    distinct: int
    missing: float
    missing_test: float | None
    shown: str


def judge(train: pd.Series, test: pd.Series | None) -> Column:
    """Return how a model should read a column of texts.

    >>> judge(pd.Series(["1.5", "2", "", "7"], name="age"), pd.Series(["3"])).use
    'number'
    >>> judge(pd.Series(["a", "a", "b", "a"], name="kind"), None).why
    'in the training table alone'
    """
    present, missing = _present(train)
    distinct = len(present)
    values = numbers(present.index)
    number = bool(len(values)) and bool(np.isfinite(values).all())
    shown = ", ".join(f"{text!s:.24}" for text in present.index[:3])
    if number and distinct > FEW:
        middle = np.quantile(np.repeat(values, present), (0, 0.5, 1))
        shown = " … ".join(f"{value:.4g}" for value in middle)
    if test is None:
        why = "in the training table alone"
        return Column(str(train.name), OUT, why, distinct, missing, None, shown)
    present_test, missing_test = _present(test)
    number = number and bool(np.isfinite(numbers(present_test.index)).all())
    use, why = _use(present, values if number else None, missing)
    both = pd.concat([present, present_test])
    odd = both[~np.isfinite(numbers(both.index))]
    shown_odd = list(dict.fromkeys(odd.index))
    if use == OUT and 0 < odd.sum() <= SPOILED * both.sum():
        named = ", ".join(map(repr, shown_odd[:3]))
        why = f"numbers, except {named}: correct the tables to have it read"
    elif use != NUMBER and commas(pd.Series(both.index, dtype=object)):
        why = f"{WITH_COMMAS}, such as {shown_odd[0]!r}: {WITHOUT_COMMAS}"
    elif use != NUMBER and _signs(odd.index):
        why = f"{WITH_SIGNS}, such as {shown_odd[0]!r}: write numbers alone"
    elif use == CATEGORY and not number and distinct > FEW and _apart(present, present_test):
        use, why = OUT, "none of its values is in the test set"
    elif use == CATEGORY and 2 * odd.sum() < both.sum() and len(set(both.index)) > FEW + len(odd):
        named = ", ".join(f"{text[:SHOWN]!r}" for text in shown_odd[:3])
        named += f" and {len(shown_odd) - 3:,} other texts" if len(shown_odd) > 3 else ""
        why = f"{MOSTLY} ({1 - odd.sum() / both.sum():.0%}), and {named}"
    return Column(str(train.name), use, why, distinct, missing, missing_test, shown)


def commas(column: pd.Series) -> bool:
    """Return whether each text that is no number is one with commas.

    >>> [commas(pd.Series(texts)) for texts in (["12,50", "7"], ["1,234.5"], ["71,78,45"], ["7"])]
    [True, True, False, False]
    >>> commas(pd.Series(["NA", "0"]))
    False
    """
    odd = column[~np.isfinite(numbers(column))].str.strip()
    texts = [text for text in odd if text not in MISSING]
    return bool(texts) and all(COMMAS.fullmatch(text) for text in texts)


def _signs(texts: pd.Index) -> bool:
    """Return whether texts are numbers with the sign of a currency or of percent.

    >>> [_signs(pd.Index(texts)) for texts in (["40%", "1.5 %"], ["$1,200", "-$3"], ["$", "%"])]
    [True, True, False]
    """
    plain = [SIGNS.sub("", text).strip() for text in texts]
    return bool(plain) and all(
        len(text) < len(given) and (COMMAS.fullmatch(text) or np.isfinite(number))
        for given, text, number in zip(texts, plain, numbers(pd.Series(plain)), strict=True)
    )


def _use(present: pd.Series, values: np.ndarray | None, missing: float) -> tuple[str, str]:
    """Return the use of a column, and why.

    Args:
        present: as `_present` returns it.
        values: of its texts; None where one is no number.
        missing: share of the rows without a value.
    """
    rows, distinct = int(present.sum()), len(present)
    if not distinct:
        return OUT, "no value in any row"
    if distinct == 1 and not missing:
        return OUT, "the same in every row"
    if values is not None:
        whole = bool((values == np.floor(values)).all())
        if set(values) <= {0, 1}:  # one embedding for each of 600 such columns is slow to compile
            return NUMBER, "0 and 1"
        if whole and distinct <= FEW:
            return CATEGORY, f"{distinct} distinct whole numbers"
        dense = values.max() - values.min() < 1.2 * rows
        if whole and distinct == rows and rows >= LEAST and dense:
            return OUT, "it counts the rows"
        return NUMBER, "numbers"
    if rows < REPEATS * distinct:
        if words := unsupported.prose(pd.Series(present.index, dtype=object)):
            return OUT, f"{PROSE}, {distinct:,} distinct texts of about {words} words"
        return OUT, f"{distinct:,} distinct texts in {rows:,} rows: almost none repeats"
    return CATEGORY, f"{distinct:,} distinct texts"


def numbers(texts: pd.Series | pd.Index) -> np.ndarray:
    """Return float64 (n,), NaN where a text is no number."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        values = pd.Categorical(texts)
        return np.asarray(numbers(values.categories)[values.codes])
    stripped = pd.Series([text.strip() for text in texts], dtype=object)
    return pd.to_numeric(stripped, errors="coerce").to_numpy(np.float64, copy=True)


def _present(texts: pd.Series) -> tuple[pd.Series, float]:
    """Return how many rows have each value of a column, {text without blanks around it: rows}, the
    most frequent first, and the share of rows without a value.
    """
    values, rows = pd.Categorical(texts), defaultdict[str, int](int)
    counts = np.bincount(values.codes, minlength=len(values.categories))
    for text, count in zip(values.categories, counts.tolist(), strict=True):
        if count:
            rows[text.strip()] += count
    found = {text: count for text, count in rows.items() if text not in MISSING}
    present = pd.Series(list(found.values()), pd.Index(list(found), dtype=object), dtype=np.int64)
    present = present.sort_values(ascending=False, kind="stable")
    return present, 1 - float(present.sum() / len(texts)) if len(texts) else 0.0


def _apart(present: pd.Series, present_test: pd.Series) -> bool:
    """Return whether two columns, as `_present` returns them, share no value."""
    return not set(present.index) & set(present_test.index)


def leaking(table: pd.DataFrame, columns: Collection[Column], labels: np.ndarray) -> list[str]:
    """Return the names of columns that alone give the label without an error: often they are known
    only after it.

    Args:
        table: of texts.
        columns: those to check.
        labels: class numbers, int (n,), or numbers, float (n,).
    """
    found = []
    classes = labels.dtype.kind in "iu"
    for column in columns:
        if len(table) < LEAST or column.distinct < 2:
            continue
        if column.use == CATEGORY and classes and len(table) >= 5 * column.distinct:
            codes, texts = pd.factorize(table[column.name].map(str.strip))
            pairs = np.unique(codes * (int(labels.max()) + 1) + labels)
            if len(pairs) == len(texts):  # each text has one label
                found.append(column.name)
        elif column.use == NUMBER:
            values = numbers(table[column.name])
            finite = np.isfinite(values)
            if finite.sum() >= LEAST and _separates(values[finite], labels[finite]):
                found.append(column.name)
    return found


def _separates(values: np.ndarray, labels: np.ndarray) -> bool:
    if labels.dtype.kind in "iu":
        order = np.argsort(values, kind="stable")
        changes = np.diff(labels[order]) != 0
        # Nothing separates equal values with different labels.
        mixed = bool((changes & (np.diff(values[order]) == 0)).any())
        return 1 < len(np.unique(labels)) == changes.sum() + 1 and not mixed
    if not values.std() or not labels.std():
        return False
    ranks = pd.Series(values).rank(), pd.Series(labels).rank()
    return bool(abs(np.corrcoef(*ranks)[0, 1]) > 0.9999)


def groups(
    train: pd.DataFrame, test: pd.DataFrame | None, skip: Collection[str]
) -> list[tuple[str, str]]:
    """Return columns whose equal values may be one patient's or one scene's, each with the reason.
    Only a person knows whether they are.

    >>> table = pd.DataFrame({"patient": ["a", "a", "b", "b", "c", "c"]})
    >>> groups(table, None, ())
    [('patient', '3 distinct texts in 6 rows, and its name')]
    """
    found = []
    for name in map(str, train):
        present, _ = _present(train[name])
        distinct, rows = len(present), int(present.sum())
        if name in skip or not 2 < distinct <= rows / REPEATS:
            continue
        apart = False
        if test is not None and name in test and distinct > FEW:
            fractions = (numbers(present.index) % 1 > 0).any()
            apart = not fractions and _apart(present, _present(test[name])[0])
        if apart or GROUPS.search(name):
            sign = "none of them is in the test set" if apart else "its name"
            found.append((name, f"{distinct:,} distinct texts in {rows:,} rows, and {sign}"))
    return found


def leaks_of_ids(ids: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return in which ways ids reveal the label, in words. No model reads ids, but this shows how
    the data were made.

    Args:
        ids: n texts.
        labels: class numbers, int (n,), or numbers, float (n,).
    """
    if len(ids) < LEAST:
        return []
    found = []
    numbers = [re.findall(r"\d+", text) for text in ids]
    if all(numbers):
        order = np.argsort([int(each[-1][-15:]) for each in numbers], kind="stable")
        strength = _runs(labels[order])
        if strength > SIGMAS:
            found.append(
                "in the order of the numbers in the ids, neighbours have similar labels "
                f"({strength:.0f} standard deviations more than by chance)"
            )
    stems = np.unique([re.split(r"\d", text)[0] for text in ids], return_inverse=True)[1]
    if labels.dtype.kind in "iu" and 1 < stems.max() + 1 <= len(ids) / 2:
        random = np.random.default_rng(0)
        right, baseline = _predicted(stems, labels), _predicted(np.zeros_like(stems), labels)
        chance = [_predicted(stems, random.permutation(labels)) for _ in range(SHUFFLES)]
        if right > np.mean(chance) + SIGMAS * np.std(chance) + 0.05:
            found.append(
                f"the beginning of the id predicts the label of {right:.0%} of the rows "
                f"(majority-class baseline: {baseline:.0%})"
            )
    return found


def _predicted(stems: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows with the most frequent label of their stem; both int (n,)."""
    return float(pd.crosstab(stems, labels).max(axis=1).sum() / len(labels))


def _runs(labels: np.ndarray) -> float:
    """Return by how many standard deviations neighbours are more similar than in a random order: by
    the number of equal neighbours of classes, the correlation of neighbours' ranks of numbers.
    """
    if labels.dtype.kind in "iu":
        share = np.unique(labels, return_counts=True)[1] / len(labels)
        chance, pairs = float((share**2).sum()), len(labels) - 1
        if chance >= 1:
            return 0.0
        same = int((labels[1:] == labels[:-1]).sum())
        return float((same - pairs * chance) / np.sqrt(max(pairs * chance * (1 - chance), 1e-9)))
    ranks = pd.Series(labels).rank().to_numpy()
    centred = ranks - ranks.mean()
    power = float((centred**2).sum())
    if not power:
        return 0.0
    return float((centred[1:] * centred[:-1]).sum() / power * np.sqrt(len(labels)))

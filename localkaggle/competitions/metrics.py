"""Metrics: the scores of the local Kaggle, each from its definition. It shares no code with what it
judges.

Each takes the submission's columns and the solution's, {column: {id: value}} with the same columns
and ids, and returns the mean over the columns. A value that is no number where one is needed raises
`ScoringError`.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping

from localkaggle.competitions.competition import Columns, ScoringError


def accuracy(given: Columns, solution: Columns) -> float:
    """Return the share of ids whose label is right. Where all of the solution's are whole numbers,
    so must the submission's be.

    >>> accuracy({"label": {"a": "1", "b": "02"}}, {"label": {"a": "3", "b": "2"}})
    0.5
    >>> accuracy({"kind": {"a": "tree", "b": "Sky"}}, {"kind": {"a": "tree", "b": "sky"}})
    0.5
    """

    def share(column: str) -> float:
        told: Mapping[str, object] = given[column]
        truth: Mapping[str, object] = solution[column]
        if all(_is_whole(label) for label in solution[column].values()):
            told, truth = (
                _numbers(column, table[column], _whole, "a whole number")
                for table in (given, solution)
            )
        return sum(told[name] == label for name, label in truth.items()) / len(truth)

    return _mean(share, solution)


def rmse(given: Columns, solution: Columns) -> float:
    """Return the root of the mean squared error; lower is better.

    >>> rmse({"x": {"a": "1", "b": "5", "c": "0", "d": "7"}}, {"x": {"a": "4", "b": "1", "c": "0", "d": "7"}})
    2.5
    """

    def error(column: str) -> float:
        told, truth = (
            _numbers(column, table[column], _finite, "a finite number")
            for table in (given, solution)
        )
        return math.dist([told[name] for name in truth], list(truth.values())) / math.sqrt(
            len(truth)
        )

    return _mean(error, solution)


def auc(given: Columns, solution: Columns) -> float:
    """Return the area under the ROC curve: how often one of class 1 is given more than one of class
    0; equal values count half.

    >>> auc({"p": {"a": "0.9", "b": "0.4", "c": "0.4"}}, {"p": {"a": "1", "b": "1", "c": "0"}})
    0.75
    """

    def area(column: str) -> float:
        told = _numbers(column, given[column], _finite, "a finite number")
        truth = _numbers(column, solution[column], _whole, "a whole number")
        below = sorted(told[name] for name, label in truth.items() if label == 0)
        above = [told[name] for name, label in truth.items() if label == 1]
        # Left of the first equal value are the lower ones; half of the equal ones is half of the
        # way to the right of the last.
        won = sum(bisect_left(below, value) + bisect_right(below, value) for value in above) / 2
        return won / (len(above) * len(below))

    return _mean(area, solution)


def _mean(of: Callable[[str], float], solution: Columns) -> float:
    return sum(map(of, solution)) / len(solution)


def _numbers(
    column: str, values: Mapping[str, str], read: Callable[[str], float], what: str
) -> dict[str, float]:
    numbers = {}
    for name, value in values.items():
        try:
            numbers[name] = read(value)
        except ValueError:
            raise ScoringError(f"Column {column} must be {what}, found {value!r}") from None
    return numbers


def _whole(text: str) -> int:
    return int(_plain(text))


def _is_whole(text: str) -> bool:
    try:
        _whole(text)
    except ValueError:
        return False
    return True


def _finite(text: str) -> float:
    number = float(_plain(text))
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _plain(text: str) -> str:
    """Return the text, unless only Python takes it for a number: it reads 1_000 as a thousand."""
    if "_" in text:
        raise ValueError(text)
    return text

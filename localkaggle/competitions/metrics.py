"""Metrics: the scores of the local Kaggle, each from its definition, without the judged code.

Each takes the columns of the submission and of the solution, {column: {id: value}} with the same
columns and ids, and returns the mean over the columns. It raises `ScoringError` for a value that is
not the number that it needs.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping

from localkaggle.competitions.competition import Columns, ScoringError


def accuracy(given: Columns, solution: Columns) -> float:
    """Return the share of right labels.

    If all labels of the solution are whole numbers, those of the submission must be, too.

    >>> accuracy({"label": {"a": "1", "b": "02"}}, {"label": {"a": "3", "b": "2"}})
    0.5
    >>> accuracy({"kind": {"a": "tree", "b": "Sky"}}, {"kind": {"a": "tree", "b": "sky"}})
    0.5
    """

    def share(column: str) -> float:
        predicted: Mapping[str, object] = given[column]
        truth: Mapping[str, object] = solution[column]
        if all(_is_whole(label) for label in solution[column].values()):
            predicted, truth = (
                _numbers(column, table[column], _whole, "a whole number")
                for table in (given, solution)
            )
        return sum(predicted[name] == label for name, label in truth.items()) / len(truth)

    return _mean(share, solution)


def rmse(given: Columns, solution: Columns) -> float:
    """Return the root of the mean squared error; lower is better.

    >>> rmse({"x": {"a": "1", "b": "5"}}, {"x": {"a": "8", "b": "4"}})
    5.0
    """

    def error(column: str) -> float:
        predicted, truth = (
            _numbers(column, table[column], _finite, "a finite number")
            for table in (given, solution)
        )
        distance = math.dist([predicted[name] for name in truth], list(truth.values()))
        return distance / math.sqrt(len(truth))

    return _mean(error, solution)


def auc(given: Columns, solution: Columns) -> float:
    """Return the area under the ROC curve.

    That is how often a row of class 1 has a higher value than one of class 0; ties count half.

    >>> auc({"p": {"a": "0.9", "b": "0.4", "c": "0.4"}}, {"p": {"a": "1", "b": "1", "c": "0"}})
    0.75
    """

    def area(column: str) -> float:
        predicted = _numbers(column, given[column], _finite, "a finite number")
        truth = _numbers(column, solution[column], _whole, "a whole number")
        zeros = sorted(predicted[name] for name, label in truth.items() if label == 0)
        ones = [predicted[name] for name, label in truth.items() if label == 1]
        # The mean of both counts the lower values, and half of the equal ones.
        won = sum(bisect_left(zeros, value) + bisect_right(zeros, value) for value in ones) / 2
        return won / (len(ones) * len(zeros))

    return _mean(area, solution)


def _mean(score: Callable[[str], float], solution: Columns) -> float:
    return sum(map(score, solution)) / len(solution)


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
    """Return the text, but refuse 1_000: only Python reads it as a thousand."""
    if "_" in text:
        raise ValueError(text)
    return text

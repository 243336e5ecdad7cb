"""Metrics of the local Kaggle, computed without the code that they judge.

Each takes the columns of the submission and of the solution, {column: {id: value}} with the same
columns and ids, and returns the mean over the columns. It raises `ScoringError` for a value that is
not a number where it needs one.
"""

import math
import re
from contextlib import suppress
from statistics import mean

from localkaggle.competitions.competition import Columns, ScoringError

WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")


def accuracy(given: Columns, solution: Columns) -> float:
    """Return the share of correct labels; 02 and 2 are the same label.

    >>> accuracy({"label": {"a": "1", "b": "02"}}, {"label": {"a": "3", "b": "2"}})
    0.5
    >>> accuracy({"kind": {"a": "tree", "b": "Sky"}}, {"kind": {"a": "tree", "b": "sky"}})
    0.5
    """

    def label(text: str) -> object:
        return int(text) if WHOLE.fullmatch(text) else text

    return mean(
        mean(label(given[column][name]) == label(text) for name, text in labels.items())
        for column, labels in solution.items()
    )


def rmse(given: Columns, solution: Columns) -> float:
    """Return the root mean squared error; lower is better.

    >>> rmse({"x": {"a": "1", "b": "5"}}, {"x": {"a": "8", "b": "4"}})
    5.0
    """
    tables = [_read(column, given, solution) for column in solution]
    return mean(math.dist(predicted, truth) / math.sqrt(len(truth)) for predicted, truth in tables)


def auc(given: Columns, solution: Columns) -> float:
    """Return the area under the ROC curve.

    >>> auc({"p": {"a": "0.9", "b": "0.4", "c": "0.4"}}, {"p": {"a": "1", "b": "1", "c": "0"}})
    0.75
    """
    from sklearn.metrics import roc_auc_score

    tables = [_read(column, given, solution) for column in solution]
    return mean(float(roc_auc_score(truth, predicted)) for predicted, truth in tables)


def _read(column: str, given: Columns, solution: Columns) -> tuple[list[float], list[float]]:
    """Return the numbers of a column, predicted and true, in the order of the solution."""

    def number(text: str) -> float:
        with suppress(ValueError):
            found = float(text)
            if "_" not in text and math.isfinite(found):  # only Python reads 1_000 as a thousand
                return found
        raise ScoringError(f"Column {column} must be a finite number, found {text!r}")

    truth = solution[column]
    return [number(given[column][name]) for name in truth], [*map(number, truth.values())]

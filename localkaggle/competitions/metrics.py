"""The metrics of the local Kaggle, implemented independently of the pipeline that they score.

Each metric accepts a submission and the solution, both as {column: {id: value}} and with the same
columns and ids. It returns the mean over all columns. Metrics that require numbers raise
`ScoringError` if a value is not a number.
"""

import math
import re
from contextlib import suppress
from statistics import mean

from localkaggle.competitions.competition import Columns, ScoringError

WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")


def accuracy(given: Columns, solution: Columns) -> float:
    """Return the fraction of labels that are correct. The labels 02 and 2 are considered equal.

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
    """Return the root mean squared error. Lower is better.

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
    if any(len(set(truth)) < 2 for _, truth in tables):
        raise ScoringError("AUC is undefined for one class")
    return mean(float(roc_auc_score(truth, predicted)) for predicted, truth in tables)


def _read(column: str, given: Columns, solution: Columns) -> tuple[list[float], list[float]]:
    """Return a column's predicted and true values, both in the order of the solution."""

    def number(text: str) -> float:
        with suppress(ValueError):
            found = float(text)
            if "_" not in text and math.isfinite(found):  # Python would accept 1_000
                return found
        raise ScoringError(f"Column {column} must be a finite number, found {text!r}")

    truth = solution[column]
    return [number(given[column][name]) for name in truth], [*map(number, truth.values())]

"""Parse the submission of a rehearsal, so that it can be scored."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.data import labels
from pipeline.data.labels import Target
from pipeline.errors import SubmissionError
from pipeline.evaluate.metrics import Metric
from pipeline.infer import submission

Columns = Mapping[str, Mapping[str, str]]
"""A table without its id column, as {column: {id: value}}. Values are the texts in the file."""


def predictions(
    target: Target,
    metric: Metric,
    texts: Mapping[str, Sequence[str]],
    positive: str | None = None,
) -> np.ndarray:
    """Convert the columns of a submission to predictions for a metric, float64 (n, k).

    A label becomes a probability of 1. The labels in a ranking get decreasing scores.

    Args:
        target: the config's target, with the submission's separator between several labels.
        texts: the values of each column except the id column.
        positive: the config's `data.positive_label`.

    Raises:
        SubmissionError: if a value is not a number, or not a label.

    >>> from pipeline.evaluate import metrics
    >>> target = Target("classes", ("cat", "dog"))
    >>> predictions(target, metrics.find("accuracy", "classes"), {"kind": ["dog"]}).tolist()
    [[0.0, 1.0]]
    >>> predictions(target, metrics.find("auc", "classes"), {"dog": ["0.25"]}).tolist()
    [[0.75, 0.25]]
    """
    names, columns = target.names, list(texts)
    several = target.kind == "multilabel"
    if len(columns) > 1:
        # Match columns by name or in order, like the code that writes the submission.
        order = names if set(columns) == set(names) else columns
        return np.array([_numbers(texts[name], name) for name in order]).T
    column, (name,) = texts[columns[0]], columns
    if target.kind == "regression":
        return _numbers(column, name)[:, None]
    if metric.takes == "scores" and not several:
        place = submission.positive_code(names, name, positive)
        likely = _numbers(column, name)
        return np.stack([likely if code == place else 1 - likely for code in (0, 1)], axis=1)
    found = np.zeros((len(column), len(names)))
    codes = {text: code for code, text in enumerate(names)}
    for row, text in enumerate(column):
        parts = labels.parts(text, target.separator) if several else [text]
        if metric.takes == "ranking":  # separated by spaces, which labels cannot contain
            parts = text.split()
        unknown = [part for part in parts if part not in codes]
        if unknown:
            raise SubmissionError(
                f"{name!r} contains {unknown[0][:80]!r}, which is not a label. The labels include"
                f" {', '.join(names[:12])}.\nCorrect the prediction."
            )
        for place, part in enumerate(parts):
            found[row, codes[part]] = 1 / (1 + place) if metric.takes == "ranking" else 1
    return found


def _numbers(texts: Sequence[str], name: str) -> np.ndarray:
    try:
        numbers = [float(text) for text in texts]
    except ValueError as error:
        raise SubmissionError(
            f"{name!r} contains a value that is not a number: {error}.\nCorrect the prediction."
        ) from error
    if not all(map(math.isfinite, numbers)):
        raise SubmissionError(f"{name!r} contains numbers that are not finite.\nCorrect them.")
    return np.array(numbers)

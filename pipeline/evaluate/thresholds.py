"""Thresholds that decide the labels of averaged predictions (`Config.thresholds`).

    kind         values
    multilabel   a threshold for the probability of each label
    classes      a factor for the probability of each class, before the largest one is chosen
    ordinal      increasing cut points for the mean class, sum(k * p_k)

A score is optimistic if it is computed on the same rows that were used to find the thresholds. For
the nested score, thresholds found on the other parts determine the labels of each part's rows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.data.labels import codes
from pipeline.errors import DataError
from pipeline.evaluate.metrics import Metric, f_beta

Found = Mapping[str, Any]
"""Thresholds: `kind`, `values`, three scores, and `used`.

The scores are `plain` (without thresholds), `optimistic` and `nested`. `used` is true if the nested
score is better than the plain one.
"""
PARTS, SWEEPS = 5, 3  # parts of the rows if there are no folds; passes over all values
# Minimum and maximum number of candidates for a value on each side, and maximum of rows times
# candidates in a pass.
LEAST, MOST, BUDGET = 6, 20, 10**7


def apply(found: Found | None, predictions: np.ndarray) -> np.ndarray:
    """Apply the thresholds, and return the resulting labels as float32 (n, k) of 0 and 1.

    If thresholds are not used, return the predictions unchanged. For multilabel, values below the
    threshold become at most 1/2 instead of 0, because a submission needs the most likely label of
    a row without labels.

    >>> found = {"kind": "classes", "values": (1.0, 4.0), "used": True}
    >>> apply(found, np.array([[0.7, 0.3], [0.9, 0.1]])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if not (found and found["used"]):
        return predictions
    kind, values = found["kind"], np.array(found["values"])
    levels = _levels(kind, predictions)
    if kind == "multilabel":
        return np.where(levels > values, 1, levels / values / 2).astype(np.float32)
    ordinal = kind == "ordinal"
    chosen = (levels > values).sum(axis=1) if ordinal else (levels * values).argmax(axis=1)
    return np.asarray(np.eye(predictions.shape[1])[chosen], np.float32)


def _levels(kind: str, predictions: np.ndarray) -> np.ndarray:
    """Return the numbers to which each threshold or factor applies, float64 (n, values)."""
    levels, every = predictions.astype(np.float64), np.arange(predictions.shape[1])
    return np.outer(levels @ every, np.ones(len(every) - 1)) if kind == "ordinal" else levels


def fit(
    metric: Metric, kind: str, truth: np.ndarray, predictions: np.ndarray, parts: np.ndarray
) -> tuple[Found, np.ndarray]:
    """Return thresholds for all rows, and the predictions to score, float (n, k).

    These predictions are the nested decisions if thresholds are used. Otherwise, they are the given
    predictions.

    Args:
        truth, predictions: see `pipeline.evaluate.metrics`.
        parts: part of each row, int (n,). Rows of a group must be in the same part.

    Raises:
        DataError: if the metric has no value.
    """
    truth = truth if kind == "multilabel" else codes(truth)
    found, nested = search(metric, kind, truth, predictions), np.zeros_like(predictions)
    for part in np.unique(parts):
        here = parts == part
        others = search(metric, kind, truth[~here], predictions[~here])
        nested[here] = apply(others, predictions[here])
    decisions = predictions, apply(found, predictions), nested
    plain, optimistic, honest = (metric(truth, each) for each in decisions)
    used = metric.sign * honest > metric.sign * plain
    scores = {"plain": plain, "optimistic": optimistic, "nested": honest, "used": used}
    return {**found, **scores}, nested if used else predictions


def random_parts(strata: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return random stratified parts, int (n,), which do not divide groups."""
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    order = np.lexsort((np.random.default_rng(seed).permutation(len(first)), strata[first]))
    return (np.argsort(order) % PARTS)[places]


def search(metric: Metric, kind: str, truth: np.ndarray, predictions: np.ndarray) -> Found:
    """Return the thresholds with the best score, changing one value at a time.

    If several values have the same score, the value closest to the default is chosen. A label keeps
    its default if all rows have it, or if no row has it.
    """
    levels, every = _levels(kind, predictions), np.arange(predictions.shape[1])
    of_labels = getattr(metric.score, "func", metric.score) is f_beta
    if kind == "multilabel" and of_labels:
        beta = getattr(metric.score, "keywords", {}).get("beta", 1.0)
        return {"kind": kind, "values": _of_f_beta(truth, levels, beta), "used": True}
    has, defaults = truth > 0.5, np.full(levels.shape[1], 0.5)
    if kind == "classes":
        has, defaults = truth[:, None] == every, 2 * defaults
    elif kind == "ordinal":
        has, defaults = truth[:, None] > every[:-1], every[:-1] + defaults
    # With two classes, only the ratio of the factors matters.
    places = range(kind == "classes" and len(every) == 2, len(defaults))
    most = int(np.clip(BUDGET // (len(truth) * len(places)), LEAST, MOST))

    def found(values: np.ndarray) -> Found:
        return {"kind": kind, "values": values.tolist(), "used": True}

    def rank(values: np.ndarray) -> tuple[float, float]:
        near = -np.abs(np.log(values / defaults)).sum()
        try:
            return metric.sign * metric(truth, apply(found(values), predictions)), near
        except DataError:
            return -np.inf, near

    best = defaults
    for _ in range(SWEEPS if len(places) > 1 else 1):
        before = best
        for place in places:
            if has[:, place].any() and not has[:, place].all():
                column = levels[:, place]
                if kind == "classes":  # a row gets the class if this exceeds 1 / factor
                    others = np.delete(levels * best, place, axis=1).max(axis=1)
                    column = column / np.maximum(others, 1e-30)
                values = _between(column, has[:, place], most)
                tried = np.tile(best, (len(values) + 2, 1))
                tried[1:, place] = defaults[place], *values ** (-1 if kind == "classes" else 1)
                valid = (np.diff(tried) > 0).all(axis=1) | (kind != "ordinal")
                best = max(tried[valid], key=rank)
        if np.array_equal(best, before):
            break
    return found(best)


def _of_f_beta(truth: np.ndarray, levels: np.ndarray, beta: float) -> list[float]:
    """Return each label's threshold with the best F-score, like `search` but in one pass."""
    best = []
    for has, column in zip(truth.T, levels.T, strict=True):
        every, order = np.unique(column), np.argsort(column)
        values = np.array([0.5, *(every[1:] + every[:-1]) / 2])
        values = values[values > 0] if has.any() and not has.all() else values[:1]
        first = np.searchsorted(column[order], values, side="right")  # rows above each value
        hits = has.sum() - np.append(0, np.cumsum(has[order]))[first]
        scores = (1 + beta**2) * hits / np.maximum(beta**2 * has.sum() + len(has) - first, 1)
        tied = values[scores == scores.max()]
        best.append(float(tied[np.abs(np.log(2 * tied)).argmin()]))
    return best


def _between(levels: np.ndarray, has: np.ndarray, most: int) -> np.ndarray:
    """Return positive candidates for a threshold, each halfway between two neighbouring levels.

    A candidate is just below the level of a row with the label, or just above that of a row without
    it. At most `most` rows of each kind are used.
    """
    every, shares = np.unique(levels), np.linspace(0, 1, most)
    below, above = (
        np.searchsorted(every, np.quantile(levels[rows], shares, method="nearest"))
        for rows in (has, ~has)
    )
    middles = (every[1:] + every[:-1]) / 2
    index = np.unique([below - 1, above])
    values = middles[index[(index >= 0) & (index < len(middles))]]
    return np.asarray(values[values > 0])


def line(found: Found, metric: str) -> str:
    end = "" if found["used"] else "; the nested score is not better, so the defaults are used"
    return (
        f"Thresholds: {metric} {found['nested']:.4f} nested, {found['plain']:.4f} with the"
        f" defaults, {found['optimistic']:.4f} on the rows that chose them (optimistic){end}"
    )

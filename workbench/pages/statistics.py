"""Compute metrics from a model's predictions on its validation rows."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm  # type: ignore[import-untyped]
from sklearn.metrics import precision_recall_fscore_support, r2_score

# A normal distribution has 95 % of its mass within this many standard deviations.
Z = float(norm.ppf(0.975))
BINS = 15  # confidence bins, as in Guo et al., 2017
RESAMPLES = 300
# Smaller probabilities are raised to this value, because float32 cannot resolve them near 1, and a
# single row would dominate the mean.
LEAST = 1e-7


@dataclass(frozen=True)
class Estimate:
    """A value with a 95 % interval from `low` to `high`. `how` describes the method."""

    name: str
    value: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Calibration:
    """The accuracy of predictions for different levels of confidence.

    Attributes:
        bins: table of the non-empty bins, with the `low` and `high` edges, the number of `rows`,
            and the mean `confidence` and `accuracy`.
        error: expected calibration error, which is the mean of |accuracy - confidence| over the
            bins, weighted by the number of rows.
    """

    bins: pd.DataFrame
    error: float


def accuracy(right: np.ndarray) -> Estimate:
    """Return the accuracy with its Wilson interval. `right` is bool (n,)."""
    low, high = wilson(int(right.sum()), len(right))
    return Estimate("accuracy", float(right.mean()), low, high, f"Wilson, {len(right):,} rows")


def wilson(right: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion, even if it is near 0 or 1 (Wilson, 1927).

    >>> tuple(round(end, 3) for end in wilson(0, 10))
    (0.0, 0.278)
    """
    found = binomtest(right, rows).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def by_class(truth: np.ndarray, chosen: np.ndarray, number: int) -> pd.DataFrame:
    """Return the `precision`, `recall`, `f1` and `rows` of each class. Undefined values are NaN.

    Args:
        truth: class indices, int (n,), or bool (n, number) if rows can have several labels.
        chosen: predictions, in the same format.
    """
    with np.errstate(invalid="ignore"):
        measures = precision_recall_fscore_support(
            truth, chosen, labels=range(number), zero_division=np.nan
        )
    names = ("precision", "recall", "f1", "rows")
    return pd.DataFrame(dict(zip(names, measures, strict=True)))


def confusions(labels: np.ndarray, predictions: np.ndarray) -> pd.DataFrame:
    """Count how often each label was mistaken for each other label, in descending order."""
    pairs = pd.DataFrame({"label": labels, "prediction": predictions})
    counts = pairs[labels != predictions].value_counts().reset_index(name="times")
    found: pd.DataFrame = counts.sort_values(
        ["times", "label", "prediction"], ascending=[False, True, True], ignore_index=True
    )
    return found


def calibration(confidence: np.ndarray, right: np.ndarray) -> Calibration:
    """Compute the accuracy in confidence bins of equal width (Guo et al., 2017, arXiv 1706.04599).

    Bins include their upper edge. Both arrays have the shape (n,).

    >>> round(calibration(np.array([0.9, 0.9]), np.array([True, False])).error, 3)
    0.4
    """
    ends = np.arange(BINS + 1) / BINS
    places = pd.cut(confidence, ends.tolist(), labels=False, include_lowest=True)
    grouped = pd.DataFrame({"confidence": confidence, "accuracy": right}).groupby(places)
    bins = grouped.mean()
    bins.insert(0, "rows", grouped.size())
    bins.insert(0, "high", ends[bins.index + 1])
    bins.insert(0, "low", ends[bins.index])
    gaps = (bins["confidence"] - bins["accuracy"]).abs()
    return Calibration(bins.reset_index(drop=True), float((gaps * bins["rows"]).sum() / len(right)))


def cross_entropy(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(-np.log(np.maximum(probabilities.astype(np.float64), LEAST)))


def regression(labels: np.ndarray, predictions: np.ndarray) -> tuple[Estimate, dict[str, float]]:
    """Return the root mean squared error and other metrics.

    The interval assumes that the mean squared error is normally distributed, so it is too narrow if
    there are few rows or extreme outliers.

    >>> regression(np.array([1.0, 2.0]), np.array([1.0, 4.0]))[1]
    {'mean absolute error': 1.0, 'bias': 1.0, 'R²': -7.0}
    """
    errors = predictions - labels
    squares, rows = errors**2, len(errors)
    mean = float(squares.mean())
    half = Z * float(squares.std(ddof=1)) / math.sqrt(rows) if rows > 1 else mean
    estimate = Estimate(
        "root mean squared error",
        math.sqrt(mean),
        math.sqrt(max(mean - half, 0.0)),
        math.sqrt(mean + half),
        f"normal approximation of the mean square, {rows:,} rows",
    )
    return estimate, {
        "mean absolute error": float(np.abs(errors).mean()),
        "bias": float(errors.mean()),
        "R²": float(r2_score(labels, predictions)) if labels.var() else math.nan,
    }


def multilabel(truth: np.ndarray, chosen: np.ndarray) -> Estimate:
    """Return the mean F1 score over all labels, bool (n, labels), with a bootstrap interval.

    Labels that occur neither in the truth nor in the predictions are ignored.
    """
    parts = np.stack([truth & chosen, truth, chosen]).astype(np.float64)

    def mean(weights: np.ndarray) -> float:
        both, there, picked = weights @ parts
        used = there + picked > 0
        return float((2 * both[used] / (there + picked)[used]).mean()) if used.any() else math.nan

    random, number = np.random.default_rng(0), len(truth)
    drawn = [
        mean(np.bincount(random.integers(0, number, number), minlength=number).astype(float))
        for _ in range(RESAMPLES)
    ]
    low, high = [math.nan] * 2 if np.isnan(drawn).all() else np.nanpercentile(drawn, [2.5, 97.5])
    how = f"{RESAMPLES} resamples of {number:,} rows"
    return Estimate("mean F1 of the labels", mean(np.ones(number)), float(low), float(high), how)

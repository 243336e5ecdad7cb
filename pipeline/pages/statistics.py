"""Quality: how good a model's validation rows are, in numbers, each with how sure one can be of it.

Reads  arrays: labels, predictions, probabilities
Gives  `Estimate`s with 95 % intervals, tables by class, confusions, calibration, losses
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

Z = 1.959964  # of a normal distribution 95 % lie within so many standard deviations
BINS = 15  # of confidence, as in Guo et al. 2017
RESAMPLES = 300
LEAST = 1e-7  # a probability is taken for at least this: float32 knows no difference below, and one row would outweigh all


@dataclass(frozen=True)
class Estimate:
    """A number, and where it lies with 95 % probability. `how`: in words, what the interval counts."""

    name: str
    value: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Calibration:
    """How often the model is right where it says so.

    Attributes:
        bins: of those that hold rows: `low`, `high` (of the bin), `rows`, `confidence` and
            `accuracy` (means).
        error: expected calibration error: mean of |accuracy - confidence| over the bins, weighted
            by rows.
    """

    bins: pd.DataFrame
    error: float


def accuracy(right: np.ndarray) -> Estimate:
    """Return the share of right answers, bool (n,), with the interval of Wilson (1927), which also
    holds near 0 and 1.

    >>> found = accuracy(np.array([True] * 9 + [False]))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.9, 0.596, 0.982)
    """
    low, high = wilson(int(right.sum()), len(right))
    return Estimate("accuracy", float(right.mean()), low, high, f"Wilson, {len(right):,} rows")


def wilson(right: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, as Wilson (1927) gives it. `rows` is 1 or more.

    >>> tuple(round(end, 3) for end in wilson(0, 10))
    (0.0, 0.278)
    """
    share, more = right / rows, Z**2 / rows
    middle = (share + more / 2) / (1 + more)
    half = Z / (1 + more) * math.sqrt(share * (1 - share) / rows + more / (4 * rows))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def by_class(labels: np.ndarray, predictions: np.ndarray, number: int) -> pd.DataFrame:
    """Return a row for each of `number` classes: `rows`, `precision`, `recall`, `f1`,
    `confused_with` and `times`.

    Args:
        labels, predictions: places of classes, int (n,).

    A share of nothing is NaN. `confused_with`: the class that this one's rows were most often taken
    for, of equals the first; -1: none.

    >>> by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)["confused_with"].tolist()
    [1, -1]
    """
    pairs = confusions(labels, predictions)
    right = np.bincount(labels[labels == predictions], minlength=number)
    rows, taken = np.bincount(labels, minlength=number), np.bincount(predictions, minlength=number)
    first = pairs.drop_duplicates("label").set_index("label")
    return pd.DataFrame({**_shares(right, taken, rows)}).assign(
        confused_with=first["prediction"].reindex(range(number), fill_value=-1).to_numpy(),
        times=first["times"].reindex(range(number), fill_value=0).to_numpy(),
    )


def confusions(labels: np.ndarray, predictions: np.ndarray) -> pd.DataFrame:
    """Return which class was taken for which other, and how many `times`, the most often first:
    `label`, `prediction`, `times`.
    """
    wrong = labels != predictions
    pairs, times = np.unique(
        np.stack([labels[wrong], predictions[wrong]], axis=1), axis=0, return_counts=True
    )
    found = pd.DataFrame({"label": pairs[:, 0], "prediction": pairs[:, 1], "times": times})
    return found.sort_values(
        ["times", "label", "prediction"], ascending=[False, True, True], ignore_index=True
    )


def matrix(labels: np.ndarray, predictions: np.ndarray, number: int) -> np.ndarray:
    """Return how often each class (row) was taken for each (column): int64 (number, number)."""
    return np.bincount(labels * number + predictions, minlength=number**2).reshape(number, number)


def calibration(confidence: np.ndarray, right: np.ndarray) -> Calibration:
    """Return how often rows are right by the confidence, in bins of equal width; Guo et al., 2017,
    arXiv 1706.04599.

    Args:
        confidence: float (n,), from 0 to 1. right: bool (n,).

    >>> round(calibration(np.array([0.9, 0.9]), np.array([True, False])).error, 3)
    0.4
    """
    places = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1).astype(
        int
    )  # a bin holds its upper end
    rows = np.bincount(places, minlength=BINS)
    held = np.flatnonzero(rows)
    sums = [np.bincount(places, values, BINS)[held] / rows[held] for values in (confidence, right)]
    bins = pd.DataFrame(
        {
            "low": held / BINS,
            "high": (held + 1) / BINS,
            "rows": rows[held],
            "confidence": sums[0],
            "accuracy": sums[1],
        }
    )
    return Calibration(bins, float((np.abs(sums[0] - sums[1]) * rows[held]).sum() / rows.sum()))


def losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return -log of the probability that each row's label got: float64 (n,).

    Args:
        labels: places of classes, int (n,). probabilities: float (n, classes).
    """
    given = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return np.asarray(-np.log(np.maximum(given, LEAST)))


def least_losses(right: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return what each row's loss is at least, where only the probability of the predicted class is
    known: float64 (n,).
    """
    given = np.where(right, confidence, 1 - confidence)
    return np.asarray(-np.log(np.maximum(given, LEAST)))


def binary_losses(truth: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return each row's cross-entropy, summed over its labels: float64 (n,).

    Args:
        truth: bool (n, labels). probabilities: float (n, labels).
    """
    given = np.where(truth, probabilities, 1 - probabilities)
    return np.asarray(-np.log(np.maximum(given, LEAST)).sum(axis=1))


def regression(labels: np.ndarray, predictions: np.ndarray) -> tuple[Estimate, dict[str, float]]:
    """Return the root of the mean squared error, and other measures: mean absolute error, bias and
    R².

    The interval is that of a mean of many squares, which is about normal; of few rows, or with far
    outliers, it is too narrow.

    >>> regression(np.array([1.0, 2.0]), np.array([1.0, 4.0]))[1]
    {'mean absolute error': 1.0, 'bias': 1.0, 'R²': -7.0}
    """
    errors = predictions - labels
    squares = errors**2
    mean = float(squares.mean())
    half = Z * float(squares.std(ddof=1)) / math.sqrt(len(squares)) if len(squares) > 1 else mean
    spread = float(((labels - labels.mean()) ** 2).mean())
    how = f"normal approximation of the mean square, {len(labels):,} rows"
    ends = math.sqrt(max(mean - half, 0.0)), math.sqrt(mean + half)
    more = {"mean absolute error": float(np.abs(errors).mean()), "bias": float(errors.mean())}
    return Estimate("root mean squared error", math.sqrt(mean), *ends, how), {
        **more,
        "R²": 1 - mean / spread if spread else float("nan"),
    }


def by_label(truth: np.ndarray, chosen: np.ndarray) -> pd.DataFrame:
    """Return a row for each label: `rows` that have it, `precision`, `recall` and `f1`; bool (n,
    labels) both.
    """
    return pd.DataFrame(
        _shares((truth & chosen).sum(axis=0), chosen.sum(axis=0), truth.sum(axis=0))
    )


def multilabel(truth: np.ndarray, chosen: np.ndarray) -> Estimate:
    """Return the mean of the labels' F1, a label that neither is nor is chosen left out, with an
    interval from resampled rows.

    Args:
        truth, chosen: bool (n, labels).
    """
    parts = np.concatenate([truth & chosen, chosen, truth], axis=1).astype(np.float64)

    def mean(weights: np.ndarray) -> float:
        right, taken, rows = np.split(weights @ parts, 3)
        there = rows + taken > 0
        return (
            float((2 * right[there] / (rows + taken)[there]).mean())
            if there.any()
            else float("nan")
        )

    random, number = np.random.default_rng(0), len(truth)
    drawn = [
        mean(np.bincount(random.integers(0, number, number), minlength=number).astype(float))
        for _ in range(RESAMPLES)
    ]
    low, high = (
        np.nanpercentile(drawn, [2.5, 97.5]) if not np.isnan(drawn).all() else (np.nan, np.nan)
    )
    how = f"{RESAMPLES} resamples of {number:,} rows"
    return Estimate("mean F1 of the labels", mean(np.ones(number)), float(low), float(high), how)


def _shares(
    right: np.ndarray, taken: np.ndarray, rows: np.ndarray
) -> dict[str, Sequence[float] | np.ndarray]:
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 of 0 is NaN, and meant
        return {
            "rows": rows,
            "precision": right / taken,
            "recall": right / rows,
            "f1": 2 * right / (taken + rows),
        }

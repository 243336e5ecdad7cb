"""The metrics of competitions, by the names that a config uses.

Every metric is called as `metric(truth, predicted)`, with n rows, and itself does argmax,
threshold, ranking and clipping:

    target        truth                                        predicted
    classes       int (n,), from 0 to k - 1                    probabilities, float (n, k)
    ordinal       the same, with classes in rising order       the same
    multilabel    0 or 1, (n, k)                               probabilities, float (n, k)
    regression    numbers, float (n, k)                        numbers, float (n, k)

A value that does not exist is an error, never NaN: auc and qwk need two classes in the truth, r2 a
column that varies. Of several columns (labels, or classes one against the rest) those without a
value are left out, and the others are averaged.

To add a metric, write one function of (truth, predicted) that gives a float, or NaN where there is
no value, and name it in `METRICS`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.errors import ConfigError, DataError

# The usual metric of each kind of target.
DEFAULTS = {"classes": "accuracy", "ordinal": "qwk", "multilabel": "auc", "regression": "rmse"}
CLASSES = frozenset({"classes", "ordinal"})
LABELS = CLASSES | {"multilabel"}
NUMBERS = frozenset({"regression"})
OWN = frozenset({"own"})  # labels and outputs of any shape, given to the metric as they are
# What stands for a number in a name: its regular expression, its type, and its description.
PARAMETERS: dict[str, tuple[str, Callable[[str], float], str]] = {
    "<k>": (r"[1-9][0-9]{0,5}", int, "a whole number from 1 to 999999"),
    "<beta>": (r"(?=.*[1-9])[0-9]{1,3}(\.[0-9]{1,6})?", float, "a number above 0 and below 1000"),
}
MOST_RESAMPLES, LEAST_RESAMPLES, RESAMPLED_VALUES = 1000, 100, 10**7


@dataclass(frozen=True)
class Metric:
    """A way to score predictions.

    Attributes:
        name: as in a config; in `METRICS`, `<k>` or `<beta>` at its end stands for a number, which
            `score` gets as k or beta.
        score: a function of truth, as above, and of what `takes` says.
        greater_is_better: False if the best value is the lowest.
        takes: what `score` gets, and a submission holds. "classes": hard labels, int (n,), the
            first of the most probable classes, or of several labels int (n, k), 1 above 0.5.
            "ranking": int (n, k), the classes by falling probability, of equal ones the first
            class first; a submission holds the first k. "scores": float64 (n, k), the probabilities
            or numbers as given.
        targets: the kinds of target that it suits.
    """

    name: str
    score: Callable[..., float]
    greater_is_better: bool
    takes: str
    targets: frozenset[str]

    @property
    def sign(self) -> int:
        """1 if greater is better, else -1."""
        return 1 if self.greater_is_better else -1

    def __call__(self, truth: np.ndarray, predicted: np.ndarray) -> float:
        """Return the value of the predictions, a finite float.

        Raises:
            DataError: if truth or predictions have another form than above, or are not finite, or
                the metric has no value for these rows.

        >>> find("map@2", "classes")(np.array([2, 0]), np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]))
        0.75
        """
        value = self.score(*_prepared(self, truth, predicted))
        if not math.isfinite(value):
            raise DataError(
                f"{self.name} has no value for these {len(truth)} rows: it came out as {value}.\n"
                "Expected a truth that varies (two classes, or a column that is not constant), "
                "and numbers whose squares are finite.\n"
                "Validate on more rows, or set metric in the config to one that is defined here."
            )
        return float(value)


def find(name: str, target: str) -> Metric:
    """Return the metric of that name, for a target of that kind.

    Raises:
        ConfigError: if there is none, its number cannot work, or it does not suit the target.

    >>> find("f_beta:2", "multilabel").greater_is_better
    True
    """
    default(target)
    shown = repr(name)[:200]
    suited = ", ".join(metric.name for metric in METRICS.values() if target in metric.targets)
    parts = [(metric, *metric.name.partition("<")) for metric in METRICS.values()]
    for metric, stem, opened, rest in parts:
        if name != stem and not (opened and str(name).startswith(stem)):
            continue
        if target not in metric.targets:
            raise ConfigError(
                f"metric={shown} cannot work with target={target!r}: expected one of {suited}.\n"
                f"Set metric to one of these, or target to one of"
                f" {', '.join(sorted(metric.targets))}."
            )
        if not opened:
            return metric
        form, kind, meaning = PARAMETERS[opened + rest]
        number = name.removeprefix(stem)
        if not re.fullmatch(form, number):
            raise ConfigError(
                f"metric={shown} cannot work: expected {metric.name}, where {opened + rest} is"
                f' {meaning}.\nSet metric in the config to a name such as "{stem}2".'
            )
        score: Any = partial(metric.score, **{rest.strip(">"): kind(number)})
        return replace(metric, name=name, score=score)
    raise ConfigError(
        f"metric={shown} cannot work: expected one of {suited}.\n"
        "Correct it, or write the function into the config's own file (docs/own-code.md)."
    )


def default(target: str) -> str:
    """Return the name of the usual metric for a target of that kind.

    Raises:
        ConfigError: if there is no such kind.

    >>> default("ordinal")
    'qwk'
    """
    if target not in DEFAULTS:
        raise ConfigError(
            f"target={target!r} cannot work: expected one of {', '.join(DEFAULTS)}.\n"
            "Correct it in the config."
        )
    return DEFAULTS[target]


def interval(
    metric: Metric, truth: np.ndarray, predicted: np.ndarray, seed: int
) -> tuple[float, float]:
    """Return a 95 % interval of the metric's value: percentiles of Efron's bootstrap (1979).

    The interval says how much other rows of the same kind would change the value, not how much
    another training would. Its arguments and errors are those of `resampled`.
    """
    low, high = np.percentile(resampled(metric, truth, predicted, seed), [2.5, 97.5])
    return float(low), float(high)


def standard_error(metric: Metric, truth: np.ndarray, predicted: np.ndarray, seed: int) -> float:
    """Return the standard deviation of the metric's value over resamples of the rows.

    Its arguments and errors are those of `resampled`.

    >>> coin = np.arange(400) % 2
    >>> found = standard_error(find("accuracy", "classes"), coin, np.eye(2)[coin * 0], 0)
    >>> 0.02 < found < 0.03  # the square root of 0.5 x 0.5 / 400 is 0.025
    True
    """
    return float(np.std(resampled(metric, truth, predicted, seed)))


def resampled(metric: Metric, truth: np.ndarray, predicted: np.ndarray, seed: int) -> list[float]:
    """Return the metric's value on resamples of the rows, drawn with replacement.

    There are 1000 resamples, fewer (to 100) for more than 10,000 values; those for which the metric
    has no value are skipped.

    Args:
        metric: the metric.
        truth, predicted: as the metric takes them.
        seed: of the resamples.

    Raises:
        DataError: as the metric itself does.
    """
    metric(truth, predicted)
    truth, predicted = _prepared(metric, truth, predicted)
    random = np.random.default_rng(seed)
    values = []
    for _ in range(min(max(RESAMPLED_VALUES // predicted.size, LEAST_RESAMPLES), MOST_RESAMPLES)):
        rows = random.integers(len(truth), size=len(truth))
        values.append(metric.score(truth[rows], predicted[rows]))
    values = [value for value in values if math.isfinite(value)]
    if not values:
        raise DataError(
            f"{metric.name} has no value for any resample of these {len(truth)} rows; "
            "expected one for most.\n"
            "Validate on more rows, or set metric in the config to one that is defined more often."
        )
    return values


def _prepared(
    metric: Metric, truth: np.ndarray, predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both as `metric.score` takes them; refuse other forms."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    _refuse_shapes(metric, truth, predicted)
    bad = np.flatnonzero(~np.isfinite(predicted).all(axis=tuple(range(1, predicted.ndim))))
    if len(bad):
        raise DataError(
            f"{len(bad)} of {len(truth)} rows of the predictions are not finite, "
            f"the first of them row {bad[0]}; {metric.name} expects numbers.\n"
            "Look at the run that made them. If its training diverged, "
            "lower optimizer.base_rate in the config."
        )
    if metric.targets == OWN:
        return truth, predicted
    one_label, numbers = truth.ndim == 1, bool(metric.targets & NUMBERS)
    if one_label:
        classes = predicted.shape[1]
        expected = f"whole numbers from 0 to {classes - 1}"
        good = truth.dtype.kind in "iu" and truth.min() >= 0 and truth.max() < classes
    elif numbers:
        expected, good = "finite numbers", np.isfinite(truth).all()
    else:
        expected, good = "0 or 1", np.isin(truth, (0, 1)).all()
    if not good:
        raise DataError(
            f"The truth has values (of {truth.dtype}, from {truth.min()} to {truth.max()}) "
            f"that {metric.name} does not take; expected {expected}.\n"
            "Correct the labels, or target in the config."
        )
    truth = truth.astype(np.float64 if numbers and not one_label else np.int64)
    predicted = predicted.astype(np.float64)
    if metric.takes == "classes":
        predicted = predicted.argmax(axis=1) if one_label else (predicted > 0.5).astype(np.int64)
    elif metric.takes == "ranking":
        predicted = np.argsort(-predicted, axis=1, kind="stable")
    return truth, predicted


def _refuse_shapes(metric: Metric, truth: np.ndarray, predicted: np.ndarray) -> None:
    """Raise `DataError` unless there are as many predictions as the metric takes."""
    columns = predicted.shape[1] if predicted.ndim == 2 else 0
    if metric.targets == OWN:
        fits = len(truth) == len(predicted)
    elif truth.ndim == 1:
        fits = bool(metric.targets & CLASSES) and columns > 1 and len(truth) == len(predicted)
    else:
        fits = bool(metric.targets - CLASSES) and columns > 0 and truth.shape == predicted.shape
    if not (fits and len(truth)):
        raise DataError(
            f"{metric.name} was given truth of the shape {truth.shape} and predictions of the shape"
            f" {predicted.shape}.\nExpected at least one row, and one row of predictions for each:"
            " truth (n,) with probabilities (n, k), k of 2 or more; for labels or numbers (n, k)"
            " for both."
        )


def sklearn(name: str, truth: np.ndarray, predicted: np.ndarray, **options: Any) -> float:
    """Return the value of a function of sklearn.metrics; the first call imports scikit-learn."""
    from sklearn import metrics

    return float(getattr(metrics, name)(truth, predicted, **options))


def balanced_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of each class's share of right rows, over the classes in the truth."""
    # scikit-learn's own balanced_accuracy_score warns of a class that is predicted and never true.
    return sklearn("recall_score", truth, predicted, labels=np.unique(truth), average="macro")


def f_beta(truth: np.ndarray, predicted: np.ndarray, beta: float = 1.0) -> float:
    """Return the mean F-score over the classes or labels.

    Recall counts beta times as much as precision. Of two classes it is the mean, too; some
    competitions take the second class alone. A class or label that is neither true nor predicted in
    any row is left out; NaN if all are.
    """
    # With "macro", scikit-learn takes the 0 and 1 of a single column for two classes.
    average = "binary" if truth.shape[1:] == (1,) else "macro"
    options = {"beta": beta, "average": average, "zero_division": np.nan}
    return sklearn("fbeta_score", truth, predicted, **options)


def qwk(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the quadratic weighted kappa (Cohen, 1968), from -1 to 1; NaN of one class.

    1 is agreement, and 0 is what chance gives.
    """
    if truth.min() == truth.max():
        return math.nan
    # Without `labels`, a class that does not occur would not count in the distance of two others.
    every = np.arange(max(truth.max(), predicted.max()) + 1)
    return sklearn("cohen_kappa_score", truth, predicted, labels=every, weights="quadratic")


def auc(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the area under the ROC curve.

    Of two classes it is that of the second; of more classes, or of labels, the mean over columns.
    A column of the truth that is all 0 or all 1 has no area and is left out; NaN if all are.
    """
    if truth.ndim == 1:
        truth = truth[:, None] == np.arange(predicted.shape[1])
        if predicted.shape[1] == 2:
            truth, predicted = truth[:, 1:], predicted[:, 1:]
    areas = []
    for column, scores in zip(truth.T == 1, predicted.T, strict=True):
        below, above = np.sort(scores[~column]), scores[column]
        if len(below) and len(above):
            # The share of pairs in which the 1 is above the 0; equal ones count half. That is what
            # scikit-learn's roc_auc_score gives, which takes 65 times as long for 1000 columns of
            # 5000 rows: minutes for an interval.
            pairs = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
            areas.append(pairs.mean() / (2 * len(below)))
    return float(np.mean(areas)) if areas else math.nan


def log_loss(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean negative logarithm of the true class's probability; of labels, over columns.

    Each row of classes is divided by its sum. Then probabilities are clipped to 2.2e-16 from 0 and
    1, so the worst value of a row is 36.04. A prediction up to 1.001 is a rounding error.

    Raises:
        DataError: if a prediction is no probability, or all of a row are 0.
    """
    totals = predicted.sum(axis=1, keepdims=True)
    if predicted.min() < 0 or predicted.max() > 1.001 or (truth.ndim == 1 and totals.min() == 0):
        raise DataError(
            f"log_loss was given predictions from {predicted.min():.6g} to {predicted.max():.6g}, "
            f"with row sums from {totals.min():.6g}; expected probabilities.\n"
            "Give what a softmax or a sigmoid returns."
        )
    if truth.ndim == 1:
        every = np.arange(predicted.shape[1])
        return sklearn("log_loss", truth, predicted / totals, labels=every)
    return sklearn("log_loss", truth.ravel(), np.minimum(predicted, 1).ravel(), labels=[0, 1])


def average_precision_at(truth: np.ndarray, ranking: np.ndarray, k: int) -> float:
    """Return the mean of 1 / place of the true class, or 0 where that is not among the first k."""
    hits = ranking[:, :k] == truth[:, None]
    return float((hits / np.arange(1, hits.shape[1] + 1)).sum(axis=1).mean())


def rmsle(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the rmse of log(1 + value); a negative prediction counts as 0, as competitors clip it.

    Raises:
        DataError: if the truth is negative anywhere.
    """
    if truth.min() < 0:
        raise DataError(
            f"rmsle was given a truth of {truth.min():.6g}; "
            "expected 0 or more, since it takes logarithms.\n"
            'Set metric="rmse" in the config, or correct the labels.'
        )
    return sklearn("root_mean_squared_log_error", truth, np.maximum(predicted, 0))


def r2(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean share of explained variance, over the columns whose truth varies.

    NaN if none does.
    """
    varied = truth.min(axis=0) < truth.max(axis=0)
    return sklearn("r2_score", truth[:, varied], predicted[:, varied]) if varied.any() else math.nan


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        # name, function, greater is better, what it takes, targets. Accuracy of several labels
        # counts a row as right if all its columns are; the error of several columns is their mean.
        Metric("accuracy", partial(sklearn, "accuracy_score"), True, "classes", LABELS),
        Metric("balanced_accuracy", balanced_accuracy, True, "classes", CLASSES),
        Metric("f1", f_beta, True, "classes", LABELS),
        Metric("f_beta:<beta>", f_beta, True, "classes", LABELS),
        Metric("qwk", qwk, True, "classes", CLASSES),
        Metric("auc", auc, True, "scores", LABELS),
        Metric("log_loss", log_loss, False, "scores", LABELS),
        Metric("map@<k>", average_precision_at, True, "ranking", CLASSES),
        Metric("rmse", partial(sklearn, "root_mean_squared_error"), False, "scores", NUMBERS),
        Metric("rmsle", rmsle, False, "scores", NUMBERS),
        Metric("mae", partial(sklearn, "mean_absolute_error"), False, "scores", NUMBERS),
        Metric("r2", r2, True, "scores", NUMBERS),
    )
}

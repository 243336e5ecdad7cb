"""Competition metrics, which a config selects by name.

Every metric is called as `metric(truth, predicted)`, and applies argmax, thresholds, ranking and
clipping itself:

    target        truth                                        predicted
    classes       int (n,), from 0 to k - 1                    probabilities, float (n, k)
                  soft labels: probabilities, float (n, k)
    ordinal       the same, with classes in increasing order   the same
    multilabel    0 or 1, (n, k)                               probabilities, float (n, k)
    regression    numbers, float (n, k)                        numbers, float (n, k)

kl_divergence, log_loss and a custom metric of probabilities compare soft labels with the
predictions. All other metrics receive the most probable class, or the first if tied. With several
columns (labels, or one-vs-rest classes), a metric is averaged over the columns for which it is
defined.

The name of a custom metric's second parameter selects what it receives: labels, probabilities or
numbers. The truth itself is scored to find out whether greater is better. With target="custom", the
metric must declare this.
"""

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.config import Config, custom_code, rules
from pipeline.errors import ConfigError, DataError

# Default metric for each kind of target.
DEFAULTS = {"classes": "accuracy", "ordinal": "qwk", "multilabel": "auc", "regression": "rmse"}
CLASSES = frozenset({"classes", "ordinal"})
LABELS = CLASSES | {"multilabel"}
NUMBERS = frozenset({"regression"})
OWN = frozenset({"custom"})  # labels and outputs of any shape, which the metric receives unchanged
# Metrics whose names contain a number, with a pattern and the parameter of `score` for it.
PARAMETERS: dict[str, tuple[str, str, Callable[[str], float]]] = {
    "f_beta:<beta>": (r"f_beta:([0-9]{1,3}(?:\.[0-9]{1,6})?)", "beta", float),
    "map@<k>": (r"map@([1-9][0-9]{0,5})", "k", int),
}
# Valid names for the second parameter of a custom metric, and the corresponding `Metric.takes`.
TAKES = {"labels": "classes", "probabilities": "scores", "numbers": "scores"}
# Measured in every epoch, in addition to the competition's metric.
MEASURES = {"accuracy", "loss", "absolute_error", "mean_output"}
SURE = 1e-3  # distance of generated probabilities from 0 and 1, so that logarithms are finite
MOST_RESAMPLES, LEAST_RESAMPLES, RESAMPLED_VALUES = 1000, 100, 10**7


@dataclass(frozen=True)
class Metric:
    """A metric to score predictions.

    Attributes:
        name: name in a config. In `METRICS`, a final `<k>` or `<beta>` is a placeholder for a
            number that is passed to `score` as k or beta.
        takes: form of the predictions in `score` and in a submission. "classes" means the most
            probable class (the first if tied), int (n,). For several labels, it means 1
            where the probability is above 0.5 and 0 elsewhere, int (n, k). "ranking" means the
            classes in order of decreasing probability, int (n, k), where ties keep their order. A
            submission contains the first k of these. "scores" means probabilities or numbers,
            float64 (n, k).
        targets: kinds of target that the metric supports. In the result of `find`, only the
            requested one remains.
        soft: whether `score` receives soft labels instead of the most probable class.
    """

    name: str
    score: Callable[..., float]
    greater_is_better: bool
    takes: str
    targets: frozenset[str]
    soft: bool = False

    @property
    def sign(self) -> int:
        return 1 if self.greater_is_better else -1

    def __call__(self, truth: np.ndarray, predicted: np.ndarray) -> float:
        """Score predictions, and return the score as a finite float.

        Raises:
            DataError: if the metric has no value for these rows.

        >>> find("map@2", "classes")(np.array([2, 0]), np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]))
        0.75
        """
        try:
            value = float(self.score(*self.arguments(truth, predicted)))
            if not math.isfinite(value):
                raise ValueError(f"the result is {value}")
        except ValueError as error:  # also from scikit-learn
            raise DataError(
                f"{self.name} has no value for these {len(truth)} rows: {error}.\n"
                "Expected finite predictions (probabilities or numbers), and true values that "
                "vary: at least two classes, or a column that is not constant.\n"
                "Validate on more rows, or set another metric in the config."
            ) from error
        return value

    def arguments(self, truth: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert the truth and the predictions to the arguments that `score` accepts."""
        if not np.isfinite(predicted).all():
            raise ValueError("not all predictions are finite")
        if self.targets == OWN:
            return truth, predicted
        soft = truth.ndim > 1 and self.targets <= CLASSES
        if soft and not self.soft:
            truth, soft = truth.argmax(axis=1), False
        one_label, numbers = truth.ndim == 1, bool(self.targets & NUMBERS)
        truth = truth.astype(np.float64 if soft or (numbers and not one_label) else np.int64)
        predicted = predicted.astype(np.float64)
        if self.takes == "ranking":
            predicted = np.argsort(-predicted, axis=1, kind="stable")
        elif self.takes == "classes":
            predicted = predicted.argmax(axis=1) if one_label else (predicted > 0.5).astype(int)
        return truth, predicted


def of(config: Config, name: str = "") -> Metric:
    """Return the config's metric, or the metric with the given name.

    Raises:
        ConfigError: if the metric does not exist or is invalid.
    """
    name = name or config.metric or DEFAULTS.get(config.target, "")
    custom = custom_code.function(config, "metric") if name == config.metric else None
    metric = find(name, config.target) if custom is None else _custom(custom, config)
    if config.thresholds and metric.takes != "classes":
        expected = f"False with metric={name!r}, because it does not score labels"
        raise rules.refusal("thresholds", True, expected)
    return metric


def find(name: str, target: str) -> Metric:
    """Return the metric with the given name for a kind of target.

    Raises:
        ConfigError: if the metric does not exist, or does not support this target.

    >>> find("f_beta:2", "multilabel").greater_is_better
    True
    """
    metric = None if name in PARAMETERS else METRICS.get(name)
    for form, (pattern, parameter, number) in PARAMETERS.items():
        if found := re.fullmatch(pattern, name):
            score = partial(METRICS[form].score, **{parameter: number(found[1])})
            metric = replace(METRICS[form], name=name, score=score)
    if metric is None or target not in metric.targets:
        suited = ", ".join(each.name for each in METRICS.values() if target in each.targets)
        raise ConfigError(
            f"metric={name[:200]!r} is invalid for target={target!r}: expected one of {suited},"
            " with a number instead of <beta> and a positive integer instead of <k>, as in map@5.\n"
            "Correct it, or write the function in the config's file (docs/custom-code.md)."
        )
    return replace(metric, targets=frozenset({target}))


def _custom(score: Callable[..., float], config: Config) -> Metric:
    described = custom_code.described(config, "metric")
    parameters = inspect.signature(score).parameters
    second = [*parameters, "", ""][1]
    greater = getattr(parameters.get("greater_is_better"), "default", None)
    good = second in TAKES
    if config.target == "custom":  # the best outputs are unknown
        good = second == "numbers" and isinstance(greater, bool)
    if not good or config.metric in MEASURES:
        gets = "labels" if config.target in CLASSES else "numbers"
        raise ConfigError(
            f"{described} has the parameters ({', '.join(parameters)}); expected (truth, labels),"
            " (truth, probabilities) or (truth, numbers), or with target='custom', (truth, numbers,"
            f" greater_is_better=True or False). The metric must not be called"
            f" {', '.join(sorted(MEASURES))}.\n"
            "Name the second parameter after what it receives. To use a function of a package, wrap"
            f" it as def my_{config.metric}(truth, {gets}): return {config.metric}(truth, {gets}),"
            f" and set metric='my_{config.metric}'."
        )

    def scored(truth: np.ndarray, predicted: np.ndarray) -> float:
        with custom_code.telling(config, "metric"):
            return float(score(truth, predicted))

    targets = CLASSES if config.target in CLASSES else frozenset(DEFAULTS)
    metric = Metric(config.metric, scored, True, TAKES[second], targets, second != "labels")
    if config.target == "custom":
        return replace(metric, greater_is_better=bool(greater), targets=OWN)
    truth, other = _made_up(config)
    right, wrong = (metric(truth, best(config, each)) for each in (truth, other))
    if right == wrong:
        raise ConfigError(
            f"{described} returned {right:g} for the truth and {wrong:g} for the worst predictions;"
            " expected different values.\nChange the function so that it compares the truth with"
            " the predictions."
        )
    return replace(metric, greater_is_better=right > wrong)


def _made_up(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return generated labels for at least 16 rows, and labels that are wrong in every row."""
    if config.target in CLASSES:
        width = config.classes
        codes = np.arange(2 * max(width, 8))
        both = codes % width, (codes + 1) % width
        return (np.eye(width)[both[0]], np.eye(width)[both[1]]) if config.soft else both
    rows = 2 * max(config.num_classes, 8)
    numbers = np.add.outer(np.arange(rows), np.arange(max(config.outputs, 1))).astype(np.float64)
    if config.target == "multilabel":
        return numbers % 2, 1 - numbers % 2
    return numbers + 1, 3 * numbers[::-1] + 5


def best(config: Config, truth: np.ndarray) -> np.ndarray:
    """Return the best possible predictions for this truth."""
    if config.target in CLASSES:
        likely = truth if truth.ndim > 1 else np.eye(config.classes)[truth]
        return np.asarray(likely * (1 - SURE) + SURE / config.classes)
    return truth.clip(SURE, 1 - SURE) if config.target == "multilabel" else truth


def standard_error(
    metric: Metric,
    truth: np.ndarray,
    predicted: np.ndarray,
    seed: int,
    most: int = MOST_RESAMPLES,
    other: np.ndarray | None = None,
) -> float:
    """Return the bootstrap standard error of the metric's value (Efron, 1979).

    If `other`, a second set of predictions for the same rows, is given, return the standard error
    of the difference between the two values. The number of resamples is `most`. For more than
    10,000 values, it is smaller, but at least 100. Resamples for which the metric is undefined are
    skipped.

    >>> coin = np.arange(400) % 2
    >>> found = standard_error(find("accuracy", "classes"), coin, np.eye(2)[coin * 0], 0)
    >>> 0.02 < found < 0.03  # the square root of 0.5 x 0.5 / 400 is 0.025
    True
    """
    whole, others = metric(truth, predicted), [] if other is None else [other]
    others = [metric.arguments(truth, each)[1] for each in others]
    truth, predicted = metric.arguments(truth, predicted)
    random, rows = np.random.default_rng(seed), len(truth)
    count = min(max(RESAMPLED_VALUES // predicted.size, LEAST_RESAMPLES), most)
    values = []
    for _ in range(count):
        draw = random.integers(rows, size=rows)
        below = sum(metric.score(truth[draw], each[draw]) for each in others)
        values.append(metric.score(truth[draw], predicted[draw]) - below)
    return float(np.std([value for value in values if math.isfinite(value)] or [whole]))


def sklearn(name: str, truth: np.ndarray, predicted: np.ndarray, **options: Any) -> float:
    from sklearn import metrics

    return float(getattr(metrics, name)(truth, predicted, **options))


def balanced_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    # balanced_accuracy_score would warn about classes that are predicted but not in the truth.
    return sklearn("recall_score", truth, predicted, labels=np.unique(truth), average="macro")


def f_beta(truth: np.ndarray, predicted: np.ndarray, beta: float = 1.0) -> float:
    """Return the mean F-score over classes or labels.

    Recall is weighted beta times as much as precision. For two classes, the mean is used as well,
    although some competitions only score the second class. A class or label that is neither true
    nor predicted in any row is skipped. If all of them are skipped, the result is NaN.
    """
    # With "macro", scikit-learn treats the 0 and 1 of a single column as two classes.
    average = "binary" if truth.shape[1:] == (1,) else "macro"
    options = {"beta": beta, "average": average, "zero_division": np.nan}
    return sklearn("fbeta_score", truth, predicted, **options)


def qwk(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the quadratic weighted kappa (Cohen, 1968).

    It is 1 for perfect agreement, 0 for chance, and NaN for a single class.
    """
    if truth.min() == truth.max():
        return math.nan
    # `labels` is required, because absent classes affect the distance between two others.
    every = np.arange(max(truth.max(), predicted.max()) + 1)
    return sklearn("cohen_kappa_score", truth, predicted, labels=every, weights="quadratic")


def auc(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the area under the ROC curve.

    For two classes, it is computed for the second class. For more classes, or for labels, it is the
    mean over all columns whose truth contains both 0 and 1. If there are none, it is NaN.
    """
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    if truth.ndim == 1:
        truth = truth[:, None] == np.arange(predicted.shape[1])
        if predicted.shape[1] == 2:
            truth, predicted = truth[:, 1:], predicted[:, 1:]
    # The fraction of pairs in which the 1 is ranked above the 0, where ties count half (Mann and
    # Whitney, 1947). sklearn's roc_auc_score takes 65 times as long for 1000 columns of 5000 rows.
    ones = truth.sum(axis=0)
    pairs = ones * (len(truth) - ones)
    above = (rankdata(predicted, axis=0) * truth).sum(axis=0) - ones * (ones + 1) / 2
    return float(np.mean(above[pairs > 0] / pairs[pairs > 0])) if pairs.any() else math.nan


def log_loss(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean negative log of the true class's probability.

    For soft labels, this is the mean cross-entropy. Several labels are averaged. Probabilities of
    classes are normalized to a sum of 1 per row. scikit-learn keeps probabilities at least 2.2e-16
    away from 0 and 1, so the largest value of a row is 36.04.
    """
    soft = truth.ndim > 1 and truth.dtype.kind == "f"
    if soft or truth.ndim == 1:
        shares = predicted / predicted.sum(axis=1, keepdims=True)
    if soft:
        from scipy.special import xlogy  # type: ignore[import-untyped]

        likely = shares.clip(np.finfo(np.float64).eps, 1 - np.finfo(np.float64).eps)
        return float(-xlogy(truth, likely).sum(axis=1).mean())
    if truth.ndim == 1:
        return sklearn("log_loss", truth, shares, labels=np.arange(predicted.shape[1]))
    # A probability in a blend can exceed 1 due to rounding.
    return sklearn("log_loss", truth.ravel(), np.minimum(predicted, 1).ravel(), labels=[0, 1])


def kl_divergence(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean Kullback-Leibler divergence of the predictions from soft labels.

    It is the `log_loss` minus the entropy of the labels. For hard labels, it is the `log_loss`.
    """
    from scipy.special import entr

    entropy = entr(truth).sum(axis=1).mean() if truth.ndim > 1 else 0.0
    return log_loss(truth, predicted) - float(entropy)


def average_precision_at(truth: np.ndarray, ranking: np.ndarray, k: int) -> float:
    """Return the mean reciprocal rank of the true class. Beyond rank k, it counts as 0."""
    hits = ranking[:, :k] == truth[:, None]
    return float((hits / np.arange(1, hits.shape[1] + 1)).sum(axis=1).mean())


def rmsle(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the RMSE of log(1 + value), after clipping negative predictions to 0."""
    return sklearn("root_mean_squared_log_error", truth, np.maximum(predicted, 0))


def r2(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean R² over all columns whose true values vary, or NaN if there are none."""
    varied = truth.min(axis=0) < truth.max(axis=0)
    return sklearn("r2_score", truth[:, varied], predicted[:, varied]) if varied.any() else math.nan


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        # For several labels, a row is only accurate if all of its columns are right. Errors are
        # averaged over columns. A function returns NaN if it has no value.
        Metric("accuracy", partial(sklearn, "accuracy_score"), True, "classes", LABELS),
        Metric("balanced_accuracy", balanced_accuracy, True, "classes", CLASSES),
        Metric("f1", f_beta, True, "classes", LABELS),
        Metric("f_beta:<beta>", f_beta, True, "classes", LABELS),
        Metric("qwk", qwk, True, "classes", CLASSES),
        Metric("auc", auc, True, "scores", LABELS),
        Metric("log_loss", log_loss, False, "scores", LABELS, True),
        Metric("kl_divergence", kl_divergence, False, "scores", CLASSES, True),
        Metric("map@<k>", average_precision_at, True, "ranking", CLASSES),
        Metric("rmse", partial(sklearn, "root_mean_squared_error"), False, "scores", NUMBERS),
        Metric("rmsle", rmsle, False, "scores", NUMBERS),
        Metric("mae", partial(sklearn, "mean_absolute_error"), False, "scores", NUMBERS),
        Metric("r2", r2, True, "scores", NUMBERS),
    )
}

"""Read labels as arrays, and define the default losses and the meaning of a model's outputs.

`Config.target` has one of five values:

    classes     one of several labels, with softmax and cross-entropy. Several label columns contain
                soft labels: votes or probabilities of the classes, which are divided by their sum
    ordinal     one of several labels in increasing order (numbers). Each output predicts "more than
                this label", so an error of two costs more than an error of one (cumulative logits;
                Cheng et al. 2008, arXiv:0704.1028)
    multilabel  any number of labels, as one column of 0 and 1 per label, or as one column of labels
                separated by `data.label_separator`, with a sigmoid for each
    regression  one or more numbers, standardized for training (after log1p for the metric rmsle)
    custom      labels of any shape (`data.custom_labels`), with a custom loss, metric and
                submission
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special  # type: ignore[import-untyped]

from pipeline.config import Config
from pipeline.data.csv_files import as_numbers, check_column
from pipeline.errors import DataError

# The metric shown next to the loss for every epoch. The absolute error is in standard deviations.
FIGURE = dict.fromkeys(("classes", "ordinal", "multilabel"), "accuracy")
FIGURE |= {"regression": "absolute_error", "custom": "mean_output"}
MOST = 1e30  # largest number to predict, so that its square is finite
FIX = "Correct the table, or label_column in the config."


@dataclass(frozen=True)
class Target:
    """The meaning of a competition's labels.

    Attributes:
        names: names of the classes (sorted, or by value for "ordinal") or of the label columns; ()
            for "custom".
        center, spread: mean and standard deviation of each regression column, after `log`.
        log: whether numbers are converted with log1p.
        lowest, highest: range to which regression predictions are clipped, per column and in the
            labels' units; () disables clipping.
    """

    kind: str
    names: tuple[str, ...]
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    log: bool = False
    separator: str = " "
    lowest: tuple[float, ...] = ()
    highest: tuple[float, ...] = ()

    @staticmethod
    def from_json(value: Any) -> "Target":
        lists = {name: tuple(each) for name, each in value.items() if isinstance(each, list)}
        return Target(**{**value, **lists})

    def limited(self, labels: np.ndarray) -> "Target":
        """Return a copy of this regression target that clips predictions to the range of `labels`.

        Networks extrapolate linearly, or exponentially if `log` is set, so a single incorrect input
        could determine the whole score.
        """
        truth = self.truth(np.stack([labels.min(axis=0), labels.max(axis=0)]))
        lowest, highest = (tuple(map(float, ends)) for ends in truth)
        return replace(self, lowest=lowest, highest=highest)

    @property
    def single(self) -> bool:
        return self.kind in ("classes", "ordinal")

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Convert a model's outputs, (n, `Config.outputs`), to predictions, float32 (n, k).

        Predictions are the probabilities of the labels in `names` or, for regression, numbers in
        the labels' units. For "custom", the outputs (n, …) are returned unchanged.
        """
        values = np.asarray(logits, np.float32)
        if self.kind == "custom":
            return values
        if self.kind == "classes":
            return np.asarray(special.softmax(values, axis=1))
        if self.kind == "multilabel":
            return np.asarray(special.expit(values))
        if self.kind == "ordinal":
            # "More than b" cannot be more probable than "more than a" for a < b, so outputs that
            # contradict this are clipped.
            likely = special.expit(values)
            padded = np.pad(likely, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
            beyond = np.minimum.accumulate(padded, axis=1)
            return np.asarray(beyond[:, :-1] - beyond[:, 1:], np.float32)
        numbers = values * np.array(self.spread, np.float32) + np.array(self.center, np.float32)
        if self.lowest:
            ends = (self._with_log(np.array(each)) for each in (self.lowest, self.highest))
            # Values that are not finite are kept here, and are rejected or replaced later.
            numbers = np.where(np.isfinite(numbers), numbers.clip(*ends), numbers)
        return np.asarray(self._without_log(numbers), np.float32)

    def mean(
        self, predictions: Sequence[np.ndarray], weights: Sequence[float] | None = None
    ) -> np.ndarray:
        """Average predictions for the same rows over folds, views, or ensemble members.

        With `log`, logarithms are averaged. Weights are divided by their sum.

        >>> two = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])
        >>> Target("classes", ("a", "b")).mean(two, [3, 1]).tolist()
        [[0.25, 0.75]]
        >>> prices = Target("regression", ("price",), (0.0,), (1.0,), log=True)
        >>> prices.mean([np.array([[9.0]]), np.array([[999.0]])]).round(3).tolist()  # of log1p
        [[99.0]]
        """
        if len(predictions) == 1:
            return np.asarray(predictions[0], np.float32)
        weights = [1.0] * len(predictions) if weights is None else weights
        total = np.zeros(predictions[0].shape, np.float64)
        for each, weight in zip(predictions, weights, strict=True):
            total += weight * self._with_log(each.astype(np.float64))
        return np.asarray(self._without_log(total / sum(weights)), np.float32)

    def truth(self, labels: np.ndarray) -> np.ndarray:
        """Convert labels for use in a metric (`pipeline.evaluate.metrics`)."""
        if self.kind != "regression":
            return labels
        numbers = labels.astype(np.float64) * np.array(self.spread) + np.array(self.center)
        return np.asarray(self._without_log(numbers))

    def _with_log(self, numbers: np.ndarray) -> np.ndarray:
        return np.log1p(numbers) if self.log else numbers

    def _without_log(self, numbers: np.ndarray) -> np.ndarray:
        # Rounding can lead to values below 0, which the metric would reject.
        return np.maximum(np.expm1(numbers), 0) if self.log else numbers

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return each row's stratum for a split, int (n,).

        The stratum is the row's label, the rarest of several labels, the decile of a number, or 0
        for "custom".
        """
        if self.kind == "custom":
            return np.zeros(len(labels), int)
        if self.single:
            return np.asarray(codes(labels))
        if self.kind == "multilabel":
            rare = np.argsort(labels.sum(axis=0), kind="stable")
            return np.where(labels.any(axis=1), rare[labels[:, rare].argmax(axis=1)] + 1, 0)
        edges = np.quantile(labels[:, 0], np.linspace(0, 1, 11)[1:-1])
        return np.searchsorted(edges, labels[:, 0])

    def losses(self, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return each row's error, float64 (n,).

        For labels, this is the negative logarithm of the true label's probability. For numbers, it
        is the absolute error in standard deviations.
        """
        likely = predictions.astype(np.float64).clip(1e-12, 1 - 1e-12)
        if self.single and labels.ndim > 1:
            return np.asarray(-(labels * np.log(likely)).sum(axis=1))
        if self.single:
            return np.asarray(-np.log(likely[np.arange(len(labels)), labels]))
        if self.kind == "multilabel":
            return np.asarray(-np.log(np.where(labels > 0.5, likely, 1 - likely)).mean(axis=1))
        return np.asarray(np.abs(self.learned(predictions) - labels).mean(axis=1))

    def learned(self, predictions: np.ndarray) -> np.ndarray:
        """Convert a regression's predictions to standardized values."""
        numbers = self._with_log(predictions.astype(np.float64))
        return np.asarray((numbers - np.array(self.center)) / np.array(self.spread))

    def best(self, predictions: np.ndarray) -> list[str]:
        """Return each row's prediction as a string.

        This is the most probable class, all labels with a probability above 1/2, the numbers or,
        for "custom", the mean output.
        """
        if self.kind == "custom":
            return [f"{row.mean():.7g}" for row in predictions]
        if self.single:
            return [self.names[index] for index in predictions.argmax(axis=1)]
        if self.kind == "multilabel":
            names = np.array(self.names, object)
            return [self.separator.join(names[row > 0.5]) for row in predictions]
        return [" ".join(f"{value:.7g}" for value in row) for row in predictions]


def parts(text: str, separator: str) -> list[str]:
    """Split a text into its labels, and strip the spaces around them.

    >>> parts("big cat| dog", "|"), parts(" cat  dog", " "), parts("", "|")
    (['big cat', 'dog'], ['cat', 'dog'], [])
    """
    labels = (part.strip() for part in text.split(separator.strip() or None))
    return [part for part in labels if part]


def codes(labels: Any) -> Any:
    """Return each row's class, int (n,).

    For soft labels, this is the most probable class, or the first if tied.

    >>> codes(np.array([[0.2, 0.4, 0.4], [0, 0, 1]])).tolist(), codes(np.array([2, 0])).tolist()
    ([1, 2], [2, 0])
    """
    return labels.argmax(axis=1) if labels.ndim > 1 else labels


def repeated(
    rows: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Convert soft labels for scikit-learn, by repeating each row once per class.

    The weight of a repeated row is the probability of its class. The returned weights are None if
    all of them are 1.
    """
    if labels.ndim == 1:
        return rows, labels, weights
    places, classes = np.nonzero(labels)
    shares = labels[places, classes].astype(np.float64)
    if weights is not None:
        return rows[places], classes, shares * weights[places]
    return rows[places], classes, None if (shares == 1).all() else shares


def labels_of(target: Target, labels: np.ndarray, rows: Sequence[int] | np.ndarray) -> list[str]:
    if target.single:
        return [target.names[index] for index in codes(labels[rows])]
    return target.best(target.truth(labels[rows]))


def losses(kind: str, labels: Any, logits: Any) -> Any:
    """Return the default loss of each row, float32 (n,), with Keras operations."""
    import keras

    if kind == "classes" and labels.ndim > 1:
        return keras.losses.categorical_crossentropy(labels, logits, from_logits=True)
    if kind == "classes":
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if kind == "regression":
        return keras.ops.mean(keras.ops.square(logits - labels), axis=-1)
    if kind == "ordinal":
        labels = keras.ops.cast(labels[:, None] > keras.ops.arange(logits.shape[-1]), "float32")
    each = binary(labels, logits)
    return keras.ops.sum(each, axis=-1) if kind == "ordinal" else keras.ops.mean(each, axis=-1)


def binary(labels: Any, logits: Any) -> Any:
    import keras

    # This formula cannot overflow.
    each = keras.ops.relu(logits) - logits * labels
    each += keras.ops.log1p(keras.ops.exp(-keras.ops.abs(logits)))
    return each


def figure(kind: str, labels: Any, logits: Any) -> Any:
    """Return each row's value of the metric in `FIGURE`, float32 (n,)."""
    import keras

    if kind == "classes":
        right = keras.ops.argmax(logits, axis=-1) == codes(labels)
    elif kind == "ordinal":
        right = keras.ops.sum(keras.ops.cast(logits > 0, "int32"), axis=-1) == labels
    elif kind == "multilabel":
        return keras.ops.mean(keras.ops.cast((logits > 0) == (labels > 0.5), "float32"), axis=-1)
    elif kind == "custom":
        return keras.ops.mean(logits, axis=tuple(range(1, len(logits.shape))))
    else:
        return keras.ops.mean(keras.ops.abs(logits - labels), axis=-1)
    return keras.ops.cast(right, "float32")


def read(table: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    """Determine the target and the labels from a table of strings, and return both.

    Labels are int32 (n,) for one column of classes or ordinal labels, and otherwise float32
    (n, k).
    Regression labels are standardized.

    Raises:
        DataError: if the labels do not match the config.
    """
    kind, columns = config.target, table[list(config.data.labels)]
    if kind == "regression":
        return _standardized(columns, config, path)
    if kind == "multilabel" and len(columns.columns) > 1:
        expected = 'only 0 and 1; use target="classes" for votes or probabilities of one label'
        numbers = _numbers(columns, path, lambda values: values.isin((0, 1)), expected)
        return Target(kind, config.data.labels), numbers.astype(np.float32)
    if config.soft:
        return Target(kind, config.data.labels), _shares(table, config, path)
    texts, separator = columns.iloc[:, 0], config.data.label_separator
    if kind == "multilabel":
        rows = [set(parts(text, separator)) for text in texts]
        names = sorted(set().union(*rows))
        labels = np.array([[name in row for name in names] for row in rows], np.float32)
    else:
        check_column(path, texts, texts == "", "a label in every row", FIX)
        if kind == "ordinal":
            _numbers(columns, path, np.isfinite, "numbers with target='ordinal'")
        names = sorted(set(texts), key=float if kind == "ordinal" else str)
        labels = pd.Index(names, dtype=object).get_indexer(pd.Index(texts)).astype(np.int32)
    if len(names) != config.num_classes:
        raise DataError(
            f"{path} has {len(names)} different labels ({', '.join(map(repr, names[:12]))}"
            f"{' …' if len(names) > 12 else ''}); expected num_classes={config.num_classes} from "
            f"the config.\nSet num_classes={len(names)}, or correct label_column."
        )
    return Target(kind, tuple(names), separator=separator), labels


def _shares(table: pd.DataFrame, config: Config, path: Path) -> np.ndarray:
    columns, key = table[list(config.data.labels)], config.data.id_column
    expected = f"votes or probabilities from 0 to {MOST:g}"
    numbers = _numbers(columns, path, lambda values: values.between(0, MOST), expected)
    sums = numbers.sum(axis=1, keepdims=True)
    ids = table[key] if key in table else columns.iloc[:, 0]
    expected = f"a label column above 0 in every row: {', '.join(config.data.labels)}"[:300]
    check_column(path, ids, sums[:, 0] == 0, expected, f"Remove rows without votes. {FIX}")
    return np.asarray(numbers / sums, np.float32)


def _standardized(columns: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    log, expected = config.metric == "rmsle", f"finite numbers up to {MOST:g}"
    if log:
        expected += ", 0 or more for the metric rmsle"
    least = 0 if log else -MOST
    numbers = _numbers(columns, path, lambda values: values.between(least, MOST), expected)
    for name in columns.columns[np.ptp(numbers, axis=0) == 0]:
        check_column(path, columns[name], columns[name].notna(), "different numbers", FIX)
    numbers = np.log1p(numbers) if log else numbers
    center, spread = numbers.mean(axis=0), numbers.std(axis=0)
    target = Target(
        "regression", config.data.labels, tuple(center.tolist()), tuple(spread.tolist()), log
    )
    return target, np.asarray((numbers - center) / spread, np.float32)


def _numbers(
    columns: pd.DataFrame, path: Path, allowed: Callable[[pd.Series], pd.Series], expected: str
) -> np.ndarray:
    numbers = columns.apply(as_numbers)
    for name in columns:
        check_column(path, columns[name], ~allowed(numbers[name]), expected, FIX)
    return np.asarray(numbers, np.float64)

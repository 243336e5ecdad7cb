"""What is predicted: labels as arrays, the loss, and the meaning of a model's outputs.

`Config.target` names one of five kinds:

    classes     one of several labels; softmax and cross-entropy
    ordinal     one of several labels in rising order (numbers); an output for each "more than this
                one", so that a miss by two costs more than a miss by one (cumulative logits; Cheng
                et al. 2008, arXiv:0704.1028)
    multilabel  any of several labels: a column of 0 and 1 for each, or one column of labels with
                `data.label_separator` between them; a sigmoid each
    regression  one number or several, learned in standard deviations from the mean; their log1p
                for the metric rmsle
    custom      labels of any shape, as `data.custom_labels` says, with a loss, a metric and a
                submission of the config's own; an output is what the model gives
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

# What is shown for each epoch beside the loss. The error is in standard deviations of the target.
FIGURE = dict.fromkeys(("classes", "ordinal", "multilabel"), "accuracy")
FIGURE |= {"regression": "absolute_error", "custom": "mean_output"}
MOST = 1e30  # of a number to predict: its square, and what a model makes of it, stay finite
FIX = "Correct the table, or label_column in the config."


@dataclass(frozen=True)
class Target:
    """What the labels of a competition mean.

    Attributes:
        kind: "classes", "ordinal", "multilabel", "regression" or "custom".
        names: of the classes (sorted; "ordinal" by value), or of the label columns; "custom" has
            none.
        center: mean of each column of a regression, after `log`.
        spread: its standard deviation.
        log: whether log1p is learned.
        separator: between several labels in one text.
        lowest, highest: of each column of a regression, in the labels' own units: predictions are
            limited to this range; () if they are not.
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
        """Return the target of its fields, as `asdict` and JSON give them."""
        lists = {name: tuple(each) for name, each in value.items() if isinstance(each, list)}
        return Target(**{**value, **lists})

    def limited(self, labels: np.ndarray) -> "Target":
        """Return this target of a regression with predictions limited to the range of `labels`.

        A network is linear far from its training rows, and behind a logarithm that is exponential:
        one wrong input would decide a whole score.

        Args:
            labels: of the rows that are trained on, as `read` returns them, (n, k).
        """
        truth = self.truth(np.stack([labels.min(axis=0), labels.max(axis=0)]))
        lowest, highest = (tuple(map(float, ends)) for ends in truth)
        return replace(self, lowest=lowest, highest=highest)

    @property
    def single(self) -> bool:
        """Whether each row has exactly one of the labels."""
        return self.kind in ("classes", "ordinal")

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return what the outputs of a model mean, float32 (n, k).

        These are probabilities of the names, or numbers in the labels' own units; of "custom" the
        outputs themselves, (n, …).

        Args:
            logits: float (n, outputs), as `Config.outputs` says.
        """
        values = np.asarray(logits, np.float32)
        if self.kind == "custom":
            return values
        if self.kind == "classes":
            return np.asarray(special.softmax(values, axis=1))
        if self.kind == "multilabel":
            return np.asarray(special.expit(values))
        if self.kind == "ordinal":
            # "More than b" is never more probable than "more than a < b". Outputs that contradict
            # this count as equal.
            likely = special.expit(values)
            padded = np.pad(likely, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
            beyond = np.minimum.accumulate(padded, axis=1)
            return np.asarray(beyond[:, :-1] - beyond[:, 1:], np.float32)
        numbers = values * np.array(self.spread, np.float32) + np.array(self.center, np.float32)
        if self.lowest:
            ends = (self._with_log(np.array(each)) for each in (self.lowest, self.highest))
            # What is not finite is no prediction: it stays, and is refused or replaced.
            numbers = np.where(np.isfinite(numbers), numbers.clip(*ends), numbers)
        return np.asarray(self._without_log(numbers), np.float32)

    def mean(
        self, predictions: Sequence[np.ndarray], weights: Sequence[float] | None = None
    ) -> np.ndarray:
        """Return the mean of predictions for the same rows: over folds, views, or members of an
        ensemble.

        Where the logarithm of a number is learned and scored, logarithms are averaged.

        Args:
            predictions: float arrays of one shape, (n, …), as `predictions` returns them.
            weights: as many, which are divided by their sum; None: equal ones.

        Returns:
            float32 (n, …); of one array its own values.

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
        """Return labels as a metric takes them.

        These are int32 (n,), 0 and 1 as float32 (n, k), or numbers in their own units, float64
        (n, k); of "custom" the labels themselves.
        """
        if self.kind != "regression":
            return labels
        numbers = labels.astype(np.float64) * np.array(self.spread) + np.array(self.center)
        return np.asarray(self._without_log(numbers))

    def _with_log(self, numbers: np.ndarray) -> np.ndarray:
        return np.log1p(numbers) if self.log else numbers

    def _without_log(self, numbers: np.ndarray) -> np.ndarray:
        # Labels of 0 or more: the metric would refuse a rounding below 0.
        return np.maximum(np.expm1(numbers), 0) if self.log else numbers

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return what a split keeps in proportion, int (n,).

        This is the label, the rarest of several labels, or the tenth that a number lies in; of
        "custom" nothing.
        """
        if self.kind == "custom":
            return np.zeros(len(labels), int)
        if self.single:
            return labels
        if self.kind == "multilabel":
            rare = np.argsort(labels.sum(axis=0), kind="stable")
            return np.where(labels.any(axis=1), rare[labels[:, rare].argmax(axis=1)] + 1, 0)
        edges = np.quantile(labels[:, 0], np.linspace(0, 1, 11)[1:-1])
        return np.searchsorted(edges, labels[:, 0])

    def losses(self, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return how wrong each row is, float64 (n,).

        This is minus the log of the true label's probability, or the error in standard deviations.
        """
        likely = predictions.astype(np.float64).clip(1e-12, 1 - 1e-12)
        if self.single:
            return np.asarray(-np.log(likely[np.arange(len(labels)), labels]))
        if self.kind == "multilabel":
            return np.asarray(-np.log(np.where(labels > 0.5, likely, 1 - likely)).mean(axis=1))
        return np.asarray(np.abs(self.learned(predictions) - labels).mean(axis=1))

    def learned(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions of a regression as the labels are learned, float64 (n, k): in standard
        deviations from the mean.
        """
        numbers = self._with_log(predictions.astype(np.float64))
        return np.asarray((numbers - np.array(self.center)) / np.array(self.spread))

    def best(self, predictions: np.ndarray) -> list[str]:
        """Return each row's likeliest class, labels above 1/2, or numbers, as one text; of "custom"
        the mean of its numbers.
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
    """Return the labels in a text; spaces around them do not count.

    >>> parts("big cat| dog", "|"), parts(" cat  dog", " "), parts("", "|")
    (['big cat', 'dog'], ['cat', 'dog'], [])
    """
    labels = (part.strip() for part in text.split(separator.strip() or None))
    return [part for part in labels if part]


def labels_of(target: Target, labels: np.ndarray, rows: Sequence[int] | np.ndarray) -> list[str]:
    """Return the true labels of these rows as `Target.best` writes predictions."""
    if target.single:
        return [target.names[index] for index in labels[rows]]
    return target.best(target.truth(labels[rows]))


def losses(kind: str, labels: Any, logits: Any) -> Any:
    """Return the loss of each row, float32 (n,), by Keras' operations.

    Args:
        kind: of the target, but for "custom", whose loss is the config's own.
        labels: as `read` returns them.
        logits: float32 (n, outputs).
    """
    import keras

    if kind == "classes":
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if kind == "regression":
        return keras.ops.mean(keras.ops.square(logits - labels), axis=-1)
    if kind == "ordinal":
        labels = keras.ops.cast(labels[:, None] > keras.ops.arange(logits.shape[-1]), "float32")
    each = binary(labels, logits)
    return keras.ops.sum(each, axis=-1) if kind == "ordinal" else keras.ops.mean(each, axis=-1)


def binary(labels: Any, logits: Any) -> Any:
    """Return the cross-entropy of each label, float32 (n, k), of labels from 0 to 1."""
    import keras

    # This form overflows for no logits.
    each = keras.ops.relu(logits) - logits * labels
    each += keras.ops.log1p(keras.ops.exp(-keras.ops.abs(logits)))
    return each


def figure(kind: str, labels: Any, logits: Any) -> Any:
    """Return what `FIGURE` names for each row, float32 (n,), by Keras' operations.

    The arguments are those of `losses`.
    """
    import keras

    if kind == "classes":
        right = keras.ops.argmax(logits, axis=-1) == labels
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
    """Return the target and its labels.

    Args:
        table: of texts.
        path: where the table came from, for messages.

    Returns:
        The labels are int32 (n,) for classes, float32 (n, k) for the others, and standardized for a
        regression.

    Raises:
        DataError: if the labels are not as many as the config says, or not of its kind.
    """
    kind, columns = config.target, table[list(config.data.labels)]
    if kind == "regression":
        return _standardized(columns, config, path)
    if kind == "multilabel" and len(columns.columns) > 1:
        numbers = _numbers(columns, path, lambda values: values.isin((0, 1)), "0 or 1")
        return Target(kind, config.data.labels), numbers.astype(np.float32)
    texts, separator = columns.iloc[:, 0], config.data.label_separator
    if kind == "multilabel":
        rows = [set(parts(text, separator)) for text in texts]
        names = sorted(set().union(*rows))
        labels = np.array([[name in row for name in names] for row in rows], np.float32)
    else:
        check_column(path, texts, texts == "", "a label in each", FIX)
        if kind == "ordinal":
            _numbers(columns, path, np.isfinite, "numbers with target='ordinal'")
        names = sorted(set(texts), key=float if kind == "ordinal" else str)
        labels = pd.Index(names, dtype=object).get_indexer(pd.Index(texts)).astype(np.int32)
    if len(names) != config.num_classes:
        raise DataError(
            f"{path} has {len(names)} different labels ({', '.join(map(repr, names[:12]))}"
            f"{' …' if len(names) > 12 else ''}); expected num_classes={config.num_classes}, as in "
            f"the config.\nSet num_classes={len(names)}, or correct label_column."
        )
    return Target(kind, tuple(names), separator=separator), labels


def _standardized(columns: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    """Return the target of a regression and its labels."""
    log, expected = config.metric == "rmsle", f"finite numbers up to {MOST:g}"
    if log:
        expected += ", 0 or more for the metric rmsle"
    least = 0 if log else -MOST
    numbers = _numbers(columns, path, lambda values: values.between(least, MOST), expected)
    for name in columns.columns[np.ptp(numbers, axis=0) == 0]:
        check_column(path, columns[name], columns[name].notna(), "numbers that differ", FIX)
    numbers = np.log1p(numbers) if log else numbers
    center, spread = numbers.mean(axis=0), numbers.std(axis=0)
    target = Target(
        "regression", config.data.labels, tuple(center.tolist()), tuple(spread.tolist()), log
    )
    return target, np.asarray((numbers - center) / spread, np.float32)


def _numbers(
    columns: pd.DataFrame, path: Path, allowed: Callable[[pd.Series], pd.Series], expected: str
) -> np.ndarray:
    """Return columns of texts as float64 (n, k), or refuse a number that is not allowed."""
    numbers = columns.apply(as_numbers)
    for name in columns:
        check_column(path, columns[name], ~allowed(numbers[name]), expected, FIX)
    return np.asarray(numbers, np.float64)

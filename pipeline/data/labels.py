"""Target: what is predicted: its labels as arrays, its loss, what the model's outputs mean, and how
a submission says it.

Four kinds, named by `Config.target`:

    classes     one of several labels; softmax and cross-entropy
    ordinal     one of several labels in rising order (numbers); an output for each "more than this one", so that a miss by two costs more than
                a miss by one (cumulative logits; Cheng et al. 2008, arXiv:0704.1028)
    multilabel  any of several labels: a column of 0 and 1 each, or one column of labels with blanks
    between; a sigmoid each regression  one number or several, learned in standard deviations from
    the mean; for the metric rmsle their log1p
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.config import Config
from pipeline.errors import DataError

# What is told of each epoch beside the loss. The error is in standard deviations of the target.
FIGURE = {
    "classes": "accuracy",
    "ordinal": "accuracy",
    "multilabel": "accuracy",
    "regression": "absolute_error",
}
MOST = 1e30  # of a number to predict: its square, and what a model makes of it, stay finite
EDIT = "Correct the table, or label_column in the config."


@dataclass(frozen=True)
class Target:
    """What the labels of a competition mean.

    Attributes:
        kind: as above. names: of the classes (sorted; numbers of "ordinal" by value), or of the
            label columns.
        center, spread: of a regression, mean and standard deviation of each column, after `log`.
            log: whether log1p is learned.
    """

    kind: str
    names: tuple[str, ...]
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    log: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes; `Target.from_json` gives an equal one back."""
        return asdict(self)

    @staticmethod
    def from_json(value: Any) -> "Target":
        """Return the target that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: if it did not.
        """
        names = tuple(str(name) for name in value["names"])
        center, spread = (
            tuple(float(number) for number in value[name]) for name in ("center", "spread")
        )
        numbers = len(names) if value["kind"] == "regression" else 0
        if (
            value["kind"] not in FIGURE
            or not names
            or len(center) != numbers
            or len(spread) != numbers
        ):
            raise ValueError(f"no target: {value!r}")
        return Target(str(value["kind"]), names, center, spread, bool(value["log"]))

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return what the outputs of a model mean, float32 (n, k): probabilities of the names, or
        numbers in the labels' own units.

        Args:
            logits: float (n, outputs), as `Config.outputs` says.
        """
        values = np.asarray(logits, np.float32)
        if self.kind == "classes":
            exponents = np.exp(values - values.max(axis=1, keepdims=True))
            return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)
        if self.kind == "multilabel":
            return _sigmoid(values)
        if self.kind == "ordinal":
            ends = np.ones((len(values), 1), np.float32), np.zeros((len(values), 1), np.float32)
            # "More than b" is never more probable than "more than a < b"; outputs that say so are
            # taken as equal.
            beyond = np.minimum.accumulate(np.hstack([ends[0], _sigmoid(values), ends[1]]), axis=1)
            return np.asarray(beyond[:, :-1] - beyond[:, 1:], np.float32)
        numbers = values * np.array(self.spread, np.float32) + np.array(self.center, np.float32)
        # Where labels are 0 or more, so is what is said of them; a rounding below 0 would be
        # refused.
        return np.asarray(np.maximum(np.expm1(numbers), 0) if self.log else numbers, np.float32)

    def truth(self, labels: np.ndarray) -> np.ndarray:
        """Return labels as a metric gets them: int32 (n,), 0 and 1 of float32 (n, k), or numbers in
        their own units, float64 (n, k).
        """
        if self.kind != "regression":
            return labels
        numbers = labels.astype(np.float64) * np.array(self.spread) + np.array(self.center)
        return np.asarray(np.maximum(np.expm1(numbers), 0) if self.log else numbers)

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return what a split keeps in proportion, int (n,): the label, of several the rarest, of
        numbers the tenth that they lie in.
        """
        if self.kind in ("classes", "ordinal"):
            return labels
        if self.kind == "multilabel":
            rare = np.argsort(labels.sum(axis=0), kind="stable")
            return np.where(labels.any(axis=1), rare[labels[:, rare].argmax(axis=1)] + 1, 0)
        edges = np.quantile(labels[:, 0], np.linspace(0, 1, 11)[1:-1])
        return np.searchsorted(edges, labels[:, 0])

    def losses(self, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return how wrong each row is, float64 (n,): minus the log of the probability of what is
        true, or the error in s.d.
        """
        likely = predictions.astype(np.float64).clip(1e-12, 1 - 1e-12)
        if self.kind in ("classes", "ordinal"):
            return np.asarray(-np.log(likely[np.arange(len(labels)), labels]))
        if self.kind == "multilabel":
            return np.asarray(-np.log(np.where(labels > 0.5, likely, 1 - likely)).mean(axis=1))
        return np.asarray(
            np.abs((predictions - self.truth(labels)) / np.array(self.spread)).mean(axis=1)
        )

    def best(self, predictions: np.ndarray) -> list[str]:
        """Return what each row says, in words: the likeliest class, all labels above 1/2, or the
        numbers; one text a row.
        """
        if self.kind in ("classes", "ordinal"):
            return [self.names[index] for index in predictions.argmax(axis=1)]
        if self.kind == "multilabel":
            return [
                " ".join(name for name, on in zip(self.names, row > 0.5, strict=True) if on)
                for row in predictions
            ]
        return [" ".join(f"{value:.7g}" for value in row) for row in predictions]


def read(table: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    """Return the target and its labels: int32 (n,) of classes, float32 (n, k) of the others,
    standardized for a regression.

    Args:
        table: of texts. path: where it came from, for messages.

    Raises:
        DataError: if the labels are not as many as the config says, or not of its kind.
    """
    columns = list(config.data.labels)
    if config.target == "regression":
        return _numbers(table[columns], config, path)
    if config.target == "multilabel":
        return _several(table, config, path)
    found = set(table[columns[0]])
    if "" in found:
        number = int((table[columns[0]] == "").sum())
        raise DataError(
            f"{path} has {number} rows without a label in {columns[0]!r}; expected one in each.\n{EDIT}"
        )
    if config.target == "ordinal":
        wrong = [text for text in found if _number(text) is None]
        if wrong:
            raise DataError(
                f"{path} has the label {wrong[0]!r}; expected numbers with target='ordinal'.\n{EDIT}"
            )
        names = tuple(sorted(found, key=float))
        twice = [pair for pair in pairwise(names) if float(pair[0]) == float(pair[1])]
        if twice:
            raise DataError(
                f"{path} says one number in two ways, {twice[0][0]!r} and {twice[0][1]!r}; expected one text for each label.\n{EDIT}"
            )
    else:
        names = tuple(sorted(found))
    if len(names) != config.num_classes:
        raise DataError(
            f"{path} has {len(names)} different labels ({', '.join(names[:12])}…); "
            f"expected num_classes={config.num_classes}, as in the config.\nSet num_classes={len(names)}, or correct label_column."
        )
    lookup = {name: index for index, name in enumerate(names)}
    return Target(config.target, names), np.array(
        [lookup[text] for text in table[columns[0]]], np.int32
    )


def losses(kind: str, labels: Any, logits: Any) -> Any:
    """Return the loss of each row, float32 (n,), by Keras' operations.

    Args:
        kind: of the target. labels: as `read` gives them. logits: float32 (n, outputs).
    """
    import keras

    if kind == "classes":
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if kind == "regression":
        return keras.ops.mean(keras.ops.square(logits - labels), axis=-1)
    if kind == "ordinal":
        labels = keras.ops.cast(labels[:, None] > keras.ops.arange(logits.shape[-1]), "float32")
    # Of large logits neither exponent overflows.
    each = (
        keras.ops.relu(logits)
        - logits * labels
        + keras.ops.log1p(keras.ops.exp(-keras.ops.abs(logits)))
    )
    return keras.ops.sum(each, axis=-1) if kind == "ordinal" else keras.ops.mean(each, axis=-1)


def figure(kind: str, labels: Any, logits: Any) -> Any:
    """Return what `FIGURE` names for each row, float32 (n,), by Keras' operations; the arguments
    are those of `losses`.
    """
    import keras

    if kind == "classes":
        right = keras.ops.argmax(logits, axis=-1) == labels
    elif kind == "ordinal":
        right = keras.ops.sum(keras.ops.cast(logits > 0, "int32"), axis=-1) == labels
    elif kind == "multilabel":
        return keras.ops.mean(keras.ops.cast((logits > 0) == (labels > 0.5), "float32"), axis=-1)
    else:
        return keras.ops.mean(keras.ops.abs(logits - labels), axis=-1)
    return keras.ops.cast(right, "float32")


def _numbers(table: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    numbers = np.array([_column(table[name], path) for name in table.columns]).T
    far = [
        name
        for name, most in zip(table.columns, np.abs(numbers).max(axis=0), strict=True)
        if most > MOST
    ]
    if far:
        raise DataError(
            f"{path} has labels in {far[0]!r} beyond {MOST:g}, which no prediction can reach in 32 bits; expected smaller ones.\n"
            f"Divide them, and multiply the predictions. {EDIT}"
        )
    log = config.metric == "rmsle"
    if log and (numbers < 0).any():
        raise DataError(
            f"{path} has labels below 0; the metric rmsle expects none.\nTake another metric, or correct the table."
        )
    numbers = np.log1p(numbers) if log else numbers
    center, spread = numbers.mean(axis=0), numbers.std(axis=0)
    constant = [
        name
        for name, same in zip(
            table.columns, numbers.min(axis=0) == numbers.max(axis=0), strict=True
        )
        if same
    ]
    if constant:
        raise DataError(
            f"{path} has one and the same number in all of {constant[0]!r}; expected labels to learn.\n{EDIT}"
        )
    target = Target(
        "regression", tuple(table.columns), tuple(center.tolist()), tuple(spread.tolist()), log
    )
    return target, np.asarray((numbers - center) / spread, np.float32)


def _several(table: pd.DataFrame, config: Config, path: Path) -> tuple[Target, np.ndarray]:
    columns = list(config.data.labels)
    if len(columns) > 1:
        wrong = [
            (name, text)
            for name in columns
            for text in set(table[name])
            if _number(text) not in (0.0, 1.0)
        ]
        if wrong:
            raise DataError(
                f"{path} has {wrong[0][1]!r} in {wrong[0][0]!r}; expected 0 or 1 in each label column.\n{EDIT}"
            )
        return Target("multilabel", tuple(columns)), table[columns].to_numpy(str).astype(np.float32)
    tags = [text.split() for text in table[columns[0]]]
    names = tuple(sorted({tag for row in tags for tag in row}))
    if len(names) != config.num_classes:
        raise DataError(
            f"{path} has {len(names)} different labels ({', '.join(names[:12])}…); expected num_classes={config.num_classes}, as in the "
            f"config.\nSet num_classes={len(names)}, or correct label_column."
        )
    lookup = {name: index for index, name in enumerate(names)}
    labels = np.zeros((len(tags), len(names)), np.float32)
    for row, own in enumerate(tags):
        labels[row, [lookup[tag] for tag in own]] = 1
    return Target("multilabel", names), labels


def _column(texts: pd.Series, path: Path) -> list[float]:
    numbers = [_number(text) for text in texts]
    wrong = [text for text, number in zip(texts, numbers, strict=True) if number is None]
    if wrong:
        shown = ", ".join(map(repr, wrong[:3]))
        raise DataError(
            f"{path} has {len(wrong)} labels in {texts.name!r} that are no finite numbers: {shown}; expected numbers.\n{EDIT}"
        )
    return [number for number in numbers if number is not None]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) and "_" not in text else None


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -values)), np.float32)


def labels_of(target: Target, labels: np.ndarray, rows: Sequence[int] | np.ndarray) -> list[str]:
    """Return the true labels of these rows in words, as `Target.best` says predictions."""
    if target.kind in ("classes", "ordinal"):
        return [target.names[index] for index in labels[rows]]
    return target.best(target.truth(labels[rows]))

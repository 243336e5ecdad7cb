"""A Keras layer for gradient boosting, which stores decision trees as ordinary weights.

Artifacts, folds and inference therefore work as they do for other models. With
`Config.fit="boosting"`, this layer replaces a model's last dense layer. `pipeline.train.boosting`
grows the trees.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

LEAVES, DEPTH = 31, 12  # maximum per tree
ITERATIONS, MOST_TREES = 100, 1_000  # maximum number of trees per output, and in total
NAME = "trees"


def iterations(outputs: int) -> int:
    """Return the number of trees per output.

    >>> iterations(1), iterations(50)
    (100, 20)
    """
    return min(ITERATIONS, max(MOST_TREES // outputs, 10))


class Numbers(NamedTuple):
    """The parameters of the trees for all outputs, as float32.

    At each node, a row continues to the first child if its feature is at most the threshold, and
    otherwise to the second child. A leaf is its own child.

    Attributes:
        features, thresholds: feature and threshold of each node, (outputs, trees, nodes).
        children: children of each node, (outputs, trees, nodes, 2).
        values: value of each leaf, (outputs, trees, nodes).
        first: initial value of each output, (outputs,).
    """

    features: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray
    values: np.ndarray
    first: np.ndarray

    @classmethod
    def blank(cls, outputs: int) -> "Numbers":
        """Return trees that each consist of a single leaf with value 0."""
        form = outputs, iterations(outputs), 2 * LEAVES - 1
        return cls(
            features=np.zeros(form, np.float32),
            thresholds=np.zeros(form, np.float32),
            children=np.zeros((*form, 2), np.float32),
            values=np.zeros(form, np.float32),
            first=np.zeros(outputs, np.float32),
        )

    @property
    def weights(self) -> Sequence[np.ndarray]:
        return tuple(self)

    @property
    def described(self) -> dict[str, Any]:
        return {"trees": int(self.values.any(axis=2).sum())}

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """Return float32 predictions of shape (n, outputs) for float32 rows (n, features)."""
        parts = (rows[start : start + 1024] for start in range(0, len(rows), 1024))
        return np.concatenate([np.asarray(_sums(part, self)) for part in parts])


def _sums(rows: Any, numbers: Any) -> Any:
    """Sum the values of the trees for each output. Return a tensor (batch, outputs) for `rows`, a
    tensor (batch, features).
    """
    outputs, trees, nodes = numbers.features.shape
    features, thresholds, values = (
        ops.reshape(each, (-1,)) for each in (numbers.features, numbers.thresholds, numbers.values)
    )
    children = ops.reshape(numbers.children, (-1,))
    begin = ops.arange(outputs * trees, dtype="int32")[None] * nodes
    places = begin + ops.zeros_like(rows[:, :1], dtype="int32")
    for _ in range(DEPTH):
        columns = ops.cast(ops.take(features, places), "int32")
        seen = ops.take_along_axis(rows, columns, axis=1)
        second = ops.cast(seen > ops.take(thresholds, places), "int32")
        places = begin + ops.cast(ops.take(children, 2 * places + second), "int32")
    added = ops.reshape(ops.take(values, places), (-1, outputs, trees))
    return ops.sum(added, axis=2) + numbers.first


class Trees(layers.Layer):  # type: ignore[misc]
    """A layer that sums decision trees for each output. It has no gradient."""

    def __init__(self, outputs: int, **options: Any) -> None:
        # A lower precision would round the thresholds.
        super().__init__(**{"name": NAME, "dtype": "float32", **options})
        self.outputs_number = outputs

    def build(self, shape: Any) -> None:
        del shape
        self.numbers = Numbers(
            *(
                self.add_weight(name=name, shape=each.shape, trainable=False, initializer="zeros")
                for name, each in Numbers.blank(self.outputs_number)._asdict().items()
            )
        )

    def call(self, inputs: Any) -> Any:
        return _sums(inputs, self.numbers)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "outputs": self.outputs_number}


def last_layer(logits: Any, fit: str) -> Any:
    """Return a model's last layer, which is fitted with `Config.fit`."""
    last = logits._keras_history.operation
    linear = isinstance(last, layers.Dense) and last.activation is keras.activations.linear
    if not isinstance(last, Trees) and (
        not linear or not last.use_bias or len(last.input.shape) != 2
    ):
        raise ValueError(
            f"fit={fit!r} does not support the model's last layer, {type(last).__name__}"
            f" {last.name!r}; expected layers.Dense with a bias and no activation, applied to"
            " (batch, features)"
        )
    return last


def boosted(logits: Any) -> Any:
    last = last_layer(logits, "boosting")
    return Trees(logits.shape[-1])(ops.cast(last.input, "float32"))

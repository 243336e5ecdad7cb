"""Gradient boosting as a layer: the sum of decision trees, whose numbers are weights like others.

So artifact, folds and inference are those of any model, and nothing is pickled. `Config.fit`
"boosting" puts the layer in place of a model's last dense layer; `pipeline.train.boosting` grows
the trees.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

LEAVES, DEPTH = 31, 12  # of a tree, at most
ITERATIONS, MOST_TREES = 100, 1_000  # trees for each output, and for all, at most
NAME = "trees"


def iterations(outputs: int) -> int:
    """Return how many trees each output has.

    >>> iterations(1), iterations(50)
    (100, 20)
    """
    return min(ITERATIONS, max(MOST_TREES // outputs, 10))


class Numbers(NamedTuple):
    """The trees of all outputs. Those of one output follow each other.

    A node sends a row to its first child if the row's feature is at most the threshold, else to the
    second one. A leaf is its own child.

    Attributes:
        features, thresholds: of each node, float32 (outputs, trees, nodes).
        children: float32 (outputs, trees, nodes, 2).
        values: what a leaf adds, float32 (outputs, trees, nodes).
        first: what each output begins with, float32 (outputs,).
    """

    features: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray
    values: np.ndarray
    first: np.ndarray

    @classmethod
    def blank(cls, outputs: int) -> "Numbers":
        """Return trees of one leaf each that add nothing."""
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
        """Those of the layer."""
        return tuple(self)

    @property
    def described(self) -> dict[str, Any]:
        """How many trees there are."""
        return {"trees": int(self.values.any(axis=2).sum())}

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums for rows, float32 (n, features): float32 (n, outputs)."""
        parts = (rows[start : start + 1024] for start in range(0, len(rows), 1024))
        return np.concatenate([np.asarray(_sums(part, self)) for part in parts])


def _sums(rows: Any, numbers: Any) -> Any:
    """Return the sums of trees, of tensors: (batch, outputs) of (batch, features)."""
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
    """The sum of decision trees for each output. It has no gradient."""

    def __init__(self, outputs: int, **options: Any) -> None:
        # Thresholds would be rounded under another policy.
        super().__init__(**{"name": NAME, "dtype": "float32", **options})
        self.outputs_number = outputs

    def build(self, shape: Any) -> None:
        """Make the weights, of trees that add nothing."""
        del shape
        self.numbers = Numbers(
            *(
                self.add_weight(name=name, shape=each.shape, trainable=False, initializer="zeros")
                for name, each in Numbers.blank(self.outputs_number)._asdict().items()
            )
        )

    def call(self, inputs: Any) -> Any:
        """Return (batch, outputs) of (batch, features)."""
        return _sums(inputs, self.numbers)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer."""
        return {**super().get_config(), "outputs": self.outputs_number}


def last_layer(logits: Any, fit: str) -> Any:
    """Return the layer that gives a model's outputs, for which other weights can be found.

    Raises:
        ValueError: if it is no dense layer that could be a linear model.
    """
    last = logits._keras_history.operation
    linear = isinstance(last, layers.Dense) and last.activation is keras.activations.linear
    if not isinstance(last, Trees) and (
        not linear or not last.use_bias or len(last.input.shape) != 2
    ):
        raise ValueError(
            f"fit={fit!r} needs a last layer without anything behind it: the model ends with"
            f" {type(last).__name__} {last.name!r}; expected a layers.Dense with a bias and without"
            " an activation, of (batch, features)"
        )
    return last


def boosted(logits: Any) -> Any:
    """Return a model's outputs by trees, of what its last dense layer gets.

    Raises:
        ValueError: as `last_layer`.
    """
    last = last_layer(logits, "boosting")
    return Trees(logits.shape[-1])(ops.cast(last.input, "float32"))

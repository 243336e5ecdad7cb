"""Train state: everything that a step changes, on the devices, and as arrays by name in a
checkpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pipeline.models import batch_layers, weight_names
from pipeline.runtime import replicas


@dataclass
class State:
    """What a step takes and returns.

    Attributes:
        tree: (trainable, other, optimizer, average, totals), lists of JAX arrays. `average` is
            empty where none is kept, else as `averaged` returns it. totals: loss and figure (right
            answers, for example), summed over the examples of the epoch so far, and their number.
        names: of the leaves, in their order; the same in every process that builds the model.
        moving: as `moving` returns it.
    """

    tree: tuple[Any, ...]
    names: list[str]
    moving: list[bool]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every leaf by name, copied from the devices."""
        return dict(zip(self.names, map(np.asarray, jax.tree.leaves(self.tree)), strict=True))

    def inferring(self) -> tuple[list[Any], list[Any]]:
        """Return (trainable, other) to validate and infer with: averages where there are any."""
        trainable, other, _, average, _ = self.tree
        if not average:
            return trainable, other
        statistics = iter(average[len(trainable) :])
        return average[: len(trainable)], [
            next(statistics) if moves else value
            for value, moves in zip(other, self.moving, strict=True)
        ]

    def differing(self, arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Return the names that only the leaves or only `arrays` have, and those whose shape or
        type differs.
        """
        leaves = dict(zip(self.names, jax.tree.leaves(self.tree), strict=True))
        return [
            name
            for name in {**leaves, **arrays}
            if name not in leaves
            or name not in arrays
            or arrays[name].shape != leaves[name].shape
            or arrays[name].dtype != leaves[name].dtype
        ]

    def restored(self, arrays: Mapping[str, np.ndarray]) -> "State":
        """Return a state of these arrays, each where its leaf is now."""
        leaves, structure = jax.tree.flatten(self.tree)
        values = [
            replicas.placed(arrays[name], leaf.sharding)
            for name, leaf in zip(self.names, leaves, strict=True)
        ]
        return replace(self, tree=jax.tree.unflatten(structure, values))


def initial(model: Any, optimizer: Any, *, average: bool, counted: bool) -> State:
    """Return the state before the first step of a built model and optimizer.

    Args:
        average: keep an average of the weights. counted: the figure is a whole number.
    """
    groups = {
        "trainable": model.trainable_variables,
        "other": model.non_trainable_variables,
        "optimizer": optimizer.variables,
    }
    trainable, other, of_optimizer = (
        [variable.value for variable in group] for group in groups.values()
    )
    keys = weight_names.keys(model)
    leaves = [f"trainable/{keys[id(variable)]}" for variable in groups["trainable"]]
    # Keras numbers seed generators and optimizers through a session (adam_2/…); their places are
    # what stays the same.
    for group in ("other", "optimizer"):
        leaves += [
            f"{group}/{weight_names.of_optimizer(number, variable)}"
            for number, variable in enumerate(groups[group])
        ]
    averages, moves = [], moving(model)
    if average:
        averages = [jnp.array(value) for value in averaged(trainable, other, moves)]
        leaves += [
            f"average/{keys[id(variable)]}"
            for variable in averaged(groups["trainable"], groups["other"], moves)
        ]
    leaves += ["totals/loss", "totals/figure", "totals/count"]
    where, figure = trainable[0].sharding, jnp.int32 if counted else jnp.float32
    if isinstance(where, NamedSharding):
        where = NamedSharding(where.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    # On all devices, like the weights: `restored` puts an array where its leaf was.
    totals = tuple(
        replicas.placed(np.zeros((), kind), where) for kind in (jnp.float32, figure, jnp.int32)
    )
    return State((trainable, other, of_optimizer, averages, totals), leaves, moves)


def averaged(trainable: Sequence[Any], other: Sequence[Any], moves: Sequence[bool]) -> list[Any]:
    """Return what an average is kept of: the weights, and BatchNorm's statistics, which belong to
    the weights they were seen with.
    """
    return [*trainable, *(value for value, moved in zip(other, moves, strict=True) if moved)]


def moving(model: Any) -> list[bool]:
    """Return for each non-trainable variable of a model whether a step moves it: BatchNorm's
    statistics, unless the layer is frozen.

    A frozen variable stays the same to the bit: a mean over groups of one and the same number
    would round, step after step.
    """
    frozen = {
        id(variable)
        for layer in batch_layers.layers_of(model)
        if not layer.trainable
        for variable in layer.variables
    }
    return [
        is_real(variable.value) and id(variable) not in frozen
        for variable in model.non_trainable_variables
    ]


def is_real(value: Any) -> bool:
    """Return whether an array holds real numbers; a seed generator's state holds whole ones."""
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def not_finite(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of arrays that hold an infinity or a NaN."""
    return [
        name for name, array in arrays.items() if is_real(array) and not np.isfinite(array).all()
    ]

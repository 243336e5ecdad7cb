"""The training state, which contains everything that a step changes.

It is stored on the devices and, as named arrays, in checkpoints.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np

from pipeline.models import group_layers, weight_names
from pipeline.models.layer_tree import descendants
from pipeline.runtime import replicas
from pipeline.train.loss_scale import FIRST, LossScale

Arrays = list[Any]  # JAX arrays
SCALE = "loss_scale/"  # name prefix of the loss scale's arrays


class Totals(NamedTuple):
    """Sums over the examples of the current epoch (float32), and the number of examples (int32).

    Attributes:
        parts: sum of each loss if there are several, in the order of their names.
        metric: number of correct answers or sum of errors, shown next to the loss.
    """

    loss: Any
    parts: tuple[Any, ...]
    metric: Any
    count: Any


class TrainState(NamedTuple):
    """The state of a training run. Each step returns a new one.

    Attributes:
        params: trainable weights, in the model's order.
        buffers: other variables (BatchNorm statistics and random generator states).
        opt_state: the optimizer's variables.
        ema: averages of weights and statistics (`StateLayout.averaged`), if enabled.
        scale: loss scale in float16; otherwise ().
        step: number of completed steps, int32.
    """

    params: Arrays
    buffers: Arrays
    opt_state: Arrays
    ema: Arrays
    totals: Totals
    scale: LossScale | tuple[()]
    step: Any


class StateLayout:
    """The meaning of each array in a model's `TrainState`.

    Attributes:
        names: names of all arrays in order, the same in each process that builds the model.
        keys: keys of params and buffers (`pipeline.models.weight_names`); "" for random generators.
        statistics: whether each buffer is updated with a mean over groups, like BatchNorm's
            statistics. It is False for frozen statistics, because computing the mean would change
            their last bits.
        seeds: whether each buffer is the state of a random generator.
    """

    def __init__(
        self, model: Any, optimizer: Any, *, ema: bool, losses: Sequence[str] = ()
    ) -> None:
        self._model, self._optimizer, self._ema, self._losses = model, optimizer, ema, losses
        self._scaled = keras.config.dtype_policy().name == "mixed_float16"
        self._everywhere = optimizer.iterations.value.sharding  # a copy on each device
        params, buffers = model.trainable_variables, model.non_trainable_variables
        frozen = [layer for layer in descendants(model) if not layer.trainable]
        fixed = {id(variable) for layer in frozen for variable in layer.variables}
        self.statistics = ["float" in one.dtype and id(one) not in fixed for one in buffers]
        self.seeds = [group_layers.is_seed(one) for one in buffers]
        keys = weight_names.keys(model)
        self.keys = [keys.get(id(one), "") for one in (*params, *buffers)]
        names = {
            "params": self.keys[: len(params)],
            "buffers": weight_names.numbered(buffers),
            "opt_state": weight_names.numbered(optimizer.variables),
            "ema": [keys[id(one)] for one in self.averaged(params, buffers) if ema],
            "totals": ["loss", *(f"loss_{name}" for name in losses), "metric", "count"],
            SCALE.rstrip("/"): LossScale._fields if self._scaled else (),
        }
        self.names = [f"{part}/{name}" for part, each in names.items() for name in each]
        self.names.append("step")

    def averaged(self, params: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        """Return the arrays to average: the weights, and the statistics from the same steps."""
        moving = zip(buffers, self.statistics, strict=True)
        return [*params, *(value for value, moves in moving if moves)]

    def initial(self) -> TrainState:
        model, optimizer = self._model, self._optimizer
        kinds = model.trainable_variables, model.non_trainable_variables, optimizer.variables
        params, buffers, opt_state = ([one.value for one in variables] for variables in kinds)
        # Steps reuse the memory of each array, so the state must not contain any array twice.
        taken = set(map(id, params))
        opt_state = [jnp.array(each) if id(each) in taken else each for each in opt_state]
        ema = list(map(jnp.array, self.averaged(params, buffers))) if self._ema else []
        scale: LossScale | tuple[()] = ()
        if self._scaled:
            first = replicas.placed(np.array(FIRST, np.float32), self._everywhere)
            scale = LossScale(first, self._zero(np.int32))
        step = self._zero(np.int32)
        return TrainState(params, buffers, opt_state, ema, self.zeros(), scale, step)

    def zeros(self) -> Totals:
        """Return totals of 0, created on the host so that no program is compiled."""
        loss, *parts = [self._zero(np.float32) for _ in ("sum", *self._losses)]
        return Totals(loss, tuple(parts), self._zero(np.float32), self._zero(np.int32))

    def _zero(self, dtype: type) -> Any:
        return replicas.placed(np.zeros((), dtype), self._everywhere)

    def for_inference(self, state: TrainState) -> tuple[Arrays, Arrays]:
        """Return (params, buffers) for validation and inference, which are averages if enabled."""
        if not state.ema:
            return state.params, state.buffers
        statistics = iter(state.ema[len(state.params) :])
        return state.ema[: len(state.params)], [
            next(statistics) if moves else value
            for value, moves in zip(state.buffers, self.statistics, strict=True)
        ]

    def to_arrays(self, state: TrainState) -> dict[str, np.ndarray]:
        return dict(zip(self.names, map(np.asarray, jax.tree.leaves(state)), strict=True))

    def from_arrays(self, arrays: Mapping[str, np.ndarray], state: TrainState) -> TrainState:
        """Return a state with these arrays, placed on the same devices as the arrays of `state`."""
        leaves, structure = jax.tree.flatten(state)
        placed = [
            replicas.placed(arrays[name], leaf.sharding)
            for name, leaf in zip(self.names, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, placed)  # type: ignore[no-any-return]

    def with_own_scale(
        self, arrays: Mapping[str, np.ndarray], state: TrainState
    ) -> dict[str, np.ndarray]:
        """Return a checkpoint's arrays, adding or removing a loss scale to match `state`. A run can
        start in bfloat16 on a TPU and resume in float16 on a T4, or vice versa.
        """
        leaves = zip(self.names, jax.tree.leaves(state), strict=True)
        own = {name: np.asarray(leaf) for name, leaf in leaves if name.startswith(SCALE)}
        others = {name: array for name, array in arrays.items() if not name.startswith(SCALE)}
        return others | {name: arrays.get(name, array) for name, array in own.items()}

    def differing(self, arrays: Mapping[str, np.ndarray], state: TrainState) -> list[str]:
        """Return the names of arrays that only exist in `arrays` or only in `state`, or whose shape
        or dtype differs.
        """
        ours = zip(self.names, jax.tree.leaves(state), strict=True)
        wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in ours}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        return [name for name in wanted | found if wanted.get(name) != found.get(name)]

"""Train state: all that a step changes, on the devices and, as arrays by name, in a checkpoint."""

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

Arrays = list[Any]  # of JAX
SCALE = "loss_scale/"  # starts the names of the loss scale's arrays


class Totals(NamedTuple):
    """Sums over the examples of the epoch so far.

    Attributes:
        loss: float32.
        parts: float32 each, where the loss is a sum of several, in the order of their names.
        metric: float32, shown beside the loss: number of right answers, or sum of errors.
        count: int32, number of examples.
    """

    loss: Any
    parts: tuple[Any, ...]
    metric: Any
    count: Any


class TrainState(NamedTuple):
    """The state of a training, from which a step makes the next one.

    Attributes:
        params: the trainable weights, in the model's order.
        buffers: the other variables: BatchNorm's statistics, and states of random generators.
        opt_state: the optimizer's variables.
        ema: moving averages of the weights and statistics (`StateLayout.averaged`), if any.
        totals: of the epoch so far.
        scale: of the loss, in float16; otherwise ().
        step: int32, the number of steps done.
    """

    params: Arrays
    buffers: Arrays
    opt_state: Arrays
    ema: Arrays
    totals: Totals
    scale: LossScale | tuple[()]
    step: Any


class StateLayout:
    """The meaning of each array of a model's `TrainState`.

    Args:
        model, optimizer: of Keras, built.
        ema: keep moving averages.
        losses: the names of several losses that are added up; () with one loss.

    Attributes:
        names: of all arrays in their order, the same in every process that builds the model.
        keys: of params and buffers (`pipeline.models.weight_names`); "" of random generators.
        statistics: for each buffer, whether a step moves it as a mean over groups, as BatchNorm's
            statistics. False for a frozen one, whose bits the mean would change.
        seeds: for each buffer, whether it is the state of a random generator.
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
        """Return the arrays to average: the weights, and the statistics of the same steps."""
        moving = zip(buffers, self.statistics, strict=True)
        return [*params, *(value for value, moves in moving if moves)]

    def initial(self) -> TrainState:
        """Return the state before the first step, with the present weights of the model."""
        model, optimizer = self._model, self._optimizer
        kinds = model.trainable_variables, model.non_trainable_variables, optimizer.variables
        params, buffers, opt_state = ([one.value for one in variables] for variables in kinds)
        # A step reuses the memory of each array, so none may be in the state twice.
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
        """Return the totals of no examples. Computed on the devices they would need a program."""
        loss, *parts = [self._zero(np.float32) for _ in ("sum", *self._losses)]
        return Totals(loss, tuple(parts), self._zero(np.float32), self._zero(np.int32))

    def _zero(self, dtype: type) -> Any:
        return replicas.placed(np.zeros((), dtype), self._everywhere)

    def for_inference(self, state: TrainState) -> tuple[Arrays, Arrays]:
        """Return (params, buffers) for validation and inference: the averages, if there are any."""
        if not state.ema:
            return state.params, state.buffers
        statistics = iter(state.ema[len(state.params) :])
        return state.ema[: len(state.params)], [
            next(statistics) if moves else value
            for value, moves in zip(state.buffers, self.statistics, strict=True)
        ]

    def to_arrays(self, state: TrainState) -> dict[str, np.ndarray]:
        """Return every array of a state by name, copied from the devices."""
        return dict(zip(self.names, map(np.asarray, jax.tree.leaves(state)), strict=True))

    def from_arrays(self, arrays: Mapping[str, np.ndarray], state: TrainState) -> TrainState:
        """Return the state with these arrays, each placed like the same array of `state`."""
        leaves, structure = jax.tree.flatten(state)
        placed = [
            replicas.placed(arrays[name], leaf.sharding)
            for name, leaf in zip(self.names, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, placed)  # type: ignore[no-any-return]

    def with_own_scale(
        self, arrays: Mapping[str, np.ndarray], state: TrainState
    ) -> dict[str, np.ndarray]:
        """Return a checkpoint's arrays with a loss scale if `state` has one, else without: a run
        may start on a TPU, in bfloat16, and resume on a T4, in float16, or the other way round.
        """
        leaves = zip(self.names, jax.tree.leaves(state), strict=True)
        own = {name: np.asarray(leaf) for name, leaf in leaves if name.startswith(SCALE)}
        others = {name: array for name, array in arrays.items() if not name.startswith(SCALE)}
        return others | {name: arrays.get(name, array) for name, array in own.items()}

    def differing(self, arrays: Mapping[str, np.ndarray], state: TrainState) -> list[str]:
        """Return the names whose array is missing on one side, or has another shape or type."""
        ours = zip(self.names, jax.tree.leaves(state), strict=True)
        wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in ours}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        return [name for name in wanted | found if wanted.get(name) != found.get(name)]

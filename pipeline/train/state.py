"""Train state: everything that a step changes, on the devices, and as arrays by name in a
checkpoint.
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

Arrays = list[Any]  # of JAX
SCALE = "loss_scale/"  # starts the names of the loss scale's arrays


class Totals(NamedTuple):
    """Sums over the examples of the epoch so far.

    Attributes:
        loss: float32.
        parts: float32 each, of a loss that is a sum of several, in the order of their names.
        metric: float32, what is shown beside the loss: right answers, or a sum of errors.
        count: int32, examples.
    """

    loss: Any
    parts: tuple[Any, ...]
    metric: Any
    count: Any


class TrainState(NamedTuple):
    """What a step takes and returns.

    Attributes:
        params: the trainable weights, in the model's order.
        buffers: the other variables: BatchNorm's statistics, and seeds of what draws.
        opt_state: the optimizer's variables.
        ema: moving averages of the weights and statistics (`StateLayout.averaged`); empty: none.
        totals: of the epoch so far.
        scale: of the loss, in float16; (): it has none.
        step: int32, the steps done.
    """

    params: Arrays
    buffers: Arrays
    opt_state: Arrays
    ema: Arrays
    totals: Totals
    scale: LossScale | tuple[()]
    step: Any


class StateLayout:
    """What each array of a model's `TrainState` is.

    Args:
        model, optimizer: of Keras, built.
        ema: keep moving averages.
        losses: the names of several losses that are added up; () of one.

    Attributes:
        names: of all arrays in their order, the same in every process that builds the model.
        keys: of params and buffers as `pipeline.models.weight_names` has them; "" of seeds.
        statistics: for each buffer, whether a step moves it as a mean over groups: BatchNorm's
            statistics. A frozen one stays the same to the bit, which a mean over groups would not.
        seeds: for each buffer, whether it is the state of a generator of random numbers.
    """

    def __init__(
        self, model: Any, optimizer: Any, *, ema: bool, losses: Sequence[str] = ()
    ) -> None:
        self._model, self._optimizer, self._ema, self._losses = model, optimizer, ema, losses
        self._scaled = keras.config.dtype_policy().name == "mixed_float16"
        self._everywhere = optimizer.iterations.value.sharding  # a number on all devices
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
        """Return what an average is kept of: the weights, and the statistics, which belong to the
        weights that they were seen with.
        """
        moving = zip(buffers, self.statistics, strict=True)
        return [*params, *(value for value, moves in moving if moves)]

    def initial(self) -> TrainState:
        """Return the state before the first step, of the model's weights as they are now."""
        model, optimizer = self._model, self._optimizer
        kinds = model.trainable_variables, model.non_trainable_variables, optimizer.variables
        params, buffers, opt_state = ([one.value for one in variables] for variables in kinds)
        # A step takes the memory of each array, so none may be in the state twice.
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
        """Return the totals of no examples, put on the devices: to compute them there would be one
        more program to compile.
        """
        loss, *parts = [self._zero(np.float32) for _ in ("sum", *self._losses)]
        return Totals(loss, tuple(parts), self._zero(np.float32), self._zero(np.int32))

    def _zero(self, dtype: type) -> Any:
        return replicas.placed(np.zeros((), dtype), self._everywhere)

    def for_inference(self, state: TrainState) -> tuple[Arrays, Arrays]:
        """Return (params, buffers) to validate and infer with: averages where there are any."""
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
        """Return the state of these arrays, each where that of `state` is now."""
        leaves, structure = jax.tree.flatten(state)
        placed = [
            replicas.placed(arrays[name], leaf.sharding)
            for name, leaf in zip(self.names, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, placed)  # type: ignore[no-any-return]

    def with_own_scale(
        self, arrays: Mapping[str, np.ndarray], state: TrainState
    ) -> dict[str, np.ndarray]:
        """Return a checkpoint's arrays with a loss scale if this state has one: a run that began on
        a TPU, in bfloat16, may go on in float16 on a T4, and the other way round.
        """
        leaves = zip(self.names, jax.tree.leaves(state), strict=True)
        own = {name: np.asarray(leaf) for name, leaf in leaves if name.startswith(SCALE)}
        others = {name: array for name, array in arrays.items() if not name.startswith(SCALE)}
        return others | {name: arrays.get(name, array) for name, array in own.items()}

    def differing(self, arrays: Mapping[str, np.ndarray], state: TrainState) -> list[str]:
        """Return the names that only `arrays` or only a state has, and those whose shape or type
        differs.
        """
        ours = zip(self.names, jax.tree.leaves(state), strict=True)
        wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in ours}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        return [name for name in wanted | found if wanted.get(name) != found.get(name)]

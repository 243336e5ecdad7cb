"""The training step, which updates the state with one batch for any model and number of devices.

To customize training, edit `TrainStep.train_step` and the methods that it calls, which define the
whole weight update. You can also set `train_step` in a config to a function with the same
arguments. The code below these methods computes sums over a batch. These sums depend only on the
batch. Replicas and micro-batches only determine how it fits in memory.

- BatchNorm normalizes each group of `batchnorm_batch` images separately (ghost batches, Hoffer et
  al. 2017, 1705.08741) and updates its statistics with the mean over all groups.
- Augmentation and dropout derive their random numbers from (seed, step, index in the batch).
- A custom loss that compares rows, as contrastive and ranking losses do, or that uses random
  numbers receives the outputs and labels of whole groups. Custom mixing also receives whole groups.

One replica with many micro-batches therefore computes the same sums as eight replicas with one
micro-batch each, except for the order of additions. If a group is larger than a replica's part of
the batch, it spans several replicas, which then all-reduce BatchNorm's sums.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import PartitionSpec

from pipeline.augment import mixup
from pipeline.augment.augmentation import Augmentation
from pipeline.augment.streams import Stream
from pipeline.config import Config, custom_code
from pipeline.data import labels as target
from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.evaluate import losses
from pipeline.models import architectures, group_layers
from pipeline.runtime import devices, replicas
from pipeline.train import custom_check, layer_rates, phases
from pipeline.train.learning_rate import Applied, schedule
from pipeline.train.loss_scale import LossScale, all_finite
from pipeline.train.optimizer import optimizer
from pipeline.train.phases import Phase
from pipeline.train.state import Arrays, StateLayout, Totals, TrainState

# A step with fewer than QUICK_STEP multiplications per replica takes about a millisecond, so the
# host's overhead matters. Up to MOST_STEPS of these steps therefore share a call, but an epoch is
# still split into at least CALLS_PER_EPOCH calls, if it has enough steps.
QUICK_STEP, MOST_STEPS, CALLS_PER_EPOCH = 2**24, 16, 4


class Batch(NamedTuple):
    """The input of a step.

    Attributes:
        inputs: (batch, …), or int32 row indices (batch,) if all inputs are on the devices.
        labels: (batch, …), or `Weighted`.
        draws: random numbers for the augmentation, int32 (batch, k).
    """

    inputs: Any
    labels: Any
    draws: Any


class Examples(NamedTuple):
    """An augmented micro-batch.

    Attributes:
        inputs: augmented inputs (n, …). labels: their `Weighted` labels.
        other_labels: labels of the examples that are mixed in; None without mixing.
        share: each example's fraction of its mixture, float32 (n,).
        places: indices in the batch, int32 (n,).
    """

    inputs: Any
    labels: Any
    other_labels: Any
    share: Any
    places: Any

    @property
    def weights(self) -> Any:
        """The loss weight of each example, float32 (n,). Mixtures have mixed weights."""
        if self.share is None:
            return self.labels.weights
        return self.share * self.labels.weights + (1 - self.share) * self.other_labels.weights


class Computed(NamedTuple):
    """The model's results for a micro-batch.

    Attributes:
        outputs: float32 (n, …). extra: the model's additional outputs, by name.
        statistics: BatchNorm's updated statistics.
        penalty: sum of the losses added by layers.
    """

    outputs: Any
    extra: dict[str, Any]
    statistics: list[Any]
    penalty: Any


class Sums(NamedTuple):
    """Sums over the images of a micro-batch or batch (see `Totals`)."""

    loss: Any
    parts: tuple[Any, ...]
    metric: Any
    statistics: list[Any]


class Report(NamedTuple):
    """The totals, the last learning rate, and the loss scale (if any) after a call."""

    totals: Totals
    learning_rate: Any
    scale: LossScale | tuple[()]


class TrainStep:
    """The jitted training and evaluation functions of a built model.

    Args:
        mesh: JAX mesh with the axis `replicas.AXIS`; None for a single device.

    Attributes:
        replicas: number of accelerator cores that split the work.
        micro_batch: number of images that a replica computes at a time, which divides its part of
            the batch.
        phase: phase of the next calls. Initially, all weights are trained on full-size
            images.
        models: one model per image size (`phases.models`).
        together: number of images that the loss receives together; None if the loss of each image
            is independent.
    """

    def __init__(self, config: Config, applied: Applied, model: Any, mesh: Any) -> None:
        self.config, self.applied, self.model, self.mesh = config, applied, model, mesh
        self.optimizer = optimizer(config, applied, model.trainable_variables)
        self.optimizer.build(model.trainable_variables)
        self.losses, compares = custom_check.tried_loss(config, model)
        averages = config.optimizer.averages
        self.layout = StateLayout(model, self.optimizer, ema=averages, losses=self.losses)
        self._schedule = schedule(config, applied)
        self._rate_factors = layer_rates.factors(model, config)
        self._stays = layer_rates.frozen(model, config)
        self.models = phases.models(config, model, applied.batchnorm_momentum)
        self.phase = Phase(frozen=False, size=len(config.progressive))
        self._matmul = devices.matmul_precision(keras.config.dtype_policy().name)
        self.replicas, self._platform = mesh.size if mesh else 1, replicas.platform(mesh)
        self._group, self._share = applied.batchnorm_batch, per_replica(config, self.replicas)
        # Groups span several replicas unless they evenly divide a replica's part.
        self._axis = replicas.AXIS if mesh and self._share % self._group else None
        custom = custom_code.function
        changes = custom(config, "augment"), custom(config, "augment_batch")
        self.augmentation = Augmentation(config.data, config.seed, config.batch, *changes)
        custom_step = custom(config, "train_step")
        self._step = partial(custom_step, self) if custom_step else self.train_step
        self.together = self._group if compares else None
        grouped = self._group if compares or group_layers.normalizes(model) else 1
        self._sizes = micro_batches(config, self.replicas, grouped)
        self.micro_batch = self._sizes[0]
        self._programs: dict[Phase, Any] = {}
        self.steps_per_call = steps_per_call(config, applied, model, self._share)
        where = replicas.everywhere(mesh)
        self.evaluate = jax.jit(self._exact(self._evaluated), out_shardings=where)
        self.forward = jax.jit(self._exact(self._outputs), out_shardings=where)

    @property
    def smaller(self) -> list[int]:
        return self._sizes[self._sizes.index(self.micro_batch) + 1 :]

    def use(self, smaller: int) -> bool:
        possible = smaller in self.smaller
        if possible:
            self.micro_batch, self._programs = smaller, {}
        return possible

    def train(
        self, state: TrainState, held: tuple[Any, ...], batches: Batch, number: int
    ) -> tuple[TrainState, Report]:
        """Run `number` steps and return the resulting state and report. The first call compiles.

        Args:
            state: current state, whose memory is reused for the new one.
            held: (inputs,) if all inputs are on the devices, else ().
            batches: `steps_per_call` batches, stacked along a new first axis.
        """
        if self.phase not in self._programs:
            self._programs[self.phase] = self.lowered(state, held, batches).compile()
        program = self._programs[self.phase]
        return program(state, held, batches, np.int32(number))  # type: ignore[no-any-return]

    def lowered(self, state: Any, held: Any, batches: Batch) -> Any:
        """Return the training step for these arrays, lowered by JAX but not compiled."""
        # The new state has the same sharding, so XLA can write it over the old one.
        places = jax.tree.map(lambda leaf: leaf.sharding, state), None
        steps = self._exact(self._train_steps)
        train = jax.jit(steps, donate_argnums=0, out_shardings=places, keep_unused=True)
        return train.lower(state, held, batches, np.int32(0))

    def _exact(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def traced(*args: Any) -> Any:
            with jax.default_matmul_precision(self._matmul):
                return function(*args)

        return traced

    # Functions traced by JAX

    def train_step(self, state: TrainState, batch: Batch, held: tuple[Any, ...]) -> TrainState:
        """Return the state after one step.

        Args:
            held: (inputs,) if all inputs are on the devices, else ().
        """
        grads, sums = self.gradients(state, batch, held)
        return self.update(state, grads, sums)

    def gradients(
        self,
        state: TrainState,
        batch: Batch,
        held: tuple[Any, ...],
        params: Any = None,
        loss_fn: Callable[..., Any] | None = None,
    ) -> tuple[Arrays, Sums]:
        """Return the mean gradient over a batch, and the sums returned by `loss_fn`.

        Both include all micro-batches, and are the same on each replica.

        Args:
            params: weights at which to compute the gradient; None to use the state's weights.
            loss_fn: function like `TrainStep.loss_fn`, which is the default.
        """
        loss_of, size = loss_fn or self.loss_fn, self.config.batch

        def minimized(params: Any, state: TrainState, examples: Examples) -> tuple[Any, Sums]:
            if self.phase.frozen:  # skip the gradients of frozen weights
                params = self._choose(jax.lax.stop_gradient(params), params)
            loss, sums = loss_of(params, state, examples)
            if state.scale:  # divide first, since the sum could overflow in float16
                loss *= state.scale.value / size
            return loss, sums

        params = state.params if params is None else params
        grads, sums = self._over_the_batch(minimized, params, state, batch, held)
        divisor = state.scale.value if state.scale else size
        return [grad / divisor for grad in grads], sums

    def _choose(self, frozen: Arrays, rest: Arrays) -> Arrays:
        """Return one array per weight. The array comes from `frozen` if `frozen_epochs` freezes the
        weight, and otherwise from `rest`.
        """
        return [a if stays else b for a, b, stays in zip(frozen, rest, self._stays, strict=True)]

    def loss_fn(self, params: Any, state: TrainState, examples: Examples) -> tuple[Any, Sums]:
        """Return the loss to minimize, summed over a micro-batch, and the sums to report. The
        gradient is computed with respect to `params`.
        """
        return self.loss_of(self.compute(params, state.buffers, examples), examples, state)

    def loss_of(
        self, computed: Computed, examples: Examples, state: TrainState
    ) -> tuple[Any, Sums]:
        """Return the same values as `loss_fn`, computed from the model's results."""
        losses, metrics = self._losses(examples, computed, state.step)
        # Losses added by layers are means over images, as in Keras.
        number, loss = len(examples.places), _added(losses).sum()
        parts = tuple(losses[name].sum() for name in self.losses)
        sums = Sums(loss, parts, metrics.sum(), [each * number for each in computed.statistics])
        return loss + computed.penalty * number, sums

    def update(self, state: TrainState, grads: Arrays, sums: Sums) -> TrainState:
        """Apply the gradients and return the next state. With float16, a step with non-finite
        gradients does not change any weights (`pipeline.train.loss_scale`).
        """
        if not state.scale:
            return self._updated(state, grads, sums)
        finite = all_finite(grads)
        after: TrainState = jax.lax.cond(
            state.scale.skips(finite),
            lambda: self._skipped(state),
            lambda: self._updated(state, grads, sums),
        )
        return after._replace(scale=state.scale.after(finite))

    def _skipped(self, state: TrainState) -> TrainState:
        opt_state = [
            value + 1 if variable is self.optimizer.iterations else value
            for variable, value in zip(self.optimizer.variables, state.opt_state, strict=True)
        ]
        return state._replace(opt_state=opt_state, step=state.step + 1)

    def _updated(self, state: TrainState, grads: Arrays, sums: Sums) -> TrainState:
        size = self.config.batch
        params, opt_state = self.optimizer.stateless_apply(state.opt_state, grads, state.params)
        # With SGD, Adam and AdamW, updates are proportional to the learning rate, so scaling an
        # update is the same as scaling the learning rate.
        params = [
            new if factor is None else old + factor * (new - old)
            for old, new, factor in zip(state.params, params, self._shares(state.step), strict=True)
        ]
        if self.phase.frozen:
            params = self._choose(state.params, params)
        moved = iter(value / size for value in sums.statistics)
        buffers = [  # random generator states are incremented by one
            next(moved) if moves else (value + jnp.array([0, 1], value.dtype) if seed else value)
            for value, moves, seed in zip(
                state.buffers, self.layout.statistics, self.layout.seeds, strict=True
            )
        ]
        ema = self._averages(state, params, buffers)
        new = Totals(sums.loss, sums.parts, sums.metric, jnp.int32(size))
        totals = jax.tree.map(lambda old, new: old + new.astype(old.dtype), state.totals, new)
        return TrainState(params, buffers, opt_state, ema, totals, state.scale, state.step + 1)

    def _averages(self, state: TrainState, params: Arrays, buffers: Arrays) -> Arrays:
        if not state.ema:
            return []
        if self.applied.swa_step is None:
            # The average starts from random weights, which would still affect a long average at the
            # end of a short run. The momentum is therefore limited as in TensorFlow's
            # ExponentialMovingAverage(num_updates).
            ramp = (1.0 + state.step) / (10.0 + state.step)
            momentum = jnp.minimum(self.applied.ema_momentum, ramp)  # type: ignore[arg-type]
        else:
            # Extend the mean of n sets of weights to n + 1. Before swa_step, use the current
            # weights. A step that is skipped in float16 counts as if its weights were equal to the
            # mean.
            number = jnp.maximum(state.step - self.applied.swa_step, 0)
            momentum = number / (1.0 + number)
        values = self.layout.averaged(params, buffers)
        return [momentum * a + (1 - momentum) * v for a, v in zip(state.ema, values, strict=True)]

    def _shares(self, step: Any) -> list[Any]:
        """Return the learning rate factor of each weight, or None where it is 1.

        Adam's bias correction depends on its step count. Weights that were frozen at first have
        been trained for fewer steps, so their first updates would be three times too large.
        """
        factors, applied = self._rate_factors or [1] * len(self._stays), self.applied
        shares: list[Any] = [None if factor == 1 else factor for factor in factors]
        late = applied.frozen_steps
        if late and not self.phase.frozen and applied.optimizer in ("adam", "adamw"):

            def correction(steps: Any) -> Any:
                first, second = (
                    1 - jnp.float32(beta) ** steps.astype(jnp.float32)
                    for beta in (applied.beta_1, applied.beta_2)
                )
                return jnp.sqrt(second) / first

            # At least 1, since the check of custom functions starts with all weights unfrozen.
            ratio = correction(jnp.maximum(step + 1 - late, 1)) / correction(step + 1)
            own = [(1.0 if share is None else share) * ratio for share in shares]
            shares = self._choose(own, shares)
        return shares

    def _train_steps(
        self, state: TrainState, held: tuple[Any, ...], batches: Batch, number: Any
    ) -> tuple[TrainState, Report]:
        def body(state: TrainState, part: tuple[Any, Batch]) -> tuple[TrainState, None]:
            place, batch = part
            after = jax.lax.cond(
                place < number, lambda: self._step(state, batch, held), lambda: state
            )
            return after, None

        steps = len(batches.inputs)
        if steps == 1:
            state = self._step(state, jax.tree.map(lambda array: array[0], batches), held)
        else:
            state, _ = jax.lax.scan(body, state, (jnp.arange(steps), batches))
        # Copy them, since the next step reuses the state's memory.
        totals, scale = jax.tree.map(jnp.copy, (state.totals, state.scale))
        return state, Report(totals, self._schedule(state.step - 1), scale)

    def _over_the_batch(
        self, loss_fn: Any, params: Any, state: TrainState, batch: Batch, held: tuple[Any, ...]
    ) -> Any:
        grad_fn = jax.grad(loss_fn, has_aux=True)
        if self.mesh is None:
            if held:
                rows = jnp.take(held[0], batch.inputs, axis=0, mode="clip")
                batch = batch._replace(inputs=rows)
            return self._over_micro_batches(partial(grad_fn, params, state), batch, 0)
        every, split = PartitionSpec(), PartitionSpec(replicas.AXIS)  # type: ignore[no-untyped-call]

        def of_replica(at: Any, held: Any, inputs: Any, rest: Any) -> Any:
            first = jax.lax.axis_index(replicas.AXIS) * self._share
            share = Batch(replicas.gathered(held[0], inputs) if held else inputs, *rest)
            sums = self._over_micro_batches(partial(grad_fn, *at), share, first)
            return replicas.added_up(sums, self._platform)

        # The sums are replicated after psum, but JAX cannot verify that.
        return jax.shard_map(
            of_replica,
            mesh=self.mesh,
            in_specs=(every, split, every if held else split, split),
            out_specs=every,
            check_vma=False,
        )((params, state), held, batch.inputs, tuple(batch[1:]))

    def _over_micro_batches(self, grad_fn: Callable[..., Any], share: Batch, first: Any) -> Any:
        number = self._share // self.micro_batch
        examples = self._augmented(share, first + jnp.arange(self._share))
        shape = self.models[self.phase.size].inputs[0].shape
        examples = examples._replace(inputs=phases.resized(examples.inputs, shape))
        if number == 1:
            return grad_fn(examples)
        parts = jax.tree.map(lambda a: a.reshape(number, -1, *a.shape[1:]), examples)
        part = jax.tree.map(lambda array: array[0], parts)
        shapes = jax.eval_shape(grad_fn, part)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def add(sums: Any, part: Examples) -> Any:
            return jax.tree.map(jnp.add, sums, grad_fn(part)), None

        # On a CPU, XLA only optimizes convolutions outside of loops (docs/dev/findings.md). Only
        # loops free memory between micro-batches, so a loop is used after running out of memory.
        loops = self._platform != "cpu" or self.micro_batch != self._sizes[0]
        total, _ = jax.lax.scan(add, zeros, parts, unroll=1 if loops else number)
        return total

    def _augmented(self, share: Batch, places: Any) -> Examples:
        (inputs, labels, draws), shares = share, None
        if not isinstance(labels, Weighted):  # all rows have the weight 1
            labels = Weighted(labels, jnp.ones(len(labels), jnp.float32))
        if self.config.target != "custom":
            inputs, shares = self.augmentation.applied(inputs, draws)
        elif self.augmentation.custom:  # custom labels are augmented together with their inputs
            inputs, truth = self.augmentation.changed(inputs, draws, labels.labels)
            labels = labels._replace(labels=truth)
        others = None if shares is None else jax.tree.map(mixup.neighbours, labels)
        return self._mixed(Examples(inputs, labels, others, shares, places), draws)

    def _mixed(self, examples: Examples, draws: Any) -> Examples:
        if not self.augmentation.custom_mix:
            return examples

        def of_group(inputs: Any, labels: Weighted, draws: Any) -> Any:
            inputs, truth, mixture = self.augmentation.mixed(inputs, labels.labels, draws)
            labels = labels._replace(labels=truth)
            if mixture is None:
                return inputs, labels, None, None
            partners, share = mixture
            return inputs, labels, jax.tree.map(lambda array: array[partners], labels), share

        rows = examples.inputs, examples.labels, draws
        inputs, labels, others, share = self._by_group(of_group, rows, self._axis)
        return Examples(inputs, labels, others, share, examples.places)

    def _by_group(self, function: Callable[..., Any], rows: Any, axis: str | None) -> Any:
        """Apply a function to whole groups and return its results for this replica's rows.

        The function maps arrays (group, …) to arrays of the same length. The rows are arrays
        (n, …). If `axis` is None, each replica has whole groups; otherwise, groups are spread over
        this mesh axis.
        """
        number = len(jax.tree.leaves(rows)[0])
        if axis is not None:
            rows = jax.lax.all_gather(rows, axis, tiled=True)
        parts = jax.tree.map(lambda a: a.reshape(-1, self._group, *a.shape[1:]), rows)
        values = jax.vmap(function)(*parts)
        values = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), values)
        if axis is None:
            return values
        first = jax.lax.axis_index(axis) * number
        return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, number), values)

    def compute(
        self, params: Any, buffers: Any, examples: Examples, *, training: bool = True, draw: int = 0
    ) -> Computed:
        """Return the model's results for a micro-batch within a step.

        Args:
            params, buffers: from the state, or averages (`layout.for_inference`).
            training: whether to run in training or inference mode.
            draw: seed for dropout; the same number drops the same units.
        """
        if draw:  # fold in a number larger than any index in the batch
            buffers = [
                group_layers.folded(value, 2**32 - 1 - draw) if seed else value
                for value, seed in zip(buffers, self.layout.seeds, strict=True)
            ]
        groups, model = self.config.batch // self._group, self.models[self.phase.size]
        part = group_layers.MicroBatch(examples.places, self._group, groups, self._axis)
        with group_layers.computing(model, part):
            every, after, added = model.stateless_call(
                params, buffers, examples.inputs, training=training, return_losses=True
            )
        outputs, extra = _float32(every)
        moving = zip(after, self.layout.statistics, strict=True)
        return Computed(outputs, extra, [value for value, moves in moving if moves], sum(added))

    def _losses(
        self, examples: Examples, computed: Computed, step: Any
    ) -> tuple[dict[str, Any], Any]:
        """Return the losses by name and the metric, each with shape (n,).

        The loss of a mixture is the weighted sum of its two examples' losses. A mixture has the
        class of the example with the larger fraction.
        """
        loss, (outputs, extra, *_) = self._loss(training=True, step=step), computed

        def weighted(labels: Weighted) -> Any:
            values = loss(labels.labels, outputs, extra, examples.places, self._axis)
            return jax.tree.map(lambda each: labels.weights * each, values)

        each, truth, share = weighted(examples.labels), examples.labels.labels, examples.share
        if share is not None:
            theirs, others = weighted(examples.other_labels), examples.other_labels.labels
            if self.config.target == "classes":
                truth, others = target.codes(truth), target.codes(others)
            each = jax.tree.map(
                lambda ours, other: share * ours + (1 - share) * other, each, theirs
            )
            if self.config.target != "custom" and truth.ndim > 1:
                truth = share[:, None] * truth + (1 - share[:, None]) * others
            elif self.config.target != "custom":
                truth = jnp.where(share >= 0.5, truth, others)
        return each, target.figure(self.config.target, truth, outputs)

    def _loss(self, *, training: bool, step: Any = None) -> Callable[..., dict[str, Any]]:
        """Return the loss as a function of labels, outputs, extra outputs, indices in the batch,
        and the axis over which groups are spread.
        """
        loss = losses.of(self.config, training=training)
        draws = step is not None and losses.KEY in losses.asked(self.config)

        def of_group(labels: Any, outputs: Any, extra: Any, places: Any) -> Any:
            key = None
            if draws:
                key = jax.random.key(self.config.seed, impl="threefry2x32")
                for number in (Stream.CUSTOM_LOSS, step, places[0] // self._group):
                    key = jax.random.fold_in(key, number)
            return loss(labels, outputs, extra, key)

        def each(labels: Any, outputs: Any, extra: Any, places: Any, axis: str | None) -> Any:
            if self.together is None:
                return loss(labels, outputs, extra, None)
            return self._by_group(of_group, (labels, outputs, extra, places), axis)

        return each

    def _outputs(self, params: Any, buffers: Any, inputs: Any) -> Any:
        return self._all_outputs(params, buffers, inputs)[0]

    def _all_outputs(self, params: Any, buffers: Any, inputs: Any) -> tuple[Any, dict[str, Any]]:
        outputs, _ = self.model.stateless_call(params, buffers, inputs, training=False)
        return _float32(outputs)

    def _evaluated(
        self, params: Any, buffers: Any, inputs: Any, labels: Any, real: Any
    ) -> tuple[Any, Any, Any]:
        """Return the sums of the loss and the metric (`pipeline.data.labels`) over the first `real`
        rows of a batch. The other rows are padding. The third value is the batch's outputs if
        epochs are compared, and otherwise None.
        """
        outputs, extra = self._all_outputs(params, buffers, inputs)
        places = jnp.arange(labels.shape[0])
        counts = places < real
        # During validation, groups are never split over replicas.
        each = _added(self._loss(training=False)(labels, outputs, extra, places, None))
        metrics = target.figure(self.config.target, labels, outputs)
        loss, metric = (jnp.where(counts, values, 0).sum() for values in (each, metrics))
        return loss, metric, outputs if self.config.compares_epochs else None


def per_replica(config: Config, replicas: int) -> int:
    unit = 2 * replicas if config.data.mixup or config.data.cutmix else replicas
    if config.batch % unit:
        below = config.batch // unit * unit
        raise ConfigError(
            f"batch={config.batch} cannot be split evenly over {replicas} replicas"
            f" ({config.batch / replicas:g} {config.data.noun} each); expected a whole number,"
            " which must be even with data.mixup or data.cutmix.\n"
            f"Set batch to {below or unit} or {below + unit} in pipeline/configs/{config.name}.py."
        )
    return config.batch // replicas


def micro_batches(config: Config, replicas: int, group: int) -> list[int]:
    """Return the micro-batch sizes to try, from largest to smallest.

    The first size is `config.micro_batch` if it is set, and otherwise a replica's part of the
    batch. Each subsequent size is at most half of the previous one and divides this part evenly.
    The size does not affect results. `group` is the number of images that must be computed together
    for BatchNorm or a loss that compares rows, or 1 if they are independent.
    """
    whole = config.batch // replicas
    asked = whole if config.micro_batch is None else min(config.micro_batch, whole)
    parts = [n for n in range(whole - 1, 0, -1) if whole % n == 0 and n % group == 0]
    sizes, tried = [whole, *parts], [asked]
    if asked not in sizes:
        raise ConfigError(
            f"micro_batch={asked} is invalid with batch={config.batch} on {replicas} replica(s) and"
            f" groups of {group}; expected one of {', '.join(map(str, sizes))}.\n"
            f"Set micro_batch in pipeline/configs/{config.name}.py to one of these, or to None."
        )
    for size in sizes:
        if 2 * size <= tried[-1]:
            tried.append(size)
    return tried


def steps_per_call(config: Config, applied: Applied, model: Any, share: int) -> int:
    """Return the maximum number of steps per call to the devices.

    This number depends only on the model and the data, so every session compiles the same program.
    Models with convolutions or attention, whose weights have more than two axes, run one step per
    call.
    """
    dense = all(len(weight.shape) <= 2 for weight in model.weights)
    if not dense or model.count_params() * share > QUICK_STEP:
        return 1
    return min(max(applied.total_steps // config.epochs // CALLS_PER_EPOCH, 1), MOST_STEPS)


def _added(losses: dict[str, Any]) -> Any:
    first, *rest = losses.values()
    return sum(rest, first)


def _float32(outputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return a model's outputs and its extra outputs by name, converted to at least float32."""
    every = architectures.parted(outputs)
    outputs, extra = jax.tree.map(
        lambda a: a.astype(jnp.promote_types(a.dtype, jnp.float32)), every
    )
    return outputs, extra

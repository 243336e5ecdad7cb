"""The training step: what one batch changes, for any model and any number of devices.

To change how a run trains, change `TrainStep.train_step`: it is the whole update of the weights.
Below it stands how the sums over a batch are computed. The batch alone decides the result; replicas
and micro-batches decide only how it fits.

- BatchNorm normalizes each group of `batchnorm_batch` images by itself (ghost batches, Hoffer et
  al. 2017, 1705.08741) and moves its statistics by the mean over groups.
- Augmentation and dropout draw from (seed, step, place in the batch).
- A custom loss that compares rows (contrastive, of ranks) gets the outputs and labels of whole
  groups.

So the result is the same sum over images, whether one replica adds it up in many micro-batches
(gradient accumulation) or eight do it in one: only the order of additions differs. Each replica
adds up its own images, and one all-reduce adds up the replicas. A group that is larger than a
replica's share of the batch spans several replicas, which then all-reduce BatchNorm's sums.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import PartitionSpec

from pipeline.augment import mixup
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config, custom_code
from pipeline.data import labels as target
from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.evaluate import losses
from pipeline.models import group_layers
from pipeline.runtime import devices, replicas
from pipeline.train import custom_check
from pipeline.train.learning_rate import Applied, schedule
from pipeline.train.optimizer import learning_rate_factors, optimizer
from pipeline.train.state import StateLayout, Totals, TrainState

# A step of fewer multiplications than this, on a replica, takes about a millisecond, and then the
# host's part of a call counts. Several steps share a call, if an epoch still has some calls.
QUICK_STEP, MOST_STEPS, CALLS_PER_EPOCH = 2**24, 16, 4


class Batch(NamedTuple):
    """What a step takes.

    Attributes:
        inputs: (batch, …); where inputs lie on the devices their rows, int32 (batch,).
        labels: (batch, …), or `Weighted`.
        draws: int32 (batch, k), the numbers that augmentation drew.
    """

    inputs: Any
    labels: Any
    draws: Any


class Examples(NamedTuple):
    """A micro-batch, augmented.

    Attributes:
        inputs: (n, …). labels: `Weighted`, (n, …).
        other_labels: of what each example is mixed with; None: nothing is mixed.
        share: float32 (n,), how much of each mixture is the example's own.
        places: int32 (n,), in the batch.
    """

    inputs: Any
    labels: Any
    other_labels: Any
    share: Any
    places: Any


class Report(NamedTuple):
    """The totals after a call, and the learning rate of its last step, copied."""

    totals: Totals
    learning_rate: Any


class TrainStep:
    """The jitted training and evaluation of a built model.

    Args:
        config, applied: the run and its numbers.
        model: of Keras, built.
        mesh: of JAX, with the axis `replicas.AXIS`; None for one device.

    Attributes:
        layout: what each array of a state is.
        optimizer: of Keras.
        replicas: accelerator cores that share the work.
        micro_batch: images per forward and backward pass on one replica: all of its share of the
            batch, or a part; the parts are added up.
        steps_per_call: the most steps of a call to the devices.
        together: images that the loss compares; None: it is that of each by itself.
        evaluate: `_evaluated`, jitted. forward: from weights and inputs to outputs, jitted.

    Raises:
        ConfigError: if the batch does not split as the config asks.
    """

    def __init__(self, config: Config, applied: Applied, model: Any, mesh: Any) -> None:
        self.config, self.applied, self.model, self.mesh = config, applied, model, mesh
        self.optimizer = optimizer(applied, model.trainable_variables)
        self.optimizer.build(model.trainable_variables)
        self.layout = StateLayout(model, self.optimizer, ema=applied.ema_momentum is not None)
        self._schedule = schedule(applied)
        self._rate_factors = learning_rate_factors(model, config)
        self._matmul = devices.matmul_precision(keras.config.dtype_policy().name)
        self.replicas, self._platform = mesh.size if mesh else 1, replicas.platform(mesh)
        self._group, self._share = applied.batchnorm_batch, per_replica(config, self.replicas)
        # Groups that end within a replica's share spread over several replicas.
        self._axis = replicas.AXIS if mesh and self._share % self._group else None
        custom = custom_code.function(config, "augment")
        self.augmentation = Augmentation(config.data, config.seed, config.batch, custom)
        compares = custom_check.compares_rows(config, tuple(model.output.shape[1:]))
        self.together = self._group if compares else None
        grouped = self._group if compares or group_layers.normalizes(model) else 1
        self._sizes = micro_batches(config, self.replicas, grouped)
        self.micro_batch = self._sizes[0]
        self._program: Any = None
        self.steps_per_call = steps_per_call(config, applied, model, self._share)
        where = replicas.everywhere(mesh)
        self.evaluate = jax.jit(self._exact(self._evaluated), out_shardings=where)
        self.forward = jax.jit(self._exact(self._outputs), out_shardings=where)

    @property
    def smaller(self) -> list[int]:
        """The smaller micro-batches, in the order to try them."""
        return self._sizes[self._sizes.index(self.micro_batch) + 1 :]

    def use(self, smaller: int) -> bool:
        """Take smaller micro-batches, which need less memory; return whether they are possible."""
        possible = smaller in self.smaller
        if possible:
            self.micro_batch, self._program = smaller, None
        return possible

    def train(
        self, state: TrainState, held: tuple[Any, ...], batches: Batch, number: int
    ) -> tuple[TrainState, Report]:
        """Take `number` steps, and return the state after them. The first call compiles.

        Args:
            state: its memory is that of the new state afterwards.
            held: the inputs that lie on the devices, if they do.
            batches: of `steps_per_call` steps, each array with one axis more in front.
            number: at most that many.
        """
        if self._program is None:
            self._program = self.lowered(state, held, batches).compile()
        return self._program(state, held, batches, np.int32(number))  # type: ignore[no-any-return]

    def lowered(self, state: Any, held: Any, batches: Batch) -> Any:
        """Return the training step for such arrays as JAX lowers it, not compiled."""
        # XLA may write the new state over the old one; it stays where it is, on all devices.
        places = jax.tree.map(lambda leaf: leaf.sharding, state), None
        steps = self._exact(self._train_steps)
        train = jax.jit(steps, donate_argnums=0, out_shardings=places, keep_unused=True)
        return train.lower(state, held, batches, np.int32(0))

    def _exact(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that multiplies float32 in float32, if that is the policy."""

        @wraps(function)
        def traced(*args: Any) -> Any:
            with jax.default_matmul_precision(self._matmul):
                return function(*args)

        return traced

    # What is compiled

    def train_step(self, state: TrainState, batch: Batch, held: tuple[Any, ...]) -> TrainState:
        """Return the state after one step.

        Everything here is traced by JAX. `_over_the_batch` adds up gradients and sums over all
        micro-batches and replicas, so what follows it runs once, on whole numbers of the batch, the
        same on each replica.
        """
        size = self.config.batch

        def loss_fn(params: Any, state: TrainState, examples: Examples) -> tuple[Any, Any]:
            """Return what is minimized, summed over a micro-batch, and the sums that are reported:
            of the loss, of the metric, and of BatchNorm's moved statistics. The gradient is by
            `params` alone.
            """
            outputs, statistics, penalty = self._forward(params, state.buffers, examples)
            losses, metrics = self._losses(examples, outputs)
            # What a layer adds to the loss is a mean over images, as in Keras.
            number, loss = len(examples.places), losses.sum()
            sums = loss, metrics.sum(), [value * number for value in statistics]
            return loss + penalty * number, sums

        grads, (loss, metric, statistics) = self._over_the_batch(loss_fn, state, batch, held)
        grads = [grad / size for grad in grads]
        params, opt_state = self.optimizer.stateless_apply(state.opt_state, grads, state.params)
        if self._rate_factors:
            # What a step adds is the learning rate times something, with SGD, Adam and AdamW alike.
            # So a share of it is a smaller learning rate.
            params = [
                new if factor == 1 else old + factor * (new - old)
                for old, new, factor in zip(state.params, params, self._rate_factors, strict=True)
            ]
        moved = iter(value / size for value in statistics)
        buffers = [  # a generator of random numbers moves on by one
            next(moved) if moves else (value + jnp.array([0, 1], value.dtype) if seed else value)
            for value, moves, seed in zip(
                state.buffers, self.layout.statistics, self.layout.seeds, strict=True
            )
        ]
        ema = state.ema
        if ema:
            # The average begins at random weights, which a long one would keep to the end of a
            # short run. TensorFlow's rule for ExponentialMovingAverage(num_updates) forgets them
            # first.
            ramp = (1.0 + state.step) / (10.0 + state.step)
            momentum = jnp.minimum(self.applied.ema_momentum, ramp)  # type: ignore[arg-type]
            values = self.layout.averaged(params, buffers)
            ema = [momentum * a + (1 - momentum) * v for a, v in zip(ema, values, strict=True)]
        sums = loss, metric, jnp.int32(size)
        totals = (old + new.astype(old.dtype) for old, new in zip(state.totals, sums, strict=True))
        return TrainState(params, buffers, opt_state, ema, Totals(*totals), state.step + 1)

    def _train_steps(
        self, state: TrainState, held: tuple[Any, ...], batches: Batch, number: Any
    ) -> tuple[TrainState, Report]:
        def body(state: TrainState, part: tuple[Any, Batch]) -> tuple[TrainState, None]:
            place, batch = part
            after = jax.lax.cond(
                place < number, lambda: self.train_step(state, batch, held), lambda: state
            )
            return after, None

        steps = len(batches.inputs)
        if steps == 1:
            state = self.train_step(state, jax.tree.map(lambda array: array[0], batches), held)
        else:
            state, _ = jax.lax.scan(body, state, (jnp.arange(steps), batches))
        # The totals are copied, since the next step takes the state's memory.
        totals = jax.tree.map(jnp.copy, state.totals)
        return state, Report(totals, self._schedule(state.step - 1))

    def _over_the_batch(
        self, loss_fn: Callable[..., Any], state: TrainState, batch: Batch, held: tuple[Any, ...]
    ) -> Any:
        """Return gradients, and `loss_fn`'s sums, over all images of a batch, on every replica."""
        grad_fn = jax.grad(loss_fn, has_aux=True)
        if self.mesh is None:
            if held:
                rows = jnp.take(held[0], batch.inputs, axis=0, mode="clip")
                batch = batch._replace(inputs=rows)
            return self._over_micro_batches(grad_fn, state, batch, 0)
        every, split = PartitionSpec(), PartitionSpec(replicas.AXIS)  # type: ignore[no-untyped-call]

        def of_replica(state: TrainState, held: Any, inputs: Any, rest: Any) -> Any:
            first = jax.lax.axis_index(replicas.AXIS) * self._share
            share = Batch(replicas.gathered(held[0], inputs) if held else inputs, *rest)
            sums = self._over_micro_batches(grad_fn, state, share, first)
            return replicas.added_up(sums, self._platform)

        # After psum the sums are the same on every replica, which JAX need not prove.
        return jax.shard_map(
            of_replica,
            mesh=self.mesh,
            in_specs=(every, split, every if held else split, split),
            out_specs=every,
            check_vma=False,
        )(state, held, batch.inputs, tuple(batch[1:]))

    def _over_micro_batches(
        self, grad_fn: Callable[..., Any], state: TrainState, share: Batch, first: Any
    ) -> Any:
        """Return the same over a replica's share, which begins at place `first`."""
        number = self._share // self.micro_batch
        examples = self._augmented(share, first + jnp.arange(self._share))
        if number == 1:
            return grad_fn(state.params, state, examples)
        parts = jax.tree.map(lambda a: a.reshape(number, -1, *a.shape[1:]), examples)
        part = jax.tree.map(lambda array: array[0], parts)
        shapes = jax.eval_shape(grad_fn, state.params, state, part)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def add(sums: Any, part: Examples) -> Any:
            return jax.tree.map(jnp.add, sums, grad_fn(state.params, state, part)), None

        # XLA's CPU compiler makes convolutions fast only outside of loops (docs/dev/findings.md),
        # but frees no memory between micro-batches there. So a CPU loops only after it ran out of
        # memory.
        loops = self._platform != "cpu" or self.micro_batch != self._sizes[0]
        total, _ = jax.lax.scan(add, zeros, parts, unroll=1 if loops else number)
        return total

    def _augmented(self, share: Batch, places: Any) -> Examples:
        """Return the share as the model sees it."""
        inputs, labels, draws = share
        if not isinstance(labels, Weighted):  # each row counts as one
            labels = Weighted(labels, jnp.ones(len(labels), jnp.float32))
        if self.config.target == "custom":  # its labels change with its inputs
            if self.augmentation.custom:
                inputs, truth = self.augmentation.changed(inputs, draws, labels.labels)
                labels = labels._replace(labels=truth)
            return Examples(inputs, labels, None, None, places)
        inputs, shares = self.augmentation.applied(inputs, draws)
        others = None if shares is None else jax.tree.map(mixup.neighbours, labels)
        return Examples(inputs, labels, others, shares, places)

    def _forward(self, params: Any, buffers: Any, examples: Examples) -> tuple[Any, list[Any], Any]:
        """Return outputs, BatchNorm's moved statistics, and what layers add to the loss."""
        groups = self.config.batch // self._group
        part = group_layers.MicroBatch(examples.places, self._group, groups, self._axis)

        with group_layers.computing(self.model, part):
            outputs, after, added = self.model.stateless_call(
                params, buffers, examples.inputs, training=True, return_losses=True
            )
        moving = zip(after, self.layout.statistics, strict=True)
        return _float32(outputs), [value for value, moves in moving if moves], sum(added)

    def _losses(self, examples: Examples, outputs: Any) -> tuple[Any, Any]:
        """Return the loss and the metric of each example, (n,).

        The loss of a mixture is the mixture of both losses, and the class with the greater share
        counts as right.
        """
        loss = self._in_groups(losses.of(self.config, training=True), self._axis)

        def weighted(labels: Weighted) -> Any:
            return labels.weights * loss(labels.labels, outputs)

        each, truth, share = weighted(examples.labels), examples.labels.labels, examples.share
        if share is not None:
            each = share * each + (1 - share) * weighted(examples.other_labels)
            others = examples.other_labels.labels
            if truth.ndim > 1:
                truth = share[:, None] * truth + (1 - share[:, None]) * others
            else:
                truth = jnp.where(share >= 0.5, truth, others)
        return each, target.figure(self.config.target, truth, outputs)

    def _in_groups(self, loss: Callable[[Any, Any], Any], axis: str | None) -> Callable[..., Any]:
        """Return a loss that gives each row its number in its group, if the loss compares rows.

        Args:
            axis: over which groups are spread; None: they are whole here.
        """
        if self.together is None:
            return loss

        def each(labels: Any, outputs: Any) -> Any:
            number = len(outputs)
            if axis is not None:
                labels, outputs = jax.lax.all_gather((labels, outputs), axis, tiled=True)
            parts = [a.reshape(-1, self.together, *a.shape[1:]) for a in (labels, outputs)]
            values = jax.vmap(loss)(*parts).reshape(-1)
            if axis is not None:
                first = jax.lax.axis_index(axis) * number
                values = jax.lax.dynamic_slice_in_dim(values, first, number)
            return values

        return each

    def _outputs(self, params: Any, buffers: Any, inputs: Any) -> Any:
        outputs, _ = self.model.stateless_call(params, buffers, inputs, training=False)
        return _float32(outputs)

    def _evaluated(
        self, params: Any, buffers: Any, inputs: Any, labels: Any, real: Any
    ) -> tuple[Any, Any, Any]:
        """Return the sums of the losses and of the metric (`pipeline.data.labels`) over the first
        `real` examples of a batch, and the outputs of all of it, where epochs are compared.
        """
        outputs = self._outputs(params, buffers, inputs)
        counts = jnp.arange(labels.shape[0]) < real
        # A validation sees all replicas at once.
        each = self._in_groups(losses.of(self.config, training=False), None)(labels, outputs)
        metrics = target.figure(self.config.target, labels, outputs)
        loss, metric = (jnp.where(counts, values, 0).sum() for values in (each, metrics))
        return loss, metric, outputs if self.config.compares_epochs else None


def per_replica(config: Config, replicas: int) -> int:
    """Return how many images of a batch each replica gets.

    Raises:
        ConfigError: if they are not as many for each, or where neighbours are mixed, no pairs.
    """
    unit = 2 * replicas if config.data.mixup or config.data.cutmix else replicas
    if config.batch % unit:
        below = config.batch // unit * unit
        raise ConfigError(
            f"batch={config.batch} does not split evenly over {replicas} replicas"
            f" ({config.batch / replicas:g} {config.data.noun} each); expected a whole number, and"
            " with data.mixup or data.cutmix an even one.\n"
            f"Set batch to {below or unit} or {below + unit} in pipeline/configs/{config.name}.py."
        )
    return config.batch // replicas


def micro_batches(config: Config, replicas: int, group: int) -> list[int]:
    """Return the images per micro-batch that a run tries, from the most to the fewest.

    It begins with `config.micro_batch`, or with a replica's whole share. After out of memory it
    takes half as many (or less, where they do not split into halves). That decides only how a step
    fits into memory, never its result.

    Args:
        group: images that are computed together, by BatchNorm or by a loss that compares rows;
            1: each image is computed by itself.

    Raises:
        ConfigError: if `config.micro_batch` does not divide a replica's share, or divides a group.
    """
    whole = config.batch // replicas
    asked = whole if config.micro_batch is None else min(config.micro_batch, whole)
    parts = [n for n in range(whole - 1, 0, -1) if whole % n == 0 and n % group == 0]
    sizes, tried = [whole, *parts], [asked]
    if asked not in sizes:
        raise ConfigError(
            f"micro_batch={asked} cannot work with batch={config.batch} on {replicas} replica(s),"
            f" {group} computed together: expected one of {', '.join(map(str, sizes))}.\n"
            f"Set micro_batch in pipeline/configs/{config.name}.py to one of these, or to None."
        )
    for size in sizes:
        if 2 * size <= tried[-1]:
            tried.append(size)
    return tried


def steps_per_call(config: Config, applied: Applied, model: Any, share: int) -> int:
    """Return how many steps a call to the devices takes at most.

    It follows from the model and the data alone, so that each session computes the same program.
    Convolutions and attention, whose weights have more than two axes, are never quick.

    Args:
        share: examples of a batch on each replica.
    """
    dense = all(len(weight.shape) <= 2 for weight in model.weights)
    if not dense or model.count_params() * share > QUICK_STEP:
        return 1
    return min(max(applied.total_steps // config.epochs // CALLS_PER_EPOCH, 1), MOST_STEPS)


def _float32(outputs: Any) -> Any:
    """Return outputs in float32 at least."""
    return outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))

"""Train step: the compiled functions of a run. `batch` decides the result; replicas and
micro-batches decide only how it fits.

A batch is cut into groups of `batchnorm_batch` images. BatchNorm normalizes each group by itself
(ghost batches, Hoffer et al. 2017, 1705.08741) and moves its statistics by the mean over groups.
Augmentation and dropout draw from (seed, step, place in the batch). So the result is the same sum
over images, whether one replica adds it up in many micro-batches (gradient accumulation) or eight
do it in one: only the order of additions differs.

Each replica adds up its own images, and one all-reduce adds up the replicas. A group that is larger
than a replica's share of the batch spans several replicas, which then all-reduce BatchNorm's sums.

An own loss that compares rows (contrastive, of ranks) gets the outputs and labels of whole groups,
which replicas exchange where a group spans several.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import PartitionSpec

from pipeline.augment import mixup
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config, own_code
from pipeline.data import labels as target
from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.evaluate import losses
from pipeline.models import backbones, batch_layers, rematerialization
from pipeline.runtime import devices, replicas
from pipeline.train import batch_cuts, learning_rate, own_code_check
from pipeline.train import train_state as states
from pipeline.train.batch_cuts import Cut
from pipeline.train.learning_rate import Applied
from pipeline.train.train_state import State


class Step:
    """The jitted training and evaluation of a built model.

    Args:
        config, applied: the run and its numbers.
        model: of Keras, built.
        mesh: of JAX, with the axis `replicas.AXIS`; None for one device.

    Attributes:
        mesh: as given. optimizer: of Keras. replicas: accelerator cores that share the work.
        cut: how a share of the batch is computed.
        together: images that the loss compares; None: it is that of each by itself.
        evaluate: `_evaluated`, jitted. forward: from weights and inputs to outputs, jitted.
    """

    cut: Cut
    together: int | None = None
    evaluate: Any
    forward: Any
    _program: Any

    def __init__(self, config: Config, applied: Applied, model: Any, mesh: Any) -> None:
        self.config, self.applied, self.model = config, applied, model
        self.optimizer = optimizer = learning_rate.optimizer(applied, model.trainable_variables)
        optimizer.build(model.trainable_variables)
        self._rate = learning_rate.schedule(applied)
        self.mesh = mesh
        self.replicas = mesh.size if mesh else 1
        self._platform = replicas.platform(mesh)
        self._matmul = devices.matmul_precision(keras.config.dtype_policy().name)
        self._share_size, self._group = config.batch // self.replicas, applied.batchnorm_batch
        # Whether every group lies on one replica.
        self._apart = self._share_size % self._group == 0
        # Which of the optimizer's variables counts the steps.
        self._iterations = [v is optimizer.iterations for v in optimizer.variables].index(True)
        # Which variables are the state of a keras.random.SeedGenerator.
        self._seeds = [
            variable.value.dtype == jnp.uint32 and variable.value.shape == (2,)
            for variable in model.non_trainable_variables
        ]
        self._moving = states.moving(model)
        self._rates = backbones.learning_rate_factors(model, config)
        own = own_code.function(config, "augment")
        self.augmentation = Augmentation(config.data, config.seed, config.batch, own)
        if self.augmentation.mixes and self._share_size % 2:
            raise ConfigError(
                "data.mixup and data.cutmix mix an image with its neighbour, so each replica needs"
                f" an even number: batch={config.batch} gives each of {self.replicas}"
                f" {self._share_size}.\n"
                f"Set batch in pipeline/configs/{config.name}.py to a multiple of"
                f" {2 * self.replicas}, or leave them out."
            )
        # XLA's CPU compiler makes convolutions fast only outside of loops (docs/dev/findings.md),
        # but frees no memory between micro-batches there. So a CPU loops only after it
        # ran out of memory.
        self._loops = self._platform != "cpu"
        shape = tuple(model.output.shape[1:])
        across = own_code_check.compares_rows(config, shape)
        self.together = self._group if across else None
        pixels = 0 if across else batch_layers.fewest_pixels(model)
        group = None if pixels is None else self._group
        self._cuts = batch_cuts.tried(config, self.replicas, group, pixels)
        self._set(self._cuts[0])

    def initial(self) -> State:
        """Return the state before the first step: of the model's weights as they are now."""
        kind, average = self.config.target, self.applied.ema_momentum is not None
        counted = target.FIGURE[kind] == "accuracy" and kind != "multilabel"
        return states.initial(self.model, self.optimizer, average=average, counted=counted)

    @property
    def micro_batch(self) -> int:
        """Images per forward and backward pass on one replica."""
        return self._share_size // self.cut.accumulation

    def train(
        self, tree: Any, held: tuple[Any, ...], given: tuple[Any, Any, Any], number: int
    ) -> tuple[Any, Any]:
        """Take `number` steps.

        Args:
            tree: the state, whose memory the new state takes.
            held: as `hold` returns it, or nothing.
            given: images (s, batch, …) or, of those held, their numbers (s, batch); labels (s,
                batch, …); and what `Augmentation.draws` returns, (s, batch, k).
            number: at most s.

        Returns:
            The state after them, and a copy of its totals with the last step's learning rate.
        """
        if self._program is None:
            self.compile(tree, held, given)
        tree, totals = self._program(tree, held, given, np.int32(number))
        return tree, totals

    def compile(self, tree: Any, held: Any, given: Any) -> None:
        """Compile the training step for arrays of these shapes, at these places."""
        self._program = self.lowered(tree, held, given).compile()

    def lowered(self, tree: Any, held: Any, given: Any) -> Any:
        """Return the training step for such arrays as JAX lowers it, not compiled."""
        # XLA may write the new state over the old one; it stays where it is, on all devices.
        places = jax.tree.map(lambda leaf: leaf.sharding, tree), None
        several = self._exact(self._several)
        train = jax.jit(several, donate_argnums=0, out_shardings=places, keep_unused=True)
        return train.lower(tree, held, given, np.int32(0))

    @property
    def smaller(self) -> list[Cut]:
        """The cuts that need less memory than the present one, in the order to try them."""
        return self._cuts[self._cuts.index(self.cut) + 1 :]

    def begin_with(self, cut: Cut) -> bool:
        """Take a cut that needs less memory than the present one, and return whether it can be."""
        possible = cut in self.smaller
        if possible:
            self._loops = True
            self._set(cut)
        return possible

    def _set(self, cut: Cut) -> None:
        self.cut, self._program = cut, None
        self._kept = rematerialization.kept_layers(self.model) if cut.remat else []
        where = replicas.everywhere(self.mesh)
        self.evaluate, self.forward = (
            jax.jit(self._exact(function), out_shardings=where)
            for function in (self._evaluated, self._outputs)
        )

    def _exact(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that multiplies float32 in float32 when it is traced, if that is the
        policy.
        """

        @wraps(function)
        def traced(*given: Any) -> Any:
            with jax.default_matmul_precision(self._matmul):
                return function(*given)

        return traced

    # -- what is compiled

    def _several(self, tree: Any, held: Any, given: Any, number: Any) -> tuple[Any, Any]:
        def body(carried: Any, its: Any) -> tuple[Any, None]:
            place, batch = its
            after = jax.lax.cond(
                place < number, lambda: self._one(carried, held, batch), lambda: carried
            )
            return after, None

        steps = len(given[0])
        if steps == 1:
            tree = self._one(tree, held, jax.tree.map(lambda array: array[0], given))
        else:
            tree, _ = jax.lax.scan(body, tree, (jnp.arange(steps), given))
        # The totals are copied, since the next step takes the state's memory.
        return tree, (*jax.tree.map(jnp.copy, tree[-1]), self._rate(tree[2][self._iterations] - 1))

    def _one(self, tree: Any, held: Any, given: Any) -> Any:
        trainable, other, optimizer, average, totals = tree
        done, batch = optimizer[self._iterations], self.config.batch
        sums, gradients, moved = self._summed(trainable, other, held, given)
        before = trainable
        trainable, optimizer = self.optimizer.stateless_apply(
            optimizer, [g / batch for g in gradients], trainable
        )
        if self._rates:
            # What a step adds is the learning rate times something, with SGD, Adam and AdamW alike.
            # So a share of it is a smaller learning rate.
            parts = zip(before, trainable, self._rates, strict=True)
            trainable = [new if rate == 1 else old + rate * (new - old) for old, new, rate in parts]
        statistics = iter(moved)
        other = [
            next(statistics) / batch if moves else value
            for value, moves in zip(other, self._moving, strict=True)
        ]
        other = [  # each generator of random numbers moves on by one
            value + jnp.array([0, 1], value.dtype) if seed else value
            for value, seed in zip(other, self._seeds, strict=True)
        ]
        if self.applied.ema_momentum is not None:
            # The average begins at random weights, which a long one would keep to the end of a
            # short run. TensorFlow's rule for ExponentialMovingAverage(num_updates) forgets them
            # first.
            momentum = jnp.minimum(self.applied.ema_momentum, (1.0 + done) / (10.0 + done))
            now = states.averaged(trainable, other, self._moving)
            average = [momentum * a + (1 - momentum) * v for a, v in zip(average, now, strict=True)]
        loss, figure, count = totals
        sums = [total.astype(kept.dtype) for total, kept in zip(sums, totals[:2], strict=True)]
        totals = loss + sums[0], figure + sums[1], count + batch
        return trainable, other, optimizer, average, totals

    def _summed(self, trainable: Any, other: Any, held: Any, given: Any) -> Any:
        """Return sums over the images of the batch: (loss, figure), gradients, moved statistics."""
        if self.mesh is None:
            if held:
                given = jnp.take(held[0], given[0], axis=0, mode="clip"), *given[1:]
            return self._share(0, trainable, other, given)
        every, split = PartitionSpec(), PartitionSpec(replicas.AXIS)  # type: ignore[no-untyped-call]

        def share(trainable: Any, other: Any, held: Any, images: Any, rest: Any) -> Any:
            first = jax.lax.axis_index(replicas.AXIS) * self._share_size
            given = (replicas.gathered(held[0], images) if held else images), *rest
            return replicas.added_up(self._share(first, trainable, other, given), self._platform)

        # After psum the sums are the same on every replica, which JAX need not prove.
        return jax.shard_map(
            share,
            mesh=self.mesh,
            in_specs=(every, every, split, every if held else split, split),
            out_specs=every,
            check_vma=False,
        )(trainable, other, held, given[0], given[1:])

    def _augmented(self, images: Any, labels: Any, draws: Any) -> tuple[Any, Any, Any, Any]:
        """Return changed images, labels, and where images are mixed their neighbours' labels and
        the share of each that is its own, else None.
        """
        if self.config.target == "own":  # its labels change with its inputs
            if self.augmentation.own:
                weighted = isinstance(labels, Weighted)
                truth = labels.labels if weighted else labels
                images, truth = self.augmentation.changed(images, draws, truth)
                labels = labels._replace(labels=truth) if weighted else truth
            return images, labels, None, None
        images, own = self.augmentation.applied(images, draws)
        others = None if own is None else jax.tree.map(mixup.neighbours, labels)
        return images, labels, others, own

    def _share(self, first: Any, trainable: Any, other: Any, given: Any) -> Any:
        """Add up the images from place `first` on, one micro-batch after the other."""
        number, size = self.cut.accumulation, self.micro_batch
        batch = self._augmented(*given)
        places = first + jnp.arange(self._share_size)
        gradient = jax.value_and_grad(self._loss, has_aux=True)

        def micro_batch(part: Any, places: Any, known: Any = None) -> Any:
            (_, (loss, figure, moved)), gradients = gradient(trainable, other, part, places, known)
            return (loss, figure), gradients, moved

        if number == 1:
            return micro_batch(batch, places)
        parts = jax.tree.map(lambda a: a.reshape(number, size, *a.shape[1:]), (batch, places))
        loops = 1 if self._loops else number
        if self.cut.passes == 2:
            _, collected = jax.lax.scan(
                lambda _, part: (None, self._collected(trainable, other, *part)),
                None, parts, unroll=loops,
            )  # fmt: skip
            groups = parts[1][:, 0] // self._group
            total, count = self.config.batch // self._group, self._group // size
            axis = None if self._apart else replicas.AXIS
            known = batch_layers.of_groups(collected, groups, total, count, axis)
            parts = (*parts, jax.tree.map(lambda found: found[groups], known))
        shapes = jax.eval_shape(micro_batch, *jax.tree.map(lambda a: a[0], parts))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

        def add(sums: Any, part: Any) -> Any:
            return jax.tree.map(jnp.add, sums, micro_batch(*part)), None

        total, _ = jax.lax.scan(add, nothing, parts, unroll=loops)
        return total

    def _part(self, places: Any, **words: Any) -> batch_layers.Part:
        axis = None if self._apart or self.mesh is None or words else replicas.AXIS
        groups = self.config.batch // self._group
        return batch_layers.Part(places, self._group, groups, axis, **words)

    def _collected(self, trainable: Any, other: Any, part: Any, places: Any) -> Any:
        """Return a micro-batch's own statistics of each layer that normalizes."""
        found: list[tuple[Any, Any]] = []
        with batch_layers.computing(self.model, self._part(places, collected=found)):
            self.model.stateless_call(trainable, other, part[0], training=True)
        return found

    def _loss(self, trainable: Any, other: Any, part: Any, places: Any, known: Any) -> Any:
        """Return sums over a micro-batch: the loss, and (figure, moved statistics).

        Args:
            part: as `_augmented` returns it.
            places: of the images in the batch, (n,).
            known: the statistics of the group that the micro-batch is a part of; None: it has whole
                groups.
        """
        images, labels, others, own = part

        def forward(trainable: Any, images: Any) -> Any:
            words = {} if known is None else {"known": list(known)}
            layers = self._part(places, **words)
            with batch_layers.computing(self.model, layers, self._kept):
                logits, moved, losses = self.model.stateless_call(
                    trainable, other, images, training=True, return_losses=True
                )
            statistics = [v for v, moves in zip(moved, self._moving, strict=True) if moves]
            return logits, statistics, sum(losses)

        if self.cut.remat:
            forward = jax.checkpoint(forward, policy=rematerialization.policy())
        logits, statistics, penalty = forward(trainable, images)
        logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
        each, figures = self._judged(labels, others, logits, own)
        # What a layer adds to the loss is a mean over images, as in Keras.
        wanted, size = each.sum() + penalty * len(places), len(places)
        return wanted, (each.sum(), figures.sum(), [value * size for value in statistics])

    def _judged(
        self, labels: Any, others: Any, logits: Any, own: Any, *, training: bool = True
    ) -> tuple[Any, Any]:
        """Return the loss and the figure of each image.

        Each loss of `pipeline.data.labels` is linear in the labels (for numbers: but for a term
        that no weight changes), so the loss of a mixture is the mixture of both losses. The class
        with the greater share counts as right.

        Args:
            labels: of the images; where they have weights, `Weighted`.
            others: the labels of what each image is mixed with.
            own: the share of each image that is its own, (n,); None: nothing is mixed.
            training: smooth the labels, if the config says so.
        """
        loss = self._grouped(losses.of(self.config, training=training), training=training)
        kind, named = self.config.target, bool(self.config.loss)
        weighted = isinstance(labels, Weighted)

        def counted(given: Any) -> Any:
            each = loss(given.labels if weighted else given, logits)
            return given.weights * each if weighted else each

        truth, theirs = (labels.labels, others and others.labels) if weighted else (labels, others)
        if own is None:
            return counted(labels), target.figure(kind, truth, logits)
        if truth.ndim > 1:
            most = own[:, None] * truth + (1 - own[:, None]) * theirs
            # A named loss need not be linear in the labels, nor take any between 0 and 1.
            if not named and not weighted:
                return counted(most), target.figure(kind, most, logits)
        first, second = counted(labels), counted(others)
        if truth.ndim == 1:
            most = jnp.where(own >= 0.5, truth, theirs)
        return own * first + (1 - own) * second, target.figure(kind, most, logits)

    def _grouped(self, loss: Callable[[Any, Any], Any], *, training: bool) -> Callable[..., Any]:
        """Return a loss that gives each row its number in its group, if the loss compares rows."""
        if self.together is None:
            return loss
        # A validation sees all replicas at once.
        axis = replicas.AXIS if training and self.mesh is not None and not self._apart else None

        def each(labels: Any, outputs: Any) -> Any:
            own = len(outputs)
            if axis is not None:
                labels, outputs = jax.lax.all_gather((labels, outputs), axis, tiled=True)
            parts = [a.reshape(-1, self.together, *a.shape[1:]) for a in (labels, outputs)]
            found = jax.vmap(loss)(*parts).reshape(-1)
            if axis is not None:
                first = jax.lax.axis_index(axis) * own
                found = jax.lax.dynamic_slice_in_dim(found, first, own)
            return found

        return each

    def _outputs(self, trainable: Any, other: Any, images: Any) -> Any:
        logits, _ = self.model.stateless_call(trainable, other, images, training=False)
        return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))

    def _evaluated(
        self, trainable: Any, other: Any, images: Any, labels: Any, real: Any
    ) -> tuple[Any, Any, Any]:
        """Return the sums of the losses and of the figure (`pipeline.data.labels`) over the first
        `real` examples of a batch, and the outputs of all of it, where epochs are compared.
        """
        logits = self._outputs(trainable, other, images)
        counts = jnp.arange(labels.shape[0]) < real
        each, figures = self._judged(labels, None, logits, None, training=False)
        outputs = logits if self.config.compares_epochs else None
        each, figures = (jnp.where(counts, one, 0) for one in (each, figures))
        return each.sum(), figures.sum(), outputs

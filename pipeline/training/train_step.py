"""Train step: the compiled functions of a run. `batch` decides the result; replicas and
micro-batches decide only how it fits.

A batch is cut into groups of `batchnorm_batch` images. BatchNorm normalizes each group by itself
(ghost batches, Hoffer et al. 2017, 1705.08741) and moves its statistics by the mean over groups.
Dropout draws from (seed, step, group), and mixup and CutMix mix the images of one group. So the
result is the same sum over groups, whether one replica adds it up in many micro-batches (gradient
accumulation) or eight do it in one: only the order of additions differs.

Each replica adds up its own groups, and one all-reduce adds up the replicas. A group that is larger
than a replica's share of the batch spans several replicas. Then XLA splits the groups themselves,
and BatchNorm's sums are all-reduced as well.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pipeline.config import Config
from pipeline.data import labels as target
from pipeline.errors import ConfigError
from pipeline.models import backbones
from pipeline.training import learning_rate, mixup
from pipeline.training import train_state as states
from pipeline.training.learning_rate import Applied

REPLICAS = "batch"  # the axis of keras.distribution.DataParallel's mesh
# Numbers of an array that may be copied to save a rendezvous: a quarter of a megabyte.
SMALL = 2**16


class Step:
    """The jitted training and evaluation of a built model.

    Args:
        config, applied: the run and its numbers.
        model, optimizer: of Keras, built.
        tree: the state before the first step, which says where on the devices each array lies.
        distribution: of Keras; None for one device.

    Attributes:
        replicas: accelerator cores that share the work.
        accumulation: micro-batches that a step adds up, one after the other.
        evaluate: `_evaluated`, jitted.
    """

    accumulation: int
    evaluate: Any
    _program: Any

    def __init__(
        self,
        config: Config,
        applied: Applied,
        model: Any,
        optimizer: Any,
        tree: Any,
        distribution: Any,
    ) -> None:
        self.config, self.applied, self.model, self.optimizer = config, applied, model, optimizer
        self._rate = learning_rate.schedule(applied)
        self._mesh = distribution.device_mesh.backend_mesh if distribution else None
        self.replicas = self._mesh.size if self._mesh else 1
        share, self._group = config.batch // self.replicas, applied.batchnorm_batch
        self._apart = share % self._group == 0  # every group lies on one replica
        self._groups = share // self._group if self._apart else config.batch // self._group
        self._places = jax.tree.map(lambda leaf: leaf.sharding, tree)
        # Which of the optimizer's variables counts the steps.
        self._iterations = [v is optimizer.iterations for v in optimizer.variables].index(True)
        # Which variables are the state of a keras.random.SeedGenerator.
        self._seeds = [
            variable.value.dtype == jnp.uint32 and variable.value.shape == (2,)
            for variable in model.non_trainable_variables
        ]
        self._moving = states.moving(model)
        self._rates = backbones.learning_rate_factors(model, config)
        self._mixes = bool(config.data.mixup or config.data.cutmix)
        if self._mixes and self._group < 2:
            raise ConfigError(
                "data.mixup and data.cutmix cannot work with groups of one image: expected 2 or"
                " more, so that each has a partner.\n"
                "Raise batchnorm_batch (or optimizer.base_batch) in"
                f" pipeline/configs/{config.name}.py, or leave them out."
            )
        self._gradient: Any = None
        # XLA's CPU compiler makes convolutions fast only outside of loops (docs/LOG.md,
        # 2026-11-21), but frees no memory between micro-batches there. So a CPU loops only after it
        # ran out of memory.
        self._loops = jax.devices()[0].platform != "cpu"
        self._cut(self._accumulation(config.micro_batch))

    @property
    def micro_batch(self) -> int:
        """Images per forward and backward pass on one replica."""
        return self.config.batch // (self.replicas * self.accumulation)

    def train(self, tree: Any, images: Any, labels: Any, number: int) -> tuple[Any, Any]:
        """Take `number` steps.

        Args:
            tree: the state, whose memory the new state takes.
            images: (s, batch, …). labels: (s, batch) or (s, batch, k). number: at most s.

        Returns:
            The state after them, and a copy of its totals with the last step's learning rate.
        """
        if self._program is None:
            self.compile(tree, images, labels)
        tree, totals = self._program(tree, images, labels, np.int32(number))
        return tree, totals

    def compile(self, tree: Any, images: Any, labels: Any) -> None:
        """Compile the training step for arrays of these shapes, at these places."""
        self._program = self.lowered(tree, images, labels).compile()

    def lowered(self, tree: Any, images: Any, labels: Any) -> Any:
        """Return the training step for such arrays as JAX lowers it, not compiled."""
        return self._train.lower(tree, images, labels, np.int32(0))

    def squares(self, tree: Any, images: Any, labels: Any) -> tuple[float, float]:
        """Return |g|^2 of one group's mean gradient, averaged over the groups of a batch, and of
        the whole batch's. One device computes them.

        Args:
            images: (batch, …). labels: (batch,) or (batch, k).
        """
        if self._gradient is None:
            self._gradient = jax.jit(jax.grad(self._loss, has_aux=True))
        whole: list[Any] | None = None
        each = []
        # One at a time: that takes the memory of a single group, whatever the batch.
        for number, start in enumerate(range(0, len(images), self._group)):
            part = (array[None, start : start + self._group] for array in (images, labels))
            found, _ = self._gradient(
                tree[0], tree[1], tree[2][self._iterations], *part, np.array([number])
            )
            each.append(_square(found))
            whole = found if whole is None else [a + b for a, b in zip(whole, found, strict=True)]
        return float(np.mean(each)) / self._group**2, _square(whole) / len(images) ** 2

    def put(self, *arrays: np.ndarray, axis: int = 0) -> tuple[Any, ...]:
        """Return the arrays on the devices, split along `axis` over the replicas; a single CPU
        reads them where they are.
        """
        if self._mesh is None:
            on_cpu = jax.devices()[0].platform == "cpu"
            return arrays if on_cpu else tuple(map(jax.device_put, arrays))
        spec = PartitionSpec(*[None] * axis, REPLICAS)  # type: ignore[no-untyped-call]
        where = NamedSharding(self._mesh, spec)
        return tuple(jax.device_put(array, where) for array in arrays)

    def shrink(self) -> bool:
        """Halve the micro-batch (or divide it by more, if the groups do not split into halves), and
        return whether that was possible.
        """
        smaller = [number for number in self._possible() if number >= 2 * self.accumulation]
        if smaller:
            self._loops = True
            self._cut(smaller[0])
        return bool(smaller)

    # -- how a batch is cut

    def _possible(self) -> list[int]:
        """Return every number of micro-batches that splits no group, in rising order."""
        return [number for number in range(1, self._groups + 1) if self._groups % number == 0]

    def _accumulation(self, micro_batch: int | None) -> int:
        share = self.config.batch // self.replicas
        if micro_batch is None or micro_batch >= share:
            return 1
        found = [number for number in self._possible() if number * micro_batch == share]
        if found:
            return found[0]
        allowed = ", ".join(
            str(share // number) for number in self._possible() if share % number == 0
        )
        raise ConfigError(
            f"micro_batch={micro_batch} cannot work with batch={self.config.batch} on"
            f" {self.replicas} replicas and groups of {self._group} images for BatchNorm:"
            f" expected one of {allowed}.\n"
            f"Set micro_batch in pipeline/configs/{self.config.name}.py to one of these, or to"
            " None, which finds one that fits."
        )

    def _cut(self, accumulation: int) -> None:
        self.accumulation, self._program = accumulation, None
        # XLA may write the new state over the old one; it stays where it is, on all devices.
        self._train = jax.jit(
            self._several, donate_argnums=0, out_shardings=(self._places, None), keep_unused=True
        )
        self.evaluate = jax.jit(self._evaluated)

    # -- what is compiled

    def _several(self, tree: Any, images: Any, labels: Any, number: Any) -> tuple[Any, Any]:
        def body(carried: Any, given: Any) -> tuple[Any, None]:
            place, *batch = given
            after = jax.lax.cond(
                place < number, lambda: self._one(carried, *batch), lambda: carried
            )
            return after, None

        if len(images) == 1:
            tree = self._one(tree, images[0], labels[0])
        else:
            tree, _ = jax.lax.scan(body, tree, (jnp.arange(len(images)), images, labels))
        # The totals are copied, since the next step takes the state's memory.
        return tree, (*jax.tree.map(jnp.copy, tree[-1]), self._rate(tree[2][self._iterations] - 1))

    def _one(self, tree: Any, images: Any, labels: Any) -> Any:
        trainable, other, optimizer, average, totals = tree
        done, batch = optimizer[self._iterations], self.config.batch
        sums, gradients, moved = self._summed(trainable, other, done, images, labels)
        before = trainable
        trainable, optimizer = self.optimizer.stateless_apply(
            optimizer, [g / batch for g in gradients], trainable
        )
        if self._rates:
            # What a step adds is the learning rate times something, with SGD, Adam and AdamW alike.
            # So a share of it is a smaller learning rate.
            parts = zip(before, trainable, self._rates, strict=True)
            trainable = [new if rate == 1 else old + rate * (new - old) for old, new, rate in parts]
        statistics, groups = iter(moved), batch // self._group
        other = [
            next(statistics) / groups if moves else value
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
        totals = loss + sums[0], figure + sums[1].astype(figure.dtype), count + batch
        return trainable, other, optimizer, average, totals

    def _summed(self, trainable: Any, other: Any, done: Any, images: Any, labels: Any) -> Any:
        """Return sums over the groups of the batch: (loss, figure), gradients, moved statistics."""
        if self._mesh is None or not self._apart:
            return self._share(0, trainable, other, done, images, labels)
        every, split = PartitionSpec(), PartitionSpec(REPLICAS)  # type: ignore[no-untyped-call]

        def share(*given: Any) -> Any:
            first = jax.lax.axis_index(REPLICAS) * self._groups
            return _over_replicas(self._share(first, *given))

        # After psum the sums are the same on every replica, which JAX need not prove.
        return jax.shard_map(
            share,
            mesh=self._mesh,
            in_specs=(every, every, every, split, split),
            out_specs=every,
            check_vma=False,
        )(trainable, other, done, images, labels)

    def _share(
        self, first: Any, trainable: Any, other: Any, done: Any, images: Any, labels: Any
    ) -> Any:
        """Add up the groups from number `first` on, one micro-batch after the other."""
        shape = (self.accumulation, self._groups // self.accumulation)
        cut = (
            images.reshape(*shape, self._group, *images.shape[1:]),
            labels.reshape(*shape, self._group, *labels.shape[1:]),
            (first + jnp.arange(self._groups)).reshape(shape),
        )

        def micro_batch(images: Any, labels: Any, groups: Any) -> Any:
            (loss, (correct, moved)), gradients = jax.value_and_grad(self._loss, has_aux=True)(
                trainable, other, done, images, labels, groups
            )
            return (loss, correct), gradients, moved

        if self.accumulation == 1:
            return micro_batch(*(part[0] for part in cut))
        shapes = jax.eval_shape(micro_batch, *(part[0] for part in cut))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

        def add(sums: Any, part: Any) -> Any:
            return jax.tree.map(jnp.add, sums, micro_batch(*part)), None

        total, _ = jax.lax.scan(add, nothing, cut, unroll=1 if self._loops else self.accumulation)
        return total

    def _loss(
        self, trainable: Any, other: Any, done: Any, images: Any, labels: Any, groups: Any
    ) -> Any:
        """Return sums over a micro-batch: the loss, and (figure, moved statistics).

        Args:
            done: steps before this one.
            images, labels: (k, group, …). groups: their numbers, (k,).
        """

        def group(images: Any, labels: Any, number: Any) -> Any:
            seeded = [
                _drawn(value, number) if seed else value
                for value, seed in zip(other, self._seeds, strict=True)
            ]
            own = None
            if self._mixes:
                key = mixup.key(self.config.seed, done, number)
                images, own = mixup.mixed(
                    key, images, self.config.data.mixup, self.config.data.cutmix
                )
            logits, moved = self.model.stateless_call(trainable, seeded, images, training=True)
            losses, figures = self._judged(labels, logits.astype(jnp.float32), own)
            statistics = [v for v, moves in zip(moved, self._moving, strict=True) if moves]
            return losses.sum(), figures.sum(), statistics

        if len(images) == 1 and self.replicas == 1:  # without vmap it compiles a tenth sooner
            losses, correct, moved = group(images[0], labels[0], groups[0])
            return losses, (correct, moved)
        losses, correct, moved = jax.vmap(group)(images, labels, groups)
        return losses.sum(), (correct.sum(), [value.sum(axis=0) for value in moved])

    def _judged(self, labels: Any, logits: Any, own: Any) -> tuple[Any, Any]:
        """Return the loss and the figure of each image of a group.

        Each loss of `pipeline.data.labels` is linear in the labels (for numbers: but for a term
        that no weight changes), so the loss of a mixture is the mixture of both losses. The class
        with the greater share counts as right.

        Args:
            own: the share of each image that is its own, (n,); None: nothing is mixed.
        """
        kind = self.config.target
        if own is not None:
            others = mixup.partners(labels)
            if labels.ndim == 1:
                ours, theirs = (target.losses(kind, each, logits) for each in (labels, others))
                most = jnp.where(own >= 0.5, labels, others)
                return own * ours + (1 - own) * theirs, target.figure(kind, most, logits)
            labels = own[:, None] * labels + (1 - own[:, None]) * others
        return target.losses(kind, labels, logits), target.figure(kind, labels, logits)

    def _evaluated(
        self, trainable: Any, other: Any, images: Any, labels: Any, real: Any
    ) -> tuple[Any, Any]:
        """Return the sums of the losses and of the figure (`pipeline.data.labels`) over the first
        `real` examples of a batch.
        """
        logits, _ = self.model.stateless_call(trainable, other, images, training=False)
        logits = logits.astype(jnp.float32)
        counts = jnp.arange(labels.shape[0]) < real
        losses, figures = self._judged(labels, logits, None)
        return (losses * counts).sum(), (figures * counts).sum()


def _drawn(seed: Any, group: Any) -> Any:
    """Return the generator's state for one group of the step: uint32 (2,)."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(seed), group))


def _over_replicas(sums: Any) -> Any:
    """Return the sums over all replicas, the same on each.

    On a CPU the replicas wait for each other once an array, a third of a millisecond on 2 cores. So
    there the small arrays of a kind travel as one, in which each number is added up as before.
    """
    if jax.devices()[0].platform != "cpu":
        return jax.lax.psum(sums, REPLICAS)  # type: ignore[no-untyped-call]
    leaves, tree = jax.tree.flatten(sums)
    small: dict[str, list[int]] = {}
    for place, leaf in enumerate(leaves):
        if leaf.size <= SMALL:
            small.setdefault(leaf.dtype.name, []).append(place)
    large = {place: leaf for place, leaf in enumerate(leaves) if leaf.size > SMALL}
    joined = [jnp.concatenate([leaves[n].reshape(-1) for n in some]) for some in small.values()]
    large, joined = jax.lax.psum((large, joined), REPLICAS)  # type: ignore[no-untyped-call]
    for places, flat in zip(small.values(), joined, strict=True):
        ends = np.cumsum([leaves[place].size for place in places])[:-1]
        large |= dict(zip(places, jnp.split(flat, ends), strict=True))
    shaped = [large[place].reshape(leaf.shape) for place, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, shaped)


def _square(gradient: Any) -> float:
    """Return the sum of the squares of all numbers of a gradient."""
    return float(sum(float(jnp.vdot(part, part)) for part in gradient))

"""Layers that see more than one image, or draw at random, when a batch is computed in parts.

A step computes a part of its batch at a time, whatever fits on a replica. Two kinds of layers would
then give another result with another cut. BatchNormalization gets the statistics of its group of
images here, wherever the group's images are. A layer that draws (Dropout and its like) draws for
each image from (seed, step, place in the batch).

Only sums over the pixels of an image are grouped, which are small. So convolutions see the whole
part as it is, and groups cost neither memory nor traffic (docs/dev/findings.md).

A part that is smaller than a group has two passes (docs/decisions/0014): the first one collects
each layer's statistics, and the second one normalizes with those of the whole group.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
from keras.layers import BatchNormalization

from pipeline.errors import ConfigError
from pipeline.models import rematerialization

KERAS = tuple(int(part) for part in keras.__version__.split(".")[:2])


@dataclass
class Part:
    """Images of a batch that are computed together.

    Attributes:
        places: int32 (n,), in the batch, one after the other.
        group: images that BatchNormalization normalizes together; group g has the places from g x
            group on.
        groups: of the whole batch.
        axis: of the mesh, over which groups are spread; None: each group lies in this part.
        collected: takes this part's own (mean, variance), each (channels,), of each layer that
            normalizes, in the order of the calls; they are what it normalizes with. The part lies
            in one group.
        known: its group's (mean, variance) in the same order, to normalize with.
        seen: takes the name of each layer that is computed here, and the size of its first axis.
    """

    places: Any
    group: int
    groups: int
    axis: str | None = None
    collected: list[tuple[Any, Any]] | None = None
    known: list[tuple[Any, Any]] | None = None
    seen: list[tuple[str, int]] | None = None

    def slices(self, layer: Any, size: int) -> int:
        """Return how many windows, slices or steps of an image lie one after the other in a first
        axis of this size; 1: it is the batch.

        Raises:
            ConfigError: if the first axis cannot be that of the images.
        """
        if self.seen is not None:
            self.seen.append((layer.name, size))
        count, left = divmod(size, len(self.places))
        if left:
            raise first_axis(layer.name)
        return count

    def over_groups(self, values: Any) -> Any:
        """Return for each image the sum over its group, (n, channels) as given."""
        if self.axis is None:
            number, channels = values.shape
            sums = values.reshape(-1, self.group, channels).sum(1, keepdims=True)
            whole = jnp.broadcast_to(sums, (len(sums), self.group, channels))
            return whole.reshape(number, channels)
        mine = self.places // self.group
        sums = jax.ops.segment_sum(values, mine, self.groups, indices_are_sorted=True)
        return jax.lax.psum(sums, self.axis)[mine]  # type: ignore[no-untyped-call]


def first_axis(name: str) -> ConfigError:
    """Return what is said of a layer that gets tensors with another axis first than the batch."""
    return ConfigError(
        f"The layer {name!r} cannot work: it draws at random or normalizes over the batch, and the"
        " first axis of what it gets is not that of the batch.\nTranspose before it, so that the"
        " batch comes first; windows or slices may be folded into it: ops.reshape(x, (-1, …))."
    )


def layers_of(model: Any) -> list[Any]:
    """Return all layers of a model or layer, those inside of others, too."""
    return list(model._flatten_layers(include_self=False))


def fewest_pixels(model: Any) -> int | None:
    """Return how many pixels an image has where the fewest are normalized with the statistics of a
    batch, or None if nothing is.
    """
    found = []
    for layer in layers_of(model):
        if isinstance(layer, BatchNormalization) and layer.trainable:
            try:
                sizes = _without(layer.input.shape[1:], layer.axis - 1)
            except (AttributeError, ValueError):
                sizes = []  # inside a layer of one's own Keras does not know: the least there is
            found.append(math.prod(size or 1 for size in sizes))
    return min(found, default=None)


def _without(sizes: Sequence[int | None], place: int) -> list[int | None]:
    kept = list(sizes)
    del kept[place if place >= 0 else place + 1]
    return kept


def of_groups(collected: Any, groups: Any, total: int, count: int, axis: str | None) -> Any:
    """Return the statistics of whole groups, from those of equal parts of them.

    Args:
        collected: by layer (mean, variance), each (k, channels), of k parts.
        groups: the group of each part, int32 (k,).
        total: groups of the batch.
        count: parts that a group has.
        axis: as in `Part`.

    Returns:
        By layer (mean, variance), each (total, channels). Those of groups that lie elsewhere are 0.
    """

    def mean(values: Any) -> Any:
        sums = jax.ops.segment_sum(values, groups, total, indices_are_sorted=True)
        if axis is not None:
            sums = jax.lax.psum(sums, axis)  # type: ignore[no-untyped-call]
        return sums / count

    def whole(means: Any, variances: Any) -> tuple[Any, Any]:
        found = mean(means)
        return found, mean(variances + jnp.square(means - found[groups]))

    return [whole(*one) for one in collected]


@contextmanager
def computing(model: Any, part: Part, kept: Sequence[Any] = ()) -> Iterator[None]:
    """Let the model's layers compute this part of a batch, while a training step is traced.

    Args:
        kept: layers whose outputs `rematerialization.policy` keeps.
    """
    layers = layers_of(model)
    changed = {id(layer): layer for layer in [*layers, *kept]}
    inside = {id(one) for layer in layers if _draws(layer) for one in layers_of(layer)}
    try:
        for layer in layers:
            _refuse(layer, inside)
            if isinstance(layer, BatchNormalization):
                layer.__dict__["call"] = partial(_normalized, layer, part)
            elif _draws(layer) and id(layer) not in inside:
                layer.__dict__["call"] = partial(_drawn, layer, part)
        for layer in kept:
            layer.__dict__["call"] = partial(_kept, layer.call)
        yield
    finally:
        for layer in changed.values():
            layer.__dict__.pop("call", None)


def _refuse(layer: Any, inside: set[int]) -> None:
    """Raise `ConfigError` for a layer whose result would depend on the cut."""
    problem = ""
    if isinstance(layer, BatchNormalization):
        if id(layer) in inside:
            problem = "BatchNormalization inside a layer that draws at random"
        elif type(layer).call is not BatchNormalization.call:
            problem = "BatchNormalization with a call of its own"
        elif getattr(layer, "renorm", False):
            problem = "BatchNormalization with renorm=True"
    elif layer.activity_regularizer is not None and KERAS < (3, 15):
        # Later versions divide it by the batch (3.15.0 does, 3.13.2 does not; read 2026-11-22).
        problem = f"activity_regularizer with Keras {keras.__version__} before 3.15"
    if problem:
        raise ConfigError(
            f"The layer {layer.name!r} cannot work: {problem} is not the same for every"
            " micro-batch.\nLeave that out, or replace the layer (LayerNormalization for"
            " BatchNormalization)."
        )


def _kept(call: Any, *given: Any, **words: Any) -> Any:
    return rematerialization.named(call(*given, **words))


def _normalized(
    layer: Any, part: Part, inputs: Any, training: bool | None = None, mask: Any = None
) -> Any:
    """Compute a BatchNormalization as Keras does, with each group's own statistics."""
    if not (training and layer.trainable):
        return type(layer).call(layer, inputs, training=training, mask=mask)
    if mask is not None:
        raise ConfigError(
            f"The layer {layer.name!r} cannot work: BatchNormalization with a mask is not computed"
            " in groups.\nLeave it out, or use LayerNormalization."
        )
    kind, shape = jnp.promote_types(inputs.dtype, jnp.float32), inputs.shape
    axis, number = layer.axis % inputs.ndim, part.slices(layer, len(inputs))
    if number > 1:  # they are as pixels of their image
        inputs, axis = inputs.reshape(-1, number, *shape[1:]), axis + 1
    values = inputs.astype(kind)
    pixels = tuple(place for place in range(1, inputs.ndim) if place != axis)
    count = part.group * (inputs[0].size // inputs.shape[axis])

    def wide(numbers: Any) -> Any:  # (n, channels) or (channels,), in the shape of the inputs
        return jnp.expand_dims(numbers, tuple(place - inputs.ndim for place in pixels))

    own = part.collected is not None or part.known is not None
    if own:
        mean, variance = (
            jnp.broadcast_to(one, (len(values), *one.shape))
            for one in (values.mean((0, *pixels)), values.var((0, *pixels)))
        )
    else:
        mean, variance = _over_groups(part, values, pixels, wide, layer.moving_mean.value, count)
    of_group = mean, variance
    if part.collected is not None:
        part.collected.append((mean[0], variance[0]))
    if part.known is not None:
        of_group = tuple(one[None] for one in part.known.pop(0))
    for moving, found in zip((layer.moving_mean, layer.moving_variance), of_group, strict=True):
        kept = jnp.asarray(moving.value)
        moving.assign(kept * layer.momentum + found.mean(0) * (1 - layer.momentum))
    factor = jax.lax.rsqrt(variance + layer.epsilon)
    start = -mean * factor
    if part.known is not None:
        # Batch Renormalization (Ioffe 2017, arXiv:1702.03275): the values are those of the group's
        # statistics, the gradient is that of the part's own.
        scale, shift = _renormalization(of_group, mean, factor, layer.epsilon)
        factor, start = factor * scale, start * scale + shift
    if layer.gamma is not None:
        gamma = jnp.asarray(layer.gamma.value, kind)
        factor, start = factor * gamma, start * gamma
    if layer.beta is not None:
        start = start + jnp.asarray(layer.beta.value, kind)
    return (values * wide(factor) + wide(start)).astype(layer.compute_dtype).reshape(shape)


def _over_groups(
    part: Part, values: Any, pixels: tuple[int, ...], wide: Any, near: Any, count: int
) -> tuple[Any, Any]:
    """Return mean and variance of each image's group, (n, channels).

    Args:
        pixels: the axes of an image but the channels. wide: brings (n, channels) or (channels,)
            into the shape of the values.
        near: the moving mean, (channels,). Around it both sums can be taken at once, so that
            replicas wait once for each other, and little is lost to rounding.
        count: numbers of a group and channel.
    """
    if part.axis is None:
        mean = part.over_groups(values.sum(pixels)) / count
        return mean, part.over_groups(jnp.square(values - wide(mean)).sum(pixels)) / count
    near = jax.lax.stop_gradient(jnp.asarray(near, values.dtype))
    apart = values - wide(near)
    sums = jnp.concatenate([apart.sum(pixels), jnp.square(apart).sum(pixels)], axis=1)
    first, second = jnp.split(part.over_groups(sums) / count, 2, axis=1)
    return first + near, jnp.maximum(second - jnp.square(first), 0)


def _renormalization(of_group: Any, mean: Any, factor: Any, epsilon: float) -> tuple[Any, Any]:
    """Return what turns numbers normalized by a part's statistics into those by its group's."""
    group_mean, group_variance = of_group
    group_factor = jax.lax.rsqrt(group_variance + epsilon)
    found = group_factor / factor, (mean - group_mean) * group_factor
    return jax.lax.stop_gradient(found[0]), jax.lax.stop_gradient(found[1])


def _generators(layer: Any) -> list[Any]:
    found: list[Any] = layer._seed_generators  # those in lists and dicts of the layer, too
    return found


def _draws(layer: Any) -> bool:
    """Return whether a layer draws at random. A recurrent one does what its cell does, since it
    makes its cell's masks, before the first step, for all that it gets.
    """
    cells = layers_of(layer) if isinstance(layer, keras.layers.RNN) else []
    return any(map(_generators, [layer, *cells]))


def _drawn(layer: Any, part: Part, *given: Any, **words: Any) -> Any:
    """Compute a layer that draws, image by image, each with the random numbers of its place.

    What it adds to the loss, and what it keeps, is the mean over the images.
    """
    drawing = [layer, *layers_of(layer)]
    states = [generator.state for one in drawing for generator in _generators(one)]
    changing = [
        one for one in layer.non_trainable_variables if jnp.issubdtype(one.dtype, jnp.floating)
    ]
    kept = [(variable, variable.value) for variable in layer.variables]
    leaves, structure = jax.tree.flatten((given, words))
    sizes = [leaf.shape[0] if isinstance(leaf, jax.Array) and leaf.ndim else 0 for leaf in leaves]
    # Of the first one; of one for all images, as of places, those that are of each image.
    first = next(filter(None, sizes), 1)
    batch = first if first > 1 else len(part.places)
    number = part.slices(layer, batch)
    each = [size == batch for size in sizes]

    def one(place: Any, *images: Any) -> Any:
        seeds = [(state, folded(state.value, place)) for state in states]
        own = iter(images)
        parts = [next(own) if its else leaf for leaf, its in zip(leaves, each, strict=True)]
        some, named = jax.tree.unflatten(structure, parts)
        with keras.StatelessScope([*kept, *seeds], collect_losses=True) as scope:
            outputs = type(layer).call(layer, *some, **named)
        added = list(scope.losses)
        after = [scope.get_current_value(variable) for variable in changing]
        return outputs, added, after

    found, added, after = jax.vmap(one)(
        part.places,
        *(
            leaf.reshape(-1, number, *leaf.shape[1:])
            for leaf, its in zip(leaves, each, strict=True)
            if its
        ),
    )
    found = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), found)
    layer.add_loss([loss.mean() for loss in added])
    for variable, values in zip(changing, after, strict=True):
        variable.assign(values.mean(0))
    for state in states:  # a layer that is called again draws other numbers
        state.assign(folded(state.value, 2**32 - 1))
    return found


def folded(seed: Any, number: Any) -> Any:
    """Return a generator's state for one place: uint32 (2,)."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(seed), number))

"""Layers that see more than one image, or draw at random, when a batch is computed in parts.

A step computes as much of its batch at a time as fits on a replica. Two kinds of layers would then
depend on the size of the parts. BatchNormalization gets the statistics of its group of images here,
wherever these images are. A layer that draws (such as Dropout) draws for each image from (seed,
step, place in the batch).

Only sums over the pixels of an image are grouped, which are small. Convolutions see the whole part
unchanged, so groups cost neither memory nor traffic (docs/dev/findings.md).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
from keras.layers import BatchNormalization

from pipeline.errors import ConfigError
from pipeline.models.layer_tree import children, descendants

KERAS = tuple(int(part) for part in keras.__version__.split(".")[:2])


@dataclass
class MicroBatch:
    """Images of a batch that are computed together.

    Attributes:
        places: int32 (n,), consecutive places in the batch.
        group: number of images that BatchNormalization normalizes together; group g starts at
            place g * group.
        groups: number of groups in the batch.
        axis: mesh axis over which groups are spread; None: each group is in one part.
    """

    places: Any
    group: int
    groups: int
    axis: str | None = None

    def per_image(self, layer: Any, size: int) -> int:
        """Return how many consecutive windows, slices or steps of an image a first axis of this
        size has; 1: it is the batch.

        Raises:
            ConfigError: if the first axis cannot be the batch.
        """
        count, rest = divmod(size, len(self.places))
        if rest:
            raise ConfigError(
                f"The layer {layer.name!r} cannot work: it draws at random or normalizes over the"
                " batch, and the first axis of its input is not the batch.\n"
                "Transpose before it, so that the batch comes first; windows or slices may be"
                " folded into it: ops.reshape(x, (-1, …))."
            )
        return count

    def sum_over_groups(self, values: Any) -> Any:
        """Return for each image the sum over its group, (n, channels) like the values."""
        if self.axis is None:
            sums = values.reshape(-1, self.group, values.shape[1]).sum(1)
            return jnp.repeat(sums, self.group, axis=0)
        groups = self.places // self.group
        sums = jax.ops.segment_sum(values, groups, self.groups, indices_are_sorted=True)
        return jax.lax.psum(sums, self.axis)[groups]  # type: ignore[no-untyped-call]


def normalizes(model: Any) -> bool:
    """Return whether any layer of the model normalizes with batch statistics."""
    return any(
        isinstance(layer, BatchNormalization) and layer.trainable for layer in descendants(model)
    )


@contextmanager
def replaced_calls(calls: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Replace the calls of layers until the context ends.

    Args:
        calls: (layer, function of the arguments of its `call`).
    """
    try:
        for layer, call in calls:
            layer.call = call
        yield
    finally:
        for layer, _ in calls:
            vars(layer).pop("call", None)


@contextmanager
def computing(model: Any, part: MicroBatch) -> Iterator[None]:
    """Let the model's layers compute this part of a batch while a training step is traced.

    Raises:
        ConfigError: for a layer whose result would depend on the size of the parts.
    """
    layers = descendants(model)
    drawing = [layer for layer in layers if _draws(layer)]
    inside = {id(inner) for layer in drawing for inner in descendants(layer)}
    calls: list[tuple[Any, Callable[..., Any]]] = []
    for layer in layers:
        _refuse(layer, inside)
        if isinstance(layer, BatchNormalization):
            calls.append((layer, partial(_normalize, layer, part)))
        elif layer in drawing and id(layer) not in inside:
            calls.append((layer, partial(draw, layer, part)))
    with replaced_calls(calls):
        yield


def _refuse(layer: Any, inside: set[int]) -> None:
    """Raise `ConfigError` for a layer whose result would depend on the size of the parts.

    Args:
        inside: ids of the layers inside layers that draw.
    """
    norm, regular = isinstance(layer, BatchNormalization), layer.activity_regularizer is not None
    if norm and id(layer) in inside:
        raise _refusal(layer, "BatchNormalization inside a layer that draws at random")
    if norm and type(layer).call is not BatchNormalization.call:
        raise _refusal(layer, "BatchNormalization with a custom call")
    if norm and getattr(layer, "renorm", False):
        raise _refusal(layer, "BatchNormalization with renorm=True")
    # Later versions divide it by the batch (3.15.0 does, 3.13.2 does not; read 2026-11-22).
    if regular and KERAS < (3, 15):
        raise _refusal(layer, f"activity_regularizer with Keras {keras.__version__} before 3.15")


def _refusal(layer: Any, problem: str) -> ConfigError:
    return ConfigError(
        f"The layer {layer.name!r} cannot work: {problem} depends on the size of the micro-batch.\n"
        "Remove that, or replace the layer (LayerNormalization for BatchNormalization)."
    )


def _normalize(
    layer: Any, part: MicroBatch, inputs: Any, training: bool | None = None, mask: Any = None
) -> Any:
    """Compute BatchNormalization as Keras does, with the statistics of each group."""
    if not (training and layer.trainable):
        return type(layer).call(layer, inputs, training=training, mask=mask)
    if mask is not None:
        raise _refusal(layer, "BatchNormalization with a mask")
    dtype, shape = jnp.promote_types(inputs.dtype, jnp.float32), inputs.shape
    axis, number = layer.axis % inputs.ndim, part.per_image(layer, len(inputs))
    if number > 1:  # they count as pixels of their image
        inputs, axis = inputs.reshape(-1, number, *shape[1:]), axis + 1
    values = inputs.astype(dtype)
    pixels = tuple(place for place in range(1, inputs.ndim) if place != axis)
    count = part.group * (inputs[0].size // inputs.shape[axis])

    def wide(numbers: Any) -> Any:  # (n, channels) or (channels,), broadcast to the inputs
        return jnp.expand_dims(numbers, tuple(place - inputs.ndim for place in pixels))

    if part.axis is None:
        mean = part.sum_over_groups(values.sum(pixels)) / count
        variance = part.sum_over_groups(jnp.square(values - wide(mean)).sum(pixels)) / count
    else:
        # Around the moving mean both sums can be taken at once: replicas wait for each other only
        # once, and little is lost to rounding.
        near = jax.lax.stop_gradient(jnp.asarray(layer.moving_mean.value, dtype))
        apart = values - wide(near)
        sums = jnp.concatenate([apart.sum(pixels), jnp.square(apart).sum(pixels)], axis=1)
        first, second = jnp.split(part.sum_over_groups(sums) / count, 2, axis=1)
        mean, variance = first + near, jnp.maximum(second - jnp.square(first), 0)
    for moving, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        before = jnp.asarray(moving.value)
        moving.assign(before * layer.momentum + value.mean(0) * (1 - layer.momentum))
    factor = jax.lax.rsqrt(variance + layer.epsilon)
    offset = -mean * factor
    if layer.gamma is not None:
        gamma = jnp.asarray(layer.gamma.value, dtype)
        factor, offset = factor * gamma, offset * gamma
    if layer.beta is not None:
        offset = offset + jnp.asarray(layer.beta.value, dtype)
    return (values * wide(factor) + wide(offset)).astype(layer.compute_dtype).reshape(shape)


def is_seed(variable: Any) -> bool:
    """Return whether a Keras variable is the state of a `keras.random.SeedGenerator`."""
    return str(variable.dtype) == "uint32" and tuple(variable.shape) == (2,)


def _draws(layer: Any) -> bool:
    """Return whether a layer has a random generator of its own, also in a list or dict. A recurrent
    layer counts if its cell does: it makes the cell's masks for the whole batch before the first
    step.
    """
    inner: list[Any] = [] if isinstance(layer, keras.layers.RNN) else children(layer)
    theirs = {id(variable) for child in inner for variable in child.variables}
    return any(is_seed(one) and id(one) not in theirs for one in layer.variables)


def draw(layer: Any, part: MicroBatch, *args: Any, **kwargs: Any) -> Any:
    """Compute a layer that draws image by image, each with the random numbers of its place.

    Its losses and its state are means over the images.
    """
    seeds = [variable for variable in layer.variables if is_seed(variable)]
    others = layer.non_trainable_variables
    statistics = [one for one in others if jnp.issubdtype(one.dtype, jnp.floating)]
    before = [(variable, variable.value) for variable in layer.variables]
    leaves, structure = jax.tree.flatten((args, kwargs))
    sizes = [leaf.shape[0] if isinstance(leaf, jax.Array) and leaf.ndim else 0 for leaf in leaves]
    # The first argument may be the same for all images, as positions are.
    first = next(filter(None, sizes), 1)
    batch = first if first > 1 else len(part.places)
    number = part.per_image(layer, batch)
    axes = [0 if size == batch else None for size in sizes]
    split = [
        leaf if axis is None else leaf.reshape(-1, number, *leaf.shape[1:])
        for leaf, axis in zip(leaves, axes, strict=True)
    ]

    def one_image(place: Any, leaves: list[Any]) -> Any:
        image_seeds = [(seed, folded(seed.value, place)) for seed in seeds]
        image_args, image_kwargs = jax.tree.unflatten(structure, leaves)
        with keras.StatelessScope([*before, *image_seeds], collect_losses=True) as scope:
            outputs = type(layer).call(layer, *image_args, **image_kwargs)
        losses = list(scope.losses)
        return outputs, losses, [scope.get_current_value(variable) for variable in statistics]

    outputs, losses, after = jax.vmap(one_image, in_axes=(0, axes))(part.places, split)
    outputs = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), outputs)
    layer.add_loss([loss.mean() for loss in losses])
    for variable, values in zip(statistics, after, strict=True):
        variable.assign(values.mean(0))
    for seed in seeds:  # a layer that is called again draws different numbers
        seed.assign(folded(seed.value, 2**32 - 1))
    return outputs


def folded(seed: Any, number: Any) -> Any:
    """Return a generator's state for one place, uint32 (2,)."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(seed), number))

"""Make BatchNormalization and random layers independent of the micro-batch size.

A training step splits its batch into micro-batches that fit on a replica. BatchNormalization
statistics are computed over groups of images, even if a group spans several micro-batches or
replicas. Random layers such as Dropout derive each image's random numbers from (seed, step, index
in the batch). Only the sums over each image's pixels, which are small, are combined by group, so
groups need no extra memory or communication (docs/dev/findings.md).
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
    """A part of a batch whose images are processed together.

    Attributes:
        places: int32 (n,), consecutive indices of the images in the batch.
        group: number of images per BatchNormalization group (group g starts at index g * group).
        axis: mesh axis over which groups are distributed. None if no group is split.
    """

    places: Any
    group: int
    groups: int
    axis: str | None = None

    def per_image(self, layer: Any, size: int) -> int:
        """Return how many consecutive entries of an input's first axis belong to each image, if it
        has `size` entries. This is 1 if that axis is the batch axis, and larger if windows, slices
        or time steps were merged into it.
        """
        count, rest = divmod(size, len(self.places))
        if rest:
            raise ConfigError(
                f"The layer {layer.name!r} cannot be used: it draws random numbers or normalizes"
                " over the batch, but the first axis of its input is not the batch axis.\n"
                "Transpose its input so that the batch axis comes first. Windows or slices can be"
                " merged into that axis with ops.reshape(x, (-1, …))."
            )
        return count

    def sum_over_groups(self, values: Any) -> Any:
        """Sum the values, (n, channels), over each group, and return each image's group sum."""
        if self.axis is None:
            sums = values.reshape(-1, self.group, values.shape[1]).sum(1)
            return jnp.repeat(sums, self.group, axis=0)
        groups = self.places // self.group
        sums = jax.ops.segment_sum(values, groups, self.groups, indices_are_sorted=True)
        return jax.lax.psum(sums, self.axis)[groups]  # type: ignore[no-untyped-call]


def normalizes(model: Any) -> bool:
    return any(
        isinstance(layer, BatchNormalization) and layer.trainable for layer in descendants(model)
    )


@contextmanager
def replaced_calls(calls: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    try:
        for layer, call in calls:
            layer.call = call
        yield
    finally:
        for layer, _ in calls:
            vars(layer).pop("call", None)


@contextmanager
def computing(model: Any, part: MicroBatch) -> Iterator[None]:
    """Adapt the model's layers to this micro-batch while a training step is traced.

    Raises:
        ConfigError: if a layer's output would depend on the micro-batch size.
    """
    layers = descendants(model)
    drawing = [layer for layer in layers if _draws(layer)]
    inside = {id(inner) for layer in drawing for inner in descendants(layer)}
    calls: list[tuple[Any, Callable[..., Any]]] = []
    for layer in layers:
        _refuse_dependent(layer, inside)
        if isinstance(layer, BatchNormalization):
            calls.append((layer, partial(_normalize, layer, part)))
        elif layer in drawing and id(layer) not in inside:
            calls.append((layer, partial(draw, layer, part)))
    with replaced_calls(calls):
        yield


def _refuse_dependent(layer: Any, inside: set[int]) -> None:
    norm, regular = isinstance(layer, BatchNormalization), layer.activity_regularizer is not None
    if norm and id(layer) in inside:
        raise _refusal(layer, "BatchNormalization inside a random layer")
    if norm and type(layer).call is not BatchNormalization.call:
        raise _refusal(layer, "BatchNormalization with a custom call")
    if norm and getattr(layer, "renorm", False):
        raise _refusal(layer, "BatchNormalization with renorm=True")
    # Later versions of Keras divide its loss by the batch size (3.15.0 does, 3.13.2 does not; read
    # 2026-11-22).
    if regular and KERAS < (3, 15):
        raise _refusal(layer, f"activity_regularizer with Keras {keras.__version__} before 3.15")


def _refusal(layer: Any, problem: str) -> ConfigError:
    return ConfigError(
        f"The layer {layer.name!r} cannot be used: {problem} depends on the micro-batch size.\n"
        "Remove or replace the layer. For example, use LayerNormalization instead of"
        " BatchNormalization."
    )


def _normalize(
    layer: Any, part: MicroBatch, inputs: Any, training: bool | None = None, mask: Any = None
) -> Any:
    """Compute BatchNormalization like Keras, but with the statistics of each group."""
    if not (training and layer.trainable):
        return type(layer).call(layer, inputs, training=training, mask=mask)
    if mask is not None:
        raise _refusal(layer, "BatchNormalization with a mask")
    dtype, shape = jnp.promote_types(inputs.dtype, jnp.float32), inputs.shape
    axis, number = layer.axis % inputs.ndim, part.per_image(layer, len(inputs))
    if number > 1:  # treat them as pixels of their image
        inputs, axis = inputs.reshape(-1, number, *shape[1:]), axis + 1
    values = inputs.astype(dtype)
    pixels = tuple(place for place in range(1, inputs.ndim) if place != axis)
    count = part.group * (inputs[0].size // inputs.shape[axis])

    def wide(numbers: Any) -> Any:  # broadcast (n, channels) or (channels,) to the inputs
        return jnp.expand_dims(numbers, tuple(place - inputs.ndim for place in pixels))

    if part.axis is None:
        mean = part.sum_over_groups(values.sum(pixels)) / count
        variance = part.sum_over_groups(jnp.square(values - wide(mean)).sum(pixels)) / count
    else:
        # Subtracting the moving mean first allows computing both sums with a single synchronization
        # of the replicas and with little rounding error.
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
    return str(variable.dtype) == "uint32" and tuple(variable.shape) == (2,)


def _draws(layer: Any) -> bool:
    """Return whether a layer itself has a seed generator, possibly in a list or dict.

    A recurrent layer also counts if its cell has a seed generator, because the layer creates the
    cell's masks for the whole batch before the first time step.
    """
    inner: list[Any] = [] if isinstance(layer, keras.layers.RNN) else children(layer)
    theirs = {id(variable) for child in inner for variable in child.variables}
    return any(is_seed(one) and id(one) not in theirs for one in layer.variables)


def draw(layer: Any, part: MicroBatch, *args: Any, **kwargs: Any) -> Any:
    """Call a random layer separately for each image, with a seed that depends on its index.

    The layer's losses and state are averaged over the images.
    """
    seeds = [variable for variable in layer.variables if is_seed(variable)]
    others = layer.non_trainable_variables
    statistics = [one for one in others if jnp.issubdtype(one.dtype, jnp.floating)]
    before = [(variable, variable.value) for variable in layer.variables]
    leaves, structure = jax.tree.flatten((args, kwargs))
    sizes = [leaf.shape[0] if isinstance(leaf, jax.Array) and leaf.ndim else 0 for leaf in leaves]
    # All images can share the first argument, for example if it contains positions.
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
    for seed in seeds:  # if the layer is called again, it must draw different numbers
        seed.assign(folded(seed.value, 2**32 - 1))
    return outputs


def folded(seed: Any, number: Any) -> Any:
    """Return a seed generator's state for one index, uint32 (2,)."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(seed), number))

"""Resampling: images whose lines are made of their own pixels at other places, in whole numbers.

A TPU has no fast gather of single pixels, and multiplies matrices instead: rows of zeros and a one.
Products of 8-bit numbers are exact in bfloat16 with float32 sums. So both ways give the same bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

ONE = 1 << 16  # of a position in 16.16 fixed point
# Products of (n, new places, old places) with images, along rows and along columns.
SUMS = {1: "nij,njwc->niwc", 2: "nij,nhjc->nhic"}


def taken(images: Any, places: Any, axis: int) -> Any:
    """Return for each line the pixels at other places of it; zeros for places outside.

    Args:
        images: uint8 (n, height, width, channels).
        places: int32 (n, size), along `axis`, the same for all lines of an image.
        axis: 1, the places are rows; 2: columns.

    >>> line = jnp.array([[[[10], [20], [30]]]], jnp.uint8)
    >>> taken(line, jnp.array([[2, 1, -1]]), 2).ravel().tolist()
    [30, 20, 0]
    """
    size = images.shape[axis]

    def gather(images: Any, places: Any) -> Any:
        pixels = _gathered(images, _per_line(jnp.clip(places, 0, size - 1), axis), axis)
        inside = _per_line((places >= 0) & (places < size), axis)
        return jnp.where(inside, pixels, 0).astype(jnp.uint8)

    def multiply(images: Any, places: Any) -> Any:
        ones = places[:, :, None] == jnp.arange(size)
        return _product(SUMS[axis], ones, images).astype(jnp.uint8)

    return jax.lax.platform_dependent(images, places, tpu=multiply, default=gather)


def resized(images: Any, positions: Any, axis: int) -> Any:
    """Return for each line the pixels at positions between those that it has, by linear
    interpolation.

    Args:
        images: uint8 (n, height, width, channels).
        positions: int32 (n, size), along `axis`, from its first pixel to its last, in 16.16 fixed
            point, the same for all lines of an image. Fractions count in steps of 1/256.
        axis: 1, the positions are of rows; 2: of columns.

    >>> line = jnp.array([[[[0], [100], [200]]]], jnp.uint8)
    >>> resized(line, jnp.array([[0, ONE // 4, 2 * ONE]]), 2).ravel().tolist()
    [0, 25, 200]
    """
    spread = partial(_per_line, axis=axis)
    return _rounded(_interpolated(images, positions, axis, spread, SUMS[axis]))


def interpolated(image: Any, positions: Any) -> Any:
    """Return one image whose lines are resampled by linear interpolation; zeros lie outside.

    Args:
        image: uint8 (height, width, channels).
        positions: int32 (height, width), of columns in 16.16 fixed point; a pixel's middle has a
            whole number. Fractions count in steps of 1/256.

    >>> line = jnp.array([[[0], [100], [200]]], jnp.uint8)
    >>> interpolated(line, jnp.array([[ONE // 2, 2 * ONE, 3 * ONE]])).ravel().tolist()
    [50, 200, 0]
    """
    size = image.shape[1]
    # As if rounded to the next pixel: half a pixel around the image still belongs to it.
    inside = (positions >= -(ONE // 2)) & (positions < size * ONE - ONE // 2)
    sums = _interpolated(image, positions, 1, lambda values: values[..., None], "hij,hjc->hic")
    return jnp.where(inside[..., None], _rounded(sums), 0)


def _interpolated(
    images: Any, positions: Any, axis: int, spread: Callable[[Any], Any], sums: str
) -> Any:
    """Return the pixels at positions along an axis, times 256: int32, of the images' form.

    Args:
        spread: gives positions the form of the images.
        sums: the product of weights (…, new places, old places) with the images.
    """
    size, part = images.shape[axis], (positions >> 8) & 255
    first, second = (jnp.clip((positions >> 16) + shift, 0, size - 1) for shift in (0, 1))

    def gather(images: Any, first: Any, second: Any, part: Any) -> Any:
        return sum(
            spread(share) * _gathered(images, spread(side), axis).astype(jnp.int32)
            for side, share in ((first, 256 - part), (second, part))
        )

    def multiply(images: Any, first: Any, second: Any, part: Any) -> Any:
        weights = sum(
            jnp.where(side[..., None] == jnp.arange(size), share[..., None], 0)
            for side, share in ((first, 256 - part), (second, part))
        )
        return _product(sums, weights, images).astype(jnp.int32)

    ways = {"tpu": multiply, "default": gather}
    return jax.lax.platform_dependent(images, first, second, part, **ways)


def _rounded(sums: Any) -> Any:
    return ((sums + 128) >> 8).astype(jnp.uint8)


def _per_line(values: Any, axis: int) -> Any:
    """Return values (n, size) in a form that repeats them for each line along an axis of images."""
    return values[:, :, None, None] if axis == 1 else values[:, None, :, None]


def _gathered(images: Any, places: Any, axis: int) -> Any:
    return jnp.take_along_axis(images, places, axis, mode="promise_in_bounds")


def _product(sums: str, weights: Any, images: Any) -> Any:
    """Return a product of whole numbers up to 256, exactly: float32."""
    return jnp.einsum(
        sums,
        jnp.asarray(weights, jnp.bfloat16),
        images.astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )

"""Resampling: images whose lines are made of their own pixels at other places, in whole numbers.

A TPU has no fast gather of single pixels, and multiplies matrices instead: rows of zeros and a one.
Products of 8-bit numbers are exact in bfloat16 with float32 sums. So both ways give the same bits.
"""

from typing import Any

import jax
import jax.numpy as jnp

ONE = 1 << 16  # of a position in 16.16 fixed point


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
        one_line = [slice(None), None, None, None]
        one_line[axis] = slice(None)
        lines = jnp.clip(places, 0, size - 1)[tuple(one_line)]
        found = jnp.take_along_axis(images, lines, axis, mode="promise_in_bounds")
        inside = ((places >= 0) & (places < size))[tuple(one_line)]
        return jnp.where(inside, found, 0).astype(jnp.uint8)

    def multiply(images: Any, places: Any) -> Any:
        ones = (places[:, :, None] == jnp.arange(size)).astype(jnp.bfloat16)
        product = "nij,njwc->niwc" if axis == 1 else "nij,nhjc->nhic"
        return _product(product, ones, images).astype(jnp.uint8)

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
    size = images.shape[axis]
    first, part = positions >> 16, (positions >> 8) & 255
    second = jnp.minimum(first + 1, size - 1)

    def gather(images: Any, first: Any, second: Any, part: Any) -> Any:
        one_line = [slice(None), None, None, None]
        one_line[axis] = slice(None)
        at, own = tuple(one_line), 256 - part
        found = 0
        for side, share in ((first, own), (second, part)):
            pixels = jnp.take_along_axis(images, side[at], axis, mode="promise_in_bounds")
            found += share[at] * pixels.astype(jnp.int32)
        return found

    def multiply(images: Any, first: Any, second: Any, part: Any) -> Any:
        weights = sum(
            jnp.where(side[..., None] == jnp.arange(size), share[..., None], 0)
            for side, share in ((first, 256 - part), (second, part))
        )
        product = "nij,njwc->niwc" if axis == 1 else "nij,nhjc->nhic"
        return _product(product, jnp.asarray(weights, jnp.bfloat16), images).astype(jnp.int32)

    ways = {"tpu": multiply, "default": gather}
    found = jax.lax.platform_dependent(images, first, second, part, **ways)
    return ((found + 128) >> 8).astype(jnp.uint8)


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
    first, part = positions >> 16, (positions >> 8) & 255

    def gather(image: Any, first: Any, part: Any) -> Any:
        sides = [
            jnp.take_along_axis(
                image,
                jnp.clip(first + one, 0, size - 1)[..., None],
                1,
                mode="promise_in_bounds",
            ).astype(jnp.int32)
            for one in (0, 1)
        ]
        return sides[0] * (256 - part)[..., None] + sides[1] * part[..., None]

    def multiply(image: Any, first: Any, part: Any) -> Any:
        sides = jnp.clip(first, 0, size - 1), jnp.clip(first + 1, 0, size - 1)
        own, other = (
            jnp.where(side[..., None] == jnp.arange(size), share[..., None], 0)
            for side, share in zip(sides, (256 - part, part), strict=True)
        )
        weights = (own + other).astype(jnp.bfloat16)
        return _product("hij,hjc->hic", weights, image).astype(jnp.int32)

    found = jax.lax.platform_dependent(image, first, part, tpu=multiply, default=gather)
    return jnp.where(inside[..., None], (found + 128) >> 8, 0).astype(jnp.uint8)


def _product(sums: str, weights: Any, images: Any) -> Any:
    """Return a product of whole numbers up to 256, exactly: float32."""
    return jnp.einsum(
        sums, weights, images.astype(jnp.bfloat16), preferred_element_type=jnp.float32
    )

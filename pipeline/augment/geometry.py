"""Crops, flips, quarter turns and resized crops of images, using integer arithmetic.

Each change has two functions. The first, `draw_…`, draws integers for each image. The second
applies the change to images, uint8 (n, height, width, channels).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.config import Data

ONE = 1 << 16  # 1 in 16.16 fixed point, for positions and weights

NARROWEST, TRIES = 3 / 4, 10  # minimum width / height; attempts to draw a window that fits


def draw_windows(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    """Draw windows for random resized crops, int32 (batch, 4).

    The numbers are the first row, number of rows, first column and number of columns of a window.
    A window's fraction of the image area is uniform between `data.crop_scale` and 1, and its
    log(width / height) is uniform between log(3/4) and log(4/3). If none of ten attempts
    produces a window that fits into the image, the whole image is used.

    Reference: Szegedy et al. 2014, arXiv:1409.4842, section 6; RandomResizedCrop in torchvision.
    """
    height, width = data.shape[:2]
    area = height * width * random.uniform(data.crop_scale, 1, (TRIES, batch))
    narrow = np.exp(random.uniform(np.log(NARROWEST), -np.log(NARROWEST), (TRIES, batch)))
    sides = np.stack([np.sqrt(area / narrow), np.sqrt(area * narrow)]).round().clip(1)
    whole = np.array([height, width])[:, None, None]
    fits = (sides <= whole).all(axis=0)
    first = np.take_along_axis(sides, fits.argmax(axis=0)[None, None], axis=1)[:, 0]
    chosen = np.where(fits.any(axis=0), first, whole[:, 0])
    places = np.floor(random.random((2, batch)) * (whole[:, 0] - chosen + 1))
    return np.stack([places, chosen], axis=1).reshape(4, batch).T.astype(np.int32)


def enlarge(images: Any, numbers: Any, data: Data) -> Any:
    """Resize a window of each image to the full size.

    >>> data = Data(height=1, width=3, channels=1, crop_scale=0.5)
    >>> image = jnp.array([[[[0], [100], [200]]]], jnp.uint8)
    >>> enlarge(image, jnp.array([[0, 1, 1, 2]]), data).ravel().tolist()
    [100, 150, 200]
    """
    for axis in (1, 2):
        first, number = (numbers[:, 2 * axis - 2 + column, None] for column in (0, 1))
        size = images.shape[axis]
        step = number * ONE // size
        positions = first * ONE + (step - ONE) // 2 + step * jnp.arange(size)
        ends = first * ONE, (first + number - 1) * ONE
        images = resampled(images, jnp.clip(positions, *ends), axis)
    return images


def draw_quarters(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    return random.integers(0, 4, (batch, 1)).astype(np.int32)


def turn(images: Any, quarters: Any, data: Data) -> Any:
    """Rotate square images to the left by quarter turns.

    >>> data = Data(height=2, width=2, channels=1, rotate=True)
    >>> image = jnp.array([[[[1], [2]], [[3], [4]]]], jnp.uint8)
    >>> turn(image, jnp.array([[1]]), data).reshape(2, 2).tolist()
    [[2, 4], [1, 3]]
    """
    quarters = quarters[:, :, None, None]
    images = jnp.where(quarters % 2 == 1, images.swapaxes(1, 2), images)
    images = jnp.where((quarters == 1) | (quarters == 2), images[:, ::-1], images)
    return jnp.where(quarters >= 2, images[:, :, ::-1], images)


def draw_flips(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    return random.integers(0, 2, (batch, 1)).astype(np.int32)


def flip_vertical(images: Any, flipped: Any, data: Data) -> Any:
    return jnp.where(flipped[:, :, None, None] == 1, images[:, ::-1], images)


def draw_crops(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    """Draw windows in the padded images, int32 (batch, 3).

    The numbers are a window's first row, its first column, and 1 if it is flipped or else 0. If
    `data.flip` is set, half of the windows are flipped.
    """
    windows = random.integers(0, 2 * data.crop_padding + 1, (2, batch))
    mirrored = (random.random(batch) < 0.5) & data.flip
    return np.stack([*windows, mirrored], axis=1).astype(np.int32)


def crop_and_flip(images: Any, numbers: Any, data: Data) -> Any:
    """Pad each image, and crop a window of the original size, which may be flipped.

    >>> data = Data(height=2, width=2, channels=1, crop_padding=1, flip=True)
    >>> image = jnp.array([[[[1], [2]], [[3], [4]]]], jnp.uint8)
    >>> crop_and_flip(image, jnp.array([[2, 1, 1]]), data).reshape(2, 2).tolist()
    [[4, 3], [0, 0]]
    """
    down, right, mirrored = (numbers[:, column, None] for column in range(3))
    height, width = images.shape[1:3]
    columns = jnp.where(mirrored == 1, width - 1 - jnp.arange(width), jnp.arange(width))
    if data.crop_padding:
        images = resampled(images, (down - data.crop_padding + jnp.arange(height)) * ONE, 1)
    return resampled(images, (right - data.crop_padding + columns) * ONE, 2)


def resampled(images: Any, positions: Any, axis: int) -> Any:
    """Resample images linearly at fractional positions along an axis, with zeros outside the image.

    TPUs cannot gather single pixels quickly, so they multiply by matrices with two weights per row
    instead. Products of integers up to 256 are exact in bfloat16 with float32 sums, so both methods
    produce the same bits.

    Args:
        positions: int32 (n, size) positions along `axis` in 16.16 fixed point, used for all lines
            of an image. Pixel centres are integers. Fractions are rounded down to 256ths.
        axis: 1 for row positions, 2 for column positions.

    >>> line = jnp.array([[[[0], [100], [200]]]], jnp.uint8)
    >>> resampled(line, jnp.array([[ONE // 4, 2 * ONE, 3 * ONE]]), 2).ravel().tolist()
    [25, 200, 0]
    """
    positions = positions.astype(jnp.int32)  # also if JAX uses 64 bits
    size, part = images.shape[axis], (positions >> 8) & 255
    places = [jnp.clip((positions >> 16) + shift, 0, size - 1) for shift in (0, 1)]

    def per_line(values: Any) -> Any:
        return jnp.expand_dims(values, (2, 3) if axis == 1 else (1, 3))

    def gather(images: Any, places: Any, weights: Any) -> Any:
        lines = (
            jnp.take_along_axis(images, per_line(place), axis, mode="promise_in_bounds")
            for place in places
        )
        return sum(
            per_line(weight) * line.astype(jnp.int32)
            for weight, line in zip(weights, lines, strict=True)
        )

    def multiply(images: Any, places: Any, weights: Any) -> Any:
        matrix = sum(
            jnp.where(place[..., None] == jnp.arange(size), weight[..., None], 0)
            for place, weight in zip(places, weights, strict=True)
        )
        sums = "nij,njwc->niwc" if axis == 1 else "nij,nhjc->nhic"
        factors = jnp.asarray(matrix, jnp.bfloat16), images.astype(jnp.bfloat16)
        return jnp.einsum(sums, *factors, preferred_element_type=jnp.float32).astype(jnp.int32)

    weights = [256 - part, part]
    sums = jax.lax.platform_dependent(images, places, weights, tpu=multiply, default=gather)
    # The image extends half a pixel beyond its border, as if rounding to the nearest pixel.
    inside = (positions >= -(ONE // 2)) & (positions < size * ONE - ONE // 2)
    return jnp.where(per_line(inside), (sums + 128) >> 8, 0).astype(jnp.uint8)

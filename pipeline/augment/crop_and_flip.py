"""Random crops and flips: a window of each image, of the image's own size, after padding with
zeros, and perhaps mirrored left to right.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.augment.resampling import taken

STREAM = 2  # of random numbers from one seed (`pipeline.data.dataset.ORDER`)


def draws(seed: int, step: int, batch: int, padding: int, *, flip: bool) -> np.ndarray:
    """Return int32 (batch, 3): the first row and column of each window, and 1 if it is mirrored.

    Args:
        padding: zeros on each side, in pixels.
        flip: mirror each image with probability 1/2.
    """
    random = np.random.default_rng((seed, STREAM, step))
    windows = random.integers(0, 2 * padding + 1, (2, batch))
    mirrored = (random.random(batch) < 0.5) & flip
    return np.stack([*windows, mirrored], axis=1).astype(np.int32)


def applied(images: Any, draws: Any, padding: int) -> Any:
    """Return the images, uint8 (n, height, width, channels), after what `draws` returned.

    >>> image = jnp.array([[[[1], [2]], [[3], [4]]]], jnp.uint8)
    >>> applied(image, jnp.array([[2, 1, 1]]), 1).reshape(2, 2).tolist()
    [[4, 3], [0, 0]]
    """
    ways = {"cpu": _by_images, "default": _by_lines}
    changed = {name: partial(way, padding=padding) for name, way in ways.items()}
    return jax.lax.platform_dependent(images, draws, **changed)


def _by_images(images: Any, draws: Any, padding: int) -> Any:
    """Copy one window after the other, as a CPU does it fastest."""
    number, height, width, channels = images.shape
    sides = (padding, padding), (padding * channels, padding * channels)

    def window(one: tuple[Any, Any]) -> Any:
        lines, (down, right, _) = one
        return jax.lax.dynamic_slice(jnp.pad(lines, sides), (down, right * channels), lines.shape)

    lines = images.reshape(number, height, width * channels)
    windows = jax.lax.map(window, (lines, draws)).reshape(images.shape)
    mirrored = draws[:, 2, None, None, None] == 1
    return jnp.where(mirrored, windows[:, :, ::-1], windows)


def _by_lines(images: Any, draws: Any, padding: int) -> Any:
    """Take all rows of the windows, then all columns."""
    down, right, mirrored = (draws[:, column, None] for column in range(3))
    height, width = images.shape[1:3]
    columns = jnp.where(mirrored == 1, width - 1 - jnp.arange(width), jnp.arange(width))
    if padding:
        images = taken(images, down - padding + jnp.arange(height), 1)
    return taken(images, right - padding + columns, 2)

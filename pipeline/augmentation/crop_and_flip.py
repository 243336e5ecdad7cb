"""Random crops and flips: a window of each image, of the image's own size, after padding with
zeros, and perhaps mirrored left to right.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pipeline.augmentation.resampling import taken

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
    down, right, mirrored = (draws[:, column, None] - padding for column in range(3))
    height, width = images.shape[1:3]
    columns = jnp.where(mirrored + padding == 1, width - 1 - jnp.arange(width), jnp.arange(width))
    if padding:
        images = taken(images, down + jnp.arange(height), 1)
    return taken(images, right + columns, 2)

"""Turns: images upside down, and turned by quarters, as of the sky, of cells and of the ground from
above.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

# Of random numbers from one seed (`pipeline.data.dataset.ORDER`).
FLIPS, QUARTERS = 9, 10
COLUMNS = 3


def draws(seed: int, step: int, batch: int, *, flip: bool, rotate: bool) -> np.ndarray:
    """Return int32 (batch, 3), each 0 or 1: swap rows and columns, then reverse the rows, then the
    columns.

    Args:
        flip: turn each image upside down with probability 1/2.
        rotate: turn it by 0 to 3 quarters before, each with probability 1/4.
    """
    upside_down, quarters = np.zeros((2, batch), int)
    if flip:
        upside_down = np.random.default_rng((seed, FLIPS, step)).integers(0, 2, batch)
    if rotate:
        quarters = np.random.default_rng((seed, QUARTERS, step)).integers(0, 4, batch)
    swapped, rows, columns = quarters % 2, np.isin(quarters, (1, 2)), np.isin(quarters, (2, 3))
    return np.stack([swapped, rows ^ (upside_down == 1), columns], axis=1).astype(np.int32)


def applied(images: Any, draws: Any) -> Any:
    """Return the images, uint8 (n, height, width, channels), after what `draws` returned.

    >>> image = jnp.array([[[[1], [2]], [[3], [4]]]], jnp.uint8)
    >>> applied(image, jnp.array([[1, 1, 0]])).reshape(2, 2).tolist()  # by a quarter, to the left
    [[2, 4], [1, 3]]
    """
    swapped, rows, columns = (draws[:, number, None, None, None] == 1 for number in range(COLUMNS))
    if images.shape[1] == images.shape[2]:
        images = jnp.where(swapped, images.swapaxes(1, 2), images)
    images = jnp.where(rows, images[:, ::-1], images)
    return jnp.where(columns, images[:, :, ::-1], images)

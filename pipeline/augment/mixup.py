"""Mixup and CutMix, which mix each image of a batch with its neighbour (0 with 1, 2 with 3, etc.).

Batches are in random order, so partners are random as well.

References: mixup, Zhang et al. 2018, arXiv:1710.09412; CutMix, Yun et al. 2019, arXiv:1905.04899.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pipeline.augment.geometry import ONE
from pipeline.config import Data

COLUMNS = 5


def draw(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    """Draw mixtures, int32 (batch, 5).

    The first number is the image's own weight in 65,536ths. The others are the first row, end row,
    first column and end column of the rectangle that is copied from its neighbour.

    Weights are drawn from a beta distribution whose alpha is `data.mixup` or `data.cutmix`. For
    CutMix, the weight determines the area of the rectangle before it is clipped at the border. If
    both are set, one of them is chosen at random for each image.
    """
    numbers = np.zeros((batch, COLUMNS), np.int64)
    numbers[:, 0] = ONE
    if data.mixup:
        numbers[:, 0] = np.round(ONE * random.beta(data.mixup, data.mixup, batch))
    if data.cutmix:
        side = np.sqrt(1 - random.beta(data.cutmix, data.cutmix, batch))
        middles = random.random((2, batch))
        for axis, size in enumerate(data.shape[:2]):
            length, center = np.floor(side * size), np.floor(middles[axis] * size)
            first = center - length // 2
            numbers[:, 1 + 2 * axis] = np.clip(first, 0, size)
            numbers[:, 2 + 2 * axis] = np.clip(first + length, 0, size)
        if data.mixup:
            chosen = random.random(batch) < 0.5
            numbers[chosen, 0], numbers[~chosen, 1:] = ONE, 0
    return numbers.astype(np.int32)


def neighbours(values: Any) -> Any:
    """Swap each pair of neighbouring values in an array (n, …), where n is even.

    >>> neighbours(jnp.array([1, 2, 3, 4])).tolist()
    [2, 1, 4, 3]
    """
    return values.reshape(-1, 2, *values.shape[1:])[:, ::-1].reshape(values.shape)


def mixed(images: Any, numbers: Any, data: Data) -> Any:
    height, width = images.shape[1:3]
    share, top, bottom, left, right = (numbers[:, column, None] for column in range(COLUMNS))
    rows, columns = jnp.arange(height), jnp.arange(width)
    down, across = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    inside = (down[:, :, None] & across[:, None, :])[..., None]
    others, weight = neighbours(images), share[:, :, None, None]
    # A weight times a level needs 24 bits. The result is rounded, because models expect uint8.
    sums = weight * images + (ONE - weight) * others.astype(jnp.int32) + ONE // 2
    return jnp.where(inside, others, sums >> 16).astype(jnp.uint8)


def shares(numbers: Any, data: Data) -> Any:
    """Return each image's weight in its mixture, float32 (n,)."""
    height, width = data.shape[:2]
    share, top, bottom, left, right = (numbers[:, column] for column in range(COLUMNS))
    area = (bottom - top) * (right - left)
    return (share / ONE * (1 - area / (height * width))).astype(jnp.float32)

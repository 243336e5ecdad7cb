"""Mixup and CutMix: each image of a batch is mixed with its neighbour, place 0 with 1, 2 with 3.

The order of a batch is random, so partners are random, too.

Sources: mixup, Zhang et al. 2018, arXiv:1710.09412; CutMix, Yun et al. 2019, arXiv:1905.04899.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

STREAM = 4  # of random numbers from one seed (`pipeline.data.dataset.ORDER`)
WHOLE = 1 << 16  # a share of 1
COLUMNS = 5


def draws(
    seed: int, step: int, batch: int, shape: tuple[int, ...], mixup: float, cutmix: float
) -> np.ndarray:
    """Return int32 (batch, 5): each image's own share in 65,536ths, and the rectangle that is its
    neighbour's: first row, first row after it, and the same of columns. Either may change nothing.

    Args:
        shape: height and width of the images, and more.
        mixup: alpha of the Beta distribution that shares are drawn from; 0: no mixup.
        cutmix: the same for the share of the area that stays, before the rectangle is clipped at
            the border. With both, each image gets one or the other, at even odds.
    """
    random = np.random.default_rng((seed, STREAM, step))
    found = np.zeros((batch, COLUMNS), np.int64)
    found[:, 0] = WHOLE
    if mixup:
        found[:, 0] = np.round(WHOLE * random.beta(mixup, mixup, batch))
    if cutmix:
        side = np.sqrt(1 - random.beta(cutmix, cutmix, batch))
        middles = random.random((2, batch))
        for axis, size in enumerate(shape[:2]):
            length, center = np.floor(side * size), np.floor(middles[axis] * size)
            first = center - length // 2
            found[:, 1 + 2 * axis] = np.clip(first, 0, size)
            found[:, 2 + 2 * axis] = np.clip(first + length, 0, size)
        if mixup:
            cut = random.random(batch) < 0.5
            found[cut, 0], found[~cut, 1:] = WHOLE, 0
    return found.astype(np.int32)


def neighbours(values: Any) -> Any:
    """Return for each of n places what its neighbour has, (n, …); n is even.

    >>> neighbours(jnp.array([1, 2, 3, 4])).tolist()
    [2, 1, 4, 3]
    """
    return values.reshape(-1, 2, *values.shape[1:])[:, ::-1].reshape(values.shape)


def applied(images: Any, draws: Any) -> tuple[Any, Any]:
    """Return mixed images, uint8 (n, height, width, channels), and the share of each that is its
    own, float32 (n,).
    """
    height, width = images.shape[1:3]
    share, top, bottom, left, right = (draws[:, number, None] for number in range(COLUMNS))
    rows, columns = jnp.arange(height), jnp.arange(width)
    down, across = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    cut = (down[:, :, None] & across[:, None, :])[..., None]
    others, weight = neighbours(images), share[:, :, None, None]
    # A share and a level take 24 bits. Rounded, since models take uint8: half a level is far less
    # than what mixing does.
    mixed = (weight * images + (WHOLE - weight) * others.astype(jnp.int32) + WHOLE // 2) >> 16
    area = (bottom - top) * (right - left)
    own = share / WHOLE * (1 - area / (height * width))
    return jnp.where(cut, others, mixed).astype(jnp.uint8), own[:, 0].astype(jnp.float32)

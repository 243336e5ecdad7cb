"""Mixup and CutMix, on the device, within a group of a batch.

Each is a function of (seed, step, group) alone. An image's partner is the one before it in its
group: the order of a batch is random, so partners are random, too.

Sources: mixup, Zhang et al. 2018, arXiv:1710.09412; CutMix, Yun et al. 2019, arXiv:1905.04899.
"""

from typing import Any

import jax
import jax.numpy as jnp

# An independent stream of random numbers from the seed, as those of `pipeline.data.dataset`.
STREAM = 4


def key(seed: int, step: Any, group: Any) -> Any:
    """Return the random key of one group of one step."""
    first = jax.random.fold_in(jax.random.key(seed), STREAM)
    return jax.random.fold_in(jax.random.fold_in(first, step), group)


def partners(values: Any) -> Any:
    """Return for each of n images what its partner has, (n, …)."""
    return jnp.roll(values, 1, axis=0)


def mixed(key: Any, images: Any, mixup: float, cutmix: float) -> tuple[Any, Any]:
    """Return mixed images, and the share of each that is its own.

    Args:
        key: as `key` returns it.
        images: uint8 (n, height, width, channels), n of 2 or more.
        mixup: alpha of the Beta distribution that shares are drawn from; 0: no mixup.
        cutmix: the same for the share of the area that stays, before the rectangle is clipped at
            the border. With both, each image gets one or the other, at even odds.

    Returns:
        uint8 images of the same shape, and float32 (n,).
    """
    number, height, width = images.shape[:3]
    draws = jax.random.split(key, 4)
    other, share = partners(images), jnp.ones(number, jnp.float32)
    found = images
    if mixup:
        share = jax.random.beta(draws[0], mixup, mixup, (number,), jnp.float32)
        weight = share[:, None, None, None]
        # Rounded, since models take uint8: half a level is far less than what mixing does.
        found = jnp.round(weight * images + (1 - weight) * other).astype(jnp.uint8)
    if cutmix:
        side = jnp.sqrt(1 - jax.random.beta(draws[1], cutmix, cutmix, (number,), jnp.float32))
        middle = jax.random.uniform(draws[2], (2, number))
        down, right = (
            _inside(middle[axis], side, size) for axis, size in enumerate((height, width))
        )
        inside = down[:, :, None] & right[:, None, :]
        cut = jnp.where(inside[..., None], other, images)
        area = 1 - inside.mean(axis=(1, 2), dtype=jnp.float32)
        if not mixup:
            return cut, area
        takes = jax.random.bernoulli(draws[3], 0.5, (number,))
        found = jnp.where(takes[:, None, None, None], cut, found)
        share = jnp.where(takes, area, share)
    return found, share


def _inside(middle: Any, side: Any, size: int) -> Any:
    """Return which of `size` places lie in a stretch of `side` x size around `middle` x size: bool
    (n, size).
    """
    length, center = jnp.floor(side * size), jnp.floor(middle * size)
    first = (center - jnp.floor(length / 2))[:, None]
    places = jnp.arange(size)[None]
    return (places >= first) & (places < first + length[:, None])

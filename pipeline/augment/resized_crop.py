"""Resized crops: a window of each image, of random area and shape, enlarged to the image's size.

Source: Szegedy et al. 2014, arXiv:1409.4842, section 6; torchvision calls it RandomResizedCrop.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pipeline.augment.resampling import ONE, resized

STREAM = 11  # of random numbers from one seed (`pipeline.data.dataset.ORDER`)
COLUMNS = 4
NARROWEST, TRIES = 3 / 4, 10  # of width / height; windows that are drawn until one fits


def draws(seed: int, step: int, batch: int, shape: tuple[int, ...], least: float) -> np.ndarray:
    """Return int32 (batch, 4): first row, rows, first column and columns of each window.

    Args:
        shape: height and width of the images, and more.
        least: share of an image's area that a window has at least. Shares are drawn evenly from
            there to 1, width / height from 3/4 to 4/3, evenly in its logarithm. If none of ten
            windows fits, it is the whole image.
    """
    random = np.random.default_rng((seed, STREAM, step))
    area = shape[0] * shape[1] * random.uniform(least, 1, (TRIES, batch))
    narrow = np.exp(random.uniform(np.log(NARROWEST), -np.log(NARROWEST), (TRIES, batch)))
    sides = np.stack([np.sqrt(area / narrow), np.sqrt(area * narrow)]).round().clip(1)
    whole = np.array(shape[:2])[:, None, None]
    fits = (sides <= whole).all(axis=0)
    first = np.take_along_axis(sides, fits.argmax(axis=0)[None, None], axis=1)[:, 0]
    chosen = np.where(fits.any(axis=0), first, whole[:, 0])
    places = np.floor(random.random((2, batch)) * (whole[:, 0] - chosen + 1))
    return np.stack([places, chosen], axis=1).reshape(COLUMNS, batch).T.astype(np.int32)


def applied(images: Any, draws: Any) -> Any:
    """Return the images, uint8 (n, height, width, channels), after what `draws` returned.

    >>> image = jnp.array([[[[0], [100], [200]]]], jnp.uint8)
    >>> applied(image, jnp.array([[0, 1, 1, 2]])).ravel().tolist()
    [100, 150, 200]
    """
    for axis in (1, 2):
        first, number = (draws[:, 2 * axis - 2 + column, None] for column in (0, 1))
        size = images.shape[axis]
        step = number * ONE // size
        positions = first * ONE + (step - ONE) // 2 + step * jnp.arange(size)
        ends = first * ONE, (first + number - 1) * ONE
        images = resized(images, jnp.clip(positions, *ends), axis)
    return images

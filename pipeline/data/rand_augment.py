"""Augmentation: RandAugment on images in memory, by Pillow. A function of (seed, step, place in the
batch) and of nothing else.

Source: Cubuk et al. 2019, arXiv:1909.13719, with the 14 operations of section 3; at magnitude 1
each goes as far as AutoAugment's (arXiv:1805.09501, table 6): shear by 0.3, translation by 0.45 of
a side, rotation by 30 degrees, 4 bits a colour, and so on.

Not `keras.layers.RandAugment`, which chooses once for all images of a call, takes one histogram of
all of them to equalize (on JAX by a loop of 256 that is unrolled for each channel), and at its
default turns an image by up to 180 degrees (Keras 3.13.2 and 3.15.1, read).

One core of a laptop makes 8,600 images of 32 x 32 a second with two operations, and 840 of 224 x
224; threads add nothing, since Pillow keeps the interpreter in most of these. Where that is less
than what the devices take, they wait.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

# An independent stream of random numbers from the seed, as those of `pipeline.data.dataset`.
STREAM = 5
Change = Callable[[Image.Image, float], Image.Image]


def _affine(image: Image.Image, *numbers: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Change:
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength)


def _rotated(image: Image.Image, strength: float) -> Image.Image:
    return image.rotate(30 * strength, Image.Resampling.BILINEAR)


# What each makes of an image with a strength from -1 to 1; where a sign means nothing, its size
# counts.
OPERATIONS: dict[str, Change] = {
    "identity": lambda image, strength: image,
    "autocontrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
    "rotate": _rotated,
    "solarize": lambda image, strength: ImageOps.solarize(image, round(256 * (1 - abs(strength)))),
    "color": _enhanced(ImageEnhance.Color),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "shear_x": lambda image, strength: _affine(image, 1, 0.3 * strength, 0, 0, 1, 0),
    "shear_y": lambda image, strength: _affine(image, 1, 0, 0, 0.3 * strength, 1, 0),
    "translate_x": lambda image, strength: _affine(
        image, 1, 0, 0.45 * strength * image.width, 0, 1, 0
    ),
    "translate_y": lambda image, strength: _affine(
        image, 1, 0, 0, 0, 1, 0.45 * strength * image.height
    ),
}


def randomly(
    images: np.ndarray, seed: int, step: int, operations: int, magnitude: float
) -> np.ndarray:
    """Return the images after so many operations each, drawn anew for each image and each step:
    uint8, of the same shape.

    Args:
        images: uint8 (n, height, width, channels), of 1 or 3 channels. step: of the run.
        operations: on each image, one after the other. magnitude: how strong they are, 0 to 1; to
            the left or right at even odds.

    >>> black = np.zeros((2, 8, 8, 1), np.uint8)
    >>> bool((randomly(black, 0, 7, 2, 0.0) == black).all())
    True
    """
    random = np.random.default_rng((seed, STREAM, step))
    chosen = random.integers(0, len(OPERATIONS), (len(images), operations))
    strengths = magnitude * (2 * random.integers(0, 2, chosen.shape) - 1)
    changes = list(OPERATIONS.values())

    def change(place: int) -> np.ndarray:
        flat = images[place, ..., 0] if images.shape[-1] == 1 else images[place]
        image = Image.fromarray(np.ascontiguousarray(flat))
        for number, strength in zip(chosen[place], strengths[place], strict=True):
            image = changes[number](image, float(strength))
        return np.asarray(image).reshape(images.shape[1:])

    return np.stack([change(place) for place in range(len(images))])

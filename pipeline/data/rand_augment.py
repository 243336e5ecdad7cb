"""RandAugment on images in memory, by Pillow: a function of (seed, step, place in the batch) alone.

Source: Cubuk et al. 2019, arXiv:1909.13719, with the 14 operations of section 3. At magnitude 1
each is as strong as in AutoAugment (arXiv:1805.09501, table 6): shear by 0.3, translation by 0.45
of a side, rotation by 30 degrees, 4 bits a colour, and so on.

`keras.layers.RandAugment` does not fit: it draws once for all images of a call, equalizes them by
one common histogram, and by default rotates by up to 180 degrees (Keras 3.13.2 and 3.15.1).

One core of a laptop makes 8,600 images of 32x32 a second with two operations, and 840 of 224x224.
Threads do not help, since Pillow holds the interpreter in most operations.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

STREAM = 5  # of random numbers (`pipeline.data.dataset.ORDER`)
Operation = Callable[[Image.Image, float], Image.Image]


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength)


# Each takes an image and a strength from -1 to 1. Some ignore the sign, some the strength.
OPERATIONS: dict[str, Operation] = {
    "identity": lambda image, _: image,
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "rotate": lambda image, by: image.rotate(30 * by, Image.Resampling.BILINEAR),
    "solarize": lambda image, by: ImageOps.solarize(image, round(256 * (1 - abs(by)))),
    "color": _enhance(ImageEnhance.Color),
    "posterize": lambda image, by: ImageOps.posterize(image, 8 - round(4 * abs(by))),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear_x": lambda image, by: _affine(image, 1, 0.3 * by, 0, 0, 1, 0),
    "shear_y": lambda image, by: _affine(image, 1, 0, 0, 0.3 * by, 1, 0),
    "translate_x": lambda image, by: _affine(image, 1, 0, 0.45 * by * image.width, 0, 1, 0),
    "translate_y": lambda image, by: _affine(image, 1, 0, 0, 0, 1, 0.45 * by * image.height),
}


def augmented(
    images: np.ndarray, seed: int, step: int, operations: int, magnitude: float
) -> np.ndarray:
    """Return the images after random operations, drawn anew for each image and step.

    Args:
        images: uint8 (n, height, width, channels), of 1 or 3 channels.
        operations: on each image, one after the other.
        magnitude: how strong they are, 0 to 1; the sign is random.

    Returns:
        uint8 of the same shape.

    >>> black = np.zeros((2, 8, 8, 1), np.uint8)
    >>> bool((augmented(black, 0, 7, 2, 0.0) == black).all())
    True
    """
    random = np.random.default_rng((seed, STREAM, step))
    chosen = random.integers(0, len(OPERATIONS), (len(images), operations))
    strengths = magnitude * (2 * random.integers(0, 2, chosen.shape) - 1)
    functions = list(OPERATIONS.values())
    results = []
    for pixels, numbers, signed in zip(images, chosen, strengths, strict=True):
        flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
        image = Image.fromarray(np.ascontiguousarray(flat))
        for number, strength in zip(numbers, signed, strict=True):
            image = functions[number](image, float(strength))
        results.append(np.asarray(image).reshape(pixels.shape))
    return np.stack(results)

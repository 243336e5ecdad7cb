"""RandAugment, which applies random operations to each image using integer arithmetic.

Reference: Cubuk et al. 2019, arXiv:1909.13719, with the 14 operations in section 3. At magnitude 1,
they are as strong as in AutoAugment (arXiv:1805.09501, table 6). Results match Pillow's up to
rounding, except that rotations resample rows and then columns (Catmull & Smith 1980).

`keras.layers.RandAugment` is not suitable. In Keras 3.13.2 and 3.15.1, it draws once for all images
in a call, equalizes them with a shared histogram, and rotates by up to 180 degrees by default.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.augment.geometry import ONE, resampled
from pipeline.config import Data

LEVELS = 256
COLUMNS = 7  # numbers per operation: an index and six parameters


def draw(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    """Draw operations for each image, int32 (batch, 7 x data.rand_augment).

    Each operation has the strength `data.rand_magnitude` with a random sign.
    """
    chosen = random.integers(0, len(OPERATIONS), (batch, data.rand_augment))
    strengths = data.rand_magnitude * (2 * random.integers(0, 2, chosen.shape) - 1)
    return numbers(chosen, strengths, data.shape).reshape(batch, -1)


def numbers(chosen: np.ndarray, strengths: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Convert operation indices and strengths (-1 to 1) to numbers for devices, int32 (…, 7)."""
    rows = np.zeros((*chosen.shape, COLUMNS))
    rows[..., 0] = chosen
    for number, operation in enumerate(OPERATIONS.values()):
        here = chosen == number
        for column, value in enumerate(operation.numbers(strengths[here], *shape[:2]), start=1):
            rows[here, column] = np.round(ONE * value)
    return rows.astype(np.int32)


def operated(images: Any, numbers: Any, data: Data) -> Any:
    """Apply the drawn operations to uint8 images (n, height, width, 1 or 3).

    Images are processed one by one, so that each takes only as long as its own operations.
    """
    rows = numbers.reshape(len(numbers), -1, COLUMNS)
    branches = [operation.apply for operation in OPERATIONS.values()]

    def operate(row: tuple[Any, Any]) -> Any:
        image, operations = row
        for number, *values in operations:
            image = jax.lax.switch(number, branches, image, values)
        return image

    return jax.lax.map(operate, (images, rows))


def _autocontrast(image: Any, _: Any) -> Any:
    low, high = image.min((0, 1)).astype(jnp.int32), image.max((0, 1)).astype(jnp.int32)
    spread = (image.astype(jnp.int32) - low) * (LEVELS - 1) // jnp.maximum(high - low, 1)
    return jnp.where(high > low, spread, image).astype(jnp.uint8)


def _equalize(image: Any, _: Any) -> Any:
    def channel(values: Any) -> Any:
        counts = _counts(values.reshape(-1))
        last = counts[LEVELS - 1 - jnp.argmax(counts[::-1] > 0)]
        step = (counts.sum() - last) // (LEVELS - 1)
        before = jnp.cumsum(counts) - counts
        level = jnp.minimum((step // 2 + before) // jnp.maximum(step, 1), LEVELS - 1)
        return jnp.where(step > 0, level, jnp.arange(LEVELS)).astype(jnp.uint8)[values]

    return jnp.stack([channel(image[..., number]) for number in range(image.shape[2])], axis=-1)


def _counts(values: Any) -> Any:
    def compared(values: Any) -> Any:
        return (values[:, None] == jnp.arange(LEVELS)).sum(0, dtype=jnp.int32)

    def added(values: Any) -> Any:
        return jnp.zeros(LEVELS, jnp.int32).at[values].add(1)

    return jax.lax.platform_dependent(values, tpu=compared, default=added)


def _solarize(image: Any, values: Any) -> Any:
    return jnp.where(image < values[0], image, LEVELS - 1 - image)


def _posterize(image: Any, values: Any) -> Any:
    return (image // values[0] * values[0]).astype(jnp.uint8)


def _grey(image: Any) -> Any:
    if image.shape[2] == 1:
        return image.astype(jnp.int32)
    weights = jnp.array([19595, 38470, 7471], jnp.int32)  # for red, green and blue, as in Pillow
    return ((image * weights).sum(-1, keepdims=True) + ONE // 2) >> 16


def _blended(image: Any, other: Any, factor: Any) -> Any:
    blend = other + ((factor * (image.astype(jnp.int32) - other)) >> 16)
    return jnp.clip(blend, 0, LEVELS - 1).astype(jnp.uint8)


def _contrast(image: Any, values: Any) -> Any:
    grey = _grey(image)
    return _blended(image, (grey.sum() + grey.size // 2) // grey.size, values[0])


def _sharpness(image: Any, values: Any) -> Any:
    height, width, _ = image.shape
    if min(height, width) < 3:
        return image
    wide = image.astype(jnp.int32)
    around = jax.lax.reduce_window(wide, 0, jax.lax.add, (3, 3, 1), (1, 1, 1), "VALID")
    inner = (around + 4 * wide[1:-1, 1:-1] + 6) // 13
    smooth = wide.at[1:-1, 1:-1].set(inner)  # keeps the border, as in Pillow
    return _blended(image, smooth, values[0])


def _moved(image: Any, values: Any) -> Any:
    height, width, _ = image.shape
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    # Treat each row as an image, because each row has its own positions.
    return resampled(image[:, None], values[0] * columns + values[1] * rows + values[2], 2)[:, 0]


def _moved_down(image: Any, values: Any) -> Any:
    x, y, start = values[:3]
    return _moved(image.swapaxes(0, 1), (y, x, start)).swapaxes(0, 1)


def _rotation(by: np.ndarray, height: int, width: int) -> Sequence[Any]:
    angle, half, middle = np.radians(-30 * by), (height - 1) / 2, (width - 1) / 2
    cosine, sine = np.cos(angle), np.sin(angle)
    start = half + sine * middle - cosine * half
    across = middle - cosine * middle - sine * half - sine / cosine * start
    return 1 / cosine, sine / cosine, across, -sine, cosine, start


def _factor(by: np.ndarray, *_: int) -> Sequence[Any]:
    return (1 + 0.9 * by,)


class Operation(NamedTuple):
    """An image operation.

    Attributes:
        apply: device function that takes an image, uint8 (height, width, channels), and six
            parameters in 65,536ths, and returns the modified image.
        numbers: host function that takes strengths (-1 to 1), height and width, and returns up to
            six parameters.
    """

    apply: Callable[[Any, Any], Any]
    numbers: Callable[[np.ndarray, int, int], Sequence[Any]] = lambda *_: ()


OPERATIONS = {
    "identity": Operation(lambda image, _: image),
    "autocontrast": Operation(_autocontrast),
    "equalize": Operation(_equalize),
    "rotate": Operation(lambda image, v: _moved_down(_moved(image, v[:3]), v[3:]), _rotation),
    "solarize": Operation(_solarize, lambda by, *_: [np.round(LEVELS * (1 - np.abs(by))) / ONE]),
    "color": Operation(lambda image, v: _blended(image, _grey(image), v[0]), _factor),
    "posterize": Operation(_posterize, lambda by, *_: [2 ** np.round(4 * np.abs(by)) / ONE]),
    "contrast": Operation(_contrast, _factor),
    "brightness": Operation(lambda image, v: _blended(image, jnp.int32(0), v[0]), _factor),
    "sharpness": Operation(_sharpness, _factor),
    "shear_x": Operation(_moved, lambda by, *_: (1, 0.3 * by, 0.15 * by)),
    "shear_y": Operation(_moved_down, lambda by, *_: (0.3 * by, 1, 0.15 * by)),
    "translate_x": Operation(_moved, lambda by, height, width: (1, 0, 0.45 * by * width)),
    "translate_y": Operation(_moved_down, lambda by, height, width: (0, 1, 0.45 * by * height)),
}

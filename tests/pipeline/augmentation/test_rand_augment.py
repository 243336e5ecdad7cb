"""RandAugment is the same wherever it is computed, and does what its names say."""

import jax
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from pipeline.augmentation import rand_augment
from tests.pipeline.augmentation.test_crop_and_flip import on

RANDOM = np.random.default_rng(0)
NAMES = list(rand_augment.OPERATIONS)
apply = jax.jit(rand_augment.applied)  # compiled once for a shape, with all operations
BILINEAR = Image.Resampling.BILINEAR


def smooth(side=48):
    """Return a picture whose neighbouring pixels are alike, as a photograph's."""
    y, x = np.mgrid[:side, :side] / side
    waves = np.stack([np.sin(6 * x + 3 * y), np.cos(9 * x * y), 2 * x * y - 1], axis=-1)
    return (127.5 + 110 * waves).astype(np.uint8)


def changed(pixels, name, strength):
    """Return one image after one operation."""
    chosen = np.full((1, 1), NAMES.index(name))
    draws = rand_augment.numbers(chosen, np.full((1, 1), strength), pixels.shape)
    return np.asarray(apply(pixels[None], draws.reshape(1, -1)))[0]


def moved(matrix):
    """Return Pillow's affine transform by these six functions of the strength, or numbers."""

    def move(image, by):
        given = [value(by) if callable(value) else value for value in matrix]
        return image.transform(image.size, Image.Transform.AFFINE, given, BILINEAR)

    return move


def enhanced(kind):
    return lambda image, by: kind(image).enhance(1 + 0.9 * by)


PILLOW = {
    "identity": lambda image, by: image,
    "autocontrast": lambda image, by: ImageOps.autocontrast(image),
    "equalize": lambda image, by: ImageOps.equalize(image),
    "rotate": lambda image, by: image.rotate(30 * by, BILINEAR),
    "solarize": lambda image, by: ImageOps.solarize(image, round(256 * (1 - abs(by)))),
    "color": enhanced(ImageEnhance.Color),
    "posterize": lambda image, by: ImageOps.posterize(image, 8 - round(4 * abs(by))),
    "contrast": enhanced(ImageEnhance.Contrast),
    "brightness": enhanced(ImageEnhance.Brightness),
    "sharpness": enhanced(ImageEnhance.Sharpness),
    "shear_x": moved((1, lambda by: 0.3 * by, 0, 0, 1, 0)),
    "shear_y": moved((1, 0, 0, lambda by: 0.3 * by, 1, 0)),
    "translate_x": moved((1, 0, lambda by: 0.45 * 48 * by, 0, 1, 0)),
    "translate_y": moved((1, 0, 0, 0, 1, lambda by: 0.45 * 48 * by)),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_gives_what_pillow_s_gives(name):
    """To one level; but a rotation, which resamples twice, in all but its border."""
    pixels = smooth()
    for strength in (-0.7, 0.5, 1.0):
        wanted = np.asarray(PILLOW[name](Image.fromarray(pixels), strength)).astype(int)

        apart = np.abs(changed(pixels, name, strength) - wanted)

        assert np.quantile(apart, 0.9 if name == "rotate" else 1) <= 1
        assert apart.mean() < 1.5


def test_without_strength_nothing_changes():
    """But for the two operations that have none, of grey images too."""
    names = [name for name in NAMES if name not in ("autocontrast", "equalize")]
    pixels = RANDOM.integers(0, 256, (len(names), 9, 12, 1), np.uint8)
    chosen = np.array([[NAMES.index(name)] for name in names])
    draws = rand_augment.numbers(chosen, np.zeros(chosen.shape), pixels.shape[1:])

    assert np.array_equal(apply(pixels, draws.reshape(len(names), -1)), pixels)


def test_each_image_draws_for_itself_and_each_step_anew():
    """A function of (seed, step, place)."""
    given = 32, (9, 12, 3), 2, 0.5

    found, again = (rand_augment.draws(5, 3, *given) for _ in range(2))
    others = [rand_augment.draws(seed, step, *given) for seed, step in ((5, 4), (6, 3))]

    assert np.array_equal(found, again)
    assert len({row.tobytes() for row in found}) > 16
    assert not any(np.array_equal(found, other) for other in others)


def test_a_tpu_s_way_gives_the_same_bits(monkeypatch):
    """Products of matrices in place of gathers, and comparisons in place of counting."""
    pixels = RANDOM.integers(0, 256, (len(NAMES), 9, 12, 3), np.uint8)
    chosen = np.arange(len(NAMES))[:, None]
    draws = rand_augment.numbers(chosen, np.full(chosen.shape, 0.7), pixels.shape[1:])
    draws = draws.reshape(len(NAMES), -1)
    found = np.asarray(apply(pixels, draws))

    on("tpu", monkeypatch)

    assert np.array_equal(apply(pixels, draws), found)

"""RandAugment is the same wherever it is computed, keeps an image an image, and does what its names
say.
"""

import numpy as np
import pytest
from PIL import Image

from pipeline.data import dataset, rand_augment

RANDOM = np.random.default_rng(0)


def images(channels, number=6):
    return RANDOM.integers(0, 256, (number, 9, 12, channels), np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", rand_augment.OPERATIONS)
def test_each_operation_gives_an_image_of_the_same_size(name, channels):
    """At both ends of its strength."""
    pixels = images(channels, 1)[0]
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)

    for strength in (-1.0, -0.3, 0.0, 0.3, 1.0):
        found = rand_augment.OPERATIONS[name](image, strength)

        assert (found.size, found.mode) == (image.size, image.mode)


@pytest.mark.parametrize(
    "name", sorted(set(rand_augment.OPERATIONS) - {"autocontrast", "equalize"})
)
def test_without_strength_nothing_changes(name):
    """But for the two that have none."""
    pixels = images(3, 1)[0]

    assert np.array_equal(rand_augment.OPERATIONS[name](Image.fromarray(pixels), 0.0), pixels)


@pytest.mark.parametrize("name", sorted(set(rand_augment.OPERATIONS) - {"identity"}))
def test_with_strength_something_does(name):
    """Of an image in the middle of the range, so that contrast can be stretched; Pillow equalizes
    none of fewer than 255 pixels.
    """
    pixels = RANDOM.integers(60, 145, (20, 20, 3), np.uint8)

    assert not np.array_equal(rand_augment.OPERATIONS[name](Image.fromarray(pixels), 1.0), pixels)


def test_a_translation_moves_by_the_part_of_a_side_that_it_says():
    """0.45 of 20 pixels is 9."""
    pixels = np.zeros((20, 20), np.uint8)
    pixels[10, 15] = 255

    moved = np.asarray(rand_augment.OPERATIONS["translate_x"](Image.fromarray(pixels), 1.0))

    assert np.argwhere(moved).tolist() == [[10, 6]]


def test_each_image_draws_for_itself_and_each_step_anew():
    """A function of (seed, step, place)."""
    same = np.repeat(images(3, 1), 32, axis=0)

    found, again = (rand_augment.augmented(same, 5, 3, 2, 0.5) for _ in range(2))
    others = [rand_augment.augmented(same, seed, step, 2, 0.5) for seed, step in ((5, 4), (6, 3))]

    assert np.array_equal(found, again)
    assert len({image.tobytes() for image in found}) > 16
    assert not any(np.array_equal(found, other) for other in others)


def test_batches_are_augmented_after_they_are_cropped_and_flipped():
    """By the config, and labels stay."""
    pixels, labels = images(1, 8), np.arange(8, dtype=np.int32)
    given = {"batch": 8, "seed": 1, "crop_padding": 1, "flip": True}

    plain, found = (
        dataset.Batches(pixels, labels, **given, rand_augment=operations, rand_magnitude=0.5).at(3)
        for operations in (0, 2)
    )

    assert np.array_equal(found[1], plain[1])
    assert np.array_equal(found[0], rand_augment.augmented(plain[0], 1, 3, 2, 0.5))

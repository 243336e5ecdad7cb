"""A turned image has its own pixels, in one of the eight orders that a square has."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from pipeline import config as configs
from pipeline.augmentation import crop_and_flip, mixup, rand_augment, resized_crop, turns
from pipeline.augmentation.augmentation import Augmentation
from pipeline.errors import ConfigError
from pipeline.inference import test_time_augmentation

DIGITS = configs.load("digits")


@pytest.mark.parametrize(("flip", "rotate"), [(True, False), (False, True), (True, True)])
def test_each_turn_occurs_as_often(flip, rotate):
    """With both, four of the eight come about in two ways each."""
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    draws = turns.draws(0, 0, 800, flip=flip, rotate=rotate)
    quarters = [np.rot90(image, number) for number in range(4 if rotate else 1)]
    forms = [*quarters, *(each[::-1] for each in quarters if flip)]

    found = np.asarray(turns.applied(np.repeat(image[None], 800, 0), draws))

    counts = [sum(np.array_equal(form, one) for one in found) for form in forms]
    assert sum(counts) == 800
    # Six standard deviations of a binomial count.
    share = 1 / len(forms)
    wide = 6 * (800 * share * (1 - share)) ** 0.5
    assert all(abs(count - 800 * share) < wide for count in counts)


def test_an_option_changes_no_other_option_s_numbers():
    """Each draws from a stream of its own."""
    data = replace(DIGITS.data, crop_padding=1, flip=True, mixup=0.2)
    given = Augmentation(data, 0, 8).draws(3)
    more = replace(data, flip_vertical=True, rotate=True, crop_scale=0.3)
    alone = replace(DIGITS.data, crop_padding=0, flip_vertical=True)

    found = Augmentation(more, 0, 8).draws(3)

    assert np.array_equal(found[:, : given.shape[1]], given)
    assert found.shape[1] == given.shape[1] + 4 + 3
    upside_down = Augmentation(alone, 0, 8).draws(3)[:, 1]
    assert set(upside_down) == {0, 1}
    assert np.array_equal(upside_down, turns.draws(0, 3, 8, flip=True, rotate=False)[:, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"crop_padding": 2}, {"flip": True}, {"rand_augment": 2}, {"mixup": 0.4}, {"cutmix": 1.0},
        {"crop_scale": 0.3}, {"flip_vertical": True}, {"rotate": True},
    ],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_another_step_and_another_seed_draw_other_numbers(options):
    data = replace(DIGITS.data, **{"crop_padding": 0, "flip": False, **options})

    places = (0, 0), (0, 1), (1, 0)
    drawn = {Augmentation(data, seed, 32).draws(step).tobytes() for seed, step in places}

    assert len(drawn) == 3


def test_all_changes_are_made_one_after_the_other():
    """Each gets its own numbers."""
    options = {"flip_vertical": True, "rotate": True, "crop_scale": 0.3, "rand_augment": 1}
    data = replace(DIGITS.data, crop_padding=1, flip=True, mixup=0.2, **options)
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), np.uint8)
    changes, given = Augmentation(data, 5, 8), (5, 2, 8)

    crops = resized_crop.draws(*given, data.shape, 0.3)
    turned = turns.draws(*given, flip=True, rotate=True)
    moves = crop_and_flip.draws(*given, 1, flip=True)
    operations = rand_augment.draws(*given[:2], 8, data.shape, 1, data.rand_magnitude)
    mixes = mixup.draws(*given, data.shape, 0.2, 0.0)

    @jax.jit
    def both(images):
        expected = turns.applied(resized_crop.applied(images, crops), turned)
        expected = crop_and_flip.applied(expected, moves, 1)
        expected = mixup.applied(rand_augment.applied(expected, operations), mixes)
        return *expected, *changes.applied(images, changes.draws(2))

    expected, shares, found, own = both(images)
    assert np.array_equal(found, expected) and np.array_equal(own, shares)


@pytest.mark.parametrize(
    ("option", "other"), [("flip_vertical", [2, 3, 0, 1]), ("flip", [1, 0, 3, 2])]
)
def test_images_that_training_turned_over_are_looked_at_so_too(option, other):
    """Without crops there is no third view."""
    data = replace(DIGITS.data, crop_padding=0, **{option: True})
    image = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1)

    views = test_time_augmentation.views(data, 9)

    assert [view.apply(image).ravel().tolist() for view in views] == [[0, 1, 2, 3], other]
    assert replace(DIGITS, data=data, views=2).views == 2
    with pytest.raises(ConfigError, match=rf"at most 2 .*{option}=True"):
        replace(DIGITS, data=data, views=3)

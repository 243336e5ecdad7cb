"""A crop is a window of its own image, mirrored or not, the same whichever way it is computed."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.augmentation import crop_and_flip, resampling

apply = jax.jit(crop_and_flip.applied, static_argnums=2)


def changed(pixels, batch, side=0, flip=False, step=0):
    """Return so many random crops and flips of one image."""
    draws = crop_and_flip.draws(0, step, batch, side, flip=flip)
    return np.asarray(apply(np.repeat(pixels, batch, 0), draws, side))


def windows(image, side):
    height, width = image.shape[:2]
    around = np.pad(image, ((side, side), (side, side), (0, 0)))
    places = range(2 * side + 1)
    return [around[y : y + height, x : x + width] for y in places for x in places]


def test_all_windows_of_the_padded_image_occur():
    """Zeros come in from the sides, as far as the padding, and no farther."""
    pixels = np.random.default_rng(0).integers(1, 256, (1, 6, 6, 1), dtype=np.uint8)

    found = {image.tobytes() for image in changed(pixels, 400, side=2)}

    assert found == {window.tobytes() for window in windows(pixels[0], 2)}


def test_a_flip_mirrors_left_to_right_about_half_of_the_images():
    """Never top to bottom; half to within six standard deviations of a binomial count."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)

    images = changed(pixels, 400, flip=True)

    mirrored = (images == pixels[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (mirrored ^ (images == pixels).all(axis=(1, 2, 3))).all()
    assert abs(mirrored.sum() - 200) < 6 * 10


@settings(max_examples=5, deadline=None)  # each form is compiled
@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 3]), st.integers(0, 3), st.data())
def test_an_image_of_any_form_becomes_a_window_of_its_own(height, width, channels, side, data):
    """No pixel comes from another image."""
    flip, step = data.draw(st.booleans()), data.draw(st.integers(0, 9))
    shape = 4, height, width, channels
    pixels = np.random.default_rng(step).integers(1, 256, shape, dtype=np.uint8)
    draws = crop_and_flip.draws(0, step, 4, side, flip=flip)

    found = np.asarray(apply(pixels, draws, side))

    for image, own in zip(found, pixels, strict=True):
        allowed = windows(own, side)
        allowed += [window[:, ::-1] for window in allowed] * flip
        assert any(np.array_equal(image, window) for window in allowed)


@pytest.mark.parametrize("platform", ["tpu", "default"])
def test_a_tpu_s_way_and_a_gpu_s_give_the_same_bits(monkeypatch, platform):
    """Products of matrices, and gathers, in place of copies."""
    pixels = np.random.default_rng(1).integers(0, 256, (8, 9, 12, 3), np.uint8)
    draws = crop_and_flip.draws(3, 1, 8, 3, flip=True)
    copied = np.asarray(apply(pixels, draws, 3))

    on(platform, monkeypatch)

    assert np.array_equal(apply(pixels, draws, 3), copied)


def on(platform, monkeypatch):
    """Let what depends on the platform compute as this one does."""

    def chosen(*given, default, **ways):
        return ways.get(platform, default)(*given)

    monkeypatch.setattr(resampling.jax.lax, "platform_dependent", chosen)
    jax.clear_caches()

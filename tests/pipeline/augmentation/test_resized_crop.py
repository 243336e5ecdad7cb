"""A resized crop is a window of its own image, as Pillow enlarges it, on every platform."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.augmentation import resized_crop
from tests.pipeline.augmentation.test_crop_and_flip import on

sides = st.integers(1, 300)


@given(sides, sides, st.floats(0.01, 1), st.integers(0, 9))
def test_a_window_lies_within_the_image_and_has_the_shape_and_share_that_were_asked_for(
    height, width, least, step
):
    """But for rounding to whole pixels, or it is the whole image."""
    draws = resized_crop.draws(1, step, 50, (height, width, 3), least)

    top, rows, left, columns = draws.T
    assert (top >= 0).all() and (left >= 0).all() and (rows > 0).all() and (columns > 0).all()
    assert (top + rows <= height).all() and (left + columns <= width).all()
    part = draws[(rows < height) | (columns < width)].T
    _, rows, _, columns = part
    assert ((rows + 0.5) * (columns + 0.5) >= least * height * width).all()
    assert ((columns + 0.5) / np.maximum(rows - 0.5, 0.1) >= 3 / 4).all()
    assert (np.maximum(columns - 0.5, 0) / (rows + 0.5) <= 4 / 3).all()


def test_windows_have_every_share_of_the_area_alike():
    """Of 0.2 to 1, a half lies below 0.6, but for the shapes that do not fit."""
    draws = resized_crop.draws(1, 0, 4000, (200, 200, 3), 0.2)

    share = draws[:, 1] * draws[:, 3] / 200**2
    assert share.min() < 0.21 and share.max() > 0.95
    assert 0.5 < (share < 0.6).mean() < 0.62


@pytest.mark.parametrize("platform", ["tpu", "default"])
def test_a_window_is_enlarged_as_by_pillow_on_every_platform(platform, monkeypatch):
    """Each of two passes loses at most a level by steps of 1/256 and half a one by rounding."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, 20, 31, 3), np.uint8)
    draws = resized_crop.draws(0, 0, 4, images.shape[1:], 0.1)
    draws[0] = 0, 20, 0, 31  # the whole image stays as it is
    on(platform, monkeypatch)

    found = np.asarray(jax.jit(resized_crop.applied)(images, draws))

    assert found.dtype == np.uint8 and np.array_equal(found[0], images[0])
    for image, (top, rows, left, columns), ours in zip(images, draws, found, strict=True):
        window = Image.fromarray(image[top : top + rows, left : left + columns])
        theirs = np.asarray(window.resize((31, 20), Image.Resampling.BILINEAR))
        assert np.abs(ours.astype(int) - theirs).max() <= 4

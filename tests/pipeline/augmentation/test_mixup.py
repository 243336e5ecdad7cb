"""Mixup and CutMix mix what they say, in the shares they say; the loss is that of the mixture."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import config as configs
from pipeline.augmentation import mixup
from pipeline.data import labels as target
from pipeline.errors import ConfigError
from pipeline.training.train_step import Step
from tests.pipeline.handmade import with_data
from tests.pipeline.rounding import EPS

DIGITS = configs.load("digits")
SHAPE = 12, 10, 3
IMAGES = np.random.default_rng(0).integers(0, 256, (16, *SHAPE), np.uint8)
apply = jax.jit(mixup.applied)


def mixed(images, seed, step, alphas):
    """Return the mixed images, and the share of each that is its own."""
    draws = mixup.draws(seed, step, len(images), images.shape[1:], *alphas)
    return tuple(map(np.asarray, apply(images, draws)))


def neighbour(values):
    return values[np.arange(len(values)) ^ 1]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), step=st.integers(0, 10**6))
def test_mixup_is_the_weighted_mean_of_an_image_and_its_neighbour(seed, step):
    found, own = mixed(IMAGES, seed, step, (0.4, 0.0))

    weight = own[:, None, None, None]
    assert found.dtype == np.uint8
    assert ((own >= 0) & (own <= 1)).all()
    # Half a level, and the rounding of a sum of numbers up to 255.
    bound = 0.5 + 4 * 255 * EPS
    assert np.abs(found - (weight * IMAGES + (1 - weight) * neighbour(IMAGES))).max() <= bound


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), step=st.integers(0, 10**6))
def test_cutmix_replaces_a_rectangle_of_the_area_that_it_says(seed, step):
    """Of other values than the image's own, so that each pixel tells whose it is."""
    own = np.broadcast_to(np.arange(1, 17, dtype=np.uint8)[:, None, None, None], (16, *SHAPE))

    found, share = mixed(own, seed, step, (0.0, 1.0))

    for image, place, part in zip(found[..., 0], range(16), share, strict=True):
        theirs = image != place + 1
        assert set(image[theirs]) <= {(place ^ 1) + 1}
        assert part == pytest.approx(1 - theirs.mean(), abs=4 * EPS)
        if theirs.any():
            rows, columns = (np.flatnonzero(theirs.any(axis=axis)) for axis in (1, 0))
            assert theirs[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()


def test_shares_are_drawn_from_the_beta_distribution():
    """Of Beta(a, a) the mean is 1/2 and the variance 1 / (4 (2 a + 1)): Johnson et al., Continuous
    Univariate Distributions 2, ch. 25; its kurtosis is 3 - 6 / (2 a + 3). To five standard errors.
    """
    number = 20_000
    images = np.zeros((number, 1, 1, 1), np.uint8)
    for alpha in (0.2, 1.0):
        _, own = mixed(images, 0, 0, (alpha, 0.0))

        variance, kurtosis = 1 / (4 * (2 * alpha + 1)), 3 - 6 / (2 * alpha + 3)
        of_mean, of_variance = variance / number, variance**2 * (kurtosis - 1) / number
        assert float(own.mean()) == pytest.approx(0.5, abs=5 * of_mean**0.5)
        assert float(own.var()) == pytest.approx(variance, abs=5 * of_variance**0.5)


def test_with_both_each_image_gets_one_of_them():
    own = np.broadcast_to(np.array([0, 200] * 8, np.uint8)[:, None, None, None], (16, *SHAPE))

    found, _ = mixed(own, 1, 0, (8.0, 1.0))

    between = [bool(((image != 0) & (image != 200)).any()) for image in found]
    assert 2 <= sum(between) <= 14


def test_other_steps_and_seeds_draw_other_shares():
    numbers = (0, 0), (0, 1), (1, 0), (0, 0)

    shares = [mixed(IMAGES, *each, (0.4, 0.0))[1].tobytes() for each in numbers]

    assert len(set(shares)) == 3 and shares[0] == shares[3]


def judging(kind):
    """Return a step of which only the loss is used, for this kind of target."""
    step = object.__new__(Step)
    step.config = replace(DIGITS, num_classes=4)
    object.__setattr__(step.config, "target", kind)
    return step


@pytest.mark.parametrize("kind", ["classes", "ordinal", "multilabel", "regression"])
def test_the_loss_of_a_mixture_has_the_gradient_of_the_mixed_truth(kind):
    """The truth as probabilities (or numbers), mixed by hand."""
    random, number, outputs = np.random.default_rng(1), 6, 4
    logits = random.normal(size=(number, outputs)).astype(np.float32)
    own = random.random(number).astype(np.float32)
    labels = truth = random.integers(0, 2, (number, outputs)).astype(np.float32)
    if kind in ("classes", "ordinal"):
        labels = random.integers(0, outputs, number).astype(np.int32)
        truth = np.eye(outputs, dtype=np.float32)[labels]
    if kind == "ordinal":
        truth = (labels[:, None] > np.arange(outputs)).astype(np.float32)
    wanted = own[:, None] * truth + (1 - own[:, None]) * neighbour(truth)

    def by_hand(values):
        if kind == "classes":
            return -(wanted * jax.nn.log_softmax(values)).sum()
        if kind == "regression":
            return jnp.square(values - wanted).mean(axis=-1).sum()
        each = -(wanted * jax.nn.log_sigmoid(values) + (1 - wanted) * jax.nn.log_sigmoid(-values))
        return (each.sum(axis=-1) if kind == "ordinal" else each.mean(axis=-1)).sum()

    step, others = judging(kind), neighbour(labels)

    def judged(values):
        return step._judged(labels, others, values, own)[0].sum()

    found, expected = (jax.jit(jax.grad(each))(logits) for each in (judged, by_hand))

    # Numbers of about 1, each from a few dozen operations.
    assert np.allclose(found, expected, rtol=0, atol=100 * EPS)


def test_what_has_the_greater_share_counts_as_right():
    labels, logits = np.array([1, 2], np.int32), np.eye(10, dtype=np.float32)[[1, 1]]
    shares = np.array([0.6, 0.3], np.float32)

    _, figures = judging("classes")._judged(labels, neighbour(labels), logits, shares)

    assert figures.tolist() == [1.0, 1.0]
    assert target.figure("classes", labels, logits).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("kind", "classes"), [("ordinal", 10), ("regression", 0)])
def test_a_number_is_mixed_and_not_cut(kind, classes):
    change = {"target": kind, "num_classes": classes}
    assert replace(with_data(DIGITS, mixup=1.0), **change).data.mixup == 1

    with pytest.raises(ConfigError, match=r"data\.cutmix=1\.0 cannot work"):
        replace(with_data(DIGITS, cutmix=1.0), **change)

"""The rules by which numbers tuned at one batch are scaled to another."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkaggle import competitions
from pipeline.config import load
from pipeline.config.config import OPTIMIZERS
from pipeline.training import learning_rate
from tests.pipeline.rounding import EPS

DIGITS = load("digits")
IMAGES = 50_000
kappas = st.integers(1, 64)


def at(kappa: int, **optimizer: object) -> learning_rate.Applied:
    """Return the numbers at `kappa` times a base batch of 64."""
    given_ = replace(DIGITS.optimizer, base_batch=64, **optimizer)
    return learning_rate.apply(replace(DIGITS, optimizer=given_, batch=64 * kappa), IMAGES)


@given(kappas)
def test_sgd_moves_equally_far_in_an_epoch_at_any_batch(kappa):
    """Rate x steps an epoch is what an epoch can move the weights (Goyal et al. 2017)."""
    steps = IMAGES / (64 * kappa)

    applied = at(kappa, name="sgd", base_rate=0.1)

    assert applied.peak_rate * steps == pytest.approx(0.1 * IMAGES / 64)


@given(kappas)
def test_adam_s_rate_grows_with_the_square_root(kappa):
    """Malladi et al. 2022."""
    assert at(kappa, name="adam", base_rate=1e-3).peak_rate == pytest.approx(1e-3 * kappa**0.5)


@given(st.integers(1, 9))
def test_adam_s_betas_forget_as_fast_per_image(kappa):
    """1 - beta grows with the batch, inside the rule's range."""
    applied = at(kappa, name="adam", beta_1=0.9, beta_2=0.999)

    assert 1 - applied.beta_1 == pytest.approx(kappa * 0.1)
    assert 1 - applied.beta_2 == pytest.approx(kappa * 0.001)


@given(kappas)
def test_weight_decay_keeps_its_time_constant_in_epochs(kappa):
    """batch / (rate x decay x images) does not move (Wang and Aitchison 2024)."""
    applied = at(kappa, name="adamw", base_rate=1e-3, weight_decay=0.05)

    tau = applied.batch / (applied.peak_rate * applied.weight_decay * IMAGES)

    assert tau == pytest.approx(64 / (1e-3 * 0.05 * IMAGES))


@given(kappas)
def test_weight_decay_of_sgd_keeps_its_time_constant_without_being_scaled(kappa):
    """Its rate grows with the batch already."""
    applied = at(kappa, name="sgd", base_rate=0.1, weight_decay=5e-4)

    assert applied.weight_decay == 5e-4
    assert applied.batch / (applied.peak_rate * IMAGES) == pytest.approx(64 / (0.1 * IMAGES))


@given(kappas)
def test_adam_s_epsilon_shrinks_with_the_square_root(kappa):
    """It stands beside a root of squared gradients, which shrink so (Malladi et al. 2022)."""
    assert at(kappa, name="adam", epsilon=1e-7).epsilon == pytest.approx(1e-7 / kappa**0.5)


@given(kappas)
def test_both_averages_are_applied_as_scaled(kappa):
    """What is asked for at the base batch is not what runs at another."""
    applied = at(kappa, ema_momentum=0.999)

    assert applied.ema_momentum == pytest.approx(0.999**kappa)
    assert applied.batchnorm_momentum == pytest.approx(DIGITS.batchnorm_momentum**kappa)


@pytest.mark.parametrize(
    ("kappa", "left"), [(8, 0.2), (9, 0.1), (9.9, 0.01), (10, 0.9), (11, 0.9), (64, 0.9)]
)
def test_a_beta_of_which_nothing_is_left_stays_as_it_was(kappa, left):
    """Also where 1 - 10 x 0.1 is not quite 0 in floating point."""
    found, holds = learning_rate.scaled_beta(0.9, kappa)

    assert found == pytest.approx(left)
    assert holds == (kappa < 10)


@pytest.mark.parametrize(
    ("kappa", "beta_1", "said"),
    [
        (8, 0.9, None),
        (9, 0.9, "at the edge of the square-root rule for beta_1=0.9: scaled it is 0.1"),
        (10, 0.9, "past the square-root rule for beta_1=0.9"),
        (11, 0.9, "beta_1 stays 0.9 while the learning rate and the other numbers are scaled"),
        (8, 0.0, None),
        (64, 0.0, None),
        (1, 0.05, None),
    ],
)
def test_the_end_of_the_square_root_rule_is_told_before_it_is_reached(kappa, beta_1, said):
    """And never where there is no average that could be lost."""
    warnings = [
        text
        for text in at(kappa, name="adam", beta_1=beta_1).warnings
        if "square-root rule" in text
    ]

    assert bool(warnings) == bool(said)
    assert not said or said in warnings[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_base_batch_changes_nothing(name):
    """kappa = 1 is what was tuned."""
    numbers = {"name": name, "weight_decay": 0.0 if name == "adam" else 0.01, "ema_momentum": 0.99}
    given_ = replace(DIGITS.optimizer, **numbers)

    applied = at(1, **numbers)

    for field in ("momentum", "beta_1", "beta_2", "epsilon", "weight_decay", "ema_momentum"):
        assert getattr(applied, field) == pytest.approx(getattr(given_, field))
    assert applied.peak_rate == pytest.approx(given_.base_rate)


def test_the_rate_rises_linearly_and_falls_along_a_cosine():
    """0 at the start, the peak after the warm-up, its half in the middle of the fall, 0 at the last
    step.
    """
    applied = replace(at(1), peak_rate=1.0, warmup_steps=10, total_steps=110)

    rate = learning_rate.schedule(applied)

    found = [float(rate(step)) for step in (0, 5, 10, 60, 110)]
    assert found == pytest.approx([0, 0.5, 1, 0.5, 0], abs=8 * EPS)


def test_without_a_warm_up_the_rate_begins_at_its_peak():
    """A cosine from the first step on."""
    applied = replace(at(1), peak_rate=1.0, warmup_steps=0, total_steps=100)

    rate = learning_rate.schedule(applied)

    assert [float(rate(0)), float(rate(100))] == pytest.approx([1, 0], abs=8 * EPS)


@given(st.integers(1, 5000), st.integers(1, 512), st.integers(1, 20))
def test_the_steps_hold_every_image_of_every_epoch(images, batch, epochs):
    """Rounded up, never down: no image is dropped."""
    config = replace(DIGITS, batch=batch, epochs=epochs, warmup_epochs=0)

    applied = learning_rate.apply(config, images)

    assert applied.total_steps * batch >= epochs * images
    assert (applied.total_steps - 1) * batch < epochs * images
    assert applied.warmup_steps < applied.total_steps


@pytest.mark.parametrize(
    ("config", "images", "said"),
    [
        (replace(DIGITS, batch=32 * 16), 10**6, "square-root rule"),
        (
            replace(DIGITS, batch=16384, optimizer=replace(DIGITS.optimizer, name="sgd")),
            10**7,
            "8192",
        ),
        (replace(DIGITS, warmup_epochs=0), 10**6, "without a warm-up"),
        (replace(DIGITS, batch=32 * 9, epochs=5), 10_000, "steps in all"),
        (replace(DIGITS, batch=32 * 9), 1000, "steps an epoch"),
    ],
)
def test_a_rule_that_is_left_behind_warns(config, images, said):
    """Each limit has its own sentence."""
    assert any(said in warning for warning in learning_rate.apply(config, images).warnings)


@pytest.mark.parametrize("name", ["digits", "digits_csv", "diabetes", "breast_cancer"])
def test_the_first_runs_of_a_newcomer_warn_of_nothing(name):
    """They come with the template, and score well: a warning there is a false one."""
    config = load(name)
    table = competitions.EMBEDDED[config.competition]().training["train.csv"]

    applied = learning_rate.apply(config, len(table.splitlines()) * 9 // 10)

    assert applied.warnings == ()


def test_what_was_tuned_warns_of_nothing():
    """At its own batch a config is what its author tried."""
    config = replace(DIGITS, batch=DIGITS.optimizer.base_batch)

    assert learning_rate.apply(config, 1000).warnings == ()


@pytest.mark.parametrize(
    "numbers", [{"name": "sgd", "momentum": 0}, {"beta_1": 0, "beta_2": 0}, {"base_rate": 1}]
)
def test_a_whole_number_is_a_number(numbers):
    """Keras takes no int for some of them."""
    made = learning_rate.optimizer(at(4, **numbers))

    made.build([keras.Variable(np.zeros(3))])

    assert made.built


@pytest.mark.parametrize(("name", "kind"), [("sgd", "SGD"), ("adam", "Adam"), ("adamw", "AdamW")])
def test_the_keras_optimizer_has_the_applied_numbers(name, kind):
    """What is printed is what runs."""
    applied = at(4, name=name, weight_decay=0.0 if name == "adam" else 0.01)

    made = learning_rate.optimizer(applied)

    assert type(made) is getattr(keras.optimizers, kind)
    assert made.weight_decay == (None if name == "adam" else pytest.approx(applied.weight_decay))
    if name == "sgd":
        assert (made.momentum, made.nesterov) == (applied.momentum, True)
    else:
        assert (made.beta_1, made.beta_2, made.epsilon) == (
            applied.beta_1,
            applied.beta_2,
            applied.epsilon,
        )
    made.build([keras.Variable(np.zeros(3))])
    made.iterations.assign(applied.warmup_steps)
    assert float(made.learning_rate) == pytest.approx(applied.peak_rate, rel=8 * EPS)

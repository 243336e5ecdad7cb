"""The rules by which numbers tuned at one batch are scaled to another."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from localkaggle import competitions
from pipeline.config import Optimizer, load
from pipeline.config.config import SCHEDULES
from pipeline.train import learning_rate
from pipeline.train.optimizer import optimizer
from tests.pipeline.rounding import EPS
from tests.shipped import shipped, there

DIGITS = replace(shipped("digits"), batchnorm_batch=None)
SGD = Optimizer(name="sgd", base_rate=1e-3, base_batch=8)
IMAGES = 50_000
kappas = st.integers(1, 64)


def at(kappa: int, **optimizer: object) -> learning_rate.Applied:
    """Return the numbers at `kappa` times a base batch of 64."""
    given_ = replace(DIGITS.optimizer, base_batch=64, **optimizer)
    return learning_rate.apply(replace(DIGITS, optimizer=given_, batch=64 * kappa), IMAGES)


@given(kappas)
def test_adam_s_rate_grows_with_the_square_root(kappa):
    """And its epsilon shrinks so, since it stands beside a root of squared gradients (Malladi et
    al. 2022).
    """
    applied = at(kappa, name="adam", base_rate=1e-3, epsilon=1e-7)

    assert applied.peak_rate == pytest.approx(1e-3 * kappa**0.5)
    assert applied.epsilon == pytest.approx(1e-7 / kappa**0.5)


@given(kappas)
def test_an_epoch_moves_and_decays_the_weights_as_far_at_any_batch(kappa):
    """Rate x steps of SGD (Goyal et al. 2017); batch / (rate x decay x images) (Wang and Aitchison
    2024), which with SGD needs no other decay. The averages forget as fast per image.
    """
    sgd = at(kappa, name="sgd", base_rate=0.1, weight_decay=5e-4, ema_momentum=0.999)
    adamw = at(kappa, name="adamw", base_rate=1e-3, weight_decay=0.05)

    assert sgd.peak_rate * IMAGES / (64 * kappa) == pytest.approx(0.1 * IMAGES / 64)
    assert (sgd.weight_decay, sgd.momentum) == (5e-4, DIGITS.optimizer.momentum)
    tau = adamw.batch / (adamw.peak_rate * adamw.weight_decay * IMAGES)
    assert tau == pytest.approx(64 / (1e-3 * 0.05 * IMAGES))
    assert sgd.ema_momentum == pytest.approx(0.999**kappa)
    assert sgd.batchnorm_momentum == pytest.approx(DIGITS.batchnorm_momentum**kappa)


@pytest.mark.parametrize(
    ("kappa", "beta_1", "left", "said"),
    [
        (8, 0.9, 0.2, None),
        (9, 0.9, 0.1, "Using 0.1 with"),
        (10, 0.9, 0.9, "the limit of the square-root rule for beta_1=0.9"),
        (64, 0.9, 0.9, "Using 0.9 with"),
        (64, 0.0, 0.0, None),
        (1, 0.05, 0.05, None),
    ],
)
def test_a_beta_past_the_rule_stays_with_a_warning(kappa, beta_1, left, said):
    """1 - beta grows with the batch, also where 1 - 10 x 0.1 is not quite 0 in floating point.
    Nothing is told where there is no average that could be lost.
    """
    applied = at(kappa, name="adam", beta_1=beta_1, beta_2=0.999)
    warnings = [text for text in applied.warnings if "rule for beta_1" in text]

    assert 1 - applied.beta_2 == pytest.approx(kappa * 0.001)
    assert applied.beta_1 == pytest.approx(left)
    assert len(warnings) == bool(said)
    assert not said or said in warnings[0]


@given(kappas)
def test_batchnorm_normalizes_about_as_many_images_as_at_the_base_batch(kappa):
    """Its noise was tuned, too (Hoffer et al. 2017). Half as many may suit eight cores better."""
    assert 32 <= at(kappa).batchnorm_batch <= 64


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
        (replace(DIGITS, batch=128 * 16), 10**6, "square-root rule"),
        (replace(DIGITS, optimizer=SGD, batch=16384), 10**7, "8192"),
        (replace(DIGITS, batch=256, warmup_epochs=0), 10**6, "without the warm-up"),
        (replace(DIGITS, batch=128 * 9, epochs=5), 40_000, "steps in total"),
        (replace(DIGITS, batch=128 * 9), 4000, "BatchNorm statistics"),
        (replace(DIGITS, batch=256), 10**6, "has only been confirmed for tables"),
    ],
)
def test_each_limit_of_a_rule_has_a_warning(config, images, said):
    """Each limit has its own sentence."""
    assert any(said in warning for warning in learning_rate.apply(config, images).warnings)


@pytest.mark.parametrize("name", ["digits", "digits_csv", "diabetes", "breast_cancer"])
def test_the_first_runs_of_a_newcomer_warn_of_nothing(name):
    """They come with the template and score well, so a warning would be wrong."""
    there(f"pipeline/configs/{name}.py")
    config = load(name)
    table = competitions.EMBEDDED[config.competition]().training["train.csv"]

    applied = learning_rate.apply(config, len(table.splitlines()) * 9 // 10)

    assert applied.warnings == ()


def test_the_keras_optimizer_takes_whole_numbers_and_clips_all_gradients_together():
    """Keras refuses an int for some; tests/numerics covers the other numbers."""
    for numbers in ({"name": "sgd", "momentum": 0}, {"name": "adam", "beta_1": 0, "base_rate": 1}):
        applied = at(4, clip_norm=2.5, **numbers)
        assert optimizer(DIGITS, applied, []).global_clipnorm == 2.5


def test_weight_decay_leaves_out_biases_and_normalization():
    """Without a gradient, an update only decays. A GRU's bias has two rows."""
    shapes = {"kernel": (2, 3), "gamma": (3,), "recurrent": (2, 2), "bias": (2, 4)}
    variables = [keras.Variable(np.ones(shape), name=name) for name, shape in shapes.items()]
    applied = at(1, name="sgd", base_rate=0.1, weight_decay=0.1)
    made = optimizer(DIGITS, applied, variables)
    made.build(variables)
    made.iterations.assign(applied.warmup_steps)

    made.apply([np.zeros(variable.shape, np.float32) for variable in variables])

    decayed = [variable.name for variable in variables if np.array(variable).max() < 1]
    assert decayed == ["kernel", "recurrent"]


def rates(steps: np.ndarray, **change: object) -> tuple[learning_rate.Applied, np.ndarray]:
    """Return the numbers of a run of 64 images per epoch, and its learning rate at some steps."""
    names = ("schedule", "decay_share", "base_rate")
    numbers = {name: change.pop(name) for name in names if name in change}
    optimizer = replace(DIGITS.optimizer, base_batch=64, **numbers)
    applied = learning_rate.apply(replace(DIGITS, optimizer=optimizer, batch=64, **change), 64)
    found = learning_rate.schedule(DIGITS, applied)(np.minimum(steps, applied.total_steps))
    return applied, np.asarray(found)


@given(
    st.sampled_from([name for name in SCHEDULES if name != "cosine"]),
    st.integers(1, 200),
    st.just(0) | st.floats(0.01, 1),
    st.floats(0.01, 0.99),
)
def test_each_schedule_rises_without_a_jump_and_falls_to_zero(name, total, warmup, decay):
    """Between two steps it changes no more than the steepest half cosine."""
    assume(warmup or name != "one_cycle")
    share = {"decay_share": decay} if name == "constant" else {}
    change = {"epochs": total, "warmup_epochs": warmup * total, "schedule": name, **share}
    applied, found = rates(np.arange(201), **change)

    warmed, near = applied.warmup_steps, 64 * EPS * applied.peak_rate
    assert found[warmed] == pytest.approx(applied.peak_rate, abs=near)
    assert found[-1] == pytest.approx(0, abs=near) and found.min() >= -near
    steps = np.diff(found)
    assert (steps[:warmed] > -near).all() and (steps[warmed:] < near).all()
    parts = [total - warmed, applied.decay_steps, warmed]
    steepest = applied.peak_rate * np.pi / 2 / min(part for part in parts if part)
    assert np.abs(steps).max() <= steepest + near


def test_the_schedules_differ_where_their_names_say():
    """A quarter of the way up, one cycle is behind. A constant rate stays where a cosine falls."""
    run = {"epochs": 100, "warmup_epochs": 40, "base_rate": 1.0}
    found = {
        name: np.array([float(rates(np.array(at), schedule=name, **run)[1]) for at in (0, 10, 70)])
        for name in SCHEDULES
    }

    assert found["cosine"] == pytest.approx([0, 0.25, 0.5], abs=1e-6)
    assert found["one_cycle"] == pytest.approx([0.04, 0.1806, 0.5], abs=1e-4)
    assert found["constant"] == pytest.approx([0, 0.25, 1], abs=1e-6)
    assert rates(np.array(0), epochs=100, warmup_epochs=0, base_rate=1.0)[1] == 1  # at once
    late = rates(np.array(90), schedule="constant", decay_share=0.4, **run)[1]
    assert late == pytest.approx(0.25)

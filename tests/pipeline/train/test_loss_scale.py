"""In float16 gradients are those of a multiple of the loss, and a step that overflows changes
nothing.
"""

from dataclasses import replace

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from pipeline.data.dataset import Weighted
from pipeline.train import loss_scale
from pipeline.train.loss_scale import FIRST, MOST, LossScale
from tests.pipeline.one_ulp import apart
from tests.pipeline.train.test_train_step import batch, drawn, given, made, small

__all__ = ["batch", "small"]


@pytest.fixture
def half():
    """Compute in float16."""
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def after(start, outcomes):
    """Return the scales after steps with finite or infinite gradients."""
    scale, values = LossScale(jnp.float32(start), jnp.int32(0)), []
    for finite in outcomes:
        scale = scale.after(jnp.array(finite))
        values.append(float(scale.value))
    return values


def test_the_scale_halves_at_each_overflow_and_doubles_after_many_steps(monkeypatch):
    monkeypatch.setattr(loss_scale, "STEPS", 3)

    assert after(8, [False, False, True, True, True, True]) == [4, 2, 2, 2, 4, 4]
    assert after(8, [True, True, False, True, True, True]) == [8, 8, 4, 4, 4, 8]
    assert after(MOST, [True] * 3) == [MOST] * 3
    assert after(2, [False] * 3) == [1, 1, 1]


@pytest.mark.usefixtures("half")
def test_a_step_whose_loss_is_infinite_changes_no_weight(small, batch):
    """The schedule continues, and the next step is as usual."""
    images, labels = batch
    config = replace(small, optimizer=replace(small.optimizer, ema_momentum=0.9))
    step, state = made(config)
    before = step.layout.to_arrays(state)
    weights = np.ones((1, 32), np.float32)
    broken = Weighted(labels, np.where(np.arange(32) == 3, np.inf, weights))

    state, report = step.train(state, (), given(step, (images, broken)), 1)

    found = step.layout.to_arrays(state)
    moved = {name for name in found if not np.array_equal(found[name], before[name])}
    iteration = next(name for name in found if name.endswith("iteration"))
    assert moved == {iteration, "loss_scale/value", "step"}
    assert float(report.scale.value) == found["loss_scale/value"] == FIRST / 2
    assert found["step"] == found[iteration] == 1 and float(report.totals.count) == 0

    state, report = step.train(state, (), given(step, (images, Weighted(labels, weights))), 1)

    assert float(report.totals.count) == 32 and float(report.scale.steps) == 1
    assert all(np.isfinite(array).all() for array in step.layout.to_arrays(state).values())


@pytest.mark.usefixtures("half")
def test_gradients_that_are_not_finite_without_a_scale_end_the_run(small, batch):
    """Then float16 is not the reason: the loop refuses weights that are not finite."""
    images, labels = batch
    step, state = made(small)
    state = state._replace(scale=state.scale._replace(value=state.scale.value / FIRST))
    broken = Weighted(labels, np.full((1, 32), np.inf, np.float32))

    state, _ = step.train(state, (), given(step, (images, broken)), 1)

    assert not all(np.isfinite(array).all() for array in step.layout.to_arrays(state).values())


def test_a_run_resumes_in_another_precision(small, batch):
    """For example from a TPU, in bfloat16, to a T4: only float16 has a scale."""
    plain, state = made(small)
    before = plain.layout.to_arrays(state)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half, scaled = made(small)
    finally:
        keras.config.set_dtype_policy("float32")

    there = half.layout.with_own_scale(before, scaled)
    back = plain.layout.with_own_scale(there, state)

    assert not half.layout.differing(there, scaled)
    assert there["loss_scale/value"] == FIRST
    assert not plain.layout.differing(back, state)
    scaled = half.layout.from_arrays({**there, "loss_scale/value": np.float32(8)}, scaled)
    kept = half.layout.with_own_scale(half.layout.to_arrays(scaled), scaled)
    assert kept["loss_scale/value"] == 8


CONVOLUTION = """
def made(images, num_classes, momentum):
    x = layers.Conv2D(4, 3, activation="relu")(images)
    return layers.Dense(num_classes)(layers.Flatten()(x))


def rounded(step, state, batch, held):
    \"\"\"Take the gradient where each weight is one rounding of float16 away.\"\"\"
    key = jax.random.fold_in(jax.random.key(SEED), state.step)
    params = []
    for number, value in enumerate(state.params):
        sign = jax.random.rademacher(jax.random.fold_in(key, number), value.shape, value.dtype)
        params.append(value * (1 + 2.0**-11 * sign))
    grads, sums = step.gradients(state, batch, held, params=params)
    return step.update(state, grads, sums)
"""


@pytest.mark.usefixtures("half")
def test_the_step_convolves_in_float16(custom):
    config = custom(CONVOLUTION, precision="mixed_float16")
    step, state = made(config)

    text = step.lowered(state, (), given(step, drawn(16))).as_text()

    found = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert len(found) >= 2 and all("xf16>" in line and "xf32>" not in line for line in found)


def trained(config, policy, steps=50):
    """Return the weights after some steps."""
    keras.config.set_dtype_policy(policy)
    try:
        step, state = made(config)
        for _ in range(steps):
            state, _ = step.train(state, (), given(step, drawn(16)), 1)
        arrays = step.layout.to_arrays(state)
        return {name: arrays[name] for name in arrays if name.startswith("params/")}
    finally:
        keras.config.set_dtype_policy("float32")


def test_fifty_steps_end_within_the_rounding_of_float16(custom, seed):
    """What that moves is measured in float32, by weights that are one such rounding away in each
    step. A step rounds inputs, weights, activations and gradients, of two layers there and back.
    """
    plain = custom(CONVOLUTION)
    plain = replace(plain, optimizer=replace(plain.optimizer, name="sgd", base_batch=16))
    exact = trained(plain, "float32")

    moved = []
    for number in range(3):
        code = "import jax\nSEED = " + str(seed + number) + "\n" + CONVOLUTION
        config = custom(code, train_step="rounded")
        config = replace(config, optimizer=plain.optimizer)
        moved.append(apart(trained(config, "float32"), exact))
    bound = 16 * max(moved)  # 2 layers x 2 ways x 4 kinds of numbers

    assert 0 < bound < 0.5
    assert 0 < apart(trained(plain, "mixed_float16"), exact) < bound


def test_a_network_that_overflows_in_float16_is_detected(custom):
    """A run with automatic precision then trains in float32."""
    large = """
def made(images, num_classes, momentum):
    x = layers.Dense(8)(layers.Flatten()(images))
    return layers.Dense(num_classes, dtype="float32")(layers.Rescaling(FACTOR)(x))
"""
    inputs = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), np.uint8)

    held, overflows = (
        loss_scale.apart(custom(large.replace("FACTOR", factor)), {}, inputs)
        for factor in ("1.0", "1e6")
    )

    assert held < 2e-2 and not overflows < 2e-2

"""A step updates the weights as a plain Keras `train_step` does."""

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest

from pipeline import config as configs
from pipeline.models import architectures
from pipeline.train import learning_rate
from pipeline.train.step import Batch, TrainStep
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged

BATCH, STEPS = 16, 3
OPTIMIZERS = {
    "sgd": {"base_rate": 0.05, "weight_decay": 1e-2},
    "adam": {"base_rate": 0.002},
    "adamw": {"base_rate": 0.002, "weight_decay": 0.1},
}


def smooth(images, num_classes, batchnorm_momentum):
    """Return logits of layers with regularizers, without a corner at which a last bit jumps."""
    layers, penalty = keras.layers, keras.regularizers.L2(1e-3)
    x = layers.Conv2D(8, 3, kernel_regularizer=penalty, name="conv")(images)
    x = layers.Flatten(name="flat")(layers.AveragePooling2D(2, name="pool")(keras.ops.gelu(x)))
    x = layers.Dense(8, activity_regularizer=keras.regularizers.L2(1e-2), name="wide")(x)
    return layers.Dense(num_classes, kernel_regularizer=penalty, name="logits")(x)


@pytest.fixture
def float64(monkeypatch):
    """Compute in float64, in which an update that is another one differs by more than rounding."""
    monkeypatch.setitem(architectures.MODELS, "smooth", smooth)
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    with jax.enable_x64(True):
        yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def settings(name):
    """Return a config with that optimizer; nothing of it draws."""
    digits = configs.load("digits")
    optimizer = replace(digits.optimizer, name=name, base_batch=BATCH, **OPTIMIZERS[name])
    data = replace(digits.data, crop_padding=0, flip=False)
    return replace(
        digits, batch=BATCH, batchnorm_batch=None, model="smooth", model_options={},
        warmup_epochs=0, data=data, optimizer=optimizer,
    )  # fmt: skip


def batches(seed):
    """Yield the images and labels of each step."""
    draw = np.random.default_rng(seed)
    for _ in range(STEPS):
        images = draw.integers(0, 256, (BATCH, 8, 8, 1), np.uint8)
        yield images, draw.integers(0, 10, BATCH).astype(np.int32)


def built(config):
    """Return a fresh model, and what it was made with."""
    keras.utils.clear_session()
    applied = learning_rate.apply(config, 100 * BATCH)
    architectures.seed(config.seed)
    return architectures.build(config, applied.batchnorm_momentum), applied


def by_us(config, seed, nudges=()):
    """Return the weights after the steps, by the start's nudge; that of None is the plain start."""
    model, applied = built(config)
    step, found = TrainStep(config, applied, model, None), {}
    state = step.initial()
    start = step.layout.to_arrays(state)
    weights = {name: start[name] for name in start if name.startswith("params/")}
    for nudge in (None, *nudges):
        arrays = start if nudge is None else start | nudged(weights, nudge)
        state = step.layout.from_arrays(arrays, state)
        for number, batch in enumerate(batches(seed)):
            images, labels = (array[None] for array in batch)
            draws = step.augmentation.draws(number)[None]
            state, _ = step.train(state, (), Batch(images, labels, draws), 1)
        found[nudge] = named(model, state.params)
    return found


def by_keras(config, seed):
    """Return the weights after the same steps of Keras."""
    model, applied = built(config)
    model.compile(
        learning_rate.optimizer(applied, model.trainable_variables),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    for images, labels in batches(seed):
        model.train_on_batch(images, labels)
    return named(model, [variable.value for variable in model.trainable_variables])


def named(model, values):
    """Return weights by their paths."""
    paths = [variable.path for variable in model.trainable_variables]
    return dict(zip(paths, map(np.asarray, values), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sgd", marks=pytest.mark.slow),
        pytest.param("adam", marks=pytest.mark.slow),
        "adamw",
    ],
)
def test_an_update_is_that_of_keras(name, float64, seed):
    """With decay, and regularizers of weights and of activations."""
    ours = by_us(settings(name), seed, SEEDS)
    whole = ours.pop(None)
    bound = TIMES * max(apart(other, whole) for other in ours.values())

    assert bound < 1e-10, "not in float64"
    assert apart(by_keras(settings(name), seed), whole) < bound

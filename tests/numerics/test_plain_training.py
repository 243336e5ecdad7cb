"""A training gives the weights of a plain program in Keras and JAX (plain_training.py)."""

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest

from pipeline.augment.augmentation import Augmentation
from pipeline.data.dataset import Batches
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.train import learning_rate
from pipeline.train.step import Batch, TrainStep
from tests.numerics import plain_training
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged
from tests.shipped import shipped

BATCH, GROUP, STEPS, ROWS = 32, 8, 50, 96
OPTIMIZERS = {
    "sgd": {"name": "sgd", "base_rate": 0.02, "weight_decay": 1e-2},
    "adam": {"name": "adam", "base_rate": 0.002},
    "adamw": {"name": "adamw", "base_rate": 0.002, "weight_decay": 0.1, "ema_momentum": 0.9},
    "swa": {"name": "adamw", "base_rate": 0.002, "weight_decay": 0.1, "swa_start": 0.5},
}


@pytest.fixture
def float64(monkeypatch):
    """Compute in float64, in which another computation differs by more than rounding."""
    monkeypatch.setitem(architectures.MODELS, "plain", plain_training.network)
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    with jax.enable_x64(True):
        yield
    keras.distribution.set_distribution(None)
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def settings(name):
    """Return a config in which images are moved and mirrored, and groups are parts of a batch."""
    digits = shipped("digits")
    return replace(
        digits, batch=BATCH, batchnorm_batch=GROUP, model="plain", model_options={}, epochs=20,
        warmup_epochs=2, data=replace(digits.data, crop_padding=1, flip=True),
        optimizer=replace(digits.optimizer, base_batch=16, **OPTIMIZERS[name]),
    )  # fmt: skip


def drawn(config, seed):
    """Return batches of noise, and what augments them."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (ROWS, *config.data.shape), np.uint8)
    labels = draw.integers(0, config.num_classes, ROWS).astype(np.int32)
    batches = Batches(images, labels, batch=BATCH, seed=config.seed)
    return batches, Augmentation(config.data, config.seed, BATCH)


def by_hand(config, applied, draws, seeds):
    """Return the weights at the start, and the ends of the plain program: from there, and from
    starts that are moved by one unit in the last place.
    """
    batches, augmentation = draws
    changed = []
    for step in range(STEPS):
        images, labels = batches.at(step)
        changed.append((augmentation.applied(images, augmentation.draws(step))[0], labels))
    keras.utils.set_random_seed(1)
    built = plain_training.model(applied, config.data.shape, config.num_classes)
    start = built.get_weights()
    starts = [start]
    for seed in seeds:
        starts.append(list(nudged(dict(enumerate(start)), seed).values()))
    ends = plain_training.train(built, applied, starts, changed)
    return start, [arrays(end) for end in ends]


def arrays(trained):
    """Return all arrays of an end by part and number."""
    parts = trained._asdict().items()
    return {f"{part} {n}": np.asarray(a) for part, some in parts for n, a in enumerate(some)}


def by_us(config, applied, draws, start, devices):
    """Return the end of our training, on so many devices in micro-batches."""
    batches, augmentation = draws
    chosen = keras.distribution.list_devices()[:devices]
    several = keras.distribution.DataParallel(devices=chosen) if devices > 1 else None
    keras.distribution.set_distribution(several)
    model = architectures.build(config, applied.batchnorm_momentum)
    model.set_weights(start)
    step = TrainStep(config, applied, model, replicas.mesh())
    state = step.layout.initial()
    if devices == 1:
        state = jax.device_put(state, jax.devices()[0])
    for number in range(STEPS):
        images, labels = batches.at(number)
        batch = (images[None], labels[None], augmentation.draws(number)[None])
        state, _ = step.train(state, (), Batch(*replicas.put(step.mesh, *batch, axis=1)), 1)
    pairs = zip(state.buffers, step.layout.statistics, strict=True)
    statistics = [value for value, moves in pairs if moves]
    return arrays(plain_training.Trained(state.params, statistics, state.ema))


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("adamw", 4),
        ("swa", 2),
        pytest.param("sgd", 1, marks=pytest.mark.slow),
        pytest.param("adam", 1, marks=pytest.mark.slow),
        pytest.param("sgd", 8, marks=pytest.mark.slow),
    ],
)
def test_fifty_steps_give_the_weights_of_a_plain_program(name, devices, float64, seed):
    """On several devices, in micro-batches, with groups, augmentation and dropout."""
    config = settings(name)
    applied = learning_rate.apply(config, ROWS)
    config = replace(config, micro_batch=max(BATCH // devices // 2, GROUP) if devices < 8 else None)
    draws = drawn(config, seed)

    start, (plain, *moved) = by_hand(config, applied, draws, SEEDS)
    bound = TIMES * max(apart(other, plain) for other in moved)

    assert bound < 1e-9, "not in float64"
    assert apart(by_us(config, applied, draws, start, devices), plain) < bound

"""The batch decides what a step computes; replicas and micro-batches decide only how it fits."""

import hashlib
import json
import re
from dataclasses import replace

import jax
import keras
import numpy as np
import pytest

from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.models import architectures
from pipeline.runtime import replicas as replication
from pipeline.train import learning_rate
from pipeline.train.step import Batch, Examples, TrainStep
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged
from tests.pipeline.rounding import EPS

BATCH = 32
compiled, computed = {}, {}  # by what `begun` and `after` were asked for


@pytest.fixture
def small(tiny):
    """A batch of 32 images in 4 groups of 8, and one layer: enough for all sums."""
    return replace(
        tiny,
        batch=BATCH,
        warmup_epochs=0,  # a first step with a learning rate of 0 would show little
        model_options={"width": 8, "depth": 1, "dropout": 0.5},
        optimizer=replace(tiny.optimizer, name="sgd", base_rate=0.1, base_batch=8),
    )


def drawn(size=BATCH):
    """Return images uint8 (1, size, 8, 8, 1) and labels int32 (1, size)."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (1, size, 8, 8, 1), np.uint8)
    return images, random.integers(0, 4, (1, size)).astype(np.int32)


@pytest.fixture
def batch():
    """Return images and labels of a batch."""
    return drawn()


def made(config, replicas=1, change=lambda model: None):
    """Return (step, state) of a fresh model, which `change` may edit, on a number of devices."""
    distribution = None
    if replicas > 1:
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:replicas]
        )
    keras.distribution.set_distribution(distribution)
    try:
        architectures.seed(config.seed)
        applied = learning_rate.apply(config, 320)
        built = architectures.build(config, applied.batchnorm_momentum)
        change(built)
        step = TrainStep(config, applied, built, replication.mesh())
        state = step.layout.initial()
        if distribution is None:
            # Tests see eight devices; without a distribution all of it lies on the first.
            state = jax.device_put(state, jax.devices()[0])
        return step, state
    finally:
        keras.distribution.set_distribution(None)


def begun(config, replicas):
    """Return (step, state, arrays at the start), compiled once for all tests."""
    asked = json.dumps([config.to_json(), replicas])
    if asked not in compiled:
        step, state = made(config, replicas)
        compiled[asked] = step, state, step.layout.to_arrays(state)
    return compiled[asked]


def given(step, batch):
    """Return a call's batch with the draws of the first step, on the devices."""
    draws = np.stack([step.augmentation.draws(0)] * len(batch[0]))
    return Batch(*replication.put(step.mesh, *batch, draws, axis=1))


def after(config, batch, replicas=1, steps=1, seed=None):
    """Return the state's arrays by name after some steps with the same batch, computed once for all
    tests; `seed`: from nudged weights.
    """
    hashes = [hashlib.sha256(array).hexdigest() for array in jax.tree.leaves(batch)]
    asked = json.dumps([config.to_json(), hashes, replicas, steps, seed])
    if asked not in computed:
        step, state, arrays = begun(config, replicas)
        if seed is not None:
            weights = {name: arrays[name] for name in arrays if name.startswith("params/")}
            arrays = arrays | nudged(weights, seed)
        state = step.layout.from_arrays(arrays, state)
        for _ in range(steps):
            state, _ = step.train(state, (), given(step, batch), 1)
        computed[asked] = step.layout.to_arrays(state)
    return computed[asked]


def rounding(config, batch, steps=1):
    """Return the distance that another order of additions may cause after some steps."""
    whole = after(config, batch, steps=steps)
    nudges = (after(config, batch, steps=steps, seed=seed) for seed in SEEDS)
    return TIMES * max(apart(other, whole) for other in nudges)


@pytest.mark.parametrize("replicas", [1, 2])
def test_images_that_lie_on_the_devices_train_like_images_that_are_sent(small, batch, replicas):
    """In any order."""
    (images,), labels = batch
    places = np.random.default_rng(1).permutation(len(images)).astype(np.int32)
    step, state = made(small, replicas)
    held = (replication.hold(step.mesh, images[np.argsort(places)], None),)

    state, _ = step.train(state, held, given(step, (places[None], labels)), 1)

    sent = after(small, batch, replicas)
    assert apart(step.layout.to_arrays(state), sent) < rounding(small, batch)


def test_micro_batches_add_up_to_the_batch(small, batch):
    """Including BatchNorm and dropout, which belong to a group, not to a micro-batch."""
    whole, parts = after(small, batch), after(replace(small, micro_batch=8), batch)

    assert apart(parts, whole) < rounding(small, batch)
    assert all(
        np.array_equal(parts[name], whole[name]) for name in whole if whole[name].dtype.kind in "iu"
    )


@pytest.mark.parametrize(
    ("size", "group", "replicas"),
    [
        pytest.param(32, None, 8, id="a group spans replicas"),
        pytest.param(32, 8, 4, id="a group each", marks=pytest.mark.slow),
        pytest.param(48, 16, 2, id="a group begins within a replica", marks=pytest.mark.slow),
    ],
)
def test_replicas_add_up_to_the_batch(small, size, group, replicas):
    config, batch = replace(small, batch=size, batchnorm_batch=group), drawn(size)

    assert apart(after(config, batch, replicas), after(config, batch)) < rounding(config, batch)


@pytest.mark.parametrize(
    "replicas", [1, 8, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 4))]
)
def test_swa_keeps_the_mean_of_weights_and_statistics_after_its_first_steps(small, batch, replicas):
    """With equal weights, on any number of devices. Before that, it has the current weights."""
    config = replace(small, optimizer=replace(small.optimizer, swa_start=0.03))
    step, state, arrays = begun(config, replicas)
    state, passed = step.layout.from_arrays(arrays, state), []
    for _ in range(5):
        state, _ = step.train(state, (), given(step, batch), 1)
        values = step.layout.averaged(state.params, state.buffers)
        passed.append(([*map(np.array, values)], [*map(np.array, state.ema)]))

    assert step.applied.swa_step == 2 and len(passed[0][1]) > len(state.params)
    for values, means in passed[:3]:
        assert all(np.array_equal(*pair) for pair in zip(values, means, strict=True))
    for place, found in enumerate(passed[4][1]):
        each = np.array([values[place] for values, _ in passed[2:]], float)
        assert np.ptp(each, axis=0).max() > 0
        assert np.abs(found - each.mean(axis=0)).max() <= 8 * EPS * np.abs(each).max()
    one = after(config, batch, steps=5)
    assert apart(after(config, batch, replicas, steps=5), one) <= rounding(config, batch, steps=5)


def test_labels_are_mixed_as_images_are(small, batch):
    """If both partners are the same image, a mixture changes the labels alone."""
    plain = replace(small, data=replace(small.data, crop_padding=0, flip=False))
    mixing = replace(plain, data=replace(plain.data, mixup=0.4))
    pairs = batch[0][:, ::2].repeat(2, axis=1), batch[1]

    assert apart(after(mixing, pairs), after(plain, pairs)) > 10 * rounding(plain, pairs)


@pytest.mark.parametrize(
    ("target", "loss"),
    [("multilabel", "focal"), pytest.param("classes", "", marks=pytest.mark.slow)],
)
def test_a_row_of_weight_two_counts_as_two_also_where_it_is_mixed(small, batch, target, loss):
    """Each share of a mixture counts as much as the row that it is of; one of weight 0 has no say
    in its partner's. The focal loss is not linear in the labels.
    """
    mixing = replace(small.data, mixup=0.4)
    config = replace(small, target=target, loss=loss, data=mixing, batch=8)
    images, numbers = (array[:, :8] for array in batch)
    weights = np.array([[0, 0.5, 3, 0, 0, 2, 1, 0]], np.float32)

    def total(numbers, weights=None):
        labels = numbers if target == "classes" else np.eye(4, dtype=np.float32)[numbers]
        asked = replace(config, name="plain" if weights is None else "weighted")  # two programs
        labels = labels if weights is None else Weighted(labels, weights)
        return after(asked, (images, labels))["totals/loss"]

    near = {"rel": 64 * EPS}
    assert total(numbers, np.ones_like(weights)) == pytest.approx(total(numbers), **near)
    assert total(numbers, 2 * weights) == pytest.approx(2 * total(numbers, weights), **near)
    others = np.where(weights > 0, numbers, (numbers + 1) % 4)
    assert total(others, weights) == total(numbers, weights) != total(others, np.roll(weights, 1))


def branched(images, num_classes, batchnorm_momentum, *, drop_path=0.0):
    """Return the logits of a residual block of one pixel, with regularizers."""
    penalty = keras.regularizers.L2(0.01)
    x = keras.layers.Flatten(name="flat")(images)
    x = keras.layers.Dense(8, activation="gelu", kernel_regularizer=penalty, name="first")(x)
    x = keras.layers.Reshape((1, 1, 8), name="pixel")(x)
    branch = keras.layers.Dense(8, activity_regularizer=penalty, name="branch")(x)
    x = keras.layers.Flatten(name="end")(architectures._add(x, branch, drop_path, "block"))
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)


@pytest.mark.slow
def test_all_options_of_a_recipe_are_the_same_whatever_the_machine(small, batch, monkeypatch):
    """The batch determines images, weights of rows, dropped branches and gradient norms."""
    monkeypatch.setitem(architectures.MODELS, "branched", branched)
    plain = replace(small, model="branched", model_options={}, drop_path=0.3)
    augmented = {"flip_vertical": True, "rotate": True, "crop_scale": 0.3}
    augmented |= {"mixup": 0.4, "cutmix": 1.0}
    optimizer = {"schedule": "one_cycle", "clip_norm": 0.01, "layer_decay": 0.5}
    recipe = replace(
        plain,
        data=replace(plain.data, flip=True, **augmented),
        optimizer=replace(plain.optimizer, weight_decay=0.01, **optimizer),
        warmup_epochs=1,
        label_smoothing=0.1,
    )
    images, labels = batch
    weights = np.random.default_rng(0).random(labels.shape, np.float32)
    batch = images, Weighted(labels, weights)
    whole, bound = after(recipe, batch, steps=2), rounding(recipe, batch, steps=2)

    parts = after(replace(recipe, micro_batch=8), batch, replicas=2, steps=2)

    assert apart(parts, whole) < bound


@pytest.mark.parametrize(
    ("changes", "replicas", "said"),
    [
        ({"micro_batch": 4}, 1, "micro_batch=4 .* expected one of 32, 16, 8"),
        ({"micro_batch": 24}, 1, "micro_batch=24 .* expected one of 32, 16, 8"),
        (
            {"batch": 6, "mixup": 0.4},
            2,
            "batch=6 cannot be split .*3 images each.* must be even",
        ),
    ],
)
def test_a_batch_that_does_not_split_as_asked_is_refused(small, changes, replicas, said):
    mixup = changes.pop("mixup", 0.0)

    with pytest.raises(ConfigError, match=said):
        made(replace(small, **changes, data=replace(small.data, mixup=mixup)), replicas)


def test_dropout_differs_between_places_and_between_steps(small, batch):
    """Equal images, so that only dropout can tell them apart: without it their gradients would be
    equal, and the first group's would be a quarter of all.
    """
    equal = tuple(np.concatenate([array[:, :8]] * 4, axis=1) for array in batch)
    one = after(small, equal)

    bound = rounding(small, equal)
    assert apart(one, after(small, equal, 8)) < bound
    # With the weights of the first step, the second one drops other units.
    step, state, arrays = begun(small, 1)
    weights = {name: arrays[name] for name in arrays if name.startswith("params/")}
    again = step.layout.from_arrays(one | weights, state)
    again, _ = step.train(again, (), given(step, equal), 1)
    loss, both = (float(found["totals/loss"]) for found in (one, step.layout.to_arrays(again)))
    assert abs(both / (2 * loss) - 1) > 10 * bound
    state = step.layout.from_arrays(arrays, state)
    images, labels = (array[0, :8] for array in equal)
    labels = Weighted(labels, np.ones(8, np.float32))

    @jax.jit
    def found(first):
        group = Examples(images, labels, None, None, first + np.arange(8))
        computed = step.compute(state.params, state.buffers, group)
        return step._losses(group, computed, 0)[0]["loss"].sum()

    assert abs(float(found(0)) / float(found(8)) - 1) > 10 * bound


def test_a_step_has_one_all_reduce_whatever_the_accumulation(small, batch):
    """Each replica sums its micro-batches; only the sum travels."""
    step, state, _ = begun(replace(small, micro_batch=8), 2)

    program = step.lowered(state, (), given(step, batch)).compile().as_text()

    assert step.micro_batch == 8
    assert len(re.findall(r" all-reduce(-start)?\(", program)) == 1


def test_a_call_of_several_steps_takes_only_the_requested_ones(small, batch):
    """The last call of an epoch is padded, since another shape would need another program."""
    several = tuple(np.concatenate([array] * 4) for array in batch)
    step, state = made(small)
    state, report = step.train(state, (), given(step, several), 3)

    assert int(report.totals.count) == 3 * BATCH
    assert apart(step.layout.to_arrays(state), after(small, batch, steps=3)) < rounding(
        small, batch, steps=3
    )

"""A run that moves to different devices within an epoch continues with the same numbers."""

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest

from pipeline.data import dataset
from pipeline.models import architectures
from pipeline.train import checkpoint, learning_rate
from pipeline.train.loop import Loop
from pipeline.train.session import Session
from tests.numerics import plain_training
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged
from tests.shipped import shipped

IMAGES, BATCH, GROUP = 1010, 64, 8  # an epoch does not end with a step
SAME = ("data", "precision", "devices", "code", "pretrained")
ORIGIN = {"config": {"name": "moved"}, **dict.fromkeys(SAME, "")}


def settings(name, **change):
    """Return a config with all features that could depend on the number of devices."""
    digits = shipped("digits")
    optimizer = {"sgd": {"base_rate": 0.01}, "adamw": {"weight_decay": 0.01}}[name]
    return replace(
        digits, name="moved", batch=BATCH, batchnorm_batch=GROUP, epochs=8, warmup_epochs=1,
        data=replace(digits.data, crop_padding=1, flip=True), model="plain", model_options={},
        optimizer=replace(digits.optimizer, name=name, base_batch=BATCH, **optimizer),
        checkpoint_seconds=3600, progress_seconds=3600, **change,
    )  # fmt: skip


def trained(config, output, devices, step):
    """Resume on this number of devices, train to that step, and return its checkpoint."""
    draw, labels = np.random.default_rng(0), (np.arange(IMAGES) % 10).astype(np.int32)
    pixels = draw.integers(0, 120, (IMAGES, 8, 8, 1), np.uint8)
    for image, label in zip(pixels, labels, strict=True):  # there is something to learn
        top, left = label // 4 * 2, label % 4 * 2
        image[top : top + 3, left : left + 2] += 120
    batches = dataset.Batches(pixels, labels, batch=config.batch, seed=config.seed)
    chosen = keras.distribution.list_devices()[:devices]
    several = keras.distribution.DataParallel(devices=chosen) if devices > 1 else None
    keras.distribution.set_distribution(several)
    output.mkdir(exist_ok=True)
    with jax.default_device(jax.devices()[0]), Session(None, output) as session:
        try:
            architectures.seed(config.seed)
            applied = learning_rate.apply(config, IMAGES)
            rows = np.arange(32)
            model = architectures.build(config, applied.batchnorm_momentum)
            loop = Loop(config, applied, model, batches, rows, output, lambda line: None)
        finally:
            keras.distribution.set_distribution(None)
        loop.run(ORIGIN, session, max_steps=step)
    found = checkpoint.latest(output / "checkpoints")
    assert (found.step, loop.compiled.replicas) == (step, devices)
    assert loop.compiled.micro_batch == (config.micro_batch or config.batch // devices)
    return found


def weights(found):
    """Return the weights of a checkpoint."""
    return {name: found.arrays[name] for name in found.arrays if name.startswith("params/")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_run_that_moves_from_eight_devices_to_one_ends_with_the_same_weights(
    name, tmp_path, monkeypatch
):
    """The single device computes micro-batches. The difference is as small as that of a run that
    stays, with weights changed by one unit in the last place at that step.
    """
    monkeypatch.setitem(architectures.MODELS, "plain", plain_training.network)
    config = settings(name)
    at, to = 23, 73  # steps, within the second epoch and the fifth
    begun = trained(config, tmp_path / "moves", 8, at)
    ends = []
    for seed in (None, *SEEDS):
        folder = tmp_path / str(seed)
        changed = {} if seed is None else nudged(weights(begun), seed)
        checkpoint.save(folder / "checkpoints", at, begun.arrays | changed, begun.details)
        ends.append(weights(trained(config, folder, 8, to)))
    stays, *others = ends

    small = replace(config, micro_batch=BATCH // 4)
    moves = weights(trained(small, tmp_path / "moves", 1, to))

    assert apart(moves, stays) < TIMES * max(apart(other, stays) for other in others) < 1e-3
    assert apart(stays, weights(begun)) > 1e-2

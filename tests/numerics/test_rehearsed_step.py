"""A rehearsal computes what the whole run computes: the program of a step, lowered for the eight
cores of a TPU, is the same but for its shapes and numbers.

Nothing is compiled, so the weights do not matter.
"""

import functools
import re
from dataclasses import replace

import jax
import keras
import numpy as np
import pytest

from pipeline.config.rehearsal import with_changes
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.train import learning_rate
from pipeline.train.step import Batch, TrainStep
from tests.shipped import shipped
from workbench.rehearse import short_run

ROWS, TESTS, BUDGET = 20_000, 2_000, 120.0
MASKED = re.compile(r"tensor<[^>]*>|dense<[^>]*>|array<[^>]*>|-?\d+(\.\d+)?([eE][-+]?\d+)?|#loc.*")
# What a rehearsal has to change in them, beside the batch, the folds and the epochs.
CONFIGS = {
    "batchnorm_batch": {
        "data": {"mixup": 0.2},
        "batchnorm_batch": 64,
        "model": "strided_resnet",
        "model_options": {"width": 32},
    },
    "pretrained": {
        "data": {},
        "batchnorm_batch": None,
        "model": "mobilenetv3_small",
        "model_options": {"backbone_rate": 0.1},
    },
}


def tpu(data, **more):
    """Return a config for a TPU; no array of it depends on the size of the images."""
    digits = shipped("digits")
    return replace(
        digits,
        data=replace(digits.data, height=64, width=64, resize="stretch", **data),
        optimizer=replace(digits.optimizer, base_batch=128),
        folds=5, batch=1024, epochs=60, seed=1, **more,
    )  # fmt: skip


def inlined(program):
    """Return the masked text of a program's main function, with what it calls in its place: JAX
    makes one function of two that have equal shapes by chance.
    """
    parts = re.split(r"func\.func \w+ @([\w.]+)", program)[1:]
    bodies = dict(zip(parts[::2], parts[1::2], strict=True))

    @functools.cache
    def text(name):
        calls = re.split(r"@([\w.]+)", bodies[name])
        calls[::2] = (MASKED.sub("#", part) for part in calls[::2])
        calls[1::2] = (text(part) if part in bodies else part for part in calls[1::2])
        return "".join(calls).strip()

    return text("main")


def step(config):
    """Return the masked program of a step, and the groups of BatchNorm of a replica."""
    applied = learning_rate.apply(config, ROWS)
    architectures.seed(config.seed)
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    try:
        model = architectures.build(config, applied.batchnorm_momentum)
        made = TrainStep(config, applied, model, replicas.mesh())
        several = made.steps_per_call
        placed = replicas.put(
            made.mesh,
            np.zeros((several, config.batch, *config.data.shape), np.uint8),
            np.zeros((several, config.batch), np.int32),
            np.stack([made.augmentation.draws(0)] * several),
            axis=1,
        )
        text = inlined(made.lowered(made.layout.initial(), (), Batch(*placed)).as_text())
    finally:
        keras.distribution.set_distribution(None)
    return text, config.batch // made.replicas / applied.batchnorm_batch


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["batchnorm_batch", "pretrained"])
def test_a_step_of_a_rehearsal_has_the_operations_of_the_whole_run(changed):
    config = tpu(**CONFIGS[changed])
    changes = next(short_run.plans(config, ROWS, TESTS, BUDGET)).changes

    (whole, groups), (short, fewer) = step(config), step(with_changes(config, changes))

    assert {"batch", "folds", "epochs", changed} <= set(changes)
    assert jax.device_count() == 8 and groups == fewer
    assert whole.count(" = ") > 100
    assert short == whole

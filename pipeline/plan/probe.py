"""Probe: a few steps of a config on this machine, timed.

They are those of a training: the same program, on all devices, fed with augmented batches of random
numbers.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.config.data_layout import sizes
from pipeline.plan.step_time import AffineLaw


def of_step(config: Config, least_seconds: float = 1.0) -> tuple[float, float]:
    """Return the seconds of a step, and those of building and compiling.

    Args:
        config: its epochs do not matter.
        least_seconds: that the timed steps take together; three steps at least.
    """
    import keras

    from pipeline.data.dataset import Batches
    from pipeline.models import architectures
    from pipeline.runtime import devices, replicas
    from pipeline.training import learning_rate
    from pipeline.training.train_step import Step

    count, data = 4 * config.batch, config.data
    draw = np.random.default_rng(0)
    noise = draw.integers(0, 2 if data.numbers else 256, (count, *data.shape)).astype(data.dtype)
    batches = Batches(noise, _labels(config, count), batch=config.batch, seed=config.seed)
    applied = learning_rate.apply(config, count)
    several = devices.found().count > 1
    begun = time.monotonic()
    try:
        distribution = keras.distribution.DataParallel() if several else None
        keras.distribution.set_distribution(distribution)
        architectures.seed(config.seed)
        model = architectures.build(config, applied.batchnorm_momentum)
        compiled = Step(config, applied, model, replicas.mesh())

        def step(number: int, tree: Any) -> Any:
            arrays = *batches.at(number), compiled.augmentation.draws(number)
            given = replicas.put(compiled.mesh, *(array[None] for array in arrays), axis=1)
            tree, totals = compiled.train(tree, (), given, 1)
            float(totals[0])  # waits for the step
            return tree

        tree, steps = step(0, compiled.initial().tree), 0
        setup, begun = time.monotonic() - begun, time.monotonic()
        while steps < 3 or time.monotonic() - begun < least_seconds:
            steps += 1
            tree = step(steps, tree)
        seconds = (time.monotonic() - begun) / steps
    finally:
        keras.distribution.set_distribution(None)
    return seconds, setup


def law(config: Config, count: int, show: Callable[[str], None]) -> tuple[AffineLaw, float]:
    """Return the time of a step by two batches, the config's and a half or a quarter of it, and
    the seconds of building and compiling.

    Args:
        count: of this machine's devices.
        show: takes a line before each probe.
    """
    group = math.lcm(config.batchnorm_batch or 1, count)
    less = next((part for part in (4, 2) if config.batch % (part * group) == 0), None)
    batches = [config.batch // less if less else 2 * config.batch, config.batch]
    found = []
    for batch in sorted(batches):
        show(f"Timing some steps of {batch} images on this machine")
        seconds, setup = of_step(replace(config, batch=batch, micro_batch=None))
        found.append((batch, seconds, setup))
    first, second = found
    return AffineLaw.through(first[:2], second[:2]), max(first[2], second[2])


def _labels(config: Config, count: int) -> np.ndarray:
    if config.target == "own":
        kind, *shape = config.data.own_labels
        return np.zeros((count, *sizes((kind, *shape))), str(kind))
    if config.target in ("classes", "ordinal"):
        return np.zeros(count, np.int32)
    return np.zeros((count, config.outputs), np.float32)

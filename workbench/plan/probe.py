"""Probe: a few steps of a config on this machine, timed.

They are those of a training: the same program, on all devices, fed by the same code with augmented
batches. Images are random numbers, or a sample of the competition's own files where a training
decodes them as it goes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.config.data_layout import Data, sizes
from pipeline.data import image_arrays, image_files
from pipeline.data.image_arrays import Paths
from pipeline.errors import DataError
from pipeline.runtime import devices
from workbench.plan.laws import AffineLaw

SAMPLE = 128  # files of a competition, at most
MOST_BROKEN = 0.1  # of them
CALLS = 4  # that are timed, at least
LEAST = 4.0  # seconds of each of two probes: what else a machine does comes and goes


@dataclass(frozen=True)
class Probed:
    """What a step takes here.

    Attributes:
        step: seconds, with its share of feeding.
        alone: seconds of a step for which the devices have waited: the images are there.
        waits: share of the time that the devices wait for the host.
        setup: seconds to build the network and compile, once.
    """

    step: float
    alone: float
    waits: float
    setup: float


def of_step(config: Config, least_seconds: float = 1.0, files: Any = None) -> Probed:
    """Return what a step takes.

    Args:
        config: its epochs do not matter.
        least_seconds: that the timed steps take together; `CALLS` calls at least.
        files: images, as `sample` returns them; None: random ones, in memory.
    """
    import jax
    import keras

    from pipeline.data.dataset import Batches
    from pipeline.models import architectures
    from pipeline.runtime import replicas
    from pipeline.train import feed as feeding
    from pipeline.train import learning_rate
    from pipeline.train.loop import ALONE, CallQueue
    from pipeline.train.step import TrainStep

    data = config.data
    if files is None:
        draw, high = np.random.default_rng(0), 2 if data.numbers else 256
        form = 2 * config.batch, *data.shape
        files = draw.integers(0, high, form, dtype=np.uint8).astype(data.dtype, copy=False)
    batches = Batches(files, _labels(config, len(files)), batch=config.batch, seed=config.seed)
    applied = learning_rate.apply(config, 4 * config.batch)
    here, before = devices.found(), keras.config.dtype_policy()
    begun = time.monotonic()
    try:
        keras.config.set_dtype_policy(devices.precision(config.precision, here, table=data.numbers))
        distribution = keras.distribution.DataParallel() if here.count > 1 else None
        keras.distribution.set_distribution(distribution)
        architectures.seed(config.seed)
        model = architectures.build(config, applied.batchnorm_momentum)
        compiled = TrainStep(config, applied, model, replicas.mesh())
        state = compiled.layout.initial()
        several = compiled.steps_per_call
        calls = CallQueue(compiled.replicas)
        alone: list[float] = []
        with feeding.begin(config, batches, compiled, lambda line: None) as feed:
            spans = ((first, several) for first in count(0, several))
            for made, (given, number) in enumerate(feed.calls(spans)):
                began = time.monotonic()
                calls.begin()
                state, report = compiled.train(state, feed.held, given, number)
                if made <= ALONE:  # the first one compiles
                    jax.block_until_ready(report)  # type: ignore[no-untyped-call]
                    alone.append(time.monotonic() - began)
                calls.add(made * several, report, timed=made > 0)
                if made == 0:
                    setup = time.monotonic() - begun
                elif made == ALONE:
                    calls.idle()  # from here on
                    timed = time.monotonic()
                sent = sum(array.nbytes for array in jax.tree.leaves(given))
                for done, _ in calls.ended(sent):
                    feed.ended(done)
                if made >= ALONE + CALLS and time.monotonic() - timed >= least_seconds:
                    break
            jax.block_until_ready(report)  # type: ignore[no-untyped-call]
            seconds, waits = time.monotonic() - timed, calls.idle()
    finally:
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)
    steps = (made - ALONE) * several
    return Probed(seconds / steps, min(alone[1:]) / several, waits, setup)


def law(
    config: Config, cores: int, show: Callable[[str], None], files: Any = None
) -> tuple[AffineLaw, Probed]:
    """Return the time of a step by two batches, the config's and a half or a quarter of it, and
    what the config's own takes.

    Args:
        cores: that a batch splits over.
        show: takes a line before each probe.
        files: as `of_step` takes them.
    """
    group = math.lcm(config.batchnorm_batch or 1, cores)
    less = next((part for part in (4, 2) if config.batch % (part * group) == 0), None)
    other = config.batch // less if less else 2 * config.batch
    found = {}
    for batch in (other, config.batch):
        show(f"Timing some steps of {batch} {config.data.noun} on this machine")
        sized = replace(config, batch=batch, micro_batch=None)
        found[batch] = of_step(sized, LEAST, files)
    own = found[config.batch]
    return AffineLaw.through((other, found[other].step), (config.batch, own.step)), own


def sample(paths: Paths, data: Data) -> tuple[Any, float]:
    """Return some of a competition's labelled images, still in their files, and how many a second
    one CPU of this machine decodes.

    Args:
        paths: of all of them, as `pipeline.data.dataset.training_images` returns them.

    Raises:
        DataError: if too many are missing or broken.
    """
    rows = np.linspace(0, len(paths) - 1, min(SAMPLE, len(paths))).astype(int)
    chosen = [paths[row] for row in rows]
    begun = time.monotonic()
    files, broken = image_arrays.read(chosen, data, None, None, in_files=True)
    rate = len(chosen) / (time.monotonic() - begun) / devices.cores()
    if len(broken) > MOST_BROKEN * len(chosen):
        reasons = {str(chosen[row]): reason for row, reason in broken.items()}
        raise DataError(image_files.describe_broken(reasons, len(chosen), data))
    return image_arrays.some(files, np.setdiff1d(np.arange(len(chosen)), list(broken))), rate


def _labels(config: Config, count: int) -> np.ndarray:
    if config.target == "custom":
        kind, *shape = config.data.custom_labels
        return np.zeros((count, *sizes((kind, *shape))), str(kind))
    if config.target in ("classes", "ordinal"):
        return np.zeros(count, np.int32)
    return np.zeros((count, config.outputs), np.float32)

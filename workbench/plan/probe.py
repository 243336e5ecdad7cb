"""Measure the speed of training steps on this machine, or read it from an earlier run.

Steps are timed as in training, with the same program and input pipeline. The images are random,
unless training would decode its images in every epoch. In that case, a sample of the competition's
files is used.
"""

import json
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pipeline import config as configs
from pipeline.config import Config, custom_code
from pipeline.config.data_layout import Data
from pipeline.data import image_arrays, image_files
from pipeline.data.image_arrays import Paths
from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.runtime import devices
from pipeline.train.progress_log import LINES
from workbench.plan.accelerators import named
from workbench.plan.compiled_step import blank_labels, building
from workbench.plan.laws import AffineLaw, Interval

SAMPLE = 128  # maximum number of competition files to decode
MOST_BROKEN = 0.1  # maximum fraction of them that can be broken
CALLS = 4  # minimum number of calls to time
FEW = 16  # images per pass for features; large networks take a second per image
LEAST = 4.0  # minimum seconds of timing, because the load on a machine varies
MANIFEST = Path("artifact", "manifest.json")
FIX = "Use the --output folder of a complete training run, or one created by `invoke pull`."
# Assumed relative errors of the time per step. NEAR applies if it was measured with this batch size
# or interpolated between two batch sizes. AGAIN applies if it was measured with a different batch
# size.
NEAR, AGAIN = 0.1, 0.15


@dataclass(frozen=True)
class Probed:
    """The speed of a step on this machine.

    Attributes:
        step: seconds per step, including the input pipeline.
        waits: fraction of time that the devices spend waiting for the host.
        setup: seconds for building the network and compiling the step.
    """

    step: float
    waits: float
    setup: float


def of_step(config: Config, least_seconds: float = 1.0, files: Any = None) -> Probed:
    """Measure the time that a training step takes. The config's number of epochs is ignored.

    Args:
        least_seconds: minimum duration of the measurement, which takes at least `CALLS` calls.
        files: images from `sample`, or None to use random images that are held in memory.
    """
    import jax
    import keras

    from pipeline.data.dataset import Batches
    from pipeline.runtime import replicas
    from pipeline.train import feed as feeding
    from pipeline.train.loop import ALONE, CallQueue

    begun, here = time.monotonic(), devices.found()
    policy = devices.precision(config.precision, here, exact=config.exact)
    if files is None:
        draw, high = np.random.default_rng(0), 2 if config.data.numbers else 256
        form = 2 * config.batch, *config.data.shape
        files = draw.integers(0, high, form, dtype=np.uint8).astype(config.data.dtype, copy=False)
    labels = blank_labels(config, (len(files),))
    batches = Batches(files, labels, batch=config.batch, seed=config.seed)
    distribution = keras.distribution.DataParallel() if here.count > 1 else None
    keras.distribution.set_distribution(distribution)
    with ExitStack() as stack:
        stack.callback(keras.distribution.set_distribution, None)
        step = stack.enter_context(building(config, policy, replicas.mesh()))
        state, calls, several = step.layout.initial(), CallQueue(step.replicas), step.steps_per_call
        feed = stack.enter_context(feeding.begin(config, batches, step, lambda line: None))
        spans = ((first, several) for first in count(0, several))
        for made, (given, number) in enumerate(feed.calls(spans)):
            calls.begin()
            state, report = step.train(state, feed.held, given, number)
            calls.add(made * several, report, timed=made > 0)
            if made == 0:  # includes compilation
                jax.block_until_ready(report)  # type: ignore[no-untyped-call]
                setup = time.monotonic() - begun
            elif made == ALONE:
                calls.idle()  # reset the counter
                timed = time.monotonic()
            sent = sum(array.nbytes for array in jax.tree.leaves(given))
            for done, _ in calls.ended(sent):
                feed.ended(done)
            if made >= ALONE + CALLS and time.monotonic() - timed >= least_seconds:
                break
        jax.block_until_ready(report)  # type: ignore[no-untyped-call]
        seconds, waits = time.monotonic() - timed, calls.idle()
    return Probed(seconds / (made - ALONE) / several, waits, setup)


def of_features(config: Config, least_seconds: float = 1.0) -> Probed:
    """Measure how long a network with random weights takes for a batch of random images.

    This is used for configs with fit="linear".
    """
    import keras

    from pipeline.models import architectures
    from pipeline.train import frozen_features

    begun, policy, done = time.monotonic(), keras.config.dtype_policy(), 0
    keras.config.set_dtype_policy(
        devices.precision(config.precision, devices.found(), exact=config.exact)
    )
    try:
        forward = frozen_features.passing(
            frozen_features.parts(architectures.build(config), config)[0]
        )
    finally:
        keras.config.set_dtype_policy(policy)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (FEW, *config.data.shape), dtype=np.uint8)
    forward(images)  # compiles
    setup, timed = time.monotonic() - begun, time.monotonic()
    while not done or time.monotonic() - timed < least_seconds:
        forward(images)
        done += FEW
    return Probed((time.monotonic() - timed) / done * config.batch, 0.0, setup)


def sample(paths: Paths, data: Data) -> tuple[Any, float]:
    """Return a sample of image files, and the number of images that a CPU decodes per second.

    Args:
        paths: paths of all labelled images, from `pipeline.data.dataset.training_images`.

    Raises:
        DataError: if too many images are missing or broken.
    """
    rows = np.linspace(0, len(paths) - 1, min(SAMPLE, len(paths))).astype(int)
    chosen = [paths[row] for row in rows]
    begun = time.monotonic()
    files, broken = image_arrays.read(chosen, data, in_files=True)
    rate = len(chosen) / (time.monotonic() - begun) / devices.cores()
    if len(broken) > MOST_BROKEN * len(chosen):
        reasons = {str(chosen[row]): reason for row, reason in broken.items()}
        raise DataError(image_files.describe_broken(reasons, len(chosen), data))
    return image_arrays.some(files, np.setdiff1d(np.arange(len(chosen)), list(broken))), rate


@dataclass(frozen=True)
class Run:
    """The speed of an earlier run.

    Attributes:
        precision: Keras dtype policy.
        step: seconds per step.
        source: display name of the run.
        custom_code: SHA-256 of its custom functions, or "".
    """

    runtime: str
    config: Config
    precision: str
    step: float
    folder: Path
    source: str
    custom_code: str

    def same_step(self, config: Config, runtime: str, precision: str) -> bool:
        """Return whether this run had the same runtime, precision and work per image."""
        ours, theirs = (
            (one.model, dict(one.model_options), one.data.shape, one.outputs)
            for one in (config, self.config)
        )
        custom = custom_code.functions(config) or self.custom_code
        there = (self.runtime, self.precision) == (runtime, precision)
        return there and ours == theirs and not custom


def read(folder: Path) -> Run:
    """Read the speed of an earlier run from its output folder.

    Raises:
        ConfigError: if there is no complete training run, or if its runtime is unknown.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        config, name = configs.from_json(manifest["config"]), named(str(manifest["devices"]))
        speeds = list(filter(None, map(_last_speed, sorted(folder.glob(f"**/{LINES}")))))
        source = f"run {manifest['run_id']} in {folder.name}"
        precision, custom = str(manifest["precision"]), str(manifest["custom_code"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PipelineError) as error:
        raise ConfigError(
            f"--probe {str(folder)[:200]}: not a complete training run: {error}\n{FIX}"
        ) from error
    if not name or not speeds:
        what = f"ran on unknown devices, {manifest['devices']}" if not name else "has no speed"
        raise ConfigError(f"--probe {folder}: {source} {what}.\nRemove it from --probe.")
    return Run(name, config, precision, config.batch / median(speeds), folder, source, custom)


def _last_speed(path: Path) -> float:
    lines = map(json.loads, path.read_text().splitlines())
    *_, last = 0.0, *(line["images_per_second"] for line in lines if "images_per_second" in line)
    return float(last) if 0 < last < math.inf else 0.0


def pulled(folder: Path) -> list[Run]:
    found = []
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        with suppress(ConfigError):  # an inference, or a run on an unknown runtime
            found.append(read(path.parents[1]))
    return found


def measured(
    runs: Sequence[Run], config: Config, runtime: str, precision: str
) -> tuple[Interval, str] | None:
    """Estimate the seconds per step from earlier runs of the same network on the same runtime.

    If the runs have several batch sizes, the time is extrapolated linearly from the smallest and
    the largest one. If all runs have the same batch size, the time per image is assumed to be
    constant.

    Returns:
        The time per step and the names of the runs, or None if there are no such runs.
    """
    ours = {one.config.batch: one for one in runs if one.same_step(config, runtime, precision)}
    if not ours:
        return None
    first, second = (ours[batch] for batch in (min(ours), max(ours)))
    if second.step > first.step:  # otherwise, there is only one batch size, or too much noise
        law = AffineLaw.through(*((one.config.batch, one.step) for one in (first, second)))
        usual, source = law.of(config.batch), f"{first.source} and {second.source}"
        if law.fixed >= 0:  # otherwise, time grows faster than the batch
            return Interval.around(usual, NEAR), source
    near = min(ours.values(), key=lambda one: abs(one.config.batch - config.batch))
    share = NEAR if near.config.batch == config.batch else AGAIN
    return Interval.around(near.step * config.batch / near.config.batch, share), near.source

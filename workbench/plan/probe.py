"""Measured speeds of a training: of some steps on this machine, or of an earlier run.

Timed steps are those of a training: the same program on all devices, fed by the same code with
augmented batches. Images are random, or a sample of the competition's files if a training would
decode them in every epoch.
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

SAMPLE = 128  # the most files of a competition to decode
MOST_BROKEN = 0.1  # share of them
CALLS = 4  # the fewest calls to time
FEW = 16  # images per pass for features: a large network takes a second for each
LEAST = 4.0  # seconds of timing, since a machine's other load varies
MANIFEST = Path("artifact", "manifest.json")
FIX = "Use the --output of a complete training, or a folder that `invoke pull` made."
# How far a step may differ on another day: with a batch that ran, or between two that ran; and with
# another batch (both assumed).
NEAR, AGAIN = 0.1, 0.15


@dataclass(frozen=True)
class Probed:
    """The speed of a step on this machine.

    Attributes:
        step: seconds, including feeding.
        waits: share of the time that the devices wait for the host.
        setup: seconds to build the network and compile, once.
    """

    step: float
    waits: float
    setup: float


def of_step(config: Config, least_seconds: float = 1.0, files: Any = None) -> Probed:
    """Time a step.

    Args:
        config: its epochs do not matter.
        least_seconds: of timing; `CALLS` calls at least.
        files: images from `sample`; None: random ones, in memory.
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
            if made == 0:  # it compiles
                jax.block_until_ready(report)  # type: ignore[no-untyped-call]
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
    return Probed(seconds / (made - ALONE) / several, waits, setup)


def of_features(config: Config, least_seconds: float = 1.0) -> Probed:
    """Time a batch whose features are computed (`Config.fit` "linear"), with random images and
    weights. See `of_step` for the arguments.
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
    """Return some of a competition's labelled images, still in their files, and the images per
    second that one CPU of this machine decodes.

    Args:
        paths: of all labelled images, from `pipeline.data.dataset.training_images`.

    Raises:
        DataError: if too many are missing or broken.
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
    """An earlier run.

    Attributes:
        runtime: where it ran.
        config: of the run.
        precision: Keras' policy.
        step: seconds of a step.
        folder: of its output.
        source: its name, for people.
        custom_code: sha256 of its functions, or "".
    """

    runtime: str
    config: Config
    precision: str
    step: float
    folder: Path
    source: str
    custom_code: str

    def same_step(self, config: Config, runtime: str, precision: str) -> bool:
        """Return whether it computed the same per image as a config would on a runtime."""
        ours, theirs = (
            (one.model, dict(one.model_options), one.data.shape, one.outputs)
            for one in (config, self.config)
        )
        custom = custom_code.functions(config) or self.custom_code
        there = (self.runtime, self.precision) == (runtime, precision)
        return there and ours == theirs and not custom


def read(folder: Path) -> Run:
    """Return the speed of a run.

    Args:
        folder: the output of a complete training.

    Raises:
        ConfigError: if it is not one, or if its machine is unknown.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        config, name = configs.from_json(manifest["config"]), named(str(manifest["devices"]))
        speeds = list(filter(None, map(_last_speed, sorted(folder.glob(f"**/{LINES}")))))
        source = f"run {manifest['run_id']} in {folder.name}"
        precision, custom = str(manifest["precision"]), str(manifest["custom_code"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PipelineError) as error:
        raise ConfigError(
            f"--probe {str(folder)[:200]}: this is not a complete training: {error}\n{FIX}"
        ) from error
    if not name or not speeds:
        what = f"ran on {manifest['devices']}" if not name else "has no progress lines with a speed"
        raise ConfigError(f"--probe {folder}: {source} {what}.\nLeave it out of --probe.")
    return Run(name, config, precision, config.batch / median(speeds), folder, source, custom)


def _last_speed(path: Path) -> float:
    lines = map(json.loads, path.read_text().splitlines())
    *_, last = 0.0, *(line["images_per_second"] for line in lines if "images_per_second" in line)
    return float(last) if 0 < last < math.inf else 0.0


def pulled(folder: Path) -> list[Run]:
    """Return the speeds of the complete runs in a folder of pulled runs."""
    found = []
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        with suppress(ConfigError):  # of an inference, or on an unknown machine
            found.append(read(path.parents[1]))
    return found


def measured(
    runs: Sequence[Run], config: Config, runtime: str, precision: str
) -> tuple[Interval, str] | None:
    """Return the seconds of a step by runs of this network on a runtime, and their names; None
    without such runs.

    Runs with two batch sizes give a line for any other. With one, a step takes equally long per
    image.
    """
    ours = {one.config.batch: one for one in runs if one.same_step(config, runtime, precision)}
    if not ours:
        return None
    first, second = (ours[batch] for batch in (min(ours), max(ours)))
    if second.step > first.step:  # otherwise there is only one, or they are too noisy
        law = AffineLaw.through(*((one.config.batch, one.step) for one in (first, second)))
        usual, source = law.of(config.batch), f"{first.source} and {second.source}"
        if law.fixed >= 0:  # otherwise steps grow faster than their batch
            return Interval.around(usual, NEAR), source
    near = min(ours.values(), key=lambda one: abs(one.config.batch - config.batch))
    share = NEAR if near.config.batch == config.batch else AGAIN
    return Interval.around(near.step * config.batch / near.config.batch, share), near.source

"""Probe: how fast a training was measured to be, on some steps here or by an earlier run.

Steps that are timed here are those of a training: the same program, on all devices, fed by the same
code with augmented batches. Images are random numbers, or a sample of the competition's own files
where a training decodes them as it goes.
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

SAMPLE = 128  # files of a competition, at most
MOST_BROKEN = 0.1  # of them
CALLS = 4  # that are timed, at least
FEW = 16  # images whose features are computed at once: a large network takes a second for each
LEAST = 4.0  # seconds that they take together: what else a machine does comes and goes
MANIFEST = Path("artifact", "manifest.json")
FIX = "Give the --output of a training that is complete, or a folder that `invoke pull` made."
# By how much a step may differ on another day: of a batch that ran or between two that ran, and of
# another batch (both assumed).
NEAR, AGAIN = 0.1, 0.15


@dataclass(frozen=True)
class Probed:
    """What a step takes here.

    Attributes:
        step: seconds, with its share of feeding.
        waits: share of the time that the devices wait for the host.
        setup: seconds to build the network and compile, once.
    """

    step: float
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
    """Return what a batch takes whose features are computed (`Config.fit` "linear"), of random
    images and weights. The arguments are those of `of_step`.
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
    """Return some of a competition's labelled images, still in their files, and how many per second
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


@dataclass(frozen=True)
class Run:
    """An earlier run.

    Attributes:
        runtime: where it ran.
        config: of the run. precision: that it trained in.
        step: seconds of a step.
        folder: of its output. source: for people. custom_code: sha256 of its functions, or "".
    """

    runtime: str
    config: Config
    precision: str
    step: float
    folder: Path
    source: str
    custom_code: str

    def same_step(self, config: Config, runtime: str, precision: str) -> bool:
        """Return whether it computed, for each image, what a config computes on a runtime."""
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
        ConfigError: if there is none, or the plan does not know its machine.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        config, name = configs.from_json(manifest["config"]), named(str(manifest["devices"]))
        speeds = list(filter(None, map(_last_speed, sorted(folder.glob(f"**/{LINES}")))))
        source = f"run {manifest['run_id']} in {folder.name}"
        precision, custom = str(manifest["precision"]), str(manifest["custom_code"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PipelineError) as error:
        raise ConfigError(
            f"--probe {str(folder)[:200]}: this is no complete training: {error}\n{FIX}"
        ) from error
    if not name or not speeds:
        what = f"ran on {manifest['devices']}" if not name else "has no progress lines with a speed"
        raise ConfigError(f"--probe {folder}: the {source} {what}, of which no plan is made.")
    return Run(name, config, precision, config.batch / median(speeds), folder, source, custom)


def _last_speed(path: Path) -> float:
    lines = map(json.loads, path.read_text().splitlines())
    *_, last = 0.0, *(line["images_per_second"] for line in lines if "images_per_second" in line)
    return float(last) if 0 < last < math.inf else 0.0


def pulled(folder: Path) -> list[Run]:
    """Return the speeds of the complete runs that lie in a folder of pulled ones."""
    found = []
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        with suppress(ConfigError):  # an infer's folder, or of a machine that no plan is made of
            found.append(read(path.parents[1]))
    return found


def measured(
    runs: Sequence[Run], config: Config, runtime: str, precision: str
) -> tuple[Interval, str] | None:
    """Return the seconds of a step by runs of this network on a runtime, and their sources; None:
    there are none.

    Two batches give every other; of one, a step takes as much time for each image.
    """
    ours = {one.config.batch: one for one in runs if one.same_step(config, runtime, precision)}
    if not ours:
        return None
    first, second = (ours[batch] for batch in (min(ours), max(ours)))
    if second.step > first.step:  # else there is one, or they are too noisy for a law
        law = AffineLaw.through(*((one.config.batch, one.step) for one in (first, second)))
        usual, source = law.of(config.batch), f"{first.source} and {second.source}"
        if law.fixed >= 0:  # else a step grows faster than its batch, which no line follows
            return Interval.around(usual, NEAR), source
    near = min(ours.values(), key=lambda one: abs(one.config.batch - config.batch))
    share = NEAR if near.config.batch == config.batch else AGAIN
    return Interval.around(near.step * config.batch / near.config.batch, share), near.source

"""Reduce rows, epochs, batch size and image size so that a rehearsal fits its time budget.

A short run has at most two folds and two views. Images have at most 64x64 pixels, and a batch has
at most about a million values. The first steps are timed on this machine to determine how many rows
and epochs fit, or whether the whole run fits.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline import config as configs
from pipeline.config import Config, custom_code
from pipeline.config.rehearsal import with_changes
from pipeline.errors import ConfigError, PipelineError
from pipeline.runtime import backend
from workbench.budget import shown

SIDE, VALUES = 64, 2**20  # maximum image size in pixels, and values per batch, of a short run
LEAST_SIDE = 32  # minimum image size of backbones, in pixels
REPLICAS = 8  # number of replicas on a TPU, and in the session that emulates one
LEAST_GROUP = 4  # minimum number of images per BatchNorm group
LEAST_STEPS, LEAST_EPOCHS, LEAST_ROWS, LEAST_TESTS = 20, 3, 64, 50
MOST_TESTS = 500  # rows; a rehearsal checks that predictions work, not how fast they are
FILES = 20  # images per second of the budget, because each is opened and decoded
# Fraction of the budget for timing. If this is not enough, the rehearsal uses the minimum amounts.
TIMING = 1 / 2
# FIXED is the seconds for starting three sessions and transferring their results. PROGRAMS is the
# compilation time of all programs, in units of the training step's compilation time. FOLD is the
# same for each additional fold. All were measured on two cores (docs/dev/findings.md).
FIXED, PROGRAMS, FOLD = 45.0, 1.5, 0.5
LEAST_SECONDS = 5.0  # for training and inference
INFERENCE = 1 / 4  # fraction of the time that remains after FIXED and compilation
FORWARD = 1 / 3  # time to validate or predict an image, relative to training on it
ENVIRONMENT = {  # for a session that emulates a TPU
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={REPLICAS}",
}


@dataclass(frozen=True)
class Plan:
    """The size of a rehearsal.

    Attributes:
        changes: config changes for `pipeline.config.rehearsal.with_changes`.
        train: maximum number of training rows, or None to use all of them.
        tests: maximum number of rows in each test set, or None to use all of them.
        lines: messages about the amounts that are reduced.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    train: int | None = None
    tests: int | None = None
    lines: tuple[str, ...] = ()


def in_a_process(config: str, rows: int, tests: int, budget: float, *, internet: bool) -> Plan:
    """Call `plans` for a config in a new process, and return the last plan.

    JAX starts threads, which are unsafe in a process that forks. In addition, the new process can
    be killed if a step takes too long. `config` is a name or a path.
    """
    name = str(Path(config).resolve()) if config.endswith(".py") else config
    given = json.dumps([name, rows, tests, budget, internet])
    command = [sys.executable, "-m", "workbench.rehearse.short_run", given]
    try:
        done = subprocess.run(  # noqa: S603 - this module
            command,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            timeout=TIMING * budget,
        )
    except subprocess.TimeoutExpired as error:
        done = subprocess.CompletedProcess(command, 0, error.stdout or b"", b"")
    code, said = done.returncode, done.stderr.decode(errors="replace").strip()
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    _, refused, message = said.rpartition("ConfigError: ")
    if code and refused:
        raise ConfigError(message[-3000:])
    if code or not made:
        reason = said[-1000:] or f"no output within {shown(TIMING * budget)}"
        raise PipelineError(
            f"Cannot time the first steps of {config}: the process exited with {code}"
            f"{' (out of memory?)' * (code == -9)}: {reason}.\n"
            "Lower data.height and data.width in the config, raise --budget, or rehearse the whole"
            f" run:\ninvoke dry-run --config {config} --input DIR --full"
        )
    last = made[-1]
    return Plan(**{**last, "lines": tuple(last["lines"])})


def plans(
    config: Config, rows: int, tests: int, budget: float, *, internet: bool = False
) -> Iterator[Plan]:
    """Yield the plan of the smallest rehearsal, and then a plan that fits the budget.

    The second plan is based on the duration of the first steps.

    Args:
        rows: number of training rows.
        tests: number of rows in the larger of the two test sets.
        budget: time limit for the rehearsal on two cores, in seconds.
        internet: whether published weights can be downloaded.
    """
    from pipeline.train import session
    from workbench.plan import probe  # imports JAX

    if config.fit:
        changes = {"epochs": 1, "warmup_epochs": min(config.warmup_epochs, 1), "frozen_epochs": 0}
        config = with_changes(config, changes)
    weights, lines = _weights(config, internet=internet)
    whole = with_changes(config, weights)
    short = weights | _fixed(whole)
    slow = f"{config.model} is slow on this machine, so the rehearsal uses the minimum amounts; "
    slow += "to train more, raise --budget"
    yield _scaled(whole, short, rows, tests, 0.0, 1e9, (*lines, slow))
    timed = with_changes(config, short)
    step = (probe.of_features if timed.fit else probe.of_step)(timed)
    compiling = step.setup * (PROGRAMS + FOLD * ((timed.folds or 1) - 1))
    left = budget - session.age() - FIXED - compiling
    if left < LEAST_SECONDS:
        needed = shown(budget - left + LEAST_SECONDS)
        many = f"takes about {needed}, because three sessions start; to train more, raise --budget"
        lines += (many,)
    left, image = max(left, LEAST_SECONDS), step.step / timed.batch
    yield _scaled(whole, short, rows, tests, left, image, lines, budget)


def _weights(config: Config, *, internet: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return config changes that replace published weights, which sessions cannot download."""
    from pipeline.models.backbones import BACKBONES, IMAGENET, RANDOM  # imports Keras

    published = config.model in BACKBONES and not config.init_from
    if internet or not published or config.pretrained not in ("", IMAGENET):
        return {}, ()
    changes: dict[str, Any] = {"pretrained": RANDOM}
    if config.model_options.get("batchnorm", "auto") == "auto":
        changes["model_options.batchnorm"] = "frozen"  # as with published weights
    return changes, (
        f"{config.model} starts from random weights; to download the published ones: invoke dry-run"
        " --internet",
    )


def _fixed(config: Config) -> dict[str, Any]:
    changes = {name: 2 for name in ("folds", "views") if (getattr(config, name) or 0) > 2}
    changes |= _smaller_images(config)
    short = with_changes(config, changes)
    return changes | _smaller_batch(short, VALUES // math.prod(short.data.shape))


def _smaller_images(config: Config) -> dict[str, int]:
    """Return the config changes that reduce images to at most `SIDE` pixels per side.

    The dictionary is empty if images cannot be resized, or if the model does not support smaller
    images.
    """
    data, changes = config.data, dict[str, int]()
    resized = data.kind in ("images", "tfrecords") and data.resize != "exact"
    height, width = data.height, data.width
    while resized and max(height, width) > SIDE and min(height, width) >= 2 * LEAST_SIDE:
        height, width = height // 2, width // 2
        smaller = {"data.height": height, "data.width": width}
        try:
            short = with_changes(config, smaller)
            # These models may require a certain image size.
            if custom_code.functions(config) or config.model == "published" or config.progressive:
                from pipeline.models import architectures
                from pipeline.train import phases

                phases.models(short, architectures.build(short))
        except ConfigError:
            break
        changes = smaller
    return changes


def _smaller_batch(config: Config, most: float) -> dict[str, int]:
    """Return the config changes for a smaller batch, which has at most about `most` images.

    The smaller batch can also be split evenly across the replicas. The base batch and the BatchNorm
    groups are divided by the same factor, so that the learning rate and the number of groups per
    replica stay the same.
    """
    from pipeline.train import learning_rate

    sizes = {
        "batch": config.batch,
        "optimizer.base_batch": config.optimizer.base_batch,
        "batchnorm_batch": learning_rate.apply(config, config.batch).batchnorm_batch,
    }
    if config.micro_batch is not None:
        sizes["micro_batch"] = config.micro_batch
    factor = 1
    pairs = config.data.mixup or config.data.cutmix  # images are mixed in pairs
    even = REPLICAS * (2 if pairs else 1)
    while (
        config.batch / factor > most
        and all(size % (2 * factor) == 0 for size in sizes.values())
        and config.batch // (2 * factor) % even == 0
        and sizes["batchnorm_batch"] // (2 * factor) >= LEAST_GROUP
    ):
        factor *= 2
    return {name: size // factor for name, size in sizes.items()} if factor > 1 else {}


def _scaled(
    whole: Config,
    changes: Mapping[str, Any],
    rows: int,
    tests: int,
    seconds: float,
    image: float,
    lines: tuple[str, ...],
    budget: float = 0.0,
) -> Plan:
    """Return a plan for the whole run if there is enough time, and otherwise for a short run.

    Args:
        whole: the config of the whole run, with weights that are available in a session.
        changes: config changes for a short run.
        seconds: seconds that are available for training and inference.
        image: seconds per image in a training step of the short run.
    """
    short = with_changes(whole, changes)
    training, predicting = (1 - INFERENCE) * seconds, INFERENCE * seconds
    larger = math.prod(whole.data.shape) / math.prod(short.data.shape)
    epoch = larger * image * _images_per_epoch(whole, rows)
    readable = rows if whole.data.kind not in ("images", "tfrecords") else int(FILES * budget)
    if whole.epochs * epoch <= training and rows <= readable:
        prefixes = "model_options.", "pretrained"
        own = {name: value for name, value in changes.items() if name.startswith(prefixes)}
        some = _tests_left(tests, predicting, larger * image, whole)
        return Plan(
            own,
            None,
            some if some < tests else None,
            (*lines, *_less([("rows to predict", some, tests)])),
        )
    most = training / image / LEAST_STEPS / (short.folds or 1)
    changes = {**changes, **_smaller_batch(short, most)}
    images = training / image / _images_per_epoch(short, 1)
    kept = min(rows, max(LEAST_ROWS, int(min(images / LEAST_EPOCHS, readable))))
    epochs = min(whole.epochs, max(int(images / kept), 1))
    if epochs < whole.epochs:
        changes |= whole.with_epochs(epochs)
    some = _tests_left(tests, predicting, image, short)
    short = with_changes(whole, changes)
    less = _less(
        [
            ("training rows", kept, rows),
            ("epochs", short.epochs, whole.epochs),
            ("folds", short.folds or 1, whole.folds or 1),
            ("pixels per side", short.data.height, whole.data.height),
            (f"{whole.data.noun} per step", short.batch, whole.batch),
            ("views", short.views, whole.views),
            ("rows to predict", some, tests),
        ]
    )
    if budget:
        took = shown(whole.epochs * epoch)
        less += (f"a full training run takes about {took} on this machine (option --full)",)
    return Plan(changes, kept, some, (*lines, *less))


def _images_per_epoch(config: Config, rows: int) -> float:
    """Return the images per epoch in all folds. A validation image counts as `FORWARD` images."""
    if config.fit:
        return rows
    share, folds = config.data.validation_fraction, 1
    if config.folds:
        share, folds = 1 / config.folds, config.folds
    return folds * rows * (1 - share + FORWARD * share)


def _tests_left(tests: int, seconds: float, image: float, config: Config) -> int:
    some = int(seconds / (FORWARD * image * (config.folds or 1) * config.views) / 2)
    return tests if some >= tests else min(tests, max(min(some, MOST_TESTS), LEAST_TESTS))


def _less(amounts: list[tuple[str, int, int]]) -> tuple[str, ...]:
    words = [f"{some:,} of {every:,} {what}" for what, some, every in amounts if some != every]
    return (f"uses {', '.join(words)}",) if words else ()


if __name__ == "__main__":
    backend.choose("jax")
    named, *numbers, fetched = json.loads(sys.argv[1])
    for plan in plans(configs.load(named), *numbers, internet=fetched):
        print(json.dumps(asdict(plan)), flush=True)

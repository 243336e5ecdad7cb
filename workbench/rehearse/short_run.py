"""How much a rehearsal does, so that it ends within a budget: rows, epochs, batch and image size.

It changes only amounts (`pipeline.config.rehearsal`). Where the batch is smaller, so are the base
batch and BatchNorm's groups, by the same factor: learning rates and the number of groups on a
replica stay.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import config as configs
from pipeline.config import Config
from pipeline.config.rehearsal import with_changes
from pipeline.errors import ConfigError, PipelineError
from pipeline.train import learning_rate
from workbench.budget import shown
from workbench.rehearse import step_cost
from workbench.rehearse.step_cost import Cost

# Seconds of a rehearsal beside training and inference, on two cores: three sessions start, and the
# results go from one to the next. Measured on digits (docs/dev/findings.md).
FIXED = 50.0
LEAST_SECONDS = 5.0  # for training and inference
REPLICAS = 8  # of a TPU, and of the session that stands for one
LEAST_STEPS, LEAST_EPOCHS, LEAST_ROWS = 20, 3, 64
LEAST_GROUP = 4  # images that BatchNorm normalizes together
MOST_TESTS = 500  # rows: a rehearsal shows that they are predicted, not how fast
PARTS = (2, 4, 8)  # of an image's height and width
LEAST_SIDE = 32  # pixels: backbones take no smaller images
INFERENCE = 1 / 4  # of the time that is not FIXED
# First weights come from many small programs; nothing here runs long enough to be optimized.
ON_A_CPU = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
}


@dataclass(frozen=True)
class Plan:
    """How much a rehearsal does.

    Attributes:
        changes: of the config, as `pipeline.config.rehearsal.with_changes` takes them.
        train: most rows to train on; None: all.
        tests: most rows of each test set; None: all.
        lines: what it does not do, in words.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    train: int | None = None
    tests: int | None = None
    lines: tuple[str, ...] = ()


def in_a_process(config: str, rows: int, tests: int, budget: float, *, internet: bool) -> Plan:
    """Return the plan for a config of that name or path, made by another Python.

    To count operations it starts JAX, whose threads a process that forks should not have. The other
    arguments, and the errors, are those of `plan`.
    """
    name = str(Path(config).resolve()) if config.endswith(".py") else config
    given = json.dumps([name, rows, tests, budget, internet])
    done = subprocess.run(  # noqa: S603 - this module
        [sys.executable, "-m", "workbench.rehearse.short_run", given],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **ON_A_CPU},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip()
        _, refused, message = said.rpartition("ConfigError: ")
        if refused:
            raise ConfigError(message[-3000:])
        raise PipelineError(
            f"Could not plan a short rehearsal: its process ended with {done.returncode}"
            f"{' (out of memory?)' * (done.returncode == -9)}: {said[-1000:] or 'it said nothing'}"
            ".\nExpected a plan. Lower data.height and data.width in the config, or rehearse all of"
            f" it:\ninvoke dry-run --config {shlex.quote(config)} --input DIR --full"
        )
    changes, train, most, said = json.loads(lines[-1])
    return Plan(changes, train, most, tuple(said))


def plan(config: Config, rows: int, tests: int, budget: float, *, internet: bool = False) -> Plan:
    """Return how much a rehearsal does.

    Args:
        config: the run.
        rows: to train on, in the folder.
        tests: rows of the larger test set.
        budget: seconds that the rehearsal may take on two cores.
        internet: whether published weights can be fetched.
    """
    changes, lines = _weights(config, internet=internet)
    config = with_changes(config, changes)
    cost = step_cost.of(config)
    needed = FIXED + cost.compiling + LEAST_SECONDS
    if budget < needed:
        lines += (f"takes about {shown(needed)}, more than --budget: three sessions start",)
    spare = max(budget - FIXED - cost.compiling, LEAST_SECONDS)
    training = (1 - INFERENCE) * spare
    predicting = INFERENCE * spare
    folds = config.folds or 1
    whole = (cost.training + cost.step / config.batch) * rows * config.epochs * (folds - 1 or 1)
    if whole <= training:
        tests_left = _tests_left(tests, predicting, cost, folds * config.views)
        fewer = (f"does {tests_left:,} of {tests:,} rows to predict",) if tests_left < tests else ()
        left = tests_left if fewer else None
        return Plan(changes, None, left, (*lines, *fewer))
    few, views = min(folds, 2), min(config.views, 2)
    shorter: dict[str, Any] = {"folds": few} if folds > few else {}
    shorter |= {"views": views} if config.views > views else {}
    smaller, cost = _smaller(config, cost, training, few)
    shorter |= smaller
    smaller_batch, images = _batch(with_changes(config, shorter), cost, training / few)
    shorter |= smaller_batch
    rows_of_images = images * few / (few - 1 or 1)  # a fold's model sees the other folds
    kept = min(rows, max(LEAST_ROWS, int(rows_of_images / LEAST_EPOCHS)))
    epochs = min(config.epochs, max(int(rows_of_images / kept), 1))
    if epochs < config.epochs:
        warmup = config.warmup_epochs * epochs / config.epochs
        shorter |= {"epochs": epochs, "warmup_epochs": warmup}
    tests_left = _tests_left(tests, predicting, cost, few * views)
    said = _said(config, with_changes(config, shorter), (kept, rows), (tests_left, tests))
    lines += (
        said,
        f"the whole training takes about {shown(whole)} on this machine; to do all: --full",
    )
    return Plan({**changes, **shorter}, kept, tests_left, lines)


def _tests_left(tests: int, seconds: float, cost: Cost, times: int) -> int:
    """Return how many rows are predicted, `times` each: all, or few. Two test sets are."""
    some = int(seconds / (cost.predicting * times))
    return tests if some >= 2 * tests else max(min(tests, some // 2, MOST_TESTS), 50)


def _weights(config: Config, *, internet: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the changes for a model whose published weights no session can fetch."""
    from pipeline.models.backbones import BACKBONES, IMAGENET, RANDOM  # imports Keras: seconds

    options = config.model_options
    published = config.model in BACKBONES and not config.init_from
    if internet or not published or options.get("pretrained", IMAGENET) != IMAGENET:
        return {}, ()
    changes: dict[str, Any] = {"model_options.pretrained": RANDOM}
    if options.get("batchnorm", "auto") == "auto":
        changes["model_options.batchnorm"] = "frozen"  # as with the published ones
    return changes, (
        f"{config.model} starts with random weights: to fetch the published ones, pass --internet",
    )


def _smaller(config: Config, cost: Cost, seconds: float, folds: int) -> tuple[dict[str, Any], Cost]:
    """Return the changes to smaller images, as far as the shortest training needs them, and what
    those cost.
    """
    data = config.data
    resized = data.kind in ("images", "tfrecords") and data.resize != "exact"
    group = LEAST_GROUP * REPLICAS  # images
    found: dict[str, Any] = {}
    for part in PARTS if resized else ():
        if (cost.training * group + cost.step) * LEAST_STEPS * folds <= seconds:
            break
        sides = {"data.height": data.height // part, "data.width": data.width // part}
        if min(sides.values()) < LEAST_SIDE:
            break
        try:
            found, cost = sides, step_cost.of(with_changes(config, sides))
        except ConfigError:
            break  # the model takes no smaller ones
    return found, cost


def _batch(config: Config, cost: Cost, seconds: float) -> tuple[dict[str, Any], int]:
    """Return the changes to a smaller batch, so that there are steps enough, and the images that
    one model may see.

    Base batch and groups get smaller by the same factor. The batch splits over the replicas.
    """
    applied = learning_rate.apply(config, config.batch)
    sizes = {
        "batch": config.batch,
        "optimizer.base_batch": config.optimizer.base_batch,
        "batchnorm_batch": applied.batchnorm_batch,
    }
    if config.micro_batch is not None:
        sizes["micro_batch"] = config.micro_batch
    factor, mixes = 1, config.data.mixup or config.data.cutmix
    even = REPLICAS * (2 if mixes else 1)  # an image is mixed with its neighbour
    while (
        seconds / (cost.training * config.batch / factor + cost.step) < LEAST_STEPS
        and all(size % (2 * factor) == 0 for size in sizes.values())
        and config.batch // (2 * factor) % even == 0
        and sizes["batchnorm_batch"] // (2 * factor) >= LEAST_GROUP
    ):
        factor *= 2
    changes = {name: size // factor for name, size in sizes.items()} if factor > 1 else {}
    return changes, int(seconds / (cost.training + cost.step * factor / config.batch))


def _said(config: Config, short: Config, rows: tuple[int, int], tests: tuple[int, int]) -> str:
    """Return what is less, in words."""
    pairs = {
        "rows to train on": rows,
        "epochs": (short.epochs, config.epochs),
        "folds": (short.folds or 1, config.folds or 1),
        "pixels a side": (short.data.height, config.data.height),
        f"{config.data.noun} a step": (short.batch, config.batch),
        "views": (short.views, config.views),
        "rows to predict": tests,
    }
    return "does " + ", ".join(
        f"{some:,} of {every:,} {what}" for what, (some, every) in pairs.items() if some != every
    )


if __name__ == "__main__":
    name, *amounts, fetched = json.loads(sys.argv[1])
    made = plan(configs.load(name), *amounts, internet=fetched)
    print(json.dumps([made.changes, made.train, made.tests, made.lines]))

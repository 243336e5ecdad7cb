"""Gradient noise: the scale of it is the batch past which more images a step buy little.

Source: McCandlish et al. 2018, arXiv:1812.06162, section 2.2 and appendix A.1. The gradient of one
image is G + noise of covariance Sigma; B_noise = tr(Sigma) / |G|^2. At a batch of B_noise a run
needs twice the fewest steps, and twice the fewest images.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipeline import losses, warm_start
from pipeline.config import Config
from pipeline.config.compatibility import changes
from pipeline.data import dataset, file_images, folds
from pipeline.errors import CheckpointError, ConfigError, reading
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.storage import atomic_file
from pipeline.training import learning_rate, out_of_memory
from pipeline.training.loop import Loop
from pipeline.warm_start import FirstStage

STEPS = 50
RESULT = "noise.json"


@dataclass(frozen=True)
class Noise:
    """What was measured.

    Attributes:
        small, large: images of the two batches.
        steps: at which both gradients were taken.
        signal, spread: |G|^2 and S = tr(Sigma), means over the steps. With few steps either may be
            below 0.
    """

    small: int
    large: int
    steps: int
    signal: float
    spread: float

    @property
    def scale(self) -> float:
        """B_noise in images: 0 without noise, infinite without signal.

        >>> Noise(8, 64, 50, signal=0.5, spread=100.0).scale
        200.0
        """
        if self.spread <= 0:
            return 0.0
        return self.spread / self.signal if self.signal > 0 else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for `json.dumps`; an infinite scale is None."""
        return asdict(self) | {"scale": self.scale if math.isfinite(self.scale) else None}


def estimate(small: int, large: int, squares: Iterable[tuple[float, float]]) -> Noise:
    """Return the noise from (|g_b|^2, |g_B|^2) of each step, of mean gradients over b = `small` and
    B = `large` images.

    |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b) and S = (|g_b|^2 - |g_B|^2) / (1/b - 1/B) have no
    bias, and their ratio has one. So each is averaged over the steps first.

    Raises:
        ValueError: unless 1 <= small < large, and there is a step.

    >>> estimate(1, 4, [(5.0, 2.0)])
    Noise(small=1, large=4, steps=1, signal=1.0, spread=4.0)
    """
    found = np.array(list(squares), float)
    if not 1 <= small < large or not len(found):
        raise ValueError(
            f"{len(found)} steps with batches of {small} and {large}: expected steps, and"
            " 1 <= small < large"
        )
    of_small, of_large = found.mean(axis=0)
    signal = (large * of_large - small * of_small) / (large - small)
    spread = (of_small - of_large) / (1 / small - 1 / large)
    return Noise(small, large, len(found), float(signal), float(spread))


def measure(
    config: Config,
    examples: dataset.Examples,
    *,
    steps: int = STEPS,
    seeds: Sequence[int] = (),
    first: FirstStage | None = None,
) -> Noise:
    """Return the noise over the first `steps` steps of a training, which writes nothing.

    The small batch is BatchNorm's group, the large one the batch. Groups are drawn independently,
    so their gradients are independent, which is all that the estimate needs. Later in a run the
    scale is larger, and its estimate worse: |G|^2 is then a small difference of large numbers.

    Args:
        config: the run.
        examples: of its competition.
        seeds: at every step, take the gradients of a batch drawn with each of these seeds, in place
            of the batch that is trained on.
        first: whose weights the run begins with; None: the model's own.

    Raises:
        ConfigError: if a batch is one group.
    """
    rows, held = folds.splits(examples, config)[0]
    applied = learning_rate.apply(config, len(rows))
    if applied.batchnorm_batch == config.batch:
        raise ConfigError(
            f"batch={config.batch} is one group of BatchNorm; the noise is measured from batches of"
            " two sizes.\n"
            "Raise batch, or lower batchnorm_batch in the config."
        )

    architectures.seed(config.seed)
    weights = losses.row_weights(examples, config, rows)
    trained = dataset.Batches.of(examples, config, rows, weights)
    validation = file_images.some(examples.inputs, held), examples.labels[held]
    begin = None
    if first is not None:
        number = 1 if config.folds else None
        begin = partial(warm_start.begin, first=first, config=config, fold=number)
    run = Loop(config, applied, trained, validation, Path(), print, {}, begin=begin)
    others = [dataset.Batches.of(examples, config, rows, weights, seed=seed) for seed in seeds]
    squares = []
    for step in range(min(steps, applied.total_steps)):
        draws = run.compiled.augmentation.draws(step)
        for batches in others or [trained]:
            squares.append(run.compiled.squares(run.state.tree, (*batches.at(step), draws)))
        batch = jax.tree.map(lambda array: array[None], (*trained.at(step), draws))
        given = replicas.put(run.compiled.mesh, *batch, axis=1)
        if step == 0:
            run.state, _ = out_of_memory.first_call(run.compiled, run.state, ((), given, 1), print)
        else:
            run.state.tree, _ = run.compiled.train(run.state.tree, (), given, 1)
    return estimate(applied.batchnorm_batch, config.batch, squares)


def advised(noise: Noise, batch: int, unit: int) -> tuple[int, str]:
    """Return the batch to use instead of `batch`, which is `unit` times a power of two, and the
    reason.

    >>> advised(Noise(8, 64, 50, signal=1.0, spread=300.0), 2048, 32)[0]
    256
    """
    scale = noise.scale
    about = f"{scale:.2g}" if scale < 10 else f"{float(f'{scale:.2g}'):,.0f}"
    if batch <= scale:
        return batch, f"Batch {batch} is within the noise scale of about {about}."
    best = unit
    while 2 * best <= scale and 2 * best < batch:
        best *= 2
    best = min(best, batch)
    reason = (
        f"Batch {batch} is past the noise scale of about {about}:"
        f" more than {about} images a step buy little"
    )
    if best < batch:
        return best, f"{reason}; take batch {best}."
    return best, f"{reason}, and {unit} is the smallest batch that was asked for."


def capped(
    config: Config,
    examples: dataset.Examples,
    output: Path,
    replicas: int,
    *,
    fresh: bool,
    first: FirstStage | None = None,
    show: Callable[[str], None],
) -> Config:
    """Return the config with the batch that the noise scale allows, if `noise_cap` asks for that.

    A batch must stay the same from session to session, so it is measured once and kept in
    `output`/noise.json.

    Args:
        config: the run.
        examples: of its competition.
        output: of the run; it exists.
        replicas: that the batch has to split over.
        fresh: measure again.
        first: as `measure` takes it.

    Raises:
        ConfigError: if the batch is one group of BatchNorm, so that there is nothing to measure.
        CheckpointError: if noise.json cannot be read or has another config, or if its batch does
            not split over the replicas.
        DiskError: if it cannot be written.
    """
    if not config.noise_cap:
        return config
    path, asked = output / RESULT, config.to_json()
    found = None if fresh else _read(path)
    changed = changes(found["config"], asked) if found else []
    if changed:  # measuring again would overwrite what the checkpoints beside it were made with
        raise CheckpointError(
            f"{path} is of another run; changed since: {'; '.join(changed)}.\n"
            "Undo the change to resume, choose another --output, or start over with --fresh."
        )
    if found is None:
        unit = math.lcm(
            min(config.optimizer.base_batch, config.batch), config.batchnorm_batch or 1, replicas
        )
        noise = measure(config, examples, first=first)
        batch, reason = advised(noise, config.batch, unit)
        found = {"config": asked, "batch": batch, "reason": reason, "noise": noise.to_json()}
        atomic_file.write(path, json.dumps(found, indent=2).encode())
    show(found["reason"])
    batch = found["batch"]
    if batch % replicas:
        raise CheckpointError(
            f"{path} has batch={batch}, which the run began with; it does not split evenly over"
            f" {replicas} replicas.\n"
            "Resume on as many devices as divide it, or start over with --fresh."
        )
    micro_batch = None if config.micro_batch is None else min(config.micro_batch, batch)
    return replace(config, batch=batch, micro_batch=micro_batch)


def _read(path: Path) -> dict[str, Any] | None:
    with reading(path, CheckpointError, "Start over with --fresh."):
        if not path.exists():
            return None
        content = path.read_bytes()
    try:
        found = json.loads(content)
        kinds = {"config": dict, "batch": int, "reason": str}
        return {name: kind(found[name]) for name, kind in kinds.items()}
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{path} could not be read: {type(error).__name__}: {error}.\n"
            "Expected what `noise_cap` wrote when the run began. Start over with --fresh."
        ) from error

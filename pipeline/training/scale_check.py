"""Scaling: whether the rate of `learning_rate` holds on this data, seen in loss against epochs at
one batch and at eight times it.

Reads  a config, its data, and history.csv of nine runs
Gives  scaling.json in the output folder, and a table

Three arms of the same epochs, with the same three seeds each:

    base      `batch` images a step, the config's base_batch if no other is given
    scaled    8 x batch, with the rate and the averages that `learning_rate` gives for it
    unscaled  8 x batch, with the numbers of the base arm: what the scaling is there to mend

An arm holds if, beside the base arm and over the epochs after the warm-up,

    gap     the largest distance between the means over the seeds of the two arms' training loss is at most 2 seed s.d.
    ratio   it takes at most 1.15 times the base arm's epochs to the target
    spread  its own s.d. is at most 3 times the base arm's: else one bad seed would widen the measure that it is judged by

    seed s.d.  the root of the mean, over both arms and these epochs, of the variance between seeds
    (n - 1): one number. At a single
               epoch three seeds say little of it.
    target     the base arm's mean loss at 3/4 of the epochs, between two epochs on a line
    epochs to  where an arm's mean loss first reaches the target, between two epochs on a line

The check passes if the scaled arm holds and the unscaled one does not; if both hold, it shows
nothing. It is no proof of equality: the gap is in units of the noise between seeds, so noisy runs
make it weak. Nor is it mild: where this noise is independent from epoch to epoch, one of five
checks of two equal arms finds more than 2 s.d. (three seeds, 17 epochs); another `seed` of the
config tells.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax.experimental.compilation_cache import compilation_cache

from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.errors import ConfigError, DivergedError, reading, writing
from pipeline.runtime import compile_cache
from pipeline.session.progress_log import HISTORY
from pipeline.storage import atomic_file
from pipeline.training import gradient_noise, learning_rate, training
from pipeline.training.gradient_noise import Noise

FACTOR, SEEDS = 8, 3
MOST_GAP, MOST_RATIO, MOST_SPREAD, TARGET_AT = 2.0, 1.15, 3.0, 0.75
RESULT = "scaling.json"


@dataclass(frozen=True)
class Compared:
    """An arm beside the base arm; the words are those of the module.

    Attributes:
        gap: in seed s.d., with its sign: above 0 where the arm's loss is higher. epoch: where it is
            largest.
        ratio: epochs to the target over the base arm's; infinite if the arm does not get there.
        spread: s.d. between the arm's seeds over that of the base arm's.
    """

    gap: float
    epoch: int
    ratio: float
    spread: float

    @property
    def holds(self) -> bool:
        """Whether all three are within their limits."""
        return abs(self.gap) <= MOST_GAP and self.ratio <= MOST_RATIO and self.spread <= MOST_SPREAD


@dataclass(frozen=True)
class Checked:
    """What came out.

    Attributes:
        scaled, unscaled: beside the base arm. noise: None if it was not measured.
        advice: sentences for a person. folder: with the runs and scaling.json.
    """

    scaled: Compared
    unscaled: Compared
    noise: Noise | None
    advice: tuple[str, ...]
    folder: Path

    @property
    def passed(self) -> bool:
        """Whether scaling holds, and the check can tell that it does."""
        return self.scaled.holds and not self.unscaled.holds

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes; what is infinite is None."""
        arms = {
            name: {**_finite(asdict(arm)), "holds": arm.holds}
            for name, arm in (("scaled", self.scaled), ("unscaled", self.unscaled))
        }
        limits = {"gap": MOST_GAP, "ratio": MOST_RATIO, "spread": MOST_SPREAD}
        measured = None if self.noise is None else self.noise.to_json()
        return {
            "passed": self.passed,
            "limits": limits,
            **arms,
            "noise": measured,
            "advice": list(self.advice),
        }


def check(
    config: Config,
    folder: Path,
    output: Path,
    *,
    batch: int | None = None,
    examples: dataset.Examples | None = None,
    show: Callable[[str], None] = print,
) -> Checked:
    """Train the nine runs, or those that are not complete yet, and compare them.

    Args:
        config: the run; its `batch`, `folds` and `noise_cap` are not used. folder: the competition,
            as Kaggle mounts it.
        output: gets a folder a run, and scaling.json. batch: of the base arm; None: the optimizer's
            base_batch.
        examples: of that folder, if they were read before. show: takes each line of text.

    Raises:
        ConfigError: if 8 x batch images are more than there are, or no epoch comes after the
            warm-up.
        DataError, CheckpointError, DiskError: as they say.
    """
    examples = training.read(config, folder) if examples is None else examples
    batch = config.optimizer.base_batch if batch is None else batch
    configs = arms(config, batch, len(examples))
    rows = len(folds.splits(examples, configs["base"])[0][0])
    if FACTOR * batch > rows:
        raise ConfigError(
            f"A batch of {batch} cannot be checked with {rows} training images: {FACTOR} x {batch} of them have to fit into an epoch.\n"
            f"Give --batch {max(rows // FACTOR, 1)} or less."
        )
    count = jax.device_count()
    if batch % count:
        raise ConfigError(
            f"A batch of {batch} does not split evenly over {count} replicas.\nGive --batch {max(batch // count, 1) * count}, or another multiple."
        )
    if config.warmup_epochs > config.epochs - 1:
        raise ConfigError(
            f"warmup_epochs={config.warmup_epochs:g} of epochs={config.epochs} leave no epoch to compare; expected one after the warm-up.\n"
            "Raise epochs, or lower warmup_epochs in the config."
        )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    _compile_once(output)
    losses = {}
    for name, arm in configs.items():
        applied = learning_rate.apply(arm, rows)
        show(
            f"{name}: batch {arm.batch}, {applied.optimizer} rate {applied.peak_rate:g}, {SEEDS} seeds of {arm.epochs} epochs"
        )
        for warning in applied.warnings if name == "scaled" else ():
            show(f"Warning: {warning}")
        seeds = [replace(arm, seed=arm.seed + number) for number in range(SEEDS)]
        losses[name] = np.array(
            [_losses(one, folder, output / f"{name}-{one.seed}", examples, show) for one in seeds]
        )
    warmup = math.ceil(config.warmup_epochs)
    scaled, unscaled = (
        compare(losses["base"], losses[name], warmup) for name in ("scaled", "unscaled")
    )
    measured = None
    if learning_rate.apply(configs["scaled"], rows).batchnorm_batch < configs["scaled"].batch:
        measured = gradient_noise.measure(configs["scaled"], examples)
        show(
            f"Gradient-noise scale over the first {measured.steps} steps: {measured.scale:.0f} images"
        )
    checked = Checked(
        scaled,
        unscaled,
        measured,
        tuple(_advice(config, batch, scaled, unscaled, measured)),
        output,
    )
    _write(checked, config, configs, losses, warmup)
    return checked


def arms(config: Config, batch: int, num_images: int) -> dict[str, Config]:
    """Return the config of each arm, by name."""
    plain = replace(
        config, folds=None, patience=None, keep="last", session_hours=None, micro_batch=None, noise_cap=False,
        progress_seconds=3600, checkpoint_seconds=3600,
    )  # fmt: skip
    base, scaled = replace(plain, batch=batch), replace(plain, batch=FACTOR * batch)
    given = learning_rate.apply(base, num_images)
    kept = replace(
        config.optimizer,
        base_batch=FACTOR * batch,  # so that nothing is scaled
        base_rate=given.peak_rate,
        beta_1=given.beta_1,
        beta_2=given.beta_2,
        epsilon=given.epsilon,
        weight_decay=given.weight_decay,
        ema_momentum=given.ema_momentum,
    )
    unscaled = replace(
        scaled,
        optimizer=kept,
        batchnorm_momentum=given.batchnorm_momentum,
        batchnorm_batch=given.batchnorm_batch,
    )
    return {"base": base, "scaled": scaled, "unscaled": unscaled}


def compare(base: np.ndarray, other: np.ndarray, warmup: int) -> Compared:
    """Return how `other` lies beside `base`: losses, float (seeds, epochs), the first `warmup` of
    them not counted.

    Raises:
        ValueError: if there are fewer than two seeds of either, or no epoch after the warm-up.

    >>> base = np.array([[4.0, 2.0, 1.0, 0.50], [4.0, 2.2, 1.2, 0.52]])
    >>> compare(base, base + [[0.0, 0.0, 0.5, 0.0]], warmup=1).holds
    False
    """
    if (
        base.shape[1:] != other.shape[1:]
        or min(len(base), len(other)) < 2
        or not 0 <= warmup < base.shape[1]
    ):
        raise ValueError(
            f"{base.shape} and {other.shape} losses, warm-up {warmup}: expected two seeds and an epoch after it"
        )
    ours, theirs = (
        np.where(np.isfinite(losses), losses, np.inf)[:, warmup:] for losses in (base, other)
    )
    if not np.isfinite(theirs).all() or not np.isfinite(ours).all():
        return Compared(
            math.inf,
            int(np.argmin(np.isfinite(theirs).all(axis=0))) + warmup + 1,
            math.inf,
            math.inf,
        )
    of_base, of_other = (float(losses.var(axis=0, ddof=1).mean()) for losses in (ours, theirs))
    apart = theirs.mean(axis=0) - ours.mean(axis=0)
    place = int(np.abs(apart).argmax())
    deviation = math.sqrt((of_base + of_other) / 2)
    target = target_of(base)
    return Compared(
        gap=_over(float(apart[place]), deviation),
        epoch=place + warmup + 1,
        ratio=epochs_to(target, other) / epochs_to(target, base),
        spread=_over(math.sqrt(of_other), math.sqrt(of_base)),
    )


def target_of(base: np.ndarray) -> float:
    """Return the base arm's mean loss at 3/4 of its epochs; losses: float (seeds, epochs)."""
    epochs = np.arange(1, base.shape[1] + 1)
    return float(np.interp(TARGET_AT * base.shape[1], epochs, base.mean(axis=0)))


def epochs_to(target: float, losses: np.ndarray) -> float:
    """Return where the mean over the seeds first reaches the target, in epochs; infinite if it does
    not.

    >>> epochs_to(1.5, np.array([[4.0, 2.0, 1.0], [4.0, 2.0, 1.0]]))
    2.5
    """
    mean = losses.mean(axis=0)
    reached = np.flatnonzero(mean <= target)
    if not len(reached):
        return math.inf
    place = int(reached[0])
    if place == 0:
        return 1.0
    return place + float((mean[place - 1] - target) / (mean[place - 1] - mean[place]))


def lines(checked: Checked) -> list[str]:
    """Return the result as text: a table with a line an arm, and the advice."""

    def row(name: str, arm: Compared) -> str:
        times = f"{arm.ratio:.2f}x" if math.isfinite(arm.ratio) else "never"
        gap = f"{arm.gap:+.1f} s.d. at {arm.epoch}"
        return f"{name:10}{gap:>22}{times:>18}{f'{arm.spread:.1f}x':>9}  {'holds' if arm.holds else 'does not hold'}"

    return [
        f"{'':10}{'largest gap, epoch':>22}{'epochs to target':>18}{'spread':>9}",
        f"{'limit':10}{f'{MOST_GAP:g} s.d.':>22}{f'{MOST_RATIO:g}x':>18}{f'{MOST_SPREAD:g}x':>9}",
        row("scaled", checked.scaled),
        row("unscaled", checked.unscaled),
        *checked.advice,
    ]


def _over(number: float, unit: float) -> float:
    if number == 0:
        return 0.0
    return number / unit if unit > 0 else math.copysign(math.inf, number)


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(v, float) and not math.isfinite(v) else v
        for name, v in values.items()
    }


def _compile_once(output: Path) -> None:
    """Keep what is compiled in one folder for all runs: `training` takes a folder that was chosen
    before for the user's.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(output / compile_cache.FOLDER))  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
        compilation_cache.reset_cache()


def _losses(
    config: Config,
    folder: Path,
    output: Path,
    examples: dataset.Examples,
    show: Callable[[str], None],
) -> np.ndarray:
    """Return the training loss of each epoch, float (epochs,); infinite from where the run
    diverged.

    They are kept in losses.json, with what they belong to; the run's checkpoints and artifact are
    removed then.
    """
    path = output / "losses.json"
    origin = {"config": config.to_json(), "data": examples.fingerprint()}
    if path.is_file():
        with reading(path, ConfigError, "Remove it."):
            try:
                kept = dict(json.loads(path.read_bytes()))
                theirs, losses = (
                    kept["origin"],
                    np.array(kept["losses"], float),
                )  # None, infinite, becomes no number
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise ConfigError(
                    f"{path} is not what a check writes: {type(error).__name__}: {error}.\nRemove it: that run is made again."
                ) from error
        if theirs != origin:
            raise ConfigError(
                f"{path} is of another check: the config or the images are not those it was made with.\n"
                "Choose another --output, or remove that folder."
            )
        return losses
    try:
        if (
            training.train(config, folder, output, examples=examples, show=lambda line: None).status
            != "complete"
        ):
            raise KeyboardInterrupt  # it was asked to stop (SIGTERM), and its last epochs are not there
    except DivergedError as error:
        show(f"{output.name}: {str(error).splitlines()[0]}")
    losses = np.full(config.epochs, np.inf)
    if (output / HISTORY).is_file():
        history = pd.read_csv(output / HISTORY)
        losses[history["epoch"].to_numpy() - 1] = history["loss"].to_numpy()
    atomic_file.write(path, json.dumps({"origin": origin, "losses": _plain(losses)}).encode())
    for made in ("artifact", "checkpoints"):
        shutil.rmtree(output / made, ignore_errors=True)
    show(f"{output.name}: loss {losses[-1]:.4g} in the last epoch")
    return losses


def _plain(values: np.ndarray) -> Any:
    """Return the numbers as lists, and None for what is not finite."""
    return (
        [_plain(row) for row in values]
        if values.ndim
        else float(values)
        if np.isfinite(values)
        else None
    )


def _advice(
    config: Config, batch: int, scaled: Compared, unscaled: Compared, measured: Noise | None
) -> list[str]:
    large, rule = FACTOR * batch, "linear" if config.optimizer.name == "sgd" else "square-root"
    told = []
    if scaled.holds and not unscaled.holds:
        told.append(
            f"Passed: on this data the {rule} rule carries the rate from batch {batch} to {large}."
        )
    elif scaled.holds:
        told.append(
            "Not passed: the unscaled arm holds as well, so this check shows nothing about the rule. The runs are longer than the data "
            "need, or differ too much between seeds: give fewer epochs, or a smaller --batch."
        )
    elif scaled.gap < 0 and scaled.ratio <= MOST_RATIO and scaled.spread <= MOST_SPREAD:
        told.append(
            f"Not passed: the scaled arm is ahead by {-scaled.gap:.1f} s.d. Nothing is lost by batch {large}, but the curves are not the same; "
            "another `seed` in the config tells whether that is noise."
        )
    else:
        told.append(
            f"Not passed: on this data the {rule} rule does not carry the rate from batch {batch} to {large}. Take a smaller batch, tune "
            f"base_rate at a larger base_batch, or raise warmup_epochs; --batch {max(batch // 2, 1)} checks half of it."
        )
    if measured is not None:
        told += [
            gradient_noise.advised(measured, size, batch)[1]
            for size in sorted({config.batch, large})
            if size > batch
        ]
    return told


def _write(
    checked: Checked,
    config: Config,
    configs: Mapping[str, Config],
    losses: Mapping[str, np.ndarray],
    warmup: int,
) -> None:
    told = {
        **checked.to_json(),
        "config": config.to_json(),
        "warmup_epochs": warmup,
        "target": _plain(np.array(target_of(losses["base"]))),
        "arms": {
            name: {"batch": configs[name].batch, "losses": _plain(found)}
            for name, found in losses.items()
        },
    }
    atomic_file.write(checked.folder / RESULT, (json.dumps(told, indent=2) + "\n").encode())

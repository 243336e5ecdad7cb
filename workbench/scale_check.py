"""Scale check: whether the scaled learning rate of `learning_rate` holds on this data.

In: a config and its data. Out: scaling.json in the output folder, and a table. Three arms of the
same epochs, with the same three seeds each, are trained:

    base      `batch` images a step, by default the config's base_batch
    scaled    TIMES x batch, with the learning rate and averages that `learning_rate` gives for it
    unscaled  TIMES x batch, with the numbers of the base arm: what scaling is there to fix

TIMES is what the config does, its batch / base_batch; 8 for one that scales nothing.

The check passes if the scaled arm holds (`workbench.loss_curves`) and the unscaled one does
not; if both hold, it shows nothing. It is no proof of equality: the gap is in units of the noise
between seeds, so noisy runs make it weak. Nor is it mild: where this noise is independent from
epoch to epoch, one in five checks of two equal arms finds more than 2 s.d. (three seeds, 17
epochs). Another `seed` in the config then tells.
"""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.data import dataset, folds
from pipeline.errors import ConfigError, DivergedError, reading
from pipeline.runtime import backend
from pipeline.train import learning_rate, training
from pipeline.train.progress_log import HISTORY
from workbench import loss_curves
from workbench.loss_curves import MOST_GAP, MOST_RATIO, MOST_SPREAD, Compared

FACTOR, SEEDS = 8, 3
RESULT = "scaling.json"


@dataclass(frozen=True)
class Checked:
    """The outcome of a check.

    Attributes:
        scaled, unscaled: beside the base arm.
        advice: a sentence for a person.
    """

    scaled: Compared
    unscaled: Compared
    advice: str

    @property
    def passed(self) -> bool:
        """Whether scaling holds, and the check could have failed."""
        return self.scaled.holds and not self.unscaled.holds

    def to_json(self) -> dict[str, Any]:
        """Return the outcome for `json.dumps`; infinite numbers are None."""

        def numbers(arm: Compared) -> dict[str, Any]:
            return {name: _plain(value) for name, value in asdict(arm).items()}

        return {
            "passed": self.passed,
            "limits": {"gap": MOST_GAP, "ratio": MOST_RATIO, "spread": MOST_SPREAD},
            "scaled": {**numbers(self.scaled), "holds": self.scaled.holds},
            "unscaled": {**numbers(self.unscaled), "holds": self.unscaled.holds},
            "advice": self.advice,
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
        config: the run; its `folds` are not used.
        folder: the competition, as Kaggle mounts it.
        output: gets a folder a run, and scaling.json.
        batch: of the base arm; None: the optimizer's base_batch.
        examples: of that folder, if they were read before.
        show: takes each line of text.

    Raises:
        ConfigError: if there are fewer than TIMES x batch images, or no epoch after the warm-up.
        DataError, CheckpointError, DiskError: as they say.
    """
    examples = dataset.read_training(folder, config) if examples is None else examples
    batch, factor = config.optimizer.base_batch if batch is None else batch, times(config)
    configs = arms(config, batch, len(examples))
    rows = len(folds.splits(examples, configs["base"])[0][0])
    if factor * batch > rows:
        raise ConfigError(
            f"A batch of {batch} cannot be checked with {rows} training {config.data.noun}:"
            f" an epoch needs at least {factor} x {batch} of them.\n"
            f"Give --batch {max(rows // factor, 1)} or less."
        )
    count = jax.device_count()
    if batch % count:
        raise ConfigError(
            f"A batch of {batch} does not split evenly over {count} replicas.\n"
            f"Give --batch {max(batch // count, 1) * count}, or another multiple."
        )
    if config.warmup_epochs > config.epochs - 1:
        raise ConfigError(
            f"warmup_epochs={config.warmup_epochs:g} of epochs={config.epochs} leave no epoch to"
            " compare; expected one after the warm-up.\n"
            "Raise epochs, or lower warmup_epochs in the config."
        )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    _compile_once(output)
    losses = {}
    for name, arm in configs.items():
        applied = learning_rate.apply(arm, rows)
        show(
            f"{name}: batch {arm.batch}, {applied.optimizer} learning rate {applied.peak_rate:g},"
            f" {SEEDS} seeds of {arm.epochs} epochs"
        )
        for warning in applied.warnings if name == "scaled" else ():
            show(f"Warning: {warning}")
        seeds = [replace(arm, seed=arm.seed + number) for number in range(SEEDS)]
        losses[name] = np.array(
            [_losses(one, folder, output / f"{name}-{one.seed}", examples, show) for one in seeds]
        )
    base, warmup = losses["base"], math.ceil(config.warmup_epochs)
    scaled, unscaled = (
        loss_curves.compare(base, losses[name], warmup) for name in ("scaled", "unscaled")
    )
    checked = Checked(scaled, unscaled, _advice(config, batch, scaled, unscaled))
    result = {
        **checked.to_json(),
        "config": config.to_json(),
        "warmup_epochs": warmup,
        "target": _plain(loss_curves.target_of(base)),
        "arms": {
            name: {"batch": configs[name].batch, "losses": _plain(found)}
            for name, found in losses.items()
        },
    }
    atomic_file.write(output / RESULT, (json.dumps(result, indent=2) + "\n").encode())
    return checked


def times(config: Config) -> int:
    """Return by how much a config scales its base batch, or `FACTOR` if by nothing.

    Raises:
        ConfigError: if that is no whole number.
    """
    base = config.optimizer.base_batch
    if config.batch > base and config.batch % base:
        raise ConfigError(
            f"batch={config.batch} is {config.batch / base:.3g} times base_batch={base}; the check"
            " expects a whole number.\nSet batch to a multiple of base_batch."
        )
    return config.batch // base if config.batch > base else FACTOR


def arms(config: Config, batch: int, num_images: int) -> dict[str, Config]:
    """Return the config of each arm, by name."""
    factor = times(config)
    plain = replace(
        config, folds=None, patience=None, keep="last", session_hours=None, micro_batch=None,
        progress_seconds=3600, checkpoint_seconds=3600,
    )  # fmt: skip
    base, scaled = replace(plain, batch=batch), replace(plain, batch=factor * batch)
    given = learning_rate.apply(base, num_images)
    kept = replace(
        config.optimizer,
        base_batch=factor * batch,  # so that nothing is scaled
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


def lines(checked: Checked) -> list[str]:
    """Return the outcome as text: a table with a line an arm, and the advice."""

    def row(name: str, arm: Compared) -> str:
        times = f"{arm.ratio:.2f}x" if math.isfinite(arm.ratio) else "never"
        gap, spread = f"{arm.gap:+.1f} s.d. at {arm.epoch}", f"{arm.spread:.1f}x"
        holds = "holds" if arm.holds else "does not hold"
        return f"{name:10}{gap:>22}{times:>18}{spread:>9}  {holds}"

    return [
        f"{'':10}{'largest gap, epoch':>22}{'epochs to target':>18}{'spread':>9}",
        f"{'limit':10}{f'{MOST_GAP:g} s.d.':>22}{f'{MOST_RATIO:g}x':>18}{f'{MOST_SPREAD:g}x':>9}",
        row("scaled", checked.scaled),
        row("unscaled", checked.unscaled),
        checked.advice,
    ]


def _compile_once(output: Path) -> None:
    """Keep what is compiled in one folder for all runs: `training` keeps a folder that is set."""
    backend.keep_compiled(output)
    os.environ.setdefault(backend.CACHE, str(output / backend.COMPILED))


def _losses(
    config: Config,
    folder: Path,
    output: Path,
    examples: dataset.Examples,
    show: Callable[[str], None],
) -> np.ndarray:
    """Return the training loss of each epoch, float (epochs,); infinite after the run diverged.

    The losses are kept in losses.json, and the run's checkpoints and artifact are removed.
    """
    path = output / "losses.json"
    origin = {"config": config.to_json(), "data": examples.fingerprint}
    origin["custom_code"] = custom_code.digest(config)
    if path.is_file():
        with reading(path, ConfigError, "Remove it."):
            try:
                kept = dict(json.loads(path.read_bytes()))
                losses = np.array(kept["losses"], float)  # None, for infinite, becomes NaN
                theirs = kept["origin"]
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise ConfigError(
                    f"{path} is not what a check writes: {type(error).__name__}: {error}.\n"
                    "Remove it: that run is trained again."
                ) from error
        if theirs != origin:
            raise ConfigError(
                f"{path} is of another check: it has another config, or other data.\n"
                "Choose another --output, or remove that folder."
            )
        return losses
    try:
        run = training.train(config, folder, output, examples=examples, show=lambda line: None)
        if run.status != "complete":
            raise KeyboardInterrupt  # it was asked to stop (SIGTERM): its last epochs are missing
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


def _plain(values: Any) -> Any:
    """Return a number or an array for JSON: lists, and None for what is not finite."""
    if np.ndim(values):
        return [_plain(row) for row in values]
    return np.asarray(values).item() if np.isfinite(values) else None


def _advice(config: Config, batch: int, scaled: Compared, unscaled: Compared) -> str:
    large = times(config) * batch
    rule = config.optimizer.scaling or learning_rate.RULES.get(config.optimizer.name, "none")
    rule = {"sqrt": "square-root"}.get(rule, rule)
    if scaled.holds and not unscaled.holds:
        return (
            f"Passed: on this data the {rule} rule carries the learning rate from batch {batch}"
            f" to {large}."
        )
    if scaled.holds:
        return (
            "Not passed: the unscaled arm holds as well, so this check shows nothing about the"
            " rule. The runs are longer than the data need, or differ too much between seeds:"
            " give fewer epochs, or a smaller --batch."
        )
    if scaled.gap < 0 and scaled.ratio <= MOST_RATIO and scaled.spread <= MOST_SPREAD:
        return (
            f"Not passed: the scaled arm is ahead by {-scaled.gap:.1f} s.d. Nothing is lost by"
            f" batch {large}, but the curves are not the same; another `seed` in the config tells"
            " whether that is noise."
        )
    return (
        f"Not passed: on this data the {rule} rule does not carry the learning rate from batch"
        f" {batch} to {large}. Use a smaller batch, tune base_rate at a larger base_batch, or"
        f" raise warmup_epochs; --batch {max(batch // 2, 1)} checks half of it."
    )

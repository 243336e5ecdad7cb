"""Scale check: whether the learning rate that `learning_rate` scales holds on this data, or which
rate to use.

`check` trains three variants for the same epochs, with the same three seeds each:

    base      `batch` images per step, by default the config's base_batch
    scaled    TIMES x batch, with the rate and averages that `learning_rate` scales for it
    unscaled  TIMES x batch, with the numbers of the base variant: the problem that scaling solves

TIMES is the config's own factor, batch / base_batch in whole numbers; 8 if it scales nothing.

The check passes if the scaled variant holds (`workbench.loss_curves`) and the unscaled one does
not; if both hold, it shows nothing. It does not prove equality: the gap is in units of the noise
between seeds, so noisy runs make it weak. Nor is it lenient: where noise is independent from epoch
to epoch, one in five checks of two equal variants finds more than 2 s.d. (three seeds, 17 epochs).
Repeat it with a different `seed` in the config.

`sweep` trains the config's own batch at five rates, from a quarter to four times its own, with one
seed and a tenth of the epochs, and prints the `base_rate` to use.

Running either again only trains what is not complete yet.
"""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from formats import atomic_file
from pipeline.config import Config, custom_code
from pipeline.data import dataset, folds
from pipeline.errors import ConfigError, DivergedError
from pipeline.runtime import backend
from pipeline.train import learning_rate, training
from pipeline.train.progress_log import HISTORY
from workbench import loss_curves
from workbench.loss_curves import MOST_GAP, MOST_RATIO, MOST_SPREAD, Compared

FACTOR, SEEDS = 8, 3
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the config's
SHORTER, LEAST_EPOCHS = 10, 2  # of a sweep
COLUMNS = {"gap": "gap in s.d.", "ratio": "times the epochs"}  # to the target
RESULT, RATES_RESULT = "scaling.json", "rates.json"
Show = Callable[[str], None]


def check(
    config: Config, folder: Path, output: Path, *, batch: int | None = None, show: Show = print
) -> dict[str, Any]:
    """Train those of the nine runs that are not complete yet, and return the result of `judged`.

    Args:
        config: the run; its `folds` are not used.
        folder: the competition, as Kaggle mounts it.
        output: gets a folder per run, and scaling.json.
        batch: of the base variant; None: the optimizer's base_batch.
        show: takes each line of text.

    Raises:
        ConfigError: if there are fewer than TIMES x batch images, or no epoch after the warm-up.
        DataError, CheckpointError, DiskError: as in a training.
    """
    examples = dataset.read_training(folder, config)
    batch = config.optimizer.base_batch if batch is None else batch
    configs = variants(config, batch, len(examples))
    rows = len(folds.splits(examples, configs["base"])[0][0])
    _refuse(config, batch, rows)
    losses = {}
    for name, one in configs.items():
        applied = learning_rate.apply(one, rows)
        show(f"{name}: batch {one.batch}, learning rate {applied.peak_rate:g}, {SEEDS} seeds")
        for warning in applied.warnings if name == "scaled" else ():
            show(f"Warning: {warning}")
        runs = [replace(one, seed=one.seed + number) for number in range(SEEDS)]
        trained = (
            _trained(run, folder, output / f"{name}-{run.seed}", examples, show) for run in runs
        )
        losses[name] = np.array([run["loss"] for run in trained])
    base, warmup = losses["base"], math.ceil(config.warmup_epochs)
    scaled, unscaled = (
        loss_curves.compare(base, losses[name], warmup) for name in ("scaled", "unscaled")
    )
    outcome = judged(config, batch, scaled, unscaled)
    result = {
        **outcome,
        "config": config.to_json(),
        "warmup_epochs": warmup,
        "target": loss_curves.target_of(base),
        "batches": {name: one.batch for name, one in configs.items()},
        "losses": losses,
    }
    _write(output / RESULT, result)
    return outcome


def judged(config: Config, batch: int, scaled: Compared, unscaled: Compared) -> dict[str, Any]:
    """Return the outcome of a check for JSON, with None for infinite numbers.

    `passed`: scaling holds, and the check could have failed. `scaled`, `unscaled`: compared with
    the base variant (`Compared`), and whether each holds. `advice`: a sentence for the user.
    """
    both = {"scaled": scaled, "unscaled": unscaled}
    return {
        "passed": scaled.holds and not unscaled.holds,
        **{name: _plain(asdict(one)) | {"holds": one.holds} for name, one in both.items()},
        "advice": _advice(config, batch, scaled, unscaled),
    }


def sweep(config: Config, folder: Path, output: Path, show: Show = print) -> pd.DataFrame:
    """Train those of the five rates that are not complete yet.

    Args:
        config, folder, show: as `check` takes them.
        output: gets a folder per rate, and rates.json.

    Returns:
        A row per rate: `base_rate`; `rate`, scaled for the config's batch; `loss` and
        `validation_loss` of the last epoch, NaN if the run diverged.
    """
    examples = dataset.read_training(folder, config)
    epochs = max(math.ceil(config.epochs / SHORTER), LEAST_EPOCHS)
    short = replace(_plain_run(config), **config.with_epochs(epochs))
    rows, tried = len(folds.splits(examples, short)[0][0]), []
    for factor in RATES:
        base_rate = float(f"{factor * config.optimizer.base_rate:.3g}")
        one = replace(short, optimizer=replace(config.optimizer, base_rate=base_rate))
        rate = learning_rate.apply(one, rows).peak_rate
        show(f"batch {one.batch}, learning rate {rate:.3g}, {epochs} epochs")
        last = _trained(one, folder, output / f"rate-x{factor:g}", examples, show).iloc[-1]
        tried.append({"base_rate": base_rate, "rate": rate, **last})
    _write(output / RATES_RESULT, {"tried": tried, "config": config.to_json()})
    return pd.DataFrame(tried)


def rate_to_take(tried: pd.DataFrame) -> float | None:
    """Return the base_rate with the lowest validation loss; None if all diverged."""
    losses = tried["validation_loss"].to_numpy()
    return float(tried["base_rate"][np.nanargmin(losses)]) if np.isfinite(losses).any() else None


def rate_lines(tried: pd.DataFrame, batch: int) -> list[str]:
    """Return a sweep as text: a table with a line per rate, and the rate to use."""
    table = tried.rename(columns={"rate": f"at batch {batch}"})
    text = table.to_string(index=False, na_rep="diverged", float_format="{:.4g}".format)
    rate, rates = rate_to_take(tried), tried["base_rate"].tolist()
    advice = f"Write base_rate={rate} into the config: it has the lowest validation loss here."
    if rate in (None, rates[0], rates[-1]):
        there = rates[0] / SHORTER if rate is None else rate
        which = "All rates diverged" if rate is None else "The best rate is at the end of the sweep"
        advice = f"{which}. Write base_rate={there:.3g} and sweep again, with a new --output."
    return [*text.splitlines(), advice]


def times(config: Config) -> int:
    """Return the factor by which a config scales its base batch, or `FACTOR` if it does not."""
    factor = config.batch // config.optimizer.base_batch
    return factor if factor > 1 else FACTOR


def variants(config: Config, batch: int, num_images: int) -> dict[str, Config]:
    """Return the config of each variant, by name."""
    factor, plain = times(config), _plain_run(config)
    base, scaled = replace(plain, batch=batch), replace(plain, batch=factor * batch)
    given = learning_rate.apply(base, num_images)
    same = ("beta_1", "beta_2", "epsilon", "weight_decay", "ema_momentum")
    kept = replace(
        config.optimizer,
        base_batch=factor * batch,  # scales nothing
        base_rate=given.peak_rate,
        **{name: getattr(given, name) for name in same},
    )
    groups = {name: getattr(given, name) for name in ("batchnorm_momentum", "batchnorm_batch")}
    return {"base": base, "scaled": scaled, "unscaled": replace(scaled, optimizer=kept, **groups)}


def lines(outcome: dict[str, Any]) -> list[str]:
    """Return a check as text: a table with a line per variant, and the advice."""
    limits = {"gap": MOST_GAP, "ratio": MOST_RATIO, "spread": MOST_SPREAD, "epoch": "", "holds": ""}
    table = {"limit": limits, "scaled": outcome["scaled"], "unscaled": outcome["unscaled"]}
    text = pd.DataFrame(table).T.fillna("never").rename(columns=COLUMNS)
    return [*text.to_string(float_format="{:.2f}".format).splitlines(), outcome["advice"]]


def _plain_run(config: Config) -> Config:
    """Return a config that trains once, to its end, and saves little.

    Raises:
        ConfigError: if it has no learning rate.
    """
    if config.fit:
        raise ConfigError(
            f"fit={config.fit!r} has no learning rate to check.\nRemove fit from the config."
        )
    return replace(
        config, folds=None, patience=None, keep="last", session_hours=None, micro_batch=None,
        progress_seconds=3600, checkpoint_seconds=3600,
    )  # fmt: skip


def _refuse(config: Config, batch: int, rows: int) -> None:
    """Raise `ConfigError` before the first of nine runs if one cannot work."""
    factor = times(config)
    most = rows // factor // jax.device_count() * jax.device_count()
    if batch > most or batch % jax.device_count():
        raise ConfigError(
            f"A batch of {batch} cannot be checked: an epoch has {rows} {config.data.noun}, but the"
            f" check needs {factor} x {batch}, on {jax.device_count()} replicas.\n"
            f"Use --batch {min(batch, most) // jax.device_count() * jax.device_count()} or less."
        )
    if config.warmup_epochs > config.epochs - 1:
        raise ConfigError(
            f"warmup_epochs={config.warmup_epochs:g} with epochs={config.epochs} leave no epoch to"
            " compare after the warm-up.\nRaise epochs, or lower warmup_epochs, in the config."
        )


def _trained(
    config: Config, folder: Path, output: Path, examples: dataset.Examples, show: Show
) -> pd.DataFrame:
    """Return `loss` and `validation_loss` of each epoch, NaN after the run diverged.

    They are kept in losses.json; the run's checkpoints and artifact are removed.
    """
    path, names = output / "losses.json", ["loss", "validation_loss"]
    origin = [config.to_json(), examples.fingerprint, custom_code.digest(config)]
    if path.is_file():
        try:
            kept = json.loads(path.read_bytes())
            losses = pd.DataFrame(kept["losses"], columns=names, dtype=float)
            same = kept["origin"] == origin
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            same = False
        if not same:
            raise ConfigError(
                f"{path} is from a check with a different config or different data, or corrupt.\n"
                "Choose another --output, or remove that folder."
            )
        return losses
    # All runs share compiled programs: `training` keeps a cache that is set.
    backend.keep_compiled(output.parent)
    os.environ.setdefault(backend.CACHE, str(output.parent / backend.COMPILED))
    try:
        run = training.train(config, folder, output, examples=examples, show=lambda line: None)
        if run.status != "complete":
            raise KeyboardInterrupt  # it was stopped (SIGTERM), so its last epochs are missing
    except DivergedError as error:
        show(f"{output.name}: {str(error).splitlines()[0]}")
    losses = pd.DataFrame(index=range(1, config.epochs + 1), columns=names, dtype=float)
    if (output / HISTORY).is_file():
        losses.update(pd.read_csv(output / HISTORY, index_col="epoch"))
    _write(path, {"origin": origin, "losses": losses.to_dict("list")})
    for made in ("artifact", "checkpoints"):
        shutil.rmtree(output / made, ignore_errors=True)
    show(f"{output.name}: loss {losses['loss'].iloc[-1]:.4g} in the last epoch")
    return losses


def _write(path: Path, result: dict[str, Any]) -> None:
    atomic_file.write(path, (json.dumps(_plain(result), indent=2) + "\n").encode())


def _plain(value: Any) -> Any:
    """Return a value for JSON: arrays become lists, infinite and missing numbers None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _advice(config: Config, batch: int, scaled: Compared, unscaled: Compared) -> str:
    large = times(config) * batch
    rule = config.optimizer.scaling or learning_rate.RULES.get(config.optimizer.name, "none")
    rule = {"sqrt": "square-root"}.get(rule, rule)
    carries = f"carry the learning rate from batch {batch} to {large} on this data"
    if scaled.holds and not unscaled.holds:
        return f"Passed: the {rule} rule can {carries}."
    if scaled.holds:
        return (
            "Not passed: the unscaled variant holds too, so this check shows nothing about the"
            f" {rule} rule. Use fewer epochs, or a smaller --batch."
        )
    if scaled.gap < 0 and scaled.ratio <= MOST_RATIO and scaled.spread <= MOST_SPREAD:
        return (
            f"Not passed: the scaled variant is ahead by {-scaled.gap:.1f} s.d., so batch {large}"
            " loses nothing. Try a different `seed` in the config to see whether that is noise."
        )
    return (
        f"Not passed: the {rule} rule does not {carries}. To find a rate for batch {config.batch},"
        f" use --sweep; to check half this batch, --batch {max(batch // 2, 1)}."
    )

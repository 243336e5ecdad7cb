"""Check whether learning rate scaling works on this data, or find a good learning rate.

`check` trains three variants for the same number of epochs, with the same three seeds:

    base      `batch` images per step, by default the config's base_batch
    scaled    TIMES x batch, with hyperparameters scaled by `learning_rate`
    unscaled  TIMES x batch, with the base variant's hyperparameters

TIMES is the config's `batch // base_batch`, or 8 if the config does not scale the base batch.

The check passes if the scaled variant meets the conditions in `workbench.loss_curves`, and the
unscaled variant does not. If both variants meet them, the check is inconclusive. The gap between
variants is measured relative to the noise between seeds, so the check is weak if runs are noisy. It
can also be too strict. For example, suppose that two variants are equal, and that the noise is
independent between epochs. With three seeds and 17 epochs, one in five checks still finds a gap of
more than 2 s.d. If in doubt, repeat the check with a different `seed`.

`sweep` trains with five learning rates, from a quarter to four times the learning rate of the
config. It uses one seed and a tenth of the epochs. If `check` or `sweep` is interrupted, run it
again to train the remaining runs.
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
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the config's rate
SHORTER, LEAST_EPOCHS = 10, 2  # a sweep divides the epochs by 10, but trains at least 2
COLUMNS = {"gap": "gap in s.d.", "ratio": "times the epochs"}  # table headers
RESULT, RATES_RESULT = "scaling.json", "rates.json"
Show = Callable[[str], None]


def check(
    config: Config, folder: Path, output: Path, *, batch: int | None = None, show: Show = print
) -> dict[str, Any]:
    """Train those of the nine runs that are not complete yet, and return what `judged` returns.

    Args:
        config: config of the run. Its `folds` are ignored.
        output: folder for scaling.json and a subfolder for each run.
        batch: batch size of the base variant, or None to use the optimizer's base_batch.

    Raises:
        ConfigError: if there are fewer than TIMES x batch images, or no epochs after the warm-up.
        DataError, CheckpointError, DiskError: see `training.train`.
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
    """Return the outcome of a check as values for JSON, in which infinite numbers are None.

    `scaled` and `unscaled` contain the comparison with the base variant (see `Compared`), and
    `holds`, which is True if the variant meets the conditions. `advice` is a message for the user.
    """
    both = {"scaled": scaled, "unscaled": unscaled}
    return {
        "passed": scaled.holds and not unscaled.holds,
        **{name: _plain(asdict(one)) | {"holds": one.holds} for name, one in both.items()},
        "advice": _advice(config, batch, scaled, unscaled),
    }


def sweep(config: Config, folder: Path, output: Path, show: Show = print) -> pd.DataFrame:
    """Train with each of five learning rates. Runs that are already complete are not repeated.

    Args:
        output: folder for rates.json and a subfolder for each learning rate.

    Returns:
        A table with a row for each learning rate. Its columns are `base_rate`, `rate` (scaled for
        the config's batch), and the last epoch's `loss` and `validation_loss`, which are NaN if the
        run diverged.
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
    losses = tried["validation_loss"].to_numpy()
    return float(tried["base_rate"][np.nanargmin(losses)]) if np.isfinite(losses).any() else None


def rate_lines(tried: pd.DataFrame, batch: int) -> list[str]:
    table = tried.rename(columns={"rate": f"at batch {batch}"})
    text = table.to_string(index=False, na_rep="diverged", float_format="{:.4g}".format)
    rate, rates = rate_to_take(tried), tried["base_rate"].tolist()
    advice = f"Set base_rate={rate} in the config. This rate had the lowest validation loss."
    if rate in (None, rates[0], rates[-1]):
        there = rates[0] / SHORTER if rate is None else rate
        which = "All runs diverged" if rate is None else "The best rate is at the end of the range"
        advice = f"{which}. Set base_rate={there:.3g} and sweep again with a new --output."
    return [*text.splitlines(), advice]


def times(config: Config) -> int:
    factor = config.batch // config.optimizer.base_batch
    return factor if factor > 1 else FACTOR


def variants(config: Config, batch: int, num_images: int) -> dict[str, Config]:
    factor, plain = times(config), _plain_run(config)
    base, scaled = replace(plain, batch=batch), replace(plain, batch=factor * batch)
    given = learning_rate.apply(base, num_images)
    same = ("beta_1", "beta_2", "epsilon", "weight_decay", "ema_momentum")
    kept = replace(
        config.optimizer,
        base_batch=factor * batch,  # disables scaling
        base_rate=given.peak_rate,
        **{name: getattr(given, name) for name in same},
    )
    groups = {name: getattr(given, name) for name in ("batchnorm_momentum", "batchnorm_batch")}
    return {"base": base, "scaled": scaled, "unscaled": replace(scaled, optimizer=kept, **groups)}


def lines(outcome: dict[str, Any]) -> list[str]:
    limits = {"gap": MOST_GAP, "ratio": MOST_RATIO, "spread": MOST_SPREAD, "epoch": "", "holds": ""}
    table = {"limit": limits, "scaled": outcome["scaled"], "unscaled": outcome["unscaled"]}
    text = pd.DataFrame(table).T.fillna("never").rename(columns=COLUMNS)
    return [*text.to_string(float_format="{:.2f}".format).splitlines(), outcome["advice"]]


def _plain_run(config: Config) -> Config:
    if config.fit:
        raise ConfigError(
            f"fit={config.fit!r} does not use a learning rate.\nRemove fit from the config."
        )
    return replace(
        config, folds=None, patience=None, keep="last", session_hours=None, micro_batch=None,
        progress_seconds=3600, checkpoint_seconds=3600,
    )  # fmt: skip


def _refuse(config: Config, batch: int, rows: int) -> None:
    # Refuse before the first run if one of the nine runs would fail.
    factor = times(config)
    most = rows // factor // jax.device_count() * jax.device_count()
    if batch > most or batch % jax.device_count():
        raise ConfigError(
            f"Cannot check batch {batch} with {rows} {config.data.noun} and {jax.device_count()}"
            f" replicas. An epoch requires {factor} x {batch} {config.data.noun}, and each batch is"
            " divided equally among the replicas.\n"
            f"Use --batch {min(batch, most) // jax.device_count() * jax.device_count()} or less."
        )
    if config.warmup_epochs > config.epochs - 1:
        raise ConfigError(
            f"warmup_epochs={config.warmup_epochs:g} with epochs={config.epochs} leaves no epochs"
            " after the warm-up to compare.\nIncrease epochs or decrease warmup_epochs in the"
            " config."
        )


def _trained(
    config: Config, folder: Path, output: Path, examples: dataset.Examples, show: Show
) -> pd.DataFrame:
    """Train with a config, and return the `loss` and `validation_loss` of each epoch.

    If the run diverges, the losses of the remaining epochs are NaN. The losses are saved in
    losses.json, and the run's checkpoints and artifact are deleted.
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
                f"{path} is corrupt, or belongs to a check with a different config or"
                " different data.\nUse a different --output, or remove the folder of that run."
            )
        return losses
    # Share compiled programs between all runs. `training` uses an existing cache setting.
    backend.keep_compiled(output.parent)
    os.environ.setdefault(backend.CACHE, str(output.parent / backend.COMPILED))
    try:
        run = training.train(config, folder, output, examples=examples, show=lambda line: None)
        if run.status != "complete":
            raise KeyboardInterrupt  # stopped by SIGTERM, so the last epochs are missing
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
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _advice(config: Config, batch: int, scaled: Compared, unscaled: Compared) -> str:
    large = times(config) * batch
    rule = config.optimizer.scaling or learning_rate.RULES.get(config.optimizer.name, "none")
    rule = {"sqrt": "square-root"}.get(rule, rule)
    carries = f"for scaling the learning rate from batch {batch} to {large} on this data"
    if scaled.holds and not unscaled.holds:
        return f"Passed: the {rule} rule works {carries}."
    if scaled.holds:
        return (
            "Not passed: the unscaled variant also meets the conditions, so the check is"
            f" inconclusive about the {rule} rule. Use fewer epochs, or a smaller --batch."
        )
    if scaled.gap < 0 and scaled.ratio <= MOST_RATIO and scaled.spread <= MOST_SPREAD:
        return (
            f"Not passed: the scaled variant is {-scaled.gap:.1f} s.d. better than the base"
            f" variant, so batch {large} has no disadvantage. Try a different `seed` in the config"
            " to see if this is noise."
        )
    return (
        f"Not passed: the {rule} rule does not work {carries}. To find a learning rate for batch"
        f" {config.batch}, use --sweep. To check half this batch, use --batch {max(batch // 2, 1)}."
    )

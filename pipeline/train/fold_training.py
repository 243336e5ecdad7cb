"""Fold training: one loop from its first step to its held-out outputs, or as far as the session
goes.
"""

import gc
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.evaluate import competition_metric, held_out_outputs, losses
from pipeline.evaluate.epoch_score import EpochScore
from pipeline.models import architectures
from pipeline.runtime import devices, processes
from pipeline.runtime import provenance as provenance_module
from pipeline.train import out_of_memory, warm_start
from pipeline.train.learning_rate import Applied
from pipeline.train.loop import Loop
from pipeline.train.progress_log import Fold
from pipeline.train.time_limit import Session


@dataclass(frozen=True)
class Fitted:
    """The outcome of a loop that is complete.

    Attributes:
        run_id: of the checkpoints.
        steps: taken.
        metrics: of the epoch that the weights are of.
        weights: to infer with, by name.
        outputs: for the held-out rows, float32 (n, outputs).
        batch: images that one device takes at once.
        pretrained: where the weights at the start came from; None: they were random.
        init_from: the run that they came from, as `pipeline.train.warm_start.begin` returns it.
    """

    run_id: str
    steps: int
    metrics: dict[str, float]
    weights: dict[str, np.ndarray]
    outputs: np.ndarray
    batch: int
    pretrained: dict[str, str | None] | None = None
    init_from: dict[str, Any] | None = None


def fit(
    config: Config,
    applied: Applied,
    examples: dataset.Examples,
    pair: folds.Pair,
    place: Path,
    seconds: dict[str, float],
    show: Callable[[str], None],
    *,
    fold: Fold | None,
    first: warm_start.FirstStage | None,
    run_id: str | None,
    memory: Path,
    max_steps: int | None,
    fresh: bool,
) -> Fitted | None:
    """Train one loop to its end, or resume it; return None if it stopped early, or if the session
    ends before the next fold.

    Args:
        pair: (training rows, held-out rows).
        place: gets checkpoints/, progress.jsonl and history.csv.
        seconds: gets the seconds of each phase added.
        fold: None without folds.
        first: whose weights it begins with, unless there are checkpoints; None: the model's own.
        run_id: of the run that this is a fold of; None: the loop chooses one.
        memory: keeps what fits into the devices, for the next fold and session.
        max_steps: of this loop.
        fresh: set its earlier checkpoints aside.
    """
    gc.collect()  # frees what the fold before this one has on the devices
    rows, held = pair
    batches = dataset.Batches.of(examples, config, rows, losses.row_weights(examples, config, rows))
    architectures.seed(config.seed)
    spent: dict[str, float] = {}
    score = None
    if config.compares_epochs:
        metric = competition_metric.of(config)
        score = EpochScore(metric, examples.target, examples.labels[held], show)
    begin = None
    if first is not None and (fresh or not any((place / "checkpoints").glob("step-*"))):
        number = fold.number if fold else None
        begin = partial(warm_start.begin, first=first, config=config, fold=number, show=show)
    origin = {
        "config": config.to_json(),
        "data": folds.fingerprint(examples, pair),
        "batches": dataset.BATCHES_VERSION,
        "precision": keras.config.dtype_policy().name,
        "devices": str(devices.found()),
        "code": provenance_module.code(),
    }
    alike = {name: origin[name] for name in ("data", "batches", "precision", "code")}
    edit = "Give each the same --input, and the same version of this project."
    processes.refuse_differences("what they train on", alike, edit)
    run = Loop(config, applied, batches, held, place, show, spent, fold, score, begin)
    run.run_id, run.memory = run_id or run.run_id, memory
    with Session(config.session_hours, config.stall_seconds, place) as session:
        status = run.go(origin, session, max_steps=max_steps, fresh=fresh)
        # A fold that was complete before ends no session, however short: each session makes
        # progress.
        reserve = 0.0 if "compile" in spent else -math.inf
        begun, outputs = time.monotonic(), None
        best = run.best if config.keep == "best" else {}
        if status == "complete" and run.ended:
            show(
                f"Ended after epoch {run.best['epoch'] + run.best['epochs_since']}: none of"
                f" patience={config.patience} epochs was better than epoch {run.best['epoch']}"
            )
        if status == "complete":
            weights = run.final_weights()
            with out_of_memory.later_calls(run.compiled):
                outputs = held_out_outputs.compute(
                    run.forward(),
                    examples.inputs,
                    held,
                    mesh=run.compiled.mesh,
                    batch=run.compiled.micro_batch * run.compiled.replicas,
                    folder=place,
                    run=f"{origin['precision']} {_digest(weights)}",
                    session=session,
                )
            spent["final evaluation"] = time.monotonic() - begun
        stop = session.over(reserve) if fold and fold.number < fold.count else None
    for name, value in spent.items():
        seconds[name] = seconds.get(name, 0.0) + value
    if status == "complete" and outputs is None:
        show("Stopped in the final evaluation. The same command again resumes it.")
    elif status == "complete" and stop:
        show(f"Stopped after a fold: {stop}. The same command again resumes with the next.")
    if outputs is None or stop:
        return None
    return Fitted(
        run.run_id,
        run.step,
        best.get("metrics", run.metrics),
        weights,
        outputs,
        run.compiled.micro_batch,
        run.pretrained,
        run.init_from,
    )


def _digest(weights: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in weights.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()

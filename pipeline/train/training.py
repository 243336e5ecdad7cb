"""Training: data + model + learning rate → an artifact, on every device there is.

Keras 3 on JAX. `DataParallel` is set before the model exists; the steps themselves are in
`pipeline.train.loop`. Each fold is a loop of its own, in its own folder, one after the other. A
complete fold is not trained again: its weights come from its checkpoint.
"""

import gc
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from formats.errors import writing
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config, custom_code
from pipeline.data import dataset, folds
from pipeline.errors import CheckpointError, ConfigError, DivergedError
from pipeline.evaluate import (
    competition_metric,
    held_out_outputs,
    held_out_results,
    losses,
)
from pipeline.evaluate.held_out_outputs import EpochScore
from pipeline.evaluate.held_out_results import HeldOutRows
from pipeline.evaluate.metrics import Metric
from pipeline.infer import submission
from pipeline.models import architectures, backbones
from pipeline.runtime import compile_cache, devices, processes
from pipeline.runtime import provenance as provenance_module
from pipeline.runtime.devices import Devices
from pipeline.runtime.provenance import Provenance
from pipeline.train import (
    checkpoint,
    custom_check,
    learning_rate,
    out_of_memory,
    warm_start,
)
from pipeline.train.accumulation import Accumulation
from pipeline.train.learning_rate import Applied
from pipeline.train.loop import HeldOut, Loop
from pipeline.train.progress_log import HISTORY, LINES, Fold
from pipeline.train.run_origin import START_OVER
from pipeline.train.session import Session
from pipeline.train.warm_start import FirstStage

Show = Callable[[str], None]

GOLDEN_ROWS = 8
DECODED = "decoded"
# What a run writes beside its checkpoints, and must not stay beside those of another run.
OUTPUTS = (
    HISTORY, LINES, "artifact", "validation.csv", "validation.npz", "examples.npz", "held-out.npz"
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """The outcome of `train`.

    Attributes:
        output: the run's folder.
        status: "complete", or "partial" if the run stopped early.
        applied: the optimizer's numbers, of the first fold.
        manifest: of the artifact; None if the run is partial.
        seconds: of this call, by phase.
    """

    output: Path
    status: str
    applied: Applied
    manifest: dict[str, Any] | None
    seconds: dict[str, float]


@dataclass(frozen=True)
class Task:
    """What is to be trained, once everything has been read and checked.

    Attributes:
        config, output: as `train` takes them.
        here: the devices. precision: the policy of Keras.
        examples: all labelled ones.
        pairs: (training rows, held-out rows) of each fold; one without folds.
        held_out: what says of each pair whether two runs hold out the same rows.
        applied: the optimizer's numbers, for each pair.
        places: the folder of each pair's checkpoints.
        metric: the competition's.
        first: the run whose weights this one begins with; None: it begins with the model's own.
        show: takes each line of text.
        seconds: of this call, by phase.
    """

    config: Config
    output: Path
    here: Devices
    precision: str
    examples: dataset.Examples
    pairs: Sequence[folds.Pair]
    held_out: list[str]
    applied: list[Applied]
    places: list[Path]
    metric: Metric
    first: FirstStage | None
    show: Show
    seconds: dict[str, float]


@dataclass(frozen=True)
class Fitted:
    """The outcome of a loop that is complete.

    Attributes:
        run_id: of the checkpoints.
        steps: taken.
        metrics: of the epoch that the weights are of.
        weights: to infer with, by name.
        outputs: for the held-out rows, float32 (n, outputs).
        micro_batch: images that one device takes at once.
        accumulation: what fitted into the devices.
        pretrained: where the weights at the start came from; None: they were random.
        init_from: the run that they came from, as `pipeline.train.warm_start.begin` returns it.
    """

    run_id: str
    steps: int
    metrics: dict[str, float]
    weights: dict[str, np.ndarray]
    outputs: np.ndarray
    micro_batch: int
    accumulation: Accumulation
    pretrained: dict[str, str | None] | None
    init_from: dict[str, Any] | None


def read(
    config: Config,
    folder: Path,
    cache: Path | None = None,
    show: Show | None = None,
    prepared: Sequence[Path] = (),
) -> dataset.Examples:
    """Return the labelled examples.

    Args:
        config, folder, cache, show, prepared: as `pipeline.data.dataset.read_training` takes them.
    """
    backbones.published(config)  # fails now if it cannot be fetched, and not after hours
    return dataset.read_training(folder, config, cache=cache, prepared=prepared, show=show)


def train(
    config: Config,
    folder: Path,
    output: Path,
    *,
    examples: dataset.Examples | None = None,
    provenance: Provenance | None = None,
    max_steps: int | None = None,
    fresh: bool = False,
    check: Callable[[Config, Show], None] = custom_check.by_jax,
    show: Show = print,
) -> Trained:
    """Train, or resume from a checkpoint in `output`, and write the artifact.

    Args:
        config: the run.
        folder: the competition, as Kaggle mounts it.
        output: gets artifact/, validation.csv, validation.npz and examples.npz, and checkpoints/,
            progress.jsonl and history.csv, which with `config.folds` lie in fold-1/, fold-2/, ….
        examples: of that folder, as `read` returns them; None: read them, and keep large images
            decoded in `output`/decoded.
        provenance: where the code comes from; None: ask git.
        max_steps: stop after this step of the run, all folds counted, with status "partial". A call
            with a larger one, or with None, resumes from there.
        fresh: set earlier checkpoints aside, with their history and artifact, and start over.
        check: tries the config's own functions, before anything is read.
        show: takes each line of text.

    Raises:
        ConfigError: if `config.batch` does not split over the devices, or Keras does not run on
            JAX.
        DivergedError: if a loss, a weight or an output is not finite.
        DataError, CheckpointError, DiskError: as they say.
    """
    started = time.monotonic()
    if keras.backend.backend() != "jax":
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()} here; training expects JAX.\n"
            "Set the environment variable KERAS_BACKEND to jax before Keras is imported."
        )
    compile_cache.keep(output)
    task = _prepare(config, folder, output, examples, check, show, fresh=fresh)
    fitted = _fit_folds(task, max_steps)
    if fitted is None:
        return Trained(output, "partial", task.applied[0], None, task.seconds)
    manifest = _write_artifact(
        task, fitted, folder, provenance or provenance_module.from_checkout(), started
    )
    return Trained(output, "complete", task.applied[0], manifest, task.seconds)


# Before anything is spent


def _prepare(
    config: Config,
    folder: Path,
    output: Path,
    examples: dataset.Examples | None,
    check: Callable[[Config, Show], None],
    show: Show,
    *,
    fresh: bool,
) -> Task:
    """Read the examples, and refuse now what would fail after hours."""
    started = time.monotonic()
    here = devices.found()
    _require_even_split(config, here.count)
    places = [output / f"fold-{number + 1}" for number in range(config.folds or 0)] or [output]
    for path in (output, *(place / "checkpoints" for place in places)):
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
    metric = competition_metric.of(config)
    first = warm_start.find(config, output, fresh=fresh)
    if custom_code.functions(config):
        check(config, show)
    if examples is None:
        examples = read(config, folder, output / DECODED, show)
    _check_submission(config, folder, examples, metric)
    pairs = folds.splits(examples, config, show)
    if config.target == "regression" and config.limit_predictions:
        # With folds these are all rows: predictions of all folds are averaged, so they have one
        # range.
        seen = np.unique(np.concatenate([rows for rows, _ in pairs]))
        examples = replace(examples, target=examples.target.limited(examples.labels[seen]))
    held_out = [folds.held_out(examples, pair) for pair in pairs]
    if first is not None:
        meaning = examples.target, examples.encoding
        first = warm_start.compare(first, config, held_out, meaning, show)
    for _, rows in pairs:
        custom_check.check_metric_of(config, examples.target.truth(examples.labels[rows]))
    task = Task(
        config=config,
        output=output,
        here=here,
        precision=devices.precision(config.precision, here, table=config.data.numbers),
        examples=examples,
        pairs=pairs,
        held_out=held_out,
        applied=[learning_rate.apply(config, len(rows)) for rows, _ in pairs],
        places=places,
        metric=metric,
        first=first,
        show=show,
        seconds={"read": time.monotonic() - started},
    )
    _show_plan(task)
    if fresh:
        for place in (output, *sorted(output.glob("fold-*"))):
            checkpoint.set_aside(place / "checkpoints", [place / name for name in OUTPUTS])
    _refuse_other_folds(task)
    return task


def _require_even_split(config: Config, count: int) -> None:
    if config.batch % count:
        below = config.batch // count * count
        raise ConfigError(
            f"batch={config.batch} does not split evenly over {count} replicas"
            f" ({config.batch / count:.2f} {config.data.noun} each).\n"
            f"Set batch to {below or count} or {below + count}"
            f" in pipeline/configs/{config.name}.py."
        )


def _check_submission(
    config: Config, folder: Path, examples: dataset.Examples, metric: Metric
) -> None:
    """Refuse labels and functions whose predictions the sample submission could not take."""
    sample = folder / config.data.sample_submission
    if sample.is_file():
        submission.form_of(config, examples.target, metric, folder).check_labels()
        custom_check.check_submission_of(config, sample)


def _show_plan(task: Task) -> None:
    config, examples, applied, show = task.config, task.examples, task.applied[0], task.show
    show(f"Devices: {task.here}; precision {task.precision}")
    what = config.data.noun
    kinds = {"regression": "numbers to predict", "multilabel": "labels, any of them"}
    rows, held_out = task.pairs[0]
    split = f"{len(rows)} {what} to train, {len(held_out)} to validate"
    if config.folds:
        split = f"{len(examples)} {what} in {config.folds} folds"
    labels = f"{len(examples.classes)} {kinds.get(config.target, 'classes')}"
    if config.target == "own":
        labels = f"labels {' '.join(map(str, config.data.own_labels))}"
    show(f"Data: {split}, {labels}")
    if examples.broken:
        some = list(examples.broken.items())[:5]
        listed = "; ".join(f"{name!r}: {reason}" for name, reason in some)
        show(f"Warning: {len(examples.broken)} images cannot be decoded and are left out: {listed}")
    show(
        f"Learning rate: {applied.optimizer} {config.optimizer.base_rate:g}"
        f" at batch {applied.base_batch} -> {applied.peak_rate:g} at batch {applied.batch};"
        f" {applied.warmup_steps} of {applied.total_steps} steps warm-up"
    )
    for warning in applied.warnings:
        show(f"Warning: {warning}")


def _refuse_other_folds(task: Task) -> None:
    """Refuse checkpoints in the output that this run would not read."""
    others = [task.output, *sorted(task.output.glob("fold-*"))]
    unread = [place / "checkpoints" for place in others if place not in task.places]
    unread = [path for path in unread if any(path.glob("step-*"))]
    if unread:
        raise CheckpointError(
            f"{unread[0]} holds a run with other folds, perhaps of another config;"
            f" expected one with folds={task.config.folds}.\n"
            f"Undo the change to resume, choose another --output, or {START_OVER}"
        )


# Folds


def _fit_folds(task: Task, max_steps: int | None) -> list[Fitted] | None:
    """Train or resume each fold, one after the other; None if the run stops early."""
    fitted: list[Fitted] = []
    with _keras_set_up(task):
        for number, applied in enumerate(task.applied, start=1):
            fold = None
            if task.config.folds:
                after = sum(later.total_steps for later in task.applied[number:])
                fold = Fold(number, task.config.folds, after)
                rows, held_out = task.pairs[number - 1]
                task.show(
                    f"Fold {number} of {fold.count}: {len(rows)} {task.config.data.noun} to train,"
                    f" {len(held_out)} to validate"
                )
            steps = None
            if max_steps is not None:
                steps = max_steps - sum(before.steps for before in fitted)
                if steps < 1:
                    task.show(
                        "Stopped: max_steps is reached. The same command without --max-steps,"
                        " or a larger one, resumes."
                    )
                    return None
            gc.collect()  # frees what the fold before this one has on the devices
            done = _fit(task, number - 1, applied, fold, fitted[-1] if fitted else None, steps)
            if done is None:
                return None
            fitted.append(done)
    return fitted


@contextmanager
def _keras_set_up(task: Task) -> Iterator[None]:
    """Let Keras use all devices, in the precision of the task."""
    before = keras.config.dtype_policy()
    # The libraries hold a million objects; a collection takes a quarter of a second.
    gc.freeze()
    try:
        several = task.here.count > 1
        keras.distribution.set_distribution(keras.distribution.DataParallel() if several else None)
        keras.config.set_dtype_policy(task.precision)
        yield
    finally:
        gc.unfreeze()
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)


def _fit(
    task: Task,
    place_number: int,
    applied: Applied,
    fold: Fold | None,
    before: Fitted | None,
    max_steps: int | None,
) -> Fitted | None:
    """Train one loop to its end, or resume it; return None if it stopped early, or if the session
    ends before the next fold.

    Args:
        place_number: of the pair and the folder in the task, from 0.
        fold: None without folds.
        before: the fold before this one.
        max_steps: of this loop.
    """
    config, show = task.config, task.show
    place, pair = task.places[place_number], task.pairs[place_number]
    loop, pretrained = _loop(task, applied, pair, place, fold)
    if before is not None:
        loop.run_id = before.run_id
    origin = {
        "config": config.to_json(),
        "data": folds.fingerprint(task.examples, pair),
        "batches": dataset.BATCHES_VERSION,
        "precision": task.precision,
        "devices": str(task.here),
        "code": provenance_module.code(),
        "custom_code": custom_code.digest(config),
    }
    alike = {name: origin[name] for name in ("data", "batches", "precision", "code")}
    edit = "Give each the same --input, and the same version of this project."
    processes.refuse_differences("what they train on", alike, edit)
    outputs, weights, stop = None, dict[str, np.ndarray](), None
    with Session(config.session_hours, place) as session:
        status = loop.run(
            origin, session, max_steps=max_steps, fitted=before.accumulation if before else None
        )
        if status == "complete":
            begun, weights = time.monotonic(), loop.final_weights()
            with out_of_memory.later_calls(loop.compiled):
                outputs = held_out_outputs.compute(
                    loop.forward(),
                    task.examples.inputs,
                    pair[1],
                    mesh=loop.compiled.mesh,
                    batch=loop.compiled.micro_batch * loop.compiled.replicas,
                    folder=place,
                    run=f"{task.precision} {_digest(weights)}",
                    session=session,
                )
            loop.seconds["final evaluation"] = time.monotonic() - begun
        if fold and fold.number < fold.count:
            # A fold that was complete before ends no session, however short: each session makes
            # progress.
            stop = session.over(0.0 if "compile" in loop.seconds else -math.inf)
    for name, value in loop.seconds.items():
        task.seconds[name] = task.seconds.get(name, 0.0) + value
    _show_end(loop, status, outputs is not None, stop, show)
    if outputs is None or stop:
        return None
    best = loop.best if config.keep == "best" else {}
    return Fitted(
        run_id=loop.run_id,
        steps=loop.step,
        metrics=best.get("metrics", loop.metrics),
        weights=weights,
        outputs=outputs,
        micro_batch=loop.compiled.micro_batch,
        accumulation=loop.compiled.accumulation,
        pretrained=pretrained,
        init_from=loop.init_from,
    )


def _loop(
    task: Task, applied: Applied, pair: folds.Pair, place: Path, fold: Fold | None
) -> tuple[Loop, dict[str, str | None] | None]:
    """Return the loop of a fold with the weights that it begins with, and where published ones
    came from.
    """
    config, examples, show = task.config, task.examples, task.show
    rows, held_out = pair
    architectures.seed(config.seed)
    model = architectures.build(config, applied.batchnorm_momentum)
    pretrained = backbones.load_published(model, config)
    init_from = None
    if task.first is not None and not any((place / "checkpoints").glob("step-*")):
        number = fold.number if fold else None
        init_from = warm_start.begin(model, task.first, config, number, show)
    weights = losses.row_weights(examples, config, rows)
    batches = dataset.Batches.of(examples, config, rows, weights)
    score = None
    if config.compares_epochs:
        score = EpochScore(task.metric, examples.target, examples.labels[held_out], show)
    loop = Loop(config, applied, model, batches, HeldOut(held_out, score), place, show, fold)
    loop.init_from = init_from
    return loop, pretrained


def _show_end(loop: Loop, status: str, evaluated: bool, stop: str | None, show: Show) -> None:
    if status != "complete":
        return
    if loop.out_of_patience:
        show(
            f"Ended after epoch {loop.best['epoch'] + loop.best['epochs_since']}: none of"
            f" patience={loop.config.patience} epochs was better than epoch {loop.best['epoch']}"
        )
    if not evaluated:
        show("Stopped in the final evaluation. The same command again resumes it.")
    elif stop:
        show(f"Stopped after a fold: {stop}. The same command again resumes with the next.")


def _digest(weights: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in weights.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# The artifact


def _write_artifact(
    task: Task, fitted: Sequence[Fitted], folder: Path, origin: Provenance, started: float
) -> dict[str, Any]:
    """Evaluate the trained model, write the artifact and what stands beside it, and return the
    manifest.
    """
    begun, config, examples = time.monotonic(), task.config, task.examples
    rebuilt = architectures.build(config, task.applied[0].batchnorm_momentum)
    held_out = np.sort(np.concatenate([rows for _, rows in task.pairs]))
    golden = _golden_rows(held_out)
    predictions, golden_outputs, weights = _predict(task, fitted, rebuilt, golden)
    measured, compared, few = _evaluate(task, fitted, folder, predictions)
    seconds = task.seconds
    seconds["final evaluation"] = seconds.get("final evaluation", 0.0) + time.monotonic() - begun
    seconds["total"] = time.monotonic() - started
    details = {
        "run_id": fitted[0].run_id,
        "status": "complete",
        "versions": provenance_module.versions(),
        "git_commit": origin.git_commit,
        "git_dirty": origin.git_dirty,
        "bundle_sha256": origin.bundle_sha256,
        "devices": str(task.here),
        "precision": task.precision,
        "parameters": architectures.count(rebuilt),
        "pretrained": fitted[0].pretrained,
        "init_from": fitted[0].init_from,
        "held_out": task.held_out,
        "applied": task.applied[0].to_json(),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "metric": task.metric.name,
        "few_rows": few,
        **measured,
    }
    trained = Artifact(
        details,
        config,
        examples.target,
        examples.encoding,
        prior=predictions[held_out].mean(axis=0),
        weights=artifact.joined(weights) if config.folds else weights[0],
        golden_inputs=examples.inputs[golden],
        golden_outputs=golden_outputs,
        golden_file=examples.first_file,
    )
    manifest = artifact.save(task.output / "artifact", trained)
    score = manifest["metrics"].get(f"validation_{task.metric.name}")
    value = "has no value" if score is None else f"{score:.4f}"
    task.show(
        f"Artifact {fitted[0].run_id}: validation {task.metric.name} {value},"
        f" in {task.output / 'artifact'}"
    )
    for line in compared:
        task.show(line)
    return manifest


def _golden_rows(held_out: np.ndarray) -> np.ndarray:
    """Return the rows whose outputs inference computes again."""
    # From all over the table: where it is sorted by label, its first rows are of one class.
    places = np.linspace(0, len(held_out) - 1, GOLDEN_ROWS).astype(int)
    golden: np.ndarray = held_out[np.unique(places)]
    golden[0] = 0  # whose file is known
    return golden


def _predict(
    task: Task, fitted: Sequence[Fitted], rebuilt: Any, golden: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[dict[str, np.ndarray]]]:
    """Return out-of-fold predictions for all examples (0 where a row is in no held-out set), those
    for the golden rows as the mean over folds, and the weights of each fold.

    Raises:
        DivergedError: if one is not finite.
    """
    target, inputs = task.examples.target, task.examples.inputs
    shape = target.predictions(fitted[0].outputs).shape[1:]
    predictions = np.zeros((len(task.examples), *shape), np.float32)
    weights, golden_outputs = [], []
    for (_, rows), fold in zip(task.pairs, fitted, strict=True):
        artifact.assign(rebuilt, fold.weights)
        weights.append(artifact.weights_of(rebuilt))
        predictions[rows] = target.predictions(fold.outputs)
        # By default a TPU multiplies float32 in bfloat16; another machine has to reproduce these.
        # One device computes them, so its batch is at most that of one replica in training.
        size = min(fold.micro_batch, GOLDEN_ROWS)
        with jax.default_matmul_precision("highest"):
            outputs = architectures.outputs(rebuilt, inputs[golden], batch=size)
        golden_outputs.append(target.predictions(outputs))
    if not np.isfinite(predictions).all() or not np.isfinite(golden_outputs).all():
        raise DivergedError(
            "The trained model's outputs are not finite"
            f" (optimizer.base_rate={task.config.optimizer.base_rate:g})"
        )
    return predictions, target.mean(golden_outputs), weights


def _evaluate(
    task: Task, fitted: Sequence[Fitted], folder: Path, predictions: np.ndarray
) -> tuple[dict[str, Any], list[str], dict[str, Any] | None]:
    """Write what the held-out rows show. Return what the manifest says of them, lines for people,
    and the few rows that carry most of the error.
    """
    held_out = HeldOutRows(task.config, task.examples, task.pairs, predictions)
    held_out_results.write(held_out, task.output)
    steps_and_metrics = [(fold.steps, fold.metrics) for fold in fitted]
    measured = held_out_results.metrics_of(held_out, steps_and_metrics, task.show)
    lines: list[str] = []
    few = held_out_results.few_rows(held_out, folder)
    floor = held_out_results.compare(held_out, lines.append, few_rows=few is not None)
    if few is not None:
        lines.append(f"Warning: {few['text']}")
    return {**measured, "floor": floor}, lines, few

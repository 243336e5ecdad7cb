"""Training: data + model + learning rate → an artifact, on every device there is.

Keras 3 on JAX. `DataParallel` is set before the model exists; the steps themselves are in
`pipeline.train.loop`. Each fold is a loop of its own, in its own folder, one after the other. A
complete fold is not trained again: its weights come from its checkpoint.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from formats.errors import writing
from pipeline import artifact
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.errors import CheckpointError, ConfigError, DivergedError
from pipeline.evaluate import competition_metric, few_rows, floor_comparison, held_out_results
from pipeline.evaluate.hard_examples import keep_examples, worst
from pipeline.infer import prediction_format
from pipeline.infer.prediction_format import Form
from pipeline.models import architectures
from pipeline.models.backbones import published
from pipeline.runtime import compile_cache, devices
from pipeline.runtime import provenance as provenance_module
from pipeline.runtime.provenance import Provenance
from pipeline.train import (
    checkpoint,
    fold_training,
    learning_rate,
    out_of_memory,
    own_code_check,
    warm_start,
)
from pipeline.train.learning_rate import Applied
from pipeline.train.loop import OUTPUTS
from pipeline.train.progress_log import Fold
from pipeline.train.run_origin import START_OVER

GOLDEN_ROWS = 8
DECODED = "decoded"


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


def read(
    config: Config,
    folder: Path,
    cache: Path | None = None,
    show: Callable[[str], None] | None = None,
    prepared: Sequence[Path] = (),
) -> dataset.Examples:
    """Return the labelled examples.

    Args:
        config, folder, cache, show, prepared: as `pipeline.data.dataset.read_training` takes them.
    """
    published(config)  # fails now if it cannot be fetched, and not after an hour of decoding
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
    check: Callable[[Config, Callable[[str], None]], None] = own_code_check.by_jax,
    show: Callable[[str], None] = print,
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
    here = devices.found()
    if config.batch % here.count:
        below = config.batch // here.count * here.count
        raise ConfigError(
            f"batch={config.batch} does not split evenly over {here.count} replicas"
            f" ({config.batch / here.count:.2f} {config.data.noun} each).\n"
            f"Set batch to {below or here.count} or {below + here.count}"
            f" in pipeline/configs/{config.name}.py."
        )
    places = [output / f"fold-{number + 1}" for number in range(config.folds or 0)] or [output]
    for path in (output, *(place / "checkpoints" for place in places)):
        with writing(path):  # fails now if it cannot be made, and not after hours
            path.mkdir(parents=True, exist_ok=True)
    metric = competition_metric.of(config)
    first = warm_start.find(config, output, fresh=fresh)
    if config.code:
        check(config, show)
    if examples is None:
        examples = read(config, folder, output / DECODED, show)
    sample = folder / config.data.sample_submission
    if sample.is_file():
        # Refuses now what would be refused after hours.
        positive = config.data.positive_label
        writer = prediction_format.writer_of(config)
        Form(examples.target, metric, sample, positive, writer).check_labels()
        own_code_check.check_submission_of(config, sample)
    pairs = folds.splits(examples, config, show)
    if config.target == "regression" and config.limit_predictions:
        # With folds these are all rows: predictions of all folds are averaged, so they have one
        # range.
        seen = np.unique(np.concatenate([rows for rows, _ in pairs]))
        examples = replace(examples, target=examples.target.limited(examples.labels[seen]))
    held_out = [folds.held_out(examples, pair) for pair in pairs]
    if first is not None:
        meant = examples.target, examples.encoding
        first = warm_start.compare(first, config, held_out, meant, show)
    for _, rows in pairs:
        own_code_check.check_metric_of(config, examples.target.truth(examples.labels[rows]))
    seconds = {"read": time.monotonic() - started}
    applied = [learning_rate.apply(config, len(rows)) for rows, _ in pairs]
    policy = devices.precision(config.precision, here, table=config.data.numbers)
    show(f"Devices: {here}; precision {policy}")
    _show_plan(config, examples, pairs, applied[0], show)
    _clear(output, places, config, fresh=fresh)
    before = keras.config.dtype_policy()
    fitted: list[fold_training.Fitted] = []
    if fresh:
        (output / out_of_memory.FILE).unlink(missing_ok=True)
    # The libraries hold a million objects; a collection takes a quarter of a second.
    gc.freeze()
    try:
        keras.distribution.set_distribution(
            keras.distribution.DataParallel() if here.count > 1 else None
        )
        keras.config.set_dtype_policy(policy)
        for number, (place, pair, numbers) in enumerate(
            zip(places, pairs, applied, strict=True), start=1
        ):
            fold, steps = None, max_steps
            if config.folds:
                after = sum(later.total_steps for later in applied[number:])
                fold = Fold(number, config.folds, after)
                rows, held = pair
                show(
                    f"Fold {number} of {fold.count}: {len(rows)} {config.data.noun} to train,"
                    f" {len(held)} to validate"
                )
            if max_steps is not None:
                steps = max_steps - sum(one.steps for one in fitted)
                if steps < 1:
                    show(
                        "Stopped: max_steps is reached. The same command without --max-steps,"
                        " or a larger one, resumes."
                    )
                    return Trained(output, "partial", applied[0], None, seconds)
            one = fold_training.fit(
                config,
                numbers,
                examples,
                pair,
                place,
                seconds,
                show,
                fold=fold,
                first=first,
                run_id=fitted[0].run_id if fitted else None,
                memory=output / out_of_memory.FILE,
                max_steps=steps,
                fresh=fresh and not fitted,
            )
            if one is None:
                return Trained(output, "partial", applied[0], None, seconds)
            fitted.append(one)
    finally:
        gc.unfreeze()
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)

    begun = time.monotonic()
    rebuilt = architectures.build(config, applied[0].batchnorm_momentum)
    held = np.sort(np.concatenate([rows for _, rows in pairs]))
    # From all over the table: where it is sorted by label, its first rows are of one class.
    golden = held[np.unique(np.linspace(0, len(held) - 1, GOLDEN_ROWS).astype(int))]
    golden[0] = 0  # whose file is known
    target = examples.target
    found = np.zeros((len(examples), *target.predictions(fitted[0].outputs).shape[1:]), np.float32)
    weights, outputs = [], []
    for (_, rows), one in zip(pairs, fitted, strict=True):
        artifact.assign(rebuilt, one.weights)
        weights.append(artifact.weights_of(rebuilt))
        found[rows] = target.predictions(one.outputs)
        # By default a TPU multiplies float32 in bfloat16; another machine has to reproduce these.
        # One device computes them, so its batch is at most that of one replica in training.
        size = min(one.batch, GOLDEN_ROWS)
        with jax.default_matmul_precision("highest"):
            of_golden = architectures.outputs(rebuilt, examples.inputs[golden], batch=size)
        outputs.append(target.predictions(of_golden))
    if not np.isfinite(found).all() or not np.isfinite(outputs).all():
        raise DivergedError(
            "The trained model's outputs are not finite"
            f" (optimizer.base_rate={config.optimizer.base_rate:g})"
        )
    held_out_results.write(output, examples, pairs, held, found)
    losses = held_out_results.losses(config, target, examples.labels[held], found[held])
    hardest = worst(losses)
    pictures = examples.inputs[held[hardest]] if config.data.images else None
    keep_examples(output, hardest, losses[hardest], pictures)
    measured = held_out_results.metrics_of(
        examples, pairs, [(one.steps, one.metrics) for one in fitted], found, metric, show
    )
    compared: list[str] = []
    few = few_rows.find(config, examples, folder, held, found, metric)
    floor = floor_comparison.compare(
        config, examples, held, found, compared.append, few_rows=few is not None
    )
    seconds["final evaluation"] = seconds.get("final evaluation", 0.0) + time.monotonic() - begun
    seconds["total"] = time.monotonic() - started
    origins = provenance or provenance_module.from_checkout()
    manifest = artifact.save(
        output / "artifact",
        model=rebuilt,
        folds=weights if config.folds else (),
        config=config,
        target=target,
        encoding=examples.encoding,
        prior=found[held].mean(axis=0),
        golden_inputs=examples.inputs[golden],
        golden_outputs=target.mean(outputs),
        golden_file=examples.first_file,
        details={
            "run_id": fitted[0].run_id,
            "status": "complete",
            "versions": provenance_module.versions(),
            "git_commit": origins.git_commit,
            "git_dirty": origins.git_dirty,
            "bundle_sha256": origins.bundle_sha256,
            "devices": str(here),
            "precision": policy,
            "parameters": architectures.count(rebuilt),
            "pretrained": fitted[0].pretrained,
            "init_from": fitted[0].init_from,
            "held_out": held_out,
            "applied": applied[0].to_json(),
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
            "metric": metric.name,
            "floor": floor,
            "few_rows": few,
            **measured,
        },
    )
    score = manifest["metrics"].get(f"validation_{metric.name}")
    value = "has no value" if score is None else f"{score:.4f}"
    show(f"Artifact {fitted[0].run_id}: validation {metric.name} {value}, in {output / 'artifact'}")
    if few is not None:
        compared.append(f"Warning: {few['text']}")
    for line in compared:
        show(line)
    return Trained(output, "complete", applied[0], manifest, seconds)


def _show_plan(
    config: Config,
    examples: dataset.Examples,
    pairs: Sequence[folds.Pair],
    applied: Applied,
    show: Callable[[str], None],
) -> None:
    what = config.data.noun
    kinds = {"regression": "numbers to predict", "multilabel": "labels, any of them"}
    rows, held = pairs[0]
    split = f"{len(rows)} {what} to train, {len(held)} to validate"
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


def _clear(output: Path, places: Sequence[Path], config: Config, *, fresh: bool) -> None:
    """Set aside the outputs of all loops but the first, which does so itself; refuse checkpoints
    that this run would not read.
    """
    others = [place for place in (output, *sorted(output.glob("fold-*"))) if place != places[0]]
    if fresh:
        for place in others:
            checkpoint.set_aside(place / "checkpoints", [place / name for name in OUTPUTS])
    unread = [place / "checkpoints" for place in others if place not in places]
    unread = [path for path in unread if any(path.glob("step-*"))]
    if unread:
        raise CheckpointError(
            f"{unread[0]} holds a run with other folds, perhaps of another config;"
            f" expected one with folds={config.folds}.\n"
            f"Undo the change to resume, choose another --output, or {START_OVER}"
        )

"""Training: data + model + rate → an artifact, on every device there is.

Keras 3 on JAX. `DataParallel` is set before the model exists; the steps themselves are in `pipeline.loop`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pandas as pd

from pipeline import artifact, data, devices, executables, learning_rate, model
from pipeline import provenance as provenance_module
from pipeline.config import Config
from pipeline.errors import ConfigError, DivergedError, writing
from pipeline.learning_rate import Applied
from pipeline.loop import Loop
from pipeline.provenance import Provenance
from pipeline.session import Session

GOLDEN_ROWS = 8


@dataclass(frozen=True)
class Trained:
    """What a run left in its output folder.

    Attributes:
        output: the folder. status: "complete", or "partial" if it stopped early.
        applied: the optimizer's numbers.
        manifest: of the artifact; None if the run is partial.
        seconds: where the time of this call went, by phase; of a run that went on, what earlier calls took is in none of them.
    """

    output: Path
    status: str
    applied: Applied
    manifest: dict[str, Any] | None
    seconds: dict[str, float]


def read(config: Config, folder: Path) -> data.Images:
    """Return the labelled images, read without TensorFlow taking the accelerator that JAX is about to use."""
    devices.hide_from_tensorflow()
    return data.read_training(folder, config)


def train(
    config: Config,
    folder: Path,
    output: Path,
    *,
    images: data.Images | None = None,
    provenance: Provenance | None = None,
    max_steps: int | None = None,
    fresh: bool = False,
    show: Callable[[str], None] = print,
) -> Trained:
    """Train, go on from a checkpoint in `output` if there is one, and write the artifact.

    Args:
        config: the run. folder: the competition, as Kaggle mounts it. output: gets artifact/, checkpoints/, progress.jsonl,
            history.csv and validation.csv.
        images: of that folder, if `read` was called before; None reads them.
        provenance: where the code came from; None asks git.
        max_steps: stop after this step of the run with status "partial"; a call with a larger one, or with None, goes on from there.
        fresh: set earlier checkpoints aside, with their history, and begin again.
        show: takes each line of text.

    Raises:
        ConfigError: if `config.batch` does not split over the devices, or Keras does not run on JAX.
        DivergedError: if a loss, a weight or an output is not finite. DataError, CheckpointError, DiskError: as they say.
    """
    started = time.monotonic()
    if keras.backend.backend() != "jax":
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()} here; training expects JAX.\n"
            "Set the environment variable KERAS_BACKEND to jax before Keras is imported."
        )
    executables.keep(output)
    here = devices.found()
    if config.batch % here.count:
        below = config.batch // here.count * here.count
        raise ConfigError(
            f"batch={config.batch} does not split evenly over {here.count} replicas ({config.batch / here.count:.2f} images each).\n"
            f"Set batch to {below or here.count} or {below + here.count} in pipeline/configs/{config.name}.py."
        )
    for path in (output, output / "checkpoints"):
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)  # now, and not after hours, it comes out that it cannot be made
    if images is None:
        images = read(config, folder)
    indices, held = data.split(images, config)
    seconds = {"read": time.monotonic() - started}
    applied = learning_rate.apply(config, len(indices))
    policy = devices.precision(config.precision, here)
    show(f"Devices: {here}; precision {policy}")
    show(f"Data: {len(indices)} images to train, {len(held)} to validate, {len(images.classes)} classes")
    show(
        f"Rate: {applied.optimizer} {config.optimizer.base_rate:g} at batch {applied.base_batch} -> {applied.peak_rate:g} at batch "
        f"{applied.batch}; {applied.warmup_steps} of {applied.total_steps} steps warm-up"
    )
    for warning in applied.warnings:
        show(f"Warning: {warning}")
    batches = data.Batches(
        images.pixels,
        images.labels,
        rows=indices,
        batch=config.batch,
        seed=config.seed,
        crop_padding=config.data.crop_padding,
        flip=config.data.flip,
    )
    before = keras.config.dtype_policy()
    try:
        keras.distribution.set_distribution(keras.distribution.DataParallel() if here.count > 1 else None)
        keras.config.set_dtype_policy(policy)
        keras.utils.set_random_seed(config.seed)
        run = Loop(config, applied, batches, (images.pixels[held], images.labels[held]), output, show, seconds)
        origin = {
            "config": config.to_json(),
            "data": images.fingerprint(),
            "precision": policy,
            "devices": str(here),
        }
        with Session(config.session_hours, config.stall_seconds, output, show) as session:
            status = run.go(origin, session, max_steps=max_steps, fresh=fresh)
        weights = run.final_weights()
    finally:
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)
    if status == "partial":
        return Trained(output, status, applied, None, seconds)

    begun = time.monotonic()
    rebuilt = model.build(config, applied.batchnorm_momentum)
    artifact.assign(rebuilt, weights)
    # From all over the table: its first rows are of one class where it is sorted by label.
    rows = np.unique(np.linspace(0, len(held) - 1, GOLDEN_ROWS).astype(int))
    # A TPU multiplies float32 in bfloat16 unless told otherwise; another machine has to reproduce these. One device computes
    # them, so it gets what one replica had in training.
    with jax.default_matmul_precision("highest"):
        found = model.probabilities(rebuilt, images.pixels[held], batch=run.compiled.micro_batch)
    if not np.isfinite(found).all():
        raise DivergedError(
            f"The trained model's outputs are not finite (optimizer.base_rate={config.optimizer.base_rate:g})"
        )
    with writing(output / "validation.csv"):
        pd.DataFrame(
            {
                "id": [images.ids[index] for index in held],
                "label": [images.classes[index] for index in images.labels[held]],
                "prediction": [images.classes[index] for index in found.argmax(axis=1)],
                "confidence": found.max(axis=1).round(6),
            }
        ).to_csv(output / "validation.csv", index=False)
    seconds["final evaluation"] = time.monotonic() - begun
    seconds["total"] = time.monotonic() - started
    origins = provenance or provenance_module.from_checkout()
    manifest = artifact.save(
        output / "artifact",
        model=rebuilt,
        config=config,
        classes=images.classes,
        golden_images=images.pixels[held[rows]],
        golden_outputs=found[rows],
        details={
            "run_id": run.run_id,
            "status": status,
            "versions": provenance_module.versions(),
            "git_commit": origins.git_commit,
            "git_dirty": origins.git_dirty,
            "bundle_sha256": origins.bundle_sha256,
            "devices": str(here),
            "precision": policy,
            "parameters": model.count(rebuilt),
            "applied": applied.to_json(),
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
            "metrics": {
                **run.metrics,
                "validation_accuracy": float((found.argmax(axis=1) == images.labels[held]).mean()),
            },
        },
    )
    show(
        f"Artifact {run.run_id}: validation accuracy {manifest['metrics']['validation_accuracy']:.4f}, in {output / 'artifact'}"
    )
    return Trained(output, status, applied, manifest, seconds)

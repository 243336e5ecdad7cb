"""Inference: an artifact and a test set → one label an id. Runs on TensorFlow or JAX; never imports training.

Before anything is predicted the artifact's golden images are computed again and compared with what the training run got.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline import data, model, submission
from pipeline.artifact import Artifact
from pipeline.errors import ArtifactError, ConfigError, DataError

PRECISIONS = ("float32", "mixed_float16")
# Largest difference between two probabilities. float32: other kernels add in another order (measured: below 1e-6 between JAX and
# TensorFlow on a CPU). float16 has 11 bits, and its errors grow through the layers.
TOLERANCE = {"float32": 1e-4, "mixed_float16": 2e-2}
BATCH = 256


@dataclass(frozen=True)
class Predictions:
    """Probabilities float32 (n, num_classes) of a test set, with its ids, and the text of the likeliest label of each."""

    ids: tuple[str, ...]
    probabilities: np.ndarray
    labels: tuple[str, ...]


def restore(artifact: Artifact, precision: str = "float32") -> Any:
    """Return the artifact's model, rebuilt by code, with its weights, having recomputed the golden outputs.

    Raises:
        ArtifactError: if the weights do not fit, or the golden outputs come out differently.
        ConfigError: if `precision` is not one of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision={precision!r} cannot work: expected one of {', '.join(PRECISIONS)}.\nCorrect --precision."
        )
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        rebuilt = model.build(artifact.config)
    finally:
        keras.config.set_dtype_policy(before)
    artifact_module.assign(rebuilt, artifact.weights)
    outputs = model.probabilities(rebuilt, artifact.golden_images, batch=len(artifact.golden_images))
    difference = float(np.max(np.abs(outputs - artifact.golden_outputs)))
    if not difference <= TOLERANCE[precision]:
        raise ArtifactError(
            f"The model gives other outputs here than where it was trained: {difference:.2e} apart on {len(outputs)} golden images; "
            f"expected at most {TOLERANCE[precision]:.0e} in {precision}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit, or with precision float32."
        )
    return rebuilt


def predict(artifact: Artifact, folder: Path, precision: str = "float32") -> Predictions:
    """Return predictions for the test set in a competition folder.

    Raises:
        ArtifactError, DataError: as `restore` and `pipeline.data.read_test` say; or if a prediction is not finite.
    """
    rebuilt = restore(artifact, precision)
    test = data.read_test(folder, artifact.config)
    found = model.probabilities(rebuilt, test.pixels, batch=BATCH)
    if not np.isfinite(found).all():
        raise DataError(
            f"{int((~np.isfinite(found)).any(axis=1).sum())} of {len(found)} predictions are not finite; "
            "expected probabilities.\nUse precision float32, or train again."
        )
    return Predictions(test.ids, found, tuple(artifact.classes[index] for index in found.argmax(axis=1)))


def infer(
    artifact: Artifact, folder: Path, output: Path, *, precision: str = "float32", show: Callable[[str], None] = print
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions."""
    show(
        f"Artifact {artifact.manifest['run_id']}: {artifact.config.name}, weights {artifact.manifest['weights_sha256'][:12]}"
    )
    predictions = predict(artifact, folder, precision)
    sample = folder / artifact.config.data.sample_submission
    rows = submission.write(output / "submission.csv", sample, predictions.ids, predictions.labels)
    show(f"Wrote {rows} rows to {output / 'submission.csv'}")
    return predictions

"""Inference: an artifact and a test set → one label an id. Runs on TensorFlow or JAX; never imports training.

Before anything is predicted the artifact's golden images are computed again and compared with what the training run got.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline import data, model, submission
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.errors import ArtifactError, ConfigError, DataError, writing

PRECISIONS = ("float32", "mixed_float16")
# Largest difference between two probabilities. float32: other kernels add in another order (measured: below 1e-6 between JAX and
# TensorFlow on a CPU). float16 has 11 bits, and its errors grow through the layers.
TOLERANCE = {"float32": 1e-4, "mixed_float16": 2e-2}
BATCH = 256


@dataclass(frozen=True)
class Predictions:
    """Probabilities float32 (n, num_classes) of a test set, with its ids, the text of the likeliest label of each, and the images.

    Attributes:
        pixels: uint8 (n, height, width, channels), for whoever wants to look at them.
    """

    ids: tuple[str, ...]
    pixels: np.ndarray
    probabilities: np.ndarray
    labels: tuple[str, ...]


def restore(artifact: Artifact, precision: str = "float32") -> Any:
    """Return the artifact's model, rebuilt by code, having recomputed the golden outputs; of several folds it has the last one's weights.

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
    outputs = averaged(artifact, rebuilt, artifact.golden_images, batch=len(artifact.golden_images))
    difference = float(np.max(np.abs(outputs - artifact.golden_outputs)))
    if not difference <= TOLERANCE[precision]:
        raise ArtifactError(
            f"The model gives other outputs here than where it was trained: {difference:.2e} apart on {len(outputs)} golden images; "
            f"expected at most {TOLERANCE[precision]:.0e} in {precision}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit, or with precision float32."
        )
    return rebuilt


def averaged(artifact: Artifact, rebuilt: Any, pixels: np.ndarray, batch: int) -> np.ndarray:
    """Return the mean over the folds of `pipeline.model.probabilities`; their weights go through the one model, one after the other.

    Raises:
        ArtifactError: if weights do not fit.
    """
    total = np.zeros((len(pixels), len(artifact.classes)), np.float32)
    for weights in artifact.folds:
        artifact_module.assign(rebuilt, weights)
        total += model.probabilities(rebuilt, pixels, batch)
    return total / np.float32(len(artifact.folds))


def predict(
    artifact: Artifact, folder: Path, precision: str = "float32", *, config: Config | None = None
) -> Predictions:
    """Return predictions for the test set in a competition folder.

    Args:
        artifact: gives the model, the classes and the shape of the images.
        folder: the competition. precision: one of `PRECISIONS`.
        config: says where in the folder the test set is; None: the artifact's own, which may be older.

    Raises:
        ArtifactError, DataError: as `restore` and `pipeline.data.read_test` say; or if a prediction is not finite.
    """
    rebuilt = restore(artifact, precision)
    test = data.read_test(folder, _placed(artifact.config, config))
    found = averaged(artifact, rebuilt, test.pixels, batch=BATCH)
    if not np.isfinite(found).all():
        raise DataError(
            f"{int((~np.isfinite(found)).any(axis=1).sum())} of {len(found)} predictions are not finite; "
            "expected probabilities.\nUse precision float32, or train again."
        )
    return Predictions(test.ids, test.pixels, found, tuple(artifact.classes[index] for index in found.argmax(axis=1)))


def infer(
    artifact: Artifact,
    folder: Path,
    output: Path,
    *,
    config: Config | None = None,
    precision: str = "float32",
    show: Callable[[str], None] = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions; the arguments are `predict`'s."""
    folds = f" of {artifact.config.folds} folds, averaged" if artifact.config.folds else ""
    show(
        f"Artifact {artifact.manifest['run_id']}: {artifact.config.name}, weights {artifact.manifest['weights_sha256'][:12]}{folds}"
    )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    predictions = predict(artifact, folder, precision, config=config)
    sample = folder / (config or artifact.config).data.sample_submission
    rows = submission.write(output / "submission.csv", sample, predictions.ids, predictions.labels)
    show(f"Wrote {rows} rows to {output / 'submission.csv'}")
    return predictions


def _placed(trained: Config, given: Config | None) -> Config:
    """Return the config that was trained with, looking for the files where the given one says that they are."""
    if given is None:
        return trained
    shape = {name: getattr(trained.data, name) for name in ("height", "width", "channels")}
    return replace(trained, data=replace(given.data, **shape))

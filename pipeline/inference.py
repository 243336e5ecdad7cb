"""Inference: an artifact and a test set → one prediction an id, in time. Runs on TensorFlow or JAX; never imports training.

Before anything is predicted the artifact's golden inputs are computed again and compared with what the training run got. Then a valid
file with the mean prediction for every id is written, which stays if anything goes wrong; then the test set goes through block by block,
so that memory does not grow with it. An input that cannot be read gets the mean prediction, too, and is named: no id is ever dropped.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline import data, files, model, whole
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.errors import ArtifactError, ConfigError, DataError, writing
from pipeline.form import Form

PRECISIONS = ("float32", "mixed_float16")
# Largest difference between two predictions, of numbers in standard deviations. float32: other kernels add in another order (measured: below
# 1e-6 between JAX and TensorFlow on a CPU). float16 has 11 bits, and its errors grow through the layers.
TOLERANCE = {"float32": 1e-4, "mixed_float16": 2e-2}
BATCH, BLOCK = 256, 1024
SHARE = (
    0.9  # of the time that there is, which the predictions may take: the rest is for writing, and for what comes after
)


@dataclass(frozen=True)
class Predictions:
    """What a test set got.

    Attributes:
        test: the test set; reads the inputs again for whoever wants to look at them.
        values: float32 (n, k), as `pipeline.target.Target.predictions` gives them. labels: in words, one text a row.
        broken: why an input could not be read, by its id. left_out: rows for which time did not suffice.
    """

    test: data.TestSet
    values: np.ndarray
    labels: tuple[str, ...]
    broken: Mapping[str, str]
    left_out: int

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in the order of the sample."""
        return self.test.ids


def restore(artifact: Artifact, precision: str = "float32") -> list[Any]:
    """Return the artifact's model of each fold, rebuilt by code, having recomputed the golden outputs.

    Raises:
        ArtifactError: if the weights do not fit, or the golden outputs come out differently.
        ConfigError: if `precision` is not one of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision={precision!r} cannot work: expected one of {', '.join(PRECISIONS)}.\nCorrect --precision."
        )
    before, models = keras.config.dtype_policy(), []
    keras.config.set_dtype_policy(precision)
    try:
        for weights in artifact.folds:
            models.append(model.build(artifact.config))
            artifact_module.assign(models[-1], weights)
    finally:
        keras.config.set_dtype_policy(before)
    outputs = averaged(artifact, models, artifact.golden_inputs, batch=len(artifact.golden_inputs))
    unit = np.array(artifact.target.spread or 1.0) if not artifact.target.log else np.abs(artifact.golden_outputs) + 1
    difference = float(np.max(np.abs(outputs - artifact.golden_outputs) / unit))
    if not difference <= TOLERANCE[precision]:
        raise ArtifactError(
            f"The model gives other outputs here than where it was trained: {difference:.2e} apart on {len(outputs)} golden inputs; "
            f"expected at most {TOLERANCE[precision]:.0e} in {precision}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit, or with precision float32."
        )
    return models


def averaged(artifact: Artifact, models: list[Any], inputs: np.ndarray, batch: int) -> np.ndarray:
    """Return the mean of the models' predictions: float32 (n, k)."""
    total = np.zeros((len(inputs), len(artifact.classes)), np.float32)
    for one in models:
        total += artifact.target.predictions(model.outputs(one, inputs, batch))
    return total / np.float32(len(models))


def predict(
    artifact: Artifact,
    test: data.TestSet,
    models: list[Any],
    *,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    show: Callable[[str], None] = print,
) -> Predictions:
    """Return predictions for a test set, block by block.

    Time is watched from the first block on: where what is left will not fit, folds are dropped, and then rows get the mean prediction.

    Args:
        models: as `restore` returned them. seconds: that there are in all; None: as many as it takes. clock: in seconds.

    Raises:
        DataError: if too many inputs cannot be read, or too many predictions are not finite.
    """
    end = None if seconds is None else clock() + seconds * SHARE
    values = np.repeat(artifact.prior[None], len(test), axis=0)
    broken: dict[str, str] = {}
    done, used, slowest = 0, len(models), 0.0
    work, spent, last = 0, 0.0, clock()
    for start, inputs, wrong in test.blocks(BLOCK):
        if end is not None and start and clock() + slowest > end:
            break
        got = averaged(artifact, models[:used], inputs, BATCH)
        strange = np.flatnonzero(~np.isfinite(got).all(axis=1)) + start
        broken |= {test.ids[row]: "its prediction is not a finite number" for row in strange}
        broken |= {test.ids[row]: reason for row, reason in wrong.items()}
        for row in (*strange, *wrong):
            got[row - start] = artifact.prior
        values[start : start + len(inputs)] = got
        done = start + len(inputs)
        _few(broken, done, len(test), artifact.config)
        took, last = clock() - last, clock()  # with decoding
        if start <= BLOCK:
            # The second block's pace takes the place of the first's, in which the models were compiled.
            work, spent = 0, 0.0
        work, spent = work + len(inputs) * used, spent + took
        slowest = max(slowest / 2, took)
        if end is not None and done < len(test):
            most = len(models) if start == BLOCK else used
            fits = min(max(int((end - last) * work / max(spent * (len(test) - done), 1e-9)), 1), most)
            if fits != used:
                show(f"Time is short: {fits} of {len(models)} folds from row {done:,} on")
                used, slowest = fits, slowest * fits / used
    if broken:
        listed = "; ".join(f"{name!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(f"Warning: {len(broken)} of {len(test)} inputs cannot be read and get the mean prediction: {listed}")
    if done < len(test):
        show(f"Warning: time was up; {len(test) - done:,} of {len(test):,} rows have the mean prediction")
    return Predictions(test, values, tuple(artifact.target.best(values)), broken, len(test) - done)


def _few(broken: Mapping[str, str], done: int, total: int, config: Config) -> None:
    """Refuse a test set of which too much cannot be read, as soon as that is known: one in ten, or where nobody could mend it, all."""
    most = total - 1 if os.environ.get(files.RERUN) else total * files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(files.told(broken, done, config.data))


def infer(
    artifact: Artifact,
    folder: Path,
    output: Path,
    *,
    config: Config | None = None,
    precision: str = "float32",
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    show: Callable[[str], None] = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Args:
        artifact: gives the model, what its outputs mean and the shape of the inputs.
        folder: the competition. output: gets submission.csv, first with the mean prediction for every id; an older one comes back if this fails.
        config: says where in the folder the test set is; None: the artifact's own, which may be older.
        precision: one of `PRECISIONS`. seconds: that there are from now on; None: those of `session_hours`. clock: in seconds.

    Raises:
        ArtifactError, DataError: as `restore`, `pipeline.data.read_test` and `predict` say.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    begun = clock()
    folds = f" of {artifact.config.folds} folds, averaged" if artifact.config.folds else ""
    show(
        f"Artifact {artifact.manifest['run_id']}: {artifact.config.name}, weights {artifact.manifest['weights_sha256'][:12]}{folds}"
    )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    placed = _placed(artifact.config, config)
    path, sample = output / "submission.csv", folder / placed.data.sample_submission
    models = restore(artifact, precision)
    test = data.read_test(folder, placed, artifact.encoding)
    form = Form(artifact.target, str(artifact.manifest["metric"]), sample)
    with writing(path):
        before = path.read_bytes() if path.is_file() else None
    form.write(path, test.ids, np.repeat(artifact.prior[None], len(test), axis=0))
    if seconds is None and placed.session_hours is not None:
        seconds = placed.session_hours * 3600
    there = None if seconds is None else seconds - (clock() - begun)
    try:
        predictions = predict(artifact, test, models, seconds=there, clock=clock, show=show)
        rows = form.write(path, predictions.ids, predictions.values)
    except BaseException:
        if before is not None:
            whole.write(path, before)
        mean = "holds the mean prediction for every id, and not the model's"
        show(f"Warning: {path} {mean if before is None else 'is as it was before'}.")
        raise
    if len(predictions.values) > 1 and not np.ptp(predictions.values, axis=0).any():
        show(
            f"Warning: all {len(predictions.values):,} rows have the same prediction; look at the inputs and the training"
        )
    show(f"Wrote {rows} rows to {path}")
    return predictions


def _placed(trained: Config, given: Config | None) -> Config:
    """Return the config that was trained with, looking for the files where the given one says that they are."""
    if given is None:
        return trained
    images = ("kind", "height", "width", "channels", "resize", "decode")
    own = (*images, "numeric_columns", "categorical_columns", "most_categories")
    kept = {name: getattr(trained.data, name) for name in own}
    return replace(trained, data=replace(given.data, **kept), session_hours=given.session_hours)

"""Inference: an artifact and a test set → one prediction an id, in time. Runs on TensorFlow or JAX;
never imports training.

First of all a valid file with the mean prediction for every id is written, which stays if anything
goes wrong. Before anything is predicted the artifact's golden inputs are computed again and
compared with what the training run got. Then the test set goes through block by block, so that
memory does not grow with it: while one is computed, the next ones are decoded. An input that cannot
be read gets the mean prediction, too, and is named: no id is ever dropped. Where there are several
GPUs, each has a process of its own (`pipeline.inference.multi_gpu`).
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data import image_files
from pipeline.data.test_set import TestSet, read_test
from pipeline.errors import ArtifactError, ConfigError, DataError, writing
from pipeline.inference import block_prediction, multi_gpu
from pipeline.inference.forward_pass import Forward
from pipeline.models import architectures
from pipeline.runtime import devices
from pipeline.storage import atomic_file
from pipeline.submission.prediction_format import Form

PRECISIONS = ("float32", "mixed_float16")
# Largest difference between two predictions, of numbers in standard deviations. float32: other
# kernels add in another order (measured: below 1e-6 between JAX and TensorFlow on a CPU). float16
# has 11 bits, and its errors grow through the layers.
TOLERANCE = {"float32": 1e-4, "mixed_float16": 2e-2}
# Of the time that there is, what predictions may take: the rest is for writing, and for what comes
# after.
SHARE = 0.9

Show = Callable[[str], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Predictions:
    """What a test set got.

    Attributes:
        test: the test set; reads the inputs again for whoever wants to look at them.
        values: float32 (n, k), as `pipeline.data.labels.Target.predictions` gives them. labels: in
            words, one text a row.
        broken: why an input could not be read, by its id. left_out: rows for which time did not
            suffice.
    """

    test: TestSet
    values: np.ndarray
    labels: tuple[str, ...]
    broken: Mapping[str, str]
    left_out: int

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in the order of the sample."""
        return self.test.ids


def restore(artifact: Artifact, precision: str = "float32") -> Forward:
    """Return the artifact's models, one a fold, rebuilt by code, having recomputed the golden
    outputs.

    Raises:
        ArtifactError: if the weights do not fit, or the golden outputs come out differently.
        ConfigError: if `precision` is not one of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision={precision!r} cannot work: expected one of {', '.join(PRECISIONS)}.\nCorrect --precision."
        )
    before, models = keras.config.dtype_policy(), list[Any]()
    keras.config.set_dtype_policy(precision)
    try:
        for weights in artifact.folds:
            with _hastily():
                models.append(architectures.build(artifact.config))
            artifact_module.assign(models[-1], weights)
    finally:
        keras.config.set_dtype_policy(before)
    forward = Forward(models)
    # By the program that the first blocks go through, too; smaller, where the device has no room
    # for it.
    outputs = averaged(artifact, forward, artifact.golden_inputs)
    unit = (
        np.array(artifact.target.spread or 1.0)
        if not artifact.target.log
        else np.abs(artifact.golden_outputs) + 1
    )
    difference = float(np.max(np.abs(outputs - artifact.golden_outputs) / unit))
    if not difference <= TOLERANCE[precision]:
        raise ArtifactError(
            f"The model gives other outputs here than where it was trained: {difference:.2e} apart on {len(outputs)} golden inputs; "
            f"expected at most {TOLERANCE[precision]:.0e} in {precision}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit, or with precision float32."
        )
    return forward


@contextmanager
def _hastily() -> Iterator[None]:
    """Let XLA compile without much thought: random weights that are replaced at once are not worth
    the seconds that their programs take.

    Their bits are others, so nobody else may get these programs: JAX keeps those of another
    precision apart.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)  # type: ignore[no-untyped-call]
    with jax.default_matmul_precision("highest"):
        jax.config.update(name, True)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            jax.config.update(name, before)  # type: ignore[no-untyped-call]


def averaged(
    artifact: Artifact, forward: Forward, inputs: np.ndarray, batch: int | None = None
) -> np.ndarray:
    """Return the mean of the folds' predictions, float32 (n, k), in batches of that size; None: of
    the forward's, halved where they do not fit.
    """
    return block_prediction.mean(artifact, forward.outputs(inputs, batch))


def predict(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    *,
    seconds: float | None = None,
    batch: int | None = None,
    clock: Clock = time.monotonic,
    show: Show = print,
) -> Predictions:
    """Return predictions for a test set, in this process.

    Time is watched from the first block on: where what is left will not fit, views are dropped,
    then folds, and then rows get the mean prediction.

    Args:
        forward: as `restore` returned it. seconds: that there are in all; None: as many as it
            takes. batch: rows that are computed at once; None: found by doubling. clock: in
            seconds.

    Raises:
        DataError: if too many inputs cannot be read, or too many predictions are not finite.
    """
    end = None if seconds is None else clock() + seconds * SHARE
    values, broken = _mean_of(artifact, len(test)), dict[str, str]()

    def tell(found: Mapping[str, str], done: int) -> None:
        broken.update(found)
        _few(broken, done, len(test), artifact.config)

    done = block_prediction.fill(
        artifact, test, forward, values, end=end, batch=batch, clock=clock, tell=tell, show=show
    )
    return _told(artifact, test, values, broken, len(test) - done, show)


def _mean_of(artifact: Artifact, rows: int) -> np.ndarray:
    return np.repeat(artifact.prior[None], rows, axis=0)


def _told(
    artifact: Artifact,
    test: TestSet,
    values: np.ndarray,
    broken: Mapping[str, str],
    left: int,
    show: Show,
) -> Predictions:
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {len(test)} inputs cannot be read and get the mean prediction: {listed}"
        )
    if left:
        show(f"Warning: time was up; {left:,} of {len(test):,} rows have the mean prediction")
    return Predictions(test, values, tuple(artifact.target.best(values)), broken, left)


def _few(broken: Mapping[str, str], done: int, total: int, config: Config) -> None:
    """Refuse a test set of which too much cannot be read, as soon as that is known: one in ten, or
    where nobody could mend it, all.
    """
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, done, config.data))


def infer(
    artifact: Artifact,
    folder: Path,
    output: Path,
    *,
    config: Config | None = None,
    precision: str = "float32",
    seconds: float | None = None,
    batch: int | None = None,
    processes: int | None = None,
    clock: Clock = time.monotonic,
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Args:
        artifact: gives the model, what its outputs mean and the shape of the inputs.
        folder: the competition. output: gets submission.csv, first with the mean prediction for
            every id; an older one comes back if this fails.
        config: says where in the folder the test set is, how many `views` each image has and how
            long a session; None: the artifact's own.
        precision: one of `PRECISIONS`. seconds: that there are from now on; None: those of
            `session_hours`. clock: in seconds.
        batch: as for `predict`. processes: that share the rows, each with a GPU of its own; None:
            one a GPU. Of several none has `clock`.

    Raises:
        ArtifactError, DataError: as `restore`, `read_test` and `predict` say.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    begun = clock()
    folds = f" of {artifact.config.folds} folds, averaged" if artifact.config.folds else ""
    show(
        f"Artifact {artifact.manifest['run_id']}: {artifact.config.name}, weights {artifact.manifest['weights_sha256'][:12]}{folds}"
    )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    placed = replace(artifact, config=_placed(artifact.config, config))
    path, sample = output / "submission.csv", folder / placed.config.data.sample_submission
    test = read_test(folder, placed.config, artifact.encoding)
    form = Form(artifact.target, str(artifact.manifest["metric"]), sample)
    with writing(path):
        before = path.read_bytes() if path.is_file() else None
    writes = clock()
    form.write(path, test.ids, _mean_of(artifact, len(test)))
    writes = clock() - writes
    if seconds is None and placed.config.session_hours is not None:
        seconds = placed.config.session_hours * 3600
    # What writing took once it takes again, and as much is kept for a slow disk.
    until = None if seconds is None else begun + min(seconds * SHARE, seconds - 2 * writes)
    if processes is None:
        here = devices.found()
        processes = here.count if here.platform == "gpu" else 1
    try:
        if processes > 1:
            predictions = _shared(placed, test, folder, precision, until, batch, processes, show)
        else:
            forward = restore(placed, precision)
            there = None if until is None else (until - clock()) / SHARE
            predictions = predict(
                placed, test, forward, seconds=there, batch=batch, clock=clock, show=show
            )
        written = form.write(path, predictions.ids, predictions.values)
    except BaseException:
        if before is not None:
            atomic_file.write(path, before)
        mean = "holds the mean prediction for every id, and not the model's"
        show(f"Warning: {path} {mean if before is None else 'is as it was before'}.")
        raise
    if len(predictions.values) > 1 and not np.ptp(predictions.values, axis=0).any():
        show(
            f"Warning: all {len(predictions.values):,} rows have the same prediction; look at the inputs and the training"
        )
    show(f"Wrote {written} rows to {path}")
    return predictions


def _shared(
    artifact: Artifact,
    test: TestSet,
    folder: Path,
    precision: str,
    until: float | None,
    batch: int | None,
    processes: int,
    show: Show,
) -> Predictions:
    """Return predictions that several processes made; what one of them leaves, this process makes,
    if there is time.
    """
    values, broken = _mean_of(artifact, len(test)), dict[str, str]()

    def tell(found: Mapping[str, str], done: int) -> None:
        broken.update(found)
        _few(broken, done, len(test), artifact.config)

    settings = multi_gpu.Settings(str(folder.absolute()), precision, until, batch)
    missing = multi_gpu.run(artifact, settings, values, processes, tell=tell, show=show)
    left = 0
    if missing and (until is None or time.monotonic() < until):
        forward = restore(artifact, precision)
        for part in missing:
            show(f"Rows {part.start:,} to {part.stop - 1:,} are computed here")
            own = values[part.start : part.stop]
            done = block_prediction.fill(
                artifact,
                test,
                forward,
                own,
                first=part.start,
                end=until,
                batch=batch,
                tell=tell,
                show=show,
            )
            left += len(part) - done
    else:
        left = sum(map(len, missing))
    return _told(artifact, test, values, broken, left, show)


def share(job: Path) -> dict[str, Any]:
    """Compute one process's share of the rows, as `pipeline.inference.multi_gpu.run` wrote it to
    the folder `job`, and say how many rows are done.
    """
    artifact, settings, own, values = multi_gpu.taken(job)
    forward = restore(artifact, settings.precision)
    test = read_test(Path(settings.folder), artifact.config, artifact.encoding)
    with multi_gpu.telling(job) as tell:
        done = block_prediction.fill(
            artifact,
            test,
            forward,
            values,
            first=own.start,
            end=settings.until,
            batch=settings.batch,
            tell=tell,
        )
    return {"rows": done, "batch": forward.batch.size}


def _placed(trained: Config, given: Config | None) -> Config:
    """Return the config that was trained with, looking for the files where the given one says that
    they are.
    """
    if given is None:
        return trained
    images = ("kind", "height", "width", "channels", "resize", "decode", "flip", "crop_padding")
    own = (*images, "numeric_columns", "categorical_columns", "most_categories")
    kept = {name: getattr(trained.data, name) for name in own}
    data = replace(given.data, **kept)
    return replace(trained, data=data, session_hours=given.session_hours, views=given.views)

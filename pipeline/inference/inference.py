"""Inference: an artifact and a test set → one prediction an id, in time. Runs on TensorFlow or JAX.

First it writes a valid file with the mean prediction for every id, which stays if anything fails.
Before it predicts, it recomputes the artifact's golden outputs and compares them with those of the
training run. Then it computes the test set block by block, so that memory does not grow with it;
meanwhile it decodes the next blocks. An input that cannot be read gets the mean prediction and is
named: no id is ever dropped. Each of several GPUs has a process (`pipeline.inference.multi_gpu`).
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from pipeline import competition_metric
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data import image_files
from pipeline.data.test_set import TestSet, read_test
from pipeline.errors import ConfigError, DataError, writing
from pipeline.inference import block_prediction, multi_gpu, restoring
from pipeline.inference.block_prediction import NOT_FINITE, Report, Show
from pipeline.inference.forward_pass import Forward
from pipeline.runtime import devices
from pipeline.storage import atomic_file
from pipeline.submission import prediction_format
from pipeline.submission.prediction_format import Form

# Of the time that there is, what predicting may take: the rest is for writing, and what follows.
SHARE = 0.9
GOLDEN = "golden.json"  # what was compared, for the submission's lineage

Clock = Callable[[], float]


@dataclass(frozen=True)
class Predictions:
    """The predictions of a test set.

    Attributes:
        test: the test set, from which the inputs can be read again.
        values: float32 (n, …), as `pipeline.data.labels.Target.predictions` returns them.
        labels: one text a row.
        broken: why an input could not be read, by its id.
        left_out: how many rows there was no time for.
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

    If time runs short, views are skipped first, then folds, and then rows get the mean prediction.

    Args:
        forward: as `restoring.restore` returns it.
        seconds: there are for all of it; None: no limit.
        batch: rows at once; None: found by doubling.
        clock: in seconds.

    Raises:
        DataError: if too many inputs cannot be read.
    """
    end = None if seconds is None else clock() + seconds * SHARE
    values, broken = _mean_of(artifact, len(test)), dict[str, str]()
    report = _collecting(broken, len(test), artifact.config)
    done = block_prediction.fill(
        artifact, test, forward, values, end=end, batch=batch, clock=clock, report=report, show=show
    )
    return _predictions(artifact, test, values, broken, len(test) - done, show)


def _mean_of(artifact: Artifact, rows: int) -> np.ndarray:
    return np.repeat(artifact.prior[None], rows, axis=0)


def _collecting(broken: dict[str, str], total: int, config: Config) -> Report:
    """Return a function that collects what cannot be read in `broken`, and refuses the test set as
    soon as that is too much.

    What is not finite counts at the end only: float32 may compute it.
    """

    def report(found: Mapping[str, str], done: int) -> None:
        broken.update(found)
        read = {name: why for name, why in broken.items() if why != NOT_FINITE}
        _refuse_broken(read, done, total, config)

    return report


def _refuse_broken(broken: Mapping[str, str], done: int, total: int, config: Config) -> None:
    """Raise `DataError` if that is too much: one in ten, or in the scored rerun, where nobody could
    fix it, all.
    """
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, done, config.data))


def _computed_again(first: Predictions, again: Predictions, prior: np.ndarray) -> Predictions:
    """Return predictions of a second pass, and of the first one what there was no time for."""
    kept = (again.values == prior).reshape(len(again.values), -1).all(axis=1)
    values = again.values.copy()
    values[kept] = first.values[kept]
    broken = dict(again.broken)
    for place in np.flatnonzero(kept):
        name = first.ids[place]
        if name in first.broken:
            broken[name] = first.broken[name]
    labels = tuple(
        early if keep else late
        for keep, early, late in zip(kept, first.labels, again.labels, strict=True)
    )
    left_out = min(first.left_out, again.left_out)
    return Predictions(again.test, values, labels, broken, left_out)


def _predictions(
    artifact: Artifact,
    test: TestSet,
    values: np.ndarray,
    broken: Mapping[str, str],
    left_out: int,
    show: Show,
) -> Predictions:
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {len(test)} inputs cannot be read"
            f" and get the mean prediction: {listed}"
        )
    if left_out:
        show(f"Warning: time was up; {left_out:,} of {len(test):,} rows have the mean prediction")
    return Predictions(test, values, tuple(artifact.target.best(values)), broken, left_out)


def infer(
    artifact: Artifact,
    folder: Path,
    output: Path,
    *,
    config: Config | None = None,
    precision: str = "",
    seconds: float | None = None,
    batch: int | None = None,
    processes: int | None = None,
    clock: Clock = time.monotonic,
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Args:
        artifact: gives the model, what its outputs mean and the shape of the inputs.
        folder: the competition.
        output: gets golden.json and submission.csv. It holds the mean prediction for every id
            first; if this fails, an older file is restored.
        config: says where in the folder the test set is, how many `views` each image gets and how
            long a session lasts; None: the artifact's own.
        precision: one of `restoring.PRECISIONS`; "": that of the config.
        seconds: there are from now on; None: those of `session_hours`.
        batch: as for `predict`.
        processes: that share the rows, each with one GPU; None: one a GPU. Several do not use
            `clock`.
        clock: in seconds.

    Raises:
        ArtifactError, DataError: as `restoring.restore`, `read_test` and `predict` say; and if too
            many predictions are not finite, in float32 too.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    begun = clock()
    if config is not None and config.code != artifact.config.code:
        raise ConfigError(
            f"The functions of the config {config.name!r} are not those of the training: their"
            f" sha256 begins with {config.code[:12] or 'nothing (there are none)'}; expected"
            f" {artifact.config.code[:12] or 'nothing'}.\nRestore them as they were, or train"
            " again."
        )
    folds = f" of {artifact.config.folds} folds, averaged" if artifact.config.folds else ""
    show(
        f"Artifact {artifact.manifest['run_id']}: {artifact.config.name},"
        f" weights {artifact.manifest['weights_sha256'][:12]}{folds}"
    )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    placed = replace(artifact, config=_placed(artifact.config, config))
    path, sample = output / "submission.csv", folder / placed.config.data.sample_submission
    test = read_test(folder, placed.config, artifact.encoding)
    positive = placed.config.data.positive_label
    metric = competition_metric.of(artifact.config, str(artifact.manifest["metric"]))
    writer = prediction_format.writer_of(placed.config)
    form = Form(artifact.target, metric, sample, positive, writer)
    with writing(path):
        before = path.read_bytes() if path.is_file() else None
    writes = clock()
    form.write(path, test.ids, _mean_of(artifact, len(test)))
    writes = clock() - writes
    if seconds is None and placed.config.session_hours is not None:
        seconds = placed.config.session_hours * 3600
    # Writing takes as long again, and as much is kept for a slow disk.
    until = None if seconds is None else begun + min(seconds * SHARE, seconds - 2 * writes)
    if processes is None:
        here = devices.found()
        processes = here.count if here.platform == "gpu" else 1

    def predicted(precision: str) -> tuple[Predictions, list[restoring.Checked]]:
        if processes > 1:
            return _shared(placed, test, folder, precision, until, batch, processes, show)
        forward, found = restoring.restore(placed, precision, show)
        there = None if until is None else (until - clock()) / SHARE
        own = predict(placed, test, forward, seconds=there, batch=batch, clock=clock, show=show)
        return own, [found]

    try:
        predictions, checked = predicted(precision)
        auto = (precision or placed.config.infer_precision) == "auto"
        if (
            auto
            and any(each.precision == restoring.HALF for each in checked)
            and NOT_FINITE in predictions.broken.values()
        ):
            show("Some predictions are too large for float16; all rows are computed in float32")
            again, also = predicted(restoring.FULL)
            predictions = _computed_again(predictions, again, artifact.prior)
            checked += also
        _refuse_broken(predictions.broken, len(test), len(test), placed.config)
        written = form.write(path, predictions.ids, predictions.values)
        text = json.dumps([asdict(each) for each in dict.fromkeys(checked)], indent=1)
        atomic_file.write(output / GOLDEN, text.encode())
    except BaseException:
        if before is not None:
            atomic_file.write(path, before)
        mean = "holds the mean prediction for every id, and not the model's"
        show(f"Warning: {path} {mean if before is None else 'is as it was before'}.")
        raise
    values = predictions.values
    if len(values) > 1 and not np.ptp(values, axis=0).any():
        show(
            f"Warning: all {len(values):,} rows have the same prediction;"
            " look at the inputs and the training"
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
) -> tuple[Predictions, list[restoring.Checked]]:
    """Return predictions that several processes compute, and the golden checks; the rows that they
    do not compute, this process computes if there is time.
    """
    values, broken = _mean_of(artifact, len(test)), dict[str, str]()
    report = _collecting(broken, len(test), artifact.config)
    settings = multi_gpu.Settings(str(folder.absolute()), precision, until, batch)
    missing, checked = multi_gpu.run(
        artifact, settings, values, processes, report=report, show=show
    )
    left_out = sum(map(len, missing))
    if missing and (until is None or time.monotonic() < until):
        forward, found = restoring.restore(artifact, precision, show)
        checked.append(found)
        fill = partial(block_prediction.fill, artifact, test, forward, end=until, batch=batch)
        for part in missing:
            show(f"Rows {part.start:,} to {part.stop - 1:,} are computed here")
            own = values[part.start : part.stop]
            left_out -= fill(own, first=part.start, report=report, show=show)
    return _predictions(artifact, test, values, broken, left_out, show), checked


def _placed(trained: Config, given: Config | None) -> Config:
    """Return the config of the training, with the files where the given one says that they are."""
    if given is None:
        return trained
    images = ("kind", "height", "width", "channels", "resize", "decode", "flip", "crop_padding")
    tables = ("numeric_columns", "categorical_columns", "most_categories")
    own = ("own_inputs", "own_labels")
    kept = {name: getattr(trained.data, name) for name in (*images, *tables, *own)}
    data = replace(given.data, **kept)
    own_functions = ("read_test", "write_submission")
    here = ("session_hours", "views", "infer_precision", "golden_tolerance", *own_functions)
    return replace(trained, data=data, **{name: getattr(given, name) for name in here})

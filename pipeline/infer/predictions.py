"""Predictions: those of one artifact for a test set, by one process or several, in time.

An input that cannot be read gets the mean prediction and is named: no id is ever dropped.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data import image_files
from pipeline.data.test_set import TestSet
from pipeline.errors import DataError
from pipeline.infer import block_prediction, multi_gpu, restoring
from pipeline.infer.block_prediction import NOT_FINITE, Report, Show
from pipeline.infer.forward_pass import Forward
from pipeline.infer.time_budget import Limit

# Of the time that there is, what predicting may take: the rest is for writing, and what follows.
SHARE = 0.9

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


@dataclass(frozen=True)
class Work:
    """How predictions are made: as `pipeline.infer.inference.infer` takes it."""

    folder: Path
    precision: str
    batch: int | None
    processes: int
    clock: Clock
    show: Show


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
    limit = Limit(None if seconds is None else clock() + seconds * SHARE)
    work = Work(Path(), "", batch, 1, clock, show)
    found, _ = _here(artifact, test, forward, limit, work)
    warn(found, show)
    return found


def of_member(
    artifact: Artifact, test: TestSet, limit: Limit, work: Work
) -> tuple[Predictions, list[restoring.Checked], float]:
    """Return an artifact's predictions, its golden checks, and the seconds until its first block
    was there, 0 where other processes compute.

    What is too large for float16 is computed in float32.
    """
    starting = 0.0

    def predicted(precision: str) -> tuple[Predictions, list[restoring.Checked]]:
        nonlocal starting
        if work.processes > 1:
            return _shared(artifact, test, limit, precision, work)
        begun = work.clock()
        forward, checked = restoring.restore(artifact, precision, work.show)
        found, first = _here(artifact, test, forward, limit, work)
        starting = first - begun
        return found, [checked]

    predictions, checked = predicted(work.precision)
    auto = (work.precision or artifact.config.infer_precision) == "auto"
    if (
        auto
        and any(each.precision == restoring.HALF for each in checked)
        and NOT_FINITE in predictions.broken.values()
    ):
        work.show("Some predictions are too large for float16; all rows are computed in float32")
        again, also = predicted(restoring.FULL)
        predictions = _computed_again(predictions, again, artifact.prior)
        checked += also
    return predictions, list(dict.fromkeys(checked)), starting


def mean_of(artifact: Artifact, rows: int) -> np.ndarray:
    """Return the mean prediction for so many rows."""
    return np.repeat(artifact.prior[None], rows, axis=0)


def _collecting(broken: dict[str, str], total: int, config: Config) -> Report:
    """Return a function that collects what cannot be read in `broken`, and refuses the test set as
    soon as that is too much.

    What is not finite counts at the end only: float32 may compute it.
    """

    def report(found: Mapping[str, str], done: int) -> None:
        broken.update(found)
        read = {name: why for name, why in broken.items() if why != NOT_FINITE}
        refuse_broken(read, done, total, config)

    return report


def refuse_broken(broken: Mapping[str, str], done: int, total: int, config: Config) -> None:
    """Raise `DataError` if that is too much: one in ten, or in the scored rerun, where nobody could
    fix it, all.
    """
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, done, config.data))


def _computed_again(first: Predictions, again: Predictions, prior: np.ndarray) -> Predictions:
    """Return predictions of a second pass, and of the first one what there was no time for."""
    kept = (again.values == prior).all(axis=tuple(range(1, prior.ndim + 1)))
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
) -> Predictions:
    return Predictions(test, values, tuple(artifact.target.best(values)), broken, left_out)


def warn(found: Predictions, show: Show) -> None:
    """Say which rows have the mean prediction, if any have."""
    rows, broken = len(found.test), found.broken
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {rows} inputs cannot be read"
            f" and get the mean prediction: {listed}"
        )
    if found.left_out:
        show(f"Warning: time was up; {found.left_out:,} of {rows:,} rows have the mean prediction")


def _here(
    artifact: Artifact, test: TestSet, forward: Forward, limit: Limit, work: Work
) -> tuple[Predictions, float]:
    """Return predictions that this process computes, and when the first block was there."""
    values, broken = mean_of(artifact, len(test)), dict[str, str]()
    collect, first = _collecting(broken, len(test), artifact.config), list[float]()

    def report(found: Mapping[str, str], done: int) -> None:
        if not first:
            first.append(work.clock())
        collect(found, done)

    done = block_prediction.fill(
        artifact,
        test,
        forward,
        values,
        limit=limit,
        batch=work.batch,
        clock=work.clock,
        report=report,
        show=work.show,
    )
    made = _predictions(artifact, test, values, broken, len(test) - done)
    return made, first[0] if first else work.clock()


def _shared(
    artifact: Artifact, test: TestSet, limit: Limit, precision: str, work: Work
) -> tuple[Predictions, list[restoring.Checked]]:
    """Return predictions that several processes compute, and the golden checks; the rows that they
    do not compute, this process computes if there is time.
    """
    values, broken = mean_of(artifact, len(test)), dict[str, str]()
    report = _collecting(broken, len(test), artifact.config)
    settings = multi_gpu.Settings(str(work.folder.absolute()), precision, limit, work.batch)
    missing, checked = multi_gpu.run(
        artifact, settings, values, work.processes, report=report, show=work.show
    )
    left_out = sum(map(len, missing))
    if missing and (limit.end is None or time.monotonic() < limit.end):
        forward, found = restoring.restore(artifact, precision, work.show)
        checked.append(found)
        fill = partial(block_prediction.fill, artifact, test, forward, batch=work.batch)
        for part in missing:
            work.show(f"Rows {part.start:,} to {part.stop - 1:,} are computed here")
            own = values[part.start : part.stop]
            left_out -= fill(own, first=part.start, limit=limit, report=report, show=work.show)
    return _predictions(artifact, test, values, broken, left_out), checked

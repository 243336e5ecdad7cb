"""Determine whether a kernel needs a new session, and what that session resumes from.

This depends on the pushes in the journal, the status of their runs, and their pulled outputs.
Versions are never looked up as "the latest". A training bundle contains the SHA-256 of everything
that it resumes from (docs/decisions/0007). Decoded images and the cells of a benchmark are not
pinned, because they are verified when they are used.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy import output
from deploy.bundle import Code
from deploy.client import Kaggle
from deploy.decoding import log_lines
from deploy.errors import Busy, NotFound, RunFailed, Unknown, UsageError
from deploy.events import Note, Steps
from deploy.journal import PUSH, Request, State
from deploy.output import DATASET, KERNEL, SavedProgress
from deploy.project import BENCH, PAIR, PREPARE, SHAPES, TRAIN
from deploy.push import status_of
from deploy.records import Records, run_of
from deploy.runs import ENDED, NOT_MOUNTED, Run

LOOKS = 3  # attempts to pull a run that has just ended, because Kaggle may need a minute
NOTHING = "nothing"  # value of `left` for runs that saved no progress


@dataclass(frozen=True)
class Base:
    """The saved progress that a session resumes from.

    `route` specifies how the progress is passed to the next session. With "kernel", the run's own
    output is mounted. With "dataset", the pulled files are uploaded as a private dataset.
    """

    run: Run
    folder: Path
    progress: SavedProgress
    route: str


@dataclass(frozen=True)
class Next:
    """A kernel's next session.

    Attributes:
        again: whether to push even if a version with this bundle exists, because that version did
            not finish.
        run, status: existing run and its status, or None if a new session has to be pushed.
        base: what a training run resumes from.
        kernels: other kernels whose output is mounted.
    """

    again: bool
    run: Run | None = None
    status: str = ""
    base: Base | None = None
    kernels: Sequence[str] = ()


def following(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next session of a kernel with this code.

    With `again`, training continues without decoded images if Kaggle does not report whether any
    exist. With `fresh`, all earlier sessions are ignored.
    """
    if code.kernel == TRAIN:
        return (yield from _training(kaggle, records, code, again=again, fresh=fresh))
    if code.kernel in (PREPARE, BENCH) and not fresh:
        return (yield from _resumed(kaggle, records, code))
    return Next(again=fresh)


# Training


def _training(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next training session.

    If the last run is active or complete, and has this code, it is returned. If it has different
    code, training starts from scratch. A run that is neither active nor complete is resumed.
    """
    images = ""
    try:
        images = yield from _prepared_images(kaggle, records)
    except Unknown as error:
        if not (again or fresh):
            raise
        yield Note(f"{str(error).splitlines()[0]}\n--again: no decoded images will be mounted.")
    kernels = [images] if images else []
    if fresh:
        return Next(True, kernels=kernels)
    state = yield from training_state(kaggle, records)
    if state.run is not None:
        row = records.push_of(state.run)
        same = row is not None and row.code_sha256 == code.sha256
        return replace(state, kernels=kernels) if same else Next(False, kernels=kernels)
    base = state.base
    if base is not None:
        way = "its output" if base.route == KERNEL else "its checkpoint, sent as a dataset"
        yield Note(
            f"{base.run} is {base.progress}. Resuming from {way}. To start over, use --fresh"
        )
    return replace(state, kernels=kernels)


def training_state(kaggle: Kaggle, records: Records) -> Steps[Next]:
    """Return this config's last training run, or the progress from which its next session resumes.

    The run is returned if it is active or complete. Otherwise its output is pulled, so that the
    next session can resume from it.

    Complete checkpoints in the output of a failed run are also used. If the run made no progress
    beyond the checkpoint that it resumed from, the previous run is used instead. The previous run
    is also used if the last run is queued for a different machine than the requested one.
    """
    pushed = _pushes_of_training(kaggle, records)
    rows = [row for row in pushed if row.is_made]
    by_version = {row.number: row for row in reversed(rows)}
    handle = records.handle(kaggle.username, TRAIN)
    # Kaggle mounts a notebook's newest output, but several configs may share the notebook.
    theirs = [r.number for r in records.made(handle=handle) if r.config != records.project.name]
    own_output_works = not any(
        row.state == State.INCOMPLETE or (row.route == KERNEL and row.left == NOTHING)
        for row in pushed
    )
    row, waits, failed = rows[0] if rows else None, False, False
    while row is not None:
        run, before = run_of(row), by_version.get(row.base)
        status = status_of(kaggle, row)
        pair = records.project.runtime == PAIR
        if status == "QUEUED" and run.machine_shape and pair != (run.machine_shape == SHAPES[PAIR]):
            waits = True
        elif status and status not in ENDED:
            return Next(False, run, status)
        else:
            if status:  # otherwise Kaggle has lost the run, but earlier outputs may exist locally
                folder, found = yield from saved_output(kaggle, records, run, status)
                if found is not None and found.complete:
                    return Next(False, run, status)
                if found and folder and (before is None or found.step > before.step):
                    newest = run.version > max(theirs, default=0)
                    direct = status == "COMPLETE" and own_output_works and newest and not failed
                    route = KERNEL if direct else DATASET
                    return Next(not waits, base=Base(run, folder, found, route))
            failed = True  # change the route after a session without progress
        row = before
    return Next(False)


def saved_output(
    kaggle: Kaggle, records: Records, run: Run, status: str
) -> Steps[tuple[Path | None, SavedProgress | None]]:
    """Return the pulled folder of a finished run and its saved progress, and record the progress.

    Returns:
        (None, None) for a failed run that saved nothing, or (None, progress) for a complete run,
        which is not pulled here.
    """
    row = records.push_of(run)
    if row is not None and row.left == NOTHING:
        return None, None
    try:
        folder = records.pulled_folder(run)
    except UsageError:
        if status == "COMPLETE" and (yield from progress_of(kaggle, run)) == "complete":
            return None, SavedProgress()
        try:
            folder = yield from _pull_patiently(kaggle, records, run)
        except RunFailed:
            if status == "COMPLETE":
                raise
            yield Note(f"{run} ended as {status} without any output, so its progress is lost")
            if row is not None:
                records.journal.note(row, left=NOTHING, status=row.status or status)
            return None, None
    return folder, note_progress(records, run, folder)


def note_progress(records: Records, run: Run, folder: Path) -> SavedProgress | None:
    found, row = output.saved_progress(folder), records.push_of(run)
    if row is not None:
        left = str(found) if found else NOTHING
        step = found.step if found else 0
        records.journal.record(row, State.PULLED, folder=str(folder), step=step, left=left)
    return found


def in_vain(kaggle: Kaggle, records: Records) -> int:
    rows = [row for row in _pushes_of_training(kaggle, records) if row.is_made]
    steps = {row.number: row.step for row in rows}

    def further(row: Request) -> bool:
        return not row.base or row.left in ("", "complete") or row.step > steps.get(row.base, 0)

    return next((count for count, row in enumerate(rows) if further(row)), len(rows))


def progress_of(kaggle: Kaggle, run: Run, *, wait: bool = False) -> Steps[str]:
    """Return a finished run's progress without downloading its output.

    With `wait`, this waits until Kaggle lists the files of a complete run.

    Returns:
        "complete", "partial, step 40 of 120", or "" if its files and log do not show it.
    """
    try:
        if wait:
            files, log = yield from output.listed(kaggle, run)
        else:
            files, log = kaggle.kernel_output(run.handle, run.version)
    except NotFound:
        return ""
    return output.progress_in_words(list(files), log_lines(log))


def _pushes_of_training(kaggle: Kaggle, records: Records) -> list[Request]:
    handle = records.handle(kaggle.username, TRAIN)
    rows = records.journal.requests(PUSH, handle=handle, **records.project.ours)
    # Skip sessions that could not find what they resume from, so that they are pushed again.
    return [row for row in rows if not (row.base and row.is_made and row.status == NOT_MOUNTED)]


def _pull_patiently(kaggle: Kaggle, records: Records, run: Run) -> Steps[Path]:
    # The run may have just ended, or another terminal may be pulling it.
    for _ in range(LOOKS - 1):
        try:
            return (yield from output.pull(kaggle, run, records.project.runs))
        except Busy as error:
            yield Note(f"{str(error).splitlines()[0]} Trying again")
            time.sleep(kaggle.pace.most)
        except RunFailed:
            time.sleep(kaggle.pace.most)
    return (yield from output.pull(kaggle, run, records.project.runs))


def _prepared_images(kaggle: Kaggle, records: Records) -> Steps[str]:
    # "" means that training decodes the images itself.
    project, journal = records.project, records.journal
    handle = records.handle(kaggle.username, PREPARE)
    refused = journal.last(
        PUSH, kernel=TRAIN, competition=project.competition, state=State.INCOMPLETE
    )
    for row in records.made(handle=handle) if project.decoding else []:
        run, status = run_of(row), status_of(kaggle, row)
        if status is None:
            journal.record(row, State.ABSENT)
        elif status == "COMPLETE":  # Kaggle mounts the newest complete version
            left = row.left or (yield from progress_of(kaggle, run, wait=True))
            journal.record(row, State.ENDED, status=status, left=left)
            prepare = "push-prepare"
            if refused is not None and refused.id > row.id:
                why = "Kaggle has since refused one of a training run's sources"
                prepare += " --again"
            elif left != "complete":
                why = f"it is {left}" if left else "it contains no images"
            elif row.decoding != project.decoding:
                why = "its images differ or have a different size"
            else:
                yield Note(f"Training will use the images decoded by {run}.")
                return handle
            yield Note(f"{run} is not mounted: {why}. To prepare: {project.command(prepare)}")
            return ""
        elif status not in ENDED:
            yield Note(f"{run} is {status}. Training will not wait for it.")
    return ""


# Preparation and benchmarks, which resume from their own output


def _resumed(kaggle: Kaggle, records: Records, code: Code) -> Steps[Next]:
    """Return the next session of a preparation or benchmark.

    If the last run on this kind of machine is active or complete, it is returned. For a benchmark,
    this is the last run with the same grid. Otherwise, the session mounts the output of earlier
    runs on any machine.
    """
    handle = records.handle(kaggle.username, code.kernel)
    rows = records.made(handle=handle)
    here = [row for row in rows if row.machine_shape == records.project.machine_shape]
    # Only the newest preparation is relevant, because Kaggle mounts that one.
    same = [row for row in here if row.code_sha256 == code.sha256 and code.kernel == BENCH]
    row = next(iter([*same, *here]), None)
    status = status_of(kaggle, row) if row is not None else None
    there = status == "COMPLETE" or any(
        status_of(kaggle, other) == "COMPLETE" for other in rows if other is not row
    )
    kernels = [handle] if there else []
    if row is not None and status is not None:
        last, active, progress = run_of(row), status not in ENDED, ""
        if status == "COMPLETE":
            progress = (yield from progress_of(kaggle, last, wait=True)) or status
        if (active or progress == "complete") and row.code_sha256 == code.sha256:
            return Next(False, last, status, kernels=kernels)
        if progress:
            yield Note(f"{last} is {progress}. Using its output. To start over, use --fresh")
        elif not active:
            yield Note(f"{last} is {status}. Its output cannot be mounted, so it will be rebuilt.")
    return Next(again=row is not None, kernels=kernels)

"""What the next session of a kernel takes of those before.

Reads  the journal's pushes, what Kaggle says of their runs, and their pulled outputs
Gives  a `Next`: the run that is this session already, or what a new one resumes from and mounts

Nothing is ever "the latest": the bundle of a training carries the sha256 of all that it resumes
from (docs/decisions/0007). Decoded images and a benchmark's cells prove themselves, so nothing of
them is pinned.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import output, saved
from deploy.bundle import Code
from deploy.client import Kaggle
from deploy.decoding import log_lines
from deploy.errors import NotFound, RelayError, RunFailed, Unverified, UsageError
from deploy.events import Note, Steps
from deploy.journal import PUSH, Absent, Ended, Pulled, Request, State
from deploy.project import BENCH, PAIR, PREPARE, SHAPES, TRAIN, Project
from deploy.pull import pull
from deploy.push import status_of
from deploy.records import Records, run_of
from deploy.runs import ENDED, NOT_MOUNTED, Run
from deploy.saved import DATASET, KERNEL, SavedProgress

LOOKS = 3  # at the output of a run that has just ended: Kaggle may need a minute
NOTHING = "nothing"  # in the column `left`: the run saved no progress
TRIES = 2  # sessions in a row that may get no further
ALL_MEASURED = "complete.json"  # in the output of a benchmark that left no cell


@dataclass(frozen=True)
class Base:
    """What a session resumes from.

    Attributes:
        run: the run that saved it. folder: its pulled output.
        progress: what that holds.
        route: how it reaches the next session: "kernel", the run's own output as a source; or
            "dataset", the pulled files as a private dataset.
    """

    run: Run
    folder: Path
    progress: SavedProgress
    route: str


@dataclass(frozen=True)
class Next:
    """The next session of a kernel.

    Attributes:
        again: push it even if a version holds it: that one did not get to its end.
        run, status: the run that is this session already, and its status; None: push a new one.
        base: what a training resumes from.
        kernels: whose output is mounted, too.
    """

    again: bool
    run: Run | None = None
    status: str = ""
    base: Base | None = None
    kernels: Sequence[str] = ()


def following(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next session of a kernel.

    Args:
        code: that it would run.
        again: push even if the current version already holds this bundle, or Kaggle does not tell.
        fresh: take nothing of an earlier session.
    """
    find = {PREPARE: _preparation, TRAIN: _training, BENCH: _benchmark}.get(code.kernel)
    if find is None:
        return Next(again or fresh)
    return (yield from find(kaggle, records, code, again=again, fresh=fresh))


# A training


@dataclass(frozen=True)
class TrainingState:
    """Where a training stands.

    Attributes:
        base: what the next session resumes from, or what `run` did; None for a run that begins.
        run: the last run, if it is active or complete; None if a new one has to be pushed.
        status: of that run.
    """

    base: Base | None
    run: Run | None
    status: str = ""


def _training(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next session: the run that is active or complete, if it has this code; else what
    resumes from the last one. Where something was changed since, the training starts over.
    """
    images = yield from _prepared_images(kaggle, records, again=again or fresh)
    kernels = [images] if images else []
    if fresh:
        return Next(True, kernels=kernels)
    state = yield from training_state(kaggle, records, again=again)
    if state.run is not None:
        row = records.push_of(state.run)
        same = row is not None and row.code_sha256 == code.sha256
        moves = waits_elsewhere(records.project, state)
        if same and not again and not moves:
            return Next(False, state.run, state.status)
        return Next(again, base=state.base if same and not again else None, kernels=kernels)
    if state.base is None:
        return Next(again, kernels=kernels)
    base = state.base
    way = "its own output" if base.route == KERNEL else "a dataset"
    yield Note(
        f"{base.run} is {base.progress}. Resuming from it, through {way}; to start over: --fresh"
    )
    return Next(True, base=base, kernels=kernels)


def training_state(
    kaggle: Kaggle, records: Records, *, again: bool = False
) -> Steps[TrainingState]:
    """Return where the training of this config stands; pull what a partial run saved.

    A run that ended badly counts by the whole checkpoints in its output. If none of them is further
    than what it resumed from, the run before it counts.

    Args:
        again: as in `status_of`.
    """
    pushed = _pushes_of_training(kaggle, records)
    rows = [row for row in pushed if row.is_made]
    by_version = {row.number: row for row in reversed(rows)}
    own_output_works = not any(row.state == State.INCOMPLETE for row in pushed)
    row, failed = rows[0] if rows else None, False
    while row is not None:
        run, before = run_of(row), by_version.get(row.base)
        status = yield from status_of(kaggle, row, again=again)
        if status:  # else Kaggle has lost it; earlier outputs may still be here
            if status not in ENDED:
                base = yield from _base_of(kaggle, records, row, before)
                return TrainingState(base, run, status)
            folder, found = yield from saved_output(kaggle, records, run, status)
            if found is not None and found.complete:
                base = yield from _base_of(kaggle, records, row, before)
                return TrainingState(base, run, status)
            further = found is not None and (before is None or found.step > before.step)
            if found is not None and folder is not None and further:
                in_vain = any(_in_vain(row, by_version) for row in rows)
                direct = status == "COMPLETE" and own_output_works and not failed and not in_vain
                return TrainingState(Base(run, folder, found, KERNEL if direct else DATASET), None)
        row, failed = before, True  # what got no further once takes the other route
    return TrainingState(None, None)


def waits_elsewhere(project: Project, state: TrainingState) -> bool:
    """Return whether the last run waits in the queue of another machine than was asked for."""
    shape = state.run.machine_shape if state.run is not None else ""
    other = (shape == SHAPES[PAIR]) != (project.runtime == PAIR)
    return bool(shape) and other and state.status == "QUEUED"


def saved_output(
    kaggle: Kaggle, records: Records, run: Run, status: str
) -> Steps[tuple[Path | None, SavedProgress | None]]:
    """Return the pulled folder of a run that has ended and what is in it, and record that.

    Returns:
        (None, None) for a run that ended badly and saved nothing; (None, complete) for a complete
        one, which whoever needs it pulls.
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
            yield Note(f"{run} ended as {status} and left no output: {_lost(kaggle, run)}")
            if row is not None:
                records.journal.note(row, left=NOTHING, status=row.status or status)
            return None, None
    return folder, note_progress(records, run, folder)


def note_progress(records: Records, run: Run, folder: Path) -> SavedProgress | None:
    """Return what a training saved, and record it, for `status` and for the count of sessions
    without progress.
    """
    found, row = saved.read(folder), records.push_of(run)
    if row is not None:
        left = str(found) if found else NOTHING
        known = {"step": found.step if found else 0, "left": left}
        records.journal.record(row, Pulled(str(folder), known))
    return found


def progress_of(kaggle: Kaggle, run: Run, *, wait: bool = False) -> Steps[str]:
    """Return how far a run got that has ended, without a download.

    Args:
        wait: until Kaggle lists the files of a complete run.

    Returns:
        "complete", "partial, step 40 of 120", or "" if its files and its log do not say.
    """
    try:
        if wait:
            files, log = yield from output.listed(kaggle, run)
        else:
            files, log = kaggle.kernel_output(run.handle, run.version)
    except NotFound:
        return ""
    return saved.describe(list(files), log_lines(log))


def require_progress(kaggle: Kaggle, records: Records, last_error: str, command: str) -> None:
    """Raise `RunFailed` if two sessions in a row got no further than what they resumed from, and
    count them no more: whoever gives the command again has fixed something.

    Sessions that began a training are not among them: each of them ended the command that pushed
    it.

    Args:
        last_error: of the last session; "": none.
        command: that resumes.
    """
    rows = [row for row in _pushes_of_training(kaggle, records) if row.is_made]
    steps = {row.number: row.step for row in rows}
    vain: list[Request] = []
    for row in rows:
        further = row.left in ("", "complete") or row.step > steps.get(row.base, 0)
        if further or not row.base or row.base != rows[0].base or row.given_up:
            break
        vain.append(row)
    if len(vain) < TRIES:
        return
    for row in vain:
        records.journal.note(row, given_up=1)
    runs = ", ".join(str(run_of(row)) for row in reversed(vain))
    ended = f"The last error was:\n{last_error}\n" if last_error else ""
    raise RunFailed(
        f"{len(vain)} sessions in a row got no further than the checkpoint of version"
        f" {vain[0].base}: {runs}. Expected each to save a later step; no more quota is spent.\n"
        f"{ended}If they ended as COMPLETE, session_hours is too short for one step. Fix the cause,"
        f" then resume:\n{command}"
    )


def _pushes_of_training(kaggle: Kaggle, records: Records) -> list[Request]:
    handle = records.handle(kaggle.username, TRAIN)
    rows = records.journal.requests(PUSH, handle=handle, **records.project.ours)
    # A session that did not find what it resumes from is left out, so that it is pushed again.
    return [row for row in rows if not (row.base and row.is_made and row.status == NOT_MOUNTED)]


def _in_vain(row: Request, by_version: Mapping[int, Request]) -> bool:
    """Return whether a session got another's output as its source, and no further than that."""
    before = by_version.get(row.base)
    ended = row.left not in ("", "complete")
    return row.route == KERNEL and before is not None and ended and row.step <= before.step


def _lost(kaggle: Kaggle, run: Run) -> str:
    """Return in words what a run did of which nothing is left."""
    try:
        step = saved.last_step(kaggle.kernel_log(run.handle, run.version))
    except RelayError:
        step = ""  # it is only shown
    return f"what it did until {step} is lost" if step else "it did nothing that we know of"


def _pull_patiently(kaggle: Kaggle, records: Records, run: Run) -> Steps[Path]:
    """Pull the output of a run that may have ended just now: look again for what is missing."""
    for _ in range(LOOKS - 1):
        try:
            return (yield from pull(kaggle, run, records.project.runs))
        except RunFailed:
            time.sleep(kaggle.pace.most)
    return (yield from pull(kaggle, run, records.project.runs))


def _base_of(
    kaggle: Kaggle, records: Records, row: Request, before: Request | None
) -> Steps[Base | None]:
    """Return what this push resumed from; None if nothing."""
    if before is None:
        return None
    run = run_of(before)
    try:
        folder = records.pulled_folder(run)
    except UsageError:
        try:
            folder = yield from pull(kaggle, run, records.project.runs)
        except (RunFailed, Unverified, NotFound):
            return None
    found = saved.read(folder)
    return Base(run, folder, found, row.route or KERNEL) if found is not None else None


# A preparation


def _made_by(kaggle: Kaggle, records: Records, kernel: str) -> tuple[str, list[Request]]:
    """Return the address of a kernel, and its pushes that made a version, newest first."""
    handle = records.handle(kaggle.username, kernel)
    return handle, [row for row in records.journal.requests(PUSH, handle=handle) if row.is_made]


def _prepared_images(kaggle: Kaggle, records: Records, *, again: bool) -> Steps[str]:
    """Return the kernel whose decoded images a training mounts; "": it decodes them itself."""
    project, journal = records.project, records.journal
    if not project.decoding:
        return ""
    handle, rows = _made_by(kaggle, records, PREPARE)
    refused = journal.last(
        PUSH, kernel=TRAIN, competition=project.competition, state=State.INCOMPLETE
    )
    prepare = project.command("push-prepare")
    for row in rows:
        run, status = run_of(row), (yield from status_of(kaggle, row, again=again))
        if status is None:
            journal.record(row, Absent())
        elif status == "COMPLETE":  # Kaggle mounts the newest of these
            left = row.left or (yield from progress_of(kaggle, run, wait=True))
            journal.record(row, Ended(status, {"left": left}))
            if refused is not None and refused.id > row.id:
                yield Note(
                    f"{run} is not mounted: Kaggle refused a source of a training since then. To"
                    f" mount it again: {prepare} --again"
                )
            elif left != "complete":
                yield Note(
                    f"{run} is not mounted: it is {left or 'without images'}. To prepare: {prepare}"
                )
            elif row.decoding != project.decoding:
                yield Note(
                    f"{run} is not mounted: it is of other images, or of another size. To prepare:"
                    f" {prepare}"
                )
            else:
                yield Note(f"The training will take its images from {run}, which has decoded them.")
                return handle
            return ""
        elif status and status not in ENDED:
            yield Note(f"{run} is {status}: this training will not wait for it.")
    return ""


def _preparation(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next session: what is active or complete already, or what takes its images.

    Args:
        again: decode anew what has changed since the last one.
    """
    handle, rows = _made_by(kaggle, records, PREPARE)
    if fresh or not rows:
        return Next(again or fresh)
    last, status = run_of(rows[0]), (yield from status_of(kaggle, rows[0], again=again))
    progress = ""
    if status == "COMPLETE":
        progress = yield from progress_of(kaggle, last, wait=True)
    active = bool(status) and status not in ENDED
    same = rows[0].code_sha256 == code.sha256
    if not again and status and same and (active or progress == "complete"):
        return Next(False, last, status)
    if progress:
        yield Note(f"{last} is {progress}. Taking its images; to start over: --fresh")
    elif status and not active:
        yield Note(f"{last} is {status}. What it decoded cannot be mounted; this decodes it again.")
    complete = yield from _any_complete(kaggle, rows, again=again)
    return Next(True, kernels=[handle] if complete else [])


def _any_complete(kaggle: Kaggle, rows: Sequence[Request], *, again: bool) -> Steps[bool]:
    for row in rows:
        if (yield from status_of(kaggle, row, again=again)) == "COMPLETE":
            return True
    return False


# A benchmark


def _benchmark(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    """Return the next session, which mounts the benchmark's own output, where there is one: its
    cells lie there by config and devices, so one notebook serves every machine.
    """
    project, (handle, rows) = records.project, _made_by(kaggle, records, BENCH)
    here = [row for row in rows if row.machine_shape == project.machine_shape]
    own = next((row for row in here if row.code_sha256 == code.sha256), None)
    goes_on, whatever = again or fresh, again or fresh
    if own is not None and not whatever:
        run, status = run_of(own), (yield from status_of(kaggle, own))
        if status == "COMPLETE":
            files, _ = yield from output.listed(kaggle, run)
            goes_on = ALL_MEASURED not in files
        if status and (status not in ENDED or (status == "COMPLETE" and not goes_on)):
            return Next(False, run, status)
    there = not fresh and (yield from _any_complete(kaggle, rows, again=whatever))
    return Next(goes_on, kernels=[handle] if there else [])

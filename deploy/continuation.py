"""From where the next session of a training resumes.

Reads  the journal's pushes, what Kaggle says of their runs, and their pulled outputs
Gives  a `TrainingState`: the run that is still the one, or what the next one resumes from

Nothing is ever "the latest": the bundle carries the sha256 of all that it resumes from
(docs/decisions/0007).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import listing, look, output, saved_progress
from deploy.client import Kaggle
from deploy.errors import NotFound, RelayError, RunFailed, Unverified, UsageError
from deploy.journal import DONE, Outcome
from deploy.last_runs import NOT_MOUNTED, Pushes, Row, run_of, status_of
from deploy.project import PAIR, SHAPES, TRAIN, Project
from deploy.push_and_watch import SAVED, Run, Show
from deploy.responses import log_lines
from deploy.saved_progress import DATASET, KERNEL, SavedProgress

LOOKS = 3  # at the output of a run that has just ended: Kaggle may need a minute
NOTHING = "nothing"  # in the column `left`: the run saved no progress
REFUSED = Outcome.SOURCES_REFUSED
ENDED = (*look.ENDED, SAVED)


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


def find(kaggle: Kaggle, pushes: Pushes, *, show: Show, again: bool = False) -> TrainingState:
    """Return where the training of this config stands; pull what a partial run saved.

    A run that ended badly counts by the whole checkpoints in its output. If none of them is further
    than what it resumed from, the run before it counts.

    Args:
        again: as in `status_of`.
    """
    pushed = _pushes_of_training(kaggle, pushes)
    rows = [row for row in pushed if row["outcome"] == DONE and row["version"]]
    by_version = {row["version"]: row for row in reversed(rows)}
    own_output_works = not any(row["outcome"] == REFUSED for row in pushed)
    row, failed = rows[0] if rows else None, False
    while row is not None:
        run, before = run_of(row), by_version.get(row["base"])
        status = status_of(kaggle, row, again=again, show=show)
        if status:  # else Kaggle has lost it; earlier outputs may still be here
            if status not in ENDED:
                return TrainingState(_base_of(kaggle, pushes, row, before, show), run, status)
            folder, found = saved_output(kaggle, pushes, run, status, show=show)
            if found is not None and found.complete:
                return TrainingState(_base_of(kaggle, pushes, row, before, show), run, status)
            further = found is not None and (before is None or found.step > (before["step"] or 0))
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
    kaggle: Kaggle, pushes: Pushes, run: Run, status: str, *, show: Show
) -> tuple[Path | None, SavedProgress | None]:
    """Return the pulled folder of a run that has ended and what is in it, and record that.

    Returns:
        (None, None) for a run that ended badly and saved nothing; (None, complete) for a complete
        one, which whoever needs it pulls.
    """
    row = _row_of(pushes, run)
    if row is not None and row["left"] == NOTHING:
        return None, None
    try:
        folder = pushes.pulled_folder(run)
    except UsageError:
        if status == "COMPLETE" and progress_of(kaggle, run) == "complete":
            return None, SavedProgress(True, {}, {}, "", "", "", {})
        try:
            folder = _pull_patiently(kaggle, pushes.project, run, show)
        except RunFailed:
            if status == "COMPLETE":
                raise
            show(f"{run} ended as {status} and left no output: {_lost(kaggle, run)}")
            note(pushes, run, None)
            return None, None
    found = saved_progress.read(folder)
    note(pushes, run, found)
    return folder, found


def _lost(kaggle: Kaggle, run: Run) -> str:
    """Return in words what a run did of which nothing is left."""
    try:
        step = saved_progress.last_step(kaggle.kernel_log(run.handle, run.version))
    except RelayError:
        step = ""  # it is only shown
    return f"what it did until {step} is lost" if step else "it did nothing that we know of"


def note(pushes: Pushes, run: Run, found: SavedProgress | None) -> None:
    """Record what a run saved, for `status` and for the count of sessions without progress."""
    row = _row_of(pushes, run)
    if row is not None:
        pushes.note(row, step=found.step if found else 0, left=str(found) if found else NOTHING)


def progress_of(kaggle: Kaggle, run: Run, show: Show | None = None) -> str:
    """Return how far a run got that has ended, without a download.

    Args:
        show: to wait until Kaggle lists the files of a complete run, and to say so; None: no wait.

    Returns:
        "complete", "partial, step 40 of 120", or "" if its files and its log do not say.
    """
    try:
        files, log = (
            kaggle.kernel_output(run.handle, run.version)
            if show is None
            else listing.output(kaggle, run, show)
        )
    except NotFound:
        return ""
    return saved_progress.describe(list(files), log_lines(log))


def require_complete(project: Project, folder: Path) -> None:
    """Raise `UsageError` if this pulled folder is that of a partial training, without artifact."""
    found = saved_progress.read(folder)
    if found is not None and not found.complete:
        there = project.trained_on(output.of_bundle(folder, "machine_shape"))
        raise UsageError(
            f"{output.name_of(folder)} is {found}: there is no artifact yet; expected a complete"
            " training.\nTo resume it:\n"
            f"{there.command('push-train --until-done')}"
        )


def sessions_without_progress(kaggle: Kaggle, pushes: Pushes) -> list[Row]:
    """Return the last sessions that got no further than what they resumed from, newest first.

    Sessions that were reported once (`stop_counting`) are not among them, nor those that began a
    training: each of them ended the command that pushed it.
    """
    pushed = _pushes_of_training(kaggle, pushes)
    rows = [row for row in pushed if row["outcome"] == DONE and row["version"]]
    if not rows or not rows[0]["base"]:
        return []
    steps = {row["version"]: row["step"] or 0 for row in rows}
    found: list[Row] = []
    for row in rows:
        further = (
            row["left"] is None
            or row["left"] == "complete"
            or (row["step"] or 0) > steps.get(row["base"], 0)
        )
        if further or row["base"] != rows[0]["base"] or "given up" in (row["status"] or ""):
            break
        found.append(row)
    return found


def stop_counting(pushes: Pushes, rows: list[Row]) -> None:
    """Give these sessions up: whoever gives the command again has fixed something."""
    for row in rows:
        pushes.note(row, status=f"{row['status'] or 'ended'}, given up")


def _pushes_of_training(kaggle: Kaggle, pushes: Pushes) -> list[Row]:
    handle = pushes.handle(kaggle.username, TRAIN)
    rows = pushes.matching(handle=handle, **pushes.project.ours)
    # A session that did not find what it resumes from is left out, so that it is pushed again.
    unseen = {"outcome": DONE, "status": NOT_MOUNTED}
    return [row for row in rows if not row["base"] or not unseen.items() <= row.items()]


def _row_of(pushes: Pushes, run: Run) -> Row | None:
    return pushes.last(handle=run.handle, version=run.version, outcome=DONE)


def _in_vain(row: Row, by_version: Mapping[int, Row]) -> bool:
    """Return whether a session got another's output as its source, and no further than that."""
    before = by_version.get(row["base"])
    return (
        row["route"] == KERNEL
        and before is not None
        and row["left"] not in (None, "complete")
        and (row["step"] or 0) <= (before["step"] or 0)
    )


def _pull_patiently(kaggle: Kaggle, project: Project, run: Run, show: Show) -> Path:
    """Pull the output of a run that may have ended just now: look again for what is missing."""
    for _ in range(LOOKS - 1):
        try:
            return output.pull(kaggle, run, project.runs, show=show)
        except RunFailed:
            time.sleep(kaggle.pace.most)
    return output.pull(kaggle, run, project.runs, show=show)


def _base_of(
    kaggle: Kaggle, pushes: Pushes, row: Row, before: Row | None, show: Show
) -> Base | None:
    """Return what this push resumed from, so that its bundle can be rebuilt; None if nothing."""
    if before is None:
        return None
    run = run_of(before)
    try:
        folder = pushes.pulled_folder(run)
    except UsageError:
        try:
            folder = output.pull(kaggle, run, pushes.project.runs, show=show)
        except (RunFailed, Unverified, NotFound):
            return None
    found = saved_progress.read(folder)
    return Base(run, folder, found, row["route"] or KERNEL) if found is not None else None

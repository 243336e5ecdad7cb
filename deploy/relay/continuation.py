"""Onward: from where the next session of a training goes on, told by the journal, by Kaggle, and by
what was pulled.

Reads  the pushes of a config, newest first, and what each run left
Gives  a `Point`: the run that is still the one, or what to go on from and by which route

Nothing is ever "the latest": the bundle carries the sha256 of all that it goes on from
(docs/decisions/0007).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.client.responses import log_lines
from deploy.errors import Denied, NotFound, RelayError, RunFailed, Unverified, UsageError
from deploy.journal import DONE
from deploy.kernel import output, saved_progress
from deploy.kernel.push_and_watch import ENDED_BADLY, Run, Show
from deploy.kernel.saved_progress import DATASET, KERNEL, Left
from deploy.project import TRAIN, Project
from deploy.relay import last_runs, reconcile

LOOKS = 3  # at the output of a run that has just ended: Kaggle may need a minute
NOTHING = "nothing"
REFUSED = "SourcesRefused"
ENDED = ("COMPLETE", *(status for status in ENDED_BADLY if status != "CANCEL_REQUESTED"))


@dataclass(frozen=True)
class Base:
    """What a session goes on from: the run that left it, its pulled folder, and how it comes to the
    next one.

    `route`: "kernel", the run's own output as a source; or "dataset", the pulled files as a private
    dataset.
    """

    run: Run
    folder: Path
    left: Left
    route: str


@dataclass(frozen=True)
class Point:
    """Where a training stands.

    Attributes:
        base: what the next session goes on from, or what the one of `run` did; None for a run that
            begins.
        run: the last one, if it still goes or is complete; None where a new one has to be pushed.
        status: of that run.
    """

    base: Base | None
    run: Run | None
    status: str = ""


def point(kaggle: Kaggle, project: Project, *, show: Show) -> Point:
    """Return where the training of this config stands; pulls what a partial run left, if it was not
    pulled yet.

    A run that ended badly counts by the whole checkpoints in its output; without any that go
    further, the run before it does.
    """
    rows = _rows(kaggle, project)
    refused = any(row["outcome"] == REFUSED for row in rows)
    rows = [row for row in rows if row["outcome"] == DONE and row["version"]]
    by_version = {row["version"]: row for row in reversed(rows)}
    row, failed = rows[0] if rows else None, False
    while row is not None:
        run = _run(row)
        status = reconcile.status(kaggle, run.handle, run.version)
        if (
            status is None
        ):  # that Kaggle has it no more; what was pulled of those before it is still here
            failed, row = True, by_version.get(row["base"])
            continue
        if status not in ENDED:
            return Point(_base_of(kaggle, project, row, by_version, show), run, status)
        folder, found = look(kaggle, project, run, status, show=show)
        if found is not None and found.complete:
            return Point(_base_of(kaggle, project, row, by_version, show), run, status)
        before = by_version.get(row["base"])
        if (
            found is not None
            and folder is not None
            and (before is None or found.step > (before["step"] or 0))
        ):
            direct = status == "COMPLETE" and not (
                refused or failed or any(_in_vain(row, by_version) for row in rows)
            )
            return Point(Base(run, folder, found, KERNEL if direct else DATASET), None)
        failed, row = True, before  # what did not go further once shall go another way
    return Point(None, None)


def look(
    kaggle: Kaggle, project: Project, run: Run, status: str, *, show: Show
) -> tuple[Path | None, Left | None]:
    """Return the pulled folder of a run that has ended, and what is in it; (None, None) of one that
    ended badly and left nothing.
    """
    row = _row(project, run)
    if row is not None and row["left"] == NOTHING:
        return None, None
    try:
        folder = last_runs.pulled(project, run)
    except UsageError:
        if status == "COMPLETE" and glance(kaggle, run) == "complete":
            return None, Left(True, {}, {}, "", "", "", {})  # whoever needs it pulls it
        try:
            folder = pulled(kaggle, project, run, show=show)
        except RunFailed as error:
            if status == "COMPLETE":
                raise
            show(
                f"{run} ended as {status} and left nothing to go on from: {str(error).splitlines()[0]}"
            )
            note(project, run, None)
            return None, None
    found = saved_progress.read(folder)
    note(project, run, found)
    return folder, found


def pulled(kaggle: Kaggle, project: Project, run: Run, *, show: Show) -> Path:
    """Pull the output of a run that may have ended just now: what is not there yet is looked for
    again.
    """
    for _ in range(LOOKS - 1):
        try:
            return output.pull(kaggle, run, project.runs, show=show)
        except RunFailed:
            time.sleep(kaggle.pace.most)
    return output.pull(kaggle, run, project.runs, show=show)


def note(project: Project, run: Run, found: Left | None) -> None:
    """Record what the run left, for `status` and for the count of sessions that got no further."""
    row = _row(project, run)
    if row is not None:
        project.journal().note(
            "pushes",
            row["id"],
            step=found.step if found else 0,
            left=str(found) if found else NOTHING,
        )


def glance(kaggle: Kaggle, run: Run) -> str:
    """Return "complete" or "partial, step 40 of 120" of a run that has ended, without a download;
    "" where nothing tells.
    """
    try:
        files, log = kaggle.kernel_output(run.handle, run.version)
    except RelayError:
        return ""  # only shown, or looked at more closely
    return saved_progress.glance(list(files), log_lines(log))


def require_complete(project: Project, folder: Path) -> None:
    """Raise `UsageError` if this pulled folder is that of a partial training: it has nothing to
    publish or to infer with.
    """
    found = saved_progress.read(folder)
    if found is not None and not found.complete:
        raise UsageError(
            f"{output.name_of(folder)} is {found}: there is no artifact yet; expected a complete training.\n"
            f"To go on: invoke push-train --until-done --config {project.config}"
        )


def stuck(kaggle: Kaggle, project: Project) -> list[Mapping[str, Any]]:
    """Return the last sessions that got no further than what they went on from, newest first, as
    far as nobody gave up on them.
    """
    rows = [row for row in _rows(kaggle, project) if row["outcome"] == DONE and row["version"]]
    steps = {row["version"]: row["step"] or 0 for row in rows}
    found: list[Mapping[str, Any]] = []
    for row in rows:
        beyond = (
            row["left"] is None
            or row["left"] == "complete"
            or (row["step"] or 0) > steps.get(row["base"], 0)
        )
        if beyond or row["base"] != rows[0]["base"] or "given up" in (row["status"] or ""):
            break
        found.append(row)
    return found


def give_up(project: Project, rows: list[Mapping[str, Any]]) -> None:
    """Let these sessions count no more: whoever gives the command again has mended something."""
    for row in rows:
        project.journal().note("pushes", row["id"], status=f"{row['status'] or 'ended'}, given up")


def _in_vain(row: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> bool:
    """Return whether a session that got the output of another as its source got no further than
    that.
    """
    before = rows.get(row["base"])
    return (
        row["route"] == KERNEL
        and before is not None
        and row["left"] not in (None, "complete")
        and (row["step"] or 0) <= (before["step"] or 0)
    )


def _rows(kaggle: Kaggle, project: Project) -> list[dict[str, Any]]:
    handle = bundle.kernel_handle(kaggle.username, project.competition, TRAIN)
    return project.journal().recent(
        "pushes", last_runs.LOOK_BACK, handle=handle, config=project.name
    )


def _row(project: Project, run: Run) -> dict[str, Any] | None:
    return project.journal().last("pushes", handle=run.handle, version=run.version, outcome=DONE)


def _run(row: Mapping[str, Any]) -> Run:
    return Run(row["handle"], row["version"], row["url"] or "", row["bundle_sha256"])


def _base_of(
    kaggle: Kaggle,
    project: Project,
    row: Mapping[str, Any],
    rows: Mapping[int, Mapping[str, Any]],
    show: Callable[[str], None],
) -> Base | None:
    """Return what this push went on from, as it was, so that its bundle can be built again; None
    for a run that began.
    """
    before = rows.get(row["base"])
    if before is None:
        return None
    run = _run(before)
    try:
        folder = last_runs.pulled(project, run)
    except UsageError:
        try:
            folder = output.pull(kaggle, run, project.runs, show=show)
        except (RunFailed, Unverified, NotFound, Denied):
            return None
    found = saved_progress.read(folder)
    return Base(run, folder, found, row["route"] or KERNEL) if found is not None else None

"""Known: the runs that we pushed ourselves, and where their outputs were pulled to.

Reads  the journal, and the folders in `runs`
Gives  a `Run` by version, and a folder only where it holds what that run wrote
"""

from pathlib import Path
from typing import Any

from deploy.errors import UsageError
from deploy.journal import DONE, Journal
from deploy.kernel import output, push_and_watch
from deploy.kernel.push_and_watch import Run
from deploy.project import INFER, TRAIN, Project

LOOK_BACK = 100  # entries of the journal


def last_run(project: Project, kernel: str) -> Run:
    """Return the last run of this kernel and config that we pushed ourselves. Raises `UsageError`
    if there is none.
    """
    found = _last(project, kernel)
    return Run(found["handle"], found["version"], found["url"] or "", found["bundle_sha256"])


def last_pulled(project: Project, kernel: str) -> Path:
    """Return where the output of that run was pulled to. Raises `UsageError` if it was not, or is
    gone.
    """
    return pulled(project, last_run(project, kernel))


def pulled(project: Project, run: Run) -> Path:
    """Return where the output of this run was pulled to. Raises `UsageError` if it was not, is
    gone, or is another run's.
    """
    folder = project.runs / output.folder_name(run)
    if not folder.is_dir():
        raise UsageError(
            f"{run} has not been pulled; expected its output in {folder}.\n"
            f"Run: invoke pull --run {run} --config {project.config}"
        )
    if run.bundle_sha256 and (held := output.bundle_of(folder)) != run.bundle_sha256:
        raise UsageError(
            f"{folder} was written by bundle {held[:12] or 'none'}; {run} has {run.bundle_sha256[:12]}: it is another run's.\n"
            f"Pull again, which sets it aside: invoke pull --run {run} --config {project.config}"
        )
    told, journal = output.noted(folder), project.journal()
    if told is not None and (told.run, told.server) != (str(run), journal.server):
        raise UsageError(
            f"{folder} was pulled from {told.run} at {told.server}; expected {run} at {journal.server}.\n"
            f"Pull again, which sets it aside: invoke pull --run {run} --config {project.config}"
        )
    if told is not None and told.at < _made(journal, run):
        raise UsageError(
            f"{folder} was pulled before {run} was pushed: that Kaggle began anew since. Expected this run's output.\n"
            f"Pull again, which sets it aside: invoke pull --run {run} --config {project.config}"
        )
    return folder


def _made(journal: Journal, run: Run) -> str:
    """Return when we made this version; "" where somebody else did, or nobody knows."""
    rows = journal.recent("pushes", LOOK_BACK, handle=run.handle, version=run.version)
    return max(
        (
            str(row["at"])
            for row in rows
            if row["before"] is not None and row["before"] < run.version
        ),
        default="",
    )


def known_run(project: Project, named: str | None, kernel: str) -> Run:
    """Return the run named as `owner/slug/version`, with what the journal knows of it, or the last
    one of `kernel`.

    Raises:
        UsageError: if nothing is named and there is no such kernel, or no last run of it; or if the
            name is none.
    """
    if not named and kernel not in (TRAIN, INFER):
        raise UsageError(
            f"--kernel {kernel[:80]!r}: there is no such notebook; expected {TRAIN} or {INFER}.\nCorrect it, or name a run: --run owner/slug/version"
        )
    if not named:
        return last_run(project, kernel)
    run = push_and_watch.parse(named)
    found = project.journal().last("pushes", handle=run.handle, version=run.version)
    return (
        Run(run.handle, run.version, found["url"] or "", found["bundle_sha256"]) if found else run
    )


def _last(project: Project, kernel: str) -> dict[str, Any]:
    """Return the newest push, which must have become a version: an older one is not what the user
    means.
    """
    found = project.journal().last("pushes", kernel=kernel, config=project.name)
    task = "push-train" if kernel == TRAIN else "push-infer"
    if found is None:
        raise UsageError(
            f"The journal in {project.runs} knows no push of {kernel} with the config {project.name}.\n"
            f"Run: invoke {task} --config {project.config}, or name a run: --run owner/slug/version"
        )
    if found["outcome"] != DONE:
        raise UsageError(
            f"The last push of {kernel} made no version that we know of (it ended as {found['outcome']}).\n"
            f"Run: invoke {task} --config {project.config}, or name the run that you mean: --run owner/slug/version"
        )
    return found

"""Next steps: the command that follows a run.

Reads  a pulled folder, and the journal
Gives  what to type next; and of which kernel a run is
"""

from pathlib import Path

from deploy import output, saved_progress
from deploy import submit as submissions
from deploy.errors import UsageError
from deploy.journal import DONE
from deploy.last_runs import Pushes, Row, run_of
from deploy.project import BENCH, INFER, PREPARE, PUSHED_BY, TRAIN, Project
from deploy.push_and_watch import Run


def next_command(project: Project, run: Run, folder: Path) -> str:
    """Return the command that follows a pull; "" if the run is not ours, or an older training."""
    kernel = kernel_of(project, run)
    if kernel == INFER:
        if not (folder / submissions.FILE).is_file():
            return project.command("push-infer")
        return project.command(f"submit --run {run}")
    if kernel == PREPARE:
        progress = saved_progress.describe([path.name for path in folder.iterdir()], [])
        return after_preparation(project, progress)
    if kernel == BENCH:
        return "invoke bench-report"
    if kernel != TRAIN:
        return ""
    found = saved_progress.read(folder)
    if found is None or not found.complete:
        there = project.trained_on(output.of_bundle(folder, "machine_shape"))
        return there.command("push-train --until-done" if found else "push-train")
    last = project.journal().last("pushes", kernel=TRAIN, **project.ours)
    if last is None or (last["handle"], last["version"]) != (run.handle, run.version):
        return ""  # the steps that follow take the last one
    return project.command("publish" if project.handoff == "dataset" else "push-infer")


def after(project: Project, row: Row) -> str:
    """Return the command that follows a push whose run is complete; "" if nothing does.

    Args:
        row: of the journal, the newest push of this config.
    """
    run, journal = run_of(row), project.journal()
    if row["kernel"] == PREPARE:
        return after_preparation(project, "complete")
    try:
        folder = Pushes(project).pulled_folder(run)
    except UsageError:
        return project.command(f"pull --run {run}")
    of_run = {"handle": run.handle, "kernel_version": run.version}
    if row["kernel"] == INFER and journal.last("submissions", sent=1, **of_run):
        return ""
    published = journal.last("publishes", config=project.name, outcome=DONE)
    if row["kernel"] == TRAIN and published and published["at"] >= row["at"]:
        return project.command("push-infer")
    return next_command(project, run, folder)


def after_preparation(project: Project, progress: str) -> str:
    """Return the command that follows a preparation that is "complete", or got that far."""
    return project.command("push-train" if progress == "complete" else "push-prepare")


def kernel_of(project: Project, run: Run) -> str:
    """Return which of the project's kernels this run is of; "" for any other."""
    owner = run.handle.partition("/")[0]
    pushes = Pushes(project)
    kernels = {pushes.handle(owner, name): name for name in PUSHED_BY}
    return kernels.get(run.handle, "")

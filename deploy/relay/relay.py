"""Relay: the whole chain, and its single steps as the tasks call them.

Reads  a `Project`, and the journal of what was made before Gives  train: build → push → watch →
pull → publish; then infer: build → push → watch → pull → submit

Each step takes what the one before it made from the journal, by version; so the chain can be left
and entered anywhere.
"""

import csv
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.bundle import bundle
from deploy.bundle.bundle import Bundle
from deploy.client.client import Kaggle
from deploy.errors import RunFailed, SourcesRefused, UsageError
from deploy.journal import DONE, NOT_MADE
from deploy.kernel import artifact_manifest, output, push_and_watch, saved_progress
from deploy.kernel.push_and_watch import Run, Show
from deploy.kernel.saved_progress import DATASET, KERNEL
from deploy.project import INFER as INFER
from deploy.project import TRAIN as TRAIN
from deploy.project import Project as Project
from deploy.relay import competition_rules, continuation, dataset_upload, push_preview, reconcile
from deploy.relay import submit as submissions
from deploy.relay.continuation import Base
from deploy.relay.last_runs import LOOK_BACK
from deploy.relay.last_runs import known_run as known_run
from deploy.relay.last_runs import last_pulled as last_pulled
from deploy.relay.last_runs import last_run as last_run
from deploy.relay.last_runs import pulled as pulled
from deploy.relay.publish import FILES_AT_MOST, DatasetVersion
from deploy.relay.push_preview import Preview
from deploy.relay.submit import Check, Submission

Agree = Callable[[Preview], None]

SESSION_SECONDS = 9 * 3600  # Kaggle's cap for both accelerators


@dataclass(frozen=True)
class Result:
    """What the chain made. `dataset` is None where the train kernel's output was mounted instead."""

    train: Run
    dataset: DatasetVersion | None
    infer: Run
    trained: Path
    inferred: Path
    submission: Submission
    seconds: float

    @property
    def file(self) -> Path:
        """The submission.csv that was scored."""
        return self.inferred / submissions.FILE

    @property
    def pictures(self) -> list[Path]:
        """The pictures that both runs drew."""
        return sorted([*self.trained.glob("*.png"), *self.inferred.glob("*.png")])

    def values(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes. `rows`: of the submission, without its header."""
        with self.file.open(encoding="utf-8", newline="") as file:
            rows = sum(1 for row in csv.reader(file) if row) - 1
        return {
            "submission": str(self.file),
            "rows": rows,
            "score": self.submission.score,
            "train_kernel": self.train.handle,
            "train_version": self.train.version,
            "dataset": self.dataset.handle if self.dataset else None,
            "dataset_version": self.dataset.version if self.dataset else None,
            "infer_kernel": self.infer.handle,
            "infer_version": self.infer.version,
            "pictures": [str(path) for path in self.pictures],
            "seconds": round(self.seconds, 1),
        }


def run(
    kaggle: Kaggle, project: Project, *, show: Show, check: Check, agree: Agree | None = None
) -> Result:
    """Run the whole chain. Each step raises as its module says; the tasks go on from where it
    stopped.

    Args:
        show: is given one line a step, and what the steps themselves show.
        check: as in `deploy.relay.submit.submit`. agree: as in `push`, before each of the two.
    """
    began = time.monotonic()

    def step(text: str) -> None:
        show(f"[{time.monotonic() - began:6.1f} s] {text}")

    step(f"Push {TRAIN} for the competition {project.competition}")
    train = push(kaggle, project, TRAIN, show=show, agree=agree)
    step(f"Watch {train}")
    watch(kaggle, project, train, show=show)
    step(f"Pull {train}")
    trained = pull(kaggle, project, train, show=show)
    published = None
    if project.handoff == "dataset":
        step(f"Publish the artifact of {train} as a dataset")
        published = publish(kaggle, project, train, trained, show=show)
    step(f"Push {INFER}, which accepts this artifact alone")
    infer = push(kaggle, project, INFER, artifact=trained / output.ARTIFACT, show=show, agree=agree)
    step(f"Watch {infer}")
    watch(kaggle, project, infer, show=show)
    step(f"Pull {infer}")
    inferred = pull(kaggle, project, infer, show=show)
    step(f"Check and submit {infer}")
    scored = submit(kaggle, project, infer, inferred, check=check, show=show)
    step(f"Score {scored.score}")
    return Result(train, published, infer, trained, inferred, scored, time.monotonic() - began)


def build(
    project: Project,
    kernel: str,
    owner: str,
    *,
    artifact: Path | None = None,
    base: Base | None = None,
) -> Bundle:
    """Build the bundle of a kernel; one that infers is told which artifact to accept, a training
    what to go on from.
    """
    expect: Mapping[str, Any] | None = base.left.expect(base.route) if base is not None else None
    if kernel == INFER:
        if artifact is None:
            raise UsageError(
                f"{INFER} needs the artifact that it shall accept; expected a folder.\nRun: invoke pull"
            )
        if not artifact.exists():
            continuation.require_complete(project, artifact.parent)
        found = artifact_manifest.verify(artifact)
        expect = {"run_id": found.run_id, "weights_sha256": found.weights_sha256}
    return bundle.build(
        kernel,
        config=project.config,
        competition=project.competition,
        owner=owner,
        out=project.builds,
        root=project.root,
        handoff=base.route if base is not None else project.handoff,
        expect=expect,
        kernels=project.kernels,
        needs=project.needs,
    )


def push(
    kaggle: Kaggle,
    project: Project,
    kernel: str,
    *,
    show: Show,
    artifact: Path | None = None,
    again: bool = False,
    fresh: bool = False,
    agree: Agree | None = None,
) -> Run:
    """Build and push a kernel, and record the version that Kaggle gave. A training that is partial
    goes on from what it left.

    Args:
        again: push also if the current version holds this bundle already.
        fresh: begin the training again, whatever an earlier run left.
        agree: is shown what the push would do, before anything is spent; raises to stop.

    Raises:
        UsageError, Denied: if the competition is not there, or its rules are not accepted. The run
            would be worth nothing.
    """
    base, built, again = _bundle(kaggle, project, kernel, artifact, show, again=again, fresh=fresh)
    if artifact is not None and project.handoff == "dataset":
        _require_published(kaggle, project, artifact)
    journal = project.journal()
    intent: dict[str, Any] = {
        "kernel": kernel,
        "config": project.name,
        "competition": project.competition,
        "handle": built.handle,
        "bundle_sha256": built.sha256,
        "git_commit": built.git_commit,
    }
    if base is not None:
        intent |= {"base": base.run.version, "route": base.route}
    known = None if again else reconcile.pushed(kaggle, project, built, show=show)
    if known is None and not again:
        known = push_and_watch.holding(kaggle, built)
        if known is not None:  # pushed from elsewhere, or by a journal that is gone
            with journal.recording("pushes", **intent) as outcome:
                outcome.update(version=known.version, url=known.url)
    if known is not None:
        push_and_watch.adopted(known, show)
        return known
    competition_rules.require(kaggle, project.competition)
    seen = push_preview.look(kaggle, built, journal)
    if agree is not None:
        agree(seen)
    if base is not None and base.route == DATASET:
        dataset_upload.checkpoint(kaggle, project, base.folder, base.left, show=show)
    try:
        with journal.recording("pushes", **intent, before=seen.version) as outcome:
            run = push_and_watch.push(
                kaggle, built, timeout_seconds=SESSION_SECONDS, again=again, show=show
            )
            outcome.update(version=run.version, url=run.url)
    except SourcesRefused as error:
        if base is None or base.route != KERNEL or "kernel_sources" not in error.kinds:
            raise
        journal.note("pushes", outcome["id"], version=error.version or None)
        show(
            f"{error}\nIt is the notebook's own output. What it left goes by a dataset in its place."
        )
        _ended(kaggle, project, Run(built.handle, error.version, "", built.sha256), show)
        return push(kaggle, project, kernel, show=show)  # it was agreed to
    if run.version <= seen.version:
        return run  # made meanwhile, in another window
    changed = ", with local changes" if built.git_dirty else ""
    show(
        f"{run} is pushed: bundle {built.sha256[:12]}, {built.size:,} bytes, commit {built.git_commit[:12] or 'none'}{changed}"
    )
    return run


def _bundle(
    kaggle: Kaggle,
    project: Project,
    kernel: str,
    artifact: Path | None,
    show: Show,
    *,
    again: bool,
    fresh: bool,
) -> tuple[Base | None, Bundle, bool]:
    """Return what this push goes on from, its bundle, and whether it makes a version even if an
    earlier one holds that.

    The bundle of the last run, if that is the one still, is built again: if it differs, something
    was changed since.
    """
    if kernel != TRAIN or fresh:
        return None, build(project, kernel, kaggle.username, artifact=artifact), again or fresh
    point = continuation.point(kaggle, project, show=show)
    base = None if point.run is not None and again else point.base
    built = build(project, kernel, kaggle.username, base=base)
    if base is not None and point.run is not None and built.sha256 != point.run.bundle_sha256:
        return None, build(project, kernel, kaggle.username), again
    further = base is not None and point.run is None
    if base is not None and further:
        way = "its own output" if base.route == KERNEL else "a dataset"
        show(
            f"{base.run} is {base.left}. This goes on from it, through {way}; to begin again: --fresh"
        )
    return base, built, again or further


def _ended(kaggle: Kaggle, project: Project, run: Run, show: Show) -> None:
    """Wait for the end of a run that cannot work: its session is the only one that Kaggle allows."""
    try:
        if run.version:
            watch(kaggle, project, run, show=show)
    except RunFailed:
        return


def watch(kaggle: Kaggle, project: Project, run: Run, *, show: Show) -> str:
    """Watch a run to its end, and record how it ended."""
    journal = project.journal()
    found = journal.last("pushes", handle=run.handle, version=run.version)
    status = "ERROR"
    try:
        status = push_and_watch.watch(
            kaggle,
            run,
            deadline_seconds=project.deadline_seconds,
            queue_seconds=project.queue_seconds,
            show=show,
        )
    except RunFailed:
        if found:
            journal.note("pushes", found["id"], status=status)
        raise
    if found:  # a run that somebody else pushed can be watched too, and leaves no record
        journal.note("pushes", found["id"], status=status)
    return status


def pull(kaggle: Kaggle, project: Project, run: Run, *, show: Show = lambda line: None) -> Path:
    """Pull a run's output into `runs` and return its folder; of a training, note how far it got."""
    folder = output.pull(kaggle, run, project.runs, show=show)
    if run.handle == bundle.kernel_handle(run.handle.partition("/")[0], project.competition, TRAIN):
        continuation.note(project, run, saved_progress.read(folder))
    return folder


def publish(
    kaggle: Kaggle, project: Project, run: Run, trained: Path, *, show: Show
) -> DatasetVersion:
    """Publish the artifact that this run wrote, from its pulled folder, and record its version."""
    artifact = trained / output.ARTIFACT
    continuation.require_complete(project, trained)
    handle = bundle.dataset_handle(kaggle.username, project.competition)
    found = artifact_manifest.verify(artifact)
    if run.bundle_sha256 and found.bundle_sha256 != run.bundle_sha256:
        raise UsageError(
            f"The artifact in {artifact} was made by bundle {found.bundle_sha256[:12] or 'none'}; {run} has {run.bundle_sha256[:12]}.\n"
            f"It is another run's. Pull again, which sets {trained.name} aside: invoke pull --run {run} --config {project.config}"
        )
    return dataset_upload.recorded(
        kaggle, project, artifact, handle, found.run_id, show=show, most=FILES_AT_MOST
    )


def submit(
    kaggle: Kaggle, project: Project, run: Run, inferred: Path, *, check: Check, show: Show
) -> Submission:
    """Check and submit a pulled inference, and record its score."""
    journal = project.journal()
    made = journal.recent("submissions", LOOK_BACK, handle=run.handle, kernel_version=run.version)
    last = next((row for row in made if row["sent"] or row["ref"]), None)
    with journal.recording(
        "submissions",
        config=project.name,
        competition=project.competition,
        handle=run.handle,
        kernel_version=run.version,
    ) as outcome:
        scored = submissions.submit(
            kaggle,
            run,
            project.competition,
            submission=inferred / submissions.FILE,
            check=check,
            sample=project.sample,
            message=project.name,
            deadline_seconds=project.deadline_seconds,
            show=show,
            known=(last["ref"] or 0) if last else 0,
            unclear=last is not None and last["outcome"] not in (DONE, *NOT_MADE),
            sending=lambda: journal.note("submissions", outcome["id"], sent=1),
            sent=lambda ref: journal.note("submissions", outcome["id"], ref=ref),
        )
        outcome.update(ref=scored.ref, status=scored.status, score=scored.score)
    return scored


def after_pull(project: Project, run: Run, folder: Path) -> str:
    """Return the command that goes on from what a run wrote; empty where it is neither of ours nor
    the last training.
    """
    competition, (owner, _, _) = project.competition, run.handle.partition("/")
    if run.handle == bundle.kernel_handle(owner, competition, INFER):
        if not (folder / submissions.FILE).is_file():
            return f"invoke push-infer --config {project.config}"
        return f"invoke submit --run {run} --config {project.config}"
    if run.handle != bundle.kernel_handle(owner, competition, TRAIN):
        return ""
    found = saved_progress.read(folder)
    if found is None or not found.complete:
        return f"invoke push-train {'--until-done ' if found else ''}--config {project.config}"
    last = project.journal().last("pushes", kernel=TRAIN, config=project.name)
    if last is None or (last["handle"], last["version"]) != (run.handle, run.version):
        return ""  # the steps that follow take the last one
    step = "publish" if project.handoff == "dataset" else "push-infer"
    return f"invoke {step} --config {project.config}"


def _require_published(kaggle: Kaggle, project: Project, artifact: Path) -> None:
    """Raise `UsageError` unless the last thing that we published is this artifact, and current:
    Kaggle mounts the newest version.
    """
    held, handle = (
        artifact_manifest.verify(artifact),
        bundle.dataset_handle(kaggle.username, project.competition),
    )
    rows = project.journal().recent("publishes", LOOK_BACK, handle=handle)
    # One that sent nothing, or was refused, hides none before it.
    made = (
        row
        for row in rows
        if row["outcome"] == DONE or (row["before"] is not None and row["outcome"] not in NOT_MADE)
    )
    found = next(made, None)
    if found is None or found["outcome"] != DONE or found["run_id"] != held.run_id:
        raise UsageError(
            f"The artifact in {artifact} is not what was published last ({found['run_id'] if found else 'nothing'});"
            f" {INFER} would refuse what Kaggle mounts.\nRun: invoke publish --config {project.config}"
        )
    now = kaggle.dataset(handle)
    if now is None or now.version != found["version"]:
        raise UsageError(
            f"{handle} is at version {now.version if now else 'none'}; we published this artifact as version {found['version']}."
            f" {INFER} would refuse what Kaggle mounts.\nRun: invoke publish --config {project.config}"
        )

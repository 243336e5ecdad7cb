"""The whole chain, and its single steps as the tasks call them.

Reads  a `Project`, and the journal of what was made before
Gives  train: build → push → watch → pull, from session to session, → publish; then infer: build →
push → watch → pull → submit

Each step takes what the one before it made from the journal, by version, so the chain can be
stopped and resumed anywhere.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from deploy import (
    benchmark,
    bundle,
    competition_rules,
    continuation,
    ensemble_file,
    kernel_metadata,
    output,
    preparation,
    published,
    push_and_watch,
    push_preview,
    reconcile,
    saved_progress,
)
from deploy import publish as datasets
from deploy import submit as submissions
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.continuation import Base
from deploy.ensemble_file import Member
from deploy.errors import Cancelled, NotMounted, RunFailed, SourcesRefused, Unknown, UsageError
from deploy.journal import DONE
from deploy.last_runs import NOT_MOUNTED, Pushes, age, following
from deploy.next_steps import kernel_of
from deploy.next_steps import next_command as next_command
from deploy.project import BENCH as BENCH
from deploy.project import INFER as INFER
from deploy.project import PREPARE as PREPARE
from deploy.project import PUSHED_BY
from deploy.project import TRAIN as TRAIN
from deploy.project import Project as Project
from deploy.publish import DatasetVersion
from deploy.push_and_watch import Run, Show
from deploy.push_preview import Preview
from deploy.saved_progress import DATASET, KERNEL
from deploy.submit import Check, Spending, Submission

Agree = Callable[[Preview], None]

ONCE_MORE = "Pushing the same again, once: Kaggle may mount a new source in the second run only."
INFER_AT_MOST = 12 * 3600 - 60  # below Kaggle's cap for a GPU


@dataclass(frozen=True)
class Result:
    """What the chain made. `dataset` is None if the train kernel's output was mounted instead."""

    train: Run
    dataset: DatasetVersion | None
    infer: Run
    trained: Path
    inferred: Path
    submission: Submission
    seconds: float

    def values(self) -> dict[str, Any]:
        """Return it for `json.dumps`. `rows`: of the submission, without its header."""
        file = self.inferred / submissions.FILE
        pictures = sorted([*self.trained.glob("*.png"), *self.inferred.glob("*.png")])
        return {
            "submission": str(file),
            "rows": submissions.rows(file),
            "score": self.submission.score,
            "train_kernel": self.train.handle,
            "train_version": self.train.version,
            "dataset": self.dataset.handle if self.dataset else None,
            "dataset_version": self.dataset.version if self.dataset else None,
            "infer_kernel": self.infer.handle,
            "infer_version": self.infer.version,
            "pictures": [str(path) for path in pictures],
            "seconds": round(self.seconds, 1),
        }


def run(
    kaggle: Kaggle,
    project: Project,
    *,
    show: Show,
    check: Check,
    agree: Agree | None = None,
    agree_to_submit: Callable[[Spending], object] | None = None,
    pushed: Callable[[Run], object] = lambda run: None,
    fresh: bool = False,
    now: bool = False,
) -> Result:
    """Run the whole chain. Each step raises as it says; the same command resumes where it stopped,
    and so do the single tasks.

    Args:
        show: is called with one line a step, and with what the steps themselves show.
        check: as in `deploy.submit.submit`.
        agree: as in `push`, before the training's first session and before the inference.
        agree_to_submit: as `agree` of `deploy.submit.submit`.
        pushed: is called with each run of the training that is pushed.
        fresh: as in `deploy.chained_sessions.train`.
        now: as in `deploy.submit.submit`.
    """
    from deploy import chained_sessions  # which is made of the steps here

    began = time.monotonic()

    def step(text: str) -> None:
        show(f"[{time.monotonic() - began:6.1f} s] {text}")

    def watching(session: Run) -> None:
        pushed(session)
        step(f"Watch {session}")

    competition_rules.foresee(kaggle, project.competition, show)
    step(f"Push {TRAIN} for the competition {project.competition}")
    done = chained_sessions.train(
        kaggle,
        project,
        show=show,
        agree=agree,
        fresh=fresh,
        pushed=watching,
        follow=False,
        command=project.command("relay"),
    )
    train, trained, dataset = done.run, done.folder, None
    if project.handoff == "dataset":
        step(f"Publish the artifact of {train} as a dataset")
        dataset = publish(kaggle, project, train, trained, show=show)
    step(f"Push {INFER}, pinned to this model")
    push_infer = partial(
        push, kaggle, project, INFER, artifact=trained / output.ARTIFACT, show=show
    )
    infer = push_infer(agree=agree)
    step(f"Watch {infer}")
    infer = watch_mounted(kaggle, project, infer, push_infer, show)
    step(f"Pull {infer}")
    inferred = pull(kaggle, project, infer, show=show)
    step(f"Check and submit {infer}")
    scored = submit(
        kaggle, project, infer, inferred, check=check, show=show, agree=agree_to_submit, now=now
    )
    step(str(scored).capitalize())
    return Result(train, dataset, infer, trained, inferred, scored, time.monotonic() - began)


def push(
    kaggle: Kaggle,
    project: Project,
    kernel: str,
    *,
    show: Show,
    artifact: Path | None = None,
    members: Sequence[Member] = (),
    again: bool = False,
    fresh: bool = False,
    agree: Agree | None = None,
) -> Run:
    """Build and push a kernel, and record the version that Kaggle gave; resume a partial training.

    Args:
        artifact: the pulled artifact that an inference accepts.
        members: of the ensemble that it accepts instead.
        again: push even if the current version already holds this bundle, or Kaggle does not tell.
        fresh: start the training over, whatever an earlier run saved.
        agree: is called with what the push would do, before anything is spent; raises to stop.

    Raises:
        UsageError, Denied: if there is no such competition, its rules are not accepted, or the
            dataset is not there that a training begins with. The run would be worth nothing.
        Unknown: if Kaggle does not tell of a notebook of ours, which may run.
        Busy: if another process pushes from this project.
    """
    pushes = Pushes(project)
    with (
        pushes.journal.locked(PUSHED_BY.get(kernel, kernel), show),
        reconcile.naming_again(pushes, kernel),
    ):
        return _push(
            kaggle,
            project,
            kernel,
            show=show,
            artifact=artifact,
            members=members,
            again=again,
            fresh=fresh,
            agree=agree,
        )


def _push(
    kaggle: Kaggle,
    project: Project,
    kernel: str,
    *,
    show: Show,
    artifact: Path | None = None,
    members: Sequence[Member] = (),
    again: bool = False,
    fresh: bool = False,
    agree: Agree | None = None,
) -> Run:
    beside = again  # it was said to push, also beside what is active
    whatever = again or fresh  # and whatever runs there
    base = carried = None
    if kernel == PREPARE:
        following = preparation.next_session(
            kaggle, Pushes(project), again=again, fresh=fresh, show=show
        )
        built, again, carried = following.built, following.again, following.carried
    elif kernel == TRAIN:
        pushes = Pushes(project)
        prepared = preparation.sources(kaggle, pushes, again=whatever, show=show)
        if fresh:
            built, again = build(project, TRAIN, kaggle.username, prepared=prepared[0]), True
        else:
            base, built, again = _resume(kaggle, pushes, prepared, again=again, show=show)
    elif kernel == BENCH:
        built, again = benchmark.next_session(
            *(kaggle, Pushes(project)),
            lambda own: build(project, BENCH, kaggle.username, prepared="" if fresh else own),
            *(again or fresh, show),
        )
    else:
        built = build(project, kernel, kaggle.username, artifact=artifact, members=members)
        again = again or fresh
    if artifact is not None and project.handoff == "dataset":
        published.require_current(kaggle, project, artifact)
    for member in members:
        published.require_member(kaggle, project, member)
    # Read now: what was pulled above may have taken minutes, in which another process pushed.
    pushes = Pushes(project)
    intent: dict[str, Any] = {
        "kernel": kernel,
        **project.ours,
        "handle": built.handle,
        "asked": pushes.asked(kaggle.username, kernel),
        "bundle_sha256": built.sha256,
        "git_commit": built.git_commit,
        "decoding": project.decoding,
        "machine_shape": built.metadata["machine_shape"],
    }
    if base is not None:
        intent |= {"base": base.run.version, "route": base.route}
    refused = pushes.refused_after(built.handle, bundle_sha256=built.sha256)
    new = not pushes.may_have_made(built.handle)

    def go_on(error: Unknown) -> bool:
        """Also where Kaggle does not even list our notebooks, and no push from here made this one:
        the preview says so, and is agreed to."""
        return whatever or (new and error.listed is None)

    if not again:
        found = reconcile.existing_run(kaggle, pushes, built, show=show)
        if found is None:
            found = push_and_watch.holding(kaggle, built, refused, go_on)
            if found is not None:  # pushed from elsewhere, or by a journal that is gone
                with pushes.journal.recording("pushes", **intent) as outcome:
                    outcome.update(version=found[0].version, url=found[0].url)
        if found is not None:
            push_and_watch.adopted(*found, show)
            return found[0]
    published.require_shared(kaggle, project, kernel, show)
    if kernel == TRAIN and base is None:  # a training that resumes has its weights
        published.require_first_stage(kaggle, project)
    if project.mounts:
        competition_rules.require(kaggle, project.competition, show)
    seconds = preparation.SESSION_SECONDS if kernel == PREPARE else push_preview.SESSION_SECONDS
    if kernel == INFER and project.infer_hours is not None:
        seconds = max(min(int(3600 * project.infer_hours), INFER_AT_MOST), 1)
    preview = push_preview.look(kaggle, built, pushes, seconds, go_on, again=beside)
    if agree is not None:
        agree(preview)
    if base is not None and base.route == DATASET:
        datasets.checkpoint(kaggle, project, base.folder, base.progress, show=show)
    if carried is not None:
        preparation.carry(kaggle, project, carried, show=show)
    how: dict[str, Any] = {"again": again, "refused_after": refused, "go_on": go_on, "show": show}
    how["timeout_seconds"] = preview.seconds
    if preview.seconds < seconds:
        built = replace(built, text=kernel_metadata.within(built.text, preview.seconds))
    try:
        with pushes.journal.recording("pushes", **intent, before=preview.version) as outcome:
            run = push_and_watch.push(kaggle, built, **how)
            for name in ("handle", "version", "url", "kernel_id"):
                outcome[name] = getattr(run, name)
    except SourcesRefused as error:
        pushes.journal.note("pushes", outcome["id"], version=error.version or None)
        if base is None or base.route != KERNEL or "kernel_sources" not in error.kinds:
            raise
        show(f"{error}\nThat is the notebook's own output. It is sent as a dataset instead.")
        if error.version:
            worthless = Run(built.handle, error.version, "", built.sha256)
            with suppress(RunFailed):  # until its end Kaggle allows no other session
                watch(kaggle, project, worthless, show=show)
        return _push(kaggle, project, kernel, show=show)  # the user has agreed already
    if run.version > preview.version:  # else it was made meanwhile, in another window
        changed = ", with local changes" if built.git_dirty else ""
        show(
            f"{run} is pushed: bundle {built.sha256[:12]}, {built.size:,} bytes, commit"
            f" {built.git_commit[:12] or 'none'}{changed}"
        )
    return run


def _resume(
    kaggle: Kaggle, pushes: Pushes, prepared: Sequence[str], *, again: bool, show: Show
) -> tuple[Base | None, Bundle, bool]:
    """Return what a training resumes from, its bundle, and whether to push even if that is there.

    The bundle of the last run, if that is still the one, is built again. If it differs, something
    was changed since, and the training starts over. A run that waits for another machine than was
    asked for is not the one.
    """
    project, owner = pushes.project, kaggle.username
    state = continuation.find(kaggle, pushes, again=again, show=show)
    last, base = state.run, state.base
    if last is not None and again:
        base = None
    moves = continuation.waits_elsewhere(project, state)
    on = [project] if moves else [project, project.elsewhere]  # a run there is this training, too
    ways = [build(each, TRAIN, owner, base=base, prepared=one) for each in on for one in prepared]
    if moves:  # to the machine that was asked for: a push of its own, unless it was made before
        made = (one for one in ways if pushes.last(bundle_sha256=one.sha256, outcome=DONE))
        return base, next(made, ways[0]), again
    same = last.bundle_sha256 if last is not None and not again else ""
    built = next((one for one in ways if one.sha256 == same), ways[0])
    if base is None:
        return None, built, again
    if last is not None:
        if built.sha256 != last.bundle_sha256:
            return None, build(project, TRAIN, owner, prepared=prepared[0]), again
        return base, built, again
    way = "its own output" if base.route == KERNEL else "a dataset"
    show(f"{base.run} is {base.progress}. Resuming from it, through {way}; to start over: --fresh")
    return base, built, True


def build(
    project: Project,
    kernel: str,
    owner: str,
    *,
    artifact: Path | None = None,
    members: Sequence[Member] = (),
    base: Base | None = None,
    prepared: str = "",
) -> Bundle:
    """Build the bundle of a kernel.

    Args:
        owner: of the kernel.
        artifact: the pulled artifact that an inference accepts.
        members: of the ensemble that it accepts instead.
        base: what a training resumes from.
        prepared: a kernel whose output is mounted, as one that has decoded images; "": none.
    """
    expect: Mapping[str, Any] | None = None
    if base is not None:
        expect = base.progress.expect(base.route)
    if members:
        expect = ensemble_file.expected(members)
    elif kernel == INFER:
        if artifact is None:
            raise UsageError(
                f"{INFER} needs the artifact that it accepts; expected a folder.\n"
                f"{project.command('pull')}"
            )
        if not artifact.exists():
            continuation.require_complete(project, artifact.parent)
        found = published.require_own(project, artifact)
        expect = {"run_id": found.run_id, "weights_sha256": found.weights_sha256}
    pushes = Pushes(project)
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
        first_stage=project.first_stage,
        handles={name: pushes.handle(owner, name) for name in (kernel, TRAIN)},
        more={"kernel_sources": [prepared]} if prepared else {},
        machine_shape=project.machine_shape if kernel in (TRAIN, BENCH) else "",
        mounts=project.mounts,
        options=project.options,
    )


def watch(kaggle: Kaggle, project: Project, run: Run, *, show: Show) -> str:
    """Watch a run to its end, and record how it ended."""
    journal = project.journal()
    row = journal.last("pushes", handle=run.handle, version=run.version)
    ours = row is not None and row["before"] is not None and row["before"] < run.version
    try:
        with following(kaggle, run):
            status = push_and_watch.watch(
                kaggle,
                run,
                deadline_seconds=project.deadline_seconds,
                queue_seconds=project.queue_seconds,
                pushed_seconds=max(age(row), 0.0) if row and ours else None,
                in_words=project.in_words,
                show=show,
            )
    except RunFailed as error:
        if row:
            status = NOT_MOUNTED if isinstance(error, NotMounted) else "ERROR"
            status = push_and_watch.CANCELLED if isinstance(error, Cancelled) else status
            journal.note("pushes", row["id"], status=status)
        raise
    if row:  # a run that somebody else pushed can be watched too, and has no record
        journal.note("pushes", row["id"], status=status)
    return status


def watch_mounted(
    kaggle: Kaggle, project: Project, run: Run, push_again: Callable[[], Run], show: Show
) -> Run:
    """Watch a run to its end and return it; one that found a source missing is pushed again, once.

    Such a run ends within seconds, and Kaggle mounts the source in the next one.
    """
    try:
        watch(kaggle, project, run, show=show)
    except NotMounted as error:
        show(f"{error}\n{ONCE_MORE}")
        run = push_again()
        show(f"Watch {run}")
        watch(kaggle, project, run, show=show)
    return run


def pull(kaggle: Kaggle, project: Project, run: Run, *, show: Show = lambda line: None) -> Path:
    """Pull a run's output into `runs` and return its folder; record how far a training got."""
    with following(kaggle, run):
        folder = output.pull(kaggle, run, project.runs, show=show)
    if kernel_of(project, run) == TRAIN:
        continuation.note(Pushes(project), run, saved_progress.read(folder))
    return folder


def publish(
    kaggle: Kaggle, project: Project, run: Run, trained: Path, *, show: Show
) -> DatasetVersion:
    """Publish the artifact that this run wrote, from its pulled folder, and record its version."""
    artifact = trained / output.ARTIFACT
    continuation.require_complete(project, trained)
    published.refuse_overwriting(kaggle, project)
    handle = bundle.dataset_handle(kaggle.username, project.competition)
    found = published.require_own(project, artifact)
    if run.bundle_sha256 and found.bundle_sha256 != run.bundle_sha256:
        raise UsageError(
            f"The artifact in {artifact} was made by bundle {found.bundle_sha256[:12] or 'none'};"
            f" {run} has {run.bundle_sha256[:12]}: it is another run's.\n"
            f"Pull the run again, which sets {trained.name} aside:\n"
            f"{project.command(f'pull --run {run}')}"
        )
    return datasets.publish_and_record(kaggle, project, artifact, handle, found.run_id, show=show)


def submit(
    kaggle: Kaggle,
    project: Project,
    run: Run,
    inferred: Path,
    *,
    check: Check,
    show: Show,
    agree: Callable[[Spending], object] | None = None,
    now: bool = False,
    again: bool = False,
) -> Submission:
    """Check and submit a pulled inference, and record its score.

    Args:
        agree, now, again: as in `submit.submit`.
    """
    file = inferred / submissions.FILE
    return submissions.submit_and_record(
        kaggle, project, run, file, check=check, show=show, agree=agree, now=now, again=again
    )

"""Run the chain of steps: training, publishing, inference and submission.

`invoke relay` runs the whole chain, and other tasks run parts of it. Steps are generators that
yield events. Each step looks in the journal for the version that the previous step created. Running
the same command again therefore resumes a chain that was stopped or killed.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy import bundle, competition, datasets, models, output, preview, push, sessions, watch
from deploy.bundle import Bundle, Code, Inputs
from deploy.client import Kaggle
from deploy.competition import Check, Submission
from deploy.datasets import DatasetVersion
from deploy.errors import (
    Detached,
    NoQuota,
    NotMounted,
    RunFailed,
    SourcesRefused,
    Unknown,
    UsageError,
)
from deploy.events import Ask, Note, Pushed, Steps
from deploy.journal import PUBLISH, PUSH, SUBMIT, Request, State
from deploy.output import DATASET, KERNEL, Member
from deploy.project import INFER, KERNELS, PREPARE, TRAIN, Project
from deploy.records import Records, run_of
from deploy.runs import Run
from deploy.sessions import Next

TRIES = 2  # consecutive sessions without progress before training stops
ONCE_MORE = (
    "Pushing the notebook once more, because Kaggle sometimes fails to mount a source on the first"
    " run after it is attached."
)


@dataclass(frozen=True)
class Model:
    """The model used for inference: either a pulled artifact or the members of an ensemble."""

    artifact: Path | None = None
    members: Sequence[Member] = ()


NO_MODEL = Model()


@dataclass(frozen=True)
class CompleteTraining:
    """A complete training run. `sessions` is the number of versions that this command watched."""

    run: Run
    folder: Path
    sessions: int


@dataclass(frozen=True)
class Result:
    """Result of the chain. `dataset` is None if the train kernel's output was mounted instead."""

    train: Run
    dataset: DatasetVersion | None
    infer: Run
    trained: Path
    inferred: Path
    submission: Submission
    seconds: float

    def values(self) -> dict[str, Any]:
        file = self.inferred / competition.FILE
        pictures = sorted([*self.trained.glob("*.png"), *self.inferred.glob("*.png")])
        return {
            "submission": str(file),
            "rows": competition.rows(file),
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
    kaggle: Kaggle, records: Records, check: Check, *, fresh: bool = False, now: bool = False
) -> Steps[Result]:
    """Run the whole chain. See each step's docstring for the errors that it raises.

    Running the same command or the individual tasks again resumes the chain where it stopped. See
    `competition.submit` for `check` and `now`, and `train` for `fresh`.
    """
    began, project = time.monotonic(), records.project

    def step(text: str) -> Note:
        return Note(f"[{time.monotonic() - began:6.1f} s] {text}")

    yield step(f"Push {TRAIN} for the competition {project.competition}")
    done = yield from train(kaggle, records, fresh=fresh, command=project.command("relay"))
    trained, dataset = done.folder, None
    if project.handoff == "dataset":
        yield step(f"Publish the artifact of {done.run} as a dataset")
        dataset = yield from datasets.artifact(kaggle, records, trained)
    yield step(f"Push {INFER}, pinned to this model")
    model = Model(trained / output.ARTIFACT)
    for late in (False, True):
        infer = yield from push_kernel(kaggle, records, INFER, model, agreed=late)
        yield step(f"Watch {infer}")
        try:
            yield from watch.watch(kaggle, records, infer)
            break
        except NotMounted as error:  # such runs end within seconds
            if late:
                raise
            yield Note(f"{error}\n{ONCE_MORE}")
    yield step(f"Pull {infer}")
    inferred = yield from pull(kaggle, records, infer)
    yield step(f"Check and submit {infer}")
    scored = yield from competition.submit(kaggle, records, infer, inferred, check, now=now)
    yield step(str(scored).capitalize())
    return Result(done.run, dataset, infer, trained, inferred, scored, time.monotonic() - began)


# One push


def push_kernel(
    kaggle: Kaggle,
    records: Records,
    kernel: str,
    model: Model = NO_MODEL,
    *,
    again: bool = False,
    fresh: bool = False,
    agreed: bool = False,
) -> Steps[Run]:
    """Build and push a kernel, and record the version that Kaggle returns.

    This checks the journal and Kaggle, decides what to do, and asks the user for confirmation. A
    partial training run is resumed.

    Args:
        again: push even if the current version has this bundle, or its state is unknown.
        fresh: start training from scratch, ignoring the progress of earlier runs.
        agreed: only show the costs, because the user has already agreed to this push.

    Raises:
        UsageError, Denied: if the run would be useless because the competition does not exist, its
            rules are not accepted, or a dataset needed for training is missing.
        Unknown: if Kaggle does not report whether one of our notebooks exists and is running.
        Busy: if another process is pushing from this project.
        Detached: if the user declines.
    """
    project, journal = records.project, records.journal
    with journal.locked():
        how = {"again": again, "fresh": fresh, "agreed": agreed}
        try:
            return (yield from _push(kaggle, records, kernel, model, **how))
        except SourcesRefused as error:
            row = journal.last(PUSH, kernel=kernel, **project.ours)
            if "kernel_sources" not in error.kinds or row is None or row.route != KERNEL:
                raise
            yield Note(
                f"{error}\nThe rejected source is the notebook's own output, so its files will be"
                " sent as a dataset instead."
            )
            if row.number:
                with suppress(RunFailed):  # until it ends, Kaggle allows no other session
                    yield from watch.watch(kaggle, records, run_of(row))
        except Unknown as error:
            if "/code/" in error.page:  # otherwise the error is about a dataset
                command = project.command(f"{KERNELS[kernel].task} --again")
                error.args = (f"{error}\nTo push it again even if it is running:\n{command}",)
            raise
    # The journal now shows that Kaggle rejects the notebook's own output.
    return (yield from push_kernel(kaggle, records, kernel, model, agreed=True))


def _push(
    kaggle: Kaggle,
    records: Records,
    kernel: str,
    model: Model,
    *,
    again: bool,
    fresh: bool,
    agreed: bool,
) -> Steps[Run]:
    journal, anew = records.journal, again or fresh
    code = bundle.read(records.project, kernel, [member.config for member in model.members])
    handle = records.handle(kaggle.username, kernel)
    version = records.newest_version(handle)
    following = yield from _following(kaggle, records, code, again=again, fresh=fresh)
    current, found = None, None
    built = _built(kaggle.username, records, code, model, following)
    request = _intent(kaggle, records, built, following)
    adopts = not (anew or following.again)
    if following.run is not None and not again:
        found = following.run, following.status
    elif adopts:
        found = yield from push.recorded(kaggle, records, built)
    if found is None:
        try:
            current = kaggle.get_kernel(handle)
            version = current.version if current is not None else 0
        except Unknown as error:
            yield _untold(error, anew=anew)
    if found is None and adopts and (found := push.holding(kaggle, records, built, current)):
        # It was pushed from another machine, or the journal was lost.
        run, _ = found
        intended = journal.intend(request)
        journal.record(intended, State.VERSION, number=run.version, url=run.url)
    if found is not None:
        run, status = found
        yield Note(
            f"{run} already has this bundle and is {status} on"
            f" {run.machine_shape or run.accelerator}. Nothing was sent. To run it again:"
            f" {records.project.command(f'{KERNELS[kernel].task} --again')}"
        )
        return run
    yield from _gates(kaggle, records, built, model, following)
    costs = preview.look(kaggle, records, built, current, version, again=again)
    for line in costs.lines() if agreed else ():
        yield Note(line)
    if not agreed and not (yield Ask(costs.lines(), "Push it?", costs)):
        raise Detached("Nothing was pushed.")
    return (yield from _send(kaggle, records, built, following, request, costs))


def _following(
    kaggle: Kaggle, records: Records, code: Code, *, again: bool, fresh: bool
) -> Steps[Next]:
    anew = again or fresh
    try:
        yield from push.resolve(kaggle, records, [code.kernel])
    except Unknown as error:
        yield _untold(error, anew=anew)
    try:
        return (yield from sessions.following(kaggle, records, code, again=again, fresh=fresh))
    except Unknown as error:
        yield _untold(error, "starting over, as there may be nothing to resume from", anew=anew)
        return Next(True)


def _untold(error: Unknown, so: str = "anything running there is ignored", *, anew: bool) -> Note:
    if not anew:
        raise error
    return Note(f"{str(error).splitlines()[0]}\n--again: {so}.")


def _send(
    kaggle: Kaggle,
    records: Records,
    built: Bundle,
    following: Next,
    request: Request,
    costs: preview.Preview,
) -> Steps[Run]:
    base = following.base
    if base is not None and base.route == DATASET:
        yield from datasets.checkpoint(kaggle, records, base.folder, base.progress)
    if costs.seconds < costs.most:
        built = replace(built, session_seconds=costs.seconds)
    journal = records.journal
    request = journal.intend(request)
    made = yield from push.send(kaggle, journal, request, built, costs.version, costs.seconds)
    changed = ", with local changes" if built.code.git_dirty else ""
    yield Note(
        f"Pushed {made}: bundle {built.sha256[:12]}, {built.size:,} bytes, commit"
        f" {built.code.git_commit[:12] or 'none'}{changed}"
    )
    yield Pushed(str(made))
    return made


def build(owner: str, records: Records, kernel: str, model: Model = NO_MODEL) -> Bundle:
    code = bundle.read(records.project, kernel, [member.config for member in model.members])
    return _built(owner, records, code, model, Next(again=False))


def _expected(records: Records, model: Model) -> dict[str, Any]:
    project = records.project
    if model.members:
        return output.expected(model.members)
    if model.artifact is None:
        return {}
    if not model.artifact.exists():
        datasets.require_complete(project, model.artifact.parent)
    found = output.own_manifest(project, model.artifact)
    return {"run_id": found.run_id, "weights_sha256": found.weights_sha256}


def _built(owner: str, records: Records, code: Code, model: Model, following: Next) -> Bundle:
    base = following.base
    resumed = base.progress.expect(base.route) if base is not None else None
    inputs = Inputs(
        expect=resumed or _expected(records, model),
        handoff=base.route if base is not None else "",
        handles={name: records.handle(owner, name) for name in (code.kernel, TRAIN)},
        kernel_sources=following.kernels,
    )
    return bundle.build(records.project, code, inputs, owner)


def _intent(kaggle: Kaggle, records: Records, built: Bundle, following: Next) -> Request:
    base = following.base
    return Request(
        PUSH,
        handle=built.handle,
        kernel=built.kernel,
        config=records.project.name,
        competition=records.project.competition,
        asked=records.asked(kaggle.username, built.kernel),
        bundle_sha256=built.sha256,
        code_sha256=built.code.sha256,
        git_commit=built.code.git_commit,
        decoding=records.project.decoding,
        machine_shape=built.metadata["machine_shape"],
        base=base.run.version if base is not None else 0,
        route=base.route if base is not None else "",
    )


def _gates(
    kaggle: Kaggle, records: Records, built: Bundle, model: Model, following: Next
) -> Steps[None]:
    # Raise an error before anything is spent if the run would be useless.
    project = records.project
    if csv := [member.run_id for member in model.members if member.is_csv]:
        competition.require_no_rerun(kaggle, project, csv)
    if model.artifact is not None and project.handoff == "dataset":
        datasets.require_current(kaggle, records, model.artifact)
    for member in model.members:
        datasets.require_current(kaggle, records, member.folder, member)
    yield from datasets.require_shared(kaggle, project, built.kernel)
    yield from models.require(kaggle, built.metadata["model_sources"], built.kernel)
    if built.kernel == TRAIN and following.base is None:  # checked before the first session
        datasets.require_earlier(kaggle, project)
    if project.mounts:
        yield from competition.require(kaggle, project.competition)


# Training over several sessions


def train(
    kaggle: Kaggle, records: Records, *, fresh: bool = False, command: str = ""
) -> Steps[CompleteTraining]:
    """Push, watch and pull one session after another until training is complete.

    The user is asked before the first push. Later pushes are shown but do not require confirmation.
    If a run is already active, nothing is pushed at first, and the user is asked before the next
    session. `command` is the command that the messages suggest for resuming training. It defaults
    to `invoke push-train --until-done`.

    Raises:
        NoQuota: if no accelerator time is left this week. The message states when the quota resets.
        NoSlot: if the maximum number of sessions is already active.
        RunFailed: if the first session saves nothing, or two consecutive sessions make no progress.
            `NotMounted` is raised if two consecutive sessions could not find a source.
    """
    command = command or records.project.command("push-train --until-done")
    count, late, agreed = 0, False, False
    while True:
        newest = records.newest_version(records.handle(kaggle.username, TRAIN))
        try:
            run = yield from push_kernel(kaggle, records, TRAIN, fresh=fresh, agreed=agreed)
        except NoQuota as error:
            raise type(error)(f"{error}\nTo resume then:\n{command}") from error
        row, fresh, count = records.push_of(run), False, count + 1
        agreed = agreed or (row is not None and row.is_ours and run.version > newest)
        yield Note(f"Watch {run}")
        failure, status = None, "ERROR"
        try:
            status = yield from watch.watch(kaggle, records, run)
        except NotMounted as error:
            if late:
                raise
            late = True
            yield Note(f"{error}\n{ONCE_MORE}")
            continue
        except RunFailed as error:
            failure = error
        late = False
        folder, found = yield from sessions.saved_output(kaggle, records, run, status)
        if found is None and not (row and row.base):  # another session would do the same
            raise failure or RunFailed(
                f"{run} saved neither an artifact nor a checkpoint, but a training run should"
                " save at least one of them.\n"
                "Fix the notebook so that it trains, or run it again:\n"
                f"{records.project.command('push-train --again')}"
            )
        if failure is not None:
            yield Note(str(failure))
        if found is not None and found.complete:
            folder = folder or (yield from pull(kaggle, records, run))
            return CompleteTraining(run, folder, count)
        vain = sessions.in_vain(kaggle, records)
        if vain >= TRIES:
            raise RunFailed(
                f"{vain} consecutive sessions have made no progress since the checkpoint of version"
                f" {row.base if row else 0}. The last one is {run}. Each session should save a"
                " checkpoint at a later step than the previous session. Training was stopped to"
                " avoid spending more quota.\nIf the last session ended as COMPLETE, session_hours"
                f" is too short for a single step. Fix the cause, then resume:\n{command}"
            )
        saved = found or "it saved nothing to resume from"
        yield Note(f"{run}: {saved}. Starting the next session.")


# After a run


def pull(kaggle: Kaggle, records: Records, of: Run) -> Steps[Path]:
    folder = yield from output.pull(kaggle, of, records.project.runs)
    if records.kernel_of(of) == TRAIN:
        sessions.note_progress(records, of, folder)
    return folder


def next_command(records: Records, of: Run, folder: Path) -> str:
    """Return the command to run after a pull.

    It is "" if the run is not ours, is already submitted, or is a training run but not the last
    one.
    """
    project, journal, kernel = records.project, records.journal, records.kernel_of(of)
    if kernel == INFER:
        if not (folder / competition.FILE).is_file():
            return project.command("push-infer")
        rows = journal.requests(SUBMIT, handle=of.handle, kernel_version=of.version)
        sent = any(row.before is not None for row in rows)
        return "" if sent else project.command(f"submit --run {of}")
    if kernel == PREPARE:
        names = [path.name for path in folder.iterdir()]
        return after_preparation(project, output.progress_in_words(names, []))
    if kernel != TRAIN:
        return ""
    found = output.saved_progress(folder)
    if found is None or not found.complete:
        on = project.trained_on(output.of_bundle(folder, "machine_shape"))
        return on.command("push-train --until-done" if found else "push-train")
    last = journal.last(PUSH, kernel=TRAIN, **project.ours)
    if last is None or run_of(last) != of:
        return ""  # the next steps use the last training run
    published = journal.last(PUBLISH, config=project.name, state=State.ENDED)
    ready = project.handoff == "kernel" or (published and published.at >= last.at)
    return project.command("push-infer" if ready else "publish")


def after_complete(records: Records, row: Request) -> str:
    made = run_of(row)
    if row.kernel == PREPARE:
        return after_preparation(records.project, "complete")
    try:
        return next_command(records, made, records.pulled_folder(made))
    except UsageError:
        return records.project.command(f"pull --run {made}")


def after_preparation(project: Project, progress: str) -> str:
    return project.command("push-train" if progress == "complete" else "push-prepare")

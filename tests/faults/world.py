"""A local Kaggle with recorded sessions, a project, and the tasks, each with a check of its result.

Server, client, journal and tasks are real. Only the output of notebooks is recorded, so that a
thousand faults can be tried in minutes.
"""

import itertools
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from deploy import output, secrets, status
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.deadline import limit
from deploy.errors import RelayError
from deploy.journal import Journal
from deploy.project import INFER, TRAIN, Project
from deploy.records import Records
from deploy.runs import Run
from localkaggle.competitions import Competition, accuracy
from localkaggle.faults import Kind
from localkaggle.server import LocalKaggle
from localkaggle.services.datasets import Dataset, DatasetVersion
from localkaggle.sessions.session import Session
from tests.deploy import steps
from tests.faults.recorded_session import SAMPLE, Recorded, write_artifact
from tests.shipped import DIGITS

ROOT = Path(__file__).resolve().parents[2]
# Without faults a client waits long enough for the slowest machine; with faults it gives up soon.
PATIENT_SECONDS = 60.0
PATIENT = (PATIENT_SECONDS, PATIENT_SECONDS)
PACE = Pace(first=0.02, most=0.06, patience=PATIENT_SECONDS)
HURRIED = Pace(first=0.02, most=0.06, patience=0.4)
SILENT = (0.6, 0.6)  # timeouts if no answer will come
TRIES = 4  # of the same command, once nothing fails any more
OURS = ("kaggle", "runs", "build")  # in a world's folder
KERNEL, DATASET = "rehearsal/digits-train-tpu", "rehearsal/digits-artifact"
CREDENTIALS = ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN")
ENDED_TOKEN = f"KGAT_{'0' * 32}"  # an access token that no Kaggle knows


def competition(**more: Any) -> Competition:
    """Return a competition of two rows with the name in the config.

    Args:
        more: of `Competition`.
    """
    files = {"sample_submission.csv": SAMPLE}
    solution = {"label": {"a": "0", "b": "1"}}
    more = {"daily_submissions": 1000, **more}
    return Competition("digits", "Digits", {}, files, files, solution, accuracy, **more)


@dataclass
class User:
    """A user with a project, on the Kaggle that the environment of this process names.

    Attributes:
        folder: of the project's records.
        changes: {attribute of the project: value}.
        pace, timeouts: of the client.
        shown: the output of tasks.
    """

    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)
    pace: Pace = PACE
    timeouts: tuple[float, float] = PATIENT
    shown: list[str] = field(default_factory=list)

    @property
    def project(self) -> Project:
        """The project, whose records are in the folder."""
        runs, build = self.folder / "runs", self.folder / "build"
        words = (str(DIGITS), "digits", "dataset")
        project = Project(ROOT, *words, runs, build, None, PATIENT_SECONDS)
        return replace(project, **self.changes)

    def connect(self) -> Kaggle:
        """Log in, as every task does first."""
        return Kaggle.connect(pace=self.pace, timeouts=self.timeouts)


@dataclass
class World(User):
    """A user with a local Kaggle, which the environment of this process names.

    A context manager.

    Attributes:
        hosting: options of `LocalKaggle` that differ from the usual ones.
    """

    hosting: Mapping[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        usual: dict[str, Any] = {
            "competitions": [competition()],
            "offline": True,
            "queue_seconds": 0.01,
            "ready_seconds": 0.05,
            "session": cast("Callable[..., Session]", Recorded),
        }
        self.local = self._stack.enter_context(
            LocalKaggle(self.folder / "kaggle", port=0, **{**usual, **self.hosting})
        )
        os.environ.update(self.local.environment)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ended(self) -> None:
        """Wait until no session runs."""
        for kernel in list(self.local.kernels.kernels.values()):
            for version in list(kernel.versions):
                version.done.wait(PATIENT_SECONDS)
                while version.status in ("QUEUED", "RUNNING"):
                    time.sleep(0.005)

    @contextmanager
    def failing(
        self,
        faults: Mapping[str, Sequence[str | Kind | None]],
        *,
        ever: bool = False,
        least: int = 1,
        pace: Pace = HURRIED,
    ) -> Iterator[None]:
        """Let the next requests of these calls fail, and check that a task meets the faults.

        Args:
            faults: {call: kinds in order}; None lets one request through.
            ever: repeat them for ever.
            least: the number of faults that have to be met.
            pace: of the client meanwhile.
        """
        planned = [kind for kinds in faults.values() for kind in kinds]
        self.local.faults.clear()
        for call, kinds in faults.items():
            self.local.faults.say(call, itertools.cycle(kinds) if ever else kinds)
        self.pace = pace
        if {"silence", "silence after"}.intersection(map(str, planned)):
            self.timeouts = SILENT
        yield
        struck, seen = self.local.faults.struck, self.local.faults.seen
        self.local.faults.clear()
        self.pace, self.timeouts = PACE, PATIENT
        assert len(struck) >= least, f"{len(struck)} of {faults} were met by {seen}"

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of kernel versions, dataset versions and submissions."""
        return (
            sum(len(kernel.versions) for kernel in self.local.kernels.kernels.values()),
            sum(len(dataset.versions) for dataset in self.local.datasets.datasets.values()),
            len(self.local.submissions.submissions),
        )


def log_in(local: LocalKaggle, token: str = ENDED_TOKEN, seconds: float = -600) -> Path:
    """Log in like `kaggle auth login`, in place of the key; return the file.

    Args:
        token: the access token in it.
        seconds: until it expires.
    """
    for name in CREDENTIALS:
        os.environ.pop(name, None)
    held = {
        "refresh_token": local.oauth.refresh_token,
        "access_token": token,
        "access_token_expiration": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
        "username": "rehearsal",
        "scopes": ["resources.admin:*"],
    }
    path = Path(local.environment["HOME"]) / ".kaggle" / "credentials.json"
    path.write_text(json.dumps(held))
    path.chmod(0o600)
    return path


_prepared: dict[str, Path] = {}


def _move_here(journal: Journal) -> None:
    """Assign the rows of a copied journal to the server at this address."""
    with closing(sqlite3.connect(journal.path)) as rows, rows:
        rows.execute("UPDATE requests SET server = ?", [journal.server])


@contextmanager
def temporary(task: str = "", **hosting: Any) -> Iterator[World]:
    """Make a world, prepared for a task if one is named, and remove it at the end.

    All sessions have ended. The environment of this process is restored, too.

    Args:
        task: a name in `TASKS`. It is prepared once; each world gets a copy.
        hosting: as in `World`.
    """
    folder, environment = Path(tempfile.mkdtemp(prefix="world-")), dict(os.environ)
    hosting = {**(TASKS[task].hosting if task else {}), **hosting}
    try:
        if task and task not in _prepared:
            with World(folder / "world", hosting=hosting) as world:
                TASKS[task].before(world)
                world.ended()
                kept = Path(tempfile.mkdtemp(prefix="prepared-"))
                with world.local.state.lock:
                    shutil.copytree(world.folder, kept, dirs_exist_ok=True)
                _prepared[task] = kept
        if task:
            shutil.copytree(_prepared[task], folder / "world")
        with World(folder / "world", hosting=hosting) as world:
            if task:
                _move_here(Records(world.project).journal)
            yield world
    finally:
        secrets._known.clear()
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)


Body = Callable[[User, Kaggle], Any]
Truth = Callable[[World, Any], bool]


@dataclass(frozen=True)
class Task:
    """One task as `tasks.py` composes it.

    Attributes:
        before: prepares a world for the task.
        body: the task.
        truth: whether its result agrees with the server.
        hosting: as in `World`.
    """

    before: Callable[[World], None]
    body: Body
    truth: Truth
    hosting: Mapping[str, Any] = field(default_factory=dict)


def _resolved(world: User, kaggle: Kaggle) -> Records:
    return steps.resolved(kaggle, world.project, world.shown.append)


def _push_train(world: User, kaggle: Kaggle) -> Run:
    return steps.pushed(kaggle, world.project, TRAIN, show=world.shown.append)


def _pushed(world: World, run: Run) -> bool:
    version = world.local.kernels.version(run.handle, run.version)
    return version is not None and run.bundle_sha256 in version.request.text


def _watch(world: User, kaggle: Kaggle, kernel: str = TRAIN) -> tuple[Run, str]:
    run = _resolved(world, kaggle).find_run("", kernel)
    return run, steps.watched(kaggle, world.project, run, show=world.shown.append)


def _watched(world: World, result: tuple[Run, str]) -> bool:
    version = world.local.kernels.version(result[0].handle, result[0].version)
    return version is not None and version.status == result[1] == "COMPLETE"


def _pull(world: User, kaggle: Kaggle, kernel: str = TRAIN) -> tuple[Run, Path]:
    run = _resolved(world, kaggle).find_run("", kernel)
    return run, steps.pulled(kaggle, world.project, run, show=world.shown.append)


def _pulled(world: World, result: tuple[Run, Path]) -> bool:
    version = world.local.kernels.version(result[0].handle, result[0].version)
    assert version is not None
    # Kaggle adds the notebook once the run has listed what it wrote: nothing can vouch for it.
    names = [name for name in version.files() if name != "__notebook__.ipynb"]
    there = {name: (version.working / name).read_bytes() for name in names}
    here = {
        path.relative_to(result[1]).as_posix(): path.read_bytes()
        for path in result[1].rglob("*")
        if path.is_file()
    }
    return all(here.get(name) == content for name, content in there.items())


def _publish(world: User, kaggle: Kaggle) -> Any:
    pushes = _resolved(world, kaggle)
    run = pushes.last_run(TRAIN)
    folder = pushes.pulled_folder(run)
    return steps.published(kaggle, world.project, folder, show=world.shown.append)


def _published(world: World, made: Any) -> bool:
    dataset = world.local.datasets.datasets[made.handle]
    folder = dataset.versions[made.version - 1].folder
    ours = Records(world.project).last_artifact()
    same = all((folder / path.name).read_bytes() == path.read_bytes() for path in ours.iterdir())
    return same and dataset.current() == made.version


def _push_infer(world: User, kaggle: Kaggle) -> Run:
    pushes = _resolved(world, kaggle)
    artifact = pushes.last_artifact()
    show = world.shown.append
    return steps.pushed(kaggle, world.project, INFER, artifact=artifact, show=show)


def _submit(world: User, kaggle: Kaggle) -> Any:
    pushes = _resolved(world, kaggle)
    run = pushes.last_run(INFER)
    folder, show = pushes.pulled_folder(run), world.shown.append
    return steps.submitted(kaggle, world.project, run, folder, show=show)


def _submitted(world: World, scored: Any) -> bool:
    there = world.local.submissions.submissions.get(scored.ref)
    return there is not None and there.status == "COMPLETE" and there.score == scored.score == 0.5


def _status(world: User, kaggle: Kaggle) -> Any:
    ours = Records(world.project)
    return status.journal(ours), status.now(kaggle, ours)


def _told(world: World, result: tuple[Any, dict[str, Any]]) -> bool:
    """Return whether each run reported as complete is complete; other reports may be late."""
    ours = Records(world.project).last_run(TRAIN)
    version = world.local.kernels.version(ours.handle, ours.version)
    ended = version is not None and version.status == "COMPLETE"
    runs = result[1]["runs"]
    return list(runs) == [str(ours)] and (ended or runs[str(ours)] != "COMPLETE")


def _nothing(world: World) -> None:
    """Prepare nothing."""


def _after_push(world: World) -> None:
    _push_train(world, world.connect())


def _after_pull(world: World) -> None:
    """Write what a pull would write, without the calls."""
    _after_push(world)
    _copy(world, Records(world.project).last_run(TRAIN))


def _copy(world: World, run: Run) -> None:
    world.ended()
    version = world.local.kernels.version(run.handle, run.version)
    assert version is not None
    shutil.copytree(version.working, world.project.runs / output.folder_name(run))


def another_run_s_version(world: World) -> None:
    """Let another user publish the artifact of another run, which becomes current."""
    with world.local.state.changes():
        held = world.local.datasets.datasets.setdefault(
            DATASET, Dataset("rehearsal", "digits-artifact", "Digits Artifact", True)
        )
        folder = world.folder / "kaggle" / "datasets" / f"another-{len(held.versions) + 1}"
        write_artifact(folder, f"{len(held.versions):064d}")
        held.versions.append(DatasetVersion(folder))


def _after_another_publish(world: World) -> None:
    _after_pull(world)
    another_run_s_version(world)


def _after_publish(world: World) -> None:
    _after_pull(world)
    _publish(world, world.connect())


def _after_inference(world: World) -> None:
    """Push an inference, let it run, and pull it."""
    _after_publish(world)
    _copy(world, _push_infer(world, world.connect()))


TASKS: dict[str, Task] = {
    "push-train": Task(_nothing, _push_train, _pushed),
    "watch": Task(_after_push, _watch, _watched),
    "pull": Task(_after_push, _pull, _pulled),
    "publish": Task(_after_pull, _publish, _published),
    "publish the next": Task(_after_another_publish, _publish, _published),
    "publish again": Task(_after_publish, _publish, _published),
    "push-infer": Task(_after_publish, _push_infer, _pushed),
    "submit": Task(_after_inference, _submit, _submitted),
    "submit a file": Task(
        _after_inference, _submit, _submitted, {"competitions": [competition(takes_files=True)]}
    ),
    "status": Task(_after_push, _status, _told),
}
# Kernel versions, dataset versions and submissions after each task.
MADE = {
    **dict.fromkeys(("push-train", "watch", "pull", "status"), (1, 0, 0)),
    **dict.fromkeys(("publish", "publish again"), (1, 1, 0)),
    "publish the next": (1, 2, 0),
    "push-infer": (2, 1, 0),
    **dict.fromkeys(("submit", "submit a file"), (2, 1, 1)),
}
# The whole chain, in order. The second watch and pull are of the other kernel.
CHAIN: dict[str, Task] = {
    **{name: TASKS[name] for name in ("push-train", "watch", "pull", "publish", "push-infer")},
    "watch infer": Task(_nothing, partial(_watch, kernel=INFER), _watched),
    "pull infer": Task(_nothing, partial(_pull, kernel=INFER), _pulled),
    "submit": TASKS["submit"],
}


def attempt(
    world: World, name: str, seconds: float = PATIENT_SECONDS, body: Body | None = None
) -> int:
    """Run a task like `tasks.py`, check its result, and return its exit code.

    Its output, with its result or message at the end, is in `world.shown`.

    Args:
        world: in which the task runs.
        name: of the task.
        seconds: until its deadline.
        body: runs in place of the task's own.
    """
    task = CHAIN.get(name) or TASKS[name]
    try:
        with limit(seconds, "The task's deadline has passed."):
            result = (body or task.body)(world, world.connect())
    except RelayError as error:
        world.shown.append(str(error))
        assert error.exit_code in range(1, 9) and str(error).strip()
        return error.exit_code
    world.shown.append(str(result))
    assert body or task.truth(world, result), f"{name} said success, and it is not so"
    return 0


def settle(world: World, name: str) -> None:
    """Repeat a task until it succeeds, since a change may not be visible at once."""
    for _ in range(TRIES):
        if attempt(world, name) == 0:
            return
    raise AssertionError(f"{name} never went through, although nothing fails any more")


def litter(world: World) -> list[Path]:
    """Return files that are half written, or outside of their folders.

    "a name that climbs" leads from runs/ to the world's folder, "an absolute name" to /tmp.
    """
    found = [path for path in world.folder.parent.iterdir() if path != world.folder]
    found += [path for path in world.folder.iterdir() if path.name not in OURS]
    if world.project.runs.is_dir():
        found += [path for path in world.project.runs.iterdir() if path.name.startswith(".")]
    kernels = world.local.kernels.kernels.values()
    for version in (version for kernel in kernels for version in kernel.versions):
        for name in version.files():
            path = Path("/tmp", name)  # noqa: S108
            if path.is_file() and path.read_bytes() == (version.working / name).read_bytes():
                found.append(path)
    return found

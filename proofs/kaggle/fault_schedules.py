"""Schedule: tasks with faults, run in a world of their own and judged by what the server then
holds.
"""

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from deploy.client.deadline import within
from deploy.errors import RelayError
from localkaggle.faults import KINDS
from proofs.kaggle.world import AT_MOST, TASKS, Task, World

DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 7, 8, 130}
DEADLINE_SECONDS = 3.0
LATE_SECONDS = 5.0
TRIES = 4  # of the same command without faults, until it is through

Faults = tuple[tuple[int, str], ...]


@dataclass
class Verdict:
    """What came of one schedule.

    Attributes:
        steps: the tasks and their faults. codes: the exit code of each task, in order.
        struck: the kind of each fault that met a call. wrong: what must not have happened, in
            words; empty is good.
        late: seconds beyond the deadline, at most.
    """

    steps: tuple[tuple[str, Faults], ...]
    codes: list[int] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    late: float = 0.0


def attempt(world: World, name: str, verdict: Verdict, tasks: Mapping[str, Task] = TASKS) -> bool:
    """Give a task once, as `tasks.py` does, and note what is wrong about its end. Returns whether
    it said success.
    """
    task, began = tasks[name], time.monotonic()
    try:
        with within(DEADLINE_SECONDS, "The task's deadline has passed."):
            result = task.body(world, world.connect())
        code = 0
    except RelayError as error:
        code = error.exit_code
        if not str(error).strip():
            verdict.wrong.append(f"{name}: no message")
    except Exception as error:
        code = 1
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict.wrong.append(
            f"{name}: {type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {error}"[
                :300
            ]
        )
    verdict.late = max(verdict.late, time.monotonic() - began - DEADLINE_SECONDS)
    verdict.codes.append(code)
    if code not in DOCUMENTED:
        verdict.wrong.append(f"{name}: exit code {code} is not documented")
    if code == 0 and not task.truth(world, result):
        verdict.wrong.append(f"{name}: said success, and it is not so")
    return code == 0


def run(steps: Sequence[tuple[str, Faults]]) -> Verdict:
    """Prepare the first task's world; give each task with its faults; then the last one without,
    until it is through.
    """
    verdict = Verdict(tuple(steps))
    folder = Path(tempfile.mkdtemp(prefix="prove-world-"))
    environment = dict(os.environ)
    try:
        with redirect_stdout(StringIO()), World(folder / "world") as world:
            TASKS[steps[0][0]].before(world)
            for name, faults in steps:
                world.local.faults.plan(dict(faults))
                attempt(world, name, verdict)
                verdict.struck += [kind for _, kind, _ in world.local.faults.struck]
            world.local.faults.plan({})
            last = steps[-1][0]
            for _ in range(TRIES):
                if attempt(world, last, verdict):
                    break
            else:
                verdict.wrong.append(f"{last}: never went through, although nothing fails any more")
            judge(world, [name for name, _ in steps], verdict)
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)
    return verdict


def judge(world: World, names: Sequence[str], verdict: Verdict) -> None:
    """Note what there is too much of after these tasks, by the server's own count, and on this
    machine's disk.
    """
    allowed = tuple(max(AT_MOST[name][place] for name in names) for place in range(3))
    for what, there, most in zip(
        ("kernel version", "dataset version", "submission"), world.counts(), allowed, strict=True
    ):
        if there > most:
            verdict.wrong.append(f"duplicate {what}: {there} are there, {most} were asked for")
    verdict.wrong += half_written(world)
    # `a name that climbs` leads from a folder in runs/ to the world's own, `an absolute name` to
    # /tmp.
    outside = [path for path in world.folder.parent.iterdir() if path != world.folder]
    outside += [
        path for path in world.folder.iterdir() if path.name not in ("kaggle", "runs", "build")
    ]
    beside = [Path("/tmp", name) for name in _names(world)]  # noqa: S108
    outside += [path for path in beside if os.path.lexists(path)]
    if outside:
        verdict.wrong.append(f"written outside: {outside}")


def half_written(world: World) -> list[str]:
    """Return in words what a pull has left unfinished."""
    runs = world.project.runs
    leftovers = (
        [path.name for path in runs.iterdir() if path.name.startswith(".")] if runs.is_dir() else []
    )
    return [f"half written: {leftovers}"] if leftovers else []


def _names(world: World) -> set[str]:
    """Return the names of all that the runs wrote."""
    versions = [
        version for kernel in world.local.kernels.kernels.values() for version in kernel.versions
    ]
    return {name for version in versions for name in version.files()}


def calls(name: str) -> list[str]:
    """Return the calls that a task makes when nothing fails."""
    folder = Path(tempfile.mkdtemp(prefix="prove-world-"))
    environment = dict(os.environ)
    try:
        with redirect_stdout(StringIO()), World(folder / "world") as world:
            TASKS[name].before(world)
            world.local.faults.plan({})
            TASKS[name].body(world, world.connect())
            return list(world.local.faults.seen)
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)


def matrix() -> list[tuple[tuple[str, Faults], ...]]:
    """Return every kind of fault at every call of every task, where it can strike."""
    return [
        ((name, ((index, kind),)),)
        for name in TASKS
        for index, operation in enumerate(calls(name))
        for kind in KINDS
        if KINDS[kind].strikes(operation)
    ]


def worst(verdicts: Sequence[Verdict], count: int = 5) -> list[Any]:
    """Return the first schedules that went wrong, to be mended."""
    return [(verdict.steps, verdict.codes, verdict.wrong) for verdict in verdicts if verdict.wrong][
        :count
    ]

"""Runs tasks while faults strike, each schedule in its own world, and judges them by what the
server then holds.
"""

import os
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
from localkaggle.fault_kinds import KINDS, Answer, Kind
from tests.faults.world import AT_MOST, PATIENT_SECONDS, TASKS, Task, World, log_in, temporary

DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 7, 8, 130}
# A patient client waits for ever where one of these strikes: only the deadline ends the task. Any
# other task has PATIENT_SECONDS, since a busy machine must not look like a fault.
ENDLESS = frozenset({"one byte a second"})
DEADLINE_SECONDS = 3.0
LATE_SECONDS = 5.0
TRIES = 4  # of the same command without faults, until it succeeds
MADE = ("kernel version", "dataset version", "submission")
# Requests without a header of ours: signed addresses, and what gives a token.
WITHOUT_LOGIN = ("storage", "upload", "GenerateAccessToken", "IntrospectToken")
STUCK = "never went through, although nothing fails any more"

Faults = tuple[tuple[int, str], ...]


@dataclass
class Verdict:
    """The result of one schedule.

    Attributes:
        steps: the tasks and their faults.
        codes: the exit code of each task, in order.
        struck: the kind of each fault that struck a call.
        wrong: what must not have happened, in words; empty is good.
        late: seconds beyond the deadline, at most.
    """

    steps: tuple[tuple[str, Faults], ...]
    codes: list[int] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    late: float = 0.0


def attempt(
    world: World,
    name: str,
    verdict: Verdict,
    tasks: Mapping[str, Task] = TASKS,
    kinds: Sequence[str] = (),
) -> bool:
    """Run a task once, as `tasks.py` does, note what is wrong with its end, and return whether it
    reported success.

    Args:
        world: in which the task runs.
        name: of the task.
        verdict: takes the notes.
        tasks: where the task is.
        kinds: of the faults that are planned.
    """
    task, began = tasks[name], time.monotonic()
    endless = bool(ENDLESS & set(kinds))
    seconds = DEADLINE_SECONDS if endless else PATIENT_SECONDS
    world.hurried = bool(kinds) and not endless
    try:
        with within(seconds, "The task's deadline has passed."):
            result = task.body(world, world.connect())
        code = 0
    except RelayError as error:
        code = error.exit_code
        if not str(error).strip():
            verdict.wrong.append(f"{name}: no message")
    except Exception as error:
        code = 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        verdict.wrong.append(f"{name}: {type(error).__name__} in {where}: {error}"[:300])
    verdict.late = max(verdict.late, time.monotonic() - began - seconds)
    verdict.codes.append(code)
    if code not in DOCUMENTED:
        verdict.wrong.append(f"{name}: exit code {code} is not documented")
    if code == 0 and not task.truth(world, result):
        verdict.wrong.append(f"{name}: said success, and it is not so")
    return code == 0


def run(steps: Sequence[tuple[str, Faults]]) -> Verdict:
    """Prepare the world for the first task, run each task with its faults, and then the last one
    without faults until it succeeds.
    """
    verdict = Verdict(tuple(steps))
    with redirect_stdout(StringIO()), temporary(steps[0][0]) as world:
        for name, faults in steps:
            world.local.faults.plan(dict(faults))
            attempt(world, name, verdict, kinds=[kind for _, kind in faults])
            verdict.struck += [kind for _, kind, _ in world.local.faults.struck]
        world.local.faults.plan({})
        last = steps[-1][0]
        if not any(attempt(world, last, verdict) for _ in range(TRIES)):
            verdict.wrong.append(f"{last}: {STUCK}")
        judge(world, [name for name, _ in steps], verdict)
    return verdict


def judge(world: World, names: Sequence[str], verdict: Verdict) -> None:
    """Note what these tasks made too often, by the server's own count, and wrote where they must
    not.
    """
    count(world, tuple(max(AT_MOST[name][place] for name in names) for place in range(3)), verdict)
    verdict.wrong += half_written(world)
    # `a name that climbs` leads from runs/ to the world's folder, `an absolute name` to /tmp.
    outside = [path for path in world.folder.parent.iterdir() if path != world.folder]
    ours = ("kaggle", "runs", "build")
    outside += [path for path in world.folder.iterdir() if path.name not in ours]
    kernels = world.local.kernels.kernels.values()
    names_ = {name for kernel in kernels for version in kernel.versions for name in version.files()}
    beside = [Path("/tmp", name) for name in names_]  # noqa: S108
    outside += [path for path in beside if os.path.lexists(path)]
    if outside:
        verdict.wrong.append(f"written outside: {outside}")


def count(world: World, most: Sequence[int], verdict: Verdict) -> None:
    """Note of what the server has more than this."""
    for what, there, allowed in zip(MADE, world.counts(), most, strict=True):
        if there > allowed:
            verdict.wrong.append(f"duplicate {what}: {there} are there, {allowed} were asked for")


def half_written(world: World) -> list[str]:
    """Return in words what a pull has left unfinished."""
    runs = world.project.runs
    names = [path.name for path in runs.iterdir()] if runs.is_dir() else []
    leftovers = [name for name in names if name.startswith(".")]
    return [f"half written: {leftovers}"] if leftovers else []


def calls(name: str) -> list[str]:
    """Return the calls that a task makes when nothing fails."""
    with redirect_stdout(StringIO()), temporary(name) as world:
        world.local.faults.plan({})
        TASKS[name].body(world, world.connect())
        return list(world.local.faults.seen)


def requests_of(name: str) -> list[int]:
    """Return which of a task's requests are calls that need a login, when nothing fails."""
    with redirect_stdout(StringIO()), temporary(name) as world:
        log_in(world.local)
        world.local.faults.plan({})
        TASKS[name].body(world, world.connect())
        seen = world.local.faults.seen
    return [place for place, operation in enumerate(seen) if operation not in WITHOUT_LOGIN]


def ended_token(name: str, index: int) -> Verdict:
    """Run a task whose access token ends right before one of its calls: it is renewed."""
    verdict = Verdict(((name, ((index, "an ended token"),)),))
    with redirect_stdout(StringIO()), temporary(name) as world:
        log_in(world.local)

        def end(answer: Answer, operation: str) -> bool:
            if operation in WITHOUT_LOGIN:  # a poll more or less before it
                return False
            world.local.oauth.end_access()
            answer.code, answer.body = 401, b'{"code": 401, "message": "Unauthorized"}'
            return True

        world.local.faults.plan({index: Kind(False, end)})
        if not attempt(world, name, verdict):
            verdict.wrong.append(f"{name}: lost")
        verdict.struck += [kind for _, kind, _ in world.local.faults.struck]
        judge(world, [name], verdict)
    return verdict


def matrix(operations: Mapping[str, Sequence[str]]) -> list[tuple[tuple[str, Faults], ...]]:
    """Return every kind of fault at every call of every task, where it can strike.

    Args:
        operations: the calls of each task.
    """
    return [
        ((name, ((index, kind),)),)
        for name, called in operations.items()
        for index, operation in enumerate(called)
        for kind in KINDS
        if KINDS[kind].strikes(operation)
    ]


def worst(verdicts: Sequence[Verdict], most: int = 5) -> list[Any]:
    """Return the first schedules that went wrong."""
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    return [(verdict.steps, verdict.codes, verdict.wrong) for verdict in wrong[:most]]

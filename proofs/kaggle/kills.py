"""Killing: a task's process is killed, or interrupted, at a chosen instant; then the same command
is given again.

A stop counts as one that struck only if the task had begun and had not ended: the process says
"done" when it has.
"""

import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from proofs.kaggle.fault_schedules import TRIES, Verdict, attempt, half_written
from proofs.kaggle.task_process import BEGUN, DONE, READY
from proofs.kaggle.world import AT_MOST, ROOT, TASKS, World

NAMES = ("push-train", "pull", "publish", "submit")  # the tasks that write
TIMINGS = 5  # of each, for the length of the window in which it is stopped
SHARE_AT_LEAST = 0.6  # of the stops have to strike
SHORTER = 0.7
DRAWS_AT_LEAST = 40  # so that few stops are not judged by their luck
END_SECONDS = 20.0  # until a process that was stopped must have ended
# Python ends by SIGINT itself where the KeyboardInterrupt that we handled came inside an exec(); a
# shell tells that as 130, too.
EXPECTED = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGINT: (130, -signal.SIGINT)}

Order = tuple[str, float, int]
Map = Callable[[Callable[..., "Stop"], Sequence[Order]], list["Stop"]]


@dataclass
class Stop:
    """What came of one stop.

    Attributes:
        name: of the task. verdict: of the same command, given again.
        struck: whether the task was running. code: how the stopped process ended.
        seconds: from the signal to its end. objects: what the server has then, as `World.counts`
            tells it.
    """

    name: str
    verdict: Verdict
    struck: bool
    code: int
    seconds: float
    objects: tuple[int, int, int]


def stop(name: str, after: float, number: int) -> Stop:
    """Stop a task after so many seconds with that signal, then give it again in this one."""
    verdict = Verdict(((name, ()),))
    with _world(name) as world:
        with tempfile.TemporaryFile("w+") as said:
            struck, code, seconds = _stopped(world, name, after, number, said)
            said.seek(0)
            last = said.read()[-1000:]
        if struck and (code not in EXPECTED[signal.Signals(number)] or "Traceback" in last):
            verdict.wrong.append(f"{name}: ended as {code}: {last}")
        if not any(
            attempt(world, name, verdict) for _ in range(TRIES)
        ):  # what was being made may need another look
            verdict.wrong.append(f"{name}: never went through")
        if world.counts() != AT_MOST[name]:
            verdict.wrong.append(
                f"{name}: {world.counts()} are there, {AT_MOST[name]} were asked for"
            )
        verdict.wrong += half_written(world)
        return Stop(name, verdict, struck, code, seconds, world.counts())


def length(name: str) -> float:
    """Return the seconds that the task takes here and now when nobody stops it."""
    with _world(name) as world, _child(world, name) as child:
        _begin(child)
        told = _line(child).split()
        if told[:1] != [DONE]:
            raise OSError(f"{name} did not end well: {child.wait(END_SECONDS)}")
        return float(told[1])


def windows(lengths: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return how long each task may be waited for before it is stopped: its middle length."""
    return {
        name: statistics.median(took for other, took in lengths if other == name) for name in NAMES
    }


def stops(wanted: int, number: int, window: dict[str, float], give: Map, seed: int) -> list[Stop]:
    """Stop the tasks at instants spread over their windows, until as many as wanted struck, as many
    for each.

    Args:
        wanted: in all; at most wanted / SHARE_AT_LEAST are tried, or some more where few are
            wanted.
        give: calls `stop` for each of these orders, at the same time as far as it can.
    """
    draw = random.Random(seed)  # noqa: S311 - instants, no secrets
    each, found, window = math.ceil(wanted / len(NAMES)), list[Stop](), dict(window)
    most = max(math.floor(wanted / SHARE_AT_LEAST), DRAWS_AT_LEAST)
    while True:
        orders: list[Order] = []
        for name in NAMES:
            missing = each - struck(found)[name]
            orders += [
                (name, (place + draw.random()) / missing * window[name], number)
                for place in range(missing)
            ]
        orders = orders[: most - len(found)]
        if not orders:
            return found
        new = give(stop, orders)
        for name in {stopped.name for stopped in new if not stopped.struck}:
            window[name] *= SHORTER  # it is faster now than when it was measured
        found += new


def struck(found: Sequence[Stop]) -> dict[str, int]:
    """Return how many stops struck each task while it ran."""
    return {
        name: sum(stopped.struck for stopped in found if stopped.name == name) for name in NAMES
    }


def enough(found: Sequence[Stop], wanted: int) -> bool:
    """Return whether as many struck as were wanted, as many in each task."""
    return min(struck(found).values()) >= math.ceil(wanted / len(NAMES))


@contextmanager
def _world(name: str) -> Iterator[World]:
    folder, environment = Path(tempfile.mkdtemp(prefix="prove-kill-")), dict(os.environ)
    try:
        with World(folder / "world") as world:
            TASKS[name].before(world)
            yield world
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _child(
    world: World, name: str, said: IO[str] | int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[str]"]:
    """Give a process that has imported all it needs and waits for a line to begin."""
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.kaggle.task_process", name, str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
    ) as child:
        if _line(child) != READY:
            raise OSError(
                f"The child for {name} ended before it was ready: {child.wait(END_SECONDS)}"
            )
        yield child


def _begin(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None  # noqa: S101 - it is a pipe
    child.stdin.write("go\n")
    child.stdin.flush()
    if _line(child) != BEGUN:
        raise OSError(f"The child did not begin: {child.wait(END_SECONDS)}")


def _line(child: "subprocess.Popen[str]") -> str:
    """Return the next of the child's words, whatever libraries say between them; "" where it ended."""
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    for line in child.stdout:
        if line.startswith((READY, BEGUN, DONE)):
            return line.strip()
    return ""


def _stopped(
    world: World, name: str, after: float, number: int, said: IO[str]
) -> tuple[bool, int, float]:
    """Return whether the task was running, how the process ended, and how long that took."""
    with _child(world, name, said) as child:
        _begin(child)
        time.sleep(after)
        began = time.monotonic()
        child.send_signal(number)
        code = child.wait(END_SECONDS)
        return not _line(child).startswith(DONE), code, time.monotonic() - began

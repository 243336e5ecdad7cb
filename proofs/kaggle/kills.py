"""Kills or interrupts the process of a task at a chosen instant, and then runs the same task again.

A stop counts as one that struck only if the task had begun and had not ended. The process reports
both.
"""

import math
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from proofs.kaggle.fault_schedules import TRIES, Verdict, attempt, half_written
from proofs.kaggle.task_process import BEGUN, DONE, READY
from tests.faults.world import AT_MOST, PATIENT_SECONDS, ROOT, World, temporary

NAMES = ("push-train", "pull", "publish", "submit")  # the tasks that write
TIMINGS = 5  # of each task, for the window in which it is stopped
SHARE_AT_LEAST = 0.6  # of the stops have to strike
SHORTER = 0.7
DRAWS_AT_LEAST = 40  # so that few stops do not depend on luck
# Python ends by SIGINT itself where the KeyboardInterrupt came inside an exec(). A shell reports
# that as 130, too.
EXPECTED = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGINT: (130, -signal.SIGINT)}

Order = tuple[str, float, int]
Map = Callable[[Callable[..., "Stop"], Sequence[Order]], list["Stop"]]


@dataclass
class Stop:
    """The result of one stop.

    Attributes:
        name: of the task.
        verdict: on the same task, run again.
        struck: whether the task was running.
        code: the exit code of the stopped process.
        seconds: from the signal to its end.
        objects: what the server has then, as in `World.counts`.
    """

    name: str
    verdict: Verdict
    struck: bool
    code: int
    seconds: float
    objects: tuple[int, int, int]


def stop(name: str, after: float, number: int) -> Stop:
    """Stop the process of a task after so many seconds with that signal, then run it again here."""
    verdict = Verdict(((name, ()),))
    with temporary(name) as world:
        with tempfile.TemporaryFile("w+") as errors:
            struck, code, seconds = _stopped(world, name, after, number, errors)
            errors.seek(0)
            last = errors.read()[-1000:]
        if struck and (code not in EXPECTED[signal.Signals(number)] or "Traceback" in last):
            verdict.wrong.append(f"{name}: ended as {code}: {last}")
        # What was being made may not be visible at once.
        if not any(attempt(world, name, verdict) for _ in range(TRIES)):
            verdict.wrong.append(f"{name}: never went through")
        there, wanted = world.counts(), AT_MOST[name]
        if there != wanted:
            verdict.wrong.append(f"{name}: {there} are there, {wanted} were asked for")
        verdict.wrong += half_written(world)
        return Stop(name, verdict, struck, code, seconds, there)


def length(name: str) -> float:
    """Return the seconds that the task takes now when nobody stops it."""
    with temporary(name) as world, _child(world, name) as child:
        _begin(child)
        words = _line(child).split()
        if words[:1] != [DONE]:
            raise OSError(f"{name} did not end well: {child.wait(PATIENT_SECONDS)}")
        return float(words[1])


def windows(lengths: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the window in which each task is stopped: the median of its lengths."""
    return {
        name: statistics.median(took for other, took in lengths if other == name) for name in NAMES
    }


def stops(wanted: int, number: int, window: dict[str, float], give: Map, seed: int) -> list[Stop]:
    """Stop the tasks at instants spread over their windows, until enough stops struck each task.

    Args:
        wanted: number in all. At most wanted / SHARE_AT_LEAST are tried, or DRAWS_AT_LEAST.
        number: of the signal.
        window: seconds of each task.
        give: calls `stop` for each of these orders, in parallel where it can.
        seed: of the instants.
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
            window[name] *= SHORTER  # the task is faster now than when it was measured
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
def _child(
    world: World, name: str, errors: IO[str] | int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that has imported everything and waits for a line to begin."""
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.kaggle.task_process", name, str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    ) as child:
        if _line(child) != READY:
            code = child.wait(PATIENT_SECONDS)
            raise OSError(f"The child for {name} ended before it was ready: {code}")
        yield child


def _begin(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None  # noqa: S101 - it is a pipe
    child.stdin.write("go\n")
    child.stdin.flush()
    if _line(child) != BEGUN:
        raise OSError(f"The child did not begin: {child.wait(PATIENT_SECONDS)}")


def _line(child: "subprocess.Popen[str]") -> str:
    """Return the child's next report, without what libraries print; "" where it ended."""
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    for line in child.stdout:
        if line.startswith((READY, BEGUN, DONE)):
            return line.strip()
    return ""


def _stopped(
    world: World, name: str, after: float, number: int, errors: IO[str]
) -> tuple[bool, int, float]:
    """Return whether the task was running, the exit code, and the seconds from the signal to it."""
    with _child(world, name, errors) as child:
        _begin(child)
        time.sleep(after)
        began = time.monotonic()
        child.send_signal(number)
        code = child.wait(PATIENT_SECONDS)
        return not _line(child).startswith(DONE), code, time.monotonic() - began

"""Killing: a task's process is killed, or interrupted, at a chosen instant; then the same command is given again."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from proofs.schedule import Verdict, attempt
from proofs.world import AT_MOST, ROOT, TASKS, World

SECONDS = {
    "push-train": 0.2,
    "pull": 0.12,
    "publish": 0.5,
    "submit": 0.25,
}  # what each takes here, a little generously


@dataclass
class Stop:
    """What came of one stop.

    Attributes:
        verdict: of the same command, given again. code: how the stopped process ended.
        seconds: from the signal to its end. objects: what the server has then, as `World.counts` tells it.
    """

    verdict: Verdict
    code: int
    seconds: float
    objects: tuple[int, int, int]


def stop(name: str, share: float, number: int) -> Stop:
    """Stop a task after that share of its time with that signal, then give it again in a new process' place."""
    verdict = Verdict(((name, ()),))
    folder = Path(tempfile.mkdtemp(prefix="prove-kill-"))
    environment = dict(os.environ)
    try:
        with World(folder / "world") as world:
            TASKS[name].before(world)
            code, seconds = _stopped(world, name, share, number)
            attempt(world, name, verdict)
            if verdict.codes[-1] != 0:
                attempt(world, name, verdict)  # what was being made may need another look
            if verdict.codes[-1] != 0:
                verdict.wrong.append(f"{name}: never went through")
            if world.counts() != AT_MOST[name]:
                verdict.wrong.append(f"{name}: {world.counts()} are there, {AT_MOST[name]} were asked for")
            return Stop(verdict, code, seconds, world.counts())
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)


def _stopped(world: World, name: str, share: float, number: int) -> tuple[int, float]:
    """Return how the process ended, and how long that took."""
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.child", name, str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None  # noqa: S101 - both are pipes
        while (line := child.stdout.readline()) not in ("ready\n", ""):
            pass  # what a library had to say
        if not line:
            raise OSError(f"The child for {name} ended before it was ready: {child.wait()}")
        child.stdin.write("go\n")
        child.stdin.flush()
        time.sleep(share * SECONDS[name])
        began = time.monotonic()
        child.send_signal(number)
        code = child.wait(20)
        return code, time.monotonic() - began


def kills(count: int) -> list[tuple[str, float, int]]:
    """Return that many kills, spread over the tasks that write and over their time."""
    names = list(SECONDS)
    each = -(-count // len(names))
    return [(name, (place + 0.5) / each, signal.SIGKILL) for name in names for place in range(each)]


def interruptions(count: int) -> list[tuple[str, float, int]]:
    """Return that many interruptions, as Ctrl-C sends them."""
    return [(name, share, signal.SIGINT) for name, share, _ in kills(count)]

"""Tasks in other processes, to be killed or interrupted."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from commands import console
from deploy.deadline import limit
from localkaggle.faults import meanwhile
from tests import forked
from tests.faults.world import CHAIN, PATIENT_SECONDS, TASKS, User, World


def run(name: str, folder: Path) -> None:
    """Run a task like `tasks.py`, and end with its exit code."""

    def task(options: dict[str, Any]) -> None:
        user = User(folder)
        with limit(10 * PATIENT_SECONDS, "It hangs."):
            (CHAIN.get(name) or TASKS[name]).body(user, user.connect())

    console.reported(task, {})


def stopped(
    world: World, name: str, call: str, sent: int, *, after: bool, place: int = 0, later: float = 0
) -> tuple[int | None, str]:
    """Run a task, send it a signal at a call, and return its exit code and output.

    Args:
        world: of the task.
        name: of the task.
        call: at which the signal comes.
        sent: the signal.
        after: whether the call happens first.
        place: how many of these calls come before.
        later: seconds from there until the signal comes.
    """
    started, met = threading.Event(), threading.Event()
    log = world.folder.parent / "told.txt"

    def send() -> None:
        with suppress(ProcessLookupError):  # it may have ended
            os.kill(process.pid or 0, sent)

    def happens() -> None:
        met.set()
        started.wait(PATIENT_SECONDS)
        if later:
            threading.Timer(later, send).start()
        else:
            send()

    with world.failing({call: [*[None] * place, meanwhile(happens, after=after)]}, least=0):
        process = forked.begun(log, run, name, world.folder)
        started.set()
        process.join()
    assert met.is_set(), f"{name} did not meet it at {call}"
    text = log.read_text()
    log.unlink()
    return process.exitcode, text

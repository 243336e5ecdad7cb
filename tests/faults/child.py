"""Tasks in processes of their own, to be killed or interrupted. Run as a program.

Everything is imported before, so a task begins at once: each line that the program reads names a
task and a world, for which it forks. It prints the number of that process, and how it ended.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import console
from deploy.client.deadline import within
from localkaggle.fault_kinds import meanwhile
from tests.faults.world import CHAIN, PATIENT_SECONDS, ROOT, TASKS, User, World


def _task(name: str, folder: str) -> int:
    """Run a task as `tasks.py` does, and return its exit code."""
    # A shell starts background processes with Ctrl-C ignored, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    @console.reported
    def task() -> dict[str, Any]:
        user = User(Path(folder))
        with within(10 * PATIENT_SECONDS, "It hangs."):
            (CHAIN.get(name) or TASKS[name]).body(user, user.connect())
        return {}

    try:
        task()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Start one process a line."""
    told = os.fdopen(os.dup(1), "w", buffering=1)
    print("ready", file=told)
    for line in sys.stdin:
        name, folder, environment = json.loads(line)
        number = os.fork()  # this process has one thread
        if number == 0:
            os.environ.clear()
            os.environ.update(environment)
            file = os.open(Path(folder).parent / "told.txt", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, 1)
            os.dup2(file, 2)
            code = _task(name, folder)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(number, file=told)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), file=told)


@dataclass
class Children:
    """The program, as those see it who give it tasks."""

    process: "subprocess.Popen[str]"

    def stopped(
        self, world: World, name: str, call: str, stop: Callable[[int], object], **how: Any
    ) -> tuple[int, str]:
        """Run a task, which meets something at a call; return its exit code, and what it said.

        Args:
            world: of the task.
            name: of the task.
            call: at which this comes.
            stop: is given the number of the process.
            how: `after`, whether the call happens first; `place`, how many of them come before.
        """
        number: Future[int] = Future()
        met: list[int] = []

        def happens() -> None:
            met.append(number.result(PATIENT_SECONDS))
            stop(met[0])

        kind = meanwhile(happens, after=how["after"])
        with world.failing({call: [*[None] * how.get("place", 0), kind]}, least=0):
            assert self.process.stdin is not None
            line = json.dumps([name, str(world.folder), dict(os.environ)])
            print(line, file=self.process.stdin, flush=True)
            number.set_result(int(self._line()))
            code = int(self._line())
        assert met, f"{name} did not meet it at {call}"
        said = world.folder.parent / "told.txt"
        text = said.read_text()
        said.unlink()
        return code, text

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{__name__} ended: {self.process.wait()}"
        return line


@contextmanager
def children() -> Iterator[Children]:
    """Start the program."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.child"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        started = Children(process)
        assert started._line() == "ready\n"
        yield started
        process.communicate()


if __name__ == "__main__":
    main()

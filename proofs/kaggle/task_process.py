"""One task in a process of its own, to be killed or interrupted. Run as a program: TASK FOLDER.

The process prints READY once everything is imported, and waits for a line. Then it prints BEGUN,
and after the task DONE with its seconds. So it is known which instants lie in the task itself.
"""

import signal
import sys
import time
from pathlib import Path
from typing import Any

from commands import console
from deploy.client.deadline import within
from tests.faults.world import CHAIN, User

MOST_SECONDS = 600
READY, BEGUN, DONE = "ready", "begun", "done"


def main(name: str, folder: str) -> None:
    """Run the task as `tasks.py` does, with its exit codes and messages."""
    # A shell starts background processes with Ctrl-C ignored, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    user = User(Path(folder))

    @console.reported
    def task(context: Any) -> dict[str, Any]:
        print(BEGUN, flush=True)  # here, where an interrupt is the task's
        # As every task that speaks to Kaggle has it.
        with within(MOST_SECONDS, f"{name} took longer than {MOST_SECONDS} seconds"):
            CHAIN[name].body(user, user.connect())
        return {}

    user.connect()
    print(READY, flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    task(None)
    print(DONE, time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

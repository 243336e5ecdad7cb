"""Starts a task in a new process for each line that it reads. Run as a program: TASK FOLDER.

Everything is imported before, so the task begins at once. The program prints the number of each
process, and then how it ended.
"""

import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.faults.world import CHAIN, User


def main(name: str, folder: str) -> None:
    """Start one process a line; each logs in for itself."""
    user = User(Path(folder))
    user.connect()
    print("ready", flush=True)
    for _ in sys.stdin:
        number = os.fork()  # this process has one thread
        if number == 0:
            try:
                with redirect_stdout(StringIO()):
                    CHAIN[name].body(user, user.connect())
            finally:
                os._exit(0)
        print(number, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

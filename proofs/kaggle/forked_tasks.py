"""Nursery: processes that begin a task at once, since all that they need was imported before. Run
as a program: TASK FOLDER.

For each line that it reads it starts one, and prints its number and then how it ended.
"""

import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from proofs.kaggle.world import CHAIN, User


def main(name: str, folder: str) -> None:
    """Start one process a line, each as if it were the first that signs in."""
    user = User(Path(folder))
    user.connect()
    print("ready", flush=True)
    for _ in sys.stdin:
        number = os.fork()  # there is one thread here, so nothing is torn apart
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

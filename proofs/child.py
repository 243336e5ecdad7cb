"""Child: one task in a process of its own, to be killed or interrupted. Run as a program: TASK FOLDER.

It says "ready" once everything is imported, and begins when it is told to; so the instants that are tried lie in the task itself.
"""

import sys
from pathlib import Path
from typing import Any

import console
from proofs.world import CHAIN, User


def main(name: str, folder: str) -> None:
    """Run the task as `tasks.py` does, with its exit codes and messages."""
    user = User(Path(folder))

    @console.reported
    def task(context: Any) -> dict[str, Any]:
        CHAIN[name].body(user, user.connect())
        return {}

    user.connect()
    print("ready", flush=True)
    sys.stdin.readline()
    task(None)


if __name__ == "__main__":
    main(*sys.argv[1:])

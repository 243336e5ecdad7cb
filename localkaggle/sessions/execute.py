"""Execute: run a notebook in place with papermill, as Kaggle does.

The session's interpreter receives this file as text, so it imports nothing from this project.

Arguments: the notebook; without namespaces also the id of the process that it has to end with.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

import papermill
from papermill.engines import NotebookExecutionManager

SECONDS = 1.0  # between two writes of the notebook
write = NotebookExecutionManager.save


def save(manager: Any, **options: Any) -> None:
    """Write the notebook, unless it was written within the last second.

    papermill writes the whole notebook before and after each cell. A bundle has a hundred cells and
    half a megabyte, which took several seconds. papermill always writes it at the end.
    """
    if (manager.now() - manager.last_save_time).total_seconds() >= SECONDS:
        write(manager, **options)


def end_with(parent: int) -> None:
    """Kill this process once its parent has ended; the notebook's kernel watches this process."""
    while os.getppid() == parent:
        time.sleep(SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


NotebookExecutionManager.save = save
for parent in sys.argv[2:]:
    threading.Thread(target=end_with, args=(int(parent),), daemon=True).start()
try:
    papermill.execute_notebook(
        sys.argv[1],
        sys.argv[1],
        progress_bar=False,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
    )
except Exception as error:
    # The log needs errors of a cell, and papermill's own ("No kernel name found in notebook").
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(1)

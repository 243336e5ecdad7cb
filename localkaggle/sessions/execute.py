"""Execute: run a notebook in place with papermill, as Kaggle does.

The session's interpreter gets it as text, so it imports nothing of this project.

Arguments: the notebook, and the process that it ends with, unless a namespace sees to that.
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
    """Write the notebook, unless that was done within the last second.

    papermill writes all of it before and after each cell. A bundle has a hundred cells and is half
    a megabyte, which took several seconds. At the end papermill writes it in any case.
    """
    if (manager.now() - manager.last_save_time).total_seconds() >= SECONDS:
        write(manager, **options)


def end_with(parent: int) -> None:
    """Kill this process once its parent is gone; the notebook's kernel looks after us likewise."""
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
    # A cell's error or papermill's own ("No kernel name found in notebook"): the log needs both.
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(1)

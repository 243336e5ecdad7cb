"""Run a notebook in place with papermill, as Kaggle does.

This file is passed to the interpreter of a session as text, so it cannot import modules of this
project. The first argument is the path of the notebook. If namespaces are not available, the second
argument is the ID of the parent process, and this process exits when the parent does.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

import papermill
from papermill.engines import NotebookExecutionManager

SECONDS = 1.0  # minimum time between two writes of the notebook
write = NotebookExecutionManager.save


def save(manager: Any, **options: Any) -> None:
    """Save the notebook, unless it was saved less than a second ago.

    By default, papermill saves the whole notebook before and after each cell. For a bundle, which
    is a half-megabyte notebook with a hundred cells, this took several seconds in total. The final
    notebook is always saved by papermill.
    """
    if (manager.now() - manager.last_save_time).total_seconds() >= SECONDS:
        write(manager, **options)


def end_with(parent: int) -> None:
    """Kill this process when its parent exits. The Jupyter kernel then exits by itself."""
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
    # Log errors from cells and from papermill itself ("No kernel name found in notebook").
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(1)

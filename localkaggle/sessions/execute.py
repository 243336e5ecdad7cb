"""Execute: run a notebook in place with papermill, as Kaggle does.

The session's interpreter gets it as text, so it imports nothing of this project.
"""

import sys
from typing import Any

import papermill
from papermill.engines import NotebookExecutionManager

save = NotebookExecutionManager.save


def save_what_ran(self: Any, **changed: Any) -> None:
    """Save the notebook, but not around a cell that only writes a file: the next one saves it.

    A bundle has 70 of those and 400 kB. Saving it before and after each takes two seconds.
    """
    begun = [cell for cell in self.nb.cells if cell.metadata.papermill["start_time"]]
    if self.end_time or not begun or not begun[-1].source.startswith("%%writefile"):
        save(self, **changed)


NotebookExecutionManager.save = save_what_ran
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

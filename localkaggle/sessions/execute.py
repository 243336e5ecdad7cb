"""Execute: run a notebook in place with papermill, as Kaggle does.

The session's interpreter gets it as text, so it imports nothing of this project.
"""

import sys

import papermill

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

"""Execute: run a notebook in place with papermill, as Kaggle does. Given to the session's
interpreter as text, so it imports nothing of ours.
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
    # The error of the failing cell, or papermill's own ("No kernel name found in notebook"): both
    # belong into the log.
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(1)

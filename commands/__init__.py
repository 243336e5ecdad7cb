"""The commands behind `tasks.py`: they parse options, call, and print.

In: options. Out: lines, JSON and exit codes. The work is done in `deploy/`, `pipeline/` and
`workbench/`.

This file runs first, also while pip installs, so it has to work on an older Python.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip runs this on an older one
    sys.stderr.write(
        "This is Python {}.{}; kaggle-relay expects Python 3.11 to 3.13.\n"
        "Create an environment with one of them:\n"
        "python3.12 -m venv .venv && . .venv/bin/activate && pip install -e .\n".format(
            *sys.version_info[:2]
        )
    )
    sys.exit(2)

if sys.platform == "win32":  # pipeline and localkaggle print the same
    sys.stderr.write(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install\n"
    )
    sys.exit(2)

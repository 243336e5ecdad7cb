"""The commands behind `tasks.py`: they parse, call and print.

Comes in: options. Goes out: lines, JSON and exit codes. The work belongs to `deploy/` or
`pipeline/`.

This file runs first of all, also while pip installs, so it must run on an older Python.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip lets an older one come here
    sys.stderr.write(
        "This is Python {}.{}; kaggle-relay expects Python 3.11 to 3.13.\n"
        "Make an environment with one of them:\n"
        "python3.12 -m venv .venv && . .venv/bin/activate && pip install -e .\n".format(
            *sys.version_info[:2]
        )
    )
    sys.exit(2)

if sys.platform == "win32":  # pipeline and localkaggle say the same
    sys.stderr.write(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install\n"
    )
    sys.exit(2)

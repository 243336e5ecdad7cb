"""Command-line tasks registered by `tasks.py`.

A task parses its options, calls `deploy/`, `pipeline/` or `workbench/`, and reports the result as
text or JSON, with an exit code. This file must support older Python versions, because it is
imported first, even during pip install.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip may run this on an older Python
    sys.stderr.write(
        "This is Python {}.{}; kaggle-relay expects Python 3.11 to 3.13.\n"
        "Create an environment with a supported version:\n"
        "python3.12 -m venv .venv && . .venv/bin/activate && pip install -e .\n".format(
            *sys.version_info[:2]
        )
    )
    sys.exit(2)

if sys.platform == "win32":  # pipeline and localkaggle print the same message
    sys.stderr.write(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install\n"
    )
    sys.exit(2)

# A config may import Keras, which would start TensorFlow and print its startup messages.
os.environ.setdefault("KERAS_BACKEND", "jax")

"""A local Kaggle server that implements Kaggle's protocol and runs the notebooks it receives."""

import sys

if sys.platform == "win32":  # check this first, because fcntl and pwd do not exist there
    print(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install",
        file=sys.stderr,
    )
    sys.exit(2)

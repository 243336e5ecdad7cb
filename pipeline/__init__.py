"""Train a model on a competition's data, and predict the test set with it.

`deploy/` contains the code that communicates with Kaggle.
"""

import sys

if sys.platform == "win32":  # before anything imports fcntl or pwd
    print(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install",
        file=sys.stderr,
    )
    sys.exit(2)

"""The model side: config, data, model, learning rate, training, artifact, inference and
submission.
"""

import sys

if sys.platform == "win32":  # before anything imports fcntl or pwd
    print(
        "kaggle-relay needs Linux or macOS; on Windows run it in WSL:"
        " https://learn.microsoft.com/windows/wsl/install",
        file=sys.stderr,
    )
    sys.exit(2)

"""Wait until Kaggle lists what a run wrote, which may be some time after the run has ended."""

import time

from deploy.client.client import Kaggle
from deploy.errors import DeadlinePassed
from deploy.kernel.push_and_watch import Run, Show


def output(kaggle: Kaggle, run: Run, show: Show) -> tuple[dict[str, str], str]:
    """Return the signed addresses of a complete run's files by name, and its log.

    It waits at most `kaggle.pace.listed` seconds for the first file; then there is none.
    """
    end, told = time.monotonic() + kaggle.pace.listed, False
    while True:
        files, log = kaggle.kernel_output(run.handle, run.version)
        if files or time.monotonic() >= end:
            return files, log
        if not told:
            show(f"{run} is COMPLETE and lists no output yet; waiting for it.")
            told = True
        time.sleep(kaggle.pace.first)


def require(kaggle: Kaggle, run: Run, name: str, size: int, show: Show) -> bool:
    """Wait until Kaggle lists a file of a run with this size, at most `kaggle.pace.listed` seconds,
    and return whether it was not listed at once.

    Raises:
        DeadlinePassed: if it does not.
    """
    end, told = time.monotonic() + kaggle.pace.listed, False
    while True:
        listed = kaggle.kernel_files(run.handle, run.version).get(name)
        if listed == size:
            return told
        found = f"lists {name} of {run} with {listed} bytes"
        found = f"does not list {name} of {run}" if listed is None else found
        if time.monotonic() >= end:
            raise DeadlinePassed(
                f"Kaggle {found}; expected the {size} bytes that were pulled. A submission would be"
                " spent and not scored.\n"
                "Nothing was sent. Wait some minutes, then run the same command again:\n"
                "invoke submit"
            )
        if not told:
            show(f"Kaggle {found}; waiting for its {size} bytes.")
            told = True
        time.sleep(kaggle.pace.first)

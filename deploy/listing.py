"""What Kaggle lists of what a run wrote, which may be some time after the run has ended."""

import time
from collections.abc import Callable
from typing import TypeVar

from deploy.client import Kaggle
from deploy.errors import DeadlinePassed, RelayError
from deploy.push_and_watch import Run, Show

Answer = TypeVar("Answer")


def output(kaggle: Kaggle, run: Run, show: Show) -> tuple[dict[str, str], str]:
    """Return the signed addresses of a complete run's files by name, and its log.

    It waits at most `kaggle.pace.listed` seconds for the first file; then there is none.
    """
    return _ask(
        kaggle,
        kaggle.pace.listed,
        lambda: kaggle.kernel_output(run.handle, run.version),
        lambda answer: bool(answer[0]),
        lambda: show(f"{run} is COMPLETE and lists no output yet; waiting for it."),
    )


def require(kaggle: Kaggle, run: Run, name: str, anyway: str, show: Show) -> None:
    """Raise unless Kaggle has a file among a run's outputs, in the list that a pull downloads from.

    It looks for at most `kaggle.pace.most` seconds: the file was pulled, so it was in that list.

    Args:
        anyway: the command that submits without this look.

    Raises:
        DeadlinePassed: if the file is not there.
    """
    seconds = kaggle.pace.most
    files = _ask(
        kaggle,
        seconds,
        lambda: kaggle.kernel_output(run.handle, run.version)[0],
        lambda files: name in files,
        lambda: show(f"Kaggle lists no {name} of {run} now; looking for up to {seconds:.0f} s."),
    )
    if name not in files:
        there = ", ".join(sorted(files)[:12]) or "nothing"
        raise DeadlinePassed(
            f"Kaggle has no {name} among the outputs of {run}; it lists {there}. Expected the file"
            " that was pulled: without it a submission is spent and not scored.\n"
            "Nothing was sent. Run the same command again later, or submit all the same:\n"
            f"{anyway}"
        )


def size_warning(kaggle: Kaggle, run: Run, name: str, size: int) -> str:
    """Return a warning if Kaggle lists a file of a run with another size than it has; else "".

    Kaggle's own sizes may be wrong, or missing, for as long as the output exists.
    """
    try:
        listed = kaggle.kernel_files(run.handle, run.version).get(name, size)
    except RelayError:
        return ""  # it would only be a warning
    if listed == size:
        return ""
    return (
        f"Warning: Kaggle lists {name} of {run} with {listed:,} bytes, and {size:,} were pulled."
        " Its listed sizes may be wrong; a score that never comes may mean that they are not."
    )


def _ask(
    kaggle: Kaggle,
    seconds: float,
    ask: Callable[[], Answer],
    enough: Callable[[Answer], bool],
    waits: Callable[[], object],
) -> Answer:
    """Return the first answer that is enough, or the last one within these seconds.

    `waits` is called once, before the first wait.
    """
    end, waited = time.monotonic() + seconds, False
    while True:
        answer = ask()
        if enough(answer) or time.monotonic() >= end:
            return answer
        if not waited:
            waits()
            waited = True
        time.sleep(kaggle.pace.first)

"""Wait until Kaggle lists what a run wrote, which may be some time after the run has ended."""

import time
from collections.abc import Callable
from typing import TypeVar

from deploy.client.client import Kaggle
from deploy.errors import DeadlinePassed
from deploy.kernel.push_and_watch import Run, Show

Answer = TypeVar("Answer")


def output(kaggle: Kaggle, run: Run, show: Show) -> tuple[dict[str, str], str]:
    """Return the signed addresses of a complete run's files by name, and its log.

    It waits at most `kaggle.pace.listed` seconds for the first file; then there is none.
    """
    return _ask(
        kaggle,
        lambda: kaggle.kernel_output(run.handle, run.version),
        lambda answer: bool(answer[0]),
        lambda _: show(f"{run} is COMPLETE and lists no output yet; waiting for it."),
    )[0]


def require(kaggle: Kaggle, run: Run, name: str, size: int, show: Show) -> bool:
    """Wait until Kaggle lists a file of a run with this size, at most `kaggle.pace.listed` seconds,
    and return whether it was not listed at once.

    Raises:
        DeadlinePassed: if it does not.
    """

    def found(listed: int | None) -> str:
        if listed is None:
            return f"Kaggle does not list {name} of {run}"
        return f"Kaggle lists {name} of {run} with {listed} bytes"

    listed, waited = _ask(
        kaggle,
        lambda: kaggle.kernel_files(run.handle, run.version).get(name),
        lambda listed: listed == size,
        lambda listed: show(f"{found(listed)}; waiting for its {size} bytes."),
    )
    if listed != size:
        raise DeadlinePassed(
            f"{found(listed)}; expected the {size} bytes that were pulled. A submission would be"
            " spent and not scored.\n"
            "Nothing was sent. Wait some minutes, then run the same command again:\n"
            "invoke submit"
        )
    return waited


def _ask(
    kaggle: Kaggle,
    ask: Callable[[], Answer],
    enough: Callable[[Answer], bool],
    waits: Callable[[Answer], object],
) -> tuple[Answer, bool]:
    """Return the first answer that is enough, or the last one, and whether it took a wait.

    `waits` is called once, before the first wait.
    """
    end, waited = time.monotonic() + kaggle.pace.listed, False
    while True:
        answer = ask()
        if enough(answer) or time.monotonic() >= end:
            return answer, waited
        if not waited:
            waits(answer)
            waited = True
        time.sleep(kaggle.pace.first)

"""Events that steps yield. A step is a generator, and its caller displays the events.

Steps never print or prompt by themselves. The answer to an `Ask` is sent back to the step.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

ETA_AT_MOST = 10 * 365 * 24 * 3600.0  # seconds; longer estimates are ignored
ENDED = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")


@dataclass(frozen=True)
class Note:
    """A line of text for the user."""

    text: str


@dataclass(frozen=True)
class Status:
    """The state of a watched run.

    Attributes:
        seconds: seconds since the run was pushed or, if unknown, since the watch started.
        ran_seconds: seconds since the run was first seen running, or None if it has not started.
        words: last line of the log that is readable text.
        progress: progress lines from the log, oldest first.
        accelerator: "TPU", "GPU" or "CPU".
        left, allowed: seconds of this week's quota at the start of the watch, or None if unknown.
        pushed: whether `seconds` is measured from the push.
        often: whether only the progress has changed since a recent status. Such updates are shown
            on a terminal but not written to a pipe.
    """

    run: str
    status: str
    seconds: float
    ran_seconds: float | None
    words: str
    progress: Sequence[Mapping[str, Any]]
    accelerator: str
    left: float | None
    allowed: float | None
    pushed: bool = False
    often: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def newest(self) -> Mapping[str, Any]:
        return self.progress[-1] if self.progress else {}

    @property
    def seconds_ahead(self) -> float | None:
        """The run's own estimate of its remaining time in seconds, or None if unknown."""
        eta = self.newest.get("eta_seconds")
        return float(eta) if isinstance(eta, (int, float)) and 0 <= eta < ETA_AT_MOST else None


@dataclass(frozen=True)
class Ask:
    """A yes-or-no question that the user must answer before quota or a submission is used.

    `lines` contains lines of text that describe what would be used. `preview` is the `Preview` of a
    push.
    """

    lines: Sequence[str]
    question: str
    preview: Any = None


@dataclass(frozen=True)
class Pushed:
    """A push has created a version. `run` is its owner/slug/version."""

    run: str


Event = Note | Status | Ask | Pushed
Steps = Generator[Event, bool | None, T]
Tell = Callable[[Event], bool | None]


def completed(steps: Steps[T], tell: Tell) -> T:
    """Run steps until they are finished, pass each event to `tell`, and return their result.

    If `tell` raises an error, for example on Ctrl-C, the error is raised inside the waiting step.

    >>> def greet():
    ...     yield Note("hello")
    ...     return 3
    >>> completed(greet(), print)
    Note(text='hello')
    3
    """
    try:
        event = next(steps)
        while True:
            try:
                answer = tell(event)
            except BaseException as error:
                event = steps.throw(error)
            else:
                event = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value

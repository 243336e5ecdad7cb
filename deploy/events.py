"""The events of steps: a step is a generator that yields them, and its caller shows them.

A step never prints or asks by itself. The answer to an `Ask` is sent back into it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

ETA_AT_MOST = 10 * 365 * 24 * 3600.0  # seconds; anything longer is no estimate
ENDED = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")


@dataclass(frozen=True)
class Note:
    """A line for a person."""

    text: str


@dataclass(frozen=True)
class Status:
    """The state of a run that is watched.

    Attributes:
        run: owner/slug/version.
        status: Kaggle's status.
        seconds: since the run was pushed, or else since the watch began.
        ran_seconds: since the run was first seen running; None before that.
        words: the last line of its log that is text for people.
        progress: its lines of progress, the oldest first.
        accelerator: "TPU", "GPU" or "CPU".
        left, allowed: seconds of this week's quota when the watch began; None if unknown.
        pushed: whether `seconds` counts from the push.
        often: whether only the progress has changed since a recent status: a screen shows it, a
            pipe does not.
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
        """Whether the run has ended."""
        return self.status in ENDED

    @property
    def newest(self) -> Mapping[str, Any]:
        """The newest line of progress."""
        return self.progress[-1] if self.progress else {}

    @property
    def seconds_ahead(self) -> float | None:
        """The seconds that the run expects to need; None if unknown."""
        eta = self.newest.get("eta_seconds")
        return float(eta) if isinstance(eta, (int, float)) and 0 <= eta < ETA_AT_MOST else None


@dataclass(frozen=True)
class Ask:
    """The question whether to spend something. True or False is sent back.

    Attributes:
        lines: what would be spent, for a person.
        question: for a person.
        preview: the `Preview` of a push; None for a submission.
    """

    lines: Sequence[str]
    question: str
    preview: Any = None


@dataclass(frozen=True)
class Pushed:
    """A push has made a version. `run`: owner/slug/version."""

    run: str


Event = Note | Status | Ask | Pushed
Steps = Generator[Event, bool | None, T]
Tell = Callable[[Event], bool | None]


def completed(steps: Steps[T], tell: Tell) -> T:
    """Run steps to their end, pass each event to `tell`, and return what they return.

    An error in `tell`, such as Ctrl-C, is raised in the steps where they wait.

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

"""What steps tell while they work: a generator yields events, and whoever runs it shows them.

A step never prints and never asks by itself. The answer to an `Ask` is sent back into it.
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
    """What a watch knows of a run at one moment.

    Attributes:
        run: owner/slug/version.
        status: Kaggle's name for it.
        seconds: since the run was pushed, or else since the watch began.
        ran_seconds: since the run was first seen running; None: not yet.
        words: the last line of its log that says something to a person.
        progress: its lines of progress, the oldest first.
        accelerator: "TPU", "GPU" or "CPU".
        left, allowed: seconds of this week's quota for it, as the watch began; None: unknown.
        pushed: whether `seconds` counts from the push.
        often: whether only its progress has changed, soon after another one: a screen shows it,
            and a pipe does not.
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
        """How long the run still expects to take; None: unknown."""
        eta = self.newest.get("eta_seconds")
        return float(eta) if isinstance(eta, (int, float)) and 0 <= eta < ETA_AT_MOST else None


@dataclass(frozen=True)
class Ask:
    """What would be spent, and the question whether to. True is sent back, or False.

    Attributes:
        lines: of what would be spent, for a person.
        question: to a person.
        preview: the `Preview` of a push; None: it is a submission.
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
    """Run steps to their end, give each event to `tell`, and return what they return.

    An error in `tell`, as Ctrl-C, is raised in the steps, where they wait.

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

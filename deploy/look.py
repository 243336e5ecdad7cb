"""Look: what a watch knows of a run at one moment, and the line that says it.

The line is a text like any other, and carries its look: a screen draws the look, a stream of JSON
has its values, and everything else shows the line.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

ETA_AT_MOST = 10 * 365 * 24 * 3600.0  # seconds; anything longer is no estimate
ENDED = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")


@dataclass(frozen=True)
class Look:
    """What a watch knows of a run at one moment.

    Attributes:
        run: owner/slug/version.
        status: Kaggle's name for it.
        seconds: since the run was pushed, or else since the watch began.
        ran_seconds: since the run was first seen running; None: not yet.
        words: what the run says of itself, for a person.
        progress: its lines of progress, the oldest first.
        accelerator: "TPU", "GPU" or "CPU".
        left, allowed: seconds of this week's quota for it, as the watch began; None: unknown.
        pushed: whether `seconds` counts from the push.
        often: whether only its progress has changed, soon after another look: a screen shows it,
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

    @property
    def projected(self) -> str:
        """How much of the week's remaining quota the run will use, in words; "" if unknown."""
        ahead = self.seconds_ahead
        if ahead is None or self.left is None or self.ran_seconds is None:
            return ""
        hours = (self.ran_seconds + ahead) / 3600
        used = "under 0.1" if hours < 0.1 else f"about {hours:.1f}"
        left = f"{self.left / 3600:.1f} {self.accelerator} hours left this week"
        return f"will use {used} of the {left}"

    @property
    def state(self) -> str:
        """Status and progress in words: a watch shows a line when they change."""
        if self.ran_seconds is None:
            return self.status
        return "  ".join(filter(None, [self.status, self.words]))

    @property
    def line(self) -> "Line":
        """The line for a person, which carries this look."""
        said = self.state if self.status == "RUNNING" else self.status
        since = clock(self.seconds) if self.pushed else f"watched for {clock(self.seconds)}"
        return Line.of(f"{self.run}  {since}  {said}", self)

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes, with the newest line of progress alone.

        What is no number in it is null: JSON has no NaN.
        """
        return {
            "run": self.run,
            "status": self.status,
            "seconds": round(self.seconds, 1),
            "since": "push" if self.pushed else "watch",
            "running_seconds": None if self.ran_seconds is None else round(self.ran_seconds, 1),
            "progress": json.loads(json.dumps(self.newest), parse_constant=lambda name: None),
            "words": self.words,
            "accelerator": self.accelerator,
            "hours_left": None if self.left is None else self.left / 3600,
            "hours_allowed": None if self.allowed is None else self.allowed / 3600,
        }


class Line(str):
    """A line for a person, with the look that it was made of."""

    look: Look

    @classmethod
    def of(cls, text: str, look: Look) -> Self:
        """Return the text as a line of this look."""
        line = cls(text)
        line.look = look
        return line


def clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> clock(7265.9)
    '2:01:05'
    """
    minutes, rest = divmod(math.floor(seconds), 60)
    return f"{minutes // 60:d}:{minutes % 60:02d}:{rest:02d}"

"""Who is told what steps do: a pipe, a program that reads JSON, or a person at a terminal."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from commands.console import agreement, show
from deploy.events import Ask, Event, Note, Pushed, Status, Steps, completed

if TYPE_CHECKING:
    from commands.push_plan import PushPlan
    from commands.screen import Screen

T = TypeVar("T")


def terminal() -> bool:
    """Return whether a screen can be drawn: not in a pipe."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Telling:
    """Shows events, and asks before anything is spent.

    Args:
        agreed: asks a person; None: nothing is spent.
        plan: of a training, which is shown before the question.
        following: what comes after a wait for a run: a command, or what this one does.
        as_json: print each event as one JSON object.
    """

    def __init__(
        self,
        agreed: Callable[[str], bool] | None = None,
        plan: "PushPlan | None" = None,
        following: str = "",
        *,
        as_json: bool = False,
    ) -> None:
        self._agreed, self._plan, self._as_json = agreed, plan, as_json
        self._following = following if terminal() and not as_json else ""
        self._screen: Screen | None = None

    @classmethod
    def spending(cls, yes: bool, plan: "PushPlan | None" = None, following: str = "") -> "Telling":
        """Return what asks before it spends; raises as `agreement` does."""
        return cls(agreement(yes), plan, following)

    def complete(self, steps: Steps[T]) -> T:
        """Run steps to their end, show what they tell, and return what they return."""
        with self._drawn():
            return completed(steps, self)

    def note(self, line: str) -> None:
        """Show a line, as one of those that a connection tells."""
        self(Note(line))

    def __call__(self, event: Event) -> bool | None:
        """Show an event; return the answer to an `Ask`."""
        match event:
            case Note(text):
                self._show(text)
            case Status():
                self._status(event)
            case Pushed(run):
                if self._plan is not None:
                    self._plan.keep(run)
            case Ask():
                if self._plan is not None:
                    self._plan.show(event.costs)
                for line in event.costs.lines():
                    self._show(line)
                return self._agreed is not None and self._agreed(event.question)
        return None

    def _drawn(self) -> AbstractContextManager[object]:
        if not self._following:
            return nullcontext()
        from commands.screen import Screen

        self._screen = Screen(self._following)
        return self._screen

    def _show(self, line: str) -> None:
        if self._as_json:
            _print_json({"line": line})
        elif self._screen is not None:
            self._screen.note(line)
        else:
            show(line)

    def _status(self, seen: Status) -> None:
        if self._as_json:
            _print_json(_as_object(seen))
        elif self._screen is not None:
            self._screen.draw(seen)
        elif not seen.often:
            show(in_a_line(seen))


def in_a_line(seen: Status) -> str:
    """Return what is known of a run, as a line for a pipe."""
    from deploy.watch import in_clock

    since = in_clock(seen.seconds) if seen.pushed else f"watched for {in_clock(seen.seconds)}"
    words = in_words(seen) if seen.status == "RUNNING" and seen.ran_seconds is not None else ""
    return "  ".join(filter(None, [seen.run, since, seen.status, words]))


def in_words(seen: Status) -> str:
    """Return the progress of a run for a person, or else the last line of words in its log."""
    from pipeline.train import progress_log

    return progress_log.in_words(seen.newest) or seen.words


def _as_object(seen: Status) -> dict[str, Any]:
    """Return a status for JSON, with the newest line of progress alone.

    What is no number in it is null: JSON has no NaN.
    """
    return {
        "run": seen.run,
        "status": seen.status,
        "seconds": round(seen.seconds, 1),
        "since": "push" if seen.pushed else "watch",
        "running_seconds": None if seen.ran_seconds is None else round(seen.ran_seconds, 1),
        "progress": json.loads(json.dumps(seen.newest), parse_constant=lambda name: None),
        "words": in_words(seen),
        "accelerator": seen.accelerator,
        "hours_left": None if seen.left is None else seen.left / 3600,
        "hours_allowed": None if seen.allowed is None else seen.allowed / 3600,
    }


def _print_json(value: dict[str, Any]) -> None:
    from deploy import secrets

    print(secrets.to_json(value), flush=True)

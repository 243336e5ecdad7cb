"""Display events as plain lines, as JSON or on a live screen."""

import json
import os
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from commands.console import show, show_json
from deploy.errors import Detached
from deploy.events import Ask, Event, Note, Pushed, Status, Steps, completed

if TYPE_CHECKING:
    from commands.push_plan import PushPlan
    from commands.screen import Screen
    from deploy.client import Kaggle

T = TypeVar("T")
P = ParamSpec("P")
NO_SCREEN = ("dumb", "unknown")  # terminals that cannot redraw lines


class Telling:
    """Runs steps with the user's credentials, and displays their events.

    The user is asked for confirmation before quota or a submission is used.

    Args:
        agreed: asks the user for confirmation (see `console.agreement`), or None to always decline.
        plan: the plan of a training run, which is shown before the user is asked.
        as_json: whether to print each event as a JSON object.

    Attributes:
        following: what happens after the wait for a run: either the next command for the user, or
            what the current command will do. If it is "", no live screen is shown.
    """

    def __init__(
        self,
        agreed: Callable[[str], bool] | None = None,
        plan: "PushPlan | None" = None,
        following: str = "",
        *,
        as_json: bool = False,
    ) -> None:
        self.following = following
        self._agreed, self._plan, self._as_json = agreed, plan, as_json
        self._screen: Screen | None = None

    @cached_property
    def kaggle(self) -> "Kaggle":
        from deploy.client import Kaggle

        return Kaggle.connect(show=self.note)

    def run(
        self,
        begin: "Callable[Concatenate[Kaggle, P], Steps[T]]",
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        steps = begin(self.kaggle, *args, **options)
        try:
            return self._run(steps)
        except Detached as error:
            if self.following.startswith("this command"):
                where, _, attach = str(error).partition("\n")
                error.args = (f"{where}\nTo resume, run the same command again.\n{attach}".strip(),)
            raise

    def _run(self, steps: Steps[T]) -> T:
        terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in NO_SCREEN
        if not self.following or self._as_json or not terminal:
            return completed(steps, self)
        from commands.screen import Screen

        with Screen(self.following) as self._screen:
            return completed(steps, self)

    def note(self, line: str) -> None:
        if self._as_json:
            show_json({"line": line})
        elif self._screen is not None:
            self._screen.note(line)
        else:
            show(line)

    def __call__(self, event: Event) -> bool | None:
        match event:
            case Note(text):
                self.note(text)
            case Status() if self._as_json:
                show_json(_as_object(event))
            case Status() if self._screen is not None:
                self._screen.draw(event)
            case Status() if not event.often:
                show(in_a_line(event))
            case Pushed(run) if self._plan is not None:
                self._plan.keep(run)
            case Ask(lines, question, preview):
                if self._plan is not None:
                    self._plan.show(preview)
                for line in lines:
                    self.note(line)
                return self._agreed is not None and self._agreed(question)
        return None


def in_a_line(seen: Status) -> str:
    from deploy.watch import in_clock

    since = in_clock(seen.seconds) if seen.pushed else f"watched for {in_clock(seen.seconds)}"
    words = in_words(seen) if seen.status == "RUNNING" and seen.ran_seconds is not None else ""
    return "  ".join(filter(None, [seen.run, since, seen.status, words]))


def in_words(seen: Status) -> str:
    from pipeline.train import progress_log

    return progress_log.in_words(seen.newest) or seen.words


def _as_object(seen: Status) -> dict[str, Any]:
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

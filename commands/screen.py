"""A live display of a run's progress while a task waits for the run.

This module imports rich, so it is only imported if the output is a terminal. All text is passed
through `secrets.redact`. Text from Kaggle is never interpreted as markup.
"""

import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from commands.console import show
from deploy import secrets
from deploy.events import Status
from deploy.watch import in_clock
from pipeline.train import progress_log

REDRAWN = 2  # refreshes per second, so that the clocks keep running between polls
WIDEST = 100  # columns; longer lines are hard to read
LABEL, VALUE, BAR = 8, 22, 30  # widths of a row's label, value and bar in columns
SHOW_CURSOR = "\x1b[?25h"
# Symbol, style and description of each status.
STATES = {
    "NOT_THERE_YET": ("○", "yellow", "pushed, but not listed by Kaggle yet"),
    "NEW_SCRIPT": ("○", "yellow", "saved, but not started by Kaggle yet"),
    "QUEUED": ("○", "yellow", "waiting for a machine"),
    "RUNNING": ("●", "cyan", "running"),
    "COMPLETE": ("✓", "green", "complete"),
    "ERROR": ("✗", "red", "failed"),
    "CANCEL_REQUESTED": ("✗", "red", "being cancelled"),
    "CANCEL_ACKNOWLEDGED": ("✗", "red", "cancelled"),
}
LEVELS = "▁▂▃▄▅▆▇█"
DIM = "dim"
# Values that have their own row or are not shown. All other values share a row.
SHOWN = ("step", "steps", "loss", "eta_seconds")


class Screen(AbstractContextManager["Screen"]):
    """Displays a run from its first status to its last, and prints notes above the display.

    Args:
        following: the next command for the user to run, or a description of what the current
            command will do next.
    """

    def __init__(self, following: str) -> None:
        self._following = following
        self._seen: Status | None = None
        self._seen_at = 0.0
        self._live: Live | None = None
        self._ends = ExitStack()

    def __exit__(self, *error: object) -> None:
        self._close()

    def note(self, line: str) -> None:
        if self._live is None:
            show(line)
        else:
            self._live.console.print(Text(secrets.redact(line)), soft_wrap=True)

    def draw(self, seen: Status) -> None:
        if self._seen is not None and self._seen.run != seen.run:
            self._close()
        self._seen, self._seen_at = seen, time.monotonic()
        if self._live is None:
            # rich cannot restore the cursor if Ctrl-C interrupts it while it holds its lock.
            self._ends.callback(print, SHOW_CURSOR, end="", flush=True)
            self._live = Live(
                console=Console(file=sys.stdout, force_terminal=True, highlight=False),
                refresh_per_second=REDRAWN,
                redirect_stdout=False,
                redirect_stderr=False,
                get_renderable=self._drawing,
            )
            self._ends.enter_context(self._live)
        self._live.refresh()
        if seen.ended:
            self._close()

    def _close(self) -> None:
        # The last status stays visible in the terminal.
        try:
            self._ends.close()
        finally:
            self._live = self._seen = None

    def _drawing(self) -> RenderableType:
        if self._seen is None:
            return ""
        later = 0.0 if self._seen.ended else time.monotonic() - self._seen_at
        following = "" if self._seen.ended else self._following
        return Constrain(Group("", drawing(self._seen, later, following)), WIDEST)


def drawing(seen: Status, later: float, following: str) -> RenderableType:
    """Return the rows of text that display a run.

    Args:
        later: seconds since the last known status.
        following: describes what happens after the wait; "" if the wait is over.
    """
    rows, newest, passed = Table.grid(padding=(0, 1)), seen.newest, in_clock(seen.seconds + later)
    rows.add_column(width=LABEL, style=DIM)
    rows.add_column(overflow="fold")
    sign, style, words = STATES.get(seen.status, ("●", "yellow", seen.status))
    since = f"  pushed {passed} ago" if seen.pushed else f"  watched for {passed}"
    rows.add_row("run", Text.assemble((seen.run, "bold"), f"  {seen.accelerator}"))
    rows.add_row("", Text.assemble((sign, style), " ", (words, f"bold {style}"), since))
    step, steps = _number(newest, "step"), _number(newest, "steps")
    if step is not None and steps:
        rows.add_row("step", _bar(f"{step:,.0f} of {steps:,.0f}", step / steps))
    elif step is not None:
        rows.add_row("step", f"{step:,.0f}")
    elif seen.words:
        rows.add_row("log", Text(secrets.redact(seen.words)))
    ahead = None if seen.ended or seen.seconds_ahead is None else seen.seconds_ahead - later
    if ahead is not None:
        ahead = max(ahead, 0)
        ends = time.strftime("%H:%M", time.localtime(time.time() + ahead))
        rows.add_row("to go", f"{in_clock(ahead):{VALUE}}ends about {ends}")
    if "loss" in newest:
        loss = _number(newest, "loss")
        value = "not a number" if loss is None else f"{loss:.4f}"
        room = min(shutil.get_terminal_size().columns, WIDEST) - LABEL - VALUE - 2
        curve = (sparkline(losses(seen.progress), room), "cyan")
        rows.add_row("loss", Text.assemble(value.ljust(VALUE), curve))
    also = progress_log.in_words({k: v for k, v in newest.items() if k not in SHOWN})
    if also:
        rows.add_row("", Text(also, DIM))
    if seen.left is not None:
        rows.add_row("quota", _quota(seen, seen.left, ahead))
    if following:
        rows.add_row("next", Text(following, "bold"))
        rows.add_row("", Text("Press Ctrl-C to detach. The run will continue.", DIM))
    return rows


def _quota(seen: Status, left: float, ahead: float | None) -> Text:
    hours = f"{left / 3600:.1f}"
    used = Text(f"{hours} {seen.accelerator} hours left this week")
    if seen.allowed:
        spent = max(seen.allowed - left, 0)
        said = f"{spent / 3600:.1f} of {seen.allowed / 3600:.0f} h used"
        used = _bar(said, spent / seen.allowed, f"{hours} h left")
    if ahead is not None and seen.ran_seconds is not None:
        needs = (seen.ran_seconds + ahead) / 3600
        words = "under 0.1" if needs < 0.1 else f"about {needs:.1f}"
        used.append(f"\nwill use {words} of the {hours} {seen.accelerator} hours left", DIM)
    return used


def _bar(value: str, share: float, tail: str = "") -> Text:
    share = min(max(share, 0.0), 1.0)
    full = round(BAR * share)
    rest = ("━" * (BAR - full), DIM)
    bar = Text.assemble(value.ljust(VALUE), ("━" * full, "cyan"), rest)
    return bar.append(f" {tail or f'{share:.0%}'}")


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e15:
        return None
    return float(value)


def losses(progress: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the losses of the current fold, or their logarithms if all losses are positive.

    On a linear scale, large losses in the first steps would make later progress invisible.
    """
    fold = progress[-1].get("fold") if progress else None
    numbers = (_number(line, "loss") for line in progress if line.get("fold") == fold)
    found = [loss for loss in numbers if loss is not None]
    return list(map(math.log, found)) if min(found, default=0) > 0 else found


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a bar chart with at most `width` bars. Each bar is the mean of consecutive values.

    >>> sparkline([8, 8, 4, 4, 2, 2, 1, 1], 4)
    '█▄▂▁'
    """
    count = min(width, len(values))
    if count < 1:
        return ""
    means = np.array([part.mean() for part in np.array_split(values, count)])
    heights = (means - means.min()) / (np.ptp(means) or 1.0) * (len(LEVELS) - 1)
    return "".join(LEVELS[place] for place in np.rint(heights).astype(int))

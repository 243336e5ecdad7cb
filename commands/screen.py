"""The screen of a wait for a run, and of `invoke status`.

It imports rich, so it is imported only where a terminal shows. Nothing of it is printed without
`secrets.redact`, and no text of Kaggle is read as markup.
"""

import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from commands.console import show
from deploy import secrets
from deploy.events import Status
from deploy.watch import in_clock
from pipeline.train import progress_log

REDRAWN = 2  # times a second: the clocks go on between two looks
WIDEST = 100  # columns; lines that are longer are hard to read
LABEL, VALUE, TAIL = 8, 22, 12  # columns of a row's label, value and tail; a bar has the rest
SIGTERM_CODE = 143
# What a status means: a mark, a style, and words.
STATES = {
    "NOT_THERE_YET": ("○", "yellow", "pushed; Kaggle does not list it yet"),
    "NEW_SCRIPT": ("○", "yellow", "saved; Kaggle does not run it yet"),
    "QUEUED": ("○", "yellow", "waiting for a machine"),
    "RUNNING": ("●", "cyan", "running"),
    "COMPLETE": ("✓", "green", "complete"),
    "ERROR": ("✗", "red", "failed"),
    "CANCEL_REQUESTED": ("✗", "red", "being cancelled"),
    "CANCEL_ACKNOWLEDGED": ("✗", "red", "cancelled"),
}
LEVELS = "▁▂▃▄▅▆▇█"
DIM = "dim"
BLANK = Text()
# What a row of its own shows, or nobody needs; the others share a row.
SHOWN = ("step", "steps", "loss", "eta_seconds")


def _console() -> Console:
    """Return the terminal, which `commands.telling.terminal` has looked at."""
    return Console(file=sys.stdout, force_terminal=True, highlight=False)


class Screen(AbstractContextManager["Screen"]):
    """Draws a run from its first status to its last; lines are printed above it.

    Args:
        following: what comes after a wait: a command, or what this one does.
    """

    def __init__(self, following: str) -> None:
        self._following = following
        self._seen: Status | None = None
        self._seen_at = 0.0
        self._live: Live | None = None
        self._on_sigterm: Any = None

    def __exit__(self, *error: Any) -> None:
        self._close()

    def note(self, line: str) -> None:
        """Print a line."""
        if self._live is None:
            show(line)
        else:
            self._live.console.print(Text(secrets.redact(line)), soft_wrap=True)

    def draw(self, seen: Status) -> None:
        """Draw what is known of a run."""
        if self._seen is not None and self._seen.run != seen.run:
            self._close()
        self._seen, self._seen_at = seen, time.monotonic()
        if self._live is None:
            # The system would end the process at once, and leave the cursor hidden.
            self._on_sigterm = signal.signal(
                signal.SIGTERM, lambda number, frame: sys.exit(SIGTERM_CODE)
            )
            self._live = Live(
                console=_console(),
                refresh_per_second=REDRAWN,
                redirect_stdout=False,
                redirect_stderr=False,
                get_renderable=self._drawing,
            )
            self._live.start(refresh=True)
        self._live.refresh()
        if seen.ended:
            self._close()

    def _close(self) -> None:
        """Leave the run on the terminal as it was seen last."""
        if self._live is None:
            return
        live, self._live = self._live, None
        try:
            live.stop()
        finally:  # also where an interruption came within a lock of the library
            sys.stdout.write("\x1b[?25h")  # show the cursor
            sys.stdout.flush()
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._seen = None

    def _drawing(self) -> RenderableType:
        if self._seen is None:
            return ""
        later = 0.0 if self._seen.ended else time.monotonic() - self._seen_at
        following = "" if self._seen.ended else self._following
        rows = list(wait(self._seen, later, following))
        return _narrowed(Group(BLANK, *rows))


def _narrowed(drawn: RenderableType) -> RenderableType:
    grid = Table.grid()
    grid.add_column(width=min(_console().width, WIDEST))
    grid.add_row(drawn)
    return grid


def wait(seen: Status, later: float, following: str) -> Iterator[RenderableType]:
    """Yield the rows of a wait for a run.

    Args:
        later: seconds since it was seen.
        following: what comes after the wait; "": the wait is over.
    """
    newest, passed = seen.newest, in_clock(seen.seconds + later)
    yield _pair(Text(seen.run, "bold"), Text(seen.accelerator, DIM))
    yield _pair(
        _mark(seen.status),
        Text(f"pushed {passed} ago" if seen.pushed else f"watched for {passed}", DIM),
    )
    step, steps = _number(newest, "step"), _number(newest, "steps")
    if step is not None:
        of = "" if steps is None else f" of {steps:,.0f}"
        yield _bar("step", f"{step:,.0f}{of}", None if not steps else step / steps)
    elif seen.words:
        yield _labelled("log", secrets.redact(seen.words))
    ahead = seen.seconds_ahead
    if ahead is not None and not seen.ended:
        ahead = max(ahead - later, 0)
        ends = time.strftime("%H:%M", time.localtime(time.time() + ahead))
        yield _labelled("to go", f"{in_clock(ahead):{VALUE}}ends about {ends}")
    if "loss" in newest:
        loss = _number(newest, "loss")
        value = "not a number" if loss is None else f"{loss:.4f}"
        room = min(_console().width, WIDEST) - LABEL - VALUE
        line = Text(value.ljust(VALUE)).append(sparkline(losses(seen.progress), room), "cyan")
        yield _labelled("loss", line)
    also = progress_log.in_words({k: v for k, v in newest.items() if k not in SHOWN})
    if also:
        yield _labelled("", Text(also, DIM))
    if seen.left is not None:
        yield _quota("quota", seen.accelerator, seen.left, seen.allowed)
        projected = _projected(seen)
        if projected and not seen.ended:
            yield _labelled("", Text(projected, DIM))
    if following:
        yield _labelled("next", Text(following, "bold"))
        yield _labelled("", Text("Ctrl-C detaches; the run continues.", DIM))


def _projected(seen: Status) -> str:
    """Return how much of the week's remaining quota a run will use, in words; "" if unknown."""
    ahead = seen.seconds_ahead
    if ahead is None or seen.left is None or seen.ran_seconds is None:
        return ""
    hours = (seen.ran_seconds + ahead) / 3600
    used = "under 0.1" if hours < 0.1 else f"about {hours:.1f}"
    return f"will use {used} of the {seen.left / 3600:.1f} {seen.accelerator} hours left this week"


def show_journal(title: str, rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Print what was asked of Kaggle, as `status.journal_table` has it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(overflow="fold", no_wrap=column < 3, style=DIM if column < 2 else "")
    for cells in rows:
        table.add_row(*(Text(secrets.redact(cell)) for cell in cells))
    drawn: list[RenderableType] = [Text(title, DIM)]
    if rows:
        drawn += [BLANK, table]
    _print([*drawn, *(Text(note, DIM) for note in notes)])


def show_states(found: Mapping[str, Any]) -> None:
    """Print how the last runs stand, the quota and what comes next, as `status.now` has it."""
    rows: list[RenderableType] = [BLANK]
    for run, state in found["runs"].items():
        name, comma, more = state.partition(",")
        rows.append(_pair(Text(run, "bold"), _mark(name).append(comma + secrets.redact(more))))
    rows.append(BLANK)
    for name, left in found["hours_left"].items():
        allowed, reserved = found["hours_allowed"][name], found["hours_reserved"].get(name)
        seconds = (None if hours is None else hours * 3600 for hours in (left, allowed))
        rows.append(_quota(name, name, *seconds))
        if reserved:
            rows.append(_labelled("", Text(f"{reserved:.1f} h of them reserved by what runs", DIM)))
    if found["hours_unknown"]:
        rows.append(_labelled("", Text(found["hours_unknown"], DIM)))
    if found["renewed"]:
        moment = found["renewed"][:16].replace("T", " ")
        rows.append(_labelled("", Text(f"The week's quota returns at {moment} UTC.", DIM)))
    if found["next"]:
        rows += [BLANK, _labelled("next", Text(found["next"], "bold"))]
    _print(rows)


def _print(rows: Sequence[RenderableType]) -> None:
    _console().print(_narrowed(Group(*rows)))


def _mark(status: str) -> Text:
    """Return a run's status as a coloured mark and words."""
    sign, style, words = STATES.get(status, ("●", "yellow", status))
    return Text.assemble((sign, style), " ", (words, f"bold {style}"))


def _quota(
    label: str, accelerator: str, left: float | None, allowed: float | None
) -> RenderableType:
    """Return the row of a week's quota, used and left, in seconds; None: unknown."""
    if left is None:
        return _labelled(label, "not known")
    if allowed is None:
        return _labelled(label, f"{left / 3600:.1f} {accelerator} hours left this week")
    used = max(allowed - left, 0)
    value, tail = f"{used / 3600:.1f} of {allowed / 3600:.0f} h used", f"{left / 3600:.1f} h left"
    return _bar(label, value, used / allowed if allowed else 1, tail)


def _bar(label: str, value: str, share: float | None, tail: str = "") -> RenderableType:
    """Return a row with a bar, and what stands behind it: `tail`, or else the percentage."""
    if share is None:
        return _labelled(label, value)
    share = min(max(share, 0.0), 1.0)
    grid = Table.grid(expand=True)
    grid.add_column(width=LABEL)
    grid.add_column(width=VALUE)
    grid.add_column(ratio=1)
    grid.add_column(width=TAIL, justify="right")
    bar = ProgressBar(1, share, complete_style="cyan", finished_style="cyan", style=DIM)
    grid.add_row(Text(label, DIM), Text(value), bar, Text(tail or f"{share:.0%}"))
    return grid


def _labelled(label: str, value: str | Text) -> RenderableType:
    """Return a row of a label and a value, which may take several lines."""
    grid = Table.grid(expand=True)
    grid.add_column(width=LABEL)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(Text(label, DIM), Text(value) if isinstance(value, str) else value)
    return grid


def _pair(left: Text, right: Text) -> RenderableType:
    """Return a row of a text on the left and one on the right."""
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number of a line of progress; None if it has none: a log may say anything."""
    value = values.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e15:
        return None
    return float(value)


def losses(progress: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the losses so far, of the fold that is under way; where all are above 0, their logs.

    The first steps would else hide what the later ones gain.
    """
    fold = progress[-1].get("fold") if progress else None
    numbers = (_number(line, "loss") for line in progress if line.get("fold") == fold)
    found = [loss for loss in numbers if loss is not None]
    return list(map(math.log, found)) if min(found, default=0) > 0 else found


def sparkline(values: Sequence[float], width: int) -> str:
    """Return values as one line of bars, `width` at most: the mean of as many in each.

    >>> sparkline([8, 8, 4, 4, 2, 2, 1, 1], 4)
    '█▄▂▁'
    """
    count = max(min(width, len(values)), 0)
    edges = [place * len(values) // max(count, 1) for place in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if not means:
        return ""
    least, span = min(means), max(means) - min(means)
    top = len(LEVELS) - 1
    return "".join(LEVELS[round((mean - least) / span * top) if span else 0] for mean in means)

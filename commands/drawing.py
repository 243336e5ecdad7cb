"""Drawing: what a wait for a run, and `invoke status`, look like on a terminal.

It imports rich, so it is imported only where a terminal shows. Nothing of it is printed without
`secrets.redact`, and no text of Kaggle is read as markup.
"""

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy import secrets
from deploy.look import Look, clock
from pipeline.train import progress_log

WIDEST = 100  # columns; lines that are longer are hard to read
NARROW, SHORT = 60, 12  # columns below which there are no bars, lines below which no margin
LABEL, VALUE, TAIL = 8, 20, 12  # columns of a row's label, value and tail; a bar has the rest
# What a status means: a mark, its ASCII form, a style, and words.
STATES = {
    "NOT_THERE_YET": ("○", "o", "yellow", "pushed; Kaggle does not list it yet"),
    "NEW_SCRIPT": ("○", "o", "yellow", "saved; Kaggle does not run it yet"),
    "QUEUED": ("○", "o", "yellow", "waiting for a machine"),
    "RUNNING": ("●", "*", "cyan", "running"),
    "COMPLETE": ("✓", "+", "green", "complete"),
    "ERROR": ("✗", "x", "red", "failed"),
    "CANCEL_REQUESTED": ("✗", "x", "red", "being cancelled"),
    "CANCEL_ACKNOWLEDGED": ("✗", "x", "red", "cancelled"),
}
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*#"
DETACH, DETACH_NARROW = "Ctrl-C detaches; the run continues.", "Ctrl-C detaches."
DIM = "dim"
BLANK = Text()
# What a row of its own shows, or nobody needs; the others share a row.
SHOWN = ("step", "steps", "loss", "eta_seconds")


def console() -> Console:
    """Return the terminal, which somebody has looked at: `commands.console.terminal`."""
    return Console(file=sys.stdout, force_terminal=True, highlight=False)


@dataclass(frozen=True)
class Wait:
    """A wait for a run, as large as the terminal; where that is small, what matters most.

    Attributes:
        look: the newest one.
        later: seconds since then.
        following: what comes after the wait.
        notes: lines that were shown meanwhile.
        closed: whether the screen is over: what follows is then printed below it.
    """

    look: Look
    later: float
    following: str
    notes: Sequence[str] = ()
    closed: bool = False

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> Iterator[Any]:
        """Yield the rows that fit, of those that matter most."""
        wide = options.max_width >= NARROW
        height = options.size.height
        margin = 2 if wide and not self.closed else 0
        top = 1 if margin and height >= SHORT else 0
        width = min(options.max_width, WIDEST) - 2 * margin
        room = options.reset_height().update(width=max(width, 1))
        rows = list(self._rows(room.max_width, wide, options.ascii_only))
        left = len(rows) * 1000 if self.closed else height - top
        kept = set[int]()
        for place, (_, row) in sorted(enumerate(rows), key=lambda each: each[1][0]):
            lines = len(terminal.render_lines(row, room))
            if lines <= left:
                kept.add(place)
                left -= lines
        fitting = [row for place, (_, row) in enumerate(rows) if place in kept]
        # A blank row parts two others: there is none at the end, nor before another one.
        parted = [row for row, then in pairwise([*fitting, BLANK]) if row is not then]
        drawn = Constrain(Group(*parted), room.max_width)
        yield Padding(drawn, (top, margin, 0, margin), expand=False)

    def _rows(self, width: int, wide: bool, plain: bool) -> Iterator[tuple[int, RenderableType]]:
        """Yield the rows from top to bottom, each with its rank: 0 matters most."""
        look, newest = self.look, self.look.newest
        yield 8, pair(Text(look.run, "bold"), Text(look.accelerator, DIM))
        yield 10, BLANK
        passed = clock(look.seconds + self._passed)
        told = f"pushed {passed} ago" if look.pushed else f"watched for {passed}"
        since = Text(told if wide else passed, DIM)
        yield 0, pair(mark(look.status, plain), since)
        yield 11, BLANK
        step, steps = number(newest, "step"), number(newest, "steps")
        if step is not None:
            share = None if not steps else step / steps
            of = "" if steps is None else f" of {steps:,.0f}"
            yield 1, row("step", f"{step:,.0f}{of}", share, wide)
        elif look.words:
            yield 1, labelled("log", secrets.redact(look.words))
        ahead = look.seconds_ahead
        if ahead is not None and not look.ended:
            ahead = max(ahead - self._passed, 0)
            ends = time.strftime("%H:%M", time.localtime(time.time() + ahead))
            end = f"{clock(ahead):{VALUE}}ends about {ends}"
            yield 2, labelled("to go", end if wide else clock(ahead))
        if "loss" in newest:
            loss = number(newest, "loss")
            shown = "not a number" if loss is None else f"{loss:.4f}"
            value = Text(shown.ljust(VALUE) if wide else f"{shown} ")
            room = width - LABEL - len(value)
            drawn = sparkline(losses(look.progress), room, ASCII_LEVELS if plain else LEVELS)
            yield 3, labelled("loss", value.append(drawn, "cyan"))
        others = {name: value for name, value in newest.items() if name not in SHOWN}
        also = progress_log.in_words(others)
        if also:
            yield 7, labelled("", Text(also, DIM))
        if look.left is not None:
            yield 12, BLANK
            yield 4, quota("quota", look.accelerator, look.left, look.allowed, wide)
            if look.projected and not look.ended:
                yield 9, labelled("", Text(look.projected, DIM))
        if not self.closed:
            yield 13, BLANK
            yield 5, labelled("next", Text(self.following, "bold"))
            yield 6, labelled("", Text(DETACH if wide else DETACH_NARROW, DIM))
            yield 14, BLANK
            for note in self.notes[-3:]:
                yield 5, Text(secrets.redact(note), "yellow")

    @property
    def _passed(self) -> float:
        """Seconds since the newest look; none, once the run has ended."""
        return 0.0 if self.look.ended else self.later


def show_journal(title: str, rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Print what was asked of Kaggle, as `status.journal_table` has it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    wide = console().width >= NARROW
    for column in range(4):
        whole = wide and column < 3
        table.add_column(overflow="fold", no_wrap=whole, style=DIM if column < 2 else "")
    for cells in rows:
        table.add_row(*(Text(secrets.redact(cell)) for cell in cells))
    drawn: list[RenderableType] = [Text(title, DIM)]
    if rows:
        drawn += [BLANK, table]
    _print([*drawn, *(Text(note, DIM) for note in notes)])


def show_states(found: Mapping[str, Any]) -> None:
    """Print how the last runs stand, the quota and what comes next, as `status.now` has it."""
    terminal = console()
    wide = terminal.width >= NARROW
    rows: list[RenderableType] = [BLANK]
    for run, state in found["runs"].items():
        name, comma, more = state.partition(",")
        said = mark(name, terminal.options.ascii_only).append(comma + secrets.redact(more))
        rows.append(pair(Text(run, "bold"), said))
    rows.append(BLANK)
    for name, left in found["hours_left"].items():
        allowed = found["hours_allowed"][name]
        seconds = None if allowed is None else allowed * 3600
        rows.append(quota(name, name, None if left is None else left * 3600, seconds, wide))
        if found["hours_reserved"].get(name):
            told = f"{found['hours_reserved'][name]:.1f} h of them are reserved by what runs."
            rows.append(labelled("", Text(told, DIM)))
    if found["hours_unknown"]:
        rows.append(labelled("", Text(found["hours_unknown"], DIM)))
    if found["renewed"]:
        moment = found["renewed"][:16].replace("T", " ")
        rows.append(labelled("", Text(f"The week's quota returns at {moment} UTC.", DIM)))
    if found["next"]:
        rows += [BLANK, labelled("next", Text(found["next"], "bold"))]
    _print(rows)


def _print(rows: Sequence[RenderableType]) -> None:
    terminal = console()
    terminal.print(Group(*rows), width=min(terminal.width, WIDEST))


def mark(status: str, plain: bool) -> Text:
    """Return a run's status as a coloured mark and words; `plain`: in ASCII."""
    sign, ascii_sign, style, words = STATES.get(status, ("●", "*", "yellow", status))
    return Text.assemble((ascii_sign if plain else sign, style), " ", (words, f"bold {style}"))


def quota(
    label: str, accelerator: str, left: float | None, allowed: float | None, wide: bool
) -> RenderableType:
    """Return the row of a week's quota, used and left, in seconds; None: unknown."""
    if left is None:
        return labelled(label, "not known")
    if allowed is None:
        return labelled(label, f"{left / 3600:.1f} {accelerator} hours left this week")
    used = max(allowed - left, 0)
    value, tail = f"{used / 3600:.1f} of {allowed / 3600:.0f} h used", f"{left / 3600:.1f} h left"
    return row(label, value, used / allowed if allowed else 1, wide, tail)


def row(label: str, value: str, share: float | None, wide: bool, tail: str = "") -> RenderableType:
    """Return a row with a bar, and what stands behind it: `tail`, or else the percentage."""
    if share is None:
        return labelled(label, value)
    share = min(max(share, 0.0), 1.0)
    tail = tail or f"{share:.0%}"
    if not wide:
        return labelled(label, f"{value}  {tail}")
    grid = Table.grid(expand=True)
    grid.add_column(width=LABEL)
    grid.add_column(width=VALUE)
    grid.add_column(ratio=1)
    grid.add_column(width=TAIL, justify="right")
    bar = ProgressBar(1, share, complete_style="cyan", finished_style="cyan", style=DIM)
    grid.add_row(Text(label, DIM), Text(value), bar, Text(tail))
    return grid


def labelled(label: str, value: str | Text) -> RenderableType:
    """Return a row of a label and a value, which may take several lines."""
    grid = Table.grid(expand=True)
    grid.add_column(width=LABEL)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(Text(label, DIM), Text(value) if isinstance(value, str) else value)
    return grid


def pair(left: Text, right: Text) -> RenderableType:
    """Return a row of a text on the left and one on the right."""
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def number(values: Mapping[str, Any], name: str) -> float | None:
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
    numbers = (number(line, "loss") for line in progress if line.get("fold") == fold)
    found = [loss for loss in numbers if loss is not None]
    return list(map(math.log, found)) if min(found, default=0) > 0 else found


def sparkline(values: Sequence[float], width: int, levels: str = LEVELS) -> str:
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
    top = len(levels) - 1
    return "".join(levels[round((mean - least) / span * top) if span else 0] for mean in means)

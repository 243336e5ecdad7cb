"""Dashboard: a wait for a run as one screen that lives.

It is given the lines that a pipe gets. A line of a watch carries its look, which is drawn; other
lines are kept on the screen, and printed once it has closed. It imports rich, so it is imported
only where a terminal shows.
"""

import signal
import sys
import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Self

from rich.console import RenderableType
from rich.live import Live

from commands import drawing
from commands.console import print_line, shown_by
from deploy.look import Line, Look

REDRAWN = 2  # times a second: the clocks go on between two looks
LEAVE = "\x1b[?25h\x1b[?1049l"  # show the cursor, and the screen that was there before
SIGTERM_CODE = 143


class Dashboard(AbstractContextManager["Dashboard"]):
    """A screen for each wait within the block, from its first look to its last.

    Args:
        following: what comes after a wait: a command, or what this one does.
    """

    def __init__(self, following: str) -> None:
        self._following = following
        self._notes: list[str] = []
        self._look: Look | None = None
        self._looked = 0.0
        self._live: Live | None = None
        self._on_sigterm: Any = None
        self._shown = shown_by(self._show)

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._close()
        finally:
            self._shown.__exit__(None, None, None)

    def _show(self, line: str) -> None:
        if isinstance(line, Line):
            self._draw(line.look)
        elif self._live is None:
            print_line(line)
        else:
            self._notes.append(line)

    def _draw(self, look: Look) -> None:
        if self._look is not None and self._look.run != look.run:
            self._close()
        self._look, self._looked = look, time.monotonic()
        if look.ended:
            self._close()
        elif self._live is None:
            self._open()
        else:
            self._live.refresh()

    def _open(self) -> None:
        self._on_sigterm = signal.signal(signal.SIGTERM, _end)
        self._live = Live(
            console=drawing.console(),
            screen=True,
            refresh_per_second=REDRAWN,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._drawing,
        )
        self._live.start(refresh=True)

    def _close(self) -> None:
        """Leave the screen, and print how the run was seen last, and what was shown meanwhile."""
        if self._live is not None:
            try:
                self._live.stop()
            finally:  # an interruption within a lock of the library must not keep the screen
                sys.stdout.write(LEAVE)
                sys.stdout.flush()
                signal.signal(signal.SIGTERM, self._on_sigterm)
                self._live = None
        if self._look is not None:
            terminal = drawing.console()
            terminal.print(self._drawing(closed=True))
            terminal.print()
            self._look = None
        while self._notes:
            print_line(self._notes.pop(0))

    def _drawing(self, *, closed: bool = False) -> RenderableType:
        if self._look is None:
            return ""
        later = time.monotonic() - self._looked
        return drawing.Wait(self._look, later, self._following, tuple(self._notes), closed)


def _end(number: int, frame: FrameType | None) -> None:
    """End so that the terminal is restored: the system would end the process at once."""
    sys.exit(SIGTERM_CODE)

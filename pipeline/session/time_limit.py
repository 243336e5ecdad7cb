"""Session: how long this process may still run, whether it was asked to stop, and whether it hangs.

Kaggle ends a session without asking. A run therefore ends itself in time, saved; being told
(SIGTERM, Ctrl-C) is a help that nothing relies on.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

# What a run may need after its last checkpoint: pictures, the list of outputs, and Kaggle's own
# copying. Of a short session a twentieth.
MARGIN_SECONDS, MARGIN_SHARE = 300.0, 0.05
STALLED = "stalled.txt"
PRESSED = b"\nCtrl-C: the step under way is finished and saved. Once more ends at once, and loses what came after the last checkpoint.\n"


class Session:
    """A context in which SIGTERM and Ctrl-C ask for an end, and in which a run that makes no
    progress is ended.

    Ctrl-C is a KeyboardInterrupt all the same: at the end of the context, when the body has saved;
    pressed once more, at once.

    Args:
        hours: of wall clock since the process began; None: no limit.
        stall_seconds: without `progress` after which stacks are written to `output`/stalled.txt and
            the process exits with 1.
        output: the folder of the run.
        show: takes each line of text.

    Attributes:
        margin: seconds kept free at the end, for what comes after the last checkpoint.
    """

    def __init__(
        self,
        hours: float | None,
        stall_seconds: float,
        output: Path,
        show: Callable[[str], None] = print,
    ) -> None:
        self._hours = hours
        seconds = (hours or 0.0) * 3600
        self.margin = min(MARGIN_SECONDS, MARGIN_SHARE * seconds)
        self._end = None if hours is None else time.monotonic() + seconds - age() - self.margin
        self._stall, self._output, self._show = stall_seconds, output, show
        self._asked, self._pressed = "", False
        self._moved = time.monotonic()
        self._ended = threading.Event()
        self._before: object = None
        self._owner = self._takes = False

    def __enter__(self) -> Self:
        # Python lets only the main thread take signals; called from another one, the run goes
        # without.
        self._owner = threading.current_thread() is threading.main_thread()
        if self._owner:
            self._before = signal.signal(signal.SIGTERM, self._ask)
            # Else it is somebody else's, or to be ignored.
            self._takes = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if self._takes:
                signal.signal(signal.SIGINT, self._press)
        self.progress()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._owner:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)  # type: ignore[arg-type]
            if self._takes:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed and kind is None:
            raise KeyboardInterrupt

    def progress(self) -> None:
        """Note that a step, or the work between two, is done."""
        self._moved = time.monotonic()

    def over(self, reserve: float) -> str | None:
        """Return why the run has to end now, or None while it may go on.

        Args:
            reserve: seconds that it takes to end what was begun, and to save.
        """
        if self._asked:
            return f"asked to stop ({self._asked})"
        if self._end is not None and time.monotonic() + reserve >= self._end:
            return f"session_hours={self._hours:g} are nearly over"
        return None

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = "SIGTERM"

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._asked, self._pressed = "Ctrl-C", True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, PRESSED)  # `print` may be what was interrupted

    def _watch(self) -> None:
        while not self._ended.wait(min(self._stall / 4, 30.0)):
            stood = time.monotonic() - self._moved
            if stood < self._stall:
                continue
            text = (
                f"Error: no step was finished for {stood:.0f} s (stall_seconds={self._stall:g}); the run ends here, and goes on from its "
                f"last checkpoint.\nWhere each thread stood is in {self._output / STALLED}."
            )
            # The main thread hangs, so neither an exception nor a notebook's own output would get
            # out.
            try:
                with (self._output / STALLED).open("w") as file:
                    file.write(f"{text}\n")
                    file.flush()
                    faulthandler.dump_traceback(file, all_threads=True)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:  # a full disk is no reason to hang on
                text += f" It could not be written: {error.strerror or error}."
            finally:
                print(text, file=sys.__stderr__, flush=True)
                os._exit(1)


def age() -> float:
    """Return the seconds since this process began, or since this module was imported where the
    system does not say.
    """
    try:
        with open("/proc/self/stat", encoding="ascii") as file:  # noqa: PTH123 - as short as it gets
            begun = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - begun
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


_IMPORTED = time.monotonic()

"""Stop a run before its session ends, when the user asks for it, or when it stalls.

Kaggle terminates sessions without warning, so a run must save its state and stop in time. SIGTERM
and Ctrl-C are handled as well, but a run does not rely on receiving them.
"""

import faulthandler
import math
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from pipeline.runtime import processes

# Time reserved after the last checkpoint, at most a twentieth of the session. In this time, the run
# draws figures and lists its outputs, and Kaggle copies the files.
MARGIN_SECONDS, MARGIN_SHARE = 300.0, 0.05
STALLED, CTRL_C = "stalled.txt", "Ctrl-C"
STALL_SECONDS = 1800.0  # longer than any step, validation or read
PRESSED = (
    b"\nCtrl-C: finishing the current step and saving. Press Ctrl-C again to stop immediately "
    b"and lose all progress since the last checkpoint.\n"
)


class Session:
    """Context manager that turns SIGTERM and Ctrl-C into stop requests and terminates stalled runs.

    After Ctrl-C, the body can still save its state, and KeyboardInterrupt is raised at the end of
    the context. A second Ctrl-C raises KeyboardInterrupt immediately. After `STALL_SECONDS` without
    a call to `progress`, the process writes all stack traces to stalled.txt and exits with code 1.
    The time limit, `hours`, is measured from the start of the process.

    Attributes:
        margin: seconds reserved after the last checkpoint.
    """

    def __init__(self, hours: float | None, output: Path) -> None:
        self._hours, self._output = hours, output
        seconds = math.inf if hours is None else hours * 3600
        self.margin = min(MARGIN_SECONDS, MARGIN_SHARE * seconds)
        self._end = time.monotonic() + seconds - age() - self.margin
        self._request, self._agreement = "", processes.Agreement()
        self._handlers: dict[signal.Signals, Any] = {}
        self._ended = threading.Event()
        self.progress()

    def __enter__(self) -> Self:
        # Only the main thread can set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_signal)
            # Keep a Ctrl-C handler that was set by the caller or ignores Ctrl-C.
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_signal)
        self.progress()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        for number, before in self._handlers.items():
            signal.signal(number, before or signal.SIG_DFL)
        if self._request == CTRL_C and kind is None:
            processes.part()  # all processes have stopped, and the first one has saved
            raise KeyboardInterrupt

    def progress(self) -> None:
        """Report that a step, or some work between steps, has finished."""
        self._last_progress = time.monotonic()

    def over(self, reserve: float) -> str | None:
        """Return why the run must stop now, or None if it can continue.

        Processes that train together must all call this method the same number of times. They all
        get the same result. `reserve` is the number of seconds to reserve for the steps in flight
        and a checkpoint.
        """
        why = f"asked to stop ({self._request})" if self._request else None
        if time.monotonic() + reserve >= self._end:
            why = why or f"session_hours={self._hours:g} is nearly over"
        return self._agreement.on(why)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._request = CTRL_C
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(2, PRESSED)  # the signal may have interrupted `print`
        self._request = self._request or "SIGTERM"

    def _watch(self) -> None:
        while not self._ended.wait(min(STALL_SECONDS / 4, 30.0)):
            seconds = time.monotonic() - self._last_progress
            if seconds < STALL_SECONDS:
                continue
            text = (
                f"Error: no step finished within {seconds:.0f} s. Stopping the run, which can be"
                " resumed from its last checkpoint.\n"
                f"Stack traces of all threads: {self._output / STALLED}"
            )
            # The main thread hangs, so an exception or notebook output would not be visible. A full
            # disk must not keep the process alive either.
            print(text, file=sys.__stderr__, flush=True)
            with suppress(OSError), (self._output / STALLED).open("w") as file:
                print(text, file=file, flush=True)
                faulthandler.dump_traceback(file, all_threads=True)
            os._exit(1)


def age() -> float:
    """Return the seconds since this process started, or since this import if /proc is missing."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="ascii")
    except OSError:
        return time.monotonic() - _IMPORTED
    started = int(text.rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


_IMPORTED = time.monotonic()

"""The end of a session: the remaining time, a request to stop, and a watchdog.

Kaggle ends a session without warning, so a run saves and ends in time. SIGTERM and Ctrl-C are
handled, too, but nothing relies on them.
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

# Time after the last checkpoint, for pictures, the list of outputs, and Kaggle's copying; in a
# short session, a twentieth of it.
MARGIN_SECONDS, MARGIN_SHARE = 300.0, 0.05
STALLED, CTRL_C = "stalled.txt", "Ctrl-C"
STALL_SECONDS = 1800.0  # no step, validation or read takes longer
PRESSED = (
    b"\nCtrl-C: the current step is finished and saved. Press it once more to end at once, "
    b"which loses everything since the last checkpoint.\n"
)


class Session:
    """A context in which SIGTERM and Ctrl-C request a stop, and a run without progress is ended.

    Ctrl-C still raises KeyboardInterrupt: at the end of the context, when the body has saved; a
    second time, at once.

    Args:
        hours: of wall clock since the process started; None: no limit.
        output: the folder of the run. After `STALL_SECONDS` without `progress` the stacks of all
            threads go to stalled.txt in it, and the process exits with 1.

    Attributes:
        margin: seconds kept free after the last checkpoint.
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
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            self._handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_signal)
            # Another handler of Ctrl-C is somebody else's, or ignores it.
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
            processes.part()  # all have stopped, and the first has saved
            raise KeyboardInterrupt

    def progress(self) -> None:
        """Note that a step, or some work between steps, is done."""
        self._last_progress = time.monotonic()

    def over(self, reserve: float) -> str | None:
        """Return why the run has to end now, or None if it may continue. Processes that train
        together must call it equally often, and get the same answer.

        Args:
            reserve: seconds that the steps in flight and a checkpoint take.
        """
        why = f"asked to stop ({self._request})" if self._request else None
        if time.monotonic() + reserve >= self._end:
            why = why or f"session_hours={self._hours:g} is nearly over"
        return self._agreement.on(why)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._request = CTRL_C
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(2, PRESSED)  # it may have interrupted `print`
        self._request = self._request or "SIGTERM"

    def _watch(self) -> None:
        while not self._ended.wait(min(STALL_SECONDS / 4, 30.0)):
            seconds = time.monotonic() - self._last_progress
            if seconds < STALL_SECONDS:
                continue
            text = (
                f"Error: no step ended within {seconds:.0f} s; the run ends here, and resumes from"
                " its last checkpoint.\n"
                f"The stacks of all threads go to {self._output / STALLED}."
            )
            # The main thread hangs: an exception or a notebook's output would not be seen. Nor may
            # a full disk keep the run hanging.
            print(text, file=sys.__stderr__, flush=True)
            with suppress(OSError), (self._output / STALLED).open("w") as file:
                print(text, file=file, flush=True)
                faulthandler.dump_traceback(file, all_threads=True)
            os._exit(1)


def age() -> float:
    """Return the seconds since this process started; without /proc, since this module's import."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="ascii")
    except OSError:
        return time.monotonic() - _IMPORTED
    started = int(text.rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


_IMPORTED = time.monotonic()

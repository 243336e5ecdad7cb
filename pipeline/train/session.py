"""The end of a session: the time that is left, a request to stop, and a watchdog.

Kaggle ends a session without a request. A run therefore ends itself in time, saved; SIGTERM and
Ctrl-C help, and nothing relies on them.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Self

from pipeline.runtime import processes

# What a run may need after its last checkpoint: pictures, the list of outputs, and Kaggle's own
# copying. Of a short session a twentieth.
MARGIN_SECONDS, MARGIN_SHARE = 300.0, 0.05
STALLED = "stalled.txt"
STALL_SECONDS = 1800.0  # no step, validation or read takes longer
PRESSED = (
    b"\nCtrl-C: the current step is finished and saved. Press it once more to end at once, "
    b"which loses everything since the last checkpoint.\n"
)


class Session:
    """A context in which SIGTERM and Ctrl-C ask for an end, and a run without progress is ended.

    Ctrl-C is still a KeyboardInterrupt: at the end of the context, when the body has saved; pressed
    once more, at once.

    Args:
        hours: of wall clock since the process began; None: no limit.
        output: the folder of the run.
        stall_seconds: without `progress`, after which `output` gets the stacks of all threads, in
            stalled.txt, and the process exits with 1.

    Attributes:
        margin: seconds kept free at the end, for what follows the last checkpoint.
    """

    def __init__(
        self, hours: float | None, output: Path, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._hours = hours
        seconds = (hours or 0.0) * 3600
        self.margin = min(MARGIN_SECONDS, MARGIN_SHARE * seconds)
        self._end = None if hours is None else time.monotonic() + seconds - age() - self.margin
        self._output, self._stall_seconds = output, stall_seconds
        self._request, self._pressed = "", False
        self._agreement = processes.Agreement()
        self._last_progress = time.monotonic()
        self._ended = threading.Event()
        self._before: object = None
        self._in_main_thread = self._handles_sigint = False

    def __enter__(self) -> Self:
        # Python lets only the main thread handle signals; in another thread there are none.
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        if self._in_main_thread:
            self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
            # Any other handler belongs to somebody else, or ignores it.
            self._handles_sigint = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if self._handles_sigint:
                signal.signal(signal.SIGINT, self._on_sigint)
        self.progress()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        if self._in_main_thread:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)  # type: ignore[arg-type]
            if self._handles_sigint:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed and kind is None:
            processes.part()  # all have stopped, and the first one has saved
            raise KeyboardInterrupt

    def progress(self) -> None:
        """Note that a step, or the work between two, is done."""
        self._last_progress = time.monotonic()

    def over(self, reserve: float) -> str | None:
        """Return why the run has to end now, or None if it may continue. Processes that train
        together ask equally often, and get the same answer.

        Args:
            reserve: seconds that the steps under way and saving take.
        """
        return self._agreement.on(self._here(reserve))

    def _here(self, reserve: float) -> str | None:
        if self._request:
            return f"asked to stop ({self._request})"
        if self._end is not None and time.monotonic() + reserve >= self._end:
            return f"session_hours={self._hours:g} is nearly over"
        return None

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self._request = "SIGTERM"

    def _on_sigint(self, _number: int, _frame: FrameType | None) -> None:
        self._request, self._pressed = "Ctrl-C", True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, PRESSED)  # `print` may be what was interrupted

    def _watch(self) -> None:
        while not self._ended.wait(min(self._stall_seconds / 4, 30.0)):
            seconds = time.monotonic() - self._last_progress
            if seconds < self._stall_seconds:
                continue
            text = (
                f"Error: no step was finished for {seconds:.0f} s; the "
                "run ends here, and resumes from its last checkpoint.\n"
                f"The stacks of all threads are in {self._output / STALLED}."
            )
            # The main thread hangs: no exception and no output of a notebook would be seen.
            try:
                with (self._output / STALLED).open("w") as file:
                    file.write(f"{text}\n")
                    file.flush()
                    faulthandler.dump_traceback(file, all_threads=True)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:  # a full disk must not keep the run hanging
                text += f" It could not be written: {error.strerror or error}."
            finally:
                print(text, file=sys.__stderr__, flush=True)
                os._exit(1)


def age() -> float:
    """Return the seconds since this process began.

    Where the system does not say, it is the seconds since the import of this module.
    """
    try:
        with open("/proc/self/stat", encoding="ascii") as file:  # noqa: PTH123
            begun = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - begun
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


_IMPORTED = time.monotonic()

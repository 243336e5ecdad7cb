"""Deadline: an end to a task, also while it waits for a byte that never comes.

Timeouts of a connection count from byte to byte: a server that sends one a second keeps a caller
for ever (measured). So the end comes from outside: a timer of the operating system interrupts the
main thread, wherever it is.

Ctrl-C needs the same timer. An interruption may strike between a lock's being taken and the block
that gives it back, as in Python's own queue, and what cleans up then waits for that lock for ever,
be it at the very end of the process (both seen: one of 50 interruptions of a pull, in urllib3's
pool of connections).
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from deploy.errors import DeadlinePassed

AGAIN_SECONDS = (
    3.0  # whoever swallowed the first interruption, or cleans up for too long, gets another
)
AFTER_CTRL_C_SECONDS = 0.5  # a person waits for this one


class TimeUp(BaseException):
    """The deadline. Not an `Exception`, so that nothing on the way takes it for an answer of
    Kaggle.
    """


@contextmanager
def within(seconds: float, message: str) -> Iterator[None]:
    """Raise `DeadlinePassed` with that message where the body takes longer; end it at Ctrl-C,
    whatever it holds.

    Outside of the main thread, and where the system has no such timer, the body runs without an end
    of its own.

    >>> with within(0.01, "The task took longer than 0.01 seconds."):
    ...     threading.Event().wait(5)
    Traceback (most recent call last):
    ...
    deploy.errors.DeadlinePassed: The task took longer than 0.01 seconds.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    ended = interrupted = False

    def ring(number: int, frame: FrameType | None) -> None:
        if not ended:
            raise KeyboardInterrupt if interrupted else TimeUp

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.setitimer(signal.ITIMER_REAL, AFTER_CTRL_C_SECONDS, AFTER_CTRL_C_SECONDS)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    ours = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # else Ctrl-C is somebody else's, or is to be ignored
    if ours:
        signal.signal(signal.SIGINT, press)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN_SECONDS)
    try:
        yield
    except TimeUp:
        raise DeadlinePassed(message) from None
    finally:
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def end_soon(code: int) -> None:
    """End the process with this code if what libraries do at its end does not come to one: a lock
    may be lost for good.

    For `atexit`, by whoever ends the process; one that goes on has nothing to fear from a deadline
    that it has met.
    """
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(code))
    signal.setitimer(signal.ITIMER_REAL, AFTER_CTRL_C_SECONDS)

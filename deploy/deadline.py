"""A deadline for a task, even if it waits for a byte that never comes.

A connection's timeout counts from byte to byte, so a server that sends one per second holds a
caller for ever (measured). So a timer of the operating system interrupts the main thread.

Ctrl-C needs the same timer. An interruption may come between acquiring a lock and entering the
block that releases it, for example in Python's own queue. The clean-up then waits for that lock for
ever, even at the end of the process (seen in one of 50 interruptions of a pull, in urllib3's pool).
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from deploy.errors import DeadlinePassed

AGAIN_SECONDS = 3.0  # until another interruption, if the first was swallowed or clean-up is slow
AFTER_CTRL_C_SECONDS = 0.5  # shorter, since a person is waiting


class TimeUp(BaseException):
    """The deadline. Not an `Exception`, so that no handler mistakes it for Kaggle's answer."""


@contextmanager
def limit(seconds: float, message: str) -> Iterator[None]:
    """Raise `DeadlinePassed` if the body takes too long; also end it at Ctrl-C.

    There is no deadline outside the main thread.

    Args:
        seconds: until the deadline.
        message: of the error.

    >>> with limit(0.01, "The task took longer than 0.01 seconds."):
    ...     threading.Event().wait(5)
    Traceback (most recent call last):
    ...
    deploy.errors.DeadlinePassed: The task took longer than 0.01 seconds.
    """
    if threading.current_thread() is not threading.main_thread():
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
    # Another handler is not replaced: Ctrl-C may have to be ignored.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
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

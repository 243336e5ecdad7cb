"""Limit the duration of tasks, even while they wait for data that never arrives.

A connection's timeout only limits the time between two bytes. In our tests, a server that sent one
byte per second blocked its caller forever. Deadlines therefore use an operating system timer that
interrupts the main thread.

After Ctrl-C, the same timer repeats the interrupt. The first one may occur after a lock was
acquired but before the block that releases it is entered. Clean-up code then waits for the lock
forever. We saw this in one of 50 interrupted pulls, in urllib3's connection pool.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from deploy.errors import DeadlinePassed

AGAIN_SECONDS = 3.0  # interrupt again in case the first one was swallowed or clean-up is slow
AFTER_CTRL_C_SECONDS = 0.5  # shorter, because the user is waiting


class TimeUp(BaseException):
    """The deadline has passed. This is not an `Exception`, so error handlers do not catch it."""


@contextmanager
def limit(seconds: float, message: str) -> Iterator[None]:
    """Raise `DeadlinePassed` if the body takes too long, and interrupt it on Ctrl-C.

    The deadline only applies to the main thread.

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
    # Do not replace a custom handler, because it may be there to ignore Ctrl-C.
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

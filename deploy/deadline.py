"""Deadline: an end to a task, also while it waits for a byte that never comes.

Timeouts of a connection count from byte to byte: a server that sends one a second keeps a caller for ever (measured). So the end comes from
outside: a timer of the operating system interrupts the main thread, wherever it is.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from deploy.errors import DeadlinePassed

AGAIN_SECONDS = 3.0  # whoever swallowed the first interruption, or cleans up for too long, gets another


class TimeUp(BaseException):
    """The deadline. Not an `Exception`, so that nothing on the way takes it for an answer of Kaggle."""


@contextmanager
def within(seconds: float, message: str) -> Iterator[None]:
    """Raise `DeadlinePassed` with that message where the body takes longer.

    Outside of the main thread, and where the system has no such timer, the body runs without an end of its own.

    >>> with within(0.01, "The task took longer than 0.01 seconds."):
    ...     threading.Event().wait(5)
    Traceback (most recent call last):
    ...
    deploy.errors.DeadlinePassed: The task took longer than 0.01 seconds.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = False

    def ring(number: int, frame: FrameType | None) -> None:
        if not ended:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN_SECONDS)
    try:
        yield
    except TimeUp:
        raise DeadlinePassed(message) from None
    finally:
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

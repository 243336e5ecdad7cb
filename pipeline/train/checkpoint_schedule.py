"""Writes checkpoints while the run continues, as often as their cost allows."""

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

# Writing may take this share of the time at most. Young 1974: the least is lost at sqrt(2 x cost x
# time between failures); a Kaggle session is assumed to fail once in its 9 hours.
SHARE, FAILURE_SECONDS = 0.02, 9 * 3600.0
# The first comes soon: its cost is not known before, and a run that fails early should leave one.
FIRST_SECONDS = 20.0
# Until one was written: the slowest disk that we allow for.
SLOWEST_BYTES_PER_SECOND = 50e6


def interval(cost: float) -> float:
    """Return the seconds from one checkpoint to the next, if writing one takes `cost`.

    >>> round(interval(1.0)), round(interval(100.0))
    (255, 5000)
    """
    return max(cost / SHARE, math.sqrt(2 * cost * FAILURE_SECONDS))


class Saver:
    """A context with one thread that writes one checkpoint at a time.

    Args:
        seconds: least time between two checkpoints; None: it follows from the measured cost.
        size: approximate bytes of a checkpoint.

    Attributes:
        seconds: that writing has taken so far.
    """

    def __init__(self, seconds: float | None, size: int) -> None:
        self._given, self._size = seconds, size
        self._costs: deque[float] = deque(maxlen=20)
        self._last = time.monotonic()
        self._running: Future[float] | None = None
        self._pool = ThreadPoolExecutor(1, "checkpoints")
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A process that ends would end the thread in the middle of a write.
        self._pool.shutdown(wait=True)

    def interval(self) -> float:
        """Return the seconds from one checkpoint to the next.

        >>> Saver(None, 0).interval()
        20.0
        """
        if self._given is not None:
            return self._given
        if not self._costs:
            return FIRST_SECONDS
        return interval(max(self._costs))

    def reserve(self) -> float:
        """Return the seconds to keep for the end: three of the slowest checkpoints so far.

        One may be under way and one more follows, each of them slower than any before.
        """
        return 3 * max(self._costs, default=self._size / SLOWEST_BYTES_PER_SECOND)

    def due(self) -> bool:
        """Return whether it is time for the next one; raise what the last one raised."""
        if self._running is not None and not self._running.done():
            return False
        self.wait()
        return time.monotonic() - self._last >= self.interval()

    def save(self, snapshot: float, write: Callable[[], None]) -> None:
        """Start to write a checkpoint while the run continues.

        Args:
            snapshot: seconds that it took to copy the state off the devices.
            write: writes it; `due` or `wait` raises what it raises.
        """

        def timed() -> float:
            started = time.monotonic()
            write()
            return snapshot + time.monotonic() - started

        self.wait()
        self._last = time.monotonic()
        self._running = self._pool.submit(timed)

    def wait(self) -> None:
        """Return when nothing is being written; raise what the last write raised."""
        if self._running is not None:
            running, self._running = self._running, None
            cost = running.result()
            self._costs.append(cost)
            self.seconds += cost

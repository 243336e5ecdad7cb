"""Saver: writes checkpoints while the run goes on, as often as their cost allows."""

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

# Writing may take this share of the time at most. Young 1974: the least is lost at sqrt(2 x cost x
# time between failures), and a Kaggle session is taken to fail once in its 9 hours.
SHARE, FAILURE_SECONDS = 0.02, 9 * 3600.0
# The first comes soon: what it costs is not known before, and a run that fails early would leave
# nothing.
FIRST_SECONDS = 20.0
# Until one was written: as slow as the slowest disk that we allow for.
SLOWEST_BYTES = 50e6


class Saver:
    """A context with one thread that writes one checkpoint at a time.

    Args:
        seconds: at least this much time between two; None follows from the measured cost.
        size: bytes of a checkpoint, about.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(
            wait=True
        )  # a process that ends would take the thread with it, in the middle of a write

    def interval(self) -> float:
        """Return the seconds from one checkpoint to the next.

        >>> Saver(None, 0).interval()
        20.0
        """
        if self._given is not None:
            return self._given
        if not self._costs:
            return FIRST_SECONDS
        cost = max(self._costs)
        return max(cost / SHARE, math.sqrt(2 * cost * FAILURE_SECONDS))

    def reserve(self) -> float:
        """Return the seconds to keep for saving at the end: one under way, and one more, each of
        them slower than any before.
        """
        return 3 * max(self._costs, default=self._size / SLOWEST_BYTES)

    def due(self) -> bool:
        """Return whether it is time for the next one, having raised what the last one ended with."""
        if self._running is not None and not self._running.done():
            return False
        self.wait()
        return time.monotonic() - self._last >= self.interval()

    def save(self, snapshot: float, write: Callable[[], None]) -> None:
        """Begin to write; the run goes on.

        Args:
            snapshot: seconds that it took to copy the state off the devices. write: does it; what
                it raises, `due` or `wait` raises.
        """
        self.wait()
        self._last = time.monotonic()
        self._running = self._pool.submit(self._timed, snapshot, write)

    def wait(self) -> None:
        """Return when nothing is being written; raise what the last write ended with."""
        if self._running is not None:
            running, self._running = self._running, None
            cost = running.result()
            self._costs.append(cost)
            self.seconds += cost

    @staticmethod
    def _timed(snapshot: float, write: Callable[[], None]) -> float:
        begun = time.monotonic()
        write()
        return snapshot + time.monotonic() - begun

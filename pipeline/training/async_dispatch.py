"""Calls: those that are under way on the devices, and how many may be."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import jax

# So many that the devices never wait for the host, which a busy machine may keep from running for a
# while; so few that the host knows where they are, and that their batches fit beside the model.
# With 3 calls of 20 ms under way a step took 4 % longer than with 24 (docs/LOG.md, 2026-11-21).
LEAST, MOST, SECONDS, BYTES = 3, 32, 0.5, 256e6


class Calls:
    """A queue of calls in the order in which they were made.

    Args:
        several: devices of one CPU compute each call together. Their threads wait for each other
            within a call, and with many calls under way a thread that is waited for may find no
            place to run: XLA then ends the process (seen with JAX 0.7.2). So `LEAST` it stays.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._queue: deque[tuple[int, Any]] = deque()
        self._most, self._mean, self._slowest = LEAST, 0.0, 0.0
        self.restart()

    def restart(self) -> None:
        """Forget those under way, which somebody else waited for, and take the time of calls anew."""
        self._queue.clear()
        self._since = self._turned = time.monotonic()
        self._ended = 0

    def add(self, step: int, totals: Any) -> None:
        """Note a call that was made: the step after it, and arrays that it gives."""
        self._queue.append((step, totals))

    def ended(self, size: int) -> Iterator[tuple[int, Any]]:
        """Wait while too many are under way, and yield (step, totals) of each that has ended.
        `size`: bytes that a call is given.
        """
        while len(self._queue) > self._most:
            step, totals = self._queue.popleft()
            jax.block_until_ready(totals)  # type: ignore[no-untyped-call]
            self._ended += 1
            now = time.monotonic()
            self._mean, self._slowest = (
                (now - self._since) / self._ended,
                max(self._slowest, now - self._turned),
            )
            self._most, self._turned = LEAST if self._several else allowed(self._mean, size), now
            yield step, totals

    @property
    def seconds(self) -> float:
        """Until those under way, the one just made and one more have ended, one of them as slow as
        the slowest so far.
        """
        return (self._most + 2) * self._mean + self._slowest

    def last(self) -> tuple[int, Any] | None:
        """Return (step, totals) of the newest one, if one is under way."""
        return self._queue[-1] if self._queue else None


def allowed(seconds: float, size: int) -> int:
    """Return how many calls may be under way, each of so many seconds and given so many bytes.

    >>> allowed(0.02, 10_000), allowed(2.0, 10_000), allowed(0.02, 200_000_000), allowed(0.0001, 10)
    (25, 3, 3, 32)
    """
    return int(min(max(min(SECONDS / max(seconds, 1e-9), BYTES / max(size, 1)), LEAST), MOST))

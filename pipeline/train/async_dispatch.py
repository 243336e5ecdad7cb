"""Asynchronous dispatch: the calls that run on the devices now, and how many may run ahead."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import jax

# Enough calls that the devices never wait for the host, which a busy machine may delay. Few enough
# that the host knows where the devices are, and that the batches fit beside the model. With 3 calls
# of 20 ms in flight a step took 4 % longer than with 24 (docs/dev/findings.md).
MIN_CALLS, MAX_CALLS, SECONDS, BYTES = 3, 32, 0.5, 256e6
# Of an evaluation. From 33 on, a thread that starts a call on one of several devices of a CPU waits
# for an older call, which needs that thread: XLA ends the process (docs/dev/findings.md).
EVALUATIONS = 16
# Calls at the start of a run that are waited for one by one, to see what one takes.
ALONE = 3


class CallQueue:
    """The calls in flight, oldest first.

    Args:
        several: several devices of one CPU compute each call together, of which at most 32 may be
            in flight (see `EVALUATIONS`). So at most `MIN_CALLS` are.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._queue: deque[tuple[int, Any]] = deque()
        self._limit, self._mean, self._slowest = MIN_CALLS, 0.0, 0.0
        self._alone: list[float] = []
        self._waited = self._waited_before = 0.0
        self._asked = time.monotonic()
        self._paused: float | None = None
        self.restart()

    def pause(self) -> None:
        """Leave out the time until `restart`, in which the caller computes something else."""
        self._paused = time.monotonic()

    def restart(self) -> None:
        """Forget the calls in flight, which the caller has waited for, and time new ones."""
        if self._paused is not None:
            self._asked += time.monotonic() - self._paused
            self._paused = None
        self._queue.clear()
        self._free: float | None = None
        self._since = self._last_end = time.monotonic()
        self._ended = 0

    def begin(self) -> float:
        """Return the time (`time.monotonic`) right before a call is made. If the devices have
        nothing left to do, they have waited.
        """
        now = time.monotonic()
        if self._free is not None and _ended(self._queue[-1][1]):
            self._waited += max(now - self._free, 0.0)
        return now

    def add(self, step: int, totals: Any, began: float | None = None) -> None:
        """Add a call: the step after it, arrays that it returns, and when it was made, as `begin`
        says; None: it is not timed, since it compiled.
        """
        now = time.monotonic()
        if began is not None and len(self._alone) < ALONE:
            jax.block_until_ready(totals)  # type: ignore[no-untyped-call]
            now = time.monotonic()
            self._alone.append(now - began)
        self._free = None
        if len(self._alone) == ALONE:
            # On a CPU a call that gives its state away is made when the one before it has ended,
            # so it begins now, not when it was asked for.
            self._free = now if _ended(totals) else now + min(self._alone)
        self._queue.append((step, totals))

    def idle(self) -> float:
        """Return which share of the time since it was last asked the devices waited for the host:
        0 to 1.
        """
        now = time.monotonic() if self._paused is None else self._paused
        share = (self._waited - self._waited_before) / max(now - self._asked, 1e-9)
        self._asked, self._waited_before = now, self._waited
        return min(share, 1.0)

    def ended(self, size: int) -> Iterator[tuple[int, Any]]:
        """Wait until few enough are in flight, and yield (step, totals) of each that has ended.

        Args:
            size: bytes of a call's batch.
        """
        while len(self._queue) > self._limit:
            step, totals = self._queue.popleft()
            jax.block_until_ready(totals)  # type: ignore[no-untyped-call]
            self._ended += 1
            now = time.monotonic()
            self._mean = (now - self._since) / self._ended
            self._slowest = max(self._slowest, now - self._last_end)
            self._last_end = now
            self._limit = MIN_CALLS if self._several else allowed(self._mean, size)
            yield step, totals

    @property
    def seconds(self) -> float:
        """Seconds until all in flight and two more have ended, one of them as slow as the slowest
        so far.
        """
        return (self._limit + 2) * self._mean + self._slowest

    def last(self) -> tuple[int, Any] | None:
        """Return (step, totals) of the newest call in flight, or None."""
        return self._queue[-1] if self._queue else None


def _ended(totals: Any) -> bool:
    return bool(jax.tree.leaves(totals)[0].is_ready())


def allowed(seconds: float, size: int) -> int:
    """Return how many calls of `seconds` each, with a batch of `size` bytes, may be in flight.

    >>> allowed(0.02, 10_000), allowed(2.0, 10_000), allowed(0.02, 200_000_000), allowed(0.0001, 10)
    (25, 3, 3, 32)
    """
    most = min(SECONDS / max(seconds, 1e-9), BYTES / max(size, 1), MAX_CALLS)
    return int(max(most, MIN_CALLS))

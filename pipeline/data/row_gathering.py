"""Rows of large arrays: into batches, and into buffers that are used again, by every CPU.

A thread copies as fast as `numpy.copyto`, and holds no interpreter meanwhile. Memory that is used
again is there: a new array takes more than as long to come as to be filled (docs/dev/findings.md).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

# Rows below that together are copied by one thread: to hand them over takes longer.
PART = 1 << 20
AHEAD = 2  # blocks that are read while the caller has one

Item = TypeVar("Item")
Started = TypeVar("Started")


def take(inputs: np.ndarray, rows: np.ndarray, into: np.ndarray) -> None:
    """Copy rows of an array, in this thread.

    >>> buffer = np.zeros((2, 3), np.uint8)
    >>> take(np.arange(12, dtype=np.uint8).reshape(4, 3), np.array([3, 0]), into=buffer)
    >>> buffer.tolist()
    [[9, 10, 11], [0, 1, 2]]
    """
    if inputs.flags.c_contiguous:
        # Without a mode numpy would check all rows, and copy twice. They are in range.
        np.take(inputs, rows, axis=0, out=into, mode="clip")
    else:  # `take` would copy the whole array first
        into[...] = inputs[rows]


def padded(inputs: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (batch rows of the inputs, how many of them are real); zeros fill the last batch."""
    for start in range(0, len(inputs), batch):
        part = inputs[start : start + batch]
        missing = np.zeros((batch - len(part), *inputs.shape[1:]), inputs.dtype)
        yield (np.concatenate([part, missing]) if len(missing) else part), len(part)


class Gatherer(ThreadPoolExecutor):
    """Threads that copy rows. It is a context, at whose end they end.

    Args:
        inputs: (n, …), or an object that `begin`s itself (`image_arrays.FileImages`).
        threads: None: one per CPU.
    """

    def __init__(self, inputs: Any, threads: int | None = None) -> None:
        self.inputs, self._parts = inputs, threads or os.cpu_count() or 1
        super().__init__(self._parts, thread_name_prefix="gather")

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)

    def begin(self, rows: np.ndarray, into: np.ndarray) -> Sequence[Future[Any]]:
        """Begin to copy rows, and return what to wait for."""
        if not isinstance(self.inputs, np.ndarray):
            begun: Sequence[Future[Any]] = self.inputs.begin(self, rows, into)
            return begun
        parts = min(self._parts, max(into.nbytes // PART, 1))
        edges = np.linspace(0, len(rows), parts + 1).astype(int)
        return [
            self.submit(take, self.inputs, rows[start:stop], into[start:stop])
            for start, stop in pairwise(edges)
        ]


def ahead(
    begin: Callable[[Item], Started], items: Iterable[Item], count: int = AHEAD
) -> Iterator[Started]:
    """Yield begin(item) of each item in order, after the next `count` items were begun, too."""
    begun: deque[Started] = deque()
    for item in items:
        begun.append(begin(item))
        if len(begun) > count:
            yield begun.popleft()
    yield from begun


def blocks(inputs: Any, rows: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (`batch` rows of the inputs, how many of them are real), in order. The next blocks are
    read meanwhile, so that neither the devices nor the CPUs wait for the other.

    The last row fills the last block, so that all have one shape.

    Args:
        inputs: as `Gatherer` takes them.
        rows: int64 (n,).
        batch: rows per block.

    >>> [(block.tolist(), real) for block, real in blocks(np.arange(5), np.array([4, 0, 1]), 2)]
    [([4, 0], 2), ([1, 1], 1)]
    """
    with Gatherer(inputs) as gatherer:

        def begin(start: int) -> tuple[np.ndarray, int, Sequence[Future[Any]]]:
            chosen = rows[start : start + batch]
            block = np.empty((batch, *inputs.shape[1:]), inputs.dtype)
            return block, len(chosen), gatherer.begin(chosen, block[: len(chosen)])

        for block, real, futures in ahead(begin, range(0, len(rows), batch)):
            for future in futures:
                future.result()
            block[real:] = block[real - 1]
            yield block, real

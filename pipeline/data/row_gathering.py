"""Gather rows of large arrays into batches in reused buffers, using all CPU cores.

Each thread copies as fast as `numpy.copyto` and releases the GIL. Buffers are reused, because
allocating a new array takes longer than filling it (docs/dev/findings.md).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

PART = 1 << 20  # minimum number of bytes for which another thread is useful
AHEAD = 2  # blocks to read ahead

Item = TypeVar("Item")
Started = TypeVar("Started")


def take(inputs: np.ndarray, rows: np.ndarray, into: np.ndarray) -> None:
    """Copy rows of an array in the current thread.

    >>> buffer = np.zeros((2, 3), np.uint8)
    >>> take(np.arange(12, dtype=np.uint8).reshape(4, 3), np.array([3, 0]), into=buffer)
    >>> buffer.tolist()
    [[9, 10, 11], [0, 1, 2]]
    """
    if inputs.flags.c_contiguous:
        # numpy would copy twice with mode="raise".
        np.take(inputs, rows, axis=0, out=into, mode="clip")
    else:  # `np.take` would first copy the whole array
        into[...] = inputs[rows]


def padded(inputs: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield each batch and its number of rows without padding. The last batch is zero-padded."""
    for start in range(0, len(inputs), batch):
        part = inputs[start : start + batch]
        missing = np.zeros((batch - len(part), *inputs.shape[1:]), inputs.dtype)
        yield (np.concatenate([part, missing]) if len(missing) else part), len(part)


class Gatherer(ThreadPoolExecutor):
    """A thread pool that copies rows.

    Args:
        inputs: array (n, …), or an object with its own `begin` (`image_arrays.FileImages`).
        threads: number of threads. None uses one per CPU.
    """

    def __init__(self, inputs: Any, threads: int | None = None) -> None:
        self.inputs, self._parts = inputs, threads or os.cpu_count() or 1
        super().__init__(self._parts, thread_name_prefix="gather")

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)

    def begin(self, rows: np.ndarray, into: np.ndarray) -> Sequence[Future[Any]]:
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
    """Yield begin(item) for each item in order, while calling `begin` up to `count` items ahead."""
    begun: deque[Started] = deque()
    for item in items:
        begun.append(begin(item))
        if len(begun) > count:
            yield begun.popleft()
    yield from begun


def blocks(inputs: Any, rows: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield blocks of `batch` rows in order, each with its number of rows without padding.

    Blocks are read ahead in the background. The last one is padded with copies of its last row.

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

"""Rows of large arrays: into batches, into buffers that are used again, into a checksum, by every
CPU.

A thread copies as fast as `numpy.copyto`, and holds no interpreter meanwhile. Memory that is used
again is there: a new array takes more than as long to come as to be filled (docs/dev/findings.md).
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

# Rows below that together are copied by one thread: to hand them over takes longer.
PART = 1 << 20
CHUNK = 1 << 24  # bytes that a thread hashes at a time
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


class Gatherer:
    """Threads that copy rows. It is a context, at whose end they end.

    Args:
        inputs: (n, …), or an object that `begin`s itself (`parallel_decoding.FileImages`).
        threads: None: one per CPU.
    """

    def __init__(self, inputs: Any, threads: int | None = None) -> None:
        self.inputs, self._threads = inputs, threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="gather")

    def __enter__(self) -> "Gatherer":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, rows: np.ndarray, into: np.ndarray) -> Sequence[Future[Any]]:
        """Begin to copy rows, and return what to wait for."""
        if not isinstance(self.inputs, np.ndarray):
            begun: Sequence[Future[Any]] = self.inputs.begin(self._pool, rows, into)
            return begun
        parts = min(self._threads, max(into.nbytes // PART, 1))
        edges = np.linspace(0, len(rows), parts + 1).astype(int)
        return [
            self._pool.submit(take, self.inputs, rows[start:stop], into[start:stop])
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


def checksum(array: np.ndarray) -> str:
    """Return a sha256 over the type, the shape and the rows of an array."""
    size = max(CHUNK * len(array) // max(array.nbytes, 1), 1)

    def digest(start: int) -> bytes:
        return hashlib.sha256(np.ascontiguousarray(array[start : start + size]).data).digest()

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing holds no interpreter
        parts = b"".join(pool.map(digest, range(0, len(array), size)))
    return hashlib.sha256(repr((array.dtype.str, array.shape)).encode() + parts).hexdigest()

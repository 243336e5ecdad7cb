"""Many image files, decoded by every CPU: in blocks, or like an array of them.

An image is a file, or a `Part` of one. A broken image is zeros, and its reason is returned.

Threads help, since Pillow releases the interpreter while it decodes and resizes. On 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one thread and 912/s with two. Two processes
would not pay for starting them and sharing memory; and a fork is not safe after TensorFlow and JAX
have started.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from pipeline.data import row_gathering
from pipeline.data.image_decoding import BrokenImage, Shape, decode
from pipeline.errors import DataError, reading


class Part(NamedTuple):
    """An image within a file: `size` bytes, the first of them at `start`; -1: to the end."""

    path: str
    start: int = 0
    size: int = -1


Source = str | os.PathLike[str] | Part
Paths = Sequence[Source]
Place = Source | np.ndarray  # or pixels that are decoded already
Show = Callable[[str], None]
MISSING = os.devnull  # stands for a missing file
# Images that a thread takes at a time: few enough for all threads to end together.
RUN = 16
FIX = "Correct its permissions, or complete the download."


class FileImages:
    """Images that are read each time that they are asked for, like an array of them.

    For a set that memory cannot hold.

    Args:
        sources: n files, or parts of files, to be decoded; or arrays, as a map of a file has them.
        form: that all images get.
        broken: gets the reason for each row that cannot be decoded; None: there is none, and one
            that breaks later raises `DataError`.

    Attributes:
        shape, dtype, ndim, nbytes: as if they were in memory, uint8 (n, height, width, channels).
        row_digests, thumbnails: what `pipeline.data.duplicates` needs of their pixels; None: they
            are decoded for it.
    """

    dtype, ndim = np.dtype(np.uint8), 4
    row_digests: list[bytes] | None = None
    thumbnails: np.ndarray | None = None

    def __init__(
        self, sources: Sequence[Place], form: Shape, broken: dict[int, str] | None = None
    ) -> None:
        self._sources, self._form, self._broken = list(sources), form, broken
        self.shape = (len(self._sources), *form.pixels)
        self.nbytes = int(np.prod(self.shape, dtype=object))

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return one image, or those of a slice or of an array of rows."""
        chosen = np.arange(len(self))[rows]
        pixels = np.empty((chosen.size, *self.shape[1:]), np.uint8)
        with row_gathering.Gatherer(self) as gatherer:
            for future in gatherer.begin(np.atleast_1d(chosen), pixels):
                future.result()
        return pixels if np.ndim(chosen) else pixels[0]

    def subset(self, rows: np.ndarray) -> "FileImages":
        """Return some of the images, still in their files."""
        images = FileImages([self._sources[row] for row in rows], self._form)
        if self.row_digests is not None:
            images.row_digests = [self.row_digests[row] for row in rows]
        images.thumbnails = None if self.thumbnails is None else self.thumbnails[rows]
        return images

    def begin(
        self, pool: ThreadPoolExecutor, rows: np.ndarray, into: np.ndarray
    ) -> Sequence[Future[None]]:
        """Begin to decode rows, and return what to wait for; a future may raise `DataError`."""

        def run(start: int) -> None:
            for place in range(start, min(start + RUN, len(rows))):
                self._decode(int(rows[place]), into[place])

        return [pool.submit(run, start) for start in range(0, len(rows), RUN)]

    def _decode(self, row: int, into: np.ndarray) -> None:
        source = self._sources[row]
        try:
            if isinstance(source, np.ndarray):
                into[:] = source
            elif source == MISSING:
                raise BrokenImage("it is missing")
            else:
                into[:] = decode(readable(source), self._form)
        except BrokenImage as error:
            if self._broken is None:
                raise DataError(
                    f"{source} could be decoded when this run began, and cannot any more: "
                    f"{error}.\nRestore the file. The same command resumes."
                ) from error
            into[:], self._broken[row] = 0, str(error)


def some(images: Any, rows: np.ndarray) -> Any:
    """Return some rows: a copy of an array's, or files that are not decoded yet."""
    return images.subset(rows) if isinstance(images, FileImages) else images[rows]


def blocks(
    sources: Paths, shape: Shape, size: int
) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
    """Yield (first row, uint8 (`size`, height, width, channels), broken) in order.

    The last block may be shorter. The next blocks are decoded meanwhile.

    Raises:
        DataError: in place of a block, if a file is missing or cannot be read.
    """
    broken, first = dict[int, str](), 0
    images = FileImages(sources, shape, broken)
    for block, real in row_gathering.blocks(images, np.arange(len(images)), size):
        rows = range(first, first + real)
        yield first, block[:real], {row: broken[row] for row in rows if row in broken}
        first += real


def readable(source: Source) -> bytes:
    """Return the bytes of an image; raises `DataError` if they cannot be read."""
    path, start, size = part_of(source)
    # No Path: a hundred thousand of them cost seconds.
    with reading(path, DataError, FIX), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(start)
        return file.read(size)


def part_of(source: Source) -> Part:
    """Return where an image is: a whole file is a part, too."""
    return source if isinstance(source, Part) else Part(os.fspath(source))

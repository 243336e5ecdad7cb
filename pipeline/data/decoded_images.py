"""Decoded images on the disk: `<name>.npy` holds pixels, `<name>.json` which of them are broken.

The .json is written last, with the sha256 of the pixels and its own: a run that is killed at any
moment leaves all of the images, or none that count.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from formats import atomic_file, checksums
from formats.errors import writing
from pipeline.data import row_gathering

Show = Callable[[str], None]
SHARE = 0.5  # of a disk's free space that a cache may use: checkpoints need some, too
ARRAY, DETAILS, UNFINISHED = ".npy", ".json", ".writing"


class Decoded(NamedTuple):
    """Decoded images.

    Attributes:
        pixels: uint8 (n, height, width, channels), read-only: a map of the file.
        broken: the reason for each row that could not be decoded, and is zeros.
    """

    pixels: np.ndarray
    broken: dict[int, str]


def load(path: Path, shape: tuple[int, ...], show: Show) -> Decoded | None:
    """Return the images that `finish` wrote; None if there are none, or a file was changed.

    Args:
        path: of both files, without a suffix.
        shape: (n, height, width, channels).
        show: takes a line about a file that was changed, or has another shape.
    """
    array = path.with_suffix(ARRAY)
    if not path.with_suffix(DETAILS).is_file():
        return None
    try:
        details = checksums.opened(checksums.read(path.with_suffix(DETAILS)))
        pixels = np.load(array, mmap_mode="r", allow_pickle=False)
        if pixels.shape != shape or pixels.dtype != np.uint8:
            raise ValueError(f"it holds {pixels.dtype} {pixels.shape}")
        if row_gathering.checksum(pixels) != details["sha256"]:
            raise ValueError("its sha256 differs")
        return Decoded(pixels, {int(row): why for row, why in details["broken"].items()})
    except Exception as error:  # json and numpy raise a dozen kinds for a corrupt file
        show(f"{array} is corrupt ({error}): its images are decoded again")
        return None


def create(
    path: Path, shape: tuple[int, ...], share: float = SHARE
) -> np.memmap[Any, np.dtype[np.uint8]]:
    """Return an array in a new file, uint8 of this shape, with its disk space reserved.

    Args:
        path: as `load` takes it.
        share: of the disk's free space that it may use.

    Raises:
        OSError: if it cannot be written, or would use more.
    """
    unfinished = path.with_suffix(UNFINISHED)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    size, free = int(np.prod(shape, dtype=object)), shutil.disk_usage(unfinished.parent).free
    if size > free * share:
        part = "half of " if share < 1 else ""
        raise OSError(f"{gib(size)} are more than {part}the {gib(free)} that are free there")
    # Another process may have mapped the old file. To truncate it would take its pixels away.
    unfinished.unlink(missing_ok=True)
    try:
        pixels = np.lib.format.open_memmap(unfinished, "w+", np.uint8, shape)
        # A disk that is full when a page is written would end the process without a word.
        with unfinished.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, unfinished.stat().st_size)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    return pixels


@contextmanager
def removed_on_error(path: Path | None) -> Iterator[None]:
    """Remove the file of `create` if the context ends by an error: it may take gigabytes."""
    try:
        yield
    except BaseException:
        if path is not None:
            path.with_suffix(UNFINISHED).unlink(missing_ok=True)
        raise


def finish(path: Path, pixels: np.memmap[Any, Any], broken: dict[int, str]) -> None:
    """Give the array that `create` made its name, and write which of its rows are broken.

    Raises:
        DiskError: if they cannot be written.
    """
    with writing(path):
        pixels.flush()
        path.with_suffix(UNFINISHED).rename(path.with_suffix(ARRAY))
    details = {"sha256": row_gathering.checksum(pixels), "broken": broken}
    atomic_file.write(path.with_suffix(DETAILS), checksums.sealed(details))


def gib(size: float) -> str:
    """Return bytes in words.

    >>> gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"

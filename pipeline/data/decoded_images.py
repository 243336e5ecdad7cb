"""Decoded images on the disk, in shards: `<name>.npy` holds pixels, `<name>.json` which are broken.

A name stands for the rules of decoding, and the paths and sizes of the files. The .json is written
last, with the sha256 of the pixels and its own: a run that is killed at any moment leaves whole
shards, which the next one takes. A run writes them into its cache, and a session that prepares
images for others into its output (`pipeline.data.preparation`).
"""

import errno
import functools
import hashlib
import io
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from formats import atomic_file, checksums
from formats.errors import DiskError, writing
from pipeline.data import row_gathering
from pipeline.data.image_decoding import Shape
from pipeline.data.parallel_decoding import FIX, FileImages, Paths, Show, part_of
from pipeline.errors import DataError, reading

SHARD = 1 << 28  # bytes of pixels
SHOW_SECONDS = 10.0


class Decoded(NamedTuple):
    """The images of a shard.

    Attributes:
        pixels: uint8 (n, height, width, channels), zeros for a broken one.
        broken: the reason for each row that could not be decoded.
        folder: where they are kept, and mapped from; None: they are in memory.
    """

    pixels: np.ndarray
    broken: dict[int, str]
    folder: Path | None = None


def shards(sources: Paths, shape: Shape, base: Path | None = None) -> dict[str, slice]:
    """Return which images are in each shard, by its name.

    Args:
        base: the folder of the competition, which may be mounted elsewhere the next time.

    Raises:
        DataError: if a file is missing.
    """
    size = functools.cache(lambda file: os.stat(file).st_size)  # noqa: PTH116
    length = max(SHARD // int(np.prod(shape.pixels)), 1)
    starts = range(0, len(sources), length)
    parts = {}
    for number, start in enumerate(starts, 1):
        part = slice(start, min(start + length, len(sources)))
        digest = hashlib.sha256(f"{shape.rules}\n".encode())
        for file, first, count in map(part_of, sources[part]):
            with reading(file, DataError, FIX):
                line = f"{size(file)} {first}+{count} {file.removeprefix(f'{base}/')}\0"
            digest.update(line.encode(errors="surrogateescape"))
        parts[f"{number}-of-{len(starts)}-{digest.hexdigest()[:32]}"] = part
    return parts


def each(
    sources: Paths,
    shape: Shape,
    base: Path | None,
    cache: Path | None,
    folders: Sequence[Path],
    show: Show,
) -> Iterator[tuple[slice, Decoded]]:
    """Yield the rows and the images of each shard: as `shard` has it, and then kept in the cache.

    A cache that cannot be written, or whose disk has too little free space, gets no more.
    """
    found, shown = 0, time.monotonic()
    if cache:  # files of another folder may have equal names and sizes
        cache = cache / hashlib.sha256(os.fsencode(os.path.abspath(base or ""))).hexdigest()[:8]  # noqa: PTH100
        folders = [cache, *folders]
    for name, part in shards(sources, shape, base).items():
        decoded = shard(sources[part], shape, name, folders, show)
        if decoded.folder:
            found += len(decoded.pixels)
        elif cache:
            rest = (len(sources) - part.start) * decoded.pixels[0].nbytes
            try:
                decoded = save(cache, name, decoded, rest)
            except DiskError as error:
                show(f"The next run decodes images again. {str(error).splitlines()[0]}")
                cache = None
        yield part, decoded
        if time.monotonic() - shown > SHOW_SECONDS:
            shown = time.monotonic()
            show(f"Read {part.stop:,} of {len(sources):,} images")
    if found:
        places = ", ".join(map(str, folders))
        show(f"Found {found:,} of {len(sources):,} images decoded in {places}")


def shard(sources: Paths, shape: Shape, name: str, folders: Sequence[Path], show: Show) -> Decoded:
    """Return the images of a shard, from the first of the folders that has it, or decoded.

    Args:
        sources: files, or parts of files.
        name: as `shards` gives it.
        show: takes a line about a file that was changed, and is not used.

    Raises:
        DataError: if a file is missing or cannot be read.
    """
    for folder in folders:
        array, details = folder / f"{name}.npy", folder / f"{name}.json"
        try:
            if details.is_file():
                known = checksums.opened(details.read_bytes())
                pixels = np.load(array, mmap_mode="r", allow_pickle=False)
                if row_gathering.checksum(pixels) != known["sha256"]:
                    raise ValueError("its sha256 differs")
                reasons = {int(row): reason for row, reason in known["broken"].items()}
                return Decoded(pixels, reasons, folder)
        except Exception as error:  # json and numpy raise a dozen kinds for a corrupt file
            show(f"{array} is corrupt ({error}): its images are decoded again")
    broken = dict[int, str]()
    return Decoded(FileImages(sources, shape, broken)[:], broken)


def save(folder: Path, name: str, decoded: Decoded, rest: int = 0) -> Decoded:
    """Keep a shard in a folder, and return it mapped from there.

    Args:
        rest: bytes that are still to be kept, which may take half of what is free.

    Raises:
        DiskError: if there is no room, or it cannot be written.
    """
    array, content = folder / f"{name}.npy", io.BytesIO()
    with writing(array):
        folder.mkdir(parents=True, exist_ok=True)
        if 2 * rest > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, f"half of the free space is less than {rest / 1e9:.1f} GB")
    np.save(content, decoded.pixels)
    atomic_file.write(array, content.getvalue())
    details = {"sha256": row_gathering.checksum(decoded.pixels), "broken": decoded.broken}
    atomic_file.write(folder / f"{name}.json", checksums.sealed(details))
    return Decoded(np.load(array, mmap_mode="r"), decoded.broken, folder)

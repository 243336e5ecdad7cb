"""Many images as one array: decoded by all CPU cores, in memory, in shards on disk, or on access.

An image is a file, or a `Part` of one. A broken image becomes zeros, and its reason is returned.

Threads are enough, since Pillow releases the GIL while it decodes and resizes: on 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one thread and 912/s with two. Forking is not
safe once TensorFlow and JAX have started.

A shard is `<name>.npy` with the pixels and `<name>.json` with the reasons for broken images. The
name is a digest of the decoding rules and the files' paths and sizes. The .json is written last,
with the sha256 of the pixels and its own, so that a killed run leaves only complete shards for the
next one. A run writes them into its cache, and `pipeline.data.preparation` into its output.
"""

import errno
import hashlib
import io
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from formats import atomic_file, checksums
from formats.errors import DiskError, writing
from pipeline.config.data_layout import Data
from pipeline.data import duplicates, image_decoding, row_gathering
from pipeline.data.image_decoding import BrokenImage, decode
from pipeline.errors import DataError, reading
from pipeline.runtime import devices


class Part(NamedTuple):
    """An image within a file: `size` bytes from `start` on; -1: to the end."""

    path: str
    start: int = 0
    size: int = -1


Source = str | os.PathLike[str] | Part
Paths = Sequence[Source]
Show = Callable[[str], None]
MISSING = os.devnull  # stands for a missing file
RUN = 16  # images per task of a thread; few, so that all threads end together
SHARE = 0.5  # of memory that decoded images may use
SHARD = 1 << 28  # bytes of pixels
SHOW_SECONDS = 10.0
FIX = "Correct its permissions, or complete the download."


class FileImages:
    """Images that are decoded on access; indexed like an array.

    For sets that do not fit into memory, or are read once.

    Args:
        sources: n files, or parts of files, to decode; or arrays, such as rows of a memory map.
        data: determines how they are decoded.

    Attributes:
        broken: the reason for each row that could not be decoded; its pixels are zeros.
        shape, dtype, nbytes: of the whole array, uint8 (n, height, width, channels).
        row_digests: for `pipeline.data.duplicates`; None: computed from the pixels.
        decodable: whether all images could be decoded at the start of the run. If so, one that
            breaks later raises `DataError`.
    """

    dtype, decodable = np.dtype(np.uint8), False
    row_digests: list[bytes] | None = None

    def __init__(self, sources: Sequence[Source | np.ndarray], data: Data) -> None:
        self._sources, self._data, self.broken = list(sources), data, dict[int, str]()
        self.shape = (len(self._sources), *data.shape)
        self.nbytes = math.prod(self.shape)

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
        images = FileImages([self._sources[row] for row in rows], self._data)
        images.decodable = self.decodable
        if self.row_digests is not None:
            images.row_digests = [self.row_digests[row] for row in rows]
        return images

    def begin(self, pool: Executor, rows: np.ndarray, into: np.ndarray) -> Sequence[Future[None]]:
        """Start decoding rows, and return the futures, which may raise `DataError`."""

        def run(start: int) -> None:
            for place in range(start, min(start + RUN, len(rows))):
                self._decode(int(rows[place]), into[place])

        return [pool.submit(run, start) for start in range(0, len(rows), RUN)]

    def _decode(self, row: int, into: np.ndarray) -> None:
        source = self._sources[row]
        try:
            if not isinstance(source, np.ndarray):
                source = decode(readable(source), self._data)
            into[:] = source
        except BrokenImage as error:
            if self.decodable:
                raise DataError(
                    f"{source} could be decoded when this run began, and now it cannot: "
                    f"{error}.\nRestore the file, and resume with the same command."
                ) from error
            into[:], self.broken[row] = 0, "it is missing" if source == MISSING else str(error)


def some(images: Any, rows: np.ndarray) -> Any:
    """Return some rows: a copy for an array, and `FileImages` that are not decoded yet."""
    return images.subset(rows) if isinstance(images, FileImages) else images[rows]


def readable(source: Source) -> bytes:
    """Return the bytes of an image; raises `DataError` if they cannot be read."""
    path, start, size = _part(source)
    # No Path: a hundred thousand of them cost seconds.
    with reading(path, DataError, FIX), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(start)
        return file.read(size)


def _part(source: Source) -> Part:
    """Return a source as a `Part`."""
    return source if isinstance(source, Part) else Part(os.fspath(source))


def read(
    sources: Paths,
    data: Data,
    cache: Path | None = None,
    show: Show | None = None,
    *,
    base: Path | None = None,
    prepared: Sequence[Path] = (),
    in_files: bool = False,
) -> tuple[Any, dict[int, str]]:
    """Return the decoded images, and the reason for each row that cannot be decoded.

    Args:
        sources: n files or parts of files.
        cache: a folder that keeps large images (`Data.decoding`) for the next run, as far as it can
            be written and has space.
        base: the folder of the competition.
        prepared: folders with decoded images; those decoded by other rules are ignored.
        in_files: leave images in their files, which is also done if memory is short.

    Returns:
        uint8 (n, height, width, channels), zeros for broken images, or `FileImages`; {row: reason}.
    """
    show, images = show or (lambda line: None), FileImages(sources, data)
    in_memory = not in_files and images.nbytes <= devices.memory_left() * SHARE
    pixels = np.empty(images.shape, np.uint8) if in_memory else None
    places, digests, broken = list[Source | np.ndarray](), list[bytes](), dict[int, str]()
    cache = cache if data.decoding and not in_files else None
    if cache:  # files in a different folder may have the same names and sizes
        cache /= hashlib.sha256(os.fsencode(os.path.abspath(base or ""))).hexdigest()[:8]  # noqa: PTH100
    folders, found, shown = [*([cache] if cache else []), *prepared], 0, time.monotonic()
    for name, part in shards(sources, data, base).items():
        decoded = shard(sources[part], data, name, folders, show)
        if decoded.folder:
            found += len(decoded.pixels)
        elif cache:
            rest = (len(sources) - part.start) * decoded.pixels[0].nbytes
            try:
                decoded = save(cache, name, decoded, rest)
            except DiskError as error:
                show(f"The next run will decode images again. {str(error).splitlines()[0]}")
                cache = None
        broken |= {part.start + row: reason for row, reason in decoded.broken.items()}
        if pixels is not None:
            pixels[part] = decoded.pixels
        else:
            places += list(decoded.pixels) if decoded.folder else sources[part]
            digests += duplicates.row_digests(decoded.pixels)
        if time.monotonic() - shown > SHOW_SECONDS:
            shown = time.monotonic()
            show(f"Read {part.stop:,} of {len(sources):,} images")
    if found or prepared:
        show(
            f"Found {found:,} of {len(sources):,} images decoded in {', '.join(map(str, folders))} "
            "(not those of different files, rules or Pillow versions)"
        )
    if pixels is not None:
        return pixels, broken
    images = FileImages(places, data)
    images.row_digests, images.decodable = digests, True
    show(f"{len(images):,} images ({images.nbytes / 1e6:,.0f} MB) are read during the run")
    return images, broken


class Decoded(NamedTuple):
    """The images of a shard.

    Attributes:
        pixels: uint8 (n, height, width, channels), zeros for broken images.
        broken: the reason for each row that could not be decoded.
        folder: the folder that they are mapped from; None: they are in memory.
    """

    pixels: np.ndarray
    broken: dict[int, str]
    folder: Path | None = None


def shards(sources: Paths, data: Data, base: Path | None = None) -> dict[str, slice]:
    """Return the slice of images in each shard, by the shard's name.

    Args:
        base: the folder of the competition; names do not depend on where it is mounted.

    Raises:
        DataError: if a file is missing.
    """
    length = max(SHARD // math.prod(data.shape), 1)
    starts = range(0, len(sources), length)
    parts, rules = {}, f"{image_decoding.rules(data)}\n".encode()
    for number, start in enumerate(starts, 1):
        part = slice(start, min(start + length, len(sources)))
        digest = hashlib.sha256(rules)
        for file, first, count in map(_part, sources[part]):
            with reading(file, DataError, FIX):
                size = os.stat(file).st_size  # noqa: PTH116
            line = f"{size} {first}+{count} {file.removeprefix(f'{base}/')}\0"
            digest.update(line.encode(errors="surrogateescape"))
        parts[f"{number}-of-{len(starts)}-{digest.hexdigest()[:32]}"] = part
    return parts


def shard(sources: Paths, data: Data, name: str, folders: Sequence[Path], show: Show) -> Decoded:
    """Return the images of a shard, from the first folder that has it, or decoded.

    Args:
        sources: files, or parts of files.
        name: from `shards`.
        show: receives a line about each corrupt shard, which is not used.

    Raises:
        DataError: if a file is missing or cannot be read.
    """
    for folder in folders:
        array, details = folder / f"{name}.npy", folder / f"{name}.json"
        try:
            if details.is_file():
                known = checksums.opened(details.read_bytes())
                pixels = np.load(array, mmap_mode="r", allow_pickle=False)
                if hashlib.sha256(pixels.data).hexdigest() != known["sha256"]:
                    raise ValueError("its sha256 differs")
                reasons = {int(row): reason for row, reason in known["broken"].items()}
                return Decoded(pixels, reasons, folder)
        except Exception as error:  # json and numpy raise a dozen kinds for a corrupt file
            show(f"{array} is corrupt ({error}): its images are decoded again")
    images = FileImages(sources, data)
    return Decoded(images[:], images.broken)


def save(folder: Path, name: str, decoded: Decoded, rest: int = 0) -> Decoded:
    """Save a shard in a folder, and return it mapped from there.

    Args:
        rest: bytes that are still to be saved; they may use half of the free space.

    Raises:
        DiskError: if there is not enough space, or the shard cannot be written.
    """
    array, content = folder / f"{name}.npy", io.BytesIO()
    with writing(array):
        folder.mkdir(parents=True, exist_ok=True)
        if 2 * rest > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, f"half of the free space is less than {rest / 1e9:.1f} GB")
    np.save(content, decoded.pixels)
    atomic_file.write(array, content.getvalue())
    digest = hashlib.sha256(decoded.pixels.data).hexdigest()
    details = {"sha256": digest, "broken": decoded.broken}
    atomic_file.write(folder / f"{name}.json", checksums.sealed(details))
    return Decoded(np.load(array, mmap_mode="r"), decoded.broken, folder)

"""Decode images on all CPU cores, either all at once (to memory or disk) or on access.

Threads are sufficient, because Pillow releases the GIL: on 2 cores, one thread resizes 511
photographs per second from 500x375 to 224x224, and two threads resize 912. Forking is not safe
after TensorFlow and JAX have started.

Decoded images are stored in shards: `<name>.npy` with pixels and `<name>.json` with the reasons for
broken images. A shard's name is a digest of the decoding rules and of the files' paths and sizes.
The .json file is written last, and contains the SHA-256 of the pixels and of itself, so a run after
an interruption only uses complete shards.
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
    """The position of an image in a file. A `size` of -1 means the rest of the file."""

    path: str
    start: int = 0
    size: int = -1


Source = str | os.PathLike[str] | Part
Paths = Sequence[Source]
Show = Callable[[str], None]
MISSING = os.devnull  # source of a missing file
RUN = 16  # images per thread task, few enough that all threads finish at about the same time
SHARE = 0.5  # fraction of memory available to decoded images
SHARD = 1 << 28  # size of a shard's pixels in bytes
SHOW_SECONDS = 10.0
FIX = "Correct its permissions, or complete the download."


class FileImages:
    """An array of images, uint8 (n, height, width, channels), that are decoded when indexed.

    It is used for data sets that do not fit in memory or are read only once.

    Args:
        sources: n files or parts of files to decode, or arrays, such as rows of a memory map.

    Attributes:
        sources: as passed.
        broken: {row: reason} for images that could not be decoded. Their pixels are zeros.
        row_digests: digests for `pipeline.data.duplicates`. If None, they are computed from the
            pixels.
        decodable: whether all images could be decoded at the start of the run. If so, an
            image that can no longer be decoded raises `DataError`.
    """

    dtype, decodable = np.dtype(np.uint8), False
    row_digests: list[bytes] | None = None

    def __init__(self, sources: Sequence[Source | np.ndarray], data: Data) -> None:
        self.sources, self._data, self.broken = list(sources), data, dict[int, str]()
        self.shape = (len(self.sources), *data.shape)
        self.nbytes = math.prod(self.shape)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = np.arange(len(self))[rows]
        pixels = np.empty((chosen.size, *self.shape[1:]), np.uint8)
        with row_gathering.Gatherer(self) as gatherer:
            for future in gatherer.begin(np.atleast_1d(chosen), pixels):
                future.result()
        return pixels if np.ndim(chosen) else pixels[0]

    def subset(self, rows: np.ndarray) -> "FileImages":
        images = FileImages([self.sources[row] for row in rows], self._data)
        images.decodable = self.decodable
        if self.row_digests is not None:
            images.row_digests = [self.row_digests[row] for row in rows]
        return images

    def begin(self, pool: Executor, rows: np.ndarray, into: np.ndarray) -> Sequence[Future[None]]:
        """Start decoding rows. The returned futures may raise `DataError`."""

        def run(start: int) -> None:
            for place in range(start, min(start + RUN, len(rows))):
                self._decode(int(rows[place]), into[place])

        return [pool.submit(run, start) for start in range(0, len(rows), RUN)]

    def _decode(self, row: int, into: np.ndarray) -> None:
        source = self.sources[row]
        try:
            if not isinstance(source, np.ndarray):
                source = decode(readable(source), self._data)
            into[:] = source
        except BrokenImage as error:
            if self.decodable:
                raise DataError(
                    f"{source} could be decoded at the start of this run, but not anymore: "
                    f"{error}.\nRestore the file, and run the same command to resume."
                ) from error
            into[:], self.broken[row] = 0, "it is missing" if source == MISSING else str(error)


def joined(first: Any, second: Any, data: Data) -> Any:
    """Concatenate two arrays or `FileImages`, without decoding any image."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second])
    parts = [
        each if isinstance(each, FileImages) else FileImages(list(each), data)
        for each in (first, second)
    ]
    images = FileImages([source for part in parts for source in part.sources], data)
    images.decodable = True
    return images


def some(images: Any, rows: np.ndarray) -> Any:
    return images.subset(rows) if isinstance(images, FileImages) else images[rows]


def readable(source: Source) -> bytes:
    path, start, size = _part(source)
    # Creating a hundred thousand Path objects would take seconds.
    with reading(path, DataError, FIX), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(start)
        return file.read(size)


def _part(source: Source) -> Part:
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
    """Decode images, and return them with {row: reason} for images that could not be decoded.

    Args:
        cache: folder in which large images (`Data.decoding`) are stored for the next run, if it is
            writable and has space.
        base: competition folder.
        prepared: folders with decoded images. They are ignored if other decoding rules were used.
        in_files: whether to decode images on access. This also happens if memory is insufficient.

    Returns:
        The images as uint8 (n, height, width, channels), with zeros for broken ones, or as
        `FileImages`.
    """
    show, images = show or (lambda line: None), FileImages(sources, data)
    in_memory = not in_files and images.nbytes <= devices.memory_left() * SHARE
    pixels = np.empty(images.shape, np.uint8) if in_memory else None
    places, digests, broken = list[Source | np.ndarray](), list[bytes](), dict[int, str]()
    cache = cache if data.decoding and not in_files else None
    if cache:  # files in another folder can have the same names and sizes
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
            f"Found {found:,} of {len(sources):,} decoded images in {', '.join(map(str, folders))} "
            "(ignoring other files, decoding rules and Pillow versions)"
        )
    if pixels is not None:
        return pixels, broken
    images = FileImages(places, data)
    images.row_digests, images.decodable = digests, True
    show(f"{len(images):,} images ({images.nbytes / 1e6:,.0f} MB) will be read during the run")
    return images, broken


class Decoded(NamedTuple):
    """A shard's images, and the folder from which they are memory-mapped.

    Attributes:
        pixels: uint8 (n, height, width, channels), with zeros for broken images.
        broken: {row: reason}.
        folder: None if the images are in memory.
    """

    pixels: np.ndarray
    broken: dict[int, str]
    folder: Path | None = None


def shards(sources: Paths, data: Data, base: Path | None = None) -> dict[str, slice]:
    """Return the name of each shard, and the slice of images that it contains.

    The names do not depend on `base`, the path of the competition folder.
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
    """Load a shard from the first folder that contains it, or decode its images.

    A corrupt shard is reported and ignored.
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
        except Exception as error:  # json and numpy raise many types for corrupt files
            show(f"{array} is corrupt ({error}), so its images are decoded again")
    images = FileImages(sources, data)
    return Decoded(images[:], images.broken)


def save(folder: Path, name: str, decoded: Decoded, rest: int = 0) -> Decoded:
    """Save a shard in a folder, and return it as a memory map.

    The data that remains to be saved, `rest` bytes, may take up to half of the free space.

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

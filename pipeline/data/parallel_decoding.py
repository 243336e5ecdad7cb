"""Many image files decoded at full speed, by every CPU, and cached.

An image is a file, or a `Part` of one. `read` returns all of them, from a cache where there is one.
`keep` writes a shard of them for a later `read`. `blocks` yields them in order, for a set that need
not fit into memory. A broken image is zeros, and its reason is returned.

Threads help, since Pillow releases the interpreter while it decodes and resizes. On 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one thread and 912/s with two. Two processes
would not pay for starting them and sharing memory; and a fork is not safe after TensorFlow and JAX
have started.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from formats.errors import DiskError, writing
from pipeline.data import decoded_images
from pipeline.data.decoded_images import SHARE, Show
from pipeline.data.image_decoding import BrokenImage, Shape, decode
from pipeline.data.row_gathering import AHEAD, ahead
from pipeline.errors import DataError, reading
from pipeline.runtime import devices


class Part(NamedTuple):
    """An image within a file: `size` bytes, the first of them at `start`."""

    path: str
    start: int
    size: int


Source = str | Part
Paths = Sequence[str | os.PathLike[str] | Part]
# Images that a thread takes at a time: few enough for all threads to end together.
RUN = 16
SHOW_SECONDS = 10.0
SHARD = 1 << 28  # bytes of the images that `keep` writes together
FIX = "Correct its permissions, or complete the download."


def read(
    paths: Paths,
    shape: Shape,
    *,
    base: Path | None = None,
    cache: Path | None = None,
    prepared: Sequence[Path] = (),
    show: Show | None = None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the decoded images, and the reason for each broken one.

    With a cache they are decoded into a file there, which the next run maps. It has a name of its
    own for each `Shape.rules`, and for other paths or sizes of the files. A folder that cannot be
    written, or whose disk has too little free space, gets no cache.

    Args:
        paths: n files, or parts of files.
        shape: that all images get.
        base: the folder of the competition, which may be mounted elsewhere the next time.
        cache: a folder, made if needed; None: no cache.
        prepared: folders that `keep` has written.
        show: takes lines of text on progress and cache.

    Returns:
        uint8 (n, height, width, channels), read-only, zeros for a broken one; {row: reason}.

    Raises:
        DataError: if a file is missing or cannot be read, or the images do not fit into memory.
    """
    sources, show = as_sources(paths), show or (lambda line: None)
    sizes, array_shape = _file_sizes(sources), _array_shape(len(paths), shape)
    path = None if cache is None else cache / _name(sources, sizes, shape)
    cached = None if path is None else decoded_images.load(path, array_shape, show)
    if cached is not None:
        show(f"Took {len(sources):,} decoded images from {path}.npy")
        return cached

    mapped = None if path is None else _in_cache(path, array_shape, show)
    pixels = _empty(len(sources), shape) if mapped is None else mapped
    broken, decoded = dict[int, str](), 0
    parts = shards(len(sources), shape) if prepared else [slice(0, len(sources))]
    with decoded_images.removed_on_error(path):
        for number, part in enumerate(parts, 1):
            name = _name(sources[part], sizes, shape, base, (number, len(parts)))
            reasons, count = _fill(pixels[part], sources[part], shape, name, prepared, show)
            broken |= {part.start + row: reason for row, reason in reasons.items()}
            decoded += count
    if prepared:
        taken, folders = len(sources) - decoded, ", ".join(map(str, prepared))
        show(f"Found {taken:,} of {len(sources):,} images decoded in {folders}")
    if path is not None and mapped is not None:
        try:
            decoded_images.finish(path, mapped, broken)
        except DiskError as error:
            show(f"The next run decodes the images again: {error}")
    pixels.flags.writeable = False
    return pixels, broken


def keep(
    paths: Paths,
    shape: Shape,
    number: int,
    folder: Path,
    *,
    base: Path,
    earlier: Sequence[Path] = (),
    show: Show,
) -> int:
    """Write one shard of the decoded images, and return how many of them were decoded.

    Args:
        paths, shape, base, show: as `read` takes them.
        number: of the shard, from 1.
        folder: gets it. A shard that is there already stays.
        earlier: folders in which it may be.

    Raises:
        DataError: as `read` does.
        DiskError: if the shard cannot be written.
    """
    parts = shards(len(paths), shape)
    sources = as_sources(paths[parts[number - 1]])
    name = _name(sources, _file_sizes(sources), shape, base, (number, len(parts)))
    array_shape = _array_shape(len(sources), shape)
    if decoded_images.load(folder / name, array_shape, show) is not None:
        return 0
    with writing(folder / name), decoded_images.removed_on_error(folder / name):
        pixels = decoded_images.create(folder / name, array_shape, share=1.0)
        broken, decoded = _fill(pixels, sources, shape, name, earlier, show)
        decoded_images.finish(folder / name, pixels, broken)
    return decoded


def shards(number: int, shape: Shape) -> list[slice]:
    """Return which of this many images are in each shard."""
    size = max(SHARD // int(np.prod(_array_shape(1, shape), dtype=object)), 1)
    return [slice(start, min(start + size, number)) for start in range(0, number, size)]


def blocks(
    paths: Paths, shape: Shape, size: int, *, ahead_of: int = AHEAD
) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
    """Yield (first row, uint8 (`size`, height, width, channels), broken) in order.

    The last block may be shorter. The next `ahead_of` blocks are decoded meanwhile, so that at most
    `ahead_of` + 2 are in memory. `broken` has rows of the whole set, as in `read`.

    Raises:
        DataError: if a file is missing (before the first block) or cannot be read (in place of its
            block), or a block does not fit into memory.
    """
    sources = as_sources(paths)
    _file_sizes(sources)
    with _threads() as pool:

        def begin(start: int) -> tuple[int, np.ndarray, list[Future[list[str]]]]:
            part = sources[start : start + size]
            pixels = _empty(len(part), shape)
            return start, pixels, begin_decoding(pool, part, shape, pixels)

        for start, pixels, futures in ahead(begin, range(0, len(sources), size), ahead_of):
            reasons = [reason for future in futures for reason in future.result()]
            yield start, pixels, _broken(reasons, start)


def begin_decoding(
    pool: ThreadPoolExecutor,
    sources: Sequence[Source],
    shape: Shape,
    pixels: np.ndarray,
    *,
    strict: bool = False,
) -> list[Future[list[str]]]:
    """Begin to decode images into `pixels`; each future returns, of the next RUN images, why they
    are broken, "" for one that is not.

    Args:
        strict: a broken image raises `DataError` in its future, since it was not broken before.
    """

    def run(start: int) -> list[str]:
        reasons = []
        for row in range(start, min(start + RUN, len(sources))):
            reasons.append(decode_into(sources[row], shape, pixels[row]))
            if strict and reasons[-1]:
                raise DataError(
                    f"{sources[row]} could be decoded when this run began, and cannot any more:"
                    f" {reasons[-1]}.\nRestore the file. The same command resumes."
                )
        return reasons

    return [pool.submit(run, start) for start in range(0, len(sources), RUN)]


def decode_into(source: Source, shape: Shape, pixels: np.ndarray) -> str:
    """Write the pixels of an image, zeros of a broken one; return why it is broken, or ""."""
    try:
        decode(readable(source), shape, pixels)
    except BrokenImage as error:
        pixels[:] = 0
        return str(error) or "it is broken"
    return ""


def readable(source: Source | os.PathLike[str]) -> bytes:
    """Return the bytes of an image; raises `DataError` if they cannot be read."""
    (known,) = as_sources([source])
    with reading(_file(known), DataError, FIX):
        return content(known)


def content(source: Source) -> bytes:
    """Return the bytes of an image; raises `OSError` if they cannot be read."""
    # No Path here and below: a hundred thousand of them cost seconds.
    if isinstance(source, Part):
        with open(source.path, "rb") as file:  # noqa: PTH123
            file.seek(source.start)
            return file.read(source.size)
    with open(source, "rb", buffering=0) as whole:  # noqa: PTH123
        return whole.read()


def as_sources(paths: Paths) -> list[Source]:
    """Return where each image is."""
    return [path if isinstance(path, Part) else os.fspath(path) for path in paths]


def fits(paths: Paths, shape: Shape, cache: Path | None) -> bool:
    """Return whether `read` has room for these images: in memory, or in a cache on the disk."""
    size = int(np.prod(_array_shape(len(paths), shape), dtype=object))
    if size <= devices.memory_left() * SHARE:
        return True
    if cache is None:
        return False
    sources = as_sources(paths)
    if (cache / f"{_name(sources, _file_sizes(sources), shape)}.npy").exists():
        return True
    there = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    return size <= shutil.disk_usage(there).free * SHARE


def _in_cache(
    path: Path, array_shape: tuple[int, ...], show: Show
) -> np.memmap[Any, np.dtype[np.uint8]] | None:
    """Return a new array in the cache; None where it has no room, which is shown."""
    try:
        return decoded_images.create(path, array_shape)
    except OSError as error:
        show(
            f"Could not keep the decoded images in {path.parent}: {error.strerror or error}; the"
            " next run decodes them again"
        )
        return None


def _fill(
    pixels: np.ndarray,
    sources: Sequence[Source],
    shape: Shape,
    name: str,
    folders: Sequence[Path],
    show: Show,
) -> tuple[dict[int, str], int]:
    """Copy images of this name from the first of the folders that has them, or decode them; return
    the reason for each broken one, and how many were decoded.
    """
    kept = (decoded_images.load(folder / name, pixels.shape, show) for folder in folders)
    if decoded := next(filter(None, kept), None):
        pixels[:] = decoded.pixels
        return decoded.broken, 0
    reasons, shown = list[str](), time.monotonic()
    with _threads() as pool:
        for future in begin_decoding(pool, sources, shape, pixels):
            reasons += future.result()
            if time.monotonic() - shown > SHOW_SECONDS:
                shown = time.monotonic()
                show(f"Read {len(reasons):,} of {len(sources):,} images")
    return _broken(reasons), len(sources)


def _broken(reasons: Sequence[str], first: int = 0) -> dict[int, str]:
    return {row: reason for row, reason in enumerate(reasons, first) if reason}


def _name(
    sources: Sequence[Source],
    sizes: Mapping[str, int],
    shape: Shape,
    base: Path | None = None,
    number: tuple[int, int] = (1, 1),
) -> str:
    """Return the name under which images are kept: equal rules, paths and sizes of files, equal
    names.
    """
    digest = hashlib.sha256(f"{shape.rules}\n".encode())
    for source in sources:
        file = _file(source)
        path = file.removeprefix(f"{base}/") if base else os.path.abspath(file)  # noqa: PTH100
        part = f"{source.start}+{source.size} " if isinstance(source, Part) else ""
        digest.update(f"{sizes[file]} {part}{path}\0".encode(errors="surrogateescape"))
    return f"{number[0]}-of-{number[1]}-{digest.hexdigest()[:32]}"


def _file(source: Source) -> str:
    return source.path if isinstance(source, Part) else source


def _file_sizes(sources: Sequence[Source]) -> dict[str, int]:
    """Return the size in bytes of every file, by its path."""
    sizes = {}
    for file in dict.fromkeys(map(_file, sources)):
        with reading(file, DataError, FIX):
            sizes[file] = os.stat(file).st_size  # noqa: PTH116
    return sizes


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads that starts nothing new once the context ends, even by an error."""
    pool = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="images")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _array_shape(number: int, shape: Shape) -> tuple[int, int, int, int]:
    return number, shape.height, shape.width, shape.channels


def _empty(number: int, shape: Shape) -> np.ndarray:
    try:
        return np.empty(_array_shape(number, shape), np.uint8)
    except (MemoryError, ValueError) as error:
        size = number * shape.height * shape.width * shape.channels
        raise DataError(
            f"{number} images of {shape.height}x{shape.width}x{shape.channels} need "
            f"{decoded_images.gib(size)} of memory: {error}.\nExpected decoded images to fit. "
            "Correct height and width in the config, or make the images smaller."
        ) from error

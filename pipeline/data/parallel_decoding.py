"""Many image files decoded at full speed, with every CPU, cached.

An image is a file, or a `Part` of one. `read` returns all of them, and caches them. `blocks` yields
them in order, for a set that need not fit into memory. A broken image is zeros, and its reason is
returned.

Threads help, since Pillow releases the interpreter while it decodes and resizes. On 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one thread and 912/s with two. PNGs of 32x32
hold the interpreter, and threads wait for each other: 12,800/s with one, 9,100/s with two. So small
images get fewer threads. Two processes reached 17,800/s, which does not pay for starting them and
sharing memory; and a fork is not safe after TensorFlow and JAX have started.
`python -m proofs.competitions.jpeg_speed` compares this with `image_dataset_from_directory`.
"""

import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.data.image_decoding import BrokenImage, Shape, decode
from pipeline.errors import DataError, reading
from pipeline.runtime import devices


class Part(NamedTuple):
    """An image within a file: `size` bytes, the first of them at `start`."""

    path: str
    start: int
    size: int


Source = str | Part
Paths = Sequence[str | os.PathLike[str] | Part]
Show = Callable[[str], None]
# Images that a thread takes at a time: enough to hand over cheaply, few enough for all threads to
# end together.
RUN = 16
SHOW_SECONDS = 10.0
# About how long an image holds the interpreter. The other threads wait for it.
HELD_SECONDS = 1.5e-4
SAMPLES, SAMPLED_SECONDS = 8, 0.005
CHUNK = 1 << 24  # bytes of the cache that one thread hashes
# Decoded images take at most this share of the available memory, and a cache of the free disk.
SHARE = 0.5
FIX = "Correct its permissions, or complete the download."


def read(
    paths: Paths,
    shape: Shape,
    *,
    workers: int | None = None,
    cache: Path | None = None,
    show: Show | None = None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the decoded images, and the reason for each broken one.

    The cache is `<key>.npy`, with its sha256 and the broken images in `<key>.json`. The key covers
    `Shape.rules` and the path, size and time of each file. A corrupt cache is rebuilt; nothing is
    ever removed. The pixels of a cache are a memory map. If memory is short, they are decoded
    straight into it. A folder that cannot be written, or whose disk has too little free space, gets
    no cache.

    Args:
        paths: n files, or parts of files.
        shape: that all images get.
        workers: threads; None: one a CPU and one more, fewer for small images.
        cache: a folder, made if needed; None: no cache.
        show: takes lines of text on progress and cache.

    Returns:
        uint8 (n, height, width, channels), read-only, zeros for a broken one; {row: reason}.

    Raises:
        DataError: if a file is missing or cannot be read, or the images do not fit into memory.
    """
    show = show or (lambda line: None)
    sources = as_sources(paths)
    statuses = _statuses(sources)
    with _pool(workers or _threads(sources, shape)) as pool:
        kept = None if cache is None else cache / _key(sources, statuses, shape)
        if kept is not None:
            hit = _load(kept, _form(len(sources), shape), pool, show)
            if hit is not None:
                return hit
        pixels = _allocate(kept, len(sources), shape, show)
        broken: dict[int, str] = {}
        shown = time.monotonic()
        for number, future in enumerate(_submit(pool, sources, 0, pixels, shape), 1):
            broken |= future.result()
            if time.monotonic() - shown > SHOW_SECONDS:
                shown = time.monotonic()
                show(f"Read {min(number * RUN, len(sources)):,} of {len(sources):,} images")
        if kept is not None:
            _save(kept, pixels, broken, pool, show)
    pixels.flags.writeable = False
    return pixels, broken


def blocks(
    paths: Paths, shape: Shape, size: int, *, workers: int | None = None, ahead: int = 2
) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
    """Yield (first row, uint8 (`size`, height, width, channels), broken) in order.

    The last block may be shorter. The next `ahead` blocks are decoded meanwhile, so that at most
    `ahead` + 2 are in memory. `broken` has rows of the whole set, as in `read`.

    Raises:
        DataError: if a file is missing (before the first block) or cannot be read (in place of its
            block), or a block does not fit into memory.
    """
    sources = as_sources(paths)
    _statuses(sources)
    with _pool(workers or _threads(sources, shape)) as pool:
        begun: deque[tuple[int, np.ndarray, list[Future[dict[int, str]]]]] = deque()
        starts = iter(range(0, len(sources), size))
        while True:
            while len(begun) <= ahead and (start := next(starts, None)) is not None:
                part = sources[start : start + size]
                pixels = _empty(len(part), shape)
                begun.append((start, pixels, _submit(pool, part, start, pixels, shape)))
            if not begun:
                return
            start, pixels, futures = begun.popleft()
            broken: dict[int, str] = {}
            for future in futures:
                broken |= future.result()
            yield start, pixels, broken


def as_sources(paths: Paths) -> list[Source]:
    """Return where each image is."""
    return [path if isinstance(path, Part) else os.fspath(path) for path in paths]


def _file(source: Source) -> str:
    return source.path if isinstance(source, Part) else source


def _form(number: int, shape: Shape) -> tuple[int, int, int, int]:
    return number, shape.height, shape.width, shape.channels


def content(source: Source) -> bytes:
    """Return the bytes of an image; raises `OSError` if they cannot be read."""
    # No Path here and below: a hundred thousand of them cost seconds.
    with open(_file(source), "rb", buffering=0) as file:  # noqa: PTH123
        number = file.fileno()
        start, size = source[1:] if isinstance(source, Part) else (0, os.fstat(number).st_size)
        # One read is enough on a disk. After each, a thread waits for the interpreter.
        found = os.pread(number, size, start)
        while len(found) < size and (
            more := os.pread(number, size - len(found), start + len(found))
        ):
            found += more
        return found


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads that starts nothing new once the context ends, even by an error."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _threads(sources: Sequence[Source], shape: Shape) -> int:
    """Return how many threads help: one a CPU and one more, fewer if they wait for each other."""
    times: list[float] = []
    most = (os.cpu_count() or 1) + 1

    def helpful() -> int:  # by the least time, since the first includes what Pillow imports
        return max(min(most, int(min(times, default=0.0) / HELD_SECONDS)), 1)

    image = _empty(1, shape)[0]
    for source in sources[:: max(len(sources) // SAMPLES, 1)][:SAMPLES]:
        begun = time.perf_counter()
        decode_into(source, shape, image)
        times.append(time.perf_counter() - begun)
        if len(times) > 1 and (helpful() == most or sum(times) > SAMPLED_SECONDS):
            break
    return helpful()


def decode_into(source: Source, shape: Shape, into: np.ndarray) -> str:
    """Write the pixels of an image; return why it is broken, or ""."""
    with reading(_file(source), DataError, FIX):
        found = content(source)
    try:
        decode(found, shape, into)
    except BrokenImage as error:
        return str(error) or "it is broken"
    return ""


def _statuses(sources: Sequence[Source]) -> list[tuple[int, int]]:
    """Return (size in bytes, time of the last change in ns) of every file."""
    known: dict[str, tuple[int, int]] = {}
    files = [_file(source) for source in sources]
    for file in dict.fromkeys(files):
        with reading(file, DataError, FIX):
            try:
                status = os.stat(file)  # noqa: PTH116
            except (FileNotFoundError, NotADirectoryError):
                continue
            known[file] = status.st_size, status.st_mtime_ns
    missing = [file for file in files if file not in known]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} images are missing, for example "
            f"{', '.join(missing[:3])}.\nExpected a file for every row. Set train_images, "
            "test_images and suffix in the config, or complete the download."
        )
    return [known[file] for file in files]


def fits(paths: Paths, shape: Shape, cache: Path | None) -> bool:
    """Return whether `read` has room for these images: in memory, or in a cache on the disk."""
    size = int(np.prod(_form(len(paths), shape), dtype=object))
    if size <= devices.memory_left() * SHARE:
        return True
    if cache is None:
        return False
    sources = as_sources(paths)
    if (cache / _key(sources, _statuses(sources), shape)).with_suffix(".npy").exists():
        return True
    there = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    return size <= shutil.disk_usage(there).free * SHARE


def _allocate(kept: Path | None, number: int, shape: Shape, show: Show) -> np.ndarray:
    """Return an array for the images, in the cache's file if memory is short."""
    form = _form(number, shape)
    size = int(np.prod(form, dtype=object))
    if kept is None or size <= devices.memory_left() * SHARE:
        return _empty(number, shape)
    try:
        pixels = _create(kept.with_suffix(".writing"), form)
    except OSError as error:
        show(f"Could not decode into {kept.parent}, decoding into memory: {_reason(error)}")
        return _empty(number, shape)
    show(f"Memory is short: {number:,} images ({_gib(size)}) are decoded into {kept.parent}")
    return pixels


def _create(path: Path, form: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]]:
    """Return an array in a new .npy file, uint8 of this shape, with its disk space reserved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size, free = int(np.prod(form, dtype=object)), shutil.disk_usage(path.parent).free
    if size > free * SHARE:
        raise OSError(f"{_gib(size)} are more than half of the {_gib(free)} that are free there")
    # Another process may have mapped the old file. To truncate it would take its pixels away.
    path.unlink(missing_ok=True)
    try:
        pixels = np.lib.format.open_memmap(path, "w+", np.uint8, form)
        # A disk that is full when a page is written would end the process without a word.
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return pixels


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _empty(number: int, shape: Shape) -> np.ndarray:
    try:
        return np.empty(_form(number, shape), np.uint8)
    except (MemoryError, ValueError) as error:
        size = number * shape.height * shape.width * shape.channels / 2**30
        raise DataError(
            f"{number} images of {shape.height}x{shape.width}x{shape.channels} need {size:.0f} GiB "
            f"of memory: {error}.\nExpected decoded images to fit. Correct height and width in the "
            "config, or make the images smaller."
        ) from error


def _submit(
    pool: ThreadPoolExecutor,
    sources: Sequence[Source],
    first: int,
    pixels: np.ndarray,
    shape: Shape,
) -> list[Future[dict[int, str]]]:
    """Let the pool decode into `pixels`; a future returns broken rows, counted from `first`."""

    def run(begin: int) -> dict[int, str]:
        broken = {}
        for row in range(begin, min(begin + RUN, len(sources))):
            reason = decode_into(sources[row], shape, pixels[row])
            if reason:
                broken[first + row] = reason
                pixels[row] = 0
        return broken

    return [pool.submit(run, begin) for begin in range(0, len(sources), RUN)]


def _key(sources: Sequence[Source], statuses: Sequence[tuple[int, int]], shape: Shape) -> str:
    digest = hashlib.sha256(f"{shape.rules}\n".encode())
    for source, (size, changed) in zip(sources, statuses, strict=True):
        path = os.path.abspath(_file(source))  # noqa: PTH100
        part = f"{source.start}+{source.size} " if isinstance(source, Part) else ""
        digest.update(f"{size} {changed} {part}{path}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _digest(pixels: np.ndarray, pool: ThreadPoolExecutor) -> str:
    """Return a sha256 over the sha256 of each CHUNK, which every CPU shares."""
    flat = pixels.reshape(-1)
    parts = pool.map(
        lambda start: hashlib.sha256(flat[start : start + CHUNK].data).digest(),
        range(0, flat.size, CHUNK),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _load(
    kept: Path, expected: tuple[int, ...], pool: ThreadPoolExecutor, show: Show
) -> tuple[np.ndarray, dict[int, str]] | None:
    """Return the cached images and broken rows; None if there is no cache, or a corrupt one."""
    array, beside = kept.with_suffix(".npy"), kept.with_suffix(".json")
    if not beside.exists():
        return None
    try:
        told = json.loads(beside.read_bytes())
        pixels = np.load(array, mmap_mode="r", allow_pickle=False)
        if pixels.shape != expected or pixels.dtype != np.uint8:
            raise ValueError(f"it holds {pixels.dtype} {pixels.shape}")
        if _digest(pixels, pool) != told["sha256"]:
            raise ValueError("its sha256 differs")
        broken = {int(row): str(reason) for row, reason in told["broken"].items()}
    except Exception as error:  # of a corrupt file json and numpy raise a dozen kinds
        show(f"The cache {array} is corrupt ({error}) and is rebuilt")
        return None
    show(f"Took {expected[0]:,} decoded images from {array}")
    return pixels, broken


def _save(
    kept: Path, pixels: np.ndarray, broken: dict[int, str], pool: ThreadPoolExecutor, show: Show
) -> None:
    """Write the cache. The .json comes last: without it a killed run leaves no cache."""
    beside = {"sha256": _digest(pixels, pool), "broken": broken}
    fresh = kept.with_suffix(".writing")
    try:
        mapped = pixels if isinstance(pixels, np.memmap) else _create(fresh, pixels.shape)
        try:
            if mapped is not pixels:
                mapped[:] = pixels
            mapped.flush()
            fresh.rename(kept.with_suffix(".npy"))
            fresh.write_text(json.dumps(beside))
            fresh.rename(kept.with_suffix(".json"))
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        show(
            f"Could not keep the decoded images in {kept.parent}: {_reason(error)}; the next run "
            "decodes again"
        )

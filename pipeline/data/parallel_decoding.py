"""Reading: many image files at full speed, with every CPU, cached.

An image is a file, or a `Part` of one. `read` gives all of them at once, and keeps what it decoded
for the next run; `blocks` gives them part by part, in order, for a set that need not fit into
memory. Neither fails because of an image that is broken: its pixels are zeros, and its reason
stands beside them; what that means is for the caller to decide.

Threads, since Pillow lets go of the interpreter while it decodes and resizes: on 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one and 912/s with two. PNGs of 32x32 keep the
interpreter busy, and threads wait for each other: 12,800/s with one, 9,100/s with two; two
processes gave 17,800/s, too little more for what they would need to start and to share memory. So
small images get fewer threads. Threads may also be started after TensorFlow and JAX, where a fork
may not. Against Keras' `image_dataset_from_directory`: `python -m proofs.competitions.jpeg_speed`.
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
from typing import NamedTuple

import numpy as np

from pipeline.data.image_decoding import BrokenImage, Shape, decode
from pipeline.errors import DataError, reading


class Part(NamedTuple):
    """The bytes of an image that lies within a file: from `start` on, so many."""

    path: str
    start: int
    size: int


Name = str | Part
Paths = Sequence[str | os.PathLike[str] | Part]
Show = Callable[[str], None]
# Images that a thread takes at a time: enough that handing them over costs nothing, few enough that
# all threads end together.
RUN = 16
SHOW_SECONDS = 10.0
# Of an image's time, about what a thread needs the interpreter for; the others wait, and to wait
# costs more than it is worth.
HELD_SECONDS = 1.5e-4
SAMPLES, SAMPLED_SECONDS = 8, 0.005
# A part of the cache's file of which one thread makes the sha256.
CHUNK = 1 << 24
# Of the memory that is there, what decoded images may take; more of them are decoded into the
# cache's file. Of the free disk, what a cache may take.
SHARE = 0.5


def read(
    paths: Paths,
    shape: Shape,
    *,
    workers: int | None = None,
    cache: Path | None = None,
    show: Show | None = None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the images, uint8 (n, height, width, channels), not to be written to, and for each
    broken one its index and reason.

    Args:
        paths: n files, or parts of files. A broken one is zeros. shape: the form that all of them
            get.
        workers: threads; None: one a CPU and one more, fewer where images are so small that they
            would wait for each other.
        cache: a folder, made if need be, where the decoded pixels are kept: <key>.npy, and
            <key>.json with its sha256 and the broken ones. The key is of the paths, sizes and times
            of the files and of `Shape.rules`; one that does not fit is made anew, and nothing is
            ever removed. The pixels then come from that file as they are used (a memory map), which
            the system keeps in memory where there is room; what has none from the beginning is
            decoded into the file. A folder that cannot be written, or is on a disk half of whose
            free space is not enough, is done without. None: no cache.
        show: takes lines on how far it is, and on what became of the cache.

    Raises:
        DataError: if a file is missing or cannot be read, or the images do not fit into memory.
    """
    tell = show or _silent
    names = _names(paths)
    found = _present(names)
    with _pool(workers or _threads(names, shape)) as pool:
        kept = None if cache is None else cache / _key(names, found, shape)
        if kept is not None:
            hit = _load(kept, (len(names), shape.height, shape.width, shape.channels), pool, tell)
            if hit is not None:
                return hit
        pixels = _place(kept, len(names), shape, tell)
        broken: dict[int, str] = {}
        said = time.monotonic()
        futures = _start(pool, names, 0, pixels, shape)
        for number, future in enumerate(futures, 1):
            broken |= future.result()
            if time.monotonic() - said > SHOW_SECONDS:
                said = time.monotonic()
                tell(f"Read {min(number * RUN, len(names)):,} of {len(names):,} images")
        if kept is not None:
            _save(kept, pixels, broken, pool, tell)
    pixels.flags.writeable = False
    return pixels, broken


def blocks(
    paths: Paths, shape: Shape, size: int, *, workers: int | None = None, ahead: int = 2
) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
    """Yield (start, uint8 (`size`, height, width, channels), broken) for rows start, start + 1 …,
    in order; the last one may be shorter.

    The next `ahead` blocks are decoded meanwhile, so that at most `ahead` + 2 are in memory.
    `broken` names rows of the whole, as in `read`.

    Raises:
        DataError: if a file is missing (before the first block) or cannot be read (in place of its
            block), or a block does not fit.
    """
    names = _names(paths)
    _present(names)
    with _pool(workers or _threads(names, shape)) as pool:
        begun: deque[tuple[int, np.ndarray, list[Future[dict[int, str]]]]] = deque()
        starts = iter(range(0, len(names), size))
        while True:
            while len(begun) <= ahead and (start := next(starts, None)) is not None:
                part = names[start : start + size]
                room = _room(len(part), shape)
                begun.append((start, room, _start(pool, part, start, room, shape)))
            if not begun:
                return
            start, pixels, futures = begun.popleft()
            broken: dict[int, str] = {}
            for future in futures:
                broken |= future.result()
            yield start, pixels, broken


def _names(paths: Paths) -> list[Name]:
    return [path if isinstance(path, Part) else os.fspath(path) for path in paths]


def _file(name: Name) -> str:
    return name.path if isinstance(name, Part) else name


def _content(name: Name) -> bytes:
    with open(_file(name), "rb", buffering=0) as file:  # noqa: PTH123 - a hundred thousand Path objects cost seconds
        number = file.fileno()
        start, size = (
            (name.start, name.size) if isinstance(name, Part) else (0, os.fstat(number).st_size)
        )
        # One read where it gives all, as it does on a disk: after each, a thread waits for the
        # interpreter.
        found = os.pread(number, size, start)
        while len(found) < size and (
            more := os.pread(number, size - len(found), start + len(found))
        ):
            found += more
        return found


def _silent(line: str) -> None:
    """Show nothing."""


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads that, whatever happens, begins nothing new once the context ends."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _threads(names: Sequence[Name], shape: Shape) -> int:
    """Return how many threads help: one a CPU and one, since some wait; no more than an image's
    time has room for what holds the interpreter.
    """
    taken: list[float] = []
    most = (os.cpu_count() or 1) + 1

    def helping() -> int:  # by the least, since the first also waits for what Pillow imports then
        return max(min(most, int(min(taken, default=0.0) / HELD_SECONDS)), 1)

    image = _room(1, shape)[0]
    for name in names[:: max(len(names) // SAMPLES, 1)][:SAMPLES]:
        begun = time.perf_counter()
        _decoded(name, shape, image)
        taken.append(time.perf_counter() - begun)
        if len(taken) > 1 and (helping() == most or sum(taken) > SAMPLED_SECONDS):
            break
    return helping()


def _decoded(name: Name, shape: Shape, into: np.ndarray) -> str:
    """Write the pixels of a file; return why it is broken, or ""."""
    with reading(_file(name), DataError, "Correct its permissions, or complete the download."):
        content = _content(name)
    try:
        decode(content, shape, into)
    except BrokenImage as error:
        return str(error) or "it is broken"
    return ""


def _present(names: Sequence[Name]) -> list[tuple[int, int]]:
    """Return (size in bytes, time of the last change in ns) of every file."""
    known: dict[str, tuple[int, int] | None] = {}
    for name in names:
        path = _file(name)
        if path not in known:
            known[path] = _status(path)
    found = [known[_file(name)] for name in names]
    missing = [_file(name) for name, status in zip(names, found, strict=True) if status is None]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(names)} images are missing, for example {', '.join(missing[:3])}.\n"
            "Expected a file for every row. Set train_images, test_images and suffix in the config, or complete the download."
        )
    return [status for status in found if status is not None]


def _status(name: str) -> tuple[int, int] | None:
    with reading(name, DataError, "Correct its permissions, or complete the download."):
        try:
            status = os.stat(name)  # noqa: PTH116 - a hundred thousand Path objects cost seconds
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size, status.st_mtime_ns


def _place(kept: Path | None, number: int, shape: Shape, tell: Show) -> np.ndarray:
    """Return room for the images, in the cache's file where memory would be short."""
    form = (number, shape.height, shape.width, shape.channels)
    size = int(np.prod(form, dtype=object))
    if kept is None or size <= _memory() * SHARE:
        return _room(number, shape)
    fresh = kept.with_suffix(".writing")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _fits(kept.parent, size)
        fresh.unlink(
            missing_ok=True
        )  # another process may have it mapped: to cut it off would take its pixels away
        with fresh.open("wb+") as file:
            np.lib.format.write_array_header_1_0(
                file,
                {
                    "shape": form,
                    "fortran_order": False,
                    "descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)),
                },
            )
            start = file.tell()
            # Now, and not when a page is written, which would end the process without a word.
            os.posix_fallocate(file.fileno(), 0, start + size)
        pixels = np.memmap(fresh, np.uint8, "r+", start, form)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        tell(f"Could not decode into {kept.parent}, and takes memory: {error.strerror or error}")
        return _room(number, shape)
    tell(
        f"{number:,} images of {size / 2**30:.1f} GiB are decoded into {kept.parent}, since memory would be short"
    )
    return pixels


def _memory() -> int:
    """Return how many bytes of memory are to be had without taking any from others; Linux says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told = dict(line.split(":", 1) for line in lines)
    return int(told["MemAvailable"].split()[0]) * 1024


def _fits(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free * SHARE:
        raise OSError(
            f"{size / 2**30:.1f} GiB are more than half of the {free / 2**30:.1f} GiB that are free there"
        )


def _room(number: int, shape: Shape) -> np.ndarray:
    try:
        return np.empty((number, shape.height, shape.width, shape.channels), np.uint8)
    except (MemoryError, ValueError) as error:
        size = number * shape.height * shape.width * shape.channels / 2**30
        raise DataError(
            f"{number} images of {shape.height}x{shape.width}x{shape.channels} need {size:.0f} GiB of memory: {error}.\n"
            "Expected decoded images to fit. Correct height and width in the config, or make the images smaller."
        ) from error


def _start(
    pool: ThreadPoolExecutor, names: Sequence[Name], first: int, pixels: np.ndarray, shape: Shape
) -> list[Future[dict[int, str]]]:
    """Let the pool decode these files into `pixels`; each future gives its broken ones, by their
    number counted from `first`.
    """

    def run(begin: int) -> dict[int, str]:
        broken = {}
        for place in range(begin, min(begin + RUN, len(names))):
            reason = _decoded(names[place], shape, pixels[place])
            if reason:
                broken[first + place] = reason
                pixels[place] = 0
        return broken

    return [pool.submit(run, begin) for begin in range(0, len(names), RUN)]


def _key(names: Sequence[Name], found: Sequence[tuple[int, int]], shape: Shape) -> str:
    digest = hashlib.sha256(f"{shape.rules}\n".encode())
    for name, (size, changed) in zip(names, found, strict=True):
        path = os.path.abspath(_file(name))  # noqa: PTH100 - as above
        part = f"{name.start}+{name.size} " if isinstance(name, Part) else ""
        digest.update(f"{size} {changed} {part}{path}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _digest(pixels: np.ndarray, pool: ThreadPoolExecutor) -> str:
    """Return a sha256 over the sha256 of each CHUNK, so that every CPU has its share."""
    flat = pixels.reshape(-1)
    parts = pool.map(
        lambda start: hashlib.sha256(flat[start : start + CHUNK].data).digest(),
        range(0, flat.size, CHUNK),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _load(
    kept: Path, expected: tuple[int, ...], pool: ThreadPoolExecutor, tell: Show
) -> tuple[np.ndarray, dict[int, str]] | None:
    """Return what is kept, or None if there is nothing, or not what was written."""
    if not kept.with_suffix(".json").exists():
        return None
    try:
        beside = json.loads(kept.with_suffix(".json").read_bytes())
        pixels = np.load(kept.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
        if pixels.shape != expected or pixels.dtype != np.uint8:
            raise ValueError(f"it holds {pixels.dtype} {pixels.shape}")
        if _digest(pixels, pool) != beside["sha256"]:
            raise ValueError("its sha256 is another")
        broken = {int(row): str(reason) for row, reason in beside["broken"].items()}
    except (
        Exception
    ) as error:  # a torn file makes json and numpy raise a dozen kinds; it is made anew
        tell(
            f"The cache {kept.with_suffix('.npy')} is not what was written ({error}): it is made anew"
        )
        return None
    tell(f"Took {expected[0]:,} decoded images from {kept.with_suffix('.npy')}")
    return pixels, broken


def _save(
    kept: Path, pixels: np.ndarray, broken: dict[int, str], pool: ThreadPoolExecutor, tell: Show
) -> None:
    """Keep the pixels, and beside them, last, what makes them whole: a kill leaves a file that the
    next one of this key writes over.
    """
    beside = {"sha256": _digest(pixels, pool), "broken": broken}
    fresh = kept.with_suffix(".writing")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            if isinstance(pixels, np.memmap):
                pixels.flush()
            else:
                _fits(kept.parent, pixels.nbytes)
                with fresh.open("wb") as file:
                    # As np.save, which on a full disk loses the last few thousand bytes without a
                    # word.
                    np.lib.format.write_array_header_1_0(
                        file, np.lib.format.header_data_from_array_1_0(pixels)
                    )
                    file.write(pixels.data)
            fresh.rename(kept.with_suffix(".npy"))
            fresh.write_text(json.dumps(beside))
            fresh.rename(kept.with_suffix(".json"))
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        tell(
            f"Could not keep the decoded images in {kept.parent}: {error.strerror or error}; the next run decodes again"
        )

"""Many image files decoded at full speed, with every CPU, cached.

An image is a file, or a `Part` of one. `read` returns all of them, and caches them. `keep` writes a
part of them for a later `read`. `blocks` yields them in order, for a set that need not fit into
memory. A broken image is zeros, and its reason is returned.

Threads help, since Pillow releases the interpreter while it decodes and resizes. On 2 cores,
photographs of 500x375 to 224x224 come at 511/s with one thread and 912/s with two. PNGs of 32x32
hold the interpreter, and threads wait for each other: 12,800/s with one, 9,100/s with two. So small
images get fewer threads. Two processes reached 17,800/s, which does not pay for starting them and
sharing memory; and a fork is not safe after TensorFlow and JAX have started.
"""

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from formats.errors import writing
from pipeline.data import decoded_images
from pipeline.data.decoded_images import SHARE, Decoded, Origin, gib, reason_of
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
Found = TypeVar("Found")
# Images that a thread takes at a time: few enough for all threads to end together.
RUN = 16
SHOW_SECONDS = 10.0
# About how long an image holds the interpreter. The other threads wait for it.
HELD_SECONDS = 1.5e-4
SAMPLES, SAMPLED_SECONDS = 8, 0.005
SHARD = 1 << 28  # bytes of the images that `keep` writes together
FIX = "Correct its permissions, or complete the download."


def read(
    paths: Paths,
    shape: Shape,
    *,
    base: Path | None = None,
    workers: int | None = None,
    cache: Path | None = None,
    prepared: Sequence[Path] = (),
    show: Show | None = None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the decoded images, and the reason for each broken one.

    They are kept by `Shape.rules` and by their paths below `base`. A kept image counts if its file
    has the size and time that it had, or else the same bytes; any other image is decoded. The
    pixels of a whole cache are a memory map. If memory is short, they are decoded straight into it.
    A folder that cannot be written, or whose disk has too little free space, gets no cache.

    Args:
        paths: n files, or parts of files.
        shape: that all images get.
        base: the folder of the competition, which may be mounted elsewhere the next time.
        workers: threads; None: one a CPU and one more, fewer for small images.
        cache: a folder, made if needed; None: no cache.
        prepared: folders that `keep` has written.
        show: takes lines of text on progress and cache.

    Returns:
        uint8 (n, height, width, channels), read-only, zeros for a broken one; {row: reason}.

    Raises:
        DataError: if a file is missing or cannot be read, or the images do not fit into memory.
    """
    sources, show = as_sources(paths), show or (lambda line: None)
    own = None if cache is None else cache / _name(sources, shape, None)  # of this very folder
    parts = shards(len(sources), shape) if prepared else []
    places = {}
    for number, part in enumerate(parts, 1):
        name = _name(sources[part], shape, base, (number, len(parts)))
        places[part.start] = [folder / name for folder in prepared]
    return _read(sources, shape, own, places, workers, show)[:2]


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
        folder: gets it. A shard that is there already, and was decoded from these files, stays.
        earlier: folders in which it may be.

    Raises:
        DataError: as `read` does.
        DiskError: if the shard cannot be written.
    """
    parts = shards(len(paths), shape)
    sources = as_sources(paths[parts[number - 1]])
    name = _name(sources, shape, base, (number, len(parts)))
    places = {0: [place / name for place in earlier]}
    return _read(sources, shape, folder / name, places, None, show, must=True)[2]


def shards(number: int, shape: Shape) -> list[slice]:
    """Return which of so many images are in each shard."""
    size = max(SHARD // int(np.prod(_form(1, shape), dtype=object)), 1)
    return [slice(start, min(start + size, number)) for start in range(0, number, size)]


def _read(
    sources: Sequence[Source],
    shape: Shape,
    own: Path | None,
    places: Mapping[int, Sequence[Path]],
    workers: int | None,
    show: Show,
    *,
    must: bool = False,
) -> tuple[np.ndarray, dict[int, str], int]:
    """Return the images, the broken ones, and how many were decoded.

    Args:
        own: where all of them are kept; None: nowhere.
        places: {first row: where the images from there on may be kept}.
        must: raise if they cannot be kept.
    """
    statuses, number = _statuses(sources), len(sources)
    form = _form(number, shape)
    old = None if own is None else decoded_images.load(own, form, show)
    if old is not None and [origin[:2] for origin in old.origins] == statuses:
        show(f"Took {number:,} decoded images from {own}.npy")
        return old.pixels, old.broken, 0
    pixels = _empty(number, shape) if must else _allocate(own, number, shape, show)
    known: list[Origin | None] = [None] * number  # what is in `pixels` already
    broken: dict[int, str] = {}
    for first, kept in [(0, old)] if old else decoded_images.load_parts(places, form, show):
        part = slice(first, first + len(kept.pixels))
        known[part] = kept.origins
        broken |= {first + row: reason for row, reason in kept.broken.items()}
        decoded_images.copy(kept.pixels, pixels[part])
    origins = [one or Origin(*status, "") for one, status in zip(known, statuses, strict=True)]

    def work(row: int) -> tuple[Origin, str | None]:
        """Decode an image, unless its pixels are there: then the reason is None."""
        found, before = readable(sources[row]), known[row]
        hashed = own is not None or before is not None
        digest = hashlib.sha256(found).hexdigest() if hashed else ""
        same = before is not None and before.sha256 == digest
        reason = None if same else _decode(found, shape, pixels[row])
        return Origin(*statuses[row], digest), reason

    # Where all files have one time, as out of some archives, it tells nothing.
    marks = statuses if old or len({time for _, time in statuses}) > 1 else [(0, 0)] * number
    rows = [row for row in range(number) if not known[row] or origins[row][:2] != marks[row]]
    anew, shown = list[int](), time.monotonic()
    with _pool(workers or _threads([sources[row] for row in rows], shape)) as pool:
        for count, future in enumerate(_submit(pool, rows, work)):
            some = rows[count * RUN : (count + 1) * RUN]
            for row, (origin, reason) in zip(some, future.result(), strict=True):
                origins[row] = origin
                if reason is not None:
                    anew.append(row)
                    broken.pop(row, None)
                if reason:
                    broken[row] = reason
            if time.monotonic() - shown > SHOW_SECONDS:
                shown = time.monotonic()
                show(f"Read {min((count + 1) * RUN, len(rows)):,} of {len(rows):,} images")
    changed = [row for row in anew if known[row]]
    if changed:
        show(
            f"{len(changed):,} files have changed since they were decoded, and are decoded anew,"
            f" for example {_file(sources[changed[0]])}"
        )
    made = Decoded(pixels, broken, origins)
    if own is not None and must:
        with writing(own):
            decoded_images.write(own, made, share=1.0)
    elif own is not None:
        decoded_images.save(own, made, show)
    pixels.flags.writeable = False
    return pixels, broken, len(anew)


def _name(
    sources: Sequence[Source], shape: Shape, base: Path | None, number: tuple[int, int] = (1, 1)
) -> str:
    """Return the name under which images are kept: equal rules and paths, equal names."""
    above = f"{os.fspath(base)}/" if base else ""
    digest = hashlib.sha256(f"{shape.rules}\n".encode())
    for source in sources:
        path = _file(source).removeprefix(above) if base else os.path.abspath(_file(source))  # noqa: PTH100
        part = f"{source.start}+{source.size} " if isinstance(source, Part) else ""
        digest.update(f"{part}{path}\0".encode(errors="surrogateescape"))
    return f"{number[0]}-of-{number[1]}-{digest.hexdigest()[:32]}"


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
        begun: deque[tuple[int, np.ndarray, list[Future[list[str]]]]] = deque()
        starts = iter(range(0, len(sources), size))
        while True:
            while len(begun) <= ahead and (start := next(starts, None)) is not None:
                part = sources[start : start + size]
                pixels = _empty(len(part), shape)
                work = partial(_decode_row, part, shape, pixels)
                begun.append((start, pixels, _submit(pool, range(len(part)), work)))
            if not begun:
                return
            start, pixels, futures = begun.popleft()
            reasons = [reason for future in futures for reason in future.result()]
            yield start, pixels, {start + row: why for row, why in enumerate(reasons) if why}


def _decode_row(sources: Sequence[Source], shape: Shape, pixels: np.ndarray, row: int) -> str:
    return decode_into(sources[row], shape, pixels[row])


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
    """Write the pixels of an image, zeros of a broken one; return why it is broken, or ""."""
    return _decode(readable(source), shape, into)


def readable(source: Source | os.PathLike[str]) -> bytes:
    """Return the bytes of an image; raises `DataError` if they cannot be read."""
    (known,) = as_sources([source])
    with reading(_file(known), DataError, FIX):
        return content(known)


def _decode(found: bytes, shape: Shape, into: np.ndarray) -> str:
    try:
        decode(found, shape, into)
    except BrokenImage as error:
        into[:] = 0
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
    if (cache / f"{_name(as_sources(paths), shape, None)}.npy").exists():
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
        pixels = decoded_images.create(kept, form)
    except OSError as error:
        show(f"Could not decode into {kept.parent}, decoding into memory: {reason_of(error)}")
        return _empty(number, shape)
    show(f"Memory is short: {number:,} images ({gib(size)}) are decoded into {kept.parent}")
    return pixels


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
    pool: ThreadPoolExecutor, rows: Sequence[int], work: Callable[[int], Found]
) -> list[Future[list[Found]]]:
    """Let the pool work on all rows; each future has the results of RUN of them."""

    def run(begin: int) -> list[Found]:
        return [work(row) for row in rows[begin : begin + RUN]]

    return [pool.submit(run, begin) for begin in range(0, len(rows), RUN)]

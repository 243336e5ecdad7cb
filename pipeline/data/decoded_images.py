"""Decoded images on the disk: `<name>.npy` holds pixels, `<name>.json` what each came from.

The .json comes last, with the sha256 of the pixels and its own: a run that is killed at any moment
leaves whole images, or none that count.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from formats import checksums
from pipeline.data import row_checksum

Show = Callable[[str], None]
# Of a disk's free space, what decoded images may take: checkpoints need some, too.
SHARE = 0.5
PIXELS, BESIDE, WRITING = ".npy", ".json", ".writing"


class Origin(NamedTuple):
    """What an image was decoded from.

    Attributes:
        size: bytes of its file.
        changed: when the file was changed last, in ns. Only a hint: another mount has other times.
        sha256: of the bytes of the image.
    """

    size: int
    changed: int
    sha256: str


class Decoded(NamedTuple):
    """Decoded images.

    Attributes:
        pixels: uint8 (n, height, width, channels), read-only: a map of the file.
        broken: the reason for each row that could not be decoded, and is zeros.
        origins: n.
    """

    pixels: np.ndarray
    broken: dict[int, str]
    origins: list[Origin]


def load(place: Path, form: tuple[int, ...], show: Show) -> Decoded | None:
    """Return what `write` wrote; None if nothing is there, or if a file was changed.

    Args:
        place: of both files, without an ending.
        form: of the pixels: (n, height, width, channels).
        show: is told of a file that was changed, or has another form.
    """
    array, beside = place.with_suffix(PIXELS), place.with_suffix(BESIDE)
    if not os.path.isfile(beside):  # noqa: PTH113 - a name may be too long for Path
        return None
    try:
        told = checksums.opened(checksums.read(beside))
        pixels = np.load(array, mmap_mode="r", allow_pickle=False)
        if pixels.shape != form or pixels.dtype != np.uint8:
            raise ValueError(f"it holds {pixels.dtype} {pixels.shape}")
        if row_checksum.of_rows(pixels) != told["sha256"]:
            raise ValueError("its sha256 differs")
        broken = {int(row): str(reason) for row, reason in told["broken"].items()}
        split = [text.split() for text in told["origins"]]
        origins = [Origin(int(size), int(changed), digest) for size, changed, digest in split]
        if len(origins) != len(pixels) or any(not 0 <= row < len(pixels) for row in broken):
            raise ValueError(f"{len(origins)} origins for {len(pixels)} images")
    except Exception as error:  # of a corrupt file json and numpy raise a dozen kinds
        show(f"{array} is corrupt ({error}): its images are decoded anew")
        return None
    return Decoded(pixels, broken, origins)


def load_parts(
    places: Mapping[int, Sequence[Path]], form: tuple[int, ...], show: Show
) -> Iterator[tuple[int, Decoded]]:
    """Yield (first row, images) of each part of an array that is kept somewhere.

    Args:
        places: {first row: where the rows from there on may be}.
        form: of the whole array.
        show: as `load` takes it; and it is told how many images were found.
    """
    taken, number = 0, form[0]
    for first, after in pairwise([*sorted(places), number]):
        loaded = (load(place, (after - first, *form[1:]), show) for place in places[first])
        found = next(filter(None, loaded), None)
        if found is not None:
            taken += after - first
            yield first, found
    folders = ", ".join(sorted({str(place.parent) for each in places.values() for place in each}))
    if folders:
        show(f"Found {taken:,} of {number:,} images decoded in {folders}")


def save(place: Path, decoded: Decoded, show: Show) -> None:
    """Write images as `write` does, or show why they are not kept."""
    try:
        write(place, decoded)
    except OSError as error:
        show(
            f"Could not keep the decoded images in {place.parent}: {reason_of(error)}; the next run"
            " decodes again"
        )


def write(place: Path, decoded: Decoded, share: float = SHARE) -> None:
    """Write images, each file in one rename.

    Args:
        place: of both files, without an ending.
        decoded: `pixels` may be what `create` made at this place.
        share: of the disk's free space, what they may take.

    Raises:
        OSError: if they cannot be written, or would take more.
    """
    fresh, pixels = place.with_suffix(WRITING), decoded.pixels
    beside = {
        "sha256": row_checksum.of_rows(pixels),
        "broken": decoded.broken,
        "origins": [f"{size} {changed} {digest}" for size, changed, digest in decoded.origins],
    }
    try:
        mapped = pixels if isinstance(pixels, np.memmap) else create(place, pixels.shape, share)
        if mapped is not pixels:
            copy(pixels, mapped)
        mapped.flush()
        fresh.rename(place.with_suffix(PIXELS))
        fresh.write_bytes(checksums.sealed(beside))
        fresh.rename(place.with_suffix(BESIDE))
    finally:
        fresh.unlink(missing_ok=True)


def copy(pixels: np.ndarray, into: np.ndarray) -> None:
    """Copy all images; every CPU copies a part."""
    size = max(row_checksum.CHUNK * len(pixels) // max(pixels.nbytes, 1), 1)

    def run(start: int) -> None:
        into[start : start + size] = pixels[start : start + size]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, range(0, len(pixels), size)))


def create(
    place: Path, form: tuple[int, ...], share: float = SHARE
) -> np.memmap[Any, np.dtype[np.uint8]]:
    """Return an array in a new file, uint8 of this form, with its disk space reserved.

    Raises:
        OSError: as `write` does.
    """
    path = place.with_suffix(WRITING)
    path.parent.mkdir(parents=True, exist_ok=True)
    size, free = int(np.prod(form, dtype=object)), shutil.disk_usage(path.parent).free
    if size > free * share:
        part = "half of " if share < 1 else ""
        raise OSError(f"{gib(size)} are more than {part}the {gib(free)} that are free there")
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


def gib(size: float) -> str:
    """Return bytes in words.

    >>> gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"


def reason_of(error: OSError) -> str:
    """Return the system's words for an error."""
    return error.strerror or str(error)

"""Find near-duplicates: images that were saved again, resized or slightly brightened.

The model's input pixels are compared, so the result is the same on every machine. A k-d tree over
a few coordinates of the thumbnails finds candidates, so the time grows almost linearly. Comparing
100,000 images of 28x28 pixels takes 3 seconds.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

# Two images are near-duplicates if their thumbnails differ by at most ALIKE (root mean square on a
# 0-255 scale) and the images by less than CLOSE (mean). Images whose thumbnails vary by at most
# FLAT are skipped, because they all look similar.
ALIKE, CLOSE, FLAT, SIDE = 3.0, 6.0, 6.0, 8
SHARE = 0.1  # near-duplicate thumbnails differ by less than this fraction of an image's contrast
CHUNK = 1024  # images per block when computing thumbnails in float32
AXES = 8  # coordinates in the tree; more of them prune more pairs, but take more time
PAIRS = 1 << 16  # pairs compared at once
SAMPLE = 500  # sample size to estimate the number of pairs


def groups(pixels: Any, known: np.ndarray | None = None) -> np.ndarray:
    """Return a group number for each image, int32 (n,).

    Near-duplicates have the same number. Groups are transitive, so a copy of a copy belongs to the
    same group.

    Args:
        pixels: uint8 (n, height, width, channels), or `image_arrays.FileImages`.
        known: int (n,), existing groups that must not be divided.

    >>> blank, full = np.zeros((2, 2, 1), np.uint8), np.full((2, 2, 1), 9, np.uint8)
    >>> groups(np.stack([blank, full, blank])).tolist()
    [0, 1, 0]
    """
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    copies, count = equal(row_digests(pixels)), len(pixels)
    same = [*copies, *([] if known is None else equal(known.tolist()))]
    # Only the first of several identical images is compared with others.
    once = np.setdiff1d(np.arange(count), [row for each in copies for row in each[1:]])
    pairs = [*near(pixels, once), *((each[0], other) for each in same for other in each[1:])]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], np.int32)


def row_digests(inputs: Any) -> list[bytes]:
    """Return the SHA-256 of each row of an array (n, …), or the digests stored in `FileImages`."""
    known: list[bytes] | None = getattr(inputs, "row_digests", None)
    if known is not None:
        return known
    return [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in inputs]


def equal(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of each key that occurs more than once, in order, ignoring None.

    >>> equal(["a", "b", None, "a", None])
    [[0, 3]]
    """
    places = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[key].append(place)
    return [rows for rows in places.values() if len(rows) > 1]


def near(pixels: Any, among: np.ndarray | None = None) -> list[tuple[int, int]]:
    """Return pairs of near-duplicates, with the lower index first.

    Args:
        pixels: uint8 (n, height, width, channels).
        among: int (m,), rows to compare, in increasing order. None compares all.
    """
    thumbs = thumbnails(pixels)
    rows = np.arange(len(pixels)) if among is None else among
    rows = rows[thumbs[rows].std(axis=1) > FLAT]
    if len(rows) < 2:
        return []
    return alike(pixels, thumbs, np.sort(rows[_candidates(thumbs[rows])], axis=1))


def comparable(pixels: Any, most: int) -> np.ndarray:
    """Return rows, in increasing order, for which `near` compares about `most` pairs or fewer.

    These are all rows or, if many images are similar, a random sample.
    """
    thumbs = thumbnails(pixels)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(thumbs.std(axis=1) > FLAT))
    few = rows[:SAMPLE]
    pairs = len(_candidates(thumbs[few])) if len(few) > 1 else 0
    if pairs * (len(rows) / max(len(few), 1)) ** 2 <= most:
        return np.arange(len(pixels))
    return np.sort(rows[: int(len(few) * (most / pairs) ** 0.5)])


def alike(pixels: Any, thumbs: np.ndarray, pairs: np.ndarray) -> list[tuple[int, int]]:
    """Return the near-duplicates among pairs, int (k, 2), in sorted order."""
    contrast, close = thumbs.std(axis=1), list[tuple[int, int]]()
    for at in range(0, len(pairs), PAIRS):
        part = pairs[at : at + PAIRS]
        left, right = part.T
        apart = np.sqrt(((thumbs[left] - thumbs[right]) ** 2).mean(axis=1))
        least = SHARE * np.minimum(contrast[left], contrast[right])
        close += map(tuple, part[(apart <= ALIKE) & (apart < least)].tolist())
    return sorted(
        (left, right)
        for left, right in close
        if np.abs(pixels[left].astype(np.int16) - pixels[right].astype(np.int16)).mean() < CLOSE
    )


def _candidates(thumbs: np.ndarray) -> np.ndarray:
    """Return all pairs of thumbnails that differ by at most ALIKE, int64 (k, 2).

    The result may contain a few other pairs. No pair is missed, because projecting onto orthogonal
    axes can only decrease distances.
    """
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    centred = thumbs.astype(np.float64) - thumbs.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, -AXES:]  # the principal axes
    radius = ALIKE * np.sqrt(thumbs.shape[1]) * (1 + 1e-6)  # allows for rounding errors
    pairs = cKDTree(centred @ axes).query_pairs(radius, output_type="ndarray")
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def thumbnails(pixels: Any) -> np.ndarray:
    """Return grey thumbnails of at most SIDE x SIDE pixels, float32 (n, pixels)."""
    return np.concatenate(
        [_shrunk(pixels[at : at + CHUNK]) for at in range(0, max(len(pixels), 1), CHUNK)]
    )


def _shrunk(pixels: np.ndarray) -> np.ndarray:
    shrunk: np.ndarray = pixels.mean(axis=3, dtype=np.float32)
    for axis in (1, 2):
        length = shrunk.shape[axis]
        edges = np.linspace(0, length, min(length, SIDE) + 1).astype(int)
        counts = np.diff(edges).reshape([-1 if place == axis else 1 for place in range(3)])
        shrunk = np.add.reduceat(shrunk, edges[:-1], axis=axis) / counts
    return np.asarray(shrunk.reshape(len(pixels), -1), np.float32)

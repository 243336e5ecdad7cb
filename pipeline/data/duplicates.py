"""Images that are one picture to a person: equal, saved again, resized, or a little brighter.

They are found in the pixels that a model gets, so that every machine finds the same ones. Time
grows with the square of their number: 40,000 images of 28x28 take 8 s on one core.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

# Two images are nearly the same if their thumbnails differ by less than ALIKE (root mean square, in
# levels of 255) and the images by less than CLOSE (mean). Thumbnails of flat images are all alike.
ALIKE, CLOSE, FLAT, SIDE = 3.0, 6.0, 6.0, 8
SHARE = 0.1  # of an image's contrast: the thumbnails of a near duplicate differ by less
CHUNK = 1024  # images whose thumbnails are made at a time, as float32


def groups(pixels: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Return a number for each image, equal for images that are one picture: int32 (n,).

    Also equal is what equals a third: a picture, its copy, and the copy of that.

    Args:
        pixels: uint8 (n, height, width, channels).
        known: int (n,), other groups, which stay whole; None: there are none.

    >>> blank, full = np.zeros((2, 2, 1), np.uint8), np.full((2, 2, 1), 9, np.uint8)
    >>> groups(np.stack([blank, full, blank])).tolist()
    [0, 1, 0]
    """
    same = [*equal(row_digests(pixels)), *([] if known is None else equal(known.tolist()))]
    pairs = [*near(pixels), *((each[0], other) for each in same for other in each[1:])]
    return joined(pairs, len(pixels))


def joined(pairs: Iterable[tuple[int, int]], count: int) -> np.ndarray:
    """Return a number for each of `count` places, equal where pairs connect them: int32 (count,).

    >>> joined([(1, 3), (3, 4)], 5).tolist()
    [0, 1, 2, 1, 1]
    """
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    ends = np.array(list(pairs), np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], np.int32)


def row_digests(inputs: np.ndarray) -> list[bytes]:
    """Return the sha256 of each row of an array (n, …)."""
    return [
        hashlib.sha256(np.ascontiguousarray(row).data).digest()
        for start in range(0, len(inputs), CHUNK)
        for row in inputs[start : start + CHUNK]
    ]


def equal(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the places of equal keys, two or more in a list, in rising order. None equals nothing.

    >>> equal(["a", "b", None, "a", None])
    [[0, 3]]
    """
    places = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[key].append(place)
    return [found for found in places.values() if len(found) > 1]


def near(pixels: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of images that are one picture to a person, the lower place first.

    Args:
        pixels: uint8 (n, height, width, channels).
    """
    from sklearn.neighbors import NearestNeighbors

    thumbs = _thumbnails(pixels)
    contrast = thumbs.std(axis=1)
    rows = np.flatnonzero(contrast > FLAT)
    if len(rows) < 2:
        return []
    radius = ALIKE * np.sqrt(thumbs.shape[1])
    neighbours = NearestNeighbors(radius=radius).fit(thumbs[rows])
    graph = neighbours.radius_neighbors_graph(mode="connectivity").tocoo()
    pairs = zip(rows[graph.row].tolist(), rows[graph.col].tolist(), strict=True)
    return sorted(
        (one, other)
        for one, other in pairs
        if one < other
        and np.sqrt(((thumbs[one] - thumbs[other]) ** 2).mean())
        < SHARE * min(contrast[one], contrast[other])
        and np.abs(pixels[one].astype(np.int16) - pixels[other].astype(np.int16)).mean() < CLOSE
    )


def _thumbnails(pixels: np.ndarray) -> np.ndarray:
    """Return the images in grey, at most SIDE x SIDE: float32 (n, side x side), means of equal
    parts.
    """
    return np.concatenate(
        [_shrunk(pixels[at : at + CHUNK]) for at in range(0, max(len(pixels), 1), CHUNK)]
    )


def _shrunk(pixels: np.ndarray) -> np.ndarray:
    shrunk = pixels.mean(axis=3, dtype=np.float32)
    for axis in (1, 2):
        length = shrunk.shape[axis]
        edges = np.linspace(0, length, min(length, SIDE) + 1).astype(int)
        counts = np.diff(edges).reshape([-1 if place == axis else 1 for place in range(3)])
        shrunk = np.add.reduceat(shrunk, edges[:-1], axis=axis) / counts
    return np.asarray(shrunk.reshape(len(pixels), -1), np.float32)

"""Sizes and modes of image files, duplicates, and what ids reveal of labels.

In   paths, pixels, texts
Out  counts, pairs, sentences
"""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from pipeline.errors import DataError, reading

GREY = {"1", "L", "LA", "I", "I;16", "I;16B"}
# Two images are nearly the same if their thumbnails differ by less than ALIKE (root mean square, in
# levels of 255) and the images by less than CLOSE (mean). Thumbnails of flat images are all alike.
ALIKE, CLOSE, FLAT, SIDE = 3.0, 6.0, 6.0, 8
SHARE = 0.1  # of an image's contrast: the thumbnails of a near duplicate differ by less
MOST_NEAR = 5_000  # images that are compared with each other
LEAST = 30  # rows: with fewer, ids may match labels by chance
SIGMAS, SHUFFLES = 6.0, 20


@dataclass(frozen=True)
class Headers:
    """What the headers of image files hold.

    Attributes:
        sizes: number of files by (width, height) in pixels.
        modes: number of files by Pillow's name of the mode.
        formats: number of files by format.
    """

    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    formats: Counter[str]

    @property
    def grey(self) -> bool:
        """Whether no file has colours."""
        return set(self.modes) <= GREY

    def median(self) -> tuple[int, int]:
        """Return the median width and height."""
        width, height = np.median(list(self.sizes.elements()), axis=0)
        return round(width), round(height)

    def describe(self) -> str:
        """Return the headers in words."""
        if not self.sizes:
            return "none could be opened"
        every = np.array(list(self.sizes.elements()))
        (left, top), (right, bottom) = every.min(axis=0), every.max(axis=0)
        width, height = self.median()
        sizes = f"all {left}x{top} (width x height)"
        if len(self.sizes) > 1:
            sizes = (
                f"{left}x{top} to {right}x{bottom} (width x height), {len(self.sizes):,} sizes, "
                f"median {width}x{height}"
            )
        return "; ".join([sizes, _counts(self.formats), _counts(self.modes)])


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common())


def headers(paths: Sequence[str]) -> Headers:
    """Return what the headers of these files hold, without the files that cannot be opened."""
    found = Headers(Counter(), Counter(), Counter())
    for path in paths:
        try:
            with Image.open(path, formats=("PNG", "JPEG", "WEBP")) as image:
                found.sizes[image.size] += 1
                found.modes[image.mode] += 1
                found.formats[str(image.format)] += 1
        except Exception:  # noqa: S112 - Pillow raises a dozen kinds; the decoder names them
            continue
    return found


def file_digests(paths: Sequence[str]) -> list[bytes | None]:
    """Return the sha256 of each file that has as many bytes as another, and None for the others,
    which are no duplicates.

    Raises:
        DataError: if a file cannot be read.
    """
    with reading(Path(paths[0]) if paths else Path(), DataError, "Correct its permissions."):
        sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 - Path costs seconds
        counts = Counter(sizes)
        return [
            hashlib.sha256(Path(path).read_bytes()).digest() if counts[size] > 1 else None
            for path, size in zip(paths, sizes, strict=True)
        ]


def row_digests(inputs: np.ndarray) -> list[bytes]:
    """Return the sha256 of each row of an array (n, …)."""
    return [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in inputs]


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
    """Return pairs of images that are one picture to a person: saved again, resized, or a little
    brighter.

    Args:
        pixels: uint8 (n, height, width, channels); time and memory grow with the square of n.
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
    shrunk = pixels.mean(axis=3, dtype=np.float32)
    for axis in (1, 2):
        length = shrunk.shape[axis]
        edges = np.linspace(0, length, min(length, SIDE) + 1).astype(int)
        counts = np.diff(edges).reshape([-1 if place == axis else 1 for place in range(3)])
        shrunk = np.add.reduceat(shrunk, edges[:-1], axis=axis) / counts
    return np.asarray(shrunk.reshape(len(pixels), -1), np.float32)


def leaks_of_ids(ids: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return in which ways ids reveal the label, in words. No model reads ids, but this shows how
    the data were made.

    Args:
        ids: n texts.
        labels: class numbers, int (n,), or numbers, float (n,).
    """
    if len(ids) < LEAST:
        return []
    found = []
    numbers = [re.findall(r"\d+", text) for text in ids]
    if all(numbers):
        order = np.argsort([int(each[-1][-15:]) for each in numbers], kind="stable")
        strength = _runs(labels[order])
        if strength > SIGMAS:
            found.append(
                "in the order of the numbers in the ids, neighbours have similar labels "
                f"({strength:.0f} standard deviations more than by chance)"
            )
    stems = np.unique([re.split(r"\d", text)[0] for text in ids], return_inverse=True)[1]
    if labels.dtype.kind in "iu" and 1 < stems.max() + 1 <= len(ids) / 2:
        random = np.random.default_rng(0)
        right, baseline = _predicted(stems, labels), _predicted(np.zeros_like(stems), labels)
        chance = [_predicted(stems, random.permutation(labels)) for _ in range(SHUFFLES)]
        if right > np.mean(chance) + SIGMAS * np.std(chance) + 0.05:
            found.append(
                f"the beginning of the id predicts the label of {right:.0%} of the rows "
                f"(majority-class baseline: {baseline:.0%})"
            )
    return found


def _predicted(stems: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows with the most frequent label of their stem; both int (n,)."""
    return float(pd.crosstab(stems, labels).max(axis=1).sum() / len(labels))


def _runs(labels: np.ndarray) -> float:
    """Return by how many standard deviations neighbours are more similar than in a random order: by
    the number of equal neighbours of classes, the correlation of neighbours' ranks of numbers.
    """
    if labels.dtype.kind in "iu":
        share = np.unique(labels, return_counts=True)[1] / len(labels)
        chance, pairs = float((share**2).sum()), len(labels) - 1
        if chance >= 1:
            return 0.0
        same = int((labels[1:] == labels[:-1]).sum())
        return float((same - pairs * chance) / np.sqrt(max(pairs * chance * (1 - chance), 1e-9)))
    ranks = pd.Series(labels).rank().to_numpy()
    centred = ranks - ranks.mean()
    power = float((centred**2).sum())
    if not power:
        return 0.0
    return float((centred[1:] * centred[:-1]).sum() / power * np.sqrt(len(labels)))

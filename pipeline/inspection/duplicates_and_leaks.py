"""Survey: what examples are like among themselves: sizes and modes of image files, the same content
twice, and what ids tell of labels.

Reads  paths, pixels, texts: nothing here knows of a competition
Gives  counts, pairs, and sentences
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
# Two images are nearly the same if their thumbnails differ by less than this, in levels of 255
# (root of the mean square), and the images themselves by less than the second (mean). Thumbnails of
# flat images are all alike, and tell nothing.
ALIKE, CLOSE, FLAT, SIDE = 3.0, 6.0, 6.0, 8
SHARE = 0.1  # of an image's own contrast, which the difference of its thumbnail stays below
MOST_NEAR = 5_000  # images that are compared each with each
LEAST = 30  # rows below which ids tell nothing that could not be chance
SIGMAS, SHUFFLES = 6.0, 20


@dataclass(frozen=True)
class Headers:
    """What the headers of image files say.

    Attributes:
        sizes: (width, height) in pixels → number of files. modes: Pillow's name → number. formats:
            the same.
    """

    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    formats: Counter[str]

    @property
    def grey(self) -> bool:
        """Whether no file has colours."""
        return set(self.modes) <= GREY

    def middle(self) -> tuple[int, int]:
        """Return the median width and height."""
        every = np.array(list(self.sizes.elements()))
        width, height = np.median(every, axis=0)
        return round(width), round(height)

    def told(self) -> str:
        """Return it in words."""
        if not self.sizes:
            return "none could be opened"
        every = np.array(list(self.sizes.elements()))
        (left, top), (right, bottom) = every.min(axis=0), every.max(axis=0)
        wide, high = self.middle()
        form = ", ".join(f"{name} {count:,}" for name, count in self.formats.most_common())
        mode = ", ".join(f"{name} {count:,}" for name, count in self.modes.most_common())
        if len(self.sizes) == 1:
            return f"all {left}x{top} (width x height); {form}; {mode}"
        return f"{left}x{top} to {right}x{bottom} (width x height), {len(self.sizes):,} sizes, median {wide}x{high}; {form}; {mode}"


def headers(paths: Sequence[str]) -> Headers:
    """Return what the headers of these files say; files that are no images, or cannot be read,
    count nowhere.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    modes: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    for path in paths:
        try:
            with Image.open(path, formats=("PNG", "JPEG", "WEBP")) as image:
                sizes[image.size] += 1
                modes[image.mode] += 1
                formats[str(image.format)] += 1
        except Exception:  # noqa: S112 - of torn bytes Pillow raises a dozen kinds; the decoder says what is wrong with them
            continue
    return Headers(sizes, modes, formats)


def contents(paths: Sequence[str]) -> list[bytes | None]:
    """Return the sha256 of each file that has as many bytes as another, and None for the others,
    which are like none.

    Raises:
        DataError: if a file cannot be read.
    """
    found: list[bytes | None] = []
    with reading(Path(paths[0]) if paths else Path(), DataError, "Correct its permissions."):
        sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 - a hundred thousand Path objects cost seconds
        counted = Counter(sizes)
        for path, size in zip(paths, sizes, strict=True):
            found.append(
                hashlib.sha256(Path(path).read_bytes()).digest() if counted[size] > 1 else None
            )
    return found


def digests(inputs: np.ndarray) -> list[bytes]:
    """Return the sha256 of each row, of arrays (n, …)."""
    return [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in inputs]


def same(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the places of equal keys, two or more at a time, in rising order; None is like
    nothing.

    >>> same(["a", "b", None, "a", None])
    [[0, 3]]
    """
    places = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[key].append(place)
    return [found for found in places.values() if len(found) > 1]


def near(pixels: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of images that a person would call the same picture: written anew, resized, or a
    little brighter.

    Args:
        pixels: uint8 (n, height, width, channels); time and memory grow with the square of n.
    """
    from sklearn.neighbors import NearestNeighbors

    thumbs = _thumbnails(pixels)
    rows = np.flatnonzero(thumbs.std(axis=1) > FLAT) if len(thumbs) else np.arange(0)
    if len(rows) < 2:
        return []
    reach = ALIKE * np.sqrt(thumbs.shape[1])
    graph = (
        NearestNeighbors(radius=reach)
        .fit(thumbs[rows])
        .radius_neighbors_graph(mode="connectivity")
        .tocoo()
    )
    pairs = [
        (int(rows[one]), int(rows[other]))
        for one, other in zip(graph.row, graph.col, strict=True)
        if one < other
    ]
    contrast = thumbs.std(axis=1)
    return sorted(
        (one, other)
        for one, other in pairs
        if np.sqrt(((thumbs[one] - thumbs[other]) ** 2).mean())
        < SHARE * min(contrast[one], contrast[other])
        and np.abs(pixels[one].astype(np.int16) - pixels[other].astype(np.int16)).mean() < CLOSE
    )


def _thumbnails(pixels: np.ndarray) -> np.ndarray:
    """Return the images as grey ones of at most SIDE x SIDE: float32 (n, side x side), means of
    equal parts.
    """
    shrunk = pixels.mean(axis=3, dtype=np.float32)
    for axis in (1, 2):
        length = shrunk.shape[axis]
        edges = np.linspace(0, length, min(length, SIDE) + 1).astype(int)
        counts = np.diff(edges).reshape([-1 if place == axis else 1 for place in range(3)])
        shrunk = np.add.reduceat(shrunk, edges[:-1], axis=axis) / counts
    return np.asarray(shrunk.reshape(len(pixels), -1), np.float32)


def told_by_ids(ids: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return in which ways ids say what the label is, in words; they are no inputs, and still a
    sign of how the data were made.

    Args:
        ids: n texts. labels: float or int (n,): classes by their number, or numbers.
    """
    if len(ids) < LEAST:
        return []
    found = []
    numbers = [re.findall(r"\d+", text) for text in ids]
    if all(numbers):
        order = np.argsort([int(each[-1][-15:]) for each in numbers], kind="stable")
        strength = _runs(labels[order])
        if strength > SIGMAS:
            text = f"in the order of the numbers in the ids, neighbours have like labels ({strength:.0f} standard deviations more than by chance)"
            found.append(text)
    stems = np.unique([re.split(r"\d", text)[0] for text in ids], return_inverse=True)[1]
    if labels.dtype.kind in "iu" and 1 < stems.max() + 1 <= len(ids) / 2:
        random = np.random.default_rng(0)
        right, least = (
            _right(stems, labels),
            np.unique(labels, return_counts=True)[1].max() / len(ids),
        )
        chance = np.array([_right(stems, random.permutation(labels)) for _ in range(SHUFFLES)])
        if right > chance.mean() + SIGMAS * chance.std() + 0.05:
            text = f"what ids begin with tells the label of {right:.0%} of the rows (the most frequent label alone: {least:.0%})"
            found.append(text)
    return found


def _right(stems: np.ndarray, labels: np.ndarray) -> float:
    """Return which share of the rows has the most frequent label of its stem; both int (n,)."""
    table = np.zeros((stems.max() + 1, labels.max() + 1), int)
    np.add.at(table, (stems, labels), 1)
    return float(table.max(axis=1).sum() / len(labels))


def _runs(labels: np.ndarray) -> float:
    """Return by how many standard deviations neighbours are more alike than in a random order.

    Of classes it is the number of equal neighbours, of numbers the correlation of neighbours'
    ranks.
    """
    if labels.dtype.kind in "iu":
        share = np.unique(labels, return_counts=True)[1] / len(labels)
        chance = float((share**2).sum())
        equal = int((labels[1:] == labels[:-1]).sum())
        spread = np.sqrt(max((len(labels) - 1) * chance * (1 - chance), 1e-9))
        return float((equal - (len(labels) - 1) * chance) / spread) if chance < 1 else 0.0
    ranks = pd.Series(labels).rank().to_numpy()
    centred = ranks - ranks.mean()
    power = float((centred**2).sum())
    return (
        float((centred[1:] * centred[:-1]).sum() / power * np.sqrt(len(labels))) if power else 0.0
    )

"""A segmentation competition with generated images of round cells among angular debris.

The target of an image is the mask of its cells. As on Kaggle, masks are run-length encoded: each
run of pixels is written as its start pixel and its length. Pixels are numbered from 1, column by
column.
"""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Columns, Competition, ScoringError
from localkaggle.competitions.examples import Examples, split

SIDE, COUNT = 32, 900


@cache
def cells() -> Competition:
    """Return a competition with 600 training, 50 visible test and 250 hidden test images."""
    random = np.random.RandomState(0)  # NumPy guarantees that its output never changes
    pictures, masks = zip(*(_drawn(random) for _ in range(COUNT)), strict=True)
    examples = Examples("rle", list(map(encoded, masks)), images=np.stack(pictures))
    return examples.competition(
        "cells",
        "Cells among Debris",
        split(COUNT, visible=50, hidden=250),
        placeholder="1 1",
        score=dice,
        gpu_seconds=2 * 3600,
    )


def encoded(mask: np.ndarray) -> str:
    """Return the run-length encoding of a mask.

    >>> import numpy as np
    >>> encoded(np.array([[0, 1, 1], [1, 1, 0]]))
    '2 4'
    """
    flat = np.concatenate([[0], mask.T.ravel() > 0, [0]])
    starts, ends = np.flatnonzero(np.diff(flat)).reshape(-1, 2).T
    return " ".join(f"{start + 1} {end - start}" for start, end in zip(starts, ends, strict=True))


def dice(given: Columns, solution: Columns) -> float:
    """Return the mean Dice coefficient of the masks.

    >>> dice({"rle": {"a": "1 2"}}, {"rle": {"a": "2 2"}})
    0.5
    """
    found = []
    for column, truth in solution.items():
        for name, mask in truth.items():
            ours, theirs = _pixels(given[column][name]), _pixels(mask)
            found.append(2 * len(ours & theirs) / (len(ours) + len(theirs)))
    return sum(found) / len(found)


def _pixels(text: str) -> set[int]:
    words = text.split()
    if len(words) % 2 or not all(word.isdecimal() for word in words):
        raise ScoringError(f"Column rle must be pairs of whole numbers, found {text[:40]!r}")
    pairs = zip(map(int, words[::2]), map(int, words[1::2]), strict=True)
    found = [pixel for start, length in pairs for pixel in range(start, start + length)]
    if not all(1 <= pixel <= SIDE * SIDE for pixel in found) or len(set(found)) != len(found):
        raise ScoringError(
            f"Column rle has pixels outside the image or repeated pixels: {text[:40]!r}"
        )
    return set(found)


def _drawn(random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Return a random image (uint8) and the mask of its cells (bool), both with shape (32, 32)."""
    y, x = np.mgrid[:SIDE, :SIDE]
    # Make the lighting uneven, so that a single gray-level threshold does not find the cells.
    tilt = random.uniform(-1.5, 1.5, 2)
    picture = 90 + tilt[0] * (y - SIDE / 2) + tilt[1] * (x - SIDE / 2)
    mask = np.zeros((SIDE, SIDE), bool)
    for number in range(random.randint(4, 8)):
        middle, size = random.uniform(4, SIDE - 4, 2), random.uniform(2.5, 6, 2)
        down, across = (y - middle[0]) / size[0], (x - middle[1]) / size[1]
        cell = number < 2 or random.rand() < 0.5
        shape = np.hypot(down, across) < 1 if cell else np.maximum(abs(down), abs(across)) < 0.8
        picture = np.where(shape, picture + random.uniform(35, 60), picture)
        mask = (mask | shape) if cell else (mask & ~shape)
    picture = picture + random.normal(0, 10, picture.shape)
    if not mask.any():
        mask[SIDE // 2, SIDE // 2] = True
    return picture.clip(0, 255).astype(np.uint8), mask

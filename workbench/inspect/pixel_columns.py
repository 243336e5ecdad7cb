"""Columns of a table that are the pixels of one image a row."""

import math
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from pipeline.data import csv_files
from pipeline.errors import DataError

PIXEL = re.compile(  # pixel7, px_7, x7, 7, pixel_3_4 or 3x4
    r"(?:(pi?x(?:el)?s?|[a-z])[ _-]?)?(\d+)(?:[ _x-](\d+))?", re.IGNORECASE
)
LEAST = 49  # columns
LEVELS = frozenset(map(str, range(256)))
FEW = frozenset(map(str, range(16)))  # levels: yes and no, and small counts, have no more


def find(path: Path, header: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table that are pixels, if there are enough of them."""
    matches = [match for name in header if (match := PIXEL.fullmatch(name))]
    found = tuple(match[0] for match in matches)
    if len(found) < LEAST or not grid(found):
        return ()
    said = any(len(match[1] or "") > 1 for match in matches)
    return found if said or _levels(path, found) else ()


def _levels(path: Path, names: Sequence[str]) -> bool:
    """Return whether the first rows hold whole numbers from 0 to 255 in these columns, and not only
    small ones: columns that are only numbered may be any features.
    """
    try:
        lines = csv_files.rows(path, DataError, "")
        header, rows = next(lines), list(islice(lines, 100))
    except DataError:  # reading the whole table names the problem
        return True
    places = [place for place, name in enumerate(header) if name in set(names)]
    texts = {row[place].strip().removesuffix(".0") for row in rows for place in places}
    return texts <= LEVELS and not texts <= FEW


def grid(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return height, width and channels of images with these columns, or None where there are none.
    Where the names do not say, an image is square.

    >>> grid([f"pixel{n}" for n in range(784)])
    (28, 28, 1)
    >>> grid([f"{row}x{column}" for row in range(4) for column in range(5)])
    (4, 5, 1)
    """
    pairs = [re.findall(r"\d+", name) for name in names]
    if all(len(pair) == 2 for pair in pairs):
        height, width = (len({pair[place] for pair in pairs}) for place in (0, 1))
        if height * width == len(names):
            return height, width, 1
    for channels in (1, 3):
        side = math.isqrt(len(names) // channels)
        if side * side * channels == len(names):
            return side, side, channels
    return None

"""Recognize masks and texts, and raise errors for unsupported competitions.

Masks in files, masks of several classes, audio, video and object detection are not supported.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from pipeline.data import csv_files
from pipeline.errors import DataError, reading
from workbench.inspect.folder import ADVICE, Files, Images, shortened

SUPPORTED = (
    "The inputs must be images, texts or table columns. The targets must be labels, numbers or "
    "masks.\n"
    "Write the config yourself, as shown in {}."
)
ENDINGS = {  # extensions of unsupported files
    "audio": (".wav", ".mp3", ".ogg", ".flac", ".m4a"),
    "video": (".mp4", ".avi", ".mov", ".mkv", ".webm"),
}
BOXES, LOOKED_AT = b'"bbox"', 1 << 16  # bytes to read at each end of a large file
MASKS = re.compile("mask|segmentation", re.IGNORECASE)
ENCODED = re.compile(r"rle|encoding|encoded.?pixels|mask|segmentation", re.IGNORECASE)
CLASSES = re.compile("class|label|type|categor", re.IGNORECASE)
NUMBERS = re.compile(r"\d+( \d+)+")
LONG = 400  # characters; a longer list of numbers is not a class name
MOST = 1000  # number of texts per column to check
SHARE = 0.9  # fraction of texts that must be run lengths
WORDS = 5  # median number of words; texts with fewer are names or codes
REPEATS = 2  # rows per distinct text; a column with more may be a category


def segmentation(what: str) -> DataError:
    """Return the error for unsupported masks. `what` describes where the masks were found."""
    return DataError(
        f"{what}. For segmentation, inspect can only write a config if the masks are run lengths "
        "in the training table.\n"
        f"{SUPPORTED.format('docs/segmentation.md')} If another column has the labels, select it: "
        "--label COLUMN"
    )


def classes(path: Path, table: pd.DataFrame, ids: str, asked: Sequence[str]) -> None:
    named = [name for name in map(str, table) if name != ids and CLASSES.search(name)]
    kinds = [name for name in named if name in asked or table[ids].duplicated().any()]
    if kinds:
        number = table[kinds[0]].nunique()
        raise DataError(
            f"{path} has masks for {number:,} classes in {kinds[0]!r}, but inspect supports only "
            f"one mask per image.\nIn a copy of the table, keep only one class, and remove "
            f"{kinds[0]!r}. "
            "To extend the config to all classes, see docs/segmentation.md."
        )


def refuse_kind(files: Files) -> None:
    found = {kind: files.ending(*ends) for kind, ends in ENDINGS.items()}
    jsons = files.ending(".json")
    found["detection (boxes)"] = [path for path in jsons if _has_boxes(files.folder / path)]
    for kind, paths in found.items():
        if paths:
            raise DataError(
                f"{files.folder} contains {kind} in {shortened(paths, 3)}, which is not supported "
                f"(see README.md).\n{SUPPORTED.format('docs/custom-code.md')}"
            )


def _has_boxes(path: Path) -> bool:
    with reading(path, DataError, ADVICE), path.open("rb") as file:
        first = file.read(LOOKED_AT)
        file.seek(max(0, path.stat().st_size - LOOKED_AT))
        return BOXES in first or BOXES in file.read()


def masks(table: pd.DataFrame, columns: Sequence[str], *, sample: bool = False) -> str:
    """Return the first column that contains run-length encoded masks, or "".

    In a sample submission, which contains placeholders, only columns whose name suggests masks are
    accepted.
    """
    for name in columns:
        texts = table[name].str.strip()
        filled = texts[~texts.isin(("-1", *csv_files.MISSING))][:MOST]
        # If some texts are empty (images without a mask), a single run is enough.
        called = ENCODED.search(name) or (not sample and len(filled) < len(texts[:MOST]))
        if called and (sample or len(filled)) and all(map(_starts, filled)):
            return name
        if not sample and _run_lengths(filled):
            return name
    return ""


def _run_lengths(texts: pd.Series) -> bool:
    """Return whether texts are run lengths. Unlike numeric labels, run lengths rarely repeat."""
    long = [text for text in texts if len(text) >= LONG and NUMBERS.fullmatch(text)]
    if len(long) >= max(SHARE * len(texts), 1):
        return True  # run lengths that are invalid or in a different format
    rows = [starts for text in set(texts) if (starts := _starts(text))]
    if len(rows) < max(SHARE * len(texts), 1) or np.median(list(map(len, rows))) < 2:
        return False
    return len(set[int]().union(*rows)) >= len(rows)


def _starts(text: str) -> list[int]:
    """Parse a string of alternating starts and lengths, and return the starts.

    Return [] if the string has a different format, if the runs overlap, or if they are not in
    ascending order.

    >>> [_starts(text) for text in ("3 2 9 1", "3 2 4 1", "3 2 9", "a b")]
    [[3, 9], [], [], []]
    """
    numbers = list(map(int, text.split())) if NUMBERS.fullmatch(text) else [0]
    starts, lengths = numbers[::2], numbers[1::2]
    if len(starts) > len(lengths) or (np.diff(starts) < lengths[:-1]).any():
        return []
    return starts


def mask_folder(images: Images) -> str:
    """Return a folder whose name and files suggest masks of other images, or "".

    >>> mask_folder({"a/images": frozenset(["1.png"]), "a/masks": frozenset(["1.png"])})
    'a/masks'
    """
    stems = {place: {name.rpartition(".")[0] for name in images[place]} for place in images}
    for place in sorted(images):
        if MASKS.search(PurePosixPath(place).name):
            shared = [len(stems[place] & stems[other]) for other in images if other != place]
            if 2 * max(shared, default=0) > len(stems[place]):
                return place
    return ""


def prose(texts: pd.Series, least: int = WORDS) -> int:
    """Return the median number of words per text, or 0 if the median is below `least`.

    It is also 0 for names, codes and categories.

    >>> prose(pd.Series(["it was the best of times", "it was the worst of times"]))
    6
    >>> prose(pd.Series(["Mr. Owen Harris", "Miss Laina Heikkinen"]))
    0
    """
    if len(texts) >= REPEATS * texts.nunique():
        return 0
    words = [sum(any(map(str.isalpha, word)) for word in text.split()) for text in texts[:MOST]]
    middle = int(np.median(words)) if words else 0
    return middle if middle >= least else 0

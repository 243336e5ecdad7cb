"""Columns of masks and texts, and a message for each kind of competition that no config describes:
masks in files or of several classes, audio, video, and detection (boxes).
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
    "Expected labels, numbers or masks to predict, of images, texts, or a table of columns.\n"
    "Write the config by hand, as {} shows."
)
ENDINGS = {  # of files that no config reads
    "audio": (".wav", ".mp3", ".ogg", ".flac", ".m4a"),
    "video": (".mp4", ".avi", ".mov", ".mkv", ".webm"),
}
BOXES, LOOKED_AT = b'"bbox"', 1 << 16  # bytes to read at each end of a file of gigabytes
MASKS = re.compile("mask|segmentation", re.IGNORECASE)
ENCODED = re.compile(r"rle|encoding|encoded.?pixels|mask|segmentation", re.IGNORECASE)
CLASSES = re.compile("class|label|type|categor", re.IGNORECASE)
NUMBERS = re.compile(r"\d+( \d+)+")
LONG = 400  # characters of numbers: longer than the name of any class
MOST = 1000  # texts of a column to look at
SHARE = 0.9  # of the texts that have to be run lengths
WORDS = 5  # of the median text: with fewer it is a name or a code
REPEATS = 2  # rows per distinct text: with more it may be a category


def segmentation(what: str) -> DataError:
    """Return the error for masks that inspect cannot describe; `what` is where they were found."""
    return DataError(
        f"{what}. This looks like a segmentation, for which inspect only writes a config if the "
        "masks are run lengths in the training table.\n"
        f"{SUPPORTED.format('docs/segmentation.md')} If a column has other labels, name it: "
        "--label COLUMN"
    )


def classes(path: Path, table: pd.DataFrame, ids: str, asked: Sequence[str]) -> None:
    """Raise `DataError` if the masks of a table belong to several classes.

    Args:
        path: of the table, for the message.
        asked: the columns of a submission, without the ids.
    """
    named = [name for name in map(str, table) if name != ids and CLASSES.search(name)]
    kinds = [name for name in named if name in asked or table[ids].duplicated().any()]
    if kinds:
        number = table[kinds[0]].nunique()
        raise DataError(
            f"{path} has masks of {number:,} classes, by {kinds[0]!r}; expected one mask per "
            f"image.\nIn a copy, keep the rows of one class and remove {kinds[0]!r}. "
            "docs/segmentation.md shows how to extend that config to all classes."
        )


def refuse_kind(files: Files) -> None:
    """Raise `DataError` if a folder without anything to learn from has audio, video or boxes."""
    found = {kind: files.ending(*ends) for kind, ends in ENDINGS.items()}
    jsons = files.ending(".json")
    found["detection (boxes)"] = [path for path in jsons if _has_boxes(files.folder / path)]
    for kind, paths in found.items():
        if paths:
            raise DataError(
                f"{files.folder} has {kind}, in {shortened(paths, 3)}, which is not supported yet "
                f"(README.md).\n{SUPPORTED.format('docs/custom-code.md')}"
            )


def _has_boxes(path: Path) -> bool:
    """Return whether a JSON file has boxes in COCO's format, near its beginning or end."""
    with reading(path, DataError, ADVICE), path.open("rb") as file:
        first = file.read(LOOKED_AT)
        file.seek(max(0, path.stat().st_size - LOOKED_AT))
        return BOXES in first or BOXES in file.read()


def masks(table: pd.DataFrame, columns: Sequence[str], *, sample: bool = False) -> str:
    """Return the first of these columns that holds masks as run lengths, or "".

    Args:
        table: of texts.
        columns: to look at.
        sample: whether the texts are placeholders of a sample submission. These only count in a
            column with the name of a mask.
    """
    for name in columns:
        texts = table[name].str.strip()
        filled = texts[~texts.isin(("-1", *csv_files.MISSING))][:MOST]
        # If some rows are empty, pictures without a mask, one run is enough.
        called = ENCODED.search(name) or (not sample and len(filled) < len(texts[:MOST]))
        if called and (sample or len(filled)) and all(map(_starts, filled)):
            return name
        if not sample and _run_lengths(filled):
            return name
    return ""


def _run_lengths(texts: pd.Series) -> bool:
    """Return whether texts are run lengths; numeric labels would repeat from row to row."""
    long = [text for text in texts if len(text) >= LONG and NUMBERS.fullmatch(text)]
    if len(long) >= max(SHARE * len(texts), 1):
        return True  # invalid, or in another format
    rows = [starts for text in set(texts) if (starts := _starts(text))]
    if len(rows) < max(SHARE * len(texts), 1) or np.median(list(map(len, rows))) < 2:
        return False
    return len(set[int]().union(*rows)) >= len(rows)


def _starts(text: str) -> list[int]:
    """Return the starts of the runs in a text: pairs of start and length that rise and do not
    overlap. [] for any other text.

    >>> [_starts(text) for text in ("3 2 9 1", "3 2 4 1", "3 2 9", "a b")]
    [[3, 9], [], [], []]
    """
    numbers = list(map(int, text.split())) if NUMBERS.fullmatch(text) else [0]
    starts, lengths = numbers[::2], numbers[1::2]
    if len(starts) > len(lengths) or (np.diff(starts) < lengths[:-1]).any():
        return []
    return starts


def mask_folder(images: Images) -> str:
    """Return a folder whose name says masks and whose files are named like other images, or "".

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
    """Return the number of words in the median text of a column; 0 for names, codes and categories.

    Args:
        texts: of the column.
        least: words that the median text needs.

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

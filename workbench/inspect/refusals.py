"""Masks and texts, told from other columns; and competitions that no config here can describe, told
apart so that one message says so: masks in files or of several classes, audio, video and detection
(boxes).
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
ENDINGS = {  # of files that nothing here reads
    "audio": (".wav", ".mp3", ".ogg", ".flac", ".m4a"),
    "video": (".mp4", ".avi", ".mov", ".mkv", ".webm"),
}
BOXES, LOOKED_AT = b'"bbox"', 1 << 16  # bytes at each end of a file, which may have gigabytes
MASKS = re.compile("mask|segmentation", re.IGNORECASE)
ENCODED = re.compile(r"rle|encoding|encoded.?pixels|mask|segmentation", re.IGNORECASE)
CLASSES = re.compile("class|label|type|categor", re.IGNORECASE)
NUMBERS = re.compile(r"\d+( \d+)+")
LONG = 400  # characters of numbers: longer than the name of any class
MOST = 1000  # texts of a column that are looked at
SHARE = 0.9  # of the texts that are run lengths
WORDS = 5  # of the median text: with fewer it is a name or a code
REPEATS = 2  # rows for each distinct text: with more it may be a category


def segmentation(what: str) -> DataError:
    """Return the error that says that inspect cannot describe masks; `what` shows them."""
    return DataError(
        f"{what}. This looks like a segmentation competition (a mask for each image), for which "
        "inspect writes a config where the masks are run lengths in the training table.\n"
        f"{SUPPORTED.format('docs/segmentation.md')} If a column has other labels, name it: "
        "--label COLUMN"
    )


def classes(path: Path, table: pd.DataFrame, ids: str, asked: Sequence[str]) -> None:
    """Raise `DataError` if the masks of a table are of several classes.

    Args:
        path: of the table, for the message.
        asked: the columns that a submission has beside its ids.
    """
    named = [name for name in map(str, table) if name != ids and CLASSES.search(name)]
    kinds = [name for name in named if name in asked or table[ids].duplicated().any()]
    if kinds:
        number = table[kinds[0]].nunique()
        raise DataError(
            f"{path} has masks of {number:,} classes, by {kinds[0]!r}, for which inspect has no "
            "config; expected one mask for each image.\nIn a copy, keep the rows of one class and "
            f"remove {kinds[0]!r}: inspect then writes a config. In it, give custom_labels a third "
            "number, the classes, and unet as many channels (docs/segmentation.md)."
        )


def refuse_kind(files: Files) -> None:
    """Raise `DataError` if a folder in which nothing to learn from was found has audio, video, or
    the boxes of a detection.
    """
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
    """Return whether a JSON file has boxes, as COCO writes them, near one of its ends."""
    with reading(path, DataError, ADVICE), path.open("rb") as file:
        first = file.read(LOOKED_AT)
        file.seek(max(0, path.stat().st_size - LOOKED_AT))
        return BOXES in first or BOXES in file.read()


def masks(table: pd.DataFrame, columns: Sequence[str], *, sample: bool = False) -> str:
    """Return the first of these columns that holds masks, as numbers of pixels and run lengths; ""
    if none does.

    Args:
        table: of texts.
        columns: to look at.
        sample: whether the texts are placeholders of a sample submission, which count only in a
            column that is called as masks are.
    """
    for name in columns:
        texts = table[name].str.strip()
        filled = texts[~texts.isin(("-1", *csv_files.MISSING))][:MOST]
        # Rows without a label are pictures without a mask: then one run is enough.
        called = ENCODED.search(name) or (not sample and len(filled) < len(texts[:MOST]))
        if called and (sample or len(filled)) and all(map(_starts, filled)):
            return name
        if not sample and _run_lengths(filled):
            return name
    return ""


def _run_lengths(texts: pd.Series) -> bool:
    """Return whether texts are run lengths. Labels that are numbers repeat from row to row."""
    long = [text for text in texts if len(text) >= LONG and NUMBERS.fullmatch(text)]
    if len(long) >= max(SHARE * len(texts), 1):
        return True  # damaged, or of another form
    rows = [starts for text in set(texts) if (starts := _starts(text))]
    if len(rows) < max(SHARE * len(texts), 1) or np.median(list(map(len, rows))) < 2:
        return False
    return len(set[int]().union(*rows)) >= len(rows)


def _starts(text: str) -> list[int]:
    """Return where the runs of a text begin that is starts and lengths of runs which rise and do
    not overlap; else [].

    >>> [_starts(text) for text in ("3 2 9 1", "3 2 4 1", "3 2 9", "a b")]
    [[3, 9], [], [], []]
    """
    numbers = list(map(int, text.split())) if NUMBERS.fullmatch(text) else [0]
    starts, lengths = numbers[::2], numbers[1::2]
    if len(starts) > len(lengths) or (np.diff(starts) < lengths[:-1]).any():
        return []
    return starts


def mask_folder(images: Images) -> str:
    """Return a folder of masks: called so, with names of other images; "" if there is none.

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
    """Return the words of the median text of a column; 0 if they are names, codes or categories.

    Args:
        texts: of the column.
        least: words of a median text that is no name.

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

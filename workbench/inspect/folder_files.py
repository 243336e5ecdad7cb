"""The files of a competition folder by kind, and folders that are named after labels."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pandas as pd

from pipeline.config.data_layout import ENDINGS
from pipeline.data import csv_files, image_files
from pipeline.errors import DataError
from pipeline.runtime import mounts

ADVICE = "Give a folder as Kaggle mounts it, with a sample submission, a table of labels, and data."
TESTS = re.compile("test", re.IGNORECASE)
TRAINS = re.compile("train", re.IGNORECASE)
# Folders that accompany images.
EXTRAS = re.compile(r"mask|seg|annot|depth|thumb|overlay|bound", re.IGNORECASE)
CSV, ARRAYS, RECORDS = ".csv", (".npy", ".npz"), (".tfrec", ".tfrecord", ".tfrecords")
TABLES = (CSV, csv_files.PARQUET)
READ = (*TABLES, *ARRAYS, *RECORDS)
PACKED = (".zip", ".7z", ".gz", ".tar", ".rar", ".parquet", ".tsv", ".json", ".feather")
Images = Mapping[str, frozenset[str]]  # names of image files by their folder


class Labelled(NamedTuple):
    """Images in a folder for each label.

    Attributes:
        place: the folder above.
        rows: (path, label) of each image; paths are below the competition folder.
        beside: other folders, but for tests, that hold folders of these labels.
    """

    place: str
    rows: list[tuple[str, str]]
    beside: list[str]


@dataclass(frozen=True)
class Files:
    """The files of a folder, as sorted paths below it.

    Attributes:
        tables: CSVs and parquet tables.
        images: {folder: names of its image files}.
        arrays: .npy and .npz files.
        records: TFRecord files.
        others: {folder: names of its files that are none of these}.
    """

    tables: tuple[str, ...]
    images: Images
    arrays: tuple[str, ...]
    records: tuple[str, ...]
    others: Images


def read(folder: Path) -> Files:
    """Return the files below `folder`.

    Raises:
        DataError: if there is no CSV, or a folder cannot be read.
    """
    images: dict[str, frozenset[str]] = {}
    others: dict[str, frozenset[str]] = {}
    paths = []
    for inside, names in image_files.walk(folder):
        paths += [str(inside / name) for name in names]
        if pictures := image_files.images(names):
            images[str(inside)] = frozenset(pictures)
        rest = [name for name in names if not name.lower().endswith((*ENDINGS, *READ))]
        if rest:
            others[str(inside)] = frozenset(rest)

    def ending(*ends: str) -> tuple[str, ...]:
        return tuple(path for path in paths if path.lower().endswith(ends))

    if not ending(CSV):
        packed = ending(*PACKED)
        more = f" There is {shortened(packed)}: unpack archives, and convert other tables to CSV."
        raise DataError(
            f"{mounts.listing(folder)}; expected tables (.csv), and found none: at least the sample"
            " submission, with ids and a column to predict."
            f"{more if packed else ''}\n{ADVICE}"
        )
    return Files(ending(*TABLES), images, ending(*ARRAYS), ending(*RECORDS), others)


def shortened(names: Sequence[str] | pd.Index, most: int = 6) -> str:
    """Return the first `most` names, and how many there are.

    >>> shortened("abc", 2)
    'a, b … (3)'
    """
    return ", ".join(map(str, names[:most])) + (f" … ({len(names)})" if len(names) > most else "")


def holds_extras(place: str) -> bool:
    """Return whether a folder holds, by its name, what accompanies images.

    >>> holds_extras("data/train_masks"), holds_extras("train_images")
    (True, False)
    """
    return EXTRAS.search(PurePosixPath(place).name) is not None


def labelled_folder(
    images: Images, asked: Collection[str], named: str = "", *, by_name: bool = True
) -> Labelled | None:
    """Return the images below the folder in which each folder is a label; None if there is none.

    Args:
        images: of the competition folder.
        asked: what the sample submission has for labels, in its values and columns.
        named: the only folder to look at; "": the likeliest.
        by_name: whether "train" in a folder's name is enough, if no label is one of `asked`.

    >>> images = {"train/cat": frozenset(["1.png"]), "train/dog": frozenset(["1.png"])}
    >>> labelled_folder(images, {"dog"}).rows
    [('train/cat/1.png', 'cat'), ('train/dog/1.png', 'dog')]
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for place, names in sorted(images.items()):
        inside = PurePosixPath(place)
        for parent in inside.parents:
            label = inside.relative_to(parent).parts[0]
            rows = [(f"{place}/{name}", label) for name in sorted(names)]
            found.setdefault(str(parent), []).extend(rows)
    likely = {}
    for place, rows in found.items():
        labels = {label for _, label in rows}
        known, train = bool(labels & set(asked)), bool(TRAINS.search(PurePosixPath(place).name))
        # Beside each other: two sets, or images and their masks.
        parts = any(p.search(label) for p in (TESTS, TRAINS) for label in labels - set(asked))
        extras = any(map(holds_extras, labels))
        if place == named or (
            not named
            and len(labels) > 1
            and (known or (by_name and train))
            and not (parts or extras)
        ):
            likely[place] = known, train, len(rows)
    if not likely:
        return None
    best = max(likely, key=lambda place: likely[place])
    labels = {label for _, label in found[best]}
    same = (place for place, rows in found.items() if labels.issuperset(label for _, label in rows))
    beside = [place for place in same if place != best and not TESTS.search(place)]
    return Labelled(best, found[best], beside)

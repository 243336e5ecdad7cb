"""The files of a competition folder by kind, folders that are named after labels, and what an
inspection says of them: findings.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pipeline.config.data_layout import ENDINGS
from pipeline.data import csv_files, image_files
from pipeline.errors import DataError
from pipeline.runtime import mounts

ADVICE = "Give a folder as Kaggle mounts it: a sample submission if there is one, labels, and data."
TESTS = re.compile("test", re.IGNORECASE)
TRAINS = re.compile("train", re.IGNORECASE)
LABEL_TABLES = re.compile("train|label", re.IGNORECASE)  # of tables
LABELS = {"label", "labels", "target", "class", "category", "y"}  # columns
# Folders that accompany images.
EXTRAS = re.compile(r"mask|seg|annot|depth|thumb|overlay|bound", re.IGNORECASE)
CSV, ARRAYS, RECORDS = ".csv", (".npy", ".npz"), (".tfrec", ".tfrecord", ".tfrecords")
TABLES = (CSV, ".tsv", csv_files.PARQUET)
READ = (*TABLES, *ARRAYS, *RECORDS, *ENDINGS)
UNPACK = {".csv.zip": "unzip {path} -d {to}", ".csv.gz": "gunzip {path}"}
PACKED = (".zip", ".7z", ".gz", ".tar", ".rar", ".parquet", ".json", ".feather")
Images = Mapping[str, frozenset[str]]  # names of image files by their folder


@dataclass(frozen=True)
class Finding:
    """A line of the result. `level`: "found", "chosen" (with the reason), "unknown" (the reader has
    to decide) or "warning".
    """

    level: str
    about: str
    text: str


class Findings(list[Finding]):
    """The lines of a result, in their order; a method adds one."""

    def found(self, about: str, text: str) -> None:
        """Add what was counted."""
        self.append(Finding("found", about, text))

    def chosen(self, about: str, text: str) -> None:
        """Add a choice with its reason."""
        self.append(Finding("chosen", about, text))

    def unknown(self, about: str, text: str) -> None:
        """Add what the reader has to decide."""
        self.append(Finding("unknown", about, text))

    def warning(self, about: str, text: str) -> None:
        """Add what the reader has to check."""
        self.append(Finding("warning", about, text))


@dataclass(frozen=True)
class Files:
    """The files of a folder.

    Attributes:
        folder: where they are.
        paths: all of them, below it.
        images: {folder: names of its image files}.
    """

    folder: Path
    paths: tuple[str, ...] = field(repr=False)
    images: Images = field(repr=False)

    def ending(self, *ends: str) -> list[str]:
        """Return the files with one of these endings, in small letters or capitals."""
        return [path for path in self.paths if path.lower().endswith(ends)]

    @property
    def tables(self) -> list[str]:
        """CSVs and parquet tables."""
        return self.ending(*TABLES)

    @property
    def unread(self) -> list[str]:
        """Files that nothing here reads, by their endings."""
        return [path for path in self.paths if not path.lower().endswith(READ)]

    def refuse_packed(self, what: str, named: re.Pattern[str]) -> None:
        """Raise `DataError` if there are archives of tables, which may hold what is missing.

        Args:
            what: is missing.
            named: what the name of the archive to unpack first has in it, if one has.
        """
        packed = sorted(self.ending(*UNPACK), key=lambda path: not named.search(Path(path).name))
        if packed:
            path = self.folder / packed[0]
            command = next(UNPACK[end] for end in UNPACK if path.name.lower().endswith(end))
            quoted = {"path": shlex.quote(str(path)), "to": shlex.quote(str(path.parent))}
            raise DataError(
                f"{self.folder} holds no CSV with {what}, but {shortened(packed)}; archives are "
                f"not read.\nUnpack them: {command.format(**quoted)}"
            )


def read(folder: Path) -> Files:
    """Return the files below `folder`.

    Raises:
        DataError: if there is neither a table nor an image, or a folder cannot be read.
    """
    listed = {str(inside): names for inside, names in image_files.walk(folder)}
    paths = tuple(str(PurePosixPath(at) / name) for at, names in listed.items() for name in names)
    images = {at: frozenset(image_files.images(names)) for at, names in listed.items()}
    files = Files(folder, paths, {at: names for at, names in images.items() if names})
    if not (files.tables or files.images):
        packed = files.ending(*PACKED)
        more = f" There is {shortened(packed)}: unpack archives, and convert other tables to CSV."
        raise DataError(
            f"{mounts.listing(folder)}; expected tables (.csv) or images, and found none."
            f"{more if packed else ''}\n{ADVICE}"
        )
    return files


def folded(names: Iterable[object]) -> set[str]:
    """Return names as they are compared: capitals do not count."""
    return {str(name).casefold() for name in names}


def called(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the files whose names, without their endings, match a pattern."""
    return [name for name in names if pattern.search(Path(name).stem)]


def shortened(names: Iterable[object], most: int = 6) -> str:
    """Return the first `most` names, and how many there are.

    >>> shortened("abc", 2)
    'a, b … (3)'
    """
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" … ({len(every)})" if len(every) > most else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "picture"), counted(2_000, "picture")
    ('1 picture', '2,000 pictures')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def holds_extras(place: str) -> bool:
    """Return whether a folder holds, by its name, what accompanies images.

    >>> holds_extras("data/train_masks"), holds_extras("train_images")
    (True, False)
    """
    return EXTRAS.search(PurePosixPath(place).name) is not None


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


def class_folders(
    images: Images, asked: Collection[str], named: str = "", *, by_name: bool = True
) -> Labelled | None:
    """Return the images below the folder in which each folder is a label; None if there is none.

    Args:
        images: of the competition folder.
        asked: what the sample submission has for labels, in its values and columns.
        named: the only folder to look at; "": the likeliest.
        by_name: whether "train" in a folder's name is enough, if no label is one of `asked`.

    >>> images = {"train/cat": frozenset(["1.png"]), "train/dog": frozenset(["1.png"])}
    >>> class_folders(images, {"dog"}).rows
    [('train/cat/1.png', 'cat'), ('train/dog/1.png', 'dog')]
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for place, names in sorted(images.items()):
        for parent in PurePosixPath(place).parents:
            label = PurePosixPath(place).relative_to(parent).parts[0]
            rows = [(f"{place}/{name}", label) for name in sorted(names)]
            found.setdefault(str(parent), []).extend(rows)
    labels = {place: {label for _, label in rows} for place, rows in found.items()}
    likely = {}
    for place, each in labels.items():
        known, train = bool(each & set(asked)), bool(TRAINS.search(PurePosixPath(place).name))
        # Beside each other: two sets, or images and their masks.
        sets = any(TESTS.search(name) or TRAINS.search(name) for name in each - set(asked))
        fits = len(each) > 1 and (known or (by_name and train))
        if place == named or (not named and fits and not sets and not any(map(holds_extras, each))):
            likely[place] = known, train, len(found[place])
    if not likely:
        return None
    best = max(likely, key=lambda place: likely[place])
    same = (place for place in labels if place != best and labels[place] <= labels[best])
    return Labelled(best, found[best], [place for place in same if not TESTS.search(place)])


def listed(places: Sequence[str]) -> str:
    """Return folders for a message.

    >>> listed([".", "test"])
    'the folder itself, test/'
    """
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)

"""The files of a competition folder by kind, folders named after labels, and findings."""

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

ADVICE = "Use a folder as Kaggle mounts it: a sample submission if there is one, labels, and data."
TESTS = re.compile("test", re.IGNORECASE)
TRAINS = re.compile("train", re.IGNORECASE)
LABEL_TABLES = re.compile("train|label", re.IGNORECASE)  # of tables
LABELS = {"label", "labels", "target", "class", "category", "y"}  # columns
# Folders that accompany images.
EXTRAS = re.compile(r"mask|seg|annot|depth|thumb|overlay|bound", re.IGNORECASE)
CSV, ARRAYS, RECORDS = ".csv", (".npy", ".npz"), (".tfrec", ".tfrecord", ".tfrecords")
TABLES = (CSV, ".tsv", csv_files.PARQUET)
READ = (*TABLES, *ARRAYS, *RECORDS, *ENDINGS)
UNPACK = {".zip": "unzip {path} -d {to}", ".tar.gz": "tar -xf {path} -C {to}"}
UNPACK |= {".tar": UNPACK[".tar.gz"], ".gz": "gunzip {path}", ".7z": "7z x {path} -o{to}"}
Images = Mapping[str, frozenset[str]]  # names of image files by their folder


@dataclass(frozen=True)
class Finding:
    """A line of the result.

    Attributes:
        level: "found", "chosen" (with the reason), "unknown" (the reader decides) or "warning".
    """

    level: str
    about: str
    text: str


class Findings(list[Finding]):
    """The lines of a result, in order. Each method adds one."""

    def found(self, about: str, text: str) -> None:
        """Add a fact that was counted."""
        self.append(Finding("found", about, text))

    def chosen(self, about: str, text: str) -> None:
        """Add a choice and its reason."""
        self.append(Finding("chosen", about, text))

    def unknown(self, about: str, text: str) -> None:
        """Add a question that the reader has to decide."""
        self.append(Finding("unknown", about, text))

    def warning(self, about: str, text: str) -> None:
        """Add a problem that the reader has to check."""
        self.append(Finding("warning", about, text))


@dataclass(frozen=True)
class Files:
    """The files of a folder.

    Attributes:
        folder: the competition's.
        paths: of all files, relative to the folder.
        images: {folder: names of its image files}.
    """

    folder: Path
    paths: tuple[str, ...] = field(repr=False)
    images: Images = field(repr=False)

    def ending(self, *ends: str) -> list[str]:
        """Return the files with one of these endings, in lower or upper case."""
        return [path for path in self.paths if path.lower().endswith(ends)]

    @property
    def tables(self) -> list[str]:
        """CSVs and parquet tables."""
        return self.ending(*TABLES)

    @property
    def unread(self) -> list[str]:
        """Files whose ending nothing here reads."""
        return [path for path in self.paths if not path.lower().endswith(READ)]

    def refuse_packed(self, what: str, named: re.Pattern[str]) -> None:
        """Raise `DataError` if there are archives, which may hold what is missing.

        Args:
            what: the missing table or file.
            named: matches the name of the archive to unpack first.
        """
        packed = sorted(self.ending(*UNPACK), key=lambda path: not named.search(Path(path).name))
        if packed:
            path = self.folder / packed[0]
            command = next(UNPACK[end] for end in UNPACK if path.name.lower().endswith(end))
            quoted = {"path": shlex.quote(str(path)), "to": shlex.quote(str(path.parent))}
            raise DataError(
                f"{self.folder} has no {what}, but {shortened(packed)}; archives are not read.\n"
                f"Unpack them: {command.format(**quoted)}"
            )


def read(folder: Path) -> Files:
    """Return the files in `folder`, at any depth.

    Raises:
        DataError: if there is neither a table nor an image, or a folder cannot be read.
    """
    listed = {str(inside): names for inside, names in image_files.walk(folder)}
    paths = tuple(str(PurePosixPath(at) / name) for at, names in listed.items() for name in names)
    images = {at: frozenset(image_files.images(names)) for at, names in listed.items()}
    files = Files(folder, paths, {at: names for at, names in images.items() if names})
    if not (files.tables or files.images):
        files.refuse_packed("table or image", LABEL_TABLES)
        raise DataError(
            f"{mounts.listing(folder)}; expected tables (.csv) or images, and found none.\n{ADVICE}"
        )
    return files


def folded(names: Iterable[object]) -> set[str]:
    """Return names for a comparison that ignores case."""
    return {str(name).casefold() for name in names}


def called(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the files whose names match a pattern, endings aside."""
    return [name for name in names if pattern.search(Path(name).stem)]


def shortened(names: Iterable[object], most: int = 6) -> str:
    """Return the first `most` names, and the number of all.

    >>> shortened("abc", 2)
    'a, b … (3)'
    """
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" … ({len(every)})" if len(every) > most else "")


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural if needed.

    >>> counted(1, "picture"), counted(2_000, "picture")
    ('1 picture', '2,000 pictures')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def holds_extras(place: str) -> bool:
    """Return whether a folder, by its name, holds masks, thumbnails or the like beside images.

    >>> holds_extras("data/train_masks"), holds_extras("train_images")
    (True, False)
    """
    return EXTRAS.search(PurePosixPath(place).name) is not None


class Labelled(NamedTuple):
    """Images in one folder per label.

    Attributes:
        place: the folder above.
        rows: (path, label) of each image; paths are relative to the competition folder.
        beside: other folders, except test folders, that hold folders of these labels.
    """

    place: str
    rows: list[tuple[str, str]]
    beside: list[str]


def class_folders(
    images: Images, asked: Collection[str], named: str = "", *, by_name: bool = True
) -> Labelled | None:
    """Return the images of the folder whose subfolders are the labels, or None.

    Args:
        images: of the competition folder.
        asked: labels that the sample submission has, as values or columns.
        named: the folder to take; "": the likeliest one.
        by_name: whether "train" in the folder's name is enough if no label is one of `asked`.

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
    """Return the names of folders for a message.

    >>> listed([".", "test"])
    'the folder itself, test/'
    """
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)

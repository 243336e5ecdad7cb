"""List a competition folder, and record findings about it."""

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

ADVICE = "Use a competition folder as mounted by Kaggle, with all of its files."
TESTS = re.compile("test", re.IGNORECASE)
TRAINS = re.compile("train", re.IGNORECASE)
LABEL_TABLES = re.compile("train|label", re.IGNORECASE)  # table names
LABELS = {"label", "labels", "target", "class", "category", "y"}  # column names
# Folders with files that accompany the images.
EXTRAS = re.compile(r"mask|seg|annot|depth|thumb|overlay|bound", re.IGNORECASE)
CSV, ARRAYS, RECORDS = ".csv", (".npy", ".npz"), (".tfrec", ".tfrecord", ".tfrecords")
TABLES = (CSV, ".tsv", csv_files.PARQUET)
READ = (*TABLES, *ARRAYS, *RECORDS, *ENDINGS)
UNPACK = {".zip": "unzip {path} -d {to}", ".tar.gz": "tar -xf {path} -C {to}"}
UNPACK |= {".tar": UNPACK[".tar.gz"], ".gz": "gunzip {path}", ".7z": "7z x {path} -o{to}"}
Images = Mapping[str, frozenset[str]]  # folder -> names of its image files


@dataclass(frozen=True)
class Finding:
    """One line of the output.

    Attributes:
        level: "found", "chosen", "unknown" (the user has to decide) or "warning".
        about: the topic, such as "labels".
        text: the finding itself. For a choice, the text includes the reason.
    """

    level: str
    about: str
    text: str


class Findings(list[Finding]):
    """A list of findings.

    `found` adds a fact about the data, and `chosen` adds a choice with its reason. `unknown` adds a
    question that only the user can answer, and `warning` adds a problem that the user should check.
    """

    def found(self, about: str, text: str) -> None:
        self.append(Finding("found", about, text))

    def chosen(self, about: str, text: str) -> None:
        self.append(Finding("chosen", about, text))

    def unknown(self, about: str, text: str) -> None:
        self.append(Finding("unknown", about, text))

    def warning(self, about: str, text: str) -> None:
        self.append(Finding("warning", about, text))


@dataclass(frozen=True)
class Files:
    """The files in a competition folder, and the image files in each of its folders.

    Paths are relative to `folder`.
    """

    folder: Path
    paths: tuple[str, ...] = field(repr=False)
    images: Images = field(repr=False)

    def ending(self, *ends: str) -> list[str]:
        return [path for path in self.paths if path.lower().endswith(ends)]

    @property
    def tables(self) -> list[str]:
        return self.ending(*TABLES)

    @property
    def unread(self) -> list[str]:
        return [path for path in self.paths if not path.lower().endswith(READ)]

    def refuse_packed(self, what: str, named: re.Pattern[str]) -> None:
        """Raise `DataError` if there are archives, because they may contain a missing file.

        Args:
            named: pattern for the name of the archive to unpack first.
        """
        packed = sorted(self.ending(*UNPACK), key=lambda path: not named.search(Path(path).name))
        if packed:
            path = self.folder / packed[0]
            command = next(UNPACK[end] for end in UNPACK if path.name.lower().endswith(end))
            quoted = {"path": shlex.quote(str(path)), "to": shlex.quote(str(path.parent))}
            raise DataError(
                f"No {what} found in {self.folder}. It may be in an archive, and archives are not "
                f"read: {shortened(packed)}.\nUnpack them: {command.format(**quoted)}"
            )


def read(folder: Path) -> Files:
    """List all files in `folder` and its subfolders.

    Raises:
        DataError: if there are no tables and no images, or if a folder cannot be read.
    """
    listed = {str(inside): names for inside, names in image_files.walk(folder)}
    paths = tuple(str(PurePosixPath(at) / name) for at, names in listed.items() for name in names)
    images = {at: frozenset(image_files.images(names)) for at, names in listed.items()}
    files = Files(folder, paths, {at: names for at, names in images.items() if names})
    if not (files.tables or files.images):
        files.refuse_packed("table or image", LABEL_TABLES)
        raise DataError(
            f"{mounts.listing(folder)}. No tables (.csv) or images were found.\n{ADVICE}"
        )
    return files


def folded(names: Iterable[object]) -> set[str]:
    return {str(name).casefold() for name in names}


def called(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    return [name for name in names if pattern.search(Path(name).stem)]


def shortened(names: Iterable[object], most: int = 6) -> str:
    """Join at most `most` names, and append the total number if there are more.

    >>> shortened("abc", 2)
    'a, b … (3)'
    """
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" … ({len(every)})" if len(every) > most else "")


def counted(number: int, noun: str) -> str:
    """Return a number followed by a noun in the singular or plural.

    >>> counted(1, "image"), counted(2_000, "image")
    ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def holds_extras(place: str) -> bool:
    """Return whether a folder's name suggests masks, thumbnails or similar files.

    >>> holds_extras("data/train_masks"), holds_extras("train_images")
    (True, False)
    """
    return EXTRAS.search(PurePosixPath(place).name) is not None


class Labelled(NamedTuple):
    """Labelled images that are stored in one folder per label.

    Attributes:
        place: the parent folder of the label folders.
        rows: the (path, label) of each image, relative to the competition folder.
        beside: other folders with subfolders for the same labels, except test folders.
    """

    place: str
    rows: list[tuple[str, str]]
    beside: list[str]


def class_folders(
    images: Images, asked: Collection[str], named: str = "", *, by_name: bool = True
) -> Labelled | None:
    """Find a folder whose subfolders are named after labels, and return its images, or None.

    Args:
        asked: labels that occur in the sample submission, as values or columns.
        named: the folder to use, or "" to select the most likely one.
        by_name: accept a folder with "train" in its name even if none of its labels is in `asked`.

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
        # Such subfolders are training and test sets, not labels.
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
    """Join folder names for a message.

    >>> listed([".", "test"])
    'the folder itself, test/'
    """
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)

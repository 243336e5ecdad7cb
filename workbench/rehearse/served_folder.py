"""The other files of a competition folder, which the config does not name: which of them a session
may see.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pipeline.config.data_layout import ENDINGS
from pipeline.errors import DataError, reading

READABLE = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".md", ".yaml", ".yml", ".xml", ".html")
WORD = re.compile(r"[^\W_]+")
NUMBER = re.compile(r"\d+")  # within a word, too: "patient12" names row 12
ADVICE = "Correct the folder."


def files(folder: Path) -> Iterator[str]:
    """Yield the path of every file in a folder, relative to it, but those behind a dot."""
    for inside, _, names in _walk(folder):
        yield from (os.path.normpath(f"{inside}/{name}") for name in names)


def sources(folder: Path) -> tuple[Path, ...]:
    """Return the folders elsewhere to which links within a folder lead, without those inside of
    another of them.
    """
    root = folder.resolve()
    found: set[Path] = set()
    for inside, real, names in _walk(folder):
        found.add(real)
        for name in names:
            path = folder / inside / name
            if path.is_symlink():
                found.add(Path(os.path.realpath(path)).parent)
    outside = {path for path in found if not path.is_relative_to(root)}
    return tuple(sorted(path for path in outside if outside.isdisjoint(path.parents)))


def _walk(
    folder: Path, inside: str = ".", above: frozenset[Path] = frozenset()
) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield each folder's path below `folder`, its real path, and the names of its other entries.

    Links are followed, but not in a circle.
    """
    real = Path(os.path.realpath(folder / inside))
    if real in above:
        return
    folders: list[str] = []
    names: list[str] = []
    with reading(folder / inside, DataError, ADVICE), os.scandir(folder / inside) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                # For a link to itself `entry.is_dir` raises.
                below = entry.is_dir(follow_symlinks=False) or os.path.isdir(entry.path)  # noqa: PTH112
                (folders if below else names).append(entry.name)
    yield inside, real, sorted(names)
    for name in sorted(folders):
        yield from _walk(folder, os.path.normpath(f"{inside}/{name}"), above | {real})


def words(text: str) -> set[str]:
    """Return the words of a text as they are compared.

    A table that was read as numbers has 1 for 0001.

    >>> sorted(words("train_0001-B.png"))
    ['1', 'b', 'png', 'train']
    """
    return {word.lower().lstrip("0") or "0" for word in WORD.findall(text)}


def _named(text: str) -> set[str]:
    """Return the words of a text, and the numbers within them.

    >>> sorted(_named("patient012,yes"))
    ['12', 'patient012', 'yes']
    """
    return words(text) | {number.lstrip("0") or "0" for number in NUMBER.findall(text)}


def rarest_words(ids: Iterable[str], among: Iterable[str]) -> set[str]:
    """Return the word of each id that fewest others have, the longest of several.

    A file may write the rest of an id otherwise.

    >>> sorted(rarest_words(["train/cat_01.jpg"], ["train/cat_01.jpg", "train/cat_02.jpg"]))
    ['1']
    """
    counts = Counter(word for name in among for word in words(name))
    return {
        min(words(name), key=lambda word: (counts[word], -len(word), word), default=name)
        for name in ids
    }


def refusal(
    folder: Path, name: str, hidden: set[str], labels: Collection[str], most_lines: int
) -> str:
    """Return why a file may tell the label of a hidden row; "" if it cannot.

    Args:
        folder: of the competition.
        name: of a file in it that the config does not name.
        hidden: `rarest_words` of the ids of the hidden rows.
        labels: in small letters.
        most_lines: a text with as many may have one for each labelled row.
    """
    path = folder / name
    if not path.is_file():
        return "it is no file, or a link to none"
    if any(part.lower() in labels for part in Path(name).parts[:-1]):
        return "it is in a folder with the name of a label"
    if not hidden.isdisjoint(_named(name)):
        return "its name has a word of a hidden row's"
    if name.endswith(ENDINGS):
        return ""
    if path.suffix.lower() not in READABLE:
        return "nothing here can read whether it names a hidden row"
    lines = 0
    with reading(path, DataError, ADVICE), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not hidden.isdisjoint(_named(line)):
                return "it names a hidden row"
            lines += bool(line.strip())
    if lines >= most_lines:
        return "it may have a line for each labelled row"
    return ""

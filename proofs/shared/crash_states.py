"""What a disk may hold after a kill or a loss of power, at every moment of some writing.

A kill leaves a prefix of the changes; the last write may be partial. A loss of power may also undo
what no fsync made durable. POSIX permits that, and it is more than ext4 does:

- Each write to a file since its last fsync is there, missing, or zeros.
- Each change of a name since the last fsync of its folder is done or not. Each call is whole, and
  the changes of one name stay in order. The fsync of a file does not make its name durable.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Tree = Mapping[str, bytes | None]
TOP = 0


@dataclass(frozen=True)
class Link:
    """Names that change in one call: (folder, name, what it now names or None)."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Write:
    """Bytes written to a file; or the `size` that it was cut to."""

    file: int
    offset: int = 0
    content: bytes = b""
    size: int | None = None


@dataclass(frozen=True)
class Sync:
    """An fsync of a file or a folder."""

    node: int


Change = Link | Write | Sync


@dataclass
class Disk:
    """Files and folders by number; 0 is the top.

    Attributes:
        names: of each folder: name to number.
        contents: of each file.
    """

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {TOP: {}})
    contents: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Tree) -> "Disk":
        """Return a disk that holds a tree."""
        disk = cls()
        for path in sorted(tree):
            disk.add(path, tree[path])
        return disk

    def add(self, path: str, content: bytes | None) -> Link:
        """Make a file, or a folder for None, under a new number, and return the change."""
        folder, name = self.place(path)
        number = 1 + max([*self.names, *self.contents])
        if content is None:
            self.names[number] = {}
        else:
            self.contents[number] = content
        self.names[folder][name] = number
        return Link(((folder, name, number),))

    def place(self, path: str) -> tuple[int, str]:
        """Return the folder of a path and the name in it."""
        *folders, name = path.split("/")
        node = TOP
        for part in folders:
            node = self.names[node][part]
        return node, name

    def node(self, path: str) -> int | None:
        """Return what is at a path, or None."""
        if path == ".":
            return TOP
        folder, name = self.place(path)
        return self.names[folder].get(name)

    def apply(self, changes: Iterable[Change]) -> "Disk":
        """Return the disk after these changes."""
        names = {node: dict(entries) for node, entries in self.names.items()}
        contents = dict(self.contents)
        for change in changes:
            if isinstance(change, Link):
                for folder, name, node in change.changes:
                    if node is None:
                        names.setdefault(folder, {}).pop(name, None)
                    else:
                        names.setdefault(folder, {})[name] = node
            elif isinstance(change, Write):
                old = contents.get(change.file, b"")
                if change.size is not None:
                    contents[change.file] = old[: change.size].ljust(change.size, b"\0")
                else:
                    head, tail = old[: change.offset], old[change.offset + len(change.content) :]
                    contents[change.file] = head.ljust(change.offset, b"\0") + change.content + tail
        return Disk(names, contents)

    def tree(self, folders: frozenset[int]) -> dict[str, bytes | None]:
        """Return what can be reached from the top.

        Args:
            folders: numbers of folders, which may be empty.
        """
        found: dict[str, bytes | None] = {}

        def walk(node: int, path: str) -> None:
            for name, child in self.names.get(node, {}).items():
                if child in self.names or child in folders:
                    found[path + name] = None
                    walk(child, f"{path}{name}/")
                else:
                    found[path + name] = self.contents.get(child, b"")

        walk(TOP, "")
        return found


@dataclass
class Recording:
    """What was there before, what changed, in order, and which numbers are folders."""

    before: Disk
    changes: list[Change] = field(default_factory=list)
    folders: frozenset[int] = frozenset()

    def after(self) -> dict[str, bytes | None]:
        """Return the tree when everything is done and durable."""
        return self.before.apply(self.changes).tree(self.folders)


def read(top: Path) -> dict[str, bytes | None]:
    """Return the tree of a real folder."""
    return {
        path.relative_to(top).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


def write(tree: Tree, top: Path) -> None:
    """Write a tree into a new folder."""
    top.mkdir(parents=True)
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(content)


def states(
    recording: Recording, seed: int, randoms: int = 3
) -> Iterator[tuple[bool, dict[str, bytes | None]]]:
    """Yield (whether the work had returned, tree) for every crash, each pair once.

    Args:
        recording: of the work.
        seed: of what is drawn.
        randoms: random subsets at each moment, beside the systematic ones.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    seen = set()
    for issued, whole in _moments(recording.changes):
        lost_names, lost_data = _volatile(issued)
        done = len(issued) == len(recording.changes) and whole
        for kept in _names_kept(issued, lost_names, draw, randoms):
            for replaced in _data_kept(issued, lost_data, draw, randoms):
                chosen = (
                    replaced.get(place, change)
                    for place, change in enumerate(issued)
                    if place not in lost_names or place in kept
                )
                there = recording.before.apply(change for change in chosen if change is not None)
                tree = there.tree(recording.folders)
                key = (done, digest(tree))
                if key not in seen:
                    seen.add(key)
                    yield done, tree


def digest(tree: Tree) -> str:
    """Return a hash of a tree."""
    parts = hashlib.sha256()
    for path in sorted(tree):
        content = tree[path]
        parts.update(f"{path}\0{'folder' if content is None else len(content)}\0".encode())
        parts.update(content or b"")
    return parts.hexdigest()


def _moments(changes: Sequence[Change]) -> Iterator[tuple[list[Change], bool]]:
    """Yield each prefix, with some in which the last write is partial: (changes, whether whole)."""
    for count in range(len(changes) + 1):
        yield list(changes[:count]), True
        change = changes[count] if count < len(changes) else None
        if isinstance(change, Write) and len(change.content) > 1:
            size = len(change.content)
            for cut in sorted({1, size // 4, size // 2, size - 1} - {0}):
                part = Write(change.file, change.offset, change.content[:cut])
                yield [*changes[:count], part], False


def _volatile(issued: Sequence[Change]) -> tuple[list[int], dict[int, list[int]]]:
    """Return what no later fsync made durable: places of name changes, and of writes by file."""
    names, data = list[int](), dict[int, list[int]]()
    synced: set[int] = set()
    for place in range(len(issued) - 1, -1, -1):
        change = issued[place]
        if isinstance(change, Sync):
            synced.add(change.node)
        elif isinstance(change, Link) and not {folder for folder, _, _ in change.changes} <= synced:
            names.insert(0, place)
        elif isinstance(change, Write) and change.file not in synced:
            data.setdefault(change.file, []).insert(0, place)
    return names, data


def _names_kept(
    issued: Sequence[Change], lost: Sequence[int], draw: random.Random, randoms: int
) -> list[set[int]]:
    """Return choices of volatile name changes that happened: each prefix, all but one, only one,
    and random ones.
    """
    touched = {
        place: {(folder, name) for folder, name, _ in change.changes}
        for place in lost
        if isinstance(change := issued[place], Link)
    }

    def closed(wanted: Iterable[int]) -> set[int]:
        """Add what must have come before: an earlier change of the same name."""
        kept = set(wanted)
        for place in reversed(lost):
            if place not in kept and any(
                touched[place] & touched[later] for later in kept if later > place
            ):
                kept.add(place)
        return kept

    choices = [set(lost[:count]) for count in range(len(lost), -1, -1)]
    for place in lost:
        dependent = {place}
        for later in lost:
            if later > place and any(touched[later] & touched[known] for known in dependent):
                dependent.add(later)
        choices += [closed({place}), set(lost) - dependent]
    choices += [
        closed(place for place in lost if draw.random() < 0.5)
        for _ in range(randoms if lost else 0)
    ]
    return [set(choice) for choice in {frozenset(choice) for choice in choices}]


def _data_kept(
    issued: Sequence[Change], lost: Mapping[int, list[int]], draw: random.Random, randoms: int
) -> list[dict[int, Change | None]]:
    """Return choices of what became of the volatile writes, by place: None for a lost one; those
    that are absent happened.
    """

    def zeros(place: int) -> Change:
        change = issued[place]
        if not isinstance(change, Write) or change.size is not None:
            return change
        return Write(change.file, change.offset, bytes(len(change.content)))

    everything = [place for places in lost.values() for place in places]
    choices: list[dict[int, Change | None]] = [{}]
    if everything:
        choices += [dict.fromkeys(everything), {place: zeros(place) for place in everything}]
        for places in lost.values():
            choices += [{places[-1]: None}, {places[0]: zeros(places[0])}, dict.fromkeys(places)]
        for _ in range(randoms):
            fates = {place: draw.randrange(3) for place in everything}
            choices.append(
                {
                    place: None if fate == 1 else zeros(place)
                    for place, fate in fates.items()
                    if fate
                }
            )
    return choices

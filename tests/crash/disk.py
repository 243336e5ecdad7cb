"""The possible states of a disk after a kill or a power failure, at every moment of some writing.

`record` notes each change that a piece of code makes below a folder, and `states` yields the trees
that a crash may leave. A kill leaves a prefix of the changes; the last write may be partial. A
power failure may also undo changes without an fsync. POSIX permits the following, which is more
than ext4 does:

- Each write to a file since its last fsync is complete, missing, or zeros.
- Each change of a name since the last fsync of its folder is done or not. Each call is atomic, and
  changes of one name stay in order. The fsync of a file does not make its name durable.
"""

import builtins
import io
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

Tree = Mapping[str, bytes | None]  # by path: the content of a file; None: a folder
TOP = 0


@dataclass(frozen=True)
class Link:
    """Names that change in one call: (folder, name, what it now names or None)."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Write:
    """Bytes written to a file; or the `size` to which it was truncated."""

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
    """Files and folders by number, of which 0 is the top: names in each folder, bytes of files."""

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {TOP: {}})
    contents: dict[int, bytes] = field(default_factory=dict)

    def add(self, path: str, content: bytes | None) -> Link:
        """Make a file, or a folder for None, and return the change."""
        folder, name = self.place(path)
        number = 1 + max([*self.names, *self.contents])
        self.names[folder][name] = number
        if content is None:
            self.names[number] = {}
        else:
            self.contents[number] = content
        return Link(((folder, name, number),))

    def place(self, path: str) -> tuple[int, str]:
        """Return the folder of a path and the name in it."""
        *folders, name = path.split("/")
        node = TOP
        for part in folders:
            node = self.names[node][part]
        return node, name

    def node(self, path: str) -> int | None:
        """Return the number at a path, or None."""
        folder, name = self.place(path)
        return TOP if path == "." else self.names[folder].get(name)

    def apply(self, changes: Iterable[Change]) -> "Disk":
        """Make these changes. A folder keeps its number when its name goes."""
        for change in changes:
            if isinstance(change, Link):
                for folder, name, node in change.changes:
                    entries = self.names.setdefault(folder, {})
                    entries.pop(name, None)
                    if node is not None:
                        entries[name] = node
            elif isinstance(change, Write):
                old, begin = self.contents.get(change.file, b""), change.offset
                if change.size is not None:
                    new = old[: change.size].ljust(change.size, b"\0")
                else:
                    tail = old[begin + len(change.content) :]
                    new = old[:begin].ljust(begin, b"\0") + change.content + tail
                self.contents[change.file] = new
        return self

    def tree(self, node: int = TOP, above: str = "") -> dict[str, bytes | None]:
        """Return all that can be reached from a folder."""
        found: dict[str, bytes | None] = {}
        for name, child in self.names[node].items():
            path = above + name
            found[path] = None if child in self.names else self.contents.get(child, b"")
            if child in self.names:
                found |= self.tree(child, f"{path}/")
        return found


@dataclass
class Recording:
    """The disk before, and its changes, in order."""

    before: Disk
    changes: list[Change]

    def after(self, changes: Iterable[Change]) -> dict[str, bytes | None]:
        """Return the tree with some of the changes."""
        return deepcopy(self.before).apply(changes).tree()


def read(top: Path) -> dict[str, bytes | None]:
    """Return the tree of a real folder."""
    return {
        path.relative_to(top).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


def write(tree: Tree, top: Path) -> Path:
    """Write a tree into a new folder."""
    top.mkdir(parents=True)
    for path in sorted(tree):
        content = tree[path]
        (top / path).mkdir() if content is None else (top / path).write_bytes(content)
    return top


def record(top: Path, work: Callable[[], object]) -> Recording:
    """Run `work` and return each change that it made below `top`.

    Raises:
        RuntimeError: if the changes do not explain the disk: a call was not watched.
    """
    before = Disk()
    for path, content in read(top).items():
        before.add(path, content)
    recorder = Recorder(top.resolve(), deepcopy(before))
    with pytest.MonkeyPatch.context() as patch:
        for name in WATCHED:
            patch.setattr(os, name, partial(getattr(recorder, f"_{name}"), getattr(os, name)))
        opened = partial(recorder._open_file, io.open)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        work()
    # A power failure may bring back a folder that was created and removed.
    before.names |= {node: {} for node in recorder.disk.names if node not in before.names}
    found = Recording(before, recorder.changes)
    if found.after(found.changes) != read(top):
        raise RuntimeError("The recorded changes do not explain the disk")
    return found


class Recorder:
    """Wrappers of Python's file functions, each of which gets the real one first."""

    def __init__(self, top: Path, disk: Disk) -> None:
        self.top, self.disk = str(top), disk
        self.changes: list[Change] = []

    def note(self, change: Change) -> None:
        """Record a change that has happened."""
        self.changes.append(change)
        self.disk.apply([change])

    def path(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the path of a name or an open file, relative to the top; None outside of it."""
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        elif dir_fd is not None:
            path = Path(f"/proc/self/fd/{dir_fd}").readlink() / path
        # The folder may lie behind a link; the name need not exist.
        folder, name = os.path.split(os.path.abspath(os.fspath(path)))  # noqa: PTH100
        whole = f"{os.path.realpath(folder)}/{name}"
        if whole == self.top:
            return "."
        return whole[len(self.top) + 1 :] if whole.startswith(f"{self.top}/") else None

    def made(self, path: str | None, content: bytes | None, *, emptied: bool = False) -> int | None:
        """Record a call that may create a name or empty a file, and return the number."""
        if path is None:
            return None
        node = self.disk.node(path)
        if node is None:
            self.changes.append(self.disk.add(path, content))
        elif emptied:
            self.note(Write(node, size=0))
        return self.disk.node(path)

    def _mkdir(self, real: Any, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        self.made(self.path(path, dir_fd), None)

    def _fsync(self, real: Any, file: Any) -> None:
        real(file)
        path = self.path(file if isinstance(file, int) else file.fileno())
        if path and (node := self.disk.node(path)) is not None:
            self.note(Sync(node))

    def _unlink(self, real: Any, path: Any, *, dir_fd: Any = None) -> None:
        below = self.path(path, dir_fd)  # before it is gone
        real(path, dir_fd=dir_fd)
        if below is not None:
            self.note(Link(((*self.disk.place(below), None),)))

    _remove = _rmdir = _unlink

    def _rename(self, real: Any, old: Any, new: Any, **folders: Any) -> None:
        source = self.path(old, folders.get("src_dir_fd"))
        target = self.path(new, folders.get("dst_dir_fd"))
        real(old, new, **folders)
        if source is not None and target is not None:
            node, (before, after) = self.disk.node(source), map(self.disk.place, (source, target))
            self.note(Link(((*before, None), (*after, node))))

    _replace = _rename

    def _open_file(self, real: Any, file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        path = self.path(file) if mode == "wb" else None
        if path is None:
            return real(file, mode, *rest, **more)
        raw = Raw(file, "w")
        raw.recorder, raw.node = self, self.made(path, b"", emptied=True)
        return io.BufferedWriter(raw)


class Raw(io.FileIO):
    """A file whose writes are recorded."""

    recorder: Recorder
    node: Any

    def write(self, content: Any) -> int:
        """Write the content, and record it."""
        offset, count = self.tell(), super().write(content)
        self.recorder.note(Write(self.node, offset, bytes(content)[:count]))
        return count


WATCHED = ("mkdir", "fsync", "unlink", "remove", "rmdir", "rename", "replace")


def states(
    recording: Recording, seed: int, randoms: int = 3
) -> Iterator[tuple[bool, dict[str, bytes | None]]]:
    """Yield (whether the work had returned, tree) for every crash, each pair once.

    Args:
        randoms: how many random subsets there are at each moment, beside the systematic ones.
    """
    draw, seen = random.Random(seed), set()  # noqa: S311 - no secret
    for issued, whole in moments(recording.changes):
        names, data = volatile(issued)
        done = len(issued) == len(recording.changes) and whole
        kept = names_kept(issued, names, draw, randoms)
        for there, replaced in product(kept, data_kept(issued, data, draw, randoms)):
            chosen = (
                replaced.get(place, change)
                for place, change in enumerate(issued)
                if place not in names or place in there
            )
            tree = recording.after(change for change in chosen if change is not None)
            key = done, hash(tuple(sorted(tree.items())))
            if key not in seen:
                seen.add(key)
                yield done, tree


def moments(changes: Sequence[Change]) -> Iterator[tuple[list[Change], bool]]:
    """Yield each prefix, with some in which the last write is partial: (changes, whether whole)."""
    for count in range(len(changes) + 1):
        yield list(changes[:count]), True
        change = changes[count] if count < len(changes) else None
        if isinstance(change, Write) and (size := len(change.content)) > 1:
            for cut in sorted({1, size // 4, size // 2, size - 1} - {0}):
                part = Write(change.file, change.offset, change.content[:cut])
                yield [*changes[:count], part], False


def volatile(issued: Sequence[Change]) -> tuple[list[int], dict[int, list[int]]]:
    """Return the changes that no later fsync made durable: places of names, and writes by file."""
    names, data, synced = list[int](), dict[int, list[int]](), set[int]()
    for place in range(len(issued) - 1, -1, -1):
        change = issued[place]
        if isinstance(change, Sync):
            synced.add(change.node)
        elif isinstance(change, Link) and not {folder for folder, _, _ in change.changes} <= synced:
            names.insert(0, place)
        elif isinstance(change, Write) and change.file not in synced:
            data.setdefault(change.file, []).insert(0, place)
    return names, data


def names_kept(
    issued: Sequence[Change], lost: Sequence[int], draw: random.Random, randoms: int
) -> set[frozenset[int]]:
    """Return choices of volatile name changes: each prefix, all but one, only one, and random."""
    touched = {
        place: {(folder, name) for folder, name, _ in change.changes}
        for place in lost
        if isinstance(change := issued[place], Link)
    }

    def closed(wanted: Iterable[int], order: Sequence[int]) -> frozenset[int]:
        """Add to some changes what touches a name of one that comes before it in the order."""
        found = set(wanted)
        for index, place in enumerate(order):
            if any(touched[place] & touched[other] for other in order[:index] if other in found):
                found.add(place)
        return frozenset(found)

    backwards = lost[::-1]  # of one name, what happened earlier is done before what is later
    choices = {frozenset(lost[:count]) for count in range(len(lost) + 1)}
    for place in lost:
        choices |= {closed({place}, backwards), frozenset(lost) - closed({place}, lost)}
    for _ in range(randoms if lost else 0):
        choices.add(closed((place for place in lost if draw.random() < 0.5), backwards))
    return choices


def data_kept(
    issued: Sequence[Change], lost: Mapping[int, list[int]], draw: random.Random, randoms: int
) -> list[dict[int, Change | None]]:
    """Return choices of the fate of volatile writes, by place: None if lost, absent if done."""

    def zeros(place: int) -> Change:
        change = issued[place]
        if not isinstance(change, Write) or change.size is not None:
            return change
        return Write(change.file, change.offset, bytes(len(change.content)))

    everything = [place for places in lost.values() for place in places]
    if not everything:
        return [{}]
    choices: list[dict[int, Change | None]] = [
        {}, dict.fromkeys(everything), {place: zeros(place) for place in everything}
    ]  # fmt: skip
    for places in lost.values():
        choices += [{places[-1]: None}, {places[0]: zeros(places[0])}, dict.fromkeys(places)]
    for _ in range(randoms):
        fates = [(place, draw.randrange(3)) for place in everything]
        choices.append({place: zeros(place) if fate > 1 else None for place, fate in fates if fate})
    return choices

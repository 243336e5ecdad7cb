"""Runs a piece of code and records each change that it makes below a folder.

The recorder replaces Python's file functions. At the end, the recorded changes must give what is on
the disk, so a call that is not watched does not go unnoticed.
"""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proofs.shared.crash_states import Change, Disk, Link, Recording, Sync, Write, read


def record(top: Path, work: Callable[[], object]) -> Recording:
    """Run `work` and return each change that it made below `top`.

    Raises:
        RuntimeError: if the changes do not give what is on the disk.
    """
    top = top.resolve()
    before = Disk.of(read(top))
    recorder = _Recorder(top, before.apply(()))
    with recorder.watching():
        work()
    found = Recording(before, recorder.changes, frozenset(recorder.disk.names))
    if found.after() != read(top):
        raise RuntimeError(
            "The recorded changes do not give what is on the disk: "
            "proofs/shared/disk_recorder.py does not watch every call."
        )
    return found


class _Recorder:
    """Replaces Python's file functions, for paths below `top`."""

    def __init__(self, top: Path, disk: Disk) -> None:
        self.top, self.disk = str(top), disk
        self.changes: list[Change] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Replace functions of `os`, and `io.open`, while the context lasts."""
        kept = {name: getattr(os, name) for name in _WATCHED}
        opened = io.open
        for name in _WATCHED:
            setattr(os, name, getattr(self, f"_{name}")(kept[name]))
        io.open = builtins.open = self._open_file(opened)
        try:
            yield
        finally:
            io.open = builtins.open = opened
            for name, function in kept.items():
                setattr(os, name, function)

    def note(self, change: Change) -> None:
        """Record a change that has happened."""
        self.changes.append(change)
        self.disk = self.disk.apply([change])

    def path(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the path of a name or an open file, relative to the top; None outside of it."""
        if isinstance(path, int):
            path = _opened(path)
        elif dir_fd is not None:
            path = _opened(dir_fd) / path
        whole = os.path.abspath(os.fspath(path))  # noqa: PTH100 - Path.resolve would ask the system
        # The folder itself may lie behind a link; its name may not exist yet.
        folder, name = os.path.split(whole)
        whole = f"{os.path.realpath(folder)}/{name}"
        if whole == self.top:
            return "."
        return whole[len(self.top) + 1 :] if whole.startswith(f"{self.top}/") else None

    def made(self, path: str | None, content: bytes | None, *, emptied: bool) -> int | None:
        """Record a call that may make a name or empty a file, and return the number."""
        if path is None:
            return None
        node = self.disk.node(path)
        if node is None:
            self.changes.append(self.disk.add(path, content))
            node = self.disk.node(path)
        elif emptied:
            self.note(Write(node, size=0))
        return node

    def _mkdir(self, real: Any) -> Any:
        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            real(path, mode, dir_fd=dir_fd)
            self.made(self.path(path, dir_fd), None, emptied=False)

        return mkdir

    def _open(self, real: Any) -> Any:
        def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            number: int = real(path, flags, mode, dir_fd=dir_fd)
            if flags & (os.O_CREAT | os.O_TRUNC):
                self.made(self.path(path, dir_fd), b"", emptied=bool(flags & os.O_TRUNC))
            return number

        return open

    def _write(self, real: Any) -> Any:
        def write(number: int, content: Any) -> int:
            path = self.path(number)
            offset = os.lseek(number, 0, os.SEEK_CUR) if path else 0
            count: int = real(number, content)
            node = self.disk.node(path) if path else None
            if node is not None:
                self.note(Write(node, offset, bytes(content)[:count]))
            return count

        return write

    def _fsync(self, real: Any) -> Any:
        def fsync(file: Any) -> None:
            real(file)
            path = self.path(file if isinstance(file, int) else file.fileno())
            node = self.disk.node(path) if path else None
            if node is not None:
                self.note(Sync(node))

        return fsync

    def _remover(self, real: Any) -> Any:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            below = self.path(path, dir_fd)  # before it is gone
            real(path, dir_fd=dir_fd)
            if below is not None:
                self.note(Link(((*self.disk.place(below), None),)))

        return remove

    _unlink = _remove = _rmdir = _remover

    def _mover(self, real: Any) -> Any:
        def rename(
            old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
        ) -> None:
            source, target = self.path(old, src_dir_fd), self.path(new, dst_dir_fd)
            real(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            if source is not None and target is not None:
                node = self.disk.node(source)
                self.note(
                    Link(((*self.disk.place(source), None), (*self.disk.place(target), node)))
                )

        return rename

    _rename = _replace = _mover

    def _open_file(self, real: Any) -> Any:
        recorder = self

        class Raw(io.FileIO):
            node: int

            def write(self, content: Any) -> int:
                offset = self.tell()
                count = super().write(content)
                recorder.note(Write(self.node, offset, bytes(content)[:count]))
                return count

            def truncate(self, size: int | None = None) -> int:
                cut = super().truncate(size)
                recorder.note(Write(self.node, size=cut))
                return cut

        def opened(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: Any = None,
            *rest: Any,
            **more: Any,
        ) -> Any:
            writes = not isinstance(file, int) and set(mode) & set("wax+")
            path = recorder.path(file) if writes else None
            if path is None:
                return real(file, mode, buffering, encoding, *rest, **more)
            raw = Raw(file, mode.replace("b", "").replace("t", ""))
            node = recorder.made(path, b"", emptied="w" in mode)
            assert node is not None  # noqa: S101 - for mypy
            raw.node = node
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, *rest, **more)

        return opened


_WATCHED = ("mkdir", "open", "write", "fsync", "unlink", "remove", "rmdir", "rename", "replace")


def _opened(number: int) -> Path:
    return Path(f"/proc/self/fd/{number}").readlink()

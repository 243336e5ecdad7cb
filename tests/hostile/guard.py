"""A tree of folders around the one that a command is given, which shows what was written outside of
it, and what code ran.

The guard looks twice. It reads the tree before and after, and the interpreter's audit events name
each file that is opened for writing, each program, and each class that a pickle asks for.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Event: of each path that is changed the place among its arguments, and that of the folder it is
# relative to, where there is one.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
}
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
_active: list["Guard"] = []


class Harm(AssertionError):
    """Something was written outside of the given folder, or code ran."""


class Guard:
    """What watches.

    Args:
        folder: gets the tree. A payload that climbs, or names an absolute path, ends in it.
        allowed: folders that may be written, too, such as a server's own.
    """

    def __init__(self, folder: Path, *allowed: Path) -> None:
        self.top = folder.resolve()
        self.marker = self.top / "marker"  # what the payloads try to make
        self._given, self._scratch = self.top / "a" / "b" / "given", self.top / "scratch"
        self._inside = [str(path.resolve()) for path in (*allowed, self._given, self._scratch)]
        self._events: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[Path]:
        """Give a fresh folder; raise `Harm` if anything happened outside of it."""
        home, here = self.top / "home", self.top / "cwd"
        shutil.rmtree(self.top, ignore_errors=True)
        for place in (self._given, self._scratch, home, here):
            place.mkdir(parents=True)
        for place in (self.top, self.top / "a", self.top / "a" / "b", home, here):
            for name in ("evil", "x", "x.npy", "weights.npz", ".bashrc"):
                (place / name).write_text("as it was")  # what is overwritten is seen, too
        before, self._events = self._tree(), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(home))
            patch.setenv("TMPDIR", str(self._scratch))
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.chdir(here)
            _active.append(self)
            try:
                yield self._given
            finally:
                _active.remove(self)
        after = self._tree()
        self._events += [
            f"{path} was changed"
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        ]
        if self._events:
            raise Harm("; ".join(self._events[:5]))

    def _tree(self) -> dict[str, bytes | None]:
        """Return what each path of the tree holds, except where a command may write."""
        found: dict[str, bytes | None] = {}
        for folder, folders, files in os.walk(self.top):
            folders[:] = [name for name in folders if not self._allows(f"{folder}/{name}")]
            found |= dict.fromkeys((f"{folder}/{name}" for name in folders), None)
            found |= {f"{folder}/{name}": Path(folder, name).read_bytes() for name in files}
        return found

    def _allows(self, path: str) -> bool:
        return any(path == place or path.startswith(f"{place}/") for place in self._inside)

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event if it should not be."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES:
                self._wrote(event, path)
        elif event in _CHANGES:
            for place, folder in _CHANGES[event]:
                self._wrote(event, arguments[place], -1 if folder is None else arguments[folder])
        elif event == "pickle.find_class":
            self._events.append(f"a pickle asked for {arguments[0]}.{arguments[1]}")
        elif event in _PROGRAMS and Path(os.fsdecode(arguments[0])).name != "git":
            self._events.append(f"{event} {arguments[0]!r}")  # git: for the commit of a run

    def _wrote(self, event: str, path: Any, folder: int = -1) -> None:
        if isinstance(path, int):
            return  # a file that is open already
        base = Path(f"/proc/self/fd/{folder}").readlink() if folder >= 0 else Path.cwd()
        whole = os.path.abspath(base / os.fsdecode(path))  # noqa: PTH100 - as text
        # A link inside the folder may lead out of it; the name itself may not exist yet.
        parent, name = os.path.split(whole)
        whole = f"{os.path.realpath(parent)}/{name}"
        if event == "open" and os.path.islink(whole):  # noqa: PTH114
            whole = os.path.realpath(whole)
        if not self._allows(whole) and not whole.startswith(("/dev/null", "/proc/self/")):
            self._events.append(f"{event} {whole}")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for guard in _active:
        guard.saw(event, arguments)


sys.addaudithook(_hook)  # stays as long as the process; without an active guard it does nothing

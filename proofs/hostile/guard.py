"""A tree of folders around the one that a command is given, which shows what was written outside of
it, and what code ran.

The guard looks twice. It reads the tree before and after, and the interpreter's audit events name
each file that is opened for writing, each program, and each class that a pickle asks for.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MARKER = "marker"
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
_ALLOWED_PROGRAMS = ("git",)  # whose commit it is
_active: "list[Guard]" = []
_installed: list[bool] = []


class Guard:
    """What watches. `top`: its tree; a payload that climbs, or names an absolute path, ends in it.
    `given`: what a command may write to.
    """

    def __init__(self, folder: Path, allowed: Sequence[Path] = ()) -> None:
        """Make the tree in an empty folder. `allowed`: that may be written, too, such as a server's
        own.
        """
        self.top = folder.resolve()
        self.given, self.home, self.scratch = (
            self.top / "a" / "b" / "given",
            self.top / "home",
            self.top / "scratch",
        )
        self.marker = self.top / MARKER
        self.events: list[str] = []
        self._allowed = [str(path.resolve()) for path in (*allowed, self.scratch)]
        for place in (self.given, self.home, self.scratch, self.top / "cwd"):
            place.mkdir(parents=True)
        for place in (self.top, self.top / "a", self.top / "a" / "b", self.home, self.top / "cwd"):
            for name in (
                "evil",
                "x",
                "x.npy",
                "weights.npz",
                ".bashrc",
            ):  # what is overwritten is seen, too
                (place / name).write_text("as it was")
        if not _installed:
            sys.addaudithook(
                _hook
            )  # it stays as long as the process does; without an active guard it does nothing
            _installed.append(True)

    @contextmanager
    def watching(self) -> Iterator[Path]:
        """Give the folder, fresh, and watch; `events` holds what happened outside of it."""
        shutil.rmtree(self.given, ignore_errors=True)
        self.given.mkdir()
        self.events = []
        before, kept, here = (
            self._tree(),
            {name: os.environ.get(name) for name in ("HOME", "TMPDIR")},
            Path.cwd(),
        )
        bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        os.environ.update(HOME=str(self.home), TMPDIR=str(self.scratch))
        os.chdir(self.top / "cwd")
        _active.append(self)
        try:
            yield self.given
        finally:
            _active.remove(self)
            os.chdir(here)
            sys.dont_write_bytecode = bytecode
            for name, was in kept.items():
                os.environ.pop(name, None)
                if was is not None:
                    os.environ[name] = was
            after = self._tree()
            changed = sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            self.events += [
                f"{name} was {'changed' if name in before and name in after else 'made or removed'}"
                for name in changed
            ]
            for name in changed:  # so that the next case begins with the same tree
                path = self.top / name
                if name not in before:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(
                        missing_ok=True
                    )
                elif before[name] != "folder":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("as it was")

    def _tree(self) -> dict[str, str]:
        """Return what each path of the tree is, except where a command may write."""
        found = {}
        for folder, folders, files in os.walk(self.top):
            place = Path(folder)
            folders[:] = [name for name in folders if not self._inside(str(place / name))]
            for name in folders:
                found[(place / name).relative_to(self.top).as_posix()] = (
                    "link" if (place / name).is_symlink() else "folder"
                )
            for name in files:
                path = place / name
                content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
                found[path.relative_to(self.top).as_posix()] = hashlib.sha256(content).hexdigest()
        return found

    def _inside(self, path: str) -> bool:
        return any(
            path == place or path.startswith(f"{place}/")
            for place in (str(self.given), *self._allowed)
        )

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
            self.events.append(f"a pickle asked for {arguments[0]}.{arguments[1]}")
        elif event in _PROGRAMS and not (
            event == "subprocess.Popen" and Path(str(arguments[0])).name in _ALLOWED_PROGRAMS
        ):
            self.events.append(f"{event} {arguments[0]!r}")

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
        if not self._inside(whole) and not whole.startswith(("/dev/null", "/proc/self/")):
            self.events.append(f"{event} {whole}")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for guard in _active:
        guard.saw(event, arguments)

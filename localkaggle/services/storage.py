"""Storage: files behind signed addresses, and the redirect that leads to one of them."""

import itertools
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from localkaggle.facts import Facts
from localkaggle.services.protocol import make, page


class Redirect(Exception):
    """302 to a stored object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


@dataclass
class Storage:
    """Objects by key: (name, path). New ones get generated names below `folder`."""

    folder: Path
    objects: dict[str, tuple[str, Path]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fresh(self) -> Path:
        """Return a path that nothing uses yet."""
        with self._lock:
            path = self.folder / "objects" / f"{next(self._numbers):06d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def share(self, name: str, path: Path) -> str:
        """Return the key under which the file can be downloaded as `name`."""
        with self._lock:
            key = str(next(self._numbers))
            self.objects[key] = (name, path)
        return key


def keep(output: Path, facts: Facts) -> None:
    """Make the output of a session that has ended what this Kaggle keeps of it."""
    for name in file_names(output):
        path = output / name
        hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
        lost = (hidden and not facts.hidden_files) or not (facts.empty_files or path.stat().st_size)
        if lost and not path.is_symlink():
            path.unlink()
        elif name in facts.rewritten:
            with path.open("ab") as file:
                file.write(b"\n")


def file_names(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it and sorted."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def list_files(
    folder: Path, kind: type, request: Any, most: int = 100, *, size: str = "total_bytes"
) -> tuple[list[Any], Any]:
    """Return the page of a folder's files that a request asks for, and the token of the next.

    Args:
        folder: of the files.
        kind: class of a file in the answer.
        request: has `page_token` and `page_size`.
        most: how large a page may be.
        size: the field of `kind` for the number of bytes.
    """
    names, token = page(file_names(folder), request.page_token, request.page_size, most)
    date = datetime(2026, 1, 1)
    return [
        make(kind, name=name, creation_date=date, **{size: (folder / name).stat().st_size})
        for name in names
    ], token


def folder_date(folder: Path) -> datetime | None:
    """Return when a folder was last written to, as kagglesdk takes it (UTC); None without one."""
    try:
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC).replace(tzinfo=None)
    except FileNotFoundError:
        return None

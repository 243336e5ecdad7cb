"""Storage: files behind signed addresses, and the redirect that leads to one of them."""

import base64
import hashlib
import itertools
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from localkaggle.facts import Facts
from localkaggle.services.protocol import ApiError, make, page


class Redirect(Exception):
    """302 to a stored object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class AddressExpired(Exception):
    """400 of the storage: the signed address was valid until now."""


@dataclass(frozen=True)
class Stored:
    """A file behind a signed address, which is valid until this time of the monotonic clock."""

    name: str
    path: Path
    until: float


@dataclass
class Storage:
    """Objects by key. New ones get generated names below `folder`.

    A key is what signs an address: whoever does not have it cannot guess it.

    Attributes:
        address_seconds: life of an address; 0: it does not end.
    """

    folder: Path
    address_seconds: float = 0.0
    objects: dict[str, Stored] = field(default_factory=dict)
    _hashes: dict[tuple[Path, int, int], str] = field(default_factory=dict)
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
        key, life = secrets.token_urlsafe(32), self.address_seconds or float("inf")
        self.objects[key] = Stored(name, path, time.monotonic() + life)
        return key

    def find(self, key: str) -> Path:
        """Return the file behind an address.

        Raises:
            ApiError: 404 without such a key, or file.
            AddressExpired: if the address has ended.
        """
        stored = self.objects.get(key)
        if stored is None or not stored.path.is_file():
            raise ApiError(404, "Not found")
        if time.monotonic() >= stored.until:
            raise AddressExpired
        return stored.path

    def expire(self) -> None:
        """End all addresses that were given until now."""
        self.objects = {
            key: Stored(stored.name, stored.path, 0.0) for key, stored in self.objects.items()
        }

    def md5(self, path: Path) -> str:
        """Return the MD5 of a file in Base64; it is read once, for as long as it stays the same."""
        stat = path.stat()
        known = (path, stat.st_mtime_ns, stat.st_size)
        if known not in self._hashes:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
            self._hashes[known] = base64.b64encode(digest.digest()).decode()
        return self._hashes[known]


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


def list_files(folder: Path, kind: type, request: Any, most: int = 100) -> tuple[list[Any], Any]:
    """Return the page of a folder's files that a request asks for, and the token of the next.

    Args:
        folder: of the files.
        kind: class of a file in the answer.
        request: has `page_token` and `page_size`.
        most: how large a page may be.
    """
    names, token = page(file_names(folder), request.page_token, request.page_size, most)
    date = datetime(2026, 1, 1)
    return [
        make(kind, name=name, creation_date=date, total_bytes=(folder / name).stat().st_size)
        for name in names
    ], token

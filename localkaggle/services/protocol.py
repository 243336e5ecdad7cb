"""Protocol: what the services of the local Kaggle share: refusals, redirects, stored bytes, names
that are safe.

Requests and answers are kagglesdk's own classes, so that a field which the real client sends or
reads cannot be forgotten.
"""

import itertools
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

BASE = "http://localhost"  # where the client believes Kaggle is; it comes here because this is its proxy
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{1,99}")
FILE = re.compile(r"[^\x00-\x1f/\\\ud800-\udfff]{1,200}")


class Fault(Exception):
    """An HTTP error with Kaggle's JSON body."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code, self.message = code, message


class Redirect(Exception):
    """302 to a stored object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def slug(title: str) -> str:
    """Return the slug that Kaggle makes from a title.

    >>> slug("Digits Train Tpu")
    'digits-train-tpu'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def require(pattern: re.Pattern[str], name: str, what: str) -> str:
    """Return the name, which came over the network, if it may become part of a path; else 400."""
    if (
        not pattern.fullmatch(name)
        or name in (".", "..")
        or len(name.encode(errors="replace")) > 250
    ):
        raise Fault(400, f"Invalid {what}: {name[:80]!r}")
    return name


@dataclass
class Storage:
    """Objects behind signed addresses: {key: (name, path)}. Kept on the disk below `folder`, under
    generated names.
    """

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
        """Return the key under which the file can be fetched as `name`."""
        with self._lock:
            key = f"{next(self._numbers)}"
            self.objects[key] = (name, path)
        return key


def page(items: list[str], token: str, size: int, most: int = 100) -> tuple[list[str], str]:
    """Return one page of names and the token of the next; the token is the place in the list.

    >>> page(["a", "b", "c"], "", 2)
    (['a', 'b'], '2')
    >>> page(["a", "b", "c"], "2", 2)
    (['c'], '')
    """
    if token and not re.fullmatch(r"[0-9]{1,9}", token):
        raise Fault(400, f"Invalid page token: {token[:40]!r}")
    start, count = int(token or 0), min(max(size or 20, 1), most)
    following = start + count
    return items[start:following], str(following) if following < len(items) else ""

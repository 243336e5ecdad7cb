"""Protocol: what the services share: names that are checked, pages, and files in a folder.

A service has a method for each call. It takes a request in kagglesdk's own class, which knows the
fields of the real client, and a user; it returns the JSON object of the answer, or the path of a
file that the answer leads to. A refusal is an exception of werkzeug.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from werkzeug.exceptions import BadRequest, NotFound

T = TypeVar("T")
Json = dict[str, Any]

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{1,99}")
FILE = re.compile(r"[^\x00-\x1f/\\\ud800-\udfff]{1,200}")
DATE = "2026-01-01T00:00:00Z"  # of every file


def slug(title: str) -> str:
    """Return the slug that Kaggle makes from a title.

    >>> slug("Digits Train Tpu")
    'digits-train-tpu'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def require(pattern: re.Pattern[str], name: str, what: str) -> str:
    """Return a name from the network if it is safe as a part of a path.

    Raises:
        BadRequest: if it is not.
    """
    if not pattern.fullmatch(name) or name in (".", ".."):
        raise BadRequest(f"Invalid {what}: {name[:80]!r}")
    return name


def page(items: Sequence[T], request: Any, most: int = 100) -> tuple[list[T], str | None]:
    """Return the page that a request asks for, and the token of the next page: its place.

    Args:
        items: of all pages.
        request: has `page_token`, without which the first page is meant, and `page_size`, which is
            20 if it says none.
        most: how large a page may be.
    """
    start = int(request.page_token or 0)
    end = start + min(max(request.page_size or 20, 1), most)
    return list(items[start:end]), str(end) if end < len(items) else None


def file_names(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it and sorted."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def file_in(folder: Path, name: str | None) -> Path:
    """Return the path of a file below a folder.

    Raises:
        NotFound: if it has no such file, or the name leads to it in another way.
    """
    if name not in file_names(folder):
        raise NotFound("Not found")
    return folder / name


def listed(folder: Path, names: Sequence[str], size: str = "totalBytes") -> list[Json]:
    """Return what lists say of these files in a folder; `size`: the field that has the bytes."""
    return [
        {"name": name, "creationDate": DATE, size: (folder / name).stat().st_size} for name in names
    ]


def unused_folder(parent: Path, handle: str, number: int) -> Path:
    """Return a new folder for a version; one that was deleted may have had the same number."""
    name = handle.replace("/", "--")
    folders = (parent / f"{name}--v{n}" for n in itertools.count(number))
    return next(folder for folder in folders if not folder.exists())

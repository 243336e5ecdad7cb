"""Name checks, pagination and file lists, which all services use.

A service has one method for each API call. The arguments of the method are a user and a kagglesdk
request, which has the same fields as a request from the real client. The method returns the
response as a JSON object, or the path of the file to which the client is redirected. It raises a
werkzeug exception to refuse the request.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from werkzeug.exceptions import BadRequest, NotFound

T = TypeVar("T")
Json = dict[str, Any]

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{1,99}")
FILE = re.compile(r"[^\x00-\x1f/\\\ud800-\udfff]{1,200}")
DATE = "2026-01-01T00:00:00Z"  # creation date of all files
# Name pattern and example for each kind of source that can be published from a local folder.
PUBLISHED = {
    "dataset": (
        re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{1,49}}/{SLUG.pattern}"),
        "OWNER/SLUG=DIR, such as ann/weights=data/weights",
    ),
    "model": (
        re.compile(r"(?:(?!\.)[A-Za-z0-9_.-]{1,100}/){4}[1-9][0-9]{0,8}"),
        "OWNER/MODEL/FRAMEWORK/VARIATION/VERSION=DIR, such as"
        " keras/dinov3/keras/dinov3_vit_small_lvd1689m/1=data/dinov3",
    ),
}


def published(kind: str, texts: Iterable[str]) -> dict[str, Path]:
    """Parse strings of the form NAME=DIR, and return them as {name: folder}.

    >>> published("dataset", ["ann/weights=."])
    {'ann/weights': PosixPath('.')}

    Raises:
        ValueError: if a string is invalid or its folder does not exist.
    """
    found, (pattern, example) = dict[str, Path](), PUBLISHED[kind]
    for text in texts:
        name, _, folder = text.partition("=")
        if not pattern.fullmatch(name) or not folder:
            raise ValueError(f"{text[:200]!r}: expected {example}")
        if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
            raise ValueError(f"{text[:200]!r}: expected a folder that contains the {kind}'s files")
        found[name] = Path(folder)
    return found


def slug(title: str) -> str:
    """Return the slug that Kaggle creates from a title.

    >>> slug("Digits Train Tpu")
    'digits-train-tpu'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def require(pattern: re.Pattern[str], name: str, what: str) -> str:
    """Check that a name from a request is safe to use in a path, and return it."""
    if not pattern.fullmatch(name) or name in (".", ".."):
        raise BadRequest(f"Invalid {what}: {name[:80]!r}")
    return name


def page(items: Sequence[T], request: Any, most: int = 100) -> tuple[list[T], str | None]:
    """Return the items of the requested page, and the next page's token, which is None at the end.

    `most` is the maximum page size.
    """
    start = int(request.page_token or 0)
    end = start + min(max(request.page_size or 20, 1), most)
    return list(items[start:end]), str(end) if end < len(items) else None


def file_names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def file_in(folder: Path, name: str | None) -> Path:
    if name not in file_names(folder):
        raise NotFound("Not found")
    return folder / name


def listed(folder: Path, names: Sequence[str], size: str = "totalBytes") -> list[Json]:
    """Return a JSON entry for each file, with its size in the field `size`."""
    return [
        {"name": name, "creationDate": DATE, size: (folder / name).stat().st_size} for name in names
    ]


def unused_folder(parent: Path, handle: str, number: int) -> Path:
    """Return an unused path for a version's folder, even if its number has been used before."""
    name = handle.replace("/", "--")
    folders = (parent / f"{name}--v{n}" for n in itertools.count(number))
    return next(folder for folder in folders if not folder.exists())

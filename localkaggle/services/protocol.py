"""Protocol: what the services share: checked names, pages, and the files of a folder.

A service has one method per call. It takes a request of kagglesdk's class, which knows the fields
of the real client, and a user. It returns the JSON object of the answer, or the path of a file to
redirect to. A refusal is an exception of werkzeug.
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
DATE = "2026-01-01T00:00:00Z"  # of every file
# What others published and a folder of this machine stands for: kind → its names, and an example.
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
    """Return {name: folder} from texts such as NAME=DIR.

    >>> published("dataset", ["ann/weights=."])
    {'ann/weights': PosixPath('.')}

    Raises:
        ValueError: if a text has another form, or its folder does not exist.
    """
    found, (pattern, example) = dict[str, Path](), PUBLISHED[kind]
    for text in texts:
        name, _, folder = text.partition("=")
        if not pattern.fullmatch(name) or not folder:
            raise ValueError(f"{text[:200]!r}: expected {example}")
        if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
            raise ValueError(f"{text[:200]!r}: expected a folder with the files of the {kind}")
        found[name] = Path(folder)
    return found


def slug(title: str) -> str:
    """Return the slug that Kaggle derives from a title.

    >>> slug("Digits Train Tpu")
    'digits-train-tpu'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def require(pattern: re.Pattern[str], name: str, what: str) -> str:
    """Return a name from the network that is safe as part of a path.

    Raises:
        BadRequest: if it is not safe.
    """
    if not pattern.fullmatch(name) or name in (".", ".."):
        raise BadRequest(f"Invalid {what}: {name[:80]!r}")
    return name


def page(items: Sequence[T], request: Any, most: int = 100) -> tuple[list[T], str | None]:
    """Return the page that a request asks for, and the token of the next page, if there is one.

    Args:
        items: the items of all pages.
        request: has `page_token` (default: the first page) and `page_size` (default: 20).
        most: the size limit of a page.
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
        NotFound: unless `file_names` lists this name.
    """
    if name not in file_names(folder):
        raise NotFound("Not found")
    return folder / name


def listed(folder: Path, names: Sequence[str], size: str = "totalBytes") -> list[Json]:
    """Return these files of a folder as entries of a list; `size` names the field of the bytes."""
    return [
        {"name": name, "creationDate": DATE, size: (folder / name).stat().st_size} for name in names
    ]


def unused_folder(parent: Path, handle: str, number: int) -> Path:
    """Return a new folder for a version; a deleted version may have had the same number."""
    name = handle.replace("/", "--")
    folders = (parent / f"{name}--v{n}" for n in itertools.count(number))
    return next(folder for folder in folders if not folder.exists())

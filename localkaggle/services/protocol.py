"""Protocol: what every service of the local Kaggle shares: errors, answers, checked names, pages.

Requests and answers are kagglesdk's own classes, so no field of the real client can be forgotten.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

BASE = "http://localhost"  # Kaggle's address for the client, which reaches this server as its proxy
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{1,99}")
FILE = re.compile(r"[^\x00-\x1f/\\\ud800-\udfff]{1,200}")


class ApiError(Exception):
    """An HTTP error with Kaggle's JSON body."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code, self.message = code, message


def missing(service: str, owner: str, user: str, code: str) -> ApiError:
    """Return the answer about something that is not there, or not this user's.

    Args:
        service: "kernels" or "datasets".
        owner: that the call names.
        code: of `Facts.missing`, for what would be this user's own.
    """
    if owner == user and code == "404":
        return ApiError(404, "Not found")
    return ApiError(403, f"Permission '{service}.get' was denied")


def make(kind: type, **fields: Any) -> Any:
    """Return a kagglesdk object with these fields; it refuses a field that it does not have."""
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def slug(title: str) -> str:
    """Return the slug that Kaggle makes from a title.

    >>> slug("Digits Train Tpu")
    'digits-train-tpu'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def require(pattern: re.Pattern[str], name: str, what: str) -> str:
    """Return a name from the network if it is safe as a part of a path.

    Raises:
        ApiError: 400 if it is not.
    """
    if (
        not pattern.fullmatch(name)
        or name in (".", "..")
        or len(name.encode(errors="replace")) > 250
    ):
        raise ApiError(400, f"Invalid {what}: {name[:80]!r}")
    return name


def page(
    items: Sequence[T], token: str | None, size: int | None, most: int = 100
) -> tuple[list[T], str | None]:
    """Return one page, and the token of the next page: its place in the list.

    Args:
        items: of all pages.
        token: of the page; without one it is the first.
        size: of a page; 20 if there is none.
        most: how large a page may be.

    >>> page(["a", "b", "c"], None, 2)
    (['a', 'b'], '2')
    >>> page(["a", "b", "c"], "2", 2)
    (['c'], None)
    """
    if token and not re.fullmatch(r"[0-9]{1,9}", token):
        raise ApiError(400, f"Invalid page token: {token[:40]!r}")
    length = min(max(size or 20, 1), most)
    start = int(token or 0)
    end = start + length
    return list(items[start:end]), str(end) if end < len(items) else None

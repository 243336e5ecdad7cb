"""Answers: what Kaggle said, as plain frozen values that need no Kaggle client to be understood."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deploy.errors import UsageError

# What the client raises where an answer, or a row of one, is not what it can read.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Saved:
    """Kaggle's answer to a push. `invalid`: what it did not accept, by kind; the run then starts
    without it.
    """

    version: int
    url: str
    error: str
    invalid: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class KernelStatus:
    """The state of one kernel version, in Kaggle's word, and its message about a failure."""

    name: str
    failure: str


@dataclass(frozen=True)
class Source:
    """A version of a kernel: its number, the text that was pushed, and what it asks for, named as
    in kernel-metadata.json.
    """

    version: int
    text: str
    asks: Mapping[str, Any]


@dataclass(frozen=True)
class Dataset:
    """A dataset: its current version, and the notes of the versions that Kaggle tells of."""

    version: int
    notes: Mapping[int, str]


@dataclass(frozen=True)
class Scored:
    """One submission. Scores are Kaggle's texts, empty while unknown."""

    ref: int
    status: str
    description: str
    public_score: str
    error: str


@dataclass(frozen=True)
class Limits:
    """Submissions made today and in all, and how many are allowed now."""

    today: int
    total: int
    allowed_now: int


@dataclass(frozen=True)
class Quota:
    """Accelerator seconds left this week, and when the next one begins, in UTC; None where Kaggle
    did not say.
    """

    gpu_seconds: float | None
    tpu_seconds: float | None
    renewed: datetime | None = None


def text(value: Any) -> str:
    """Return a text that Kaggle may leave out. Raises `TypeError` for anything else: the answer
    cannot be read then.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value or ""


def number(value: Any) -> int:
    """Return a whole number that Kaggle may leave out, 0 then. Raises `TypeError` for anything
    else.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{type(value).__name__} in place of a number")
    return value or 0


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts that Kaggle may leave out. Raises `TypeError` for anything else."""
    return tuple(text(item) for item in value or ())


def split(handle: str) -> tuple[str, str]:
    """Return owner and slug of `owner/slug`. Raises `UsageError` for anything else."""
    owner, slash, slug = handle.partition("/")
    if not (owner and slash and slug) or "/" in slug:
        raise UsageError(
            f"{handle!r} is not a handle; expected owner/slug.\nCopy it from the address on kaggle.com."
        )
    return owner, slug


def log_pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) of the pieces of a log, which Kaggle stores as a JSON array and may cut
    anywhere.

    >>> log_pieces('[{"stream_name":"stdout","time":0.5,"data":"a b"}]')
    [('stdout', 'a b')]
    """
    try:
        return [
            (str(piece.get("stream_name", "")), str(piece["data"]))
            for piece in json.loads(log or "[]")
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return [("", log)]  # cut, or not JSON at all: shown as it is


def log_lines(log: str, *, stdout: bool = False) -> list[str]:
    """Return the lines of a log. `stdout`: leave out what libraries wrote to stderr.

    >>> log_lines('[{"data": "one l"}, {"data": "ine"}]')
    ['one line']
    """
    whole = "".join(data for stream, data in log_pieces(log) if not (stdout and stream == "stderr"))
    # A piece may end inside a character; its halves fit together again, and what is left over
    # cannot be encoded.
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace").splitlines()


class Plain:
    """The type of an answer that is taken as it came: where the client knows no word of one row, it
    reads no row at all.
    """

    @classmethod
    def prepare_from(cls, response: Any) -> dict[str, Any]:
        """Return the JSON object that was answered. Raises `TypeError` for anything else."""
        value = response.json()
        if not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} in place of an object")
        return value


def scored(row: dict[str, Any], read: Callable[[dict[str, Any]], Any]) -> Scored:
    """Return the submission that a row describes; with the status UNKNOWN(word) where the client
    cannot read the row.

    Its number and description must be there in any case: without them nobody can tell whose it is.
    """
    ref, description = number(row.get("ref")), text(row.get("description"))
    try:
        item = read(row)
        return Scored(
            ref,
            item.status.name,
            description,
            text(item.public_score),
            text(item.error_description),
        )
    except MALFORMED:
        return Scored(ref, f"UNKNOWN({row.get('status')})", description, "", "")


def moment(value: Any) -> datetime | None:
    """Return a time in UTC that Kaggle may leave out. Raises `TypeError` for anything else."""
    if value is not None and not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} in place of a time")
    if value is None:
        return None
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def left(quota: Any) -> float | None:
    """Return the seconds that are left of one accelerator's quota; None where Kaggle did not say."""
    if quota is None or quota.total_time_allowed is None:
        return None
    # The client's text form of these loses whole days; the values are right.
    used = quota.time_used.total_seconds() if quota.time_used is not None else 0.0
    reserved = quota.time_reserved.total_seconds() if quota.time_reserved is not None else 0.0
    return max(0.0, float(quota.total_time_allowed.total_seconds() - used - reserved))

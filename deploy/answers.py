"""Answers: what Kaggle said, as plain frozen values that need no Kaggle client to be understood."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.errors import UsageError


@dataclass(frozen=True)
class Saved:
    """Kaggle's answer to a push. `invalid`: what it did not accept, by kind; the run then starts without it."""

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
    """The current version of a kernel: its number and the text that was pushed."""

    version: int
    text: str


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
    """Accelerator seconds left this week; None where Kaggle did not say."""

    gpu_seconds: float | None
    tpu_seconds: float | None


def split(handle: str) -> tuple[str, str]:
    """Return owner and slug of `owner/slug`. Raises `UsageError` for anything else."""
    owner, slash, slug = handle.partition("/")
    if not (owner and slash and slug) or "/" in slug:
        raise UsageError(f"{handle!r} is not a handle; expected owner/slug.\nCopy it from the address on kaggle.com.")
    return owner, slug


def log_lines(log: str, *, stdout: bool = False) -> list[str]:
    """Return the lines of a log, which Kaggle stores as a JSON array of pieces and may cut anywhere.

    Args:
        stdout: leave out what libraries wrote to stderr.

    >>> log_lines('[{"stream_name":"stdout","time":0.5,"data":"a\\\\nb\\\\n"}]')
    ['a', 'b']
    """
    try:
        pieces = json.loads(log or "[]")
        return "".join(
            str(piece["data"]) for piece in pieces if not (stdout and piece.get("stream_name") == "stderr")
        ).splitlines()
    except (ValueError, TypeError, KeyError, AttributeError):
        return log.splitlines()  # cut, or not JSON at all: shown as it is


def scored(item: Any) -> Scored:
    """Return the submission that the client's object describes."""
    return Scored(
        item.ref or 0,
        item.status.name,
        item.description or "",
        item.public_score or "",
        item.error_description or "",
    )


def left(quota: Any) -> float | None:
    """Return the seconds that are left of one accelerator's quota; None where Kaggle did not say."""
    if quota is None or quota.total_time_allowed is None:
        return None
    # The client's text form of these loses whole days; the values are right.
    used = quota.time_used.total_seconds() if quota.time_used is not None else 0.0
    reserved = quota.time_reserved.total_seconds() if quota.time_reserved is not None else 0.0
    return max(0.0, float(quota.total_time_allowed.total_seconds() - used - reserved))

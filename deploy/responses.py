"""What Kaggle answers, as plain frozen values that need no Kaggle client."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from deploy.errors import UsageError

# What Python raises for a value, as a row of an answer or a file, that is not what it should be.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


class Malformed(ValueError):
    """Kaggle's answer, or a part of it, is not what it should be."""


@dataclass(frozen=True)
class Saved:
    """Kaggle's answer to a push.

    Attributes:
        version: of the kernel; 0 if Kaggle gave none.
        url: of its page.
        handle: owner/slug of the kernel, as Kaggle says; "": it does not.
        error: Kaggle's words; "": none.
        invalid: the sources that it did not accept, by kind. The run starts without them.
        kernel_id: of the kernel, which keeps it when it is renamed; 0 if Kaggle gave none.
    """

    version: int
    url: str
    handle: str
    error: str
    invalid: Mapping[str, tuple[str, ...]]
    kernel_id: int


@dataclass(frozen=True)
class KernelStatus:
    """The state of a kernel version in Kaggle's word, and Kaggle's message about a failure."""

    name: str
    failure: str


@dataclass(frozen=True)
class OwnKernel:
    """A kernel of ours as their list has it: the number of its newest version, and its machine.

    Attributes:
        machine_shape: Kaggle's name of the machine; "": unknown.
        kernel_id: as in `Saved`.
    """

    handle: str
    version: int
    machine_shape: str
    tpu: bool
    gpu: bool
    kernel_id: int


@dataclass(frozen=True)
class Source:
    """A version of a kernel: its number, its text, and its fields of kernel-metadata.json."""

    version: int
    text: str
    asks: Mapping[str, Any]


@dataclass(frozen=True)
class Dataset:
    """A dataset: its current version, and the notes of each version that Kaggle lists."""

    version: int
    is_private: bool
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
class Competition:
    """A competition, as Kaggle describes it to this account.

    Attributes:
        takes_files: whether a submission is an uploaded file; otherwise it is a notebook.
        entered: whether this account accepted the rules.
        closed: whether it takes no submissions.
        daily: submissions a day and team; 0: Kaggle does not say.
        entry_ends, teams_end, ends: until when one may enter it, teams may merge, and it runs, in
            UTC; None: Kaggle does not say.
    """

    takes_files: bool
    entered: bool
    closed: bool
    daily: int
    entry_ends: datetime | None
    teams_end: datetime | None
    ends: datetime | None


@dataclass(frozen=True)
class Limits:
    """Submissions made today and in total, and how many are allowed now.

    Attributes:
        by_total: whether that is what the competition still allows in all, and not today.
    """

    today: int
    total: int
    allowed_now: int
    by_total: bool = False

    @property
    def next(self) -> str:
        """When there is another one, if none is allowed now."""
        if self.by_total:
            return "The competition allows no more in all: no later day brings another."
        return "There is another one after midnight UTC."


@dataclass(frozen=True)
class Quota:
    """Accelerator time of this week; None: unknown.

    Attributes:
        gpu_seconds, tpu_seconds: that are left: allowed and not used, as `kaggle quota` prints.
        renewed: when the next week begins, in UTC.
        gpu_allowed, tpu_allowed: seconds that a week has.
        reserved: seconds of those left that running sessions may still take, by "GPU" and "TPU".
        paid: "GPU" and "TPU", where the account pays for what it uses beyond the week's quota.
    """

    gpu_seconds: float | None
    tpu_seconds: float | None
    renewed: datetime | None = None
    gpu_allowed: float | None = None
    tpu_allowed: float | None = None
    reserved: Mapping[str, float] = field(default_factory=dict)
    paid: tuple[str, ...] = ()


def text(value: Any) -> str:
    """Return a text that Kaggle may omit. Raises `Malformed` for anything else."""
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{type(value).__name__} in place of a text")
    return value or ""


def number(value: Any) -> int:
    """Return an integer that Kaggle may omit, 0 then. Raises `Malformed` for anything else."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise Malformed(f"{type(value).__name__} in place of a number")
    return value or 0


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts that Kaggle may omit. Raises `Malformed` for anything else."""
    if value is not None and not isinstance(value, list):
        raise Malformed(f"{type(value).__name__} in place of a list")
    return tuple(text(item) for item in value or ())


def word(value: Any) -> str:
    """Return the word of a state. Raises `Malformed` for what is none: the client reads "" so."""
    if not isinstance(value, Enum):
        raise Malformed(f"{type(value).__name__} in place of a state")
    return value.name


def unknown_word(error: Malformed) -> str:
    """Return UNKNOWN(word) for an answer with a word that the client does not know.

    Raises:
        Malformed: the error, if it is about anything else.
    """
    if not isinstance(error.__cause__, KeyError):
        raise error
    return f"UNKNOWN({error.__cause__.args[0]})"


def handle(address: Any) -> str:
    """Return owner/slug of the kernel at an address; "" if it is none.

    >>> handle("https://www.kaggle.com/code/ann/digits-train-tpu")
    'ann/digits-train-tpu'
    """
    found = re.search(r"/code/([A-Za-z0-9_-]+/[A-Za-z0-9_-]+)/?(?:[?#].*)?$", text(address))
    return found[1] if found else ""


def split(handle: str) -> tuple[str, str]:
    """Return owner and slug of `owner/slug`. Raises `UsageError` for anything else."""
    owner, slash, slug = handle.partition("/")
    if not (owner and slash and slug) or "/" in slug:
        raise UsageError(
            f"{handle!r} is not a handle; expected owner/slug.\n"
            "Copy it from the address on kaggle.com."
        )
    return owner, slug


def log_pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) of the pieces of a log: a JSON array that Kaggle may cut anywhere.

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


def log_seconds(log: str) -> float | None:
    """Return the time of the last piece of a log, after the session's start; None if none has one.

    >>> log_seconds('[{"stream_name":"stdout","time":0.5,"data":"a b"}]')
    0.5
    """
    try:
        return max((float(piece["time"]) for piece in json.loads(log or "[]")), default=None)
    except (*MALFORMED, RecursionError):
        return None


def log_lines(log: str) -> list[str]:
    """Return the lines of a log.

    >>> log_lines('[{"data": "one l"}, {"data": "ine"}]')
    ['one line']
    """
    whole = "".join(data for _, data in log_pieces(log))
    # A piece may end inside a character. Its halves are joined; a single half is replaced.
    text = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n") if text else []


class Plain:
    """The type of an unparsed answer: the client reads no row if it does not know a word of one."""

    @classmethod
    def prepare_from(cls, response: Any) -> dict[str, Any]:
        """Return the JSON object of the answer. Raises `TypeError` for anything else."""
        value = response.json()
        if not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} in place of an object")
        return value


def scored(row: dict[str, Any], read: Callable[[dict[str, Any]], Any]) -> Scored:
    """Return the submission of a row; its status is UNKNOWN(word) if the client cannot read it.

    Number and description are always required: they tell whose submission it is.

    Args:
        row: of Kaggle's answer.
        read: the client's own parser.
    """
    if not isinstance(row, dict):
        raise Malformed(f"{type(row).__name__} in place of a submission")
    ref, description = number(row.get("ref")), text(row.get("description"))
    try:
        item = read(row)
        score, error = text(item.public_score), text(item.error_description)
        return Scored(ref, item.status.name, description, score, error)
    except MALFORMED:
        return Scored(ref, f"UNKNOWN({row.get('status')})", description, "", "")


def moment(value: Any) -> datetime | None:
    """Return a time, in UTC, that Kaggle may omit. Raises `Malformed` for anything else."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise Malformed(f"{type(value).__name__} in place of a time")
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def seconds_allowed(quota: Any) -> float | None:
    """Return the seconds a week of an accelerator's quota; None if Kaggle did not say."""
    if quota is None or quota.total_time_allowed is None:
        return None
    return float(quota.total_time_allowed.total_seconds())


def seconds_left(quota: Any) -> float | None:
    """Return the seconds left of an accelerator's quota; None if Kaggle did not say."""
    allowed = seconds_allowed(quota)
    if allowed is None:
        return None
    # The client's text form of these loses whole days; the values are right.
    used = quota.time_used
    return max(0.0, allowed - (0.0 if used is None else float(used.total_seconds())))

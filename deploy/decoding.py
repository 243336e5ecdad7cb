"""What Kaggle answers, read: JSON as plain frozen values, by dataclasses; and the log of a run."""

import json
import re
from contextlib import suppress
from dataclasses import MISSING, field, fields, is_dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any, NewType, get_args, get_origin

# What Python raises for a value, as a row of an answer or a file, that is not what it should be.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
Word = NewType("Word", str)  # of an enumeration, as NOT_YET; Kaggle may write notYet
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")


class Malformed(ValueError):
    """Kaggle's answer, or a part of it, is not what it should be."""


def called(name: str, default: Any = MISSING) -> Any:
    """Return a dataclass's field that has this name in the JSON, as `blob.source` for the source
    within a blob. Others have their own name there: `versionNumber` for `version_number`.
    """
    return field(default=default, metadata={"json": name})


def camel_case(name: str) -> str:
    """Return a name as JSON has it.

    >>> camel_case("version_number")
    'versionNumber'
    """
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def decoded(kind: Any, value: object, name: str = "the answer") -> Any:
    """Return a part of a JSON as a value of a type.

    null and "" mean that a field was omitted; fields that the type does not have are ignored.

    Args:
        kind: a dataclass, `tuple[X, ...]`, `X | None`, `str`, `int`, `bool`, a `datetime` (UTC), a
            `float` (seconds, as "1.5s"), or a `Word`.
        value: the part.
        name: of the part, for the error.

    Raises:
        Malformed: if it is of another type, or lacks a field without a default.
    """
    parts = get_args(kind)
    if get_origin(kind) is UnionType:
        return decoded(parts[0], value, name)
    if kind is Word and isinstance(value, str):
        return Word(re.sub("(?<=[a-z])(?=[A-Z])", "_", value).upper())
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(decoded(parts[0], each, name) for each in value)
    if is_dataclass(kind) and isinstance(value, dict):
        return _with_fields(kind, value, name)
    if kind is float and isinstance(value, str) and (found := DURATION.fullmatch(value)):
        return float(found[1])
    if kind is datetime and isinstance(value, str):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value.removesuffix("Z"))
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    if type(value) is not kind:  # not isinstance: true is no number
        # Without the value, which may hold a signed address.
        wanted = getattr(kind, "__name__", kind)
        raise Malformed(f"{name}: {type(value).__name__} in place of {wanted}")
    return value


def _with_fields(kind: Any, value: dict[str, object], name: str) -> Any:
    found = {}
    for one in fields(kind):
        *outer, key = (one.metadata.get("json") or camel_case(one.name)).split(".")
        inner: Any = value
        for part in outer:
            inner = decoded(dict, inner.get(part) or {}, part)
        if inner.get(key) not in (None, ""):
            found[one.name] = decoded(one.type, inner[key], key)
        elif one.default is MISSING:
            said = value.get("message")  # Kaggle's own words, as of a submission without a number
            raise Malformed(f"{name} has no {key}{f'; it says: {said}' if said else ''}")
    return kind(**found)


def log_pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) of each piece of a run's log, which Kaggle stores as a JSON array that
    it may cut anywhere. What is no such array is one piece.

    >>> log_pieces('[{"stream_name":"stdout","time":0.5,"data":"a b"}]')
    [('stdout', 'a b')]
    """
    try:
        return [
            (str(piece.get("stream_name", "")), str(piece["data"]))
            for piece in json.loads(log or "[]")
        ]
    except (*MALFORMED, RecursionError):
        return [("", log)]


def log_lines(log: str) -> list[str]:
    """Return the lines of a run's log.

    >>> log_lines('[{"data": "one l"}, {"data": "ine"}]')
    ['one line']
    """
    whole = "".join(data for _, data in log_pieces(log))
    # A piece may end inside a character. Its halves are joined; a single half is replaced.
    text = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n") if text else []

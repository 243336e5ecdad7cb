"""Decode Kaggle's JSON responses into frozen dataclasses, and the logs of runs into lines."""

import json
import re
from contextlib import suppress
from dataclasses import MISSING, field, fields, is_dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any, NewType, get_args, get_origin

# Exceptions that Python raises for malformed values in a response or file.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
Word = NewType("Word", str)  # an enum value, such as NOT_YET, which Kaggle may write as notYet
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")


class Malformed(ValueError):
    """Kaggle's response, or a part of it, has an unexpected format."""


def called(name: str, default: Any = MISSING) -> Any:
    """Return a dataclass field that is read from this JSON key.

    `blob.source` is the key `source` in the object `blob`. All other fields are read from the key
    that is the camel-case form of their name.
    """
    return field(default=default, metadata={"json": name})


def camel_case(name: str) -> str:
    """Convert a name to the camel case that Kaggle's JSON uses.

    >>> camel_case("version_number")
    'versionNumber'
    """
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def decoded(kind: Any, value: object, name: str = "the response") -> Any:
    """Convert a JSON value to a Python type, or raise `Malformed`.

    null and "" are treated like missing fields. Fields that the type does not define are ignored.
    `kind` is a dataclass, `tuple[X, ...]`, `X | None`, `str`, `int`, `bool`, a `datetime` (UTC), a
    `float` (seconds, such as "1.5s"), or a `Word`.
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
    if type(value) is not kind:  # not isinstance, which accepts true as an int
        # Do not show the value, because it may contain a signed URL.
        wanted = getattr(kind, "__name__", kind)
        raise Malformed(f"{name}: expected {wanted}, got {type(value).__name__}")
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
            said = value.get("message")  # for example, why a submission has no number
            raise Malformed(f"{name} has no {key}{f'; message: {said}' if said else ''}")
    return kind(**found)


def log_pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) for each piece of a run's log.

    The log is a JSON array, which Kaggle may truncate anywhere. Any other text is returned as a
    single piece.

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
    # A piece may end within a character. Matching halves are joined, and others are replaced.
    text = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n") if text else []

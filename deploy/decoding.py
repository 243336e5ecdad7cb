"""Kaggle's answers: JSON as frozen dataclasses, and the log of a run."""

import json
import re
from contextlib import suppress
from dataclasses import MISSING, field, fields, is_dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any, NewType, get_args, get_origin

# What Python raises for malformed values in an answer or a file.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
Word = NewType("Word", str)  # of an enumeration, such as NOT_YET; Kaggle may write notYet
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")


class Malformed(ValueError):
    """Kaggle's answer, or a part of it, does not have the expected form."""


def called(name: str, default: Any = MISSING) -> Any:
    """Return a dataclass field with this name in the JSON, such as `blob.source` for the source
    within a blob. Other fields have their own name in camel case.
    """
    return field(default=default, metadata={"json": name})


def camel_case(name: str) -> str:
    """Return a name in camel case, as in the JSON.

    >>> camel_case("version_number")
    'versionNumber'
    """
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def decoded(kind: Any, value: object, name: str = "the answer") -> Any:
    """Return a JSON value as a value of a type.

    null and "" count as an omitted field; fields that the type does not have are ignored.

    Args:
        kind: a dataclass, `tuple[X, ...]`, `X | None`, `str`, `int`, `bool`, a `datetime` (UTC), a
            `float` (seconds, such as "1.5s"), or a `Word`.
        name: of the value, for the error.

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
    if type(value) is not kind:  # not isinstance, by which true is an int
        # The value is not shown: it may hold a signed address.
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
            said = value.get("message")  # for example, why a submission has no number
            raise Malformed(f"{name} has no {key}{f'; it says: {said}' if said else ''}")
    return kind(**found)


def log_pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) of each piece of a run's log: a JSON array, which Kaggle may cut
    anywhere. Any other text is returned as one piece.

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
    # A piece may end inside a character. Two halves are joined; a single one is replaced.
    text = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n") if text else []

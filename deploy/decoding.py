"""JSON as plain frozen values: a dataclass says which fields there are, and of which type."""

import importlib
import re
from contextlib import suppress
from dataclasses import MISSING, field, fields, is_dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

# What Python raises for a value, as a row of an answer or a file, that is not what it should be.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
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
            `float` (seconds, as "1.5s"), or `Annotated[str, ENUM]`: a word of this enumeration of
            kagglesdk, or UNKNOWN(word).
        value: the part.
        name: of the part, for the error.

    Raises:
        Malformed: if it is of another type, or lacks a field without a default.
    """
    parts = get_args(kind)
    if get_origin(kind) is UnionType:
        return decoded(parts[0], value, name)
    if get_origin(kind) is Annotated and isinstance(value, str):
        module, _, enum = parts[1].rpartition(".")
        words = (word.name for word in getattr(importlib.import_module(module), enum))
        known = {word.replace("_", "").lower(): word for word in words}
        return known.get(value.replace("_", "").lower(), f"UNKNOWN({value})")
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
            raise Malformed(f"{name} has no {key}")
    return kind(**found)

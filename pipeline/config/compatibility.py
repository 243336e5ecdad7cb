"""Which fields of a config may change when a run resumes."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pipeline.config import rules
from pipeline.config.config import Config
from pipeline.config.data_layout import Data

# Nothing that training reads. The images themselves are compared by content.
FREE = {
    f"{kind.prefix}{field.name}"
    for kind in (Config, Data)
    for field in fields(kind)
    if rules.FREE in getattr(field.type, "__metadata__", ())
}


def changes(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the differences of two configs that training depends on, a text for each value.

    >>> changes({"batch": 8, "data": {"flip": True}}, {"batch": 6, "data": {"flip": True}})
    ['batch: 8 then, 6 now']
    >>> changes({"views": 1, "floor": {"rows": 5}}, {"views": 2, "floor": None})
    []
    """
    before, now = _by_full_name(theirs), _by_full_name(ours)
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _by_full_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that count, by full name, for example "data.height"."""
    values = {name: value for name, value in config.items() if name not in FREE}
    for part in ("data", "optimizer"):
        inner = values.pop(part, {})
        values |= {f"{part}.{name}": value for name, value in inner.items()}
    return {name: value for name, value in values.items() if name not in FREE}

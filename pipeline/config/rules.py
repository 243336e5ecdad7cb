"""What the fields of a config may hold: a rule beside each field's type.

>>> @dataclass(frozen=True, kw_only=True)
... class Race(Checked):
...     laps: Annotated[int, whole(1, 100)]
...     surface: Annotated[str, choice("road", "track"), FREE] = "road"
>>> Race(laps=3).laps
3
>>> Race(laps=300)
Traceback (most recent call last):
pipeline.errors.ConfigError: laps=300 cannot work: expected a whole number from 1 to 100.
Set laps inside that range in the config.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

from pipeline.errors import ConfigError

# Marks a field that may change when a run resumes, since no weight follows from it.
FREE = "free"
SHOWN = 150  # characters of a value in a message
RANGE = "Set {name} inside that range in the config."


@dataclass(frozen=True)
class Rule:
    """What one field may hold.

    Attributes:
        allows: whether it may hold a value.
        expected: completes "expected …" in the message.
        edit: what to change; {name} stands for the field.
        values: of a mapping from texts: the rule for each of its values.
    """

    allows: Callable[[Any], bool]
    expected: str
    edit: str = "Correct {name} in the config."
    values: "Rule | None" = None

    def check(self, name: str, value: object) -> None:
        """Raise `ConfigError` unless the field of that name may hold the value."""
        if not self.allows(value):
            raise refusal(name, value, self.expected, self.edit)
        if self.values and isinstance(value, Mapping):
            for key, part in value.items():
                TEXT.check(f"a name in {name}", key)
                self.values.check(f"{name}[{key!r}]", part)


class Conflict(NamedTuple):
    """A field that contradicts another one: its name, and the rest of its message as in `Rule`."""

    field: str
    expected: str
    edit: str = "Leave {name} out."


def refusal(name: str, value: object, expected: str, edit: str) -> ConfigError:
    """Return the error for a field with a value that cannot work."""
    shown = repr(dict(value) if isinstance(value, Mapping) else value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…{shown[-1]}"
    edit = edit.replace("{name}", name)
    return ConfigError(f"{name}={shown} cannot work: expected {expected}.\n{edit}")


def whole(low: int, high: int) -> Rule:
    """Return the rule for an int from `low` to `high`; True is not one."""
    expected = f"a whole number from {low} to {high}"
    return Rule(lambda value: _is(int, value) and low <= value <= high, expected, RANGE)


def number(low: float, high: float, *, open_ends: bool = False) -> Rule:
    """Return the rule for an int or a float from `low` to `high`.

    Args:
        open_ends: exclude `low` and `high` themselves.
    """

    def allows(value: Any) -> bool:
        inside = _is(int | float, value) and low <= value <= high
        return inside and not (open_ends and value in (low, high))

    ends = ", ends excluded" if open_ends else ""
    return Rule(allows, f"a number between {low} and {high}{ends}", RANGE)


def choice(*values: str) -> Rule:
    """Return the rule for one of these texts."""
    expected = f"one of {', '.join(map(repr, values))}"
    return Rule(lambda value: value in values, expected, "Set {name} to one of these.")


def matching(pattern: str, expected: str, edit: str) -> Rule:
    """Return the rule for a text that matches a pattern as a whole."""
    return Rule(
        lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)), expected, edit
    )


def _is(kind: type | UnionType, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    """Return whether a value is a text that is not empty."""
    return isinstance(value, str) and value != ""


def is_inner_path(value: Any) -> bool:
    """Return whether a value is a path that stays inside its folder, and that a disk can hold."""
    return (
        is_text(value)
        and not value.startswith(("/", "~"))
        and "\0" not in value
        and all(part != ".." and len(part.encode()) <= 255 for part in value.split("/"))
    )


TEXT = Rule(is_text, "a text", "Set {name} to a text in quotes.")
MAY_BE_EMPTY = replace(TEXT, allows=lambda value: isinstance(value, str))
FILE = Rule(is_inner_path, "a path inside the competition folder, as 'train.csv'")
# A text such as "no" would count as True.
TRUTH = Rule(lambda value: isinstance(value, bool), "True or False, without quotes")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A dataclass that checks itself when it is made.

    Each field is checked by the `Rule` in its annotation; without one, by its type, if that is
    bool, str or such a dataclass. `None` passes where the type allows it. Then `_conflicts`
    compares fields with each other. Lists become tuples, and dicts read-only.

    Raises:
        ConfigError: names the field, its value, what was expected, and the edit.
    """

    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, rule = frozen(getattr(self, field.name)), _rule(field)
            object.__setattr__(self, field.name, value)
            if rule and not (value is None and type(None) in get_args(_type(field))):
                rule.check(self.prefix + field.name, value)
        for name, expected, edit in self._conflicts():
            raise refusal(self.prefix + name, attrgetter(name)(self), expected, edit)

    def _conflicts(self) -> Iterator[Conflict]:
        yield from ()


def frozen(value: Any) -> Any:
    """Return lists as tuples and dicts as read-only mappings, at all depths."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(part) for key, part in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """Return what JSON has: dataclasses and mappings as dicts, tuples as lists, at all depths.

    >>> plain(frozen({"b": [1, 2]}))
    {'b': [1, 2]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return list(map(plain, value)) if isinstance(value, tuple) else value


def _type(field: Field[Any]) -> Any:
    annotated = get_origin(field.type) is Annotated
    return get_args(field.type)[0] if annotated else field.type


def _rule(field: Field[Any]) -> Rule | None:
    for rule in getattr(field.type, "__metadata__", ()):
        if isinstance(rule, Rule):
            return rule
    kind, *_ = get_args(_type(field)) or (_type(field),)  # of `Floor | None` the first
    if isinstance(kind, type) and issubclass(kind, Checked):
        example = f"Write {{name}}={kind.__name__}(…), as in pipeline/configs/diabetes.py."
        return Rule(partial(_is, kind), f"a pipeline.config.{kind.__name__}", example)
    return {bool: TRUTH, str: MAY_BE_EMPTY}.get(kind)

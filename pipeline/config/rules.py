"""Validation of config fields: a rule beside each field's type.

>>> from typing import Annotated
>>> @dataclass(frozen=True, kw_only=True)
... class Race(Checked):
...     laps: Annotated[int, whole(1, 100)]
...     surface: Annotated[str, choice("road", "track"), FREE] = "road"
>>> Race(laps=3).laps
3
>>> Race(laps=300)
Traceback (most recent call last):
pipeline.errors.ConfigError: laps=300 cannot work: expected a whole number from 1 to 100.
Correct laps in the config.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, get_args

from pipeline.errors import ConfigError

# Marks beside a rule. FREE: the field may change when a run resumes, since no weight depends on it.
# AUGMENTS: the field changes images at random.
FREE, AUGMENTS = "free", "augments"
SHOWN = 150  # characters of a value in a message
IDENTIFIER = r"[^\W\d]\w*"
# What a field needs of others: its name, whether that holds, and what was expected in words.
Need = tuple[str, object, str]


class Rule(NamedTuple):
    """The values that a field may have.

    Attributes:
        allows: returns whether a value is allowed.
        expected: completes "expected …" in the message.
    """

    allows: Callable[[Any], bool]
    expected: str


class Only(NamedTuple):
    """Beside a rule: the field has an effect only if another field has one of some values. Unset,
    it is None, 0 or empty.

    Attributes:
        field: the other field, which is declared earlier; "part.field" for a field of a part.
        values: those of the other field; with any other value this field must be unset.
        needed: whether it must be set with these values.
    """

    field: str
    values: tuple[str, ...]
    needed: bool = False

    def check(self, config: "Checked", name: str, expected: str) -> None:
        """Raise `ConfigError` if the named field is set without effect, or missing."""
        value, other = getattr(config, name), attrgetter(self.field)(config)
        effective = other in self.values
        if (value and not effective) or (effective and self.needed and not value):
            where = f"{config.prefix}{self.field}={' or '.join(map(repr, self.values))}"
            expected = f"a value only with {where} (it is {other!r}): {expected}"
            raise refusal(config.prefix + name, value, expected)


def refusal(name: str, value: object, expected: str) -> ConfigError:
    """Return the error for a field with an invalid value."""
    shown = repr(dict(value) if isinstance(value, Mapping) else value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…{shown[-1]}"
    return ConfigError(
        f"{name}={shown} cannot work: expected {expected}.\nCorrect {name} in the config."
    )


def number(low: float, high: float, *, open_ends: bool = False) -> Rule:
    """Return the rule for an int or a float from `low` to `high`, no bool.

    Args:
        open_ends: exclude `low` and `high` themselves.
    """

    def allows(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low < value < high if open_ends else low <= value <= high

    ends = ", ends excluded" if open_ends else ""
    return Rule(allows, f"a number between {low} and {high}{ends}")


def whole(low: int, high: int) -> Rule:
    """Return the rule for an int from `low` to `high`."""
    inside = number(low, high).allows
    return Rule(
        lambda value: isinstance(value, int) and inside(value),
        f"a whole number from {low} to {high}",
    )


def choice(*values: str) -> Rule:
    """Return the rule for one of these strings."""
    return Rule(lambda value: value in values, f"one of {', '.join(map(repr, values))}")


def text(pattern: str, expected: str) -> Rule:
    """Return the rule for a string that matches a pattern as a whole."""
    whole_text = re.compile(pattern, re.DOTALL).fullmatch
    return Rule(lambda value: isinstance(value, str) and whole_text(value) is not None, expected)


def identifier(expected: str) -> Rule:
    """Return the rule for a name that Python allows."""
    return text(IDENTIFIER, expected)


def instance(kind: type) -> Rule:
    """Return the rule for a part of the config, such as `Data`."""
    expected = f"a pipeline.config.{kind.__name__}(…), as in pipeline/configs/diabetes.py"
    return Rule(lambda value: isinstance(value, kind), expected)


def one_or_more(rule: Rule) -> Rule:
    """Return the rule for a value that `rule` allows, or a non-empty tuple of such values."""
    return Rule(
        lambda value: value != () and all(map(rule.allows, as_tuple(value))),
        f"{rule.expected}, or a tuple of several",
    )


def mapping(allows: Callable[[Any], bool], expected: str, names: Rule | None = None) -> Rule:
    """Return the rule for a mapping from strings (that `names` allows) to allowed values."""

    def takes(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            (names or TEXT).allows(key) and allows(part) for key, part in value.items()
        )

    return Rule(takes, expected)


ANY_TEXT = text(".*", "a string")
TEXT = text(".+", "a non-empty string")
TEXTS = Rule(
    lambda value: isinstance(value, tuple) and all(map(TEXT.allows, value)), "a tuple of names"
)
# It stays inside its folder, and its parts are short enough for a file system.
FILE = text(
    r"(?=.)(?![/~])((?!\.\.(/|$))[^/\0]{0,255}(/|$))+",
    "a path inside the competition folder, as 'train.csv'",
)
TRUTH = Rule(lambda value: isinstance(value, bool), "True or False, without quotes")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A dataclass that validates itself.

    Each field is `Annotated` with its type, its `Rule` and any marks. `None` passes where the type
    allows it. Each `Only` is checked, and then `_needs`, which compares fields. Lists become
    tuples, and dicts read-only.

    Raises:
        ConfigError: if a value is invalid.
    """

    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            kind, rule, *marks = get_args(field.type)
            value = frozen(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            unset = value is None and type(None) in get_args(kind)
            if not (unset or rule.allows(value)):
                raise refusal(self.prefix + field.name, value, rule.expected)
            for mark in marks:
                if isinstance(mark, Only):
                    mark.check(self, field.name, rule.expected)
        for name, met, expected in self._needs():
            if not met:
                raise refusal(self.prefix + name, attrgetter(name)(self), expected)

    def _needs(self) -> Iterator[Need]:
        yield from ()


def marked(kind: type[Checked], mark: str) -> tuple[str, ...]:
    """Return the names of the fields with a mark."""
    return tuple(field.name for field in fields(kind) if mark in get_args(field.type))


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a tuple unchanged, and any other value as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def frozen(value: Any) -> Any:
    """Return lists as tuples and dicts as read-only mappings, recursively."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(part) for key, part in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value

"""What the fields of a config may hold: a rule beside each field's type.

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

# Marks beside a rule. FREE: the field may change when a run resumes, since no weight follows from
# it. AUGMENTS: the field changes images at random.
FREE, AUGMENTS = "free", "augments"
SHOWN = 150  # characters of a value in a message


# What a field needs of others: its name, whether it has that, and what is expected in words.
Need = tuple[str, object, str]


class Rule(NamedTuple):
    """What one field may hold.

    Attributes:
        allows: whether it may hold a value.
        expected: completes "expected …" in the message.
    """

    allows: Callable[[Any], bool]
    expected: str


class Only(NamedTuple):
    """Beside a rule: a field has an effect only where another one has one of some values. Its
    default is None, 0 or empty: it says that the field is not set.

    Attributes:
        field: the other one, which is declared before it; with a dot a field of a part.
        values: of the other one; elsewhere the field is left out.
        needed: whether the field is needed there.
    """

    field: str
    values: tuple[str, ...]
    needed: bool = False

    def check(self, config: "Checked", name: str, expected: str) -> None:
        """Raise `ConfigError` if the field of that name is set without effect, or is missing."""
        value, other = getattr(config, name), attrgetter(self.field)(config)
        effective = other in self.values
        if (value and not effective) or (effective and self.needed and not value):
            where = f"{config.prefix}{self.field}={' or '.join(map(repr, self.values))}"
            expected = f"a value with {where}, else nothing (it is {other!r}): {expected}"
            raise refusal(config.prefix + name, value, expected)


def refusal(name: str, value: object, expected: str) -> ConfigError:
    """Return the error for a field with a value that cannot work."""
    shown = repr(dict(value) if isinstance(value, Mapping) else value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…{shown[-1]}"
    return ConfigError(
        f"{name}={shown} cannot work: expected {expected}.\nCorrect {name} in the config."
    )


def number(low: float, high: float, *, open_ends: bool = False) -> Rule:
    """Return the rule for an int or a float from `low` to `high`; True is not one.

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
    """Return the rule for one of these texts."""
    return Rule(lambda value: value in values, f"one of {', '.join(map(repr, values))}")


def text(pattern: str, expected: str) -> Rule:
    """Return the rule for a text that matches a pattern as a whole."""
    whole_text = re.compile(pattern, re.DOTALL).fullmatch
    return Rule(lambda value: isinstance(value, str) and whole_text(value) is not None, expected)


def instance(kind: type) -> Rule:
    """Return the rule for a part of the config, as `Data`."""
    expected = f"a pipeline.config.{kind.__name__}(…), as in pipeline/configs/diabetes.py"
    return Rule(lambda value: isinstance(value, kind), expected)


def one_or_more(rule: Rule) -> Rule:
    """Return the rule for what `rule` allows, or a tuple of it that is not empty."""
    return Rule(
        lambda value: value != () and all(map(rule.allows, as_tuple(value))),
        f"{rule.expected}, or a tuple of several",
    )


def mapping(allows: Callable[[Any], bool], expected: str, names: Rule | None = None) -> Rule:
    """Return the rule for a mapping from texts (or some `names`) to values that `allows` takes."""

    def takes(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            (names or TEXT).allows(key) and allows(part) for key, part in value.items()
        )

    return Rule(takes, expected)


ANY_TEXT = text(".*", "a text in quotes")
TEXT = text(".+", "a text in quotes that is not empty")
TEXTS = Rule(
    lambda value: isinstance(value, tuple) and all(map(TEXT.allows, value)), "a tuple of names"
)
# It stays inside its folder, and a disk can hold its name.
FILE = text(
    r"(?=.)(?![/~])((?!\.\.(/|$))[^/\0]{0,255}(/|$))+",
    "a path inside the competition folder, as 'train.csv'",
)
# A text such as "no" would count as True.
TRUTH = Rule(lambda value: isinstance(value, bool), "True or False, without quotes")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A dataclass that checks itself when it is made.

    Each field is `Annotated` with its type, its `Rule` and perhaps marks. `None` passes where the
    type allows it. Then each `Only` is checked, and `_needs` compares fields with each other. Lists
    become tuples, and dicts read-only.

    Raises:
        ConfigError: names the field, its value, what was expected, and the edit.
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
    """Return a tuple as it is, and another value as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def frozen(value: Any) -> Any:
    """Return lists as tuples and dicts as read-only mappings, at all depths."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(part) for key, part in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value

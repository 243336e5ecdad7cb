"""Validate config fields with rules that are declared next to the fields' types.

>>> from typing import Annotated
>>> @dataclass(frozen=True, kw_only=True)
... class Race(Checked):
...     laps: Annotated[int, whole(1, 100)]
...     surface: Annotated[str, choice("road", "track"), FREE] = "road"
>>> Race(laps=3).laps
3
>>> Race(laps=300)
Traceback (most recent call last):
pipeline.errors.ConfigError: laps=300 is invalid: expected an integer from 1 to 100.
Correct laps in the config.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, get_args

from pipeline.errors import ConfigError

# Marks that can follow a rule. FREE fields do not affect the weights, so they can change when a run
# is resumed. AUGMENTS fields enable random changes to images.
FREE, AUGMENTS = "free", "augments"
SHOWN = 150  # maximum length of a value in a message
IDENTIFIER = r"[^\W\d]\w*"
# The name of a field, whether its requirement is met, and a description of the requirement.
Need = tuple[str, object, str]


class Rule(NamedTuple):
    """The valid values of a field. In the error message, `expected` follows the word "expected"."""

    allows: Callable[[Any], bool]
    expected: str


class Only(NamedTuple):
    """Marks a field that must be None, 0 or empty unless another field has one of `values`.

    Attributes:
        field: name of the other field, which must be declared before the marked one. The name of
            a nested field includes the outer one, as in "data.kind".
        needed: whether the marked field is required for these values.
    """

    field: str
    values: tuple[str, ...]
    needed: bool = False

    def check(self, config: "Checked", name: str, expected: str) -> None:
        value, other = getattr(config, name), attrgetter(self.field)(config)
        effective = other in self.values
        if (value and not effective) or (effective and self.needed and not value):
            where = f"{config.prefix}{self.field}={' or '.join(map(repr, self.values))}"
            expected = f"a value only with {where} (it is {other!r}): {expected}"
            raise refusal(config.prefix + name, value, expected)


def refusal(name: str, value: object, expected: str) -> ConfigError:
    shown = repr(dict(value) if isinstance(value, Mapping) else value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…{shown[-1]}"
    return ConfigError(
        f"{name}={shown} is invalid: expected {expected}.\nCorrect {name} in the config."
    )


def number(low: float, high: float, *, open_ends: bool = False) -> Rule:
    """Return a rule that accepts an int or float, but not a bool, from `low` to `high`.

    With `open_ends`, `low` and `high` themselves are invalid.
    """

    def allows(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low < value < high if open_ends else low <= value <= high

    ends = " (exclusive)" if open_ends else ""
    return Rule(allows, f"a number between {low} and {high}{ends}")


def whole(low: int, high: int) -> Rule:
    inside = number(low, high).allows
    return Rule(
        lambda value: isinstance(value, int) and inside(value),
        f"an integer from {low} to {high}",
    )


def choice(*values: str) -> Rule:
    return Rule(lambda value: value in values, f"one of {', '.join(map(repr, values))}")


def text(pattern: str, expected: str) -> Rule:
    whole_text = re.compile(pattern, re.DOTALL).fullmatch
    return Rule(lambda value: isinstance(value, str) and whole_text(value) is not None, expected)


def identifier(expected: str) -> Rule:
    return text(IDENTIFIER, expected)


def instance(kind: type) -> Rule:
    expected = f"a pipeline.config.{kind.__name__}(…), see pipeline/configs/diabetes.py"
    return Rule(lambda value: isinstance(value, kind), expected)


def one_or_more(rule: Rule) -> Rule:
    return Rule(
        lambda value: value != () and all(map(rule.allows, as_tuple(value))),
        f"{rule.expected}, or a tuple of these",
    )


def mapping(allows: Callable[[Any], bool], expected: str, names: Rule | None = None) -> Rule:
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
# The path must not leave its folder, and its parts must be short enough for the file system.
FILE = text(
    r"(?=.)(?![/~])((?!\.\.(/|$))[^/\0]{0,255}(/|$))+",
    "a path inside the competition folder, such as 'train.csv'",
)
TRUTH = Rule(lambda value: isinstance(value, bool), "True or False, without quotes")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Base class for a dataclass that validates its fields.

    Each field has an `Annotated` type with a `Rule` and optional marks. `None` is valid if the type
    includes it. After all rules and `Only` marks are checked, `_needs` compares fields with each
    other. Lists are converted to tuples, and dicts to read-only mappings.

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
    return tuple(field.name for field in fields(kind) if mark in get_args(field.type))


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(part) for key, part in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value

"""Fields: what a value of a config has to be. Each refusal names the field, the value, what was
expected, and the edit.
"""

from pipeline.errors import ConfigError


def expect(holds: bool, name: str, value: object, expected: str, edit: str) -> None:
    """Raise a `ConfigError` unless `holds`."""
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        raise ConfigError(f"{name}={shown} cannot work: expected {expected}.\n{edit}")


def whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse all but an int from `least` to `most`; True is none."""
    good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    expected = f"a whole number from {least} to {most}"
    expect(
        good,
        name,
        value,
        expected,
        f"Set {name} to {least} or more, and to {most} at most, in the config.",
    )


def within(name: str, value: object, low: float, high: float, *, open_ends: bool = False) -> None:
    """Refuse all but an int or a float from `low` to `high`."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if good and open_ends:
        good = low < value < high  # type: ignore[operator]
    ends = "between {} and {}" + (", ends excluded" if open_ends else "")
    expect(
        good,
        name,
        value,
        "a number " + ends.format(low, high),
        f"Set {name} inside that range in the config.",
    )


def truth(name: str, value: object) -> None:
    """Refuse all but True and False: a text such as "no" would count as True."""
    expect(
        isinstance(value, bool),
        name,
        value,
        "True or False",
        f"Set {name} to one of these, without quotes.",
    )


def text(name: str, value: object) -> None:
    """Refuse all but a text that is not empty."""
    expect(
        isinstance(value, str) and value != "",
        name,
        value,
        "a text",
        f"Set {name} to a text in quotes.",
    )


def file_name(name: str, value: object) -> None:
    """Refuse all but a path that stays inside its folder, and that a file system takes."""
    good = (
        isinstance(value, str)
        and bool(value)
        and not value.startswith(("/", "~"))
        and "\0" not in value
    )
    good = good and all(
        part != ".." and len(part.encode()) <= 255 for part in str(value).split("/")
    )
    expect(
        good,
        name,
        value,
        "a path inside the competition folder",
        f"Set {name} to a name such as 'train.csv'.",
    )

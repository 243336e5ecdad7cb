"""Checks of a config's fields; a refusal names field, value, what was expected, and the edit."""

from pipeline.errors import ConfigError


def expect(holds: bool, name: str, value: object, expected: str, edit: str) -> None:
    """Raise a `ConfigError` unless `holds`."""
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        raise ConfigError(f"{name}={shown} cannot work: expected {expected}.\n{edit}")


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse all but these texts."""
    shown = ", ".join(map(repr, allowed))
    expect(value in allowed, name, value, f"one of {shown}", f"Set {name} to one of these.")


def whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse all but an int from `low` to `high`; True is none."""
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    expected = f"a whole number from {low} to {high}"
    expect(good, name, value, expected, f"Set {name} inside that range in the config.")


def within(name: str, value: object, low: float, high: float, *, open_ends: bool = False) -> None:
    """Refuse all but an int or a float from `low` to `high`."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if open_ends:
        good = good and value not in (low, high)
    expected = f"a number between {low} and {high}" + (", ends excluded" if open_ends else "")
    expect(good, name, value, expected, f"Set {name} inside that range in the config.")


def truth(name: str, value: object) -> None:
    """Refuse all but True and False: a text such as "no" would count as True."""
    edit = f"Set {name} to one of these, without quotes."
    expect(isinstance(value, bool), name, value, "True or False", edit)


def text(name: str, value: object) -> None:
    """Refuse all but a text that is not empty."""
    good = isinstance(value, str) and value != ""
    expect(good, name, value, "a text", f"Set {name} to a text in quotes.")


def file_name(name: str, value: object) -> None:
    """Refuse all but a path that stays inside its folder, and that a file system takes."""
    good = (
        isinstance(value, str)
        and value != ""
        and not value.startswith(("/", "~"))
        and "\0" not in value
        and all(part != ".." and len(part.encode()) <= 255 for part in value.split("/"))
    )
    edit = f"Set {name} to a name such as 'train.csv'."
    expect(good, name, value, "a path inside the competition folder", edit)

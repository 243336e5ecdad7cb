"""Source: a config as the text of a file in pipeline/configs/: what differs from the defaults,
formatted as `ruff format` leaves it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import Config

LINE, STEP = 120, 4  # characters
# What is named first; the rest follows in the order of `Config`.
FIRST = (
    "name",
    "competition",
    "num_classes",
    "target",
    "metric",
    "data",
    "model",
    "model_options",
    "optimizer",
)
IMPORT = "from pipeline.config import Config, Data, Optimizer"


def write(config: Config, doc: Sequence[str], comments: Mapping[str, str]) -> str:
    """Return the file's text; `pipeline.config.load` makes an equal config of it.

    Args:
        doc: lines of the docstring. comments: what is said above an argument, by its name; of one
            that is a default, above the next that is not.
    """
    given = _different(config)
    order = [
        *FIRST,
        *(field.name for field in dataclasses.fields(Config) if field.name not in FIRST),
    ]
    lines, waiting = [], []
    for name in order:
        waiting += [f"    # {comments[name]}"] if name in comments else []
        if name in given:
            lines += [*waiting, f"    {name}={_shown(given[name], STEP, len(name) + 2)},"]
            waiting = []
    words = "\n".join(doc).replace("\\", "\\\\").replace('"""', "'''")
    return "\n".join(
        [f'"""{words}\n"""', "", IMPORT, "", "CONFIG = Config(", *lines, *waiting, ")", ""]
    )


def _different(value: Any) -> dict[str, Any]:
    """Return the fields that differ from the defaults, by name."""
    found = {}
    for field in dataclasses.fields(value):
        default = (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        if getattr(value, field.name) != default:
            found[field.name] = getattr(value, field.name)
    return found


def _shown(value: Any, indent: int, beside: int) -> str:
    """Return a value in one line, or where that is too long with a line for each of its parts.

    Args:
        indent: of the line that it stands in. beside: characters before and after it, in that line.
    """
    if dataclasses.is_dataclass(value):
        opened, closed = f"{type(value).__name__}(", ")"
        parts = [(f"{name}=", each) for name, each in _different(value).items()]
    elif isinstance(value, Mapping):
        opened, closed = "{", "}"
        parts = [(f"{_plain(name)}: ", each) for name, each in value.items()]
    elif isinstance(value, tuple):
        opened, closed = "(", ")"
        parts = [("", each) for each in value]
    else:
        return _plain(value)
    inner = ", ".join(f"{name}{_shown(each, 0, -(10**9))}" for name, each in parts)
    short = f"{opened}{inner}{',' if isinstance(value, tuple) and len(value) == 1 else ''}{closed}"
    if indent + beside + len(short) <= LINE:
        return short
    deeper = indent + STEP
    lines = [f"{' ' * deeper}{name}{_shown(each, deeper, len(name) + 1)}," for name, each in parts]
    return "\n".join([opened, *lines, " " * indent + closed])


def _plain(value: object) -> str:
    """Return a number as it is written by hand, and a text in double quotes.

    >>> _plain(2.0), _plain(0.002), _plain("it's")
    ('2', '2e-3', '"it\\'s"')
    """
    if isinstance(value, float):
        if value == int(value):
            return str(int(value))
        digits, _, power = f"{value:e}".partition("e")
        return (
            f"{float(digits):g}e{int(power)}"
            if abs(value) < 0.01 and float(f"{float(digits):g}e{int(power)}") == value
            else repr(value)
        )
    shown = repr(value)
    if isinstance(value, str) and shown[0] == "'" and '"' not in value:
        return '"' + shown[1:-1].replace("\\'", "'") + '"'
    return shown

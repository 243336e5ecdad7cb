"""A config as the text of a file in pipeline/configs/: the values that differ from the defaults,
formatted as `ruff format` does.
"""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import Baseline, Config

LINE, STEP = 100, 4  # characters
# Above what nobody gave; each goes when its field is set. Those on a baseline go with the metric.
METRIC_UNKNOWN = (
    "    # A default: only the competition page has it. `invoke inspect --metric` sets it.\n"
)
COMPETITION_ASSUMED = (
    "    # Assumed: the last part of its address on Kaggle. `invoke init --competition` sets it.\n"
)
UNKNOWN = {"metric": METRIC_UNKNOWN, "competition": COMPETITION_ASSUMED}
# These come first; the other fields follow in the order of `Config`.
FIRST = (
    "name", "competition", "num_classes", "target", "metric", "data", "model", "model_options",
    "optimizer",
)  # fmt: skip


def write(config: Config, doc: Sequence[str], comments: Mapping[str, str]) -> str:
    """Return the file's text; `pipeline.config.load` makes an equal config of it.

    Args:
        config: to write.
        doc: lines of the docstring.
        comments: to write above an argument, by its name; if it has its default, above the next one
            that has not.
    """
    given = _different(config)
    order = dict.fromkeys([*FIRST, *(field.name for field in dataclasses.fields(Config))])
    lines, waiting = [], []
    for name in order:
        indent = " " * STEP + "# "
        waiting += textwrap.wrap(
            comments.get(name, ""), LINE, initial_indent=indent, subsequent_indent=indent
        )
        if name in given:
            lines += [*waiting, f"    {name}={formatted(given[name], STEP, len(name) + 2)},"]
            waiting = []
    words = "\n".join(doc).replace("\\", "\\\\").replace('"""', "'''")
    names = (
        "Config, Data, Optimizer"
        if config.baseline is None
        else "Baseline, Config, Data, Optimizer"
    )
    head = [f'"""{words}\n"""', "", f"from pipeline.config import {names}", ""]
    return "\n".join([*head, "CONFIG = Config(", *lines, *waiting, ")", ""])


def about_baseline(baseline: Baseline) -> str:
    """Return the lines of a docstring on a baseline."""
    return "\n".join(textwrap.wrap(f"Baseline  {baseline}", LINE, subsequent_indent=" " * 10))


def _different(value: Any) -> dict[str, Any]:
    """Return the fields that differ from the defaults, by name."""
    found = {}
    for field in dataclasses.fields(value):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        if getattr(value, field.name) != default:
            found[field.name] = getattr(value, field.name)
    return found


def formatted(value: Any, indent: int, beside: int) -> str:
    """Return a value in one line, or, where that is too long, with a line for each of its parts.
    `indent`: of its line. `beside`: characters before and after it in this line.
    """
    if dataclasses.is_dataclass(value):
        opened, closed = f"{type(value).__name__}(", ")"
        parts = [(f"{name}=", each) for name, each in _different(value).items()]
    elif isinstance(value, Mapping):
        opened, closed = "{", "}"
        parts = [(f"{_literal(name)}: ", each) for name, each in value.items()]
    elif isinstance(value, tuple):
        opened, closed = "(", ")"
        parts = [("", each) for each in value]
    else:
        return _literal(value)
    inner = ", ".join(f"{name}{formatted(each, 0, -(10**9))}" for name, each in parts)
    comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
    short = f"{opened}{inner}{comma}{closed}"
    if indent + beside + len(short) <= LINE:
        return short
    deeper = indent + STEP
    lines = [
        f"{' ' * deeper}{name}{formatted(each, deeper, len(name) + 1)}," for name, each in parts
    ]
    return "\n".join([opened, *lines, " " * indent + closed])


def _literal(value: object) -> str:
    """Return a number as a person writes it, and a text in double quotes.

    >>> _literal(2.0), _literal(0.002), _literal("it's")
    ('2', '2e-3', '"it\\'s"')
    """
    if isinstance(value, float):
        if value == int(value):
            return str(int(value))
        digits, _, power = f"{value:e}".partition("e")
        short = f"{float(digits):g}e{int(power)}"
        return short if abs(value) < 0.01 and float(short) == value else repr(value)
    shown = repr(value)
    if isinstance(value, str) and shown[0] == "'" and '"' not in value:
        return '"' + shown[1:-1].replace("\\'", "'") + '"'
    return shown

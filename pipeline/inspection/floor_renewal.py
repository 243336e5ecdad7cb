"""Floor renewal: another metric for a config that exists, and the floor in it; all else in its file
stays as it is, byte for byte.
"""

import ast
import tempfile
from dataclasses import replace
from pathlib import Path

from pipeline import config as configs
from pipeline.config import Config, Floor
from pipeline.errors import ConfigError
from pipeline.inspection import config_writer
from pipeline.storage import atomic_file

STEP = " " * config_writer.STEP


def write(path: Path, before: Config, after: Config) -> None:
    """Put the metric and the floor of `after` into the file of a config.

    Args:
        path: the file, which holds `before`.
        before, after: differ in metric and floor alone.

    Raises:
        ConfigError: if the file cannot be edited safely; it is then as it was. The message has
            what to write.
    """
    text = path.read_bytes().decode()
    floor = after.floor
    if floor is None:
        raise ConfigError(
            f"{path} stays as it is: no floor could be measured, as said above.\n"
            f'Set metric="{after.metric}" in it, and remove floor=.'
        )
    try:
        new = renewed(text, after.metric, floor, before.floor)
        with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
            copy = Path(scratch) / path.name
            copy.write_bytes(new.encode())
            made = configs.load(str(copy))
        if replace(made, code=after.code) != after:
            raise ValueError("the new text makes another config")
    except (ValueError, ConfigError) as error:
        value = config_writer.formatted(floor, 0, -(10**9))
        raise ConfigError(
            f"{path} stays as it is: {str(error).splitlines()[0]}.\n"
            f"Expected CONFIG = Config(…) with metric= and floor= written there. Write yourself:\n"
            f'metric="{after.metric}",\nfloor={value},'
        ) from error
    atomic_file.write(path, new.encode())


def renewed(text: str, metric: str, floor: Floor, before: Floor | None = None) -> str:
    """Return the text of a config's file with another metric and floor.

    Args:
        text: of a Python file with CONFIG = Config(…).
        metric: a name.
        floor: in place of what there is.
        before: the floor that its docstring may speak of, as `invoke inspect` wrote it.

    Raises:
        ValueError: if there is no such assignment, or no import to add Floor to.
    """
    tree = ast.parse(text)
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == ["CONFIG"]
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "Config"
    ]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        raise ValueError("it has no CONFIG = Config(…) with every field written out")
    given = {keyword.arg: keyword.value for keyword in calls[0].keywords}
    edits, added = list[tuple[int, int, str]](), ""
    for name, value in (("metric", metric), ("floor", floor)):
        shown = config_writer.formatted(value, len(STEP), len(name) + 2)
        if name in given:
            edits.append((*_span(text, given[name]), shown))
        else:
            added += f"{STEP}{name}={shown},\n"
    if added:
        edits.append(_at_the_end(text, calls[0], added))
    if not any(_imported(node, "Floor") for node in tree.body):
        places = [node for node in tree.body if _imported(node, "Config")]
        if not places:
            raise ValueError("it has no line `from pipeline.config import Config`")
        end = _span(text, places[0].names[-1])[1]  # type: ignore[attr-defined]
        edits.append((end, end, ", Floor"))
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    text = text.replace(config_writer.METRIC_UNKNOWN, "", 1)
    if before is not None:
        text = text.replace(config_writer.about_floor(before), config_writer.about_floor(floor), 1)
    return text


def _imported(node: ast.stmt, name: str) -> bool:
    return (
        isinstance(node, ast.ImportFrom)
        and node.module == "pipeline.config"
        and any(alias.name == name and alias.asname is None for alias in node.names)
    )


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    """Return where a node begins and ends, in characters; ast counts the bytes of a line."""
    lines = text.splitlines(keepends=True)

    def place(line: int, column: int) -> int:
        inside = lines[line - 1].encode()[:column].decode()
        return sum(map(len, lines[: line - 1])) + len(inside)

    return (
        place(node.lineno, node.col_offset),  # type: ignore[attr-defined]
        place(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
    )


def _at_the_end(text: str, call: ast.Call, added: str) -> tuple[int, int, str]:
    """Return the edit that adds lines before the bracket that closes a call, which has to stand in
    a line of its own, behind a comma.
    """
    closing = _span(text, call)[1] - 1
    start = text.rfind("\n", 0, closing) + 1
    last = _span(text, call.keywords[-1])[1] if call.keywords else start
    if text[start:closing].strip() or not text[last:].lstrip().startswith(","):
        raise ValueError("its Config(…) does not end with a comma and a bracket in a line below")
    return start, start, added

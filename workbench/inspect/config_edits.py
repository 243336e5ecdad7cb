"""Config edits: other values for fields of a config that exists; all else in its file stays as it
is, byte for byte.
"""

import ast
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from formats import atomic_file
from pipeline import config as configs
from pipeline.config import Config, config_files
from pipeline.errors import ConfigError
from workbench.inspect import config_writer

STEP = " " * config_writer.STEP


class Stated(NamedTuple):
    """What the text of a config says, without running it.

    Attributes:
        competition: its slug.
        assumed: `invoke inspect` took the slug from the name of a folder.
        infer_hours: as `Config.infer_hours`.
    """

    competition: str
    assumed: bool
    infer_hours: float | None


def stated(config: str = "") -> dict[str, Stated]:
    """Return what the configs in pipeline/configs/ say, by name, without those that write no slug
    into their Config(…), but for the one that is named: it is run.

    Raises:
        ConfigError: if there is no config of that name, or it cannot be run.
    """
    found = {}
    if config:
        named = configs.load(config)
        found[config] = Stated(named.competition, False, named.infer_hours)
    for name, path in config_files.named_files().items():
        try:
            text = path.read_bytes().decode()
            given = _given(_call(ast.parse(text)))
        except (OSError, ValueError, SyntaxError):
            continue  # what loads it says what is wrong
        values = {key: node.value for key, node in given.items() if isinstance(node, ast.Constant)}
        slug, hours = values.get("competition"), values.get("infer_hours")
        if isinstance(slug, str):
            assumed = config_writer.COMPETITION_ASSUMED in text
            hours = float(hours) if isinstance(hours, int | float) else None
            found[name] = Stated(slug, assumed, hours)
    return found


def put(name: str, fields: Mapping[str, Any]) -> Path:
    """Put values into the file of a config in pipeline/configs/, if any, and return the file.

    Raises:
        ConfigError: as `write` does.
    """
    path = config_files.named_files()[name]
    if fields:
        before = configs.load(name)
        write(path, before, replace(before, **fields), tuple(fields))
    return path


def write(path: Path, before: Config, after: Config, names: tuple[str, ...]) -> None:
    """Put fields of `after` into the file of a config.

    Args:
        path: the file, which holds `before`.
        before, after: differ in these fields alone.
        names: of the fields.

    Raises:
        ConfigError: if the file cannot be edited safely; it is then as it was. The message has
            what to write.
    """
    fields = {name: getattr(after, name) for name in names}
    try:
        new = edited(path.read_bytes().decode(), fields, before)
        with tempfile.TemporaryDirectory(prefix="config-") as scratch:
            copy = Path(scratch) / f"{before.name}.py"
            copy.write_bytes(new.encode())
            made = configs.load(str(copy))
        if made != after:
            raise ValueError("the new text makes another config")
    except (ValueError, SyntaxError, ConfigError) as error:
        lines = [
            f"{name}={config_writer.formatted(value, 0, -(10**9))},"
            for name, value in fields.items()
        ]
        raise ConfigError(
            f"{path} stays as it is: {str(error).splitlines()[0]}.\n"
            f"Expected CONFIG = Config(…) with {' and '.join(f'{name}=' for name in fields)}"
            " written there. Write yourself:\n" + "\n".join(lines)
        ) from error
    atomic_file.write(path, new.encode())


def edited(text: str, fields: Mapping[str, Any], before: Config | None = None) -> str:
    """Return the text of a config's file with other values of some fields.

    Args:
        text: of a Python file with CONFIG = Config(…).
        fields: the values, by name.
        before: of which competition and baseline its docstring may speak, as `invoke inspect` wrote
            it.

    Raises:
        ValueError: if there is no such assignment, or no import to add Baseline to.
    """
    tree = ast.parse(text)
    call = _call(tree)
    given = _given(call)
    edits, added = list[tuple[int, int, str]](), ""
    for name, value in fields.items():
        shown = config_writer.formatted(value, len(STEP), len(name) + 2)
        if name in given:
            edits.append((*_span(text, given[name]), shown))
        else:
            added += f"{STEP}{name}={shown},\n"
    if added:
        edits.append(_at_the_end(text, call, added))
    if "baseline" in fields and not any(_imported(node, "Baseline") for node in tree.body):
        places = [node for node in tree.body if _imported(node, "Config")]
        if not places:
            raise ValueError("it has no line `from pipeline.config import Config`")
        end = _span(text, places[0].names[-1])[1]  # type: ignore[attr-defined]
        edits.append((end, end, ", Baseline"))
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    for name, comment in config_writer.UNKNOWN.items():
        if name in fields:
            text = text.replace(comment, "", 1)
    if before is not None and "competition" in fields:
        head = '"""{}: '
        text = text.replace(head.format(before.competition), head.format(fields["competition"]), 1)
    if before is not None and before.baseline is not None and "baseline" in fields:
        old, new = map(config_writer.about_baseline, (before.baseline, fields["baseline"]))
        text = text.replace(old, new, 1)
    return text


def _call(tree: ast.Module) -> ast.Call:
    """Return the Config(…) of a config's file, which has every field written out."""
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
    return calls[0]


def _given(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


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

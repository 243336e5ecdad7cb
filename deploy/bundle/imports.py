"""Imports: which files a notebook needs, found by following what its cells import.

Nothing is run: each file is parsed. A file is needed if a cell, the config, or another needed file
imports it, or starts it as a process: a text that is exactly the name of a module, as in `[python,
"-m", "pipeline.inference.gpu_worker"]`, counts as an import.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.errors import UsageError

# What stays at home: it speaks to Kaggle, or stands in for it.
MODULE = re.compile(r"pipeline(\.[a-z]\w*)+")
HOME = frozenset({"commands", "deploy", "localkaggle", "proofs", "tasks", "tests"})


def needed(root: Path, sources: Mapping[str, str]) -> dict[str, Path]:
    """Return every file below `root` that these sources import, directly or through another.

    Args:
        root: of the repository. sources: Python text by the name that a message gives it.

    Returns:
        {path in the bundle: file}, in the order of the paths.

    Raises:
        UsageError: if a source cannot be parsed, or imports a module that is not there or stays at
            home.
    """
    found: dict[str, Path] = {}
    queue = [(where, name) for where, text in sources.items() for name in _imported(where, text)]
    while queue:
        where, name = queue.pop()
        for path in _files(root, name, where):
            inside = path.relative_to(root).as_posix()
            if inside not in found:
                found[inside] = path
                package = path.relative_to(root).parent.parts
                queue += [(inside, name) for name in _imported(inside, read(path), package)]
    return {path: found[path] for path in sorted(found)}


def read(path: Path) -> str:
    """Return a file's text. Raises `UsageError` unless it is UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}.\nSave it as UTF-8."
        ) from error


def _imported(where: str, text: str, package: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield what a source imports: `a.b` for `import a.b`, and `a.b.c` for `from a.b import c`,
    which may be no module.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"{where} is not Python: {error}.\nCorrect it, then build again."
        ) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and MODULE.fullmatch(str(node.value)):
            yield str(node.value)


def _files(root: Path, name: str, where: str) -> list[Path]:
    """Return the file of a module and those of the packages around it; none for a library's module."""
    parts = name.split(".")
    if not ((root / parts[0]).is_dir() or (root / f"{parts[0]}.py").is_file()):
        return []  # of the standard library, or installed
    if parts[0] in HOME:
        raise UsageError(
            f"{where} imports {name}, which stays at home; expected pipeline or a library of Kaggle's image.\n"
            "Remove that import, or move what it takes into pipeline/."
        )
    files: list[Path] = []
    for count in range(1, len(parts) + 1):
        folder = root.joinpath(*parts[:count])
        if (module := folder.with_suffix(".py")).is_file():
            return [*files, module]
        if not folder.is_dir():
            if count == len(parts) and files:
                return files  # a name that the package defines
            raise UsageError(
                f"{where} imports {name}, and there is no {'/'.join(parts[:count])}.py; expected a module of this project.\n"
                "Correct the import, then build again."
            )
        if (init := folder / "__init__.py").is_file():
            files.append(init)
    return files

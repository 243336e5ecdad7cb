"""Find the files that a notebook needs by following what its cells import.

Files are parsed, never run. A file is needed if a cell, the config or another needed file imports
it, or starts it as a process: a text that is exactly the name of a module, as in `[python, "-m",
"pipeline.infer.gpu_worker"]`, counts as an import.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from deploy.errors import UsageError

MODULE = re.compile(r"pipeline(\.[a-z]\w*)+")
# These stay at home: they speak to Kaggle, or stand in for it.
HOME = frozenset({"commands", "deploy", "localkaggle", "benchmarks", "tasks", "tests"})


def needed(root: Path, sources: Mapping[str, str]) -> dict[str, Path]:
    """Return every file below `root` that these sources import, directly or through another.

    Args:
        root: of the repository.
        sources: {name for messages: Python text}.

    Returns:
        {path in the bundle: file}, in the order of the paths.

    Raises:
        UsageError: if a source cannot be parsed, or imports a module that does not exist or
            stays at home.
    """
    found: dict[str, Path] = {}
    queue = [(where, *names) for where, text in sources.items() for names in _imported(where, text)]
    followed: set[tuple[str, str]] = set()
    while queue:
        where, module, member = queue.pop()
        if (module, member) in followed:
            continue
        followed.add((module, member))
        for path in _files(root, module, member, where):
            inside = path.relative_to(root).as_posix()
            if inside not in found:
                found[inside] = path
                package = Path(inside).parent.parts
                queue += [(inside, *names) for names in _imported(inside, read(path), package)]
    return {path: found[path] for path in sorted(found)}


def read(path: Path) -> str:
    """Return a file's text. Raises `UsageError` unless it is UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}.\nSave it as UTF-8."
        ) from error


@cache  # a relay builds several bundles of almost the same files
def _imported(where: str, text: str, package: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    """Return (module, member) for each import. A member is a module, a name in one, or ""."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{where} is not Python: {error}.\nFix it, then build again.") from error
    return tuple(_imports(tree, package))


def _imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and MODULE.fullmatch(str(node.value)):
            base, _, name = str(node.value).rpartition(".")
            yield base, name


def _files(root: Path, module: str, member: str, where: str) -> list[Path]:
    """Return the files of a module, of the packages around it, and of the member if it is one."""
    parts = module.split(".")
    if not ((root / parts[0]).is_dir() or (root / f"{parts[0]}.py").is_file()):
        return []  # of the standard library, or installed
    if parts[0] in HOME:
        raise UsageError(
            f"{where} imports {module}, which stays at home; expected pipeline or a library that"
            " Kaggle's image has.\nRemove that import, or move what it needs into pipeline/."
        )
    files: list[Path] = []
    for count in range(1, len(parts) + 1):
        folder = root.joinpath(*parts[:count])
        if (file := folder.with_suffix(".py")).is_file():
            return [*files, file]
        if not folder.is_dir():
            raise UsageError(
                f"{where} imports {module}, and there is no {folder.relative_to(root)}.py; expected"
                " a module of this project.\nFix the import, then build again."
            )
        if (init := folder / "__init__.py").is_file():
            files.append(init)
    if member:
        inside = root.joinpath(*parts, member)
        both = (inside.with_suffix(".py"), inside / "__init__.py")
        files += [file for file in both if file.is_file()]
    return files

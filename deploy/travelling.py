"""What travels to Kaggle: formats/ and pipeline/ whole, a run's config, and what that imports.

Files are parsed, never run.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from deploy.errors import UsageError

WHOLE = ("formats", "pipeline")
# What the notebook of a kernel needs beside these.
MORE = {
    "bench": (
        *("workbench/__init__.py", "workbench/budget.py", "workbench/benchmark/*.py"),
        *(f"workbench/plan/{name}.py" for name in ("__init__", "kept_plans", "operation_counts")),
    )
}
CONFIGS = "pipeline/configs"
# These stay at home: they speak to Kaggle, or stand in for it.
HOME = frozenset({"commands", "deploy", "localkaggle", "benchmarks", "tasks", "tests", "workbench"})


def files(root: Path, kernel: str, configs: Mapping[str, Path]) -> dict[str, Path]:
    """Return {path in the bundle: file} of all that a kernel's bundle carries, in their order.

    Args:
        root: of the repository.
        kernel: a folder of kernels/.
        configs: the file of each config that travels, by its name; of a package __init__.py.

    Raises:
        UsageError: if a config is not Python, or imports a module that does not exist or stays at
            home.
    """
    found = {
        name: path
        for pattern in (*(f"{folder}/**/*.py" for folder in WHOLE), *MORE.get(kernel, ()))
        for name, path in _sources(root, pattern)
        if not name.startswith(f"{CONFIGS}/") or name == f"{CONFIGS}/__init__.py"
    }
    for name, config in configs.items():
        package = config.name == "__init__.py"
        # All files of a package travel, also one that nothing imports.
        inside = [path for _, path in _sources(config.parent, "**/*.py")] if package else [config]
        above = config.parent.parent if package else config.parent
        for path in inside:
            place = f"{CONFIGS}/{path.relative_to(above).as_posix()}"
            found[place] = path
            _add_imported(root, found, place, path, f"the config {name}")
    return dict(sorted(found.items()))


def _add_imported(root: Path, found: dict[str, Path], place: str, path: Path, where: str) -> None:
    """Add what a file imports from this project, directly or through another file, and lacks yet.

    Args:
        place: of the file in the bundle.
        where: what names it in messages.
    """
    try:
        tree = ast.parse(read(path))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{where} is not Python: {error}.\nFix it, then build again.") from error
    package = place.split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name.split("."), "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            names = [(base, alias.name) for alias in node.names]
        else:
            continue
        for parts, member in names:
            for inside in _files(root, parts, member, where):
                below = inside.relative_to(root).as_posix()
                if below not in found:
                    found[below] = inside
                    _add_imported(root, found, below, inside, below)


def _files(root: Path, parts: list[str], member: str, where: str) -> list[Path]:
    """Return the files of a module, of the packages around it, and of the member if it is one."""
    module = ".".join(parts)
    if not ((root / parts[0]).is_dir() or (root / f"{parts[0]}.py").is_file()):
        return []  # of the standard library, or installed
    if parts[0] in HOME:
        raise UsageError(
            f"{where} imports {module}, which stays at home; expected pipeline or a library that"
            " Kaggle's image has.\nRemove that import, or move what it needs into pipeline/."
        )
    place = root.joinpath(*parts)
    if not place.is_dir() and not place.with_suffix(".py").is_file():
        raise UsageError(
            f"{where} imports {module}, and there is no {place.relative_to(root)}.py; expected a"
            " module of this project.\nFix the import, then build again."
        )
    packages = [root.joinpath(*parts[:count]) / "__init__.py" for count in range(1, len(parts) + 1)]
    ends = [place, *([place / member] if member else [])]
    possible = [*packages, *(end.with_suffix(".py") for end in ends), ends[-1] / "__init__.py"]
    return [path for path in possible if path.is_file()]


def read(path: Path) -> str:
    """Return a file's text. Raises `UsageError` unless it is UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}.\nSave it as UTF-8."
        ) from error


def _sources(root: Path, pattern: str) -> list[tuple[str, Path]]:
    """Return (path below the root, file) of the files that a pattern names, but for hidden ones."""
    named = [(path.relative_to(root).as_posix(), path) for path in sorted(root.glob(pattern))]
    return [(name, path) for name, path in named if "/." not in f"/{name}"]

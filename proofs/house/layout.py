"""Layout: which package may import which, read from the imports of every module."""

import ast
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

# A package, or a module beside the packages, imports only what stands before it. `|` stands between
# neighbours on one floor, which do not import each other. A user's own package is on no floor, and
# `configs` is the user's: both may import everything in `pipeline`.
FLOORS = {
    "pipeline": "errors storage runtime config metrics competition_metric data losses augmentation"
    " models submission artifact ensemble|warm_start session evaluation"
    " training|inference|preparation figures pages folders"
    " plan report|inspection|rehearsal|bench __main__",
    "deploy": "errors client journal project bundle kernel relay trace|setup|live",
    "localkaggle": "competitions|sessions|fault_kinds|facts|wire faults services http_handler"
    " server __main__",
    "commands": "console drawing dashboard project push_plan"
    " kaggle|local|preparation|benchmark|rehearsal|setup|doctor|watch",
    "proofs": "shared"
    " relay|kaggle|training|house competitions"
    " own|hardware|custom|scale|plan|site bench __main__",
}
MOST_MODULES, MOST_LINES = 16, 500


def modules(root: Path) -> list[Path]:
    """Return every module of the project that is no test."""
    return sorted(path for top in FLOORS for path in (root / top).rglob("*.py"))


def imports(path: Path) -> frozenset[str]:
    """Return the full name of every module that a file imports, also inside a function."""
    return _imports(path.read_text(encoding="utf-8"))


@cache  # many rules look at the same text
def _imports(text: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return frozenset(found)


def upwards(root: Path) -> list[str]:
    """Return the imports that lead to the same floor or to one above."""
    found, arrows = [], _arrows(root)
    for top, text in FLOORS.items():
        floors = [floor.split("|") for floor in text.split()]
        level = {f"{top}.{name}": place for place, floor in enumerate(floors) for name in floor}
        for (own, other), path in arrows.items():
            if level.get(other, -1) >= level.get(own, len(floors)):
                found.append(f"{path.relative_to(root)} imports {other}")
    return found


def circle(root: Path) -> list[str]:
    """Return packages that import each other in a circle, from one around to itself; or none."""
    below = defaultdict(set)
    for own, other in _arrows(root):
        below[own].add(other)
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def crowded(root: Path) -> list[tuple[int, str]]:
    """Return the number of modules of each package below a top one, the largest first."""
    count = Counter(path.parent for path in modules(root) if path.name != "__init__.py")
    folders = {path: number for path, number in count.items() if path.parent != root}
    return sorted(((n, str(path.relative_to(root))) for path, n in folders.items()), reverse=True)


def longest(root: Path) -> list[tuple[int, str]]:
    """Return the lines of each module, the longest first."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(root)}
    return sorted(((n, str(path.relative_to(root))) for path, n in lines.items()), reverse=True)


def _arrows(root: Path) -> dict[tuple[str, str], Path]:
    """Return {(package, imported package): a module of the first that imports the second}."""
    paths = [path for path in modules(root) if path.name != "__init__.py"]
    unit = {path: ".".join(path.relative_to(root).with_suffix("").parts[:2]) for path in paths}
    found: dict[tuple[str, str], Path] = {}
    for path, own in unit.items():
        used = {".".join(name.split(".")[:2]) for name in imports(path)} & set(unit.values())
        if own != "pipeline.configs":
            found |= {(own, other): path for other in used - {own}}
    return found

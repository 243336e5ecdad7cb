"""Which side may import which: they meet in commands/, in tests/ and in files, nowhere else."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = {"jax", "jaxlib", "tensorflow", "keras", "pandas", "sklearn", "matplotlib"}
CLIENT = {"kaggle", "kagglehub", "kagglesdk", "requests", "urllib3"}
ABOVE = {"commands", "tasks", "tests", "benchmarks"}
# What travels to Kaggle is of the pipeline, and Kaggle's TPU image has no client. A command of the
# Kaggle side answers in well under a second only if it starts no framework.
NEVER = {
    "pipeline": {"deploy", "localkaggle", "invoke", *CLIENT, *ABOVE},
    "deploy": {"pipeline", "localkaggle", *FRAMEWORKS, *ABOVE},
    "localkaggle": {"pipeline", "deploy", *ABOVE},
    "commands": ABOVE - {"commands"},
}


def imported(folder: str) -> set[tuple[str, str]]:
    """Return each module below a folder with the top package of each of its imports."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(name, alias.name.split(".")[0]) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((name, str(node.module).split(".")[0]))
    return found


@pytest.mark.parametrize("folder", NEVER)
def test_a_side_imports_nothing_that_it_must_not_know(folder):
    found = imported(folder)

    assert found
    assert [(name, top) for name, top in sorted(found) if top in NEVER[folder]] == []


def test_only_the_client_package_speaks_to_kaggle():
    """Every call has its credentials, timeouts and error messages."""
    found = {name for name, top in imported("deploy") if top in CLIENT}

    assert found and all(name.startswith("deploy/client/") for name in found)

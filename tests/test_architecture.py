"""The arrows of docs/design.md hold, and notebooks stay thin."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("pipeline", "deploy", "localkaggle")
MODULES = sorted(path for side in (*SIDES, "proofs") for path in (ROOT / side).rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "kernels").glob("*/notebook.py"))

# Which modules of pipeline/ each module may import: the data flows one way, and so can a reader.
LEAVES = {"errors", "config"}
MAY_IMPORT = {
    "errors": set(),
    "fields": {"errors"},
    "layout": {"errors", "fields"},
    "columns": {"errors", "layout"},
    "images": {"errors", "jpeg"},
    "jpeg": {"errors"},
    "reading": {"errors", "images"},
    "windows": set(),
    "records": {"errors", "reading"},
    "files": {"errors", "images", "layout", "reading", "records"},
    "target": LEAVES,
    "form": LEAVES | {"metrics", "submission", "table", "target"},
    "config": {"errors", "fields", "layout"},
    "table": {"errors"},
    "names": set(),
    "state": {"names"},
    "devices": LEAVES,
    "mounts": LEAVES,
    "provenance": LEAVES,
    "resume": LEAVES | {"mounts", "seal"},
    "progress": LEAVES | {"whole"},
    "augmentation": set(),
    "mixture": set(),
    "data": LEAVES | {"augmentation", "columns", "files", "layout", "records", "table", "target", "windows"},
    "backbones": LEAVES | {"mounts", "seal"},
    "model": LEAVES | {"backbones", "data"},
    "folds": LEAVES | {"data"},
    "learning_rate": LEAVES,
    "seal": set(),
    "artifact": LEAVES | {"columns", "names", "seal", "target"},
    "checkpoint": LEAVES | {"seal"},
    "executables": set(),
    "saver": set(),
    "session": set(),
    "step": LEAVES | {"backbones", "learning_rate", "mixture", "state", "target"},
    "memory": LEAVES | {"state", "step"},
    "calls": set(),
    "changes": set(),
    "loop": LEAVES
    | {
        "backbones",
        "calls",
        "changes",
        "checkpoint",
        "data",
        "learning_rate",
        "memory",
        "model",
        "names",
        "progress",
        "saver",
        "session",
        "state",
        "step",
    }
    | {"target"},
    "training": LEAVES
    | {
        "artifact",
        "backbones",
        "checkpoint",
        "data",
        "devices",
        "examples",
        "executables",
        "folds",
        "form",
        "learning_rate",
        "loop",
        "metrics",
        "model",
        "noise",
    }
    | {"target"}
    | {"progress", "provenance", "session"},
    "noise": LEAVES | {"changes", "data", "folds", "learning_rate", "loop", "memory", "whole"},
    "scaling": LEAVES | {"data", "executables", "folds", "learning_rate", "noise", "progress", "training", "whole"},
    "whole": {"errors"},
    "examples": {"errors", "whole"},
    "results": LEAVES | {"examples", "progress", "provenance", "seal", "table"},
    "quality": set(),
    "page": set(),
    "charts": {"page", "quality"},
    "answers": {"charts", "examples", "page", "quality", "results"},
    "report": LEAVES | {"answers", "charts", "examples", "figures", "page", "results", "whole"},
    "contents": {"errors", "images", "mounts", "table"},
    "features": {"columns"},
    "goal": {"contents", "errors", "features"},
    "survey": {"errors"},
    "inputs": LEAVES | {"columns", "contents", "features", "survey"},
    "gallery": LEAVES | {"contents", "files", "images", "inputs", "reading", "survey"},
    "inspection": {"contents", "errors", "features", "gallery", "goal", "inputs", "mounts", "survey"},
    "source": {"config"},
    "proposal": LEAVES
    | {"contents", "data", "files", "folds", "form", "inspection", "learning_rate", "source", "target", "whole"},
    "overview": {"charts", "contents", "features", "inspection", "page", "whole"},
    "submission": LEAVES | {"table", "whole"},
    "views": {"layout"},
    "pace": set(),
    "forward": {"data", "errors"},
    "shares": LEAVES | {"artifact", "columns", "target"},
    "inference": LEAVES
    | {"artifact", "data", "devices", "files", "form", "forward", "model", "rows", "shares", "whole"},
    "rows": {"artifact", "data", "forward", "pace", "views"},
    "metrics": {"errors"},
    "figures": LEAVES | {"data", "inference", "target"},
}
DOOR = {"client", "credentials", "exchange", "transfer"}
HEAVY = {"jax", "jaxlib", "tensorflow", "keras", "pandas", "sklearn", "matplotlib"}


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, at its top or inside a function, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; full names show the arrows"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_side_imports_another(path):
    """Model side, Kaggle side and local Kaggle meet in the tasks and in files, nowhere else."""
    own = path.relative_to(ROOT).parts[0]

    others = (set(SIDES) | {"tasks", "tasks_here", "tasks_kaggle", "console", "proofs"}) - {own}
    if own == "proofs":
        others = set()  # it measures everything, and nothing of that knows it

    assert not roots(path) & others


@pytest.mark.parametrize("path", sorted((ROOT / "pipeline").rglob("*.py")), ids=lambda path: path.stem)
def test_the_model_side_knows_no_kaggle_client(path):
    """What travels to Kaggle runs without the client, which the TPU image does not have."""
    assert not roots(path) & {"kaggle", "kagglesdk", "kagglehub", "requests", "invoke"}


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").rglob("*.py")), ids=lambda path: path.stem)
def test_the_kaggle_side_starts_no_framework(path):
    """A task answers in well under a second only if nothing heavy is imported."""
    assert not roots(path) & HEAVY


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").rglob("*.py")), ids=lambda path: path.stem)
def test_only_the_door_modules_speak_to_kaggle(path):
    """Every call goes through the client, with its credentials, transfers, timeouts and verdicts."""
    if path.stem not in DOOR:
        assert not roots(path) & {"kaggle", "kagglesdk", "requests", "urllib3"}


@pytest.mark.parametrize(
    "path", [p for p in (ROOT / "pipeline").glob("*.py") if not p.stem.startswith("__")], ids=lambda path: path.stem
)
def test_data_flows_one_way_through_the_model_side(path):
    """Training and inference meet only in the artifact; nothing points back."""
    used = {name.split(".")[1] for name in imports(path) if name.startswith("pipeline.")} - {"configs"}

    assert used <= MAY_IMPORT[path.stem]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_a_notebook_imports_calls_and_shows(path):
    """It defines nothing, loops over nothing but pictures, and stays short."""
    tree = ast.parse(path.read_text())

    defined = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Try))
    ]

    assert not defined
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.stmt)]) <= 40


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_the_first_code_cell_of_a_notebook_proves_the_accelerator(path):
    """A session without it costs a minute, not nine hours."""
    cells = [cell for cell in path.read_text().split("# %%")[1:] if not cell.startswith(" [markdown]")]

    assert "devices.prove(" in cells[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_can_run_code_from_a_file(path):
    """No pickle, no load_model, no eval: an artifact from the network stays data."""
    calls = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }

    assert not calls & {"load_model", "eval", "exec", "system", "popen"}
    assert not roots(path) & {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_one_noun_of_readable_length(path):
    """Past 400 lines a module is two."""
    assert len(path.read_text().splitlines()) <= 400
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}


def test_test_files_have_names_of_their_own():
    """pytest imports them by their name alone, and leaves out the second of two."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]

    assert sorted(names) == sorted(set(names))

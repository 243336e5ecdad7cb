"""What each side may import, and that notebooks stay thin; floors: tests/proofs/house."""

import ast
from pathlib import Path

import pytest

from proofs.house import layout

ROOT = Path(__file__).resolve().parents[1]
MODULES = layout.modules(ROOT)
NOTEBOOKS = sorted((ROOT / "kernels").glob("*/notebook.py"))
HEAVY = {"jax", "jaxlib", "tensorflow", "keras", "pandas", "sklearn", "matplotlib"}
CLIENT = {"kaggle", "kagglesdk", "requests", "urllib3"}


def parsed(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def importing(folder: str, *wanted: str) -> list[str]:
    """Return the modules below a folder that import one of these."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in sorted(layout.imports(path))
        if name.split(".")[0] in wanted
    ]


@pytest.mark.parametrize("top", ["pipeline", "deploy", "localkaggle"])
def test_no_side_imports_another(top):
    """Model side, Kaggle side and local Kaggle meet in the commands and in files, nowhere else."""
    others = {*layout.FLOORS, "tasks"} - {top}

    assert not importing(top, *others)


def test_commands_know_no_proof_and_nothing_knows_the_tasks():
    """Proofs see everything, so nothing sees them."""
    assert not importing("commands", "proofs", "tasks") + importing("proofs", "tasks")


def test_the_model_side_knows_no_kaggle_client():
    """What travels to Kaggle runs without the client, which the TPU image does not have."""
    assert not importing("pipeline", "kagglehub", "invoke", *CLIENT)


def test_the_kaggle_side_starts_no_framework():
    """A command answers in well under a second only if nothing heavy is imported."""
    assert not importing("deploy", *HEAVY)


def test_only_the_client_package_speaks_to_kaggle():
    """Every call has its credentials, timeouts and error messages."""
    found = importing("deploy", *CLIENT)

    assert found and all(line.startswith("deploy/client/") for line in found)


def test_a_package_says_what_it_is_for():
    """Who looks for the place of a change reads one screen of names."""
    rooms = [path for path in MODULES if path.name == "__init__.py"]

    assert not [path for path in rooms if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]


def test_a_module_is_named_by_what_is_in_it():
    """The house's own proof has the lengths (`tests/proofs/house`)."""
    assert not {path.stem for path in MODULES} & {"utils", "util", "common", "helpers", "misc"}


def test_every_import_of_the_project_is_by_its_full_name():
    """Full names show the arrows."""
    relative = [
        path
        for path in MODULES
        for node in parsed(path)
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert not relative


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_a_notebook_imports_calls_and_shows(path):
    """It defines nothing, loops over nothing but pictures, and stays short."""
    nodes = parsed(path)
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Try)

    assert not [node for node in nodes if isinstance(node, kinds)]
    assert len([node for node in nodes if isinstance(node, ast.stmt)]) <= 40


@pytest.mark.parametrize("name", ["train-tpu", "infer-gpu"])
def test_the_first_code_cell_of_a_notebook_proves_the_accelerator(name):
    """A session without it costs a minute, not nine hours."""
    path = ROOT / "kernels" / name / "notebook.py"
    cells = [
        cell
        for cell in path.read_text(encoding="utf-8").split("# %%")[1:]
        if not cell.startswith(" [markdown]")
    ]

    assert "devices.prove(" in cells[0]


def test_nothing_can_run_code_from_a_file():
    """No pickle, no load_model, no eval: an artifact from the network stays data."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in parsed(path)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", ""))
        in {"load_model", "eval", "exec", "system", "popen"}
    ]

    assert not calls
    assert not [
        line
        for top in layout.FLOORS
        for line in importing(top, "pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve")
    ]

"""The arrows of docs/design.md hold, and notebooks stay thin."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("pipeline", "deploy", "localkaggle")
MODULES = sorted(
    path for side in (*SIDES, "proofs", "commands") for path in (ROOT / side).rglob("*.py")
)
NOTEBOOKS = sorted((ROOT / "kernels").glob("*/notebook.py"))
# What may import what: a package, or a module that lies in none, imports only what stands before
# it. `|` stands between neighbours on one floor, which do not import each other. `configs` is the
# user's, and may import everything.
FLOORS = {
    "pipeline": "errors storage runtime config metrics data models submission artifact session training|inference figures pages "
    "report|inspection __main__",
    "deploy": "errors client journal project bundle kernel relay trace|setup",
    "localkaggle": "competitions|sessions|faults services http_handler server __main__",
    "commands": "console kaggle local",
    "proofs": "shared relay|kaggle|training|spoiled_inputs|house hostile competitions __main__",
}
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

    others = {"pipeline", "deploy", "localkaggle", "commands", "proofs", "tasks"} - {own}
    if own in ("commands", "proofs"):  # these see every side, and proofs the commands as well
        others = {"tasks"} if own == "proofs" else {"tasks", "proofs"}

    assert not roots(path) & others


@pytest.mark.parametrize(
    "path", sorted((ROOT / "pipeline").rglob("*.py")), ids=lambda path: path.stem
)
def test_the_model_side_knows_no_kaggle_client(path):
    """What travels to Kaggle runs without the client, which the TPU image does not have."""
    assert not roots(path) & {"kaggle", "kagglesdk", "kagglehub", "requests", "invoke"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy").rglob("*.py")), ids=lambda path: path.stem
)
def test_the_kaggle_side_starts_no_framework(path):
    """A task answers in well under a second only if nothing heavy is imported."""
    assert not roots(path) & HEAVY


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy").rglob("*.py")), ids=lambda path: path.stem
)
def test_only_the_client_package_speaks_to_kaggle(path):
    """Every call goes through the client, with its credentials, transfers, timeouts and verdicts."""
    if unit(path) != "deploy.client":
        assert not roots(path) & {"kaggle", "kagglesdk", "requests", "urllib3"}


@pytest.mark.parametrize("top", FLOORS)
def test_no_package_imports_one_above_it(top):
    """A reader who begins at the first floor never meets a name that is explained further up."""
    floors = [floor.split("|") for floor in FLOORS[top].split()]
    level = {f"{top}.{name}": number for number, floor in enumerate(floors) for name in floor}
    upwards = []
    for path in (
        path
        for path in MODULES
        if path.relative_to(ROOT).parts[0] == top and path.name != "__init__.py"
    ):
        own = unit(path)
        if own == "pipeline.configs":
            continue
        for other in {".".join(name.split(".")[:2]) for name in imports(path)} & set(level) - {own}:
            if level[other] >= level[own]:
                upwards.append(f"{path.relative_to(ROOT)} imports {other}")

    assert not upwards


def unit(path: Path) -> str:
    """Return the package below the top in which a module lies, or the module itself where it lies
    in none.
    """
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[:2])


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in MODULES}),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_package_has_at_most_sixteen_modules_and_says_what_it_is_for(folder):
    """Who looks for the place of a change reads one screen of names."""
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]

    assert len(modules) <= 16
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_a_notebook_imports_calls_and_shows(path):
    """It defines nothing, loops over nothing but pictures, and stays short."""
    tree = ast.parse(path.read_text())

    defined = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Try))
    ]

    assert not defined
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.stmt)]) <= 40


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_the_first_code_cell_of_a_notebook_proves_the_accelerator(path):
    """A session without it costs a minute, not nine hours."""
    cells = [
        cell for cell in path.read_text().split("# %%")[1:] if not cell.startswith(" [markdown]")
    ]

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

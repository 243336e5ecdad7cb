"""Build bundles. A bundle consists of a notebook, which contains the package, and its metadata.

The notebook is built from kernels/KERNEL/notebook.py and contains all of formats/ and pipeline/,
the run's config, and the modules that the config imports. It is written to BUILDS/KERNEL/ with its
kernel-metadata.json. Building the same commit again produces identical files.
"""

import ast
import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

from deploy import gate, models
from deploy.errors import UsageError
from deploy.project import BENCH, TRAIN, Project
from formats import atomic_file

SLUG_AT_MOST = 50  # Kaggle's limit in characters
REHEARSED = "rehearsed.json"
LISTED = ("dataset_sources", "model_sources")  # sources that a kernel-metadata.json can list

WHOLE = ("formats", "pipeline")
# Additional files for a kernel's notebook.
MORE = {
    BENCH: (
        *(f"workbench/{name}.py" for name in ("__init__", "budget", "benchmark/__init__")),
        *(
            f"workbench/benchmark/{name}.py"  # the benchmark's page is only built locally
            for name in ("command", "grid", "images", "measurement", "training")
        ),
    )
}
CONFIGS = "pipeline/configs"
# Packages that are not included in bundles.
HOME = frozenset({"commands", "deploy", "localkaggle", "benchmarks", "tasks", "tests", "workbench"})

HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
# The package is kept out of the working directory, which becomes the run's output.
ENTER = """import os
import sys
import tempfile
from pathlib import Path

working = Path.cwd()
os.chdir(tempfile.mkdtemp(prefix="package-"))  # not part of the run's output
sys.path.insert(0, os.getcwd())
for folder in {folders}:
    Path(folder).mkdir(parents=True, exist_ok=True)"""
NOTEBOOK = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Code:
    """The code and settings of a kernel, which are the same for every user who pushes it.

    Attributes:
        identity: the names of the kernel, config and competition, and the options of a benchmark.
        modules: {path: text} of the files that the notebook writes before running its own cells.
        git_dirty: whether the included files differ from `git_commit`, or there is no commit.
    """

    identity: Mapping[str, Any]
    modules: Mapping[str, str] = field(repr=False)
    cells: Sequence[Mapping[str, Any]] = field(repr=False)
    metadata: Mapping[str, Any]
    git_commit: str
    git_dirty: bool

    @property
    def kernel(self) -> str:
        return str(self.identity["kernel"])

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the code, the config and the sources.

        It does not depend on the owner, the artifact or the machine.
        """
        metadata = {k: v for k, v in self.metadata.items() if k not in gate.machine("")}
        parts = {"modules": self.modules, "cells": self.cells, "metadata": metadata}
        return _sha256({**self.identity, **parts})


@dataclass(frozen=True)
class Inputs:
    """Additional inputs for a run.

    Attributes:
        expect: {"run_id", "weights_sha256"} to use an artifact, {"members"} to use an ensemble
            (see `deploy.output.expected`), or the checkpoint to resume training from (see
            `deploy.output.SavedProgress.expect`). {} starts a new training run.
        handoff: how the expected files are mounted. "dataset" mounts a dataset, "kernel" mounts a
            kernel's output, and "" uses the project's `handoff`.
        handles: {kernel: handle} for kernels whose handle differs from `address`, which does not
            affect the SHA-256.
        kernel_sources: other kernels whose output is mounted.
    """

    expect: Mapping[str, Any] = field(default_factory=dict)
    handoff: str = ""
    handles: Mapping[str, str] = field(default_factory=dict)
    kernel_sources: Sequence[str] = ()


@dataclass(frozen=True)
class Bundle:
    """A notebook and its metadata, ready to be pushed.

    `session_seconds` is the length of a shortened session, or None. The notebook reads it, but it
    is not covered by the SHA-256.
    """

    folder: Path
    code: Code
    metadata: Mapping[str, Any]
    expect: Mapping[str, Any] = field(repr=False)
    session_seconds: int | None = None

    @property
    def kernel(self) -> str:
        return self.code.kernel

    @property
    def handle(self) -> str:
        return str(self.metadata["id"])

    @property
    def notebook(self) -> Path:
        """Path to the notebook.

        A push sends the contents of `text`, so later changes to the file have no effect.
        """
        return self.folder / f"{self.kernel}.ipynb"

    @property
    def size(self) -> int:
        return len(self.text.encode())

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the owner and everything that affects the run. Excludes the URL and the
        commit.
        """
        named = {**self.metadata, "id": self.handle.partition("/")[0], "title": ""}
        return _sha256({"code": self.code.sha256, "expect": self.expect, "metadata": named})

    @cached_property
    def text(self) -> str:
        from nbformat.v4 import new_code_cell, new_markdown_cell

        described = {
            **self.code.identity,
            "machine_shape": self.metadata.get("machine_shape", ""),
            "expect": self.expect,
            # Whether the last cell writes outputs.json. If so, pulls of complete runs require it.
            "sealed": any("provenance.seal(" in cell["source"] for cell in self.code.cells),
            "git_commit": self.code.git_commit,
            "git_dirty": self.code.git_dirty,
            "bundle_sha256": self.sha256,
            "session_seconds": self.session_seconds,
        }
        changes = " with local changes" if self.code.git_dirty else ""
        about = (
            f"# {self.metadata['title']}\n\nBuilt from commit `{self.code.git_commit or 'none'}`"
            f"{changes}; bundle `{self.sha256}`.\n\n"
            "The collapsed cells below write the `pipeline` package to a temporary folder."
        )
        folders = sorted({str(PurePosixPath(path).parent) for path in self.code.modules})
        hidden = [
            ENTER.format(folders=folders),
            *(f"%%writefile {path}\n{text}" for path, text in self.code.modules.items()),
            "os.chdir(working)",
            f"%%writefile bundle.json\n{json.dumps(described, indent=2, sort_keys=True)}",
        ]
        cells = [new_code_cell(source, metadata=HIDDEN) for source in hidden]
        cells = [new_markdown_cell(about), *cells, *self.code.cells]
        cells = [{**cell, "id": f"cell-{place}"} for place, cell in enumerate(cells)]
        notebook = {"cells": cells, "metadata": NOTEBOOK, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _sha256(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def address(owner: str, competition: str, what: str) -> str:
    """Return OWNER/COMPETITION-WHAT, the handle of one of our notebooks or datasets.

    The slug is truncated to Kaggle's limit. For a notebook, `what` is its kernel; if Kaggle has
    renamed the notebook, use `Records.handle` instead. For a dataset, `what` is "artifact",
    "checkpoint" or the result of `member`.

    >>> address("ann", "digits", "train-tpu")
    'ann/digits-train-tpu'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", competition.lower()).strip("-")
    room = SLUG_AT_MOST - len(what) - 1
    if len(plain) > room:
        # Otherwise, two competitions that only differ in the year would share a kernel.
        mark = hashlib.sha256(plain.encode()).hexdigest()[:4]
        plain = plain[: room - 5].strip("-") + "-" + mark
    return f"{owner}/{plain}-{what}"


def member(weights_sha256: str) -> str:
    """Return the suffix that the function `address` appends for an ensemble member's dataset.

    >>> member("0123456789abcdef")
    'member-01234567'
    """
    return f"member-{weights_sha256[:8]}"


def title(handle: str) -> str:
    """Return the title from which Kaggle derives this handle.

    >>> title("ann/digits-train-tpu")
    'Digits Train Tpu'
    """
    return handle.partition("/")[2].replace("-", " ").title()


def read(project: Project, kernel: str, others: Iterable[str] = ()) -> Code:
    """Read a kernel's code, including the configs named in `others`.

    For an ensemble, `others` are the configs of its members. Configs that no longer exist are
    skipped, because the artifact contains their values.

    Raises:
        UsageError: if the kernel does not exist, or a file cannot be included.
    """
    import jupytext

    folder = (project.kernels or project.root / "kernels") / kernel
    notebook, described = folder / "notebook.py", folder / "kernel-metadata.json"
    if not notebook.is_file() or not described.is_file():
        names = sorted(path.parent.name for path in folder.parent.glob("*/notebook.py"))
        raise UsageError(
            f"There is no kernel {kernel!r} in {folder.parent}; expected one of:"
            f" {', '.join(names)}.\nCorrect --kernel, or add the kernel's two files to that folder."
        )
    named, name = configs(project.root), project.name
    theirs = {other: named[other] for other in others if other in named}
    ours = {name: named.get(project.config, Path(project.config))}
    files = _travelling(project.root, kernel, {**theirs, **ours})
    identity = {"kernel": kernel, "config": name, "competition": project.competition}
    return Code(
        {**identity, "options": dict(project.options)},
        # %%writefile rejects empty cells, and adds a newline to each file.
        {place: path.read_text("utf-8").rstrip("\n") or "# empty" for place, path in files.items()},
        [{**cell, "id": ""} for cell in jupytext.read(notebook, fmt="py:percent").cells],
        read_metadata(described),
        *_commit(project.root, [*files.values(), notebook, described]),
    )


def build(project: Project, code: Code, inputs: Inputs, owner: str) -> Bundle:
    """Build a kernel's bundle, and write it to the kernel's folder in `project.builds`.

    Nothing is written if the bundle does not pass the checks in deploy/gate.py.
    """
    metadata = _completed(project, code, inputs, owner)
    made = Bundle(project.builds / code.kernel, code, metadata, inputs.expect)
    offline = not code.kernel.startswith("train") and code.kernel != BENCH
    gate.check(made.text, metadata, offline=offline)
    atomic_file.write(made.notebook, made.text.encode())
    described = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
    atomic_file.write(made.folder / "kernel-metadata.json", described.encode())
    return made


def read_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = {**{kind: [] for kind in LISTED}, **json.loads(path.read_bytes())}
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} is not a JSON object: {error}.\nFix the file.") from error
    for kind in LISTED:
        if not isinstance(metadata[kind], list) or {*map(type, metadata[kind])} - {str}:
            raise UsageError(f"{path}: {kind} is not a list of quoted names.\nFix the file.")
    if wrong := sorted({"id", "title", "competition_sources", "kernel_sources"} & metadata.keys()):
        raise UsageError(f"{path} sets {', '.join(wrong)}, which the bundler adds.\nRemove them.")
    return metadata


def _completed(project: Project, code: Code, inputs: Inputs, owner: str) -> dict[str, Any]:
    kernel, expect, listed = code.kernel, inputs.expect, code.metadata["dataset_sources"]
    of = partial(address, owner, project.competition)
    handle = inputs.handles.get(kernel, of(kernel))
    infers, trains = kernel.startswith("infer"), kernel.startswith("train")
    members = [of(member(one["weights_sha256"])) for one in expect.get("members", ())]
    mounted, outputs = members, list(inputs.kernel_sources)
    if expect and (inputs.handoff or project.handoff) == "kernel":
        if members:
            raise UsageError(
                "handoff='kernel' only supports a single model, because a kernel's output is from"
                " its last run.\nSet handoff='dataset' in the config, then publish the members."
            )
        outputs.insert(0, inputs.handles.get(TRAIN, of(TRAIN)) if infers else handle)
    elif expect and not members:
        mounted = [of("artifact" if infers else "checkpoint")]
    for needs in project.needs if trains else ():
        if not re.fullmatch("[^/~.][^/]*/[^/]+", needs):  # a local path
            raise UsageError(
                f"pretrained in the config starts with {needs}. This is a path on this machine,"
                f" and {kernel} cannot mount local paths. Expected owner/slug/path for a file in a"
                " dataset, or owner/model/framework/variation/version for a Kaggle model.\nSet it"
                " to the model, and rehearse with that folder instead:\n"
                "invoke dry-run --model owner/model/framework/variation/version=DIR"
            )
        if not any(f"{name}/".startswith(f"{needs}/") for name in listed):  # nor a version of it
            mounted.append(needs)
    mounted += listed
    networks = [*code.metadata["model_sources"], *(project.models if trains else ())]
    if trains:  # even if it resumes, because folds that have not begun start from init_from
        mounted += project.earlier.values()
    shape = project.machine_shape if kernel in (TRAIN, BENCH) else ""
    return {
        **code.metadata,
        **(gate.machine(shape) if shape else {}),
        "id": handle,
        "title": title(handle),
        "code_file": f"{kernel}.ipynb",
        "competition_sources": [project.competition] if project.mounts else [],
        "dataset_sources": list(dict.fromkeys(mounted)),
        "kernel_sources": list(dict.fromkeys(outputs)),
        "model_sources": list(dict.fromkeys(map(models.spelled, networks))),
    }


def configs(root: Path) -> dict[str, Path]:
    files = {path.stem: path for path in (root / CONFIGS).glob("[!_.]*.py")}
    packages = {path.parent.name: path for path in (root / CONFIGS).glob("[!_.]*/__init__.py")}
    return dict(sorted({**files, **packages}.items()))


def _travelling(root: Path, kernel: str, configs: Mapping[str, Path]) -> dict[str, Path]:
    """Return {path in the bundle: file} for all files in a kernel's bundle, sorted by path.

    Files are parsed but never executed. `configs` is {name: file} for the configs to include.
    """
    patterns = (*(f"{folder}/**/*.py" for folder in WHOLE), *MORE.get(kernel, ()))
    found = {
        place: path
        for pattern in patterns
        for place, path in _sources(root, pattern).items()
        if not place.startswith(f"{CONFIGS}/") or place == f"{CONFIGS}/__init__.py"
    }
    unread: dict[str, Path] = {}
    for config in configs.values():
        own = {config.name: config}
        if config.name == "__init__.py":  # include all its files, even if nothing imports them
            own = _sources(config.parents[1], f"{config.parent.name}/**/*.py")
        unread |= {f"{CONFIGS}/{place}": path for place, path in own.items()}
    while unread:
        place, path = unread.popitem()
        found[place] = path
        imported = _imported(root, place, path)
        unread |= {inside: file for inside, file in imported.items() if inside not in found}
    return dict(sorted(found.items()))


def _imported(root: Path, place: str, path: Path) -> dict[str, Path]:
    """Return {path in the bundle: file} for the project's modules that a file imports."""
    package, names = place.rpartition("/")[0].replace("/", "."), set()
    try:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), package)
                names |= {f"{module}.{alias.name}" for alias in node.names}
    except (SyntaxError, ValueError, ImportError) as error:  # or invalid UTF-8, or .. above root
        raise UsageError(f"{path} is not valid Python: {error}.\nFix it, then rebuild.") from error
    for name in names:
        if name.partition(".")[0] in HOME:
            raise UsageError(
                f"{path} imports {name}, which is not available on Kaggle.\nMove the required code"
                " to pipeline/, or remove the import."
            )
    # Include parent packages. All other modules are installed or in the standard library.
    folders = {each for name in names for each in accumulate(name.split("."), "{}/{}".format)}
    files = {f"{folder}{end}" for folder in folders for end in (".py", "/__init__.py")}
    return {file: root / file for file in files if (root / file).is_file()}


def _sources(root: Path, pattern: str) -> dict[str, Path]:
    # Hidden files are skipped.
    found = {path.relative_to(root).as_posix(): path for path in sorted(root.glob(pattern))}
    return {place: path for place, path in found.items() if "/." not in f"/{place}"}


def _commit(root: Path, paths: Iterable[Path]) -> tuple[str, bool]:
    """Return the current commit, and whether the files differ from it.

    If git is not installed or there is no commit, the commit is "" and the files are reported as
    different.
    """

    def git(*words: str) -> "subprocess.CompletedProcess[str]":
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True)  # noqa: S603

    files = [str(path.resolve()) for path in paths]
    try:  # ignored files are included in bundles, but not in commits
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--ignored", "--", *files)
    except OSError:  # git is not installed
        return "", True
    commit = "" if head.returncode else head.stdout.strip()
    return commit, bool(not commit or changed.returncode or changed.stdout)


def remember_rehearsal(runs: Path, code_sha256: str, how: str) -> None:
    """Record when and how a bundle was rehearsed, and what was skipped.

    `code_sha256` is the SHA-256 of the bundle that ran, whose files may have changed since.
    """
    known = json.dumps(_rehearsals(runs) | {code_sha256: how}, indent=1)
    atomic_file.write(runs / REHEARSED, known.encode())


def how_rehearsed(runs: Path, bundle: Bundle) -> str:
    return _rehearsals(runs).get(bundle.code.sha256, "")


def _rehearsals(runs: Path) -> dict[str, str]:
    path = runs / REHEARSED
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}

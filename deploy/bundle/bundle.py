"""Bundle: one notebook with the package inside it, and its kernel-metadata.json.

Reads  kernels/<kernel>/notebook.py and kernel-metadata.json, one config, and what these import
Gives  <out>/<kernel>/<kernel>.ipynb and kernel-metadata.json: what is pushed, and nothing else

Code and notebook are one version, so nothing has to be attached that could be another one. The same
commit gives the same bytes. What the notebook imports travels (`deploy.bundle.imports`); everything
else stays at home.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from deploy.bundle import gate, imports
from deploy.errors import UsageError, writing

ROOT = Path(__file__).resolve().parents[2]
SLUG_AT_MOST = 50  # characters, Kaggle's limit
# A dataset, or one version of it.
HANDLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}/[a-z0-9][a-z0-9-]{1,99}(/[0-9]{1,9})?")
HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
NOTEBOOK = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Bundle:
    """What `build` made.

    Attributes:
        handle: owner/slug on Kaggle. folder: holds the two files. metadata: as in
            kernel-metadata.json.
        sha256: of all that decides what the run does; the commit is not part of it.
        git_dirty: the files that travel are not those of `git_commit`, or there is no commit.
        size: bytes of the notebook.
    """

    kernel: str
    handle: str
    folder: Path
    notebook: Path
    metadata: Mapping[str, Any]
    sha256: str
    git_commit: str
    git_dirty: bool
    size: int


def kernel_handle(owner: str, competition: str, kernel: str) -> str:
    """Return `<owner>/<competition>-<kernel>`; a competition's long name is cut to fit Kaggle's 50
    characters.

    >>> kernel_handle("ann", "digits", "train-tpu")
    'ann/digits-train-tpu'
    """
    return f"{owner}/{_slug(competition, kernel)}"


def dataset_handle(owner: str, competition: str) -> str:
    """Return the handle of the dataset that carries the artifact.

    >>> dataset_handle("ann", "digits")
    'ann/digits-artifact'
    """
    return f"{owner}/{_slug(competition, 'artifact')}"


def checkpoint_handle(owner: str, competition: str) -> str:
    """Return the handle of the dataset that carries a checkpoint to the next session, where the
    output of the last one cannot.

    >>> checkpoint_handle("ann", "digits")
    'ann/digits-checkpoint'
    """
    return f"{owner}/{_slug(competition, 'checkpoint')}"


def title(handle: str) -> str:
    """Return the title whose slug is that of the handle: Kaggle makes the address from the title.

    >>> title("ann/digits-train-tpu")
    'Digits Train Tpu'
    """
    return handle.partition("/")[2].replace("-", " ").title()


def _slug(competition: str, suffix: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", competition.lower()).strip("-")
    room = SLUG_AT_MOST - len(suffix) - 1
    if len(plain) > room:
        # Two competitions that differ only in the year would otherwise share a kernel.
        mark = hashlib.sha256(plain.encode()).hexdigest()[:4]
        plain = plain[: room - 5].strip("-") + "-" + mark
    return f"{plain}-{suffix}"


def build(
    kernel: str,
    *,
    config: str,
    competition: str,
    owner: str,
    out: Path,
    root: Path = ROOT,
    handoff: str = "dataset",
    dataset: str | None = None,
    expect: Mapping[str, Any] | None = None,
    kernels: Path | None = None,
    needs: str = "",
) -> Bundle:
    """Build the bundle of one kernel.

    Args:
        kernel: a folder of `kernels`, for example train-tpu. One whose name starts with `infer`
            consumes an artifact.
        config: a name in pipeline/configs/, or the path of a .py file, which then travels as
            pipeline/configs/<stem>.py.
        competition, owner: slugs on Kaggle.
        out: the bundle comes into `out/<kernel>/`.
        root: of the repository. kernels: default `root/kernels`.
        handoff: how what it expects comes to it: as a "dataset", or as the output of the train
            "kernel".
        dataset: its handle; default that of `dataset_handle`, for a training that of
            `checkpoint_handle`.
        expect: {"run_id", "weights_sha256"} of the artifact, needed to consume one; or what a
            training goes on from (`deploy.kernel.saved_progress.Left.expect`), empty for one that
            begins.
        needs: owner/slug of a dataset that a training reads, which its kernel-metadata.json has to
            list; "": none.

    Raises:
        UsageError: if a name is wrong or a gate refuses the bundle (deploy/bundle/gate.py). Nothing
            is written then.
        DiskError: if `out` cannot be written.
    """
    import jupytext

    source = (kernels or root / "kernels") / kernel
    if not (source / "notebook.py").is_file() or not (source / "kernel-metadata.json").is_file():
        there = (
            ", ".join(sorted(path.parent.name for path in source.parent.glob("*/notebook.py")))
            or "none"
        )
        raise UsageError(
            f"There is no kernel {kernel!r} in {source.parent}; expected one of: {there}.\n"
            "Correct --kernel, or add notebook.py and kernel-metadata.json there."
        )
    consumes = kernel.startswith("infer")
    wanted = {"weights_sha256"} if consumes else {"checkpoint", "files"} if expect else set()
    if not wanted <= set(expect or {}) or (
        expect and not consumes and not kernel.startswith("train")
    ):
        raise UsageError(
            f"{kernel}: expect has {', '.join(expect or {}) or 'nothing'}; a kernel that consumes an artifact needs run_id and"
            " weights_sha256, a training takes the checkpoint and files that it goes on from, and no other takes any.\n"
            "Pull a finished training first: invoke pull"
        )
    handle = kernel_handle(owner, competition, kernel)
    own = [
        {"cell_type": cell.cell_type, "metadata": dict(cell.metadata), "source": cell.source}
        for cell in jupytext.read(source / "notebook.py", fmt="py:percent").cells
    ]
    chosen = _config(root, config)
    files = _needed(
        root,
        chosen,
        {f"{kernel}/notebook.py": (source / "notebook.py").read_text(encoding="utf-8")},
    )
    # %%writefile refuses an empty cell, and ends each file with one newline.
    modules = {name: imports.read(path).rstrip("\n") or "# empty" for name, path in files.items()}
    metadata = _metadata(source / "kernel-metadata.json", handle, competition)
    listed = metadata["dataset_sources"]
    if (
        needs
        and kernel.startswith("train")
        and not any(f"{name}/".startswith(f"{needs}/") for name in listed)
    ):
        raise UsageError(
            f"The config reads weights from the dataset {needs}, and {kernel} mounts {', '.join(listed) or 'no dataset'}; expected {needs}.\n"
            f'Write "dataset_sources": ["{needs}"] into {source / "kernel-metadata.json"}, or correct pretrained in the config.'
        )
    if expect and handoff == "dataset":
        default = dataset_handle if consumes else checkpoint_handle
        metadata["dataset_sources"] = [dataset or default(owner, competition), *listed]
    elif expect and handoff == "kernel":
        metadata["kernel_sources"] = [
            kernel_handle(owner, competition, "train-tpu") if consumes else handle
        ]
    elif expect:
        raise UsageError(
            f"handoff={handoff!r} cannot work: expected 'dataset' or 'kernel'.\nCorrect it in the config."
        )
    metadata["code_file"] = f"{kernel}.ipynb"

    identity = {
        "kernel": kernel,
        "config": chosen.stem,
        "competition": competition,
        "expect": dict(expect or {}),
    }
    covered = {**identity, "modules": modules, "cells": own, "metadata": metadata}
    sha256 = hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()
    commit, dirty = _commit(
        root, [*files.values(), source / "notebook.py", source / "kernel-metadata.json"]
    )
    sealed = any(
        "provenance.seal(" in cell["source"] for cell in own
    )  # then a pull can ask for the list that it writes
    provenance = {
        **identity,
        "sealed": sealed,
        "git_commit": commit,
        "git_dirty": dirty,
        "bundle_sha256": sha256,
    }

    head = f"# {metadata['title']}\n\nBuilt from commit `{commit or 'none'}`{' with local changes' if dirty else ''}; bundle `{sha256}`.\n\n"
    cells = [
        _cell(
            "markdown",
            head + "The collapsed cells below write the package `pipeline` beside this notebook.",
        ),
        _cell("code", _folders(modules), HIDDEN),
        *(_cell("code", f"%%writefile {path}\n{text}", HIDDEN) for path, text in modules.items()),
        _cell(
            "code",
            "%%writefile bundle.json\n" + json.dumps(provenance, indent=2, sort_keys=True),
            HIDDEN,
        ),
        *(_cell(cell["cell_type"], cell["source"], cell["metadata"]) for cell in own),
    ]
    for place, cell in enumerate(cells):
        cell["id"] = hashlib.sha256(f"{place} {cell['source']}".encode()).hexdigest()[:12]
    notebook = {"cells": cells, "metadata": NOTEBOOK, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    gate.check(notebook, metadata, size=len(text.encode()), offline=consumes)

    folder = out / kernel
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{kernel}.ipynb").write_text(text, encoding="utf-8", newline="\n")
        described = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
        (folder / "kernel-metadata.json").write_text(described, encoding="utf-8", newline="\n")
    return Bundle(
        kernel,
        handle,
        folder,
        folder / f"{kernel}.ipynb",
        metadata,
        sha256,
        commit,
        dirty,
        len(text.encode()),
    )


def _needed(root: Path, config: Path, cells: Mapping[str, str]) -> dict[str, Path]:
    """Return {path in the notebook: file} of what the cells and the config import, and of the
    config.
    """
    place = f"pipeline/configs/{config.stem}.py"
    package = {"pipeline.configs": "import pipeline.configs"}  # which finds the config
    files = imports.needed(root, {**cells, str(config): imports.read(config), **package}) | {
        place: config
    }
    return {name: files[name] for name in sorted(files)}


def _config(root: Path, config: str) -> Path:
    """Return the file of a config, which travels as pipeline/configs/<stem>.py."""
    package = root / "pipeline"
    if not (package / "__init__.py").is_file():
        raise UsageError(
            f"{package} is not a package; expected pipeline/__init__.py there.\nGive the repository's root."
        )
    configs = {path.stem: path for path in sorted((package / "configs").glob("[!_.]*.py"))}
    chosen = configs.get(config, Path(config))
    if (
        chosen.suffix != ".py"
        or not chosen.is_file()
        or not re.fullmatch(r"[a-z][a-z0-9_]*", chosen.stem)
    ):
        raise UsageError(
            f"--config {config!r}: there is no such config. Expected one of {', '.join(configs)}, or the path of a .py"
            " file whose name is lower-case letters, digits and underscores.\n"
            "Correct the name, or copy pipeline/configs/digits.py and edit it."
        )
    return chosen


def _metadata(path: Path, handle: str, competition: str) -> dict[str, Any]:
    try:
        metadata = json.loads(imports.read(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}.\nCorrect that line.") from error
    if not isinstance(metadata, dict):
        raise UsageError(
            f"{path} holds {type(metadata).__name__}; expected a JSON object.\nSee kernels/train-tpu/."
        )
    given = {"id", "title", "competition_sources", "kernel_sources"} & set(metadata)
    if given:
        raise UsageError(
            f"{path} sets {', '.join(sorted(given))}, which the bundler adds.\nRemove them there."
        )
    datasets = metadata.get("dataset_sources", [])
    if not isinstance(datasets, list) or not all(
        isinstance(name, str) and HANDLE.fullmatch(name) for name in datasets
    ):
        raise UsageError(
            f"{path} sets dataset_sources to {json.dumps(datasets)[:200]}; expected a list of datasets by owner/slug, as"
            ' ["keras/weights"].\nCorrect it there.'
        )
    return {
        **metadata,
        "id": handle,
        "title": title(handle),
        "competition_sources": [competition],
        "dataset_sources": datasets,
        "kernel_sources": [],
    }


def _folders(modules: Mapping[str, str]) -> str:
    folders = sorted({str(PurePosixPath(path).parent) for path in modules})
    return "\n".join(
        [
            "import sys",
            "from pathlib import Path",
            "",
            "sys.dont_write_bytecode = True  # the outputs hold sources only",
            *(f'Path("{folder}").mkdir(parents=True, exist_ok=True)' for folder in folders),
        ]
    )


def _cell(kind: str, source: str, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": dict(metadata or {}), "source": source}
    return {**cell, "outputs": [], "execution_count": None} if kind == "code" else cell


def _commit(root: Path, paths: list[Path]) -> tuple[str, bool]:
    """Return the commit, and whether what travels differs from it; ("", True) where git knows
    nothing of `root`.
    """

    def git(*arguments: str) -> str | None:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)  # noqa: S603 - fixed words
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git on this machine is as good as no commit
        return done.stdout.strip() if done.returncode == 0 else None

    names = [str(path.resolve()) for path in paths]
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--", *names)
    known = git("ls-files", "--", *names)  # an ignored file travels too, and no commit holds it
    whole = known is not None and len(known.splitlines()) == len(set(names))
    return commit or "", not commit or changed is None or bool(changed) or not whole

"""Build a bundle: one notebook with the package inside it, and its kernel-metadata.json.

Comes in: kernels/<kernel>/notebook.py and kernel-metadata.json, a config, and what travels with it
(`deploy.travelling`). Goes out: <out>/<kernel>/<kernel>.ipynb and kernel-metadata.json.

Code and notebook are one version, so that they always match. The same commit gives the same bytes.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from deploy import kernel_metadata, push_rules, travelling
from deploy.errors import UsageError
from formats.errors import writing

ROOT = Path(__file__).resolve().parents[1]
SLUG_AT_MOST = 50  # characters, Kaggle's limit
HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
# What is in the working directory becomes output, which Kaggle lists and every pull downloads.
ENTER = """import os
import sys
import tempfile
from pathlib import Path

working = Path.cwd()
os.chdir(tempfile.mkdtemp(prefix="package-"))  # the package is no output of the run
sys.path.insert(0, os.getcwd())"""
BACK = "os.chdir(working)"
NOTEBOOK = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Bundle:
    """What `build` made.

    Attributes:
        handle: owner/slug on Kaggle.
        folder: of the two files.
        metadata: as in kernel-metadata.json.
        sha256: of all that decides what the run does; the commit is not part of it.
        code_sha256: of code and config alone, the same for every owner and artifact.
        git_dirty: the files that travel differ from those of `git_commit`, or there is no commit.
        text: of the notebook, as the gate checked it; a push sends this, not what the file holds
            by then.
    """

    kernel: str
    handle: str
    folder: Path
    notebook: Path
    metadata: Mapping[str, Any]
    sha256: str
    code_sha256: str
    git_commit: str
    git_dirty: bool
    text: str = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the notebook."""
        return len(self.text.encode())


def kernel_handle(owner: str, competition: str, kernel: str) -> str:
    """Return `<owner>/<competition>-<kernel>`, its slug cut to Kaggle's 50 characters.

    >>> kernel_handle("ann", "digits", "train-tpu")
    'ann/digits-train-tpu'
    """
    return f"{owner}/{_slug(competition, kernel)}"


def dataset_handle(owner: str, competition: str, what: str = "artifact") -> str:
    """Return the handle of the dataset that carries the artifact, or something else.

    >>> dataset_handle("ann", "digits")
    'ann/digits-artifact'
    """
    return f"{owner}/{_slug(competition, what)}"


def member_handle(owner: str, competition: str, weights_sha256: str) -> str:
    """Return the handle of the dataset that carries a member of an ensemble, and no other.

    >>> member_handle("ann", "digits", "0123456789abcdef")
    'ann/digits-member-01234567'
    """
    return f"{owner}/{_slug(competition, f'member-{weights_sha256[:8]}')}"


def checkpoint_handle(owner: str, competition: str) -> str:
    """Return the handle of the dataset that carries a checkpoint to the next session.

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
    expect: Mapping[str, Any] | None = None,
    kernels: Path | None = None,
    needs: str = "",
    first_stage: str = "",
    handles: Mapping[str, str] = {},
    more: Mapping[str, Sequence[str]] = {},
    machine_shape: str = "",
    mounts: bool = True,
    options: Mapping[str, str] = {},
) -> Bundle:
    """Build the bundle of one kernel.

    Args:
        kernel: a folder of `kernels`, as train-tpu. One that starts with `infer` needs an artifact.
        config: a name in pipeline/configs/ (of a file or a package), or the path of a .py file.
        competition: its slug on Kaggle.
        owner: the user's name on Kaggle.
        out: the bundle is written to `out/<kernel>/`.
        root: of the repository.
        handoff: where the expected files come from: a "dataset", or the output of a "kernel".
        expect: {"run_id", "weights_sha256"} of the artifact; {"members"} of an ensemble
            (`deploy.ensemble_file.expected`), whose configs travel, too; or what a training
            resumes from (`deploy.saved_progress.SavedProgress.expect`), empty for a new one.
        kernels: by default `root/kernels`.
        needs: owner/slug of a dataset that a training reads; "": none.
        first_stage: dataset with the weights that a training begins with, which is mounted, too;
            "": none.
        handles: {kernel: its address}, where that is not `kernel_handle`'s; no part of the sha256.
        more: handles that are mounted, too: {"kernel_sources": […], "dataset_sources": […]}.
        machine_shape: Kaggle's name of a machine in place of the kernel's own; "": its own.
        mounts: whether it mounts the competition.
        options: that the notebook reads, as those of a benchmark.

    Raises:
        UsageError: if a name is wrong or the gate refuses the bundle (deploy/push_rules.py).
            Nothing is written then.
        DiskError: if `out` cannot be written.
    """
    import jupytext

    source = (kernels or root / "kernels") / kernel
    if not (source / "notebook.py").is_file() or not (source / "kernel-metadata.json").is_file():
        names = sorted(path.parent.name for path in source.parent.glob("*/notebook.py"))
        raise UsageError(
            f"There is no kernel {kernel!r} in {source.parent}; expected one of:"
            f" {', '.join(names) or 'none'}.\n"
            "Correct --kernel, or add notebook.py and kernel-metadata.json there."
        )
    expect = dict(expect or {})
    infers, trains = kernel.startswith("infer"), kernel.startswith("train")
    online = trains or kernel.startswith("bench")
    members = expect.get("members", []) if infers else []
    wanted = ["checkpoint", "files"] if expect else []
    if infers:
        wanted = ["members" if members else "weights_sha256"]
    if not set(wanted) <= set(expect) or (expect and not infers and not trains):
        raise UsageError(
            f"{kernel}: expect has {', '.join(expect) or 'nothing'}. An infer kernel needs run_id"
            " and weights_sha256, a train kernel may have the checkpoint and files to resume from,"
            " and any other kernel has none.\nPull a complete training first:\ninvoke pull"
        )
    usual = kernel_handle(owner, competition, kernel)
    handle = handles.get(kernel, usual)
    own = [
        {"cell_type": cell.cell_type, "metadata": dict(cell.metadata), "source": cell.source}
        for cell in jupytext.read(source / "notebook.py", fmt="py:percent").cells
    ]
    name, chosen = _config(root, config)
    # Of a config that is gone the artifact says all; only its own functions would be missed.
    theirs, known = {each["config"] for each in members} - {name}, _configs(root)
    others = [(each, known[each]) for each in sorted(theirs) if each in known]
    files = travelling.files(root, kernel, {name: chosen, **dict(others)})
    # %%writefile refuses an empty cell, and ends each file with a newline.
    modules = {
        name: travelling.read(path).rstrip("\n") or "# empty" for name, path in files.items()
    }
    metadata = kernel_metadata.read(source / "kernel-metadata.json")
    sources = [competition] if mounts else []
    metadata |= {"id": handle, "title": title(handle), "competition_sources": sources}
    metadata |= kernel_metadata.machine(machine_shape) if machine_shape else {}
    listed = metadata["dataset_sources"]
    if needs and trains and not any(f"{name}/".startswith(f"{needs}/") for name in listed):
        raise UsageError(
            f"The config reads weights from the dataset {needs}, but {kernel} mounts"
            f" {', '.join(listed) or 'no dataset'}; expected {needs}.\n"
            f'Write "dataset_sources": ["{needs}"] into {source / "kernel-metadata.json"}, or fix'
            " pretrained in the config."
        )
    if first_stage and trains and not expect:  # a training that resumes has its weights
        if not kernel_metadata.DATASET.fullmatch(first_stage) or Path(first_stage).is_dir():
            raise UsageError(
                f"init_from={first_stage!r} is no dataset on Kaggle; expected owner/slug of one"
                " that holds the artifact of a training.\n"
                "Publish that training (`invoke publish`), and write its dataset into init_from."
            )
        metadata["dataset_sources"] = list(dict.fromkeys([*listed, first_stage]))
    if members:
        if handoff != "dataset":
            raise UsageError(
                f"handoff={handoff!r} cannot carry several models: a kernel's output is that of its"
                " last run.\nSet handoff='dataset' in the config, then publish the members."
            )
        carriers = [member_handle(owner, competition, each["weights_sha256"]) for each in members]
        metadata["dataset_sources"] = [*carriers, *listed]
    elif expect and handoff == "dataset":
        carrier = dataset_handle if infers else checkpoint_handle
        metadata["dataset_sources"] = [carrier(owner, competition), *listed]
    elif expect and handoff == "kernel":
        train = handles.get("train-tpu") or kernel_handle(owner, competition, "train-tpu")
        metadata["kernel_sources"] = [train if infers else handle]
    elif expect:
        raise UsageError(
            f"handoff={handoff!r} cannot work: expected 'dataset' or 'kernel'.\n"
            "Correct it in the config."
        )
    for kind, mounted in more.items():
        metadata[kind] = list(dict.fromkeys([*metadata[kind], *mounted]))
    metadata["code_file"] = f"{kernel}.ipynb"

    identity: dict[str, Any] = {"kernel": kernel, "config": name, "competition": competition}
    identity |= {"options": dict(options)} if options else {}
    named = {**metadata, "id": usual, "title": title(usual)}
    covered = {**identity, "expect": expect, "modules": modules, "cells": own, "metadata": named}
    sha256, code_sha256 = (
        hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        for parts in (covered, {**identity, "modules": modules, "cells": own})
    )
    commit, dirty = _commit(
        root, [*files.values(), source / "notebook.py", source / "kernel-metadata.json"]
    )
    provenance = {
        **identity,
        "machine_shape": metadata.get("machine_shape", ""),
        "expect": expect,
        # The last cell writes outputs.json, so a pull without it is not whole.
        "sealed": any("provenance.seal(" in cell["source"] for cell in own),
        "git_commit": commit,
        "git_dirty": dirty,
        "bundle_sha256": sha256,
    }
    title_cell = (
        f"# {metadata['title']}\n\nBuilt from commit `{commit or 'none'}`"
        f"{' with local changes' if dirty else ''}; bundle `{sha256}`.\n\n"
        "The collapsed cells below write the package `pipeline` into a temporary folder."
    )
    told = json.dumps(provenance, indent=2, sort_keys=True)
    cells = [
        _cell("markdown", title_cell),
        _cell("code", _folders(modules), HIDDEN),
        *(_cell("code", f"%%writefile {path}\n{text}", HIDDEN) for path, text in modules.items()),
        _cell("code", BACK, HIDDEN),
        _cell("code", f"%%writefile bundle.json\n{told}", HIDDEN),
        *(_cell(cell["cell_type"], cell["source"], cell["metadata"]) for cell in own),
    ]
    for place, cell in enumerate(cells):
        cell["id"] = hashlib.sha256(f"{place} {cell['source']}".encode()).hexdigest()[:12]
    notebook = {"cells": cells, "metadata": NOTEBOOK, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    push_rules.check(notebook, metadata, size=len(text.encode()), offline=not online)

    folder = out / kernel
    path = folder / f"{kernel}.ipynb"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        described = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
        (folder / "kernel-metadata.json").write_text(described, encoding="utf-8", newline="\n")
    return Bundle(kernel, handle, folder, path, metadata, sha256, code_sha256, commit, dirty, text)


def _config(root: Path, config: str) -> tuple[str, Path]:
    """Return name and file of a config, which travels into pipeline/configs/."""
    package = root / "pipeline"
    if not (package / "__init__.py").is_file():
        raise UsageError(
            f"{package} is not a package; expected pipeline/__init__.py there.\n"
            "Give the repository's root."
        )
    configs = _configs(root)
    chosen = configs.get(config, Path(config))
    name = config if config in configs else chosen.stem
    if not chosen.is_file() or not re.fullmatch(r"[a-z][a-z0-9_]*", name) or chosen.suffix != ".py":
        raise UsageError(
            f"--config {config!r}: there is no such config. Expected one of {', '.join(configs)},"
            " or the path of a .py file whose name is lower-case letters, digits and underscores.\n"
            "Correct the name, or describe a folder: invoke inspect --input DIR --write NAME"
        )
    return name, chosen


def _configs(root: Path) -> dict[str, Path]:
    """Return the files of the configs by name; of a package __init__.py."""
    folder = root / "pipeline" / "configs"
    found = [
        *((path.stem, path) for path in folder.glob("[!_.]*.py")),
        *((path.parent.name, path) for path in folder.glob("[!_.]*/__init__.py")),
    ]
    return dict(sorted(found))


def _folders(modules: Mapping[str, str]) -> str:
    lines = [ENTER]
    for folder in sorted({str(PurePosixPath(path).parent) for path in modules}):
        lines.append(f'Path("{folder}").mkdir(parents=True, exist_ok=True)')
    return "\n".join(lines)


def _cell(kind: str, source: str, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": dict(metadata or {}), "source": source}
    return {**cell, "outputs": [], "execution_count": None} if kind == "code" else cell


def _commit(root: Path, paths: list[Path]) -> tuple[str, bool]:
    """Return the commit, and whether what travels differs from it; ("", True) without git."""

    def git(*arguments: str) -> str | None:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return None  # without git there is no commit
        return done.stdout.strip() if done.returncode == 0 else None

    names = [str(path.resolve()) for path in paths]
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--", *names)
    known = git("ls-files", "--", *names)  # an ignored file travels too, and no commit holds it
    whole = known is not None and len(known.splitlines()) == len(set(names))
    return commit or "", not commit or changed is None or bool(changed) or not whole

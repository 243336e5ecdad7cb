"""Where Kaggle mounted the inputs of a notebook. They are found by a marker file, never guessed.

Kaggle moved them in 2026: `/kaggle/input/competitions/<slug>`,
`/kaggle/input/datasets/<owner>/<slug>`, `/kaggle/input/notebooks/<owner>/<slug>`; the flat
`/kaggle/input/<slug>` still occurs (public notebooks, read 2026-11-21). Where both exist at once,
an input that is in both counts once: its marker has the same bytes.

`os.path` checks what exists: in Python 3.11 to 3.13 `Path.is_file` raises for a long name, and
`Path.is_dir` where the folder above cannot be entered.
"""

import filecmp
import json
import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from formats.checksums import sha256
from pipeline.errors import ArtifactError, CheckpointError, DataError

# The folders of competitions are not searched: they can hold a hundred thousand images behind a
# network.
OUTPUTS = ("notebooks/*/*", "datasets/*/*", "*")
MANIFEST = "manifest.json"  # of an artifact or a checkpoint
PREPARED = "prepared.json"  # beside decoded images
# Kaggle may append to the name of a notebook.
PREPARATION = re.compile(r"-(prepare-cpu|prepared)(-|$)")
# Kaggle may do so in the first run after a source was attached; deploy/errors.py knows the words.
NOT_MOUNTED = "Kaggle has not mounted"
# A dataset has no folders; there "--" stands for the "/" of a path.
FLAT = "--"


def root() -> Path:
    """Return /kaggle, or the folder that the local Kaggle uses where it may not make /kaggle."""
    return Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))


def listing(folder: Path, most: int = 30) -> str:
    """Return what a folder holds, for a message: the first paths of four levels."""
    if not os.path.isdir(folder):  # noqa: PTH112
        return f"{folder} does not exist"
    levels = ["/".join("*" * depth) for depth in range(1, 5)]
    paths = [path for level in levels for path in islice(folder.glob(level), most)]
    names = [f"{path.relative_to(folder)}{'/' * os.path.isdir(path)}" for path in paths]  # noqa: PTH112
    more = " … and more" if len(names) > most else ""
    return f"{folder} holds: {', '.join(sorted(names[:most])) or 'nothing'}{more}"


def competition(inputs: Path, slug: str, marker: str) -> Path:
    """Return the competition's folder under `inputs`: its name is `slug`, and it holds `marker`.

    Raises:
        DataError: if there is none, or two whose markers differ.
    """
    folders = (inputs / "competitions" / slug, inputs / slug)
    markers = {folder / marker: folder for folder in folders if os.path.isfile(folder / marker)}  # noqa: PTH113
    different = [markers[path] for path in _distinct(markers)]
    if len(different) == 1:
        return different[0]
    if not any(map(os.path.isdir, folders)):
        raise DataError(_not_mounted(inputs, f"the competition {slug!r}"))
    raise DataError(
        f"Expected one folder of the competition {slug!r} that holds {marker}; found"
        f" {len(different)}: {', '.join(map(str, different)) or 'none'}.\n"
        f"{listing(inputs)}.\n"
        f"Add {slug} to the notebook's inputs (competition_sources), or correct competition in the"
        " config."
    )


def file(inputs: Path, name: str) -> Path | None:
    """Return where a file of a dataset is mounted, in either layout; None if it is in neither, or
    this is no session of Kaggle.

    Args:
        inputs: /kaggle/input.
        name: owner/slug/path.

    Raises:
        DataError: if the layouts have different files of that name, or the dataset is not mounted.
    """
    owner, _, below = name.partition("/")
    slug, _, path = below.partition("/")
    if not path or ".." in name.split("/"):
        return None
    datasets = (inputs / "datasets" / owner, inputs)
    if os.path.isdir(inputs) and not any(os.path.isdir(place / slug) for place in datasets):  # noqa: PTH112
        raise DataError(_not_mounted(inputs, f"the dataset {owner}/{slug}"))
    different = _distinct(each / below for each in datasets if os.path.isfile(each / below))  # noqa: PTH113
    if len(different) > 1:
        raise DataError(
            f"{name!r} is mounted twice, with different bytes: {', '.join(map(str, different))};"
            " expected one.\nGive the path of one of them."
        )
    return different[0] if different else None


def artifact(inputs: Path, run_id: str) -> Path:
    """Return the artifact's folder under `inputs` whose manifest has this `run_id`.

    Raises:
        ArtifactError: if there is none, or two whose manifests differ; the message names what is
            mounted.
    """
    places = [f"{place}/{below}" for place in OUTPUTS for below in ("", "artifact/")]
    manifests = sorted(path for place in places for path in inputs.glob(place + MANIFEST))
    if not manifests:
        raise ArtifactError(_not_mounted(inputs, f"the artifact of run {run_id}"))
    runs = {path: str(_read_json(path).get("run_id", "unreadable")) for path in manifests}
    different = _distinct(path for path, name in runs.items() if name == run_id)
    if len(different) == 1:
        return different[0].parent
    seen = ", ".join(f"{path.parent} (run_id {name})" for path, name in runs.items())
    raise ArtifactError(
        f"Expected one artifact of run {run_id}; found {len(different)} of it, among: {seen}.\n"
        f"{listing(inputs)}.\n"
        "An old version of the dataset is mounted. "
        "Publish this run (`invoke publish`), then push again:\n"
        "invoke push-infer"
    )


def prepared(inputs: Path) -> list[Path]:
    """Return the folders under `inputs` that hold decoded images: by their marker file, and by the
    end of their name, as a preparation or its dataset has it.
    """
    markers = (path for place in OUTPUTS for path in inputs.glob(f"{place}/{PREPARED}"))
    return sorted({path.parent for path in markers if PREPARATION.search(path.parent.name)})


def previous(inputs: Path, expect: Mapping[str, Any]) -> dict[str, Path]:
    """Return where the files of an earlier session are mounted, {name: path}.

    Args:
        inputs: /kaggle/input.
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle. The folder
            is the one with these bytes of the checkpoint's manifest.

    Raises:
        CheckpointError: if none is mounted, or only others, or a file beside the checkpoint is
            missing; the message names them.
    """
    marker = f"{expect['checkpoint']}/{MANIFEST}"
    for folder in sorted(path for place in OUTPUTS for path in inputs.glob(place)):
        for separator in ("/", FLAT):
            paths = {name: folder / name.replace("/", separator) for name in expect["files"]}
            mounted = {name for name, path in paths.items() if os.path.isfile(path)}  # noqa: PTH113
            if marker not in mounted or sha256(paths[marker]) != expect["files"][marker]:
                continue
            if missing := [name for name in paths if name not in mounted]:
                raise CheckpointError(
                    f"{folder} holds the expected checkpoint and lacks {', '.join(missing[:5])}.\n"
                    "Expected every file that the session wrote. Push again:\n"
                    "invoke push-train"
                )
            return paths
    expected = f"step {expect['step']} of run {expect['run_id']} ({marker})"
    if not (seen := _checkpoints(inputs)):
        start_over = "To begin again instead:\ninvoke push-train --fresh"
        raise CheckpointError(f"{_not_mounted(inputs, expected)}\n{start_over}")
    raise CheckpointError(
        f"Expected {expected}; mounted are: {seen}.\n{listing(inputs)}.\n"
        "An older output is mounted. Push again, or begin again with --fresh:\n"
        "invoke push-train"
    )


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Return the files that differ in their bytes, in their order: of equal ones the first.

    The path alone does not show it: one folder may be mounted at two places.
    """
    different: list[Path] = []
    for path in paths:
        if not any(filecmp.cmp(path, other, shallow=False) for other in different):
            different.append(path)
    return different


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _checkpoints(inputs: Path) -> str:
    """Return the mounted checkpoints, with step and run, for a message."""
    flat = f"*checkpoints{FLAT}step-*{FLAT}"
    shown = []
    for place in OUTPUTS:
        for name in ("checkpoints/step-*/", "fold-*/checkpoints/step-*/", flat):
            for path in sorted(inputs.glob(f"{place}/{name}{MANIFEST}")):
                manifest = _read_json(path)
                step, details = manifest.get("step"), manifest.get("details")
                run = details.get("run_id") if isinstance(details, dict) else None
                shown.append(f"{path.relative_to(inputs)} (step {step} of run {run})")
    return ", ".join(shown[:20])


def _not_mounted(inputs: Path, what: str) -> str:
    """Return the message about an input that is not there at all."""
    return (
        f"{NOT_MOUNTED} {what}.\n{listing(inputs)}.\n"
        "It may be missing in the first run after it was attached: push the same notebook again. If"
        " it is still missing, add it to the notebook's inputs, or correct its name in the config."
    )

"""Mounts: where Kaggle put the inputs of a notebook. Found by a marker file, never guessed.

Kaggle moved them in 2026: `/kaggle/input/competitions/<slug>`,
`/kaggle/input/datasets/<owner>/<slug>`, `/kaggle/input/notebooks/<owner>/<slug>`; the flat
`/kaggle/input/<slug>` is still seen (public notebooks, read 2026-11-21).
"""

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import ArtifactError, CheckpointError, DataError

# Where an artifact can be: a dataset, or the output of a notebook. Not searched: the folders of
# competitions, which can hold a hundred thousand images behind a network.
ARTIFACTS = [
    f"{place}{below}"
    for place in ("datasets/*/*", "notebooks/*/*", "*")
    for below in ("", "/artifact")
]
# Where what an earlier session left can be: its output as it was, or a dataset, which has no
# folders: there "/" is written as "--".
OUTPUTS, FLAT = ("notebooks/*/*", "datasets/*/*", "*"), "--"


def root() -> Path:
    """Return /kaggle; the local Kaggle names another folder where it may not make one at the root."""
    return Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))


def listing(folder: Path, most: int = 30) -> str:
    """Return the paths below `folder`, down to four levels, for a message; of a folder with a
    hundred thousand images the first few.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where the folder above cannot be entered
        return f"{folder} does not exist"
    found: list[str] = []
    level = [folder]
    for _ in range(4):
        below = []
        for parent in level:
            try:
                with os.scandir(parent) as entries:
                    first = sorted(entry.path for entry in itertools.islice(entries, most))
            except OSError:
                continue  # a folder that cannot be entered is in the list itself
            below += [Path(path) for path in first]
        folders = [path for path in below if os.path.isdir(path)]  # noqa: PTH112
        found += [f"{path.relative_to(folder)}{'/' if path in folders else ''}" for path in below]
        level = folders[:most]
    more = " … and more" if len(found) > most else ""
    return f"{folder} holds: " + (", ".join(sorted(found[:most])) or "nothing") + more


def competition(inputs: Path, slug: str, marker: str) -> Path:
    """Return the competition's folder: the one under `inputs` called `slug` that holds the file
    `marker`.

    Raises:
        DataError: if there is none, or more than one.
    """
    places = (inputs / "competitions" / slug, inputs / slug)
    found = [place for place in places if os.path.isfile(place / marker)]  # noqa: PTH113 - Path.is_file raises for a long name
    if len(found) == 1:
        return found[0]
    many = f"found {len(found)}: {', '.join(map(str, found))}" if found else "found none"
    raise DataError(
        f"Expected one folder of the competition {slug!r} with {marker} in it; {many}.\n{listing(inputs)}.\n"
        f"Add {slug} to the notebook's inputs (competition_sources), or correct competition in the config."
    )


def file(inputs: Path, name: str) -> Path | None:
    """Return where `owner/slug/path`, a file of a dataset, lies under `inputs`, in either layout;
    None if it is in neither.

    Raises:
        DataError: if both layouts have one.
    """
    owner, _, below = name.partition("/")
    if not below.partition("/")[2] or ".." in name.split("/"):
        return None
    places = (inputs / "datasets" / owner / below, inputs / below)
    found = [place for place in places if os.path.isfile(place)]  # noqa: PTH113 - Path.is_file raises for a long name
    if len(found) > 1:
        raise DataError(
            f"{name!r} is mounted twice: {', '.join(map(str, found))}; expected one.\nGive the path of one of them."
        )
    return found[0] if found else None


def artifact(inputs: Path, run_id: str) -> Path:
    """Return the artifact's folder under `inputs` whose manifest has this `run_id`.

    Raises:
        ArtifactError: if there is none, or more than one. An older version that is mounted instead
            is named.
    """
    found: dict[Path, str] = {}
    for manifest in sorted(
        path for place in ARTIFACTS for path in inputs.glob(f"{place}/manifest.json")
    ):
        try:
            found[manifest.parent] = str(
                json.loads(manifest.read_text(encoding="utf-8")).get("run_id")
            )
        except (OSError, ValueError, AttributeError, RecursionError):
            found[manifest.parent] = "unreadable"
    matching = [folder for folder, name in found.items() if name == run_id]
    if len(matching) == 1:
        return matching[0]
    seen = (
        ", ".join(f"{folder} (run_id {name})" for folder, name in found.items())
        or "no manifest.json at all"
    )
    raise ArtifactError(
        f"Expected one artifact of run {run_id}; found {len(matching)} of it, among: {seen}.\n{listing(inputs)}.\n"
        "An old dataset version is mounted, or none: publish this run (`invoke publish`), then push again (`invoke push-infer`)."
    )


def previous(inputs: Path, expect: Mapping[str, Any]) -> dict[str, Path]:
    """Return where each file lies that an earlier session left, {name: path}, in the mounted folder
    that holds the expected checkpoint.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}}; the folder is told by the
            bytes of the checkpoint's manifest.

    Raises:
        CheckpointError: if none is mounted, or only others; they are named. A file beside the
            checkpoint that is missing is named, too.
    """
    marker = f"{expect['checkpoint']}/manifest.json"
    for name in (marker, marker.replace("/", FLAT)):
        for folder in sorted(folder for place in OUTPUTS for folder in inputs.glob(place)):
            if _sha256(folder / name) != expect["files"][marker]:
                continue
            found = {
                file: folder / (file if name == marker else file.replace("/", FLAT))
                for file in expect["files"]
            }
            missing = [file for file, path in found.items() if not os.path.isfile(path)]  # noqa: PTH113 - as above
            if missing:
                raise CheckpointError(
                    f"{folder} holds the expected checkpoint and lacks {', '.join(missing[:5])} beside it.\nPush again: invoke push-train"
                )
            return found
    raise CheckpointError(
        f"Expected step {expect['step']} of run {expect['run_id']} ({marker}); mounted are: {_checkpoints(inputs)}.\n{listing(inputs)}.\n"
        "An older output is mounted, or none. Push again: invoke push-train; to begin again: invoke push-train --fresh"
    )


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _checkpoints(inputs: Path) -> str:
    """Return the checkpoints that are mounted, with step and run, for a message."""
    told = []
    for place in OUTPUTS:
        for below in (
            "checkpoints/step-*/",
            "fold-*/checkpoints/step-*/",
            f"*checkpoints{FLAT}step-*{FLAT}",
        ):
            for path in sorted(inputs.glob(f"{place}/{below}manifest.json")):
                try:
                    value = json.loads(path.read_text(encoding="utf-8"))
                    told.append(
                        f"{path.relative_to(inputs)} (step {value['step']} of run {value['details']['run_id']})"
                    )
                except (OSError, ValueError, LookupError, TypeError, RecursionError):
                    told.append(f"{path.relative_to(inputs)} (unreadable)")
    return ", ".join(told[:20]) or "no checkpoint at all"

"""Where Kaggle mounted the inputs of a notebook. They are found by a marker file, never guessed.

Kaggle moved them in 2026: `/kaggle/input/competitions/<slug>`,
`/kaggle/input/datasets/<owner>/<slug>`, `/kaggle/input/notebooks/<owner>/<slug>`; the flat
`/kaggle/input/<slug>` still occurs (public notebooks, read 2026-11-21). Where both are there at
once, an input that is in both counts as one: its marker is the same file, or has the same bytes.

`os.path` is asked for what exists: in Python 3.11 to 3.13 `Path.is_file` raises for a long name,
and `Path.is_dir` where the folder above cannot be entered.
"""

import filecmp
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from formats.checksums import sha256
from pipeline.errors import ArtifactError, CheckpointError, DataError

# The folders of competitions are not searched: they can hold a hundred thousand images behind a
# network.
OUTPUTS = ("notebooks/*/*", "datasets/*/*", "*")
MANIFEST = "manifest.json"  # of an artifact
PREPARED = "prepared.json"  # beside decoded images
# Kaggle may add to the address of a notebook.
OF_PREPARATIONS = re.compile(r"-(prepare-cpu|prepared)(-|$)")
# Kaggle may do so in the first run after a source was attached; deploy/errors.py knows the words.
LATE = "Kaggle has not mounted"
# A dataset has no folders; there "--" stands for the "/" of a path.
FLAT = "--"


def root() -> Path:
    """Return /kaggle, or the folder that the local Kaggle uses where it may not make /kaggle."""
    return Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))


def listing(folder: Path, most: int = 30) -> str:
    """Return what a folder holds, for a message: the first paths of each of four levels."""
    if not os.path.isdir(folder):  # noqa: PTH112
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


def distinct(markers: Iterable[Path]) -> list[Path]:
    """Return the marker files that differ, in their order: of equal ones the first.

    The path alone does not tell: one folder may be mounted at two places.
    """
    found: list[Path] = []
    for marker in markers:
        if not any(
            os.path.samefile(marker, other)  # noqa: PTH121
            or filecmp.cmp(marker, other, shallow=False)
            for other in found
        ):
            found.append(marker)
    return found


def competition(inputs: Path, slug: str, marker: str) -> Path:
    """Return the competition's folder under `inputs`: it is called `slug` and holds `marker`.

    Raises:
        DataError: if there is none, or two whose markers differ.
    """
    places = (inputs / "competitions" / slug, inputs / slug)
    there = [place for place in places if os.path.isfile(place / marker)]  # noqa: PTH113
    different = distinct(place / marker for place in there)
    found = [place for place in there if place / marker in different]
    if len(found) == 1:
        return found[0]
    if not any(os.path.isdir(place) for place in places):  # noqa: PTH112
        raise DataError(_late(inputs, f"the competition {slug!r}"))
    many = f"found {len(found)}: {', '.join(map(str, found))}" if found else "found none"
    raise DataError(
        f"Expected one folder of the competition {slug!r} that holds {marker}; {many}.\n"
        f"{listing(inputs)}.\n"
        f"Add {slug} to the notebook's inputs (competition_sources), "
        "or correct competition in the config."
    )


def file(inputs: Path, name: str) -> Path | None:
    """Return where a file of a dataset is mounted, in either layout; None if it is in neither, or
    this is no session of Kaggle.

    Args:
        inputs: /kaggle/input.
        name: owner/slug/path.

    Raises:
        DataError: if each layout has another file of that name, or the dataset is not mounted.
    """
    owner, _, below = name.partition("/")
    if not below.partition("/")[2] or ".." in name.split("/"):
        return None
    slug = below.partition("/")[0]
    folders = (inputs / "datasets" / owner / slug, inputs / slug)
    if os.path.isdir(inputs) and not any(os.path.isdir(one) for one in folders):  # noqa: PTH112
        raise DataError(_late(inputs, f"the dataset {owner}/{slug}"))
    places = (inputs / "datasets" / owner / below, inputs / below)
    found = distinct(place for place in places if os.path.isfile(place))  # noqa: PTH113
    if len(found) > 1:
        raise DataError(
            f"{name!r} is mounted twice, with other bytes: {', '.join(map(str, found))}; expected"
            " one.\n"
            "Give the path of one of them."
        )
    return found[0] if found else None


def artifact(inputs: Path, run_id: str) -> Path:
    """Return the artifact's folder under `inputs` whose manifest has this `run_id`.

    Raises:
        ArtifactError: if there is none, or two whose manifests differ; the message names what is
            mounted.
    """
    found: dict[Path, str] = {}
    for manifest in sorted(
        path
        for place in OUTPUTS
        for below in ("", "artifact/")
        for path in inputs.glob(f"{place}/{below}{MANIFEST}")
    ):
        try:
            found[manifest.parent] = str(
                json.loads(manifest.read_text(encoding="utf-8")).get("run_id")
            )
        except (OSError, ValueError, AttributeError, RecursionError):
            found[manifest.parent] = "unreadable"
    if not found:
        raise ArtifactError(_late(inputs, f"the artifact of run {run_id}"))
    named = (folder / MANIFEST for folder, name in found.items() if name == run_id)
    matching = [manifest.parent for manifest in distinct(named)]
    if len(matching) == 1:
        return matching[0]
    seen = ", ".join(f"{folder} (run_id {name})" for folder, name in found.items())
    raise ArtifactError(
        f"Expected one artifact of run {run_id}; found {len(matching)} of it, among: {seen}.\n"
        f"{listing(inputs)}.\n"
        "An old version of the dataset is mounted. "
        "Publish this run (`invoke publish`), then push again:\n"
        "invoke push-infer"
    )


def prepared(inputs: Path) -> list[Path]:
    """Return the folders under `inputs` that hold decoded images: by their marker file, and by the
    end of their name, as a preparation or its dataset has it.
    """
    found = (path.parent for place in OUTPUTS for path in inputs.glob(f"{place}/{PREPARED}"))
    return sorted({folder for folder in found if OF_PREPARATIONS.search(folder.name)})


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
    marker = f"{expect['checkpoint']}/manifest.json"
    for name in (marker, marker.replace("/", FLAT)):
        for folder in sorted(folder for place in OUTPUTS for folder in inputs.glob(place)):
            if not _has_bytes(folder / name, expect["files"][marker]):
                continue
            found = {
                file: folder / (file if name == marker else file.replace("/", FLAT))
                for file in expect["files"]
            }
            missing = [file for file in found if not os.path.isfile(found[file])]  # noqa: PTH113
            if missing:
                raise CheckpointError(
                    f"{folder} holds the expected checkpoint and lacks {', '.join(missing[:5])}.\n"
                    "Expected every file that the session wrote. Push again:\n"
                    "invoke push-train"
                )
            return found
    expected = f"step {expect['step']} of run {expect['run_id']} ({marker})"
    if not (seen := _checkpoints(inputs)):
        start_over = "To begin again instead:\ninvoke push-train --fresh"
        raise CheckpointError(f"{_late(inputs, expected)}\n{start_over}")
    raise CheckpointError(
        f"Expected {expected}; mounted are: {seen}.\n{listing(inputs)}.\n"
        "An older output is mounted. Push again, or begin again with --fresh:\n"
        "invoke push-train"
    )


def _has_bytes(path: Path, digest: str) -> bool:
    try:
        return sha256(path) == digest
    except OSError:
        return False


def _checkpoints(inputs: Path) -> str:
    """Return the mounted checkpoints, with step and run, for a message."""
    names = (
        "checkpoints/step-*/",
        "fold-*/checkpoints/step-*/",
        f"*checkpoints{FLAT}step-*{FLAT}",
    )
    shown = []
    for place, name in itertools.product(OUTPUTS, names):
        for path in sorted(inputs.glob(f"{place}/{name}manifest.json")):
            try:
                value = json.loads(path.read_text(encoding="utf-8"))
                text = f"step {value['step']} of run {value['details']['run_id']}"
            except (OSError, ValueError, LookupError, TypeError, RecursionError):
                text = "unreadable"
            shown.append(f"{path.relative_to(inputs)} ({text})")
    return ", ".join(shown[:20])


def _late(inputs: Path, what: str) -> str:
    """Return the message about an input that is not there at all."""
    return (
        f"{LATE} {what}.\n{listing(inputs)}.\n"
        "It may lack in the first run after it was attached: push the same notebook again. If it"
        " lacks then, too, add it to the notebook's inputs, or correct its name in the config."
    )

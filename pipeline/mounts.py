"""Mounts: where Kaggle put the inputs of a notebook. Found by a marker file, never guessed.

Kaggle moved them in 2026: `/kaggle/input/competitions/<slug>`, `/kaggle/input/datasets/<owner>/<slug>`,
`/kaggle/input/notebooks/<owner>/<slug>`; the flat `/kaggle/input/<slug>` is still seen (public notebooks, read 2026-11-21).
"""

import json
import os
from pathlib import Path

from pipeline.errors import ArtifactError, DataError


def root() -> Path:
    """Return /kaggle; the local Kaggle names another folder where it may not make one at the root."""
    return Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))


def listing(folder: Path, most: int = 30) -> str:
    """Return the paths below `folder`, down to four levels, for a message."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    found = sorted(
        str(path.relative_to(folder)) + ("/" if path.is_dir() else "")
        for depth in ("*", "*/*", "*/*/*", "*/*/*/*")
        for path in folder.glob(depth)
    )
    more = f" … and {len(found) - most} more" if len(found) > most else ""
    return f"{folder} holds: " + (", ".join(found[:most]) or "nothing") + more


def competition(inputs: Path, slug: str, marker: str) -> Path:
    """Return the competition's folder: the one under `inputs` called `slug` that holds the file `marker`.

    Raises:
        DataError: if there is none, or more than one.
    """
    found = [p for p in (inputs / "competitions" / slug, inputs / slug) if (p / marker).is_file()]
    if len(found) == 1:
        return found[0]
    many = f"found {len(found)}: {', '.join(map(str, found))}" if found else "found none"
    raise DataError(
        f"Expected one folder of the competition {slug!r} with {marker} in it; {many}.\n{listing(inputs)}.\n"
        f"Add {slug} to the notebook's inputs (competition_sources), or correct competition in the config."
    )


def artifact(inputs: Path, run_id: str) -> Path:
    """Return the artifact's folder under `inputs` whose manifest has this `run_id`.

    Raises:
        ArtifactError: if there is none, or more than one. An older version that is mounted instead is named.
    """
    found: dict[Path, str] = {}
    for manifest in sorted(inputs.rglob("manifest.json")):
        try:
            found[manifest.parent] = str(json.loads(manifest.read_text()).get("run_id"))
        except (ValueError, AttributeError):
            found[manifest.parent] = "unreadable"
    matching = [folder for folder, name in found.items() if name == run_id]
    if len(matching) == 1:
        return matching[0]
    seen = ", ".join(f"{folder} (run_id {name})" for folder, name in found.items()) or "no manifest.json at all"
    raise ArtifactError(
        f"Expected one artifact of run {run_id}; found {len(matching)} of it, among: {seen}.\n{listing(inputs)}.\n"
        "An old dataset version is mounted, or none: publish this run (`invoke publish`), then push again (`invoke push-infer`)."
    )

"""Find a notebook's inputs on Kaggle by their marker files.

In 2026, Kaggle moved inputs to `/kaggle/input/competitions/<slug>`,
`/kaggle/input/datasets/<owner>/<slug>`, `/kaggle/input/notebooks/<owner>/<slug>` and
`/kaggle/input/models/<owner>/<model>/<framework>/<variation>/<version>`. The flat
layout `/kaggle/input/<slug>` was still used by public notebooks on 2026-11-21. If both folders
exist, the first one is used.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from formats import archives
from formats.checksums import sha256
from pipeline.errors import ArtifactError, CheckpointError, DataError

# Competition folders are not searched, since they may contain 100,000 images on a network disk.
OUTPUTS = ("notebooks/*/*", "datasets/*/*", "*")
MANIFEST = "manifest.json"  # of an artifact or a checkpoint
PREPARED = "prepared.json"  # next to decoded images
# This can occur in the first run after a source is attached. deploy/errors.py detects this text.
NOT_MOUNTED = "Kaggle has not mounted"
# Datasets have no subfolders, so "--" replaces "/" in their paths.
FLAT = "--"


def root() -> Path:
    """Return /kaggle, or the folder that the local Kaggle uses if it cannot create /kaggle."""
    return Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))


def listing(folder: Path, most: int = 30) -> str:
    levels = ["/".join("*" * depth) for depth in range(1, 5)]
    paths = [path for level in levels for path in islice(folder.glob(level), most)]
    names = [f"{path.relative_to(folder)}{'/' * path.is_dir()}" for path in paths]
    more = " … and more" if len(names) > most else ""
    return f"{folder} contains: {', '.join(sorted(names[:most])) or 'nothing'}{more}"


def competition(
    inputs: Path, slug: str, marker: str | None, needs: tuple[str, ...] | None = ()
) -> Path:
    """Return the folder named `slug` in `inputs`. If `marker` is given, the folder must contain it.

    Kaggle does not unpack archives. If some of the needed files only exist in an archive, they are
    unpacked into a temporary folder, which also contains links to all other files. The temporary
    folder is then returned.

    Args:
        needs: paths or patterns of the needed files; None for all files.
    """
    folders = [path for path in (inputs / "competitions" / slug, inputs / slug) if path.is_dir()]
    if not folders:
        raise DataError(_not_mounted(inputs, f"the competition {slug!r}"))
    names = None if needs is None else [*needs, *([marker] if marker else [])]
    for folder in folders:
        packed = marker is not None and archives.holding(folder, [marker])
        if marker is None or packed or (folder / marker).is_file():
            place = Path(tempfile.mkdtemp(prefix="unpacked-")) / slug
            return archives.beside(folder, names, place, print)
    raise DataError(
        f"The folder of competition {slug!r} does not contain {marker}: {listing(folders[0])}.\n"
        f"Add {slug} to the notebook's competition_sources, or correct competition and"
        " data.sample_submission in the config. If there is no sample submission, set"
        " data.sample_submission to None."
    )


def file(inputs: Path, name: str) -> Path | None:
    """Return the path of a file in a mounted dataset, or None if the file is missing or this is not
    a Kaggle session. In a session, `DataError` is raised if the dataset is not mounted.

    Args:
        inputs: /kaggle/input.
        name: owner/slug/path.
    """
    if name.count("/") < 2:
        return None
    owner, slug, path = name.split("/", 2)
    datasets = (inputs / "datasets" / owner / slug, inputs / slug)
    for dataset in datasets:
        if (dataset / path).is_file():
            return dataset / path
    if inputs.is_dir() and not any(dataset.is_dir() for dataset in datasets):
        raise DataError(_not_mounted(inputs, f"the dataset {owner}/{slug}"))
    return None


def model(inputs: Path, name: str) -> list[Path]:
    """Return the possible mount paths of a Kaggle model, in both layouts, in lower case.

    >>> [str(path) for path in model(Path("input"), "keras/dinov3/Keras/small/1")]
    ['input/models/keras/dinov3/keras/small/1', 'input/dinov3/keras/small/1']
    """
    small = name.lower()
    return [inputs / "models" / small, inputs / small.partition("/")[2]]


def artifact(inputs: Path, run_id: str) -> Path:
    runs = _runs(inputs, "", "artifact/")
    if mounted := [path.parent for path, found in runs.items() if found == run_id]:
        return mounted[0]
    again = "Publish this run (`invoke publish`), then push again:\ninvoke push-infer"
    raise ArtifactError(_older(inputs, f"the artifact of run {run_id}", runs, again))


def prepared(inputs: Path) -> list[Path]:
    return sorted({path.parent for place in OUTPUTS for path in inputs.glob(f"{place}/{PREPARED}")})


def previous(inputs: Path, expect: Mapping[str, Any]) -> dict[str, Path]:
    """Return the paths of an earlier session's mounted files as {name: path}.

    `expect` is the bundle's {"run_id", "step", "checkpoint", "files": {name: sha256}}. The
    folder is identified by the sha256 of the checkpoint's manifest.
    """
    marker = f"{expect['checkpoint']}/{MANIFEST}"
    for folder in sorted(path for place in OUTPUTS for path in inputs.glob(place)):
        for separator in ("/", FLAT):
            paths = {name: folder / name.replace("/", separator) for name in expect["files"]}
            path = paths[marker]
            if path.is_file() and sha256(path) == expect["files"][marker]:
                return paths
    expected = f"step {expect['step']} of run {expect['run_id']} ({marker})"
    steps = "checkpoints/step-*/", "fold-*/checkpoints/step-*/", f"*checkpoints{FLAT}step-*{FLAT}"
    runs = _runs(inputs, *steps)
    again = "Push again, or start over with --fresh:\ninvoke push-train"
    raise CheckpointError(_older(inputs, expected, runs, again))


def _runs(inputs: Path, *folders: str) -> dict[Path, str]:
    runs = {}
    for pattern in (f"{place}/{folder}{MANIFEST}" for place in OUTPUTS for folder in folders):
        for path in sorted(inputs.glob(pattern)):
            runs[path] = "unknown"
            with suppress(Exception):  # could be any file of that name
                manifest = json.loads(path.read_bytes())
                runs[path] = str(manifest.get("run_id") or manifest["details"]["run_id"])
    return runs


def _older(inputs: Path, expected: str, runs: Mapping[Path, str], again: str) -> str:
    if not runs:
        return f"{_not_mounted(inputs, expected)}\n{again}"
    shown = ", ".join(f"{path} (run {run})" for path, run in [*runs.items()][:20])
    return f"Expected {expected}; found {shown}.\nAn older output is mounted. {again}"


def _not_mounted(inputs: Path, what: str) -> str:
    return (
        f"{NOT_MOUNTED} {what}.\n{listing(inputs)}.\n"
        "Kaggle may fail to mount a source on the first run after it is attached, so push the same"
        " notebook again. If it is still missing, add it to the notebook's inputs or correct its"
        " name in the config."
    )

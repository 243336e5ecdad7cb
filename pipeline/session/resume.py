"""Resume: a run that is longer than a session goes on from what the session before it left.

Reads  `expect` of the bundle: which checkpoint of which run, and the sha256 of every file to take
Gives  these files in the working folder, from where `training.train` goes on; or nothing, where
nothing is expected
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.errors import CheckpointError, reading, writing
from pipeline.runtime import mounts
from pipeline.storage.checksums import sync

CHECKPOINT = re.compile(r"step-(\d{8,})(\.replaced)?")
CHUNK = 2**20
SHOWN = ("run_id", "weights_sha256", "metrics", "versions", "seconds")


def take(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> bool:
    """Copy what `expect` names from the mounted output, or dataset, into `output`; return whether
    the run goes on.

    Each file must have the sha256 that the bundle carries, and is on the disk when this returns.
    Where `output` has a checkpoint already, as when a person runs the cell twice, nothing is
    copied.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle; empty for a
            run that begins.
        inputs: /kaggle/input. output: the working folder.

    Raises:
        CheckpointError: if what is mounted is not what is expected; what is there is named.
            DiskError: if it cannot be written.
    """
    if not expect:
        show("Nothing is expected from an earlier session: the run begins.")
        return False
    if standing(output):
        show("The working folder holds checkpoints already: the run goes on from them.")
        return True
    astray = [
        name
        for name in expect["files"]
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts
    ]
    if astray:
        raise CheckpointError(
            f"The bundle expects the file {astray[0][:200]!r}; expected names inside the working folder.\n"
            "It was changed. Push again: invoke push-train"
        )
    folders = {output}
    for name, source in mounts.previous(inputs, expect).items():
        target = output / name
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        _copy(source, target, expect["files"][name])
        folders |= {parent for parent in target.parents if parent.is_relative_to(output)}
    for folder in sorted(folders, reverse=True):
        with writing(folder):
            sync(folder)
    show(
        f"Going on from step {expect['step']} of run {expect['run_id']}: {len(expect['files'])} files, each as it was sealed."
    )
    return True


def _copy(source: Path, target: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    fresh = target.with_name(f"{target.name}.taking")
    with (
        reading(source, CheckpointError, "Push again: invoke push-train"),
        source.open("rb") as given,
        writing(fresh),
        fresh.open("wb") as file,
    ):
        while chunk := given.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != sha256:
        fresh.unlink()
        raise CheckpointError(
            f"{source} has sha256 {digest.hexdigest()[:12]}…; the bundle expects {sha256[:12]}….\n"
            "It is another run's, or was changed. Push again: invoke push-train"
        )
    with writing(target):
        fresh.replace(target)


def standing(output: Path) -> str:
    """Return how far the checkpoints in `output` are, as "step 40 of 120"; with the fold's name
    where there are several; "" without one.
    """
    told = []
    for folder in sorted(output.glob("**/checkpoints")):
        steps = [
            int(found[1])
            for path in folder.glob("step-*")
            if (found := CHECKPOINT.fullmatch(path.name))
        ]
        if not steps:
            continue
        total, place = (
            _total(folder.with_name("progress.jsonl")),
            folder.parent.relative_to(output).as_posix(),
        )
        text = f"step {max(steps)}" + (f" of {total}" if total else "")
        told.append(text if place == "." else f"{place} {text}")
    return ", ".join(told)


def summary(status: str, manifest: Mapping[str, Any] | None, output: Path) -> str:
    """Return what a notebook says at its end: of a complete run what it made, of a partial one how
    it goes on.
    """
    if manifest is not None:
        return json.dumps({key: manifest[key] for key in SHOWN if key in manifest}, indent=2)
    return (
        f"The run is {status}, {standing(output) or 'with no checkpoint'}; there is no artifact yet. It goes on in another session.\n"
        "At home: invoke push-train --until-done, or: invoke pull, then invoke push-train"
    )


def _total(lines: Path) -> int:
    """Return the steps of the whole run, by its last line of progress; 0 where none says."""
    try:
        return int(json.loads(lines.read_text(encoding="utf-8").splitlines()[-1])["steps"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0

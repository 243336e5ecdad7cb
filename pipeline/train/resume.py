"""A run that is longer than a session resumes from the files of the session before it.

The bundle's `expect` pins them: the checkpoint of which run, and the sha256 of every file. They are
copied into the working folder, where `training.train` finds them.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from formats.atomic_file import sync_folder
from formats.checkpoint_folder import NAME
from formats.errors import writing
from pipeline.errors import CheckpointError, reading
from pipeline.runtime import mounts

CHUNK = 2**20
SHOWN = ("run_id", "weights_sha256", "metrics", "versions", "seconds")


def restore(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> bool:
    """Copy the files of an earlier session into `output`, and return whether the run resumes.

    Each file must have the sha256 that the bundle carries, and is on the disk when this returns.
    If `output` already has a checkpoint (the cell was run twice), nothing is copied.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle; empty for a
            run that begins.
        inputs: /kaggle/input.
        output: the working folder.
        show: takes each line of text.

    Raises:
        CheckpointError: if something else is mounted; the message names it.
        DiskError: if a file cannot be written.
    """
    if not expect:
        show("Nothing is expected from an earlier session: the run begins.")
        return False
    if progress(output):
        show("The working folder already holds checkpoints: the run resumes from them.")
        return True
    outside = [
        name
        for name in expect["files"]
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts
    ]
    if outside:
        raise CheckpointError(
            f"The bundle expects the file {outside[0][:200]!r}; "
            "expected names inside the working folder.\n"
            "It was changed. Push again:\n"
            "invoke push-train"
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
            sync_folder(folder)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}: "
        f"{len(expect['files'])} files, checksums verified."
    )
    return True


def _copy(source: Path, target: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    temporary = target.with_name(f"{target.name}.taking")
    with (
        reading(source, CheckpointError, "Push again:\ninvoke push-train"),
        source.open("rb") as given,
        writing(temporary),
        temporary.open("wb") as file,
    ):
        while chunk := given.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    found = digest.hexdigest()
    if found != sha256:
        temporary.unlink()
        raise CheckpointError(
            f"{source} has sha256 {found[:12]}…; the bundle expects {sha256[:12]}….\n"
            "It is another run's, or was changed. Push again:\n"
            "invoke push-train"
        )
    with writing(target):
        temporary.replace(target)


def summary(status: str, manifest: Mapping[str, Any] | None, output: Path) -> str:
    """Return the last words of a notebook: what a complete run made, or how to resume.

    Args:
        status: "complete" or "partial".
        manifest: of the artifact; None of a partial run.
        output: the working folder.
    """
    if manifest is not None:
        return json.dumps({key: manifest[key] for key in SHOWN if key in manifest}, indent=2)
    return (
        f"The run is {status}, {progress(output) or 'with no checkpoint'}; "
        "there is no artifact yet.\nTo resume it in further sessions, type at home:\n"
        "invoke push-train --until-done"
    )


def progress(output: Path) -> str:
    """Return how far the checkpoints in `output` are: "step 40 of 120", or "" without one.

    With folds, the parts are separated by commas, each with the fold's name.
    """
    shown = []
    for folder in sorted(output.glob("**/checkpoints")):
        names = [NAME.fullmatch(path.name) for path in folder.glob("step-*")]
        steps = [int(name[1]) for name in names if name]
        if not steps:
            continue
        total = _total_steps(folder.with_name("progress.jsonl"))
        text = f"step {max(steps)}" + (f" of {total}" if total else "")
        place = folder.parent.relative_to(output).as_posix()
        shown.append(text if place == "." else f"{place} {text}")
    return ", ".join(shown)


def _total_steps(lines: Path) -> int:
    """Return the steps of the whole run, from its last line of progress; 0 if it is not there."""
    try:
        return int(json.loads(lines.read_text(encoding="utf-8").splitlines()[-1])["steps"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0

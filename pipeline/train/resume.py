"""A run that is longer than a session resumes from the files of the session before it.

The bundle's `expect` pins them: the checkpoint of which run, and the sha256 of every file. They are
copied into the working folder, where `training.train` finds them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.checkpoint_folder import NAME
from formats.errors import writing
from pipeline.errors import CheckpointError, reading
from pipeline.runtime import mounts

SHOWN = ("run_id", "weights_sha256", "metrics", "versions", "seconds")
PUSH_AGAIN = "Push again:\ninvoke push-train"


def restore(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> bool:
    """Copy the files of an earlier session into `output`, and return whether the run resumes.

    Each file must have the sha256 that the bundle carries, and is on the disk when this returns.
    If `output` already has a checkpoint (the cell was run twice), nothing is copied.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle; empty for a
            run that starts.
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
    top = output.resolve()
    for name in expect["files"]:
        if not (top / name).resolve().is_relative_to(top):
            raise CheckpointError(
                f"The bundle expects the file {name[:200]!r}; expected names inside the working"
                f" folder.\nIt was changed. {PUSH_AGAIN}"
            )
    folders = {output}
    for name, source in mounts.previous(inputs, expect).items():
        _copy(source, output / name, expect["files"][name])
        folders |= {folder for folder in (output / name).parents if output in folder.parents}
    for folder in sorted(folders, reverse=True):
        with writing(folder):
            atomic_file.sync_folder(folder)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}: "
        f"{len(expect['files'])} files, checksums verified."
    )
    return True


def _copy(source: Path, target: Path, sha256: str) -> None:
    """Copy a file if it has this sha256."""
    with reading(source, CheckpointError, PUSH_AGAIN):
        content = source.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise CheckpointError(
            f"{source} has sha256 {digest[:12]}…; the bundle expects {sha256[:12]}….\n"
            f"It is from a different run, or was changed. {PUSH_AGAIN}"
        )
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(target, content)


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
        if steps := [int(name[1]) for name in names if name]:
            total = _total_steps(folder.with_name("progress.jsonl"))
            fold = folder.parent.relative_to(output).as_posix().removeprefix(".")
            shown.append(f"{fold} step {max(steps)}{f' of {total}' if total else ''}".lstrip())
    return ", ".join(shown)


def _total_steps(lines: Path) -> int:
    """Return the steps of the whole run, from its last line of progress; 0 if it is not there."""
    try:
        return int(json.loads(lines.read_text(encoding="utf-8").splitlines()[-1])["steps"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0

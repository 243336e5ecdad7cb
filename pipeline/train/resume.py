"""A run that is longer than a session resumes from the files of the session before it.

The bundle's `expect` pins them: the checkpoint of which run, and the sha256 of every file. They are
copied into the working folder, where `training.train` finds them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.checkpoint_folder import newest_first
from formats.errors import writing
from pipeline.errors import CheckpointError, reading
from pipeline.runtime import mounts

SHOWN = ("run_id", "weights_sha256", "metrics", "versions", "seconds")
PUSH_AGAIN = "Push again:\ninvoke push-train"


def restore(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> bool:
    """Copy the files of an earlier session into `output`, and return whether the run resumes.

    Each file must have the sha256 that the bundle carries. If `output` already has a checkpoint
    (the cell was run twice), nothing is copied.

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
    for name, source in mounts.previous(inputs, expect).items():
        with reading(source, CheckpointError, PUSH_AGAIN):
            content = source.read_bytes()
        digest, expected = hashlib.sha256(content).hexdigest(), expect["files"][name]
        if digest != expected:
            raise CheckpointError(
                f"{source} has sha256 {digest[:12]}…; the bundle expects {expected[:12]}….\n"
                f"It is from a different run, or was changed. {PUSH_AGAIN}"
            )
        with writing(output / name):
            (output / name).parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(output / name, content)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}: "
        f"{len(expect['files'])} files, checksums verified."
    )
    return True


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
        if found := newest_first(folder):
            step, total = int(found[0].name.removeprefix("step-")), ""
            with suppress(OSError, ValueError, LookupError):  # there may be no line of progress
                lines = folder.with_name("progress.jsonl").read_text(encoding="utf-8").splitlines()
                total = f" of {json.loads(lines[-1])['steps']}"
            fold = folder.parent.relative_to(output).as_posix().removeprefix(".")
            shown.append(f"{fold} step {step}{total}".lstrip())
    return ", ".join(shown)

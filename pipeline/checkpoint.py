"""Checkpoint: the whole state of a run as arrays, written so that a kill at any moment leaves a good one behind.

A checkpoint is a folder `step-<8 digits>` with state.npz and manifest.json (sha256 of the state, the step, and what the run was
made from). It is written under a temporary name, flushed to the disk, and renamed; the two newest are kept.
"""

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.artifact import sha256
from pipeline.errors import CheckpointError, writing

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `arrays` by name, and what was saved beside them in `details` (JSON)."""

    step: int
    arrays: Mapping[str, np.ndarray]
    details: Mapping[str, Any]


def save(folder: Path, step: int, arrays: Mapping[str, np.ndarray], details: Mapping[str, Any]) -> Path:
    """Write a checkpoint and return its folder; older ones than the two newest are removed afterwards.

    Raises:
        DiskError: if it cannot be written; the earlier checkpoints are still there.
    """
    target = folder / f"step-{step:08d}"
    with writing(target):
        folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
        try:
            state = fresh / "state.npz"
            with state.open("wb") as file:
                np.savez(file, **{f"{index:05d}": array for index, array in enumerate(arrays.values())})  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            manifest = {"step": step, "names": list(arrays), "sha256": sha256(state), "details": dict(details)}
            with (fresh / "manifest.json").open("w") as text:
                json.dump(manifest, text, sort_keys=True)
                text.flush()
                os.fsync(text.fileno())
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
            _sync(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old)
    return target


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None if the folder holds none at all.

    Raises:
        CheckpointError: if there are some and none is whole: to begin again in silence would lose the run.
    """
    problems = []
    for path in _newest_first(folder):
        try:
            return _load(path)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            problems.append(f"{path.name}: {error}")
    if problems:
        raise CheckpointError(
            f"{folder} holds {len(problems)} checkpoints and none is whole: {'; '.join(problems)}.\n"
            "Expected at least one. Restore the folder, or begin again with --fresh (which sets these aside)."
        )
    return None


def set_aside(folder: Path) -> None:
    """Rename the folder to the first free `<name>-set-aside-<n>`, if it is there: nothing is deleted."""
    if folder.exists():
        number = next(n for n in range(1, 10_000) if not folder.with_name(f"{folder.name}-set-aside-{n}").exists())
        folder.rename(folder.with_name(f"{folder.name}-set-aside-{number}"))


def _load(path: Path) -> Checkpoint:
    manifest = json.loads((path / "manifest.json").read_text())
    found = sha256(path / "state.npz")
    if found != manifest["sha256"]:
        raise ValueError(f"state.npz has sha256 {found[:12]}…, expected {manifest['sha256'][:12]}…")
    with np.load(path / "state.npz", allow_pickle=False) as archive:
        arrays = {name: archive[f"{index:05d}"] for index, name in enumerate(manifest["names"])}
    return Checkpoint(int(manifest["step"]), arrays, manifest["details"])


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _sync(folder: Path) -> None:
    """Make a rename in the folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

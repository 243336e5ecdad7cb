"""How far a training got, and which files the next session needs, from the pulled folder alone.

It reads outputs.json, artifact/ and every `checkpoints/step-<n>/` (docs/dev/design.md), at the top
or in the folders of folds. A checkpoint counts only if its manifest has its own sha256 and that of
the state beside it: a killed session may leave corrupt ones.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import artifact_manifest, output
from formats import checkpoint_folder, checksums

CHECKPOINTS, COMPILED = output.CHECKPOINTS, "compiled"
HISTORY, PROGRESS = "history.csv", "progress.jsonl"
LISTED = re.compile(r"(?:.*/)?checkpoints/step-(\d{8,})/manifest\.json")
# Decoded images, whole once this file is there (`pipeline.data.image_arrays`).
SHARD = re.compile(r"([0-9]{1,6})-of-([0-9]{1,6})-[0-9a-f]{32}\.json")
FOLD = "fold-"
KERNEL, DATASET = "kernel", "dataset"
FLAT = "--"  # in place of "/" in a dataset, which has no folders


@dataclass(frozen=True)
class SavedProgress:
    """What a training saved.

    Attributes:
        complete: there is an artifact.
        steps: {folder of `checkpoints`, "" or as "fold-1": step of its newest whole checkpoint}.
        totals: {the same folder: steps of the whole training}; 0: unknown.
        run_id: of the checkpoint in the last of these folders.
        checkpoint: its folder.
        checkpoint_sha256: the seal of its manifest.
        files: {name: sha256} of all that the next session needs.
    """

    complete: bool
    steps: Mapping[str, int]
    totals: Mapping[str, int]
    run_id: str
    checkpoint: str
    checkpoint_sha256: str
    files: Mapping[str, str]

    @property
    def step(self) -> int:
        """The steps done, in all folds together."""
        return sum(self.steps.values())

    def __str__(self) -> str:
        if self.complete:
            return "complete"
        steps = (_in_words(n, self.totals.get(at, 0), at) for at, n in self.steps.items())
        return f"partial, {', '.join(steps)}"

    def expect(self, route: str) -> dict[str, Any]:
        """Return what the next session's bundle expects.

        Args:
            route: KERNEL, or DATASET, which carries no compiled executables: they are many files.
        """
        files = {
            name: digest
            for name, digest in self.files.items()
            if route == KERNEL or COMPILED not in name.split("/")[:-1]
        }
        return {
            "run_id": self.run_id,
            "step": self.steps[max(self.steps, key=_order)],
            "checkpoint": self.checkpoint,
            "checkpoint_sha256": self.checkpoint_sha256,
            "files": files,
        }


def _in_words(step: int, total: int, place: str = "") -> str:
    """Return a step in words.

    >>> _in_words(40, 120), _in_words(40, 0, "fold-2")
    ('step 40 of 120', 'fold-2 step 40')
    """
    return f"{place} step {step}".lstrip() + (f" of {total}" if total else "")


def read(folder: Path) -> SavedProgress | None:
    """Return what the run of a pulled folder saved; None without artifact and whole checkpoint.

    What is found again without a file is left out where Kaggle did not have it as the run wrote
    it.

    Raises:
        Unverified: if another file is not what the run's own list says.
    """
    # A killed run made no list.
    listed = output.sealed(folder) if (folder / output.OUTPUTS).is_file() else None
    status = output.json_object(folder / output.OUTPUTS).get("status")
    artifact = (folder / output.ARTIFACT / artifact_manifest.NAME).is_file()
    if artifact if status is None else status == "complete":
        return SavedProgress(True, {}, {}, "", "", "", {})
    steps, totals = {}, {}
    needed: list[Path] = []
    run_id = newest = seal = ""
    for place in _places(folder):
        found = _newest_checkpoint(folder / place / CHECKPOINTS)
        if found is None:
            continue
        path, manifest = found
        key = place.as_posix().removeprefix(".")
        steps[key] = int(manifest["step"])
        totals[key] = _total(folder / place / PROGRESS)
        run_id, seal = str(manifest["details"]["run_id"]), str(manifest[checksums.SEAL])
        newest = path.relative_to(folder).as_posix()
        needed += [path / artifact_manifest.NAME, path / "state.npz"]
        beside = (folder / place / name for name in (HISTORY, PROGRESS))
        needed += [path for path in beside if path.is_file()]
    if not steps:
        return None
    for path in folder.rglob("*"):
        if path.is_file() and _is_needed(path.relative_to(folder), listed is not None):
            needed.append(path)
    names = sorted({path.relative_to(folder).as_posix() for path in needed})
    files = {name: checksums.sha256(folder / name) for name in names}
    note = output.noted(folder)
    differing = note.differing if note is not None else ()
    for name, digest in list(files.items()):
        if listed is None or listed.get(name, ("", 0))[0] == digest:
            continue
        if name in differing and _can_be_missed(name):
            del files[name]
        else:
            output.unchanged(folder / name, folder, name)  # raises
    return SavedProgress(False, steps, totals, run_id, newest, seal, files)


def describe(names: list[str], log: list[str]) -> str:
    """Return a run's progress in words before anything is downloaded; "" if it saved nothing.

    Args:
        names: of the run's output files.
        log: its lines.

    >>> describe(["checkpoints/step-00000040/manifest.json"], ['{"step": 39, "steps": 120}', "End"])
    'partial, step 40 of 120'
    >>> describe([f"1-of-3-{'0' * 32}.json", f"2-of-3-{'1' * 32}.json"], [])
    'partial, 2 of 3 shards'
    """
    shards = {found[1]: found[2] for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        count = next(iter(shards.values()))
        whole = len(shards) == int(count)
        return "complete" if whole else f"partial, {len(shards)} of {count} shards"
    if f"{output.ARTIFACT}/{artifact_manifest.NAME}" in names:
        return "complete"
    saved = {name: int(found[1]) for name in names if (found := LISTED.fullmatch(name))}
    folds = [name.split("/")[0] for name in saved if name.startswith(FOLD)]
    if not saved:
        return ""
    if folds:
        return f"partial, in {max(folds, key=_order)}"
    total = next(filter(None, map(_steps, reversed(log))), 0)
    return f"partial, {_in_words(max(saved.values()), total)}"


def last_step(log: list[str]) -> str:
    """Return the last step that a log names; "" if it names none.

    >>> last_step(['{"step": 39, "steps": 120}', '{"step": 40, "steps": 120}', "Killed"])
    'step 40 of 120'
    """
    return next(
        (_in_words(step, _steps(line)) for line in reversed(log) if (step := _step(line))), ""
    )


def _places(folder: Path) -> list[Path]:
    """Return the relative folders that may hold checkpoints: the top, then the folds in order."""
    folds = (path.relative_to(folder) for path in folder.glob(f"{FOLD}*") if path.is_dir())
    return [Path(), *sorted(folds, key=_order)]


def _order(place: object) -> tuple[int, str]:
    return len(str(place)), str(place)  # fold-10 comes after fold-2


def _is_needed(name: Path, ended: bool) -> bool:
    """Return whether the next session needs a file besides the checkpoints.

    These are what finished folds wrote, what fits into memory, and executables if the run ended by
    itself.
    """
    if CHECKPOINTS in name.parts:
        return False
    if COMPILED in name.parts[:-1]:
        return ended
    return name.parts[0].startswith(FOLD) and len(name.parts) > 1


def _can_be_missed(name: str) -> bool:
    """Return whether a training resumes without this file, and computes the same."""
    *folders, last = name.split("/")
    return last in (HISTORY, PROGRESS) or COMPILED in folders


def _newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest whole checkpoint and its manifest."""
    for path in checkpoint_folder.newest_first(folder):
        try:
            manifest = checkpoint_folder.verified(path)
            if manifest["details"]["run_id"]:
                return path, manifest
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
    return None


def _total(lines: Path) -> int:
    try:
        return _steps(lines.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _step(line: str) -> int:
    """Return the step of a progress line; 0 for any other line."""
    return _number(line, "step")


def _steps(line: str) -> int:
    """Return the total steps of a progress line; 0 for any other line."""
    return _number(line, "steps")


def _number(line: str, name: str) -> int:
    try:
        return int(json.loads(line)[name])
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0

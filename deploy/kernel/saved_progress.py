"""Left: how far a training got, and what of its output the next session needs, told by the pulled
folder alone.

Reads  outputs.json, artifact/, and every `checkpoints/step-<n>/` (docs/design.md), at the top or in
the folders of folds Gives  a `Left`: complete or partial, and every file to go on from, by its
sha256

A checkpoint counts only if its manifest holds its own sha256 and that of the state beside it: a
session that was killed may leave others.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.kernel import artifact_manifest, output

CHECKPOINTS, HISTORY, PROGRESS, COMPILED = (
    "checkpoints",
    "history.csv",
    "progress.jsonl",
    "compiled",
)
NOISE = "noise.json"  # by which the batch was chosen
STEP = re.compile(r"step-(\d{8,})(\.replaced)?")
LISTED = re.compile(r"(?:.*/)?checkpoints/step-(\d{8,})(?:\.replaced)?/manifest\.json")
FOLD = "fold-"
KERNEL, DATASET = "kernel", "dataset"
FLAT = "--"  # in place of "/", where there are no folders


@dataclass(frozen=True)
class Left:
    """What a training left.

    Attributes:
        complete: there is an artifact.
        steps: the newest whole checkpoint's step, by the folder that holds `checkpoints` ("" or
            "fold-1"); totals: of how many.
        run_id, checkpoint, checkpoint_sha256: of the checkpoint of the last of these folders: its
            run, its folder, its manifest's seal.
        files: {name: sha256} of all that the next session takes.
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
        """The steps done, of all folds together."""
        return sum(self.steps.values())

    def __str__(self) -> str:
        if self.complete:
            return "complete"
        told = [
            told_step(step, self.totals.get(place, 0), place) for place, step in self.steps.items()
        ]
        return f"partial, {', '.join(told)}"

    def expect(self, route: str) -> dict[str, Any]:
        """Return what the bundle of the next session carries. Without folders, executables are left
        behind: they are many files.
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


def told_step(step: int, total: int, place: str = "") -> str:
    """Return it for a person.

    >>> told_step(40, 120), told_step(40, 0, "fold-2")
    ('step 40 of 120', 'fold-2 step 40')
    """
    return f"{place} step {step}".lstrip() + (f" of {total}" if total else "")


def read(folder: Path) -> Left | None:
    """Return what the run of this pulled folder left; None where there is neither an artifact nor a
    whole checkpoint.

    Raises:
        Unverified: if a file is not what the run's own list says; the message says how to get it
            again.
    """
    listed = (
        output.sealed(folder) if (folder / output.OUTPUTS).is_file() else None
    )  # a run that was killed made none
    status = _json(folder / output.OUTPUTS).get("status")
    artifact = (folder / output.ARTIFACT / artifact_manifest.NAME).is_file()
    if artifact if status is None else status == "complete":
        return Left(True, {}, {}, "", "", "", {})
    steps, totals, files = {}, {}, {}
    run_id = newest = seal = ""
    for place in _places(folder):
        found = _whole(folder / place / CHECKPOINTS)
        if found is None:
            continue
        path, told = found
        name = path.relative_to(folder).as_posix()
        key = place.as_posix().removeprefix(".")
        steps[key] = int(told["step"])
        totals[key] = _total(folder / place / PROGRESS)
        run_id, newest, seal = (
            str(told["details"]["run_id"]),
            name,
            str(told[artifact_manifest.SEAL]),
        )
        files.update(_digests(folder, [path / artifact_manifest.NAME, path / "state.npz"]))
        beside = [folder / place / name for name in (HISTORY, PROGRESS)]
        files.update(_digests(folder, [path for path in beside if path.is_file()]))
    if not steps:
        return None
    more = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _carried(path.relative_to(folder), listed)
    ]
    files.update(_digests(folder, more))
    for name, digest in files.items():
        if listed is not None and listed.get(name, ("", 0))[0] != digest:
            output.unchanged(folder / name, folder, name)  # raises, and says how to mend it
    return Left(False, steps, totals, run_id, newest, seal, dict(sorted(files.items())))


def glance(names: list[str], log: list[str]) -> str:
    """Return the same in words, from the names of a run's files and its log, before anything is
    downloaded; "" for neither.

    >>> glance(["checkpoints/step-00000040/manifest.json"], ['{"step": 39, "steps": 120}', "Stopped"])
    'partial, step 40 of 120'
    """
    if f"{output.ARTIFACT}/{artifact_manifest.NAME}" in names:
        return "complete"
    saved = [int(found[1]) for name in names if (found := LISTED.fullmatch(name))]
    folds = [
        name.split("/")[0] for name in names if name.startswith(FOLD) and LISTED.fullmatch(name)
    ]
    if not saved:
        return ""
    if folds:
        return f"partial, in {max(folds, key=_order)}"
    return f"partial, {told_step(max(saved), next((total for total in map(_steps, reversed(log)) if total), 0))}"


def _places(folder: Path) -> Iterator[Path]:
    """Yield the folders that may hold checkpoints, relative: the top, then the folds in their
    order.
    """
    yield Path()
    yield from sorted(
        (path.relative_to(folder) for path in folder.glob(f"{FOLD}*") if path.is_dir()), key=_order
    )


def _order(place: object) -> tuple[int, str]:
    return len(str(place)), str(place)  # fold-10 comes after fold-2


def _carried(name: Path, listed: object) -> bool:
    """Return whether a file goes along beside the checkpoints: what finished folds left, why the
    batch is what it is,
    and executables, if the run came to its end."""
    if CHECKPOINTS in name.parts:
        return False
    if COMPILED in name.parts[:-1]:
        return listed is not None
    return name.as_posix() == NOISE or (name.parts[0].startswith(FOLD) and len(name.parts) > 1)


def _whole(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest checkpoint that is whole, with its manifest. Of one step that without
    ".replaced" is newer.
    """
    named = [(STEP.fullmatch(path.name), path) for path in folder.glob("step-*") if path.is_dir()]
    order = sorted(
        ((int(name[1]), name[2] is None, path) for name, path in named if name), reverse=True
    )
    for step, _, path in order:
        try:
            content = (path / artifact_manifest.NAME).read_bytes()
            told = json.loads(content)
            whole = artifact_manifest.sealed(told) == content and told["step"] == step
            if (
                whole
                and told["sha256"] == artifact_manifest.sha256(path / "state.npz")
                and told["details"]["run_id"]
            ):
                return path, told
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
    return None


def _digests(folder: Path, paths: list[Path]) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): artifact_manifest.sha256(path) for path in paths}


def _total(lines: Path) -> int:
    try:
        return _steps(lines.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _steps(line: str) -> int:
    """Return how many steps a line of progress says that the run has; 0 for any other line."""
    try:
        return int(json.loads(line)["steps"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

"""What a training saved, from its folder alone: how far it got, its artifact, and an ensemble's.

The model side writes these files (docs/dev/contracts.md). A checkpoint counts only if its manifest
has its own sha256 and that of the state beside it: a killed session may leave corrupt ones.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from deploy import output
from deploy.decoding import MALFORMED
from deploy.errors import Unverified, UsageError
from deploy.output import ARTIFACT, CHECKPOINTS
from deploy.project import Project
from formats import checkpoint_folder, checksums
from formats.sealed_folder import MANIFEST

COMPILED, HISTORY, PROGRESS = "compiled", "history.csv", "progress.jsonl"
LISTED = re.compile(r"(?:.*/)?checkpoints/step-(\d{8,})/manifest\.json")
# Decoded images, whole once this file is there (`pipeline.data.image_arrays`).
SHARD = re.compile(r"([0-9]{1,6})-of-([0-9]{1,6})-[0-9a-f]{32}\.json")
ALL_MEASURED = "complete.json"  # in the output of a benchmark that left no cell
FOLD = "fold-"
KERNEL, DATASET = "kernel", "dataset"
FLAT = "--"  # in place of "/" in a dataset, which has no folders
OF_DESKTOPS = (".DS_Store", "Thumbs.db", "desktop.ini")  # they leave these in any open folder
PULL_AGAIN = (
    "Move out what is not in its manifest. If Kaggle has no better one, train again. To pull it"
    " again, which sets a changed folder aside:\ninvoke pull"
)
PINNED = ("run_id", "weights_sha256", "config", "weight")  # of a member
AVERAGE_AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"


# How far a training got


@dataclass(frozen=True)
class Checkpoint:
    """The newest whole checkpoint of a training, or of one of its folds.

    Attributes:
        fold: as "fold-1"; "": the training has no folds.
        folder: of the checkpoint, in the pulled folder.
        step: at which it was saved.
        total: steps of the whole training; 0: unknown.
        sha256: the seal of its manifest.
    """

    fold: str
    folder: str
    step: int
    total: int
    run_id: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.fold} {_step_in_words(self.step, self.total)}".lstrip()


@dataclass(frozen=True)
class SavedProgress:
    """What a training saved.

    Attributes:
        checkpoints: of each fold that has one, in order; () if the training is complete.
        files: {name: sha256} of all that the next session needs.
    """

    checkpoints: Sequence[Checkpoint] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether there is an artifact."""
        return not self.checkpoints

    @property
    def newest(self) -> Checkpoint:
        """The checkpoint that the next session resumes from, if the training is not complete."""
        return self.checkpoints[-1]

    @property
    def step(self) -> int:
        """The steps done, in all folds together."""
        return sum(checkpoint.step for checkpoint in self.checkpoints)

    def __str__(self) -> str:
        return "complete" if self.complete else f"partial, {', '.join(map(str, self.checkpoints))}"

    def expect(self, route: str) -> dict[str, Any]:
        """Return what the next session's bundle expects.

        Args:
            route: KERNEL, or DATASET, which carries no compiled executables: they are many files.
        """
        return {
            "run_id": self.newest.run_id,
            "step": self.newest.step,
            "checkpoint": self.newest.folder,
            "checkpoint_sha256": self.newest.sha256,
            "files": {
                name: digest
                for name, digest in self.files.items()
                if route == KERNEL or COMPILED not in name.split("/")[:-1]
            },
        }


def read(folder: Path) -> SavedProgress | None:
    """Return what the run of a pulled folder saved; None without artifact and whole checkpoint.

    Curves and executables are left out if they are not as the run wrote them: without them a
    training computes the same.

    Raises:
        Unverified: if another file is not what the run's own list says.
    """
    # A killed run made no list.
    listed = output.sealed(folder) if (folder / output.OUTPUTS).is_file() else None
    complete = "complete" if (folder / ARTIFACT / MANIFEST).is_file() else ""
    if output.json_object(folder / output.OUTPUTS).get("status", complete) == "complete":
        return SavedProgress()
    folds = sorted((path.name for path in folder.glob(f"{FOLD}*")), key=_order)
    checkpoints = list(filter(None, (_newest_checkpoint(folder, fold) for fold in ("", *folds))))
    if not checkpoints:
        return None
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder)
        if not _is_needed(place, checkpoints, ended=listed is not None):
            continue
        name, entry = place.as_posix(), checksums.file_entry(path)
        if listed is None or listed.get(name) == entry:
            files[name] = entry["sha256"]
        elif place.name not in (HISTORY, PROGRESS) and COMPILED not in place.parts:
            output.unchanged(folder, name)  # raises
    return SavedProgress(checkpoints, files)


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
    shards = [int(found[2]) for name in names if (found := SHARD.fullmatch(name))]
    made = {ALL_MEASURED, f"{ARTIFACT}/{MANIFEST}"}.intersection(names)
    if made or (shards and len(shards) == shards[0]):
        return "complete"
    if shards:
        return f"partial, {len(shards)} of {shards[0]} shards"
    steps = {name: int(found[1]) for name in names if (found := LISTED.fullmatch(name))}
    folds = [name.split("/")[0] for name in steps if name.startswith(FOLD)]
    if folds:
        return f"partial, in {max(folds, key=_order)}"
    total = next(filter(None, (_number(line, "steps") for line in reversed(log))), 0)
    return f"partial, {_step_in_words(max(steps.values()), total)}" if steps else ""


def _step_in_words(step: int, total: int) -> str:
    return f"step {step} of {total}" if total else f"step {step}"


def _number(line: str, name: str) -> int:
    """Return a number of a line of progress; 0 for any other line."""
    try:
        return int(json.loads(line)[name])
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0


def _order(fold: str) -> tuple[int, str]:
    return len(fold), fold  # fold-10 comes after fold-2


def _newest_checkpoint(folder: Path, fold: str) -> Checkpoint | None:
    """Return the newest whole checkpoint of a fold, or of a training without folds."""
    progress = folder / fold / PROGRESS
    for path in checkpoint_folder.newest_first(folder / fold / CHECKPOINTS):
        try:
            manifest = checkpoint_folder.verified(path)
            run_id = str(manifest["details"]["run_id"])
        except (OSError, *MALFORMED, RecursionError):
            continue
        lines = progress.read_bytes().splitlines() if progress.is_file() else []
        total = _number(lines[-1].decode(errors="replace"), "steps") if lines else 0
        name, seal = path.relative_to(folder).as_posix(), str(manifest[checksums.SEAL])
        return Checkpoint(fold, name, int(manifest["step"]), total, run_id, seal)
    return None


def _is_needed(name: PurePath, checkpoints: Sequence[Checkpoint], *, ended: bool) -> bool:
    """Return whether the next session needs a file.

    It needs the newest checkpoints, the curves beside them, what finished folds wrote, what fits
    into memory, and the executables of a session that ended by itself.
    """
    if CHECKPOINTS in name.parts:
        is_newest = name.parent.as_posix() in {checkpoint.folder for checkpoint in checkpoints}
        return is_newest and name.name in (MANIFEST, checkpoint_folder.STATE)
    if COMPILED in name.parts[:-1]:
        return ended
    if len(name.parts) > 1:
        return name.parts[0].startswith(FOLD)
    return not checkpoints[0].fold and name.name in (HISTORY, PROGRESS)


# An artifact


@dataclass(frozen=True)
class Manifest:
    """What the Kaggle side needs of an artifact's manifest.

    Attributes:
        bundle_sha256: "" if the training was not started by a bundle.
        competition: of the config that it was trained with; "" if no config is in it.
    """

    run_id: str
    weights_sha256: str
    bundle_sha256: str
    competition: str


def manifest(artifact: Path) -> Manifest:
    """Return the manifest of a folder after comparing every file with it, but those of desktops.

    Raises:
        Unverified: if a file is missing, unexpected or changed, or the manifest is.
    """
    path = artifact / MANIFEST
    with output.reading(path, f"the bytes that the run wrote.\n{PULL_AGAIN}"):
        value = checksums.opened(path.read_bytes())
        listed = output.entries(value["files"])
        found = Manifest(
            run_id=str(value["run_id"]),
            weights_sha256=str(value["weights_sha256"]),
            bundle_sha256=value["bundle_sha256"] or "",  # trained from a checkout
            competition=(value.get("config") or {}).get("competition", ""),
        )
    held, problems = files(artifact), []
    for name in sorted({*held, *listed} - {MANIFEST}):
        actual = checksums.file_entry(held[name]) if name in held else None
        if name not in listed:
            problems.append(f"{name} is not in the manifest")
        elif actual is None:
            problems.append(f"{name} is missing, or a link")
        elif actual != listed[name]:
            problems.append(f"{name} has other bytes")
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise Unverified(f"{artifact} is not what its manifest says:\n{lines}\n{PULL_AGAIN}")
    return found


def files(folder: Path) -> dict[str, Path]:
    """Return the files in a folder by name, without links and what a desktop leaves anywhere."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    ours = (path for path in paths if path.name not in OF_DESKTOPS)
    return {path.relative_to(folder).as_posix(): path for path in ours}


def own_manifest(project: Project, artifact: Path) -> Manifest:
    """Return the `manifest` of an artifact; raise `UsageError` if it is another competition's."""
    found = manifest(artifact)
    if found.competition not in ("", project.competition):
        raise UsageError(
            f"The artifact in {artifact} was trained for the competition {found.competition}; the"
            f" config {project.name} is for {project.competition}.\nCorrect the config, or train"
            f" with it:\n{project.command('push-train')}"
        )
    return found


# The members of an ensemble


@dataclass(frozen=True)
class Member:
    """A trained model of an ensemble.

    Attributes:
        run_id, weights_sha256: of its artifact.
        config: the name of its config.
        weight: above 0.
        folder: of its artifact, on this machine.
        file: the ensemble.json that names it.
    """

    run_id: str
    weights_sha256: str
    config: str
    weight: float
    folder: Path
    file: Path


def ensemble(path: Path, project: Project) -> list[Member]:
    """Return the members that have a weight, the heaviest first, each verified byte for byte.

    Raises:
        UsageError: if there is no such file or folder, or a member was trained for another
            competition than the project's.
        Unverified: if the file was changed, or a folder holds something else.
    """
    if not path.is_file():
        raise UsageError(f"{path} is no file; expected an ensemble.json.\n{AVERAGE_AGAIN}")
    with output.reading(path, f"{', '.join(PINNED)} and folder of each member. {AVERAGE_AGAIN}"):
        members = [
            Member(**{name: each[name] for name in PINNED}, folder=Path(each["folder"]), file=path)
            for each in checksums.opened(path.read_bytes())["members"]
            if each["weight"] > 0
        ]
    for member in members:
        if not member.folder.is_dir():
            raise UsageError(
                f"{path} says that the artifact of run {member.run_id} is in {member.folder}; it is"
                f" not there.\nMove it back, or pull it again. {AVERAGE_AGAIN}"
            )
        found = own_manifest(project, member.folder)
        if (found.run_id, found.weights_sha256) != (member.run_id, member.weights_sha256):
            raise Unverified(
                f"{member.folder} holds run {found.run_id}, weights {found.weights_sha256[:12]};"
                f" {path} pins run {member.run_id}, weights {member.weights_sha256[:12]}.\n"
                f"Restore the folder. {AVERAGE_AGAIN}"
            )
    return sorted(members, key=lambda member: -member.weight)


def expected(members: Sequence[Member]) -> dict[str, Any]:
    """Return what the bundle of an inference expects: each member, with its weight."""
    pinned = [{name: getattr(member, name) for name in PINNED} for member in members]
    return {"members": pinned}

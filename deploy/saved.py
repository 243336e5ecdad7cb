"""What a training saved, from its folder alone: how far it got, its artifact, and an ensemble's.

The model side writes these files (docs/dev/design.md). A checkpoint counts only if its manifest has
its own sha256 and that of the state beside it: a killed session may leave corrupt ones.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from deploy import output
from deploy.errors import Unverified, UsageError
from deploy.output import ARTIFACT, CHECKPOINTS
from deploy.project import Project
from formats import checkpoint_folder, checksums, sealed_folder
from formats.sealed_folder import MANIFEST

COMPILED, HISTORY, PROGRESS = "compiled", "history.csv", "progress.jsonl"
LISTED = re.compile(r"(?:.*/)?checkpoints/step-(\d{8,})/manifest\.json")
# Decoded images, whole once this file is there (`pipeline.data.image_arrays`).
SHARD = re.compile(r"([0-9]{1,6})-of-([0-9]{1,6})-[0-9a-f]{32}\.json")
FOLD = "fold-"
KERNEL, DATASET = "kernel", "dataset"
FLAT = "--"  # in place of "/" in a dataset, which has no folders
OF_DESKTOPS = (".DS_Store", "Thumbs.db", "desktop.ini")  # they leave these in any open folder
PULL_AGAIN = (
    "If Kaggle has no better one, train again. To pull it again, which sets a changed folder"
    " aside:\ninvoke pull"
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

    What is found again without a file is left out where Kaggle did not have it as the run wrote
    it.

    Raises:
        Unverified: if another file is not what the run's own list says.
    """
    # A killed run made no list.
    listed = output.sealed(folder) if (folder / output.OUTPUTS).is_file() else None
    status = output.json_object(folder / output.OUTPUTS).get("status")
    has_artifact = (folder / ARTIFACT / MANIFEST).is_file()
    if status == "complete" or (status is None and has_artifact):
        return SavedProgress()
    folds = sorted((path.name for path in folder.glob(f"{FOLD}*") if path.is_dir()), key=_order)
    found = (_newest_checkpoint(folder, fold) for fold in ("", *folds))
    checkpoints = [checkpoint for checkpoint in found if checkpoint is not None]
    if not checkpoints:
        return None
    note = output.noted(folder)
    differing = note.differing if note is not None else ()
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    needed = (path for path in paths if _is_needed(path, checkpoints, ended=listed is not None))
    files = {}
    for name in sorted(path.as_posix() for path in needed):
        digest = checksums.sha256(folder / name)
        if listed is not None and listed.get(name, {}).get("sha256") != digest:
            if name in differing and _can_be_missed(name):
                continue
            output.unchanged(folder, name)  # raises
        files[name] = digest
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
    shards = {found[1]: int(found[2]) for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        count = next(iter(shards.values()))
        return "complete" if len(shards) == count else f"partial, {len(shards)} of {count} shards"
    if f"{ARTIFACT}/{MANIFEST}" in names:
        return "complete"
    steps = {name: int(found[1]) for name in names if (found := LISTED.fullmatch(name))}
    folds = [name.split("/")[0] for name in steps if name.startswith(FOLD)]
    if folds:
        return f"partial, in {max(folds, key=_order)}"
    totals = (_number(line, "steps") for line in reversed(log))
    total = next(filter(None, totals), 0)
    return f"partial, {_step_in_words(max(steps.values()), total)}" if steps else ""


def last_step(log: list[str]) -> str:
    """Return the last step that a log names; "" if it names none.

    >>> last_step(['{"step": 39, "steps": 120}', '{"step": 40, "steps": 120}', "Killed"])
    'step 40 of 120'
    """
    lines = (line for line in reversed(log) if _number(line, "step"))
    line = next(lines, "")
    return _step_in_words(_number(line, "step"), _number(line, "steps")) if line else ""


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
            run_id = str(manifest["details"]["run_id"] or "")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        if run_id:
            lines = progress.read_bytes().splitlines() if progress.is_file() else []
            total = _number(lines[-1].decode(errors="replace"), "steps") if lines else 0
            name = path.relative_to(folder).as_posix()
            seal = str(manifest[checksums.SEAL])
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


def _can_be_missed(name: str) -> bool:
    """Return whether a training resumes without this file, and computes the same."""
    *folders, last = name.split("/")
    return last in (HISTORY, PROGRESS) or COMPILED in folders


# An artifact


@dataclass(frozen=True)
class Manifest:
    """What the Kaggle side needs of an artifact's manifest.

    Attributes:
        bundle_sha256: "" if the training was not started by a bundle.
        files: of every other file in the folder, as `output.entries` has them.
        competition: of the config that it was trained with; "" if no config is in it.
    """

    run_id: str
    weights_sha256: str
    bundle_sha256: str
    files: Mapping[str, Mapping[str, Any]]
    competition: str


def manifest(artifact: Path) -> Manifest:
    """Return the manifest of a folder after comparing every file with it, but those of desktops.

    Raises:
        UsageError: if there is no such folder.
        Unverified: if a file is missing, unexpected or changed, or the manifest is.
    """
    path = artifact / MANIFEST
    if not path.is_file():
        kind = Unverified if artifact.is_dir() else UsageError
        raise kind(f"{artifact} has no {MANIFEST}; expected a pulled artifact.\n{PULL_AGAIN}")
    found = _parse(path)
    paths = {
        path.relative_to(artifact).as_posix(): path
        for path in artifact.rglob("*")
        if not path.is_dir() and path != artifact / MANIFEST
    }
    unlisted = sorted(paths.keys() - found.files.keys())
    unlisted = [name for name in unlisted if paths[name].name not in OF_DESKTOPS]
    problems = [f"{name} is not in the manifest" for name in unlisted]
    for name, entry in sorted(found.files.items()):
        if name not in paths:  # which is a path that the manifest alone names
            problems.append(f"{name} is missing")
        elif paths[name].is_symlink():
            problems.append(f"{name} is a link")
        else:
            try:
                sealed_folder.verify(paths[name], entry)
            except ValueError as error:
                problems.append(str(error))
    if found.weights_sha256 not in {entry["sha256"] for entry in found.files.values()}:
        problems.append("weights_sha256 is that of no file")
    if len(problems) == len(unlisted) > 0:
        raise Unverified(
            f"{artifact} holds what is not in its manifest: {', '.join(unlisted)}.\n"
            "Expected the files that the run wrote, and no others. Move it out of that folder, and"
            " run the same command again."
        )
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise Unverified(f"{artifact} is not what its manifest says:\n{listed}\n{PULL_AGAIN}")
    return found


def _parse(path: Path) -> Manifest:
    fields = "run_id, weights_sha256, bundle_sha256 and files"
    with output.reading(path, f"the bytes that the run wrote, with {fields}.\n{PULL_AGAIN}"):
        value = checksums.opened(path.read_bytes())
        # No bundle: trained from a checkout.
        texts = (value["run_id"], value["weights_sha256"], value["bundle_sha256"] or "")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{texts} are not three texts")
        config = value.get("config")
        competition = str(config.get("competition", "")) if isinstance(config, dict) else ""
        return Manifest(*texts, output.entries(value["files"]), competition)


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
        UsageError: if there is no such file, a member's folder is gone, or a member was trained for
            another competition than the project's.
        Unverified: if the file was changed, or a folder holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{str(path)[:200]} cannot be read: {error.strerror}; expected an ensemble.json.\n"
            f"{AVERAGE_AGAIN}"
        ) from error
    with output.reading(path, f"{', '.join(PINNED)} and folder of each member. {AVERAGE_AGAIN}"):
        members = [
            Member(**{name: each[name] for name in PINNED}, folder=Path(each["folder"]), file=path)
            for each in checksums.opened(content)["members"]
            if each["weight"] > 0
        ]
        if not members:
            raise ValueError("it has no members")
    for member in members:
        _require(member, project)
    return sorted(members, key=lambda member: -member.weight)


def _require(member: Member, project: Project) -> None:
    """Raise unless the folder holds the artifact that was averaged, for that competition."""
    try:
        found = manifest(member.folder)
    except UsageError as error:
        raise UsageError(
            f"{member.file} says that the artifact of run {member.run_id} is in {member.folder}; it"
            f" is not there.\nExpected it where it was. Move it back, or pull it again."
            f" {AVERAGE_AGAIN}"
        ) from error
    if (found.run_id, found.weights_sha256) != (member.run_id, member.weights_sha256):
        raise Unverified(
            f"{member.folder} holds run {found.run_id}, weights {found.weights_sha256[:12]};"
            f" {member.file} pins run {member.run_id}, weights {member.weights_sha256[:12]}.\n"
            f"Restore the folder. {AVERAGE_AGAIN}"
        )
    if found.competition != project.competition:
        raise UsageError(
            f"{member.file} has run {member.run_id}, of the competition {found.competition!r};"
            f" --config {project.config} is for {project.competition!r}.\n"
            f"Expected one competition. Give a config of that one, as --config {member.config}"
        )


def expected(members: Sequence[Member]) -> dict[str, Any]:
    """Return what the bundle of an inference expects: each member, with its weight."""
    pinned = [{name: getattr(member, name) for name in PINNED} for member in members]
    return {"members": pinned}

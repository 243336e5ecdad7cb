"""Pull the output of runs, verify it, and read its contents.

A pulled folder is identified by the run's own list of its files, outputs.json, and by the note that
the pull adds. Its name and location are not trusted. See docs/dev/contracts.md for the files that a
run writes. Killed sessions may leave corrupt checkpoints, so a checkpoint is only used if the
SHA-256 values of its manifest and state are correct.
"""

import hashlib
import itertools
import json
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from deploy import auth, errors, runs
from deploy.calls import KernelStatus
from deploy.client import Kaggle
from deploy.decoding import MALFORMED, log_lines
from deploy.errors import BadAnswer, Denied, NotFound, RunFailed, Unverified, UsageError
from deploy.events import Note, Steps
from deploy.locks import locked
from deploy.project import Project
from deploy.runs import Run
from deploy.transfer import PARTIAL
from formats import checkpoint_folder, checksums
from formats.errors import writing
from formats.sealed_folder import MANIFEST

ARTIFACT, BUNDLE, OUTPUTS = "artifact", "bundle.json", "outputs.json"
CHECKPOINTS, SUBMISSION = "checkpoints", "submission.csv"
NOTE = ".pulled.json"  # added by the pull
AGAIN = "To pull it again and move the modified folder aside, run:\ninvoke pull --run {}"
# Downloaded files are kept after these errors.
KEPT = (errors.Unreachable, errors.CredentialError, errors.DeadlinePassed)
COMPLETE = "COMPLETE"
NOTES = f"notes{PARTIAL}"  # folder that exists during a pull
LATER = "Kaggle may need a minute. Pull again."
COMPILED, HISTORY, PROGRESS = "compiled", "history.csv", "progress.jsonl"
PSEUDO_LABELS = "pseudo_labels.npz"
LISTED = re.compile(r"(?:.*/)?checkpoints/step-(\d{8,})/manifest\.json")
# Decoded images, which are complete once this file exists (`pipeline.data.image_arrays`).
SHARD = re.compile(r"([0-9]{1,6})-of-([0-9]{1,6})-[0-9a-f]{32}\.json")
ALL_MEASURED = "complete.json"  # in the output of a complete benchmark
FOLD = "fold-"
KERNEL, DATASET = "kernel", "dataset"
FLAT = "--"  # replaces "/" in datasets, which have no folders
OF_DESKTOPS = (".DS_Store", "Thumbs.db", "desktop.ini")  # created when a folder is opened
PULL_AGAIN = (
    "Remove any files that are not in the manifest. To pull the run again and move the modified"
    " folder aside:\ninvoke pull\nIf the files on Kaggle do not match either, train again."
)
PINNED = ("run_id", "weights_sha256", "config", "weight")  # fields of a member
AVERAGE_AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"


# Kaggle's list of files


def listed(kaggle: Kaggle, run: Run) -> Steps[tuple[dict[str, str], str]]:
    """Return the signed URLs of a complete run's files, keyed by name, and the run's log.

    Kaggle may not list the files right after the run has ended, so this waits up to
    `kaggle.pace.listed` seconds until the first file is listed.
    """
    seconds = kaggle.pace.listed
    end, note = time.monotonic() + seconds, f"Kaggle does not list any output of {run} yet."
    while True:
        files, log = kaggle.kernel_output(run.handle, run.version)
        if files or time.monotonic() >= end:
            return files, log
        if note:
            yield Note(f"{note} Waiting for up to {seconds:.0f} s.")
            note = ""
        time.sleep(kaggle.pace.first)


def safe(name: str) -> PurePosixPath:
    """Convert a file name from the network to a relative path.

    Raises:
        BadAnswer: if it is absolute, contains "..", or is not valid on all operating systems.

    >>> str(safe("artifact/weights.npz"))
    'artifact/weights.npz'
    """
    path = PurePosixPath(name)
    is_safe = (
        name.isprintable()
        and name == "/".join(path.parts)
        and path.parts == PureWindowsPath(name).parts  # no drive, no backslash
        and name != NOTE  # reserved for the pull
        and ".." not in path.parts
        and 0 < len(path.parts) <= 20
        and all(len(part.encode()) <= 200 and not part.endswith(PARTIAL) for part in path.parts)
    )
    if not is_safe:
        raise BadAnswer(
            f"Kaggle lists the file {name[:200]!r}. It must have a plain name other than {NOTE}.\n"
            "Nothing was written. Rename the file in the notebook, and run it again."
        )
    return path


# Pulling


def pull(kaggle: Kaggle, run: Run, into: Path) -> Steps[Path]:
    """Download a run's output, verify it, and return its folder in `into`, named SLUG-vNUMBER.

    Files are downloaded to a temporary folder, which is renamed at the end. If the pull is killed
    or loses the connection, the next pull of the same notebook reuses all files that have not
    changed on the storage server.

    The submission, the artifact and the checkpoints are compared with the sizes and SHA-256 values
    in `outputs.json` and `artifact/manifest.json`. The artifact's `bundle_sha256` must match the
    run. Other files may differ, because Kaggle may modify some files, and may not list hidden or
    empty files.

    If the folder already exists and has the same files, it is kept. If it has different files, it
    is renamed by appending -aside-1 or, if that name is taken, a higher number.

    Raises:
        DeadlinePassed: if the run has not ended.
        BadAnswer: if a file name is unsafe. In this case, nothing is written.
        RunFailed: if the run failed and wrote no files.
        Unverified: if a file that must match differs, or a complete run has no output.
    """
    end = _end(kaggle, run)
    if end.name == COMPLETE:
        files, log = yield from listed(kaggle, run)
        if not files:
            raise Unverified(f"{run} is COMPLETE, but Kaggle does not list any output.\n{LATER}")
    else:
        files, log = kaggle.kernel_output(run.handle, run.version)
        if not files:
            then = f"No output is listed, so nothing was pulled. If it has just ended: {LATER}"
            raise RunFailed(runs.failed(kaggle, run, end.name, end.failure, then))
    places = [safe(name) for name in files]
    if both := {str(parent) for place in places for parent in place.parents} & files.keys():
        raise BadAnswer(
            f"Kaggle lists {min(both)!r} in {run} as both a file and a folder.\n"
            "Nothing was written."
        )
    target = into / folder_name(run)
    slug = run.handle.partition("/")[2]
    with workplace(into / f".pull.{slug}") as fresh:
        if _keep_noted(fresh, places):
            yield Note(f"{run}: resuming an interrupted pull")
        for name in files:
            _download(kaggle, run, name, files, fresh)
        text = fresh / f"{slug}.log"
        if log and not text.exists():
            with writing(text):
                text.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
        differing = _verify(kaggle, run, fresh, complete=end.name == COMPLETE)
        if differing:
            yield Note(
                f"{run}: some files on Kaggle differ from the files that the run wrote"
                f" ({', '.join(differing)}). The artifact, checkpoints and submission are intact."
            )
        aside = _put(fresh, target, run)
    if aside:
        yield Note(f"{target} differed from {run}. It was renamed to {aside} and can be deleted.")
    return target


def _end(kaggle: Kaggle, run: Run) -> KernelStatus:
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied) as error:
        raise runs.missing(kaggle, run, error) from None
    if status.name not in runs.ENDED:
        raise errors.DeadlinePassed(
            f"{run} has not ended: it is {status.name}.\nTo wait for it:\ninvoke watch --run {run}"
        )
    return status


def _note(folder: Path, place: PurePosixPath) -> Path:
    return folder / NOTES / hashlib.sha256(str(place).encode()).hexdigest()


def _keep_noted(folder: Path, places: Collection[PurePosixPath]) -> bool:
    # Files without a note may be from a different run.
    noted = [place for place in places if _note(folder, place).is_file()]
    kept = {_note(folder, place) for place in noted}
    kept |= {folder / f"{place}{part}" for place in noted for part in ("", PARTIAL)}
    for path in sorted(folder.rglob("*"), reverse=True):  # files before their folder
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):  # not empty
                path.rmdir()
        elif path not in kept:
            path.unlink()
    return bool(noted)


def _download(kaggle: Kaggle, run: Run, name: str, files: dict[str, str], folder: Path) -> None:
    def renew() -> str:
        # This renews all signed URLs, which expire within minutes.
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        files.update(renewed)
        return renewed.get(name, "")

    place = safe(name)
    kaggle.download(files[name], folder / place, renew, _note(folder, place))


def _verify(kaggle: Kaggle, run: Run, folder: Path, *, complete: bool) -> list[str]:
    """Return the names of files on Kaggle that differ from what the run wrote.

    Such files are downloaded again first, because the list may be out of date.

    Raises:
        Unverified: if the submission or a file of the artifact or of a checkpoint differs, if the
            artifact is incomplete or from a different run, or if the run's list of files is
            unreadable, or is missing although the run wrote it.
    """
    reached_its_last_cell = complete or (folder / OUTPUTS).is_file()
    listed = (sealed(folder, str(run)) if reached_its_last_cell else None) or {}
    wrong = _differing(folder, listed)
    if wrong:
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        for name in renewed.keys() & wrong:
            _note(folder, safe(name)).unlink(missing_ok=True)  # downloads the whole file again
            _download(kaggle, run, name, renewed, folder)
        wrong = _differing(folder, listed)
    for name in wrong:
        first, *below = PurePosixPath(name).parts
        if first == ARTIFACT or CHECKPOINTS in (first, *below[:-1]) or name == SUBMISSION:
            raise Unverified(
                f"{name} of {run} is missing or differs from the file that the run wrote.\n{LATER}"
            )
    artifact = folder / ARTIFACT
    if artifact.exists():
        made_by = manifest(artifact).bundle_sha256
        if run.bundle_sha256 and made_by != run.bundle_sha256:
            raise Unverified(
                f"The artifact of {run} is from a different run. It was created by bundle"
                f" {made_by or 'none'}; expected {run.bundle_sha256}.\nPush again."
            )
    return wrong


def _differing(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = []
    for name, entry in sorted(listed.items()):
        path = folder / safe(name)
        if not path.is_file() or checksums.file_entry(path) != entry:
            wrong.append(name)
    return wrong


def _put(fresh: Path, target: Path, run: Run) -> str:
    # An older folder with different files may be the only copy of somebody's work.
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = PullNote(str(run), auth.address(), now)
    aside = ""
    with writing(target):
        shutil.rmtree(fresh / NOTES, ignore_errors=True)
        is_equal = _tree(target) == _tree(fresh)
        (fresh / NOTE).write_text(json.dumps(asdict(note)) + "\n", encoding="utf-8")
        if is_equal:
            (fresh / NOTE).replace(target / NOTE)
            return ""
        if target.exists() or target.is_symlink():
            numbered = (target.with_name(f"{target.name}-aside-{n}") for n in itertools.count(1))
            aside = target.rename(next(path for path in numbered if not path.exists())).name
        fresh.chmod(0o755)
        fresh.rename(target)
    return aside


def _tree(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / NOTE]
    return {path.relative_to(folder).as_posix(): checksums.sha256(path) for path in paths}


# Pulled folders


@dataclass(frozen=True)
class PullNote:
    """The note that a pull adds to its folder. `at` is the time of the pull in UTC."""

    run: str
    server: str
    at: str


def folder_name(run: Run) -> str:
    return f"{run.handle.partition('/')[2]}-v{run.version}"


def noted(folder: Path) -> PullNote | None:
    note = json_object(folder / NOTE)
    try:
        return PullNote(str(note["run"]), str(note["server"]), str(note["at"]))
    except KeyError:
        return None


def name_of(folder: Path) -> str:
    """Return owner/slug/version for a pulled run. Unknown parts are left as these literal words."""
    note = noted(folder)
    named = re.fullmatch(r"(.+)-v(\d+)(-aside-\d+)?", folder.resolve().name)
    return note.run if note else f"owner/{named[1]}/{named[2]}" if named else "owner/slug/version"


def sealed(folder: Path, run: str = "") -> dict[str, dict[str, Any]] | None:
    """Return the `entries` of the run's list of files, or None if the run did not write a list.

    `Unverified` is raised if the list is unreadable, or if it is missing although the run wrote it.
    """
    path, run = folder / OUTPUTS, run or name_of(folder)
    expected = f"the list of files that the run's last cell writes.\n{AGAIN.format(run)}"
    if path.is_file():
        with reading(path, expected):
            return entries(json.loads(path.read_text(encoding="utf-8"))["files"])
    if json_object(folder / BUNDLE).get("sealed") is True:
        raise Unverified(f"{run} has no {OUTPUTS}; expected {expected}")
    return None


def unchanged(folder: Path, name: str, run: str = "") -> None:
    """Raise `Unverified` if a file does not match the run's list of files.

    It is also raised if the list is unreadable. If the run did not write a list, any file passes.
    """
    files = sealed(folder, run)
    if files is not None and files.get(name) != checksums.file_entry(folder / name):
        again = AGAIN.format(run or name_of(folder))
        raise Unverified(
            f"{folder / name} is not the file that the run wrote: its SHA-256 does not"
            f" match {folder / OUTPUTS}.\n{again}"
        )


def entries(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Convert JSON to a dict that maps each file name to the file's `checksums.file_entry`.

    One of `MALFORMED` is raised if the JSON has a different form.
    """
    return {
        name: {"sha256": str(entry["sha256"]), "size": int(entry["size"])}
        for name, entry in files.items()
    }


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except (OSError, *MALFORMED, RecursionError) as error:
        raise Unverified(
            f"{path} cannot be read: {type(error).__name__}: {error}.\nExpected {expected}"
        ) from error


def of_bundle(folder: Path, name: str) -> str:
    return str(json_object(folder / BUNDLE).get(name, ""))


def json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@contextmanager
def workplace(place: Path) -> Iterator[Path]:
    """Yield a folder to work in, which is deleted at the end.

    The folder is kept if the process is killed or loses the connection to Kaggle. If another
    process is using it, `Busy` is raised.
    """
    busy = f"Another process is using {place}.\nWhen it has finished, run the same command again."
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f"{place.name}.lock")
    with locked(lock, busy):
        with writing(place):  # before we have the lock, the other process may delete the folder
            place.mkdir(mode=0o700, exist_ok=True)
        try:
            yield place
        except KEPT:
            raise
        except Exception:
            shutil.rmtree(place, ignore_errors=True)
            raise
        else:
            shutil.rmtree(place, ignore_errors=True)
        finally:
            lock.unlink(missing_ok=True)


# Training progress


@dataclass(frozen=True)
class Checkpoint:
    """The latest complete checkpoint of a training run, or of one of its folds.

    Attributes:
        fold: name of the fold, such as "fold-1", or "" if there are no folds.
        folder: path of the checkpoint within the pulled folder.
        total: number of steps of the whole training run, or 0 if unknown.
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
    """Progress saved by a training run.

    `checkpoints` contains the latest checkpoint of each fold that has saved one, and is empty if
    training is complete. `files` is {name: SHA-256} for the files that the next session needs.
    """

    checkpoints: Sequence[Checkpoint] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.checkpoints

    @property
    def newest(self) -> Checkpoint:
        return self.checkpoints[-1]

    @property
    def step(self) -> int:
        """Number of completed steps, summed over all folds."""
        return sum(checkpoint.step for checkpoint in self.checkpoints)

    def __str__(self) -> str:
        return "complete" if self.complete else f"partial, {', '.join(map(str, self.checkpoints))}"

    def expect(self, route: str) -> dict[str, Any]:
        """Return the value of `expect` for the next session's bundle.

        For a DATASET, the compiled executables are left out, because there are too many of them.
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


def saved_progress(folder: Path) -> SavedProgress | None:
    """Return the progress saved in a pulled folder.

    Return None if it has neither an artifact nor a complete checkpoint. Modified training curves
    and executables are skipped, because they do not affect training.

    Raises:
        Unverified: if another file differs from the run's list.
    """
    # A killed run did not write a list.
    listed = sealed(folder) if (folder / OUTPUTS).is_file() else None
    complete = "complete" if (folder / ARTIFACT / MANIFEST).is_file() else ""
    if json_object(folder / OUTPUTS).get("status", complete) == "complete":
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
            unchanged(folder, name)  # raises an error
    return SavedProgress(checkpoints, files)


def progress_in_words(names: list[str], log: list[str]) -> str:
    """Return a run's progress in words, or "" if its output files and log do not show it.

    >>> log = ['{"step": 39, "steps": 120}', "End"]
    >>> progress_in_words(["checkpoints/step-00000040/manifest.json"], log)
    'partial, step 40 of 120'
    >>> progress_in_words([f"1-of-3-{'0' * 32}.json", f"2-of-3-{'1' * 32}.json"], [])
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
    try:
        return int(json.loads(line)[name])
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0


def _order(fold: str) -> tuple[int, str]:
    return len(fold), fold  # sorts fold-10 after fold-2


def _newest_checkpoint(folder: Path, fold: str) -> Checkpoint | None:
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

    It needs the latest checkpoints with their training curves, the results of finished folds, the
    pseudo-labels, the memory measurements, and the executables of sessions that were not killed.
    """
    if CHECKPOINTS in name.parts:
        is_newest = name.parent.as_posix() in {checkpoint.folder for checkpoint in checkpoints}
        return is_newest and name.name in (MANIFEST, checkpoint_folder.STATE)
    if COMPILED in name.parts[:-1]:
        return ended
    if len(name.parts) > 1:
        return name.parts[0].startswith(FOLD)
    if name.name == PSEUDO_LABELS:
        return True
    return not checkpoints[0].fold and name.name in (HISTORY, PROGRESS)


# Artifacts


@dataclass(frozen=True)
class Manifest:
    """The fields of an artifact's manifest that the Kaggle client uses.

    `bundle_sha256` is "" if the training run was not started from a bundle.
    """

    run_id: str
    weights_sha256: str
    bundle_sha256: str
    competition: str


def manifest(artifact: Path) -> Manifest:
    """Verify all files of an artifact against its manifest, and return the manifest.

    `Unverified` is raised if the manifest or a file has changed or is missing, or if there is an
    unexpected file.
    """
    path = artifact / MANIFEST
    with reading(path, f"the file that the run wrote.\n{PULL_AGAIN}"):
        value = checksums.opened(path.read_bytes())
        listed = entries(value["files"])
        found = Manifest(
            run_id=str(value["run_id"]),
            weights_sha256=str(value["weights_sha256"]),
            bundle_sha256=value["bundle_sha256"] or "",  # None if trained from a checkout
            competition=(value.get("config") or {}).get("competition", ""),
        )
    held, problems = artifact_files(artifact), []
    for name in sorted({*held, *listed} - {MANIFEST}):
        actual = checksums.file_entry(held[name]) if name in held else None
        if name not in listed:
            problems.append(f"{name} is not in the manifest")
        elif actual is None:
            problems.append(f"{name} is missing or is a link")
        elif actual != listed[name]:
            problems.append(f"{name} has changed")
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise Unverified(f"{artifact} does not match its manifest:\n{lines}\n{PULL_AGAIN}")
    return found


def artifact_files(folder: Path) -> dict[str, Path]:
    """Return the files in a folder by name, except links and files that file managers create."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    ours = (path for path in paths if path.name not in OF_DESKTOPS)
    return {path.relative_to(folder).as_posix(): path for path in ours}


def own_manifest(project: Project, artifact: Path) -> Manifest:
    """Verify an artifact, and return its manifest.

    See `manifest` for errors. `UsageError` is raised if the artifact is for a different
    competition.
    """
    found = manifest(artifact)
    if found.competition not in ("", project.competition):
        raise UsageError(
            f"The artifact in {artifact} was trained for the competition {found.competition}, but"
            f" the config {project.name} is for {project.competition}.\nCorrect the config, or"
            f" train with it:\n{project.command('push-train')}"
        )
    return found


# Ensembles


@dataclass(frozen=True)
class Member:
    """A trained model in an ensemble.

    `run_id` and `weights_sha256` identify its artifact, which is in `folder`. `weight` is above 0.
    `file` is the ensemble.json that it was read from, and may contain thresholds.
    """

    run_id: str
    weights_sha256: str
    config: str
    weight: float
    folder: Path
    file: Path
    thresholds: Mapping[str, Any] | None = None

    @property
    def is_csv(self) -> bool:
        """Whether it consists of predictions in a CSV file instead of weights."""
        return (self.folder / "test.csv").is_file()


def ensemble(path: Path, project: Project) -> list[Member]:
    """Return an ensemble's verified members with a weight above 0, highest weight first.

    Raises:
        UsageError: if the file or a folder does not exist, or a member was trained for a different
            competition.
        Unverified: if the file was changed, or a folder contains a different artifact.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file; expected an ensemble.json.\n{AVERAGE_AGAIN}")
    with reading(path, f"{', '.join(PINNED)} and folder for each member. {AVERAGE_AGAIN}"):
        value = checksums.opened(path.read_bytes())
        more: dict[str, Any] = {"file": path, "thresholds": value.get("thresholds")}
        members = [
            Member(**{name: each[name] for name in PINNED}, folder=Path(each["folder"]), **more)
            for each in value["members"]
            if each["weight"] > 0
        ]
    for member in members:
        if not member.folder.is_dir():
            raise UsageError(
                f"{path} lists {member.folder} as the artifact of run {member.run_id}, but that"
                f" folder does not exist.\nMove it back, or pull it again. {AVERAGE_AGAIN}"
            )
        found = own_manifest(project, member.folder)
        if (found.run_id, found.weights_sha256) != (member.run_id, member.weights_sha256):
            raise Unverified(
                f"{member.folder} contains run {found.run_id} with weights"
                f" {found.weights_sha256[:12]}; {path} expects run {member.run_id} with weights"
                f" {member.weights_sha256[:12]}.\n"
                f"Restore the folder. {AVERAGE_AGAIN}"
            )
    return sorted(members, key=lambda member: -member.weight)


def expected(members: Sequence[Member]) -> dict[str, Any]:
    pinned = [{name: getattr(member, name) for name in PINNED} for member in members]
    found = members[0].thresholds
    return {"members": pinned} | ({"thresholds": found} if found else {})

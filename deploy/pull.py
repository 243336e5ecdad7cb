"""Pull what a run wrote: a folder whose artifact, checkpoints and submission are whole, or none."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from deploy import auth, output, runs, saved, transfer
from deploy.calls import KernelStatus
from deploy.client import Kaggle
from deploy.decoding import log_lines
from deploy.errors import BadAnswer, DeadlinePassed, Denied, RunFailed, Unverified
from deploy.events import Note, Steps
from deploy.output import ARTIFACT, CHECKPOINTS, NOTE, OUTPUTS, SUBMISSION
from deploy.runs import Run
from formats import checksums
from formats.errors import writing

COMPLETE = "COMPLETE"
NOTES = f"notes{transfer.PARTIAL}"  # beside what came, while a pull is under way
LATER = "Kaggle may need a minute: pull again."


def pull(kaggle: Kaggle, run: Run, into: Path) -> Steps[Path]:
    """Download all that a run wrote, verify it, and return its folder `into/<slug>-v<N>/`.

    Files are downloaded to a folder beside it, which is renamed at the end. A pull that is killed
    or loses Kaggle leaves that: the next pull of the same notebook goes on there with the files
    that are still those of the storage. Each file of the artifact, of the checkpoints, and the
    submission must have the size and sha256 that `outputs.json` and `artifact/manifest.json` give
    it, and the artifact's `bundle_sha256` must be the run's. Any other file may differ: nobody
    knows whether Kaggle lists hidden and empty files, or serves all of them unchanged. An existing
    folder with equal files stays; a different one is renamed to `<slug>-v<N>-aside-<n>`.

    Args:
        into: the folder of all pulled runs.

    Raises:
        DeadlinePassed: if the run has not ended.
        BadAnswer: if a file's name is unsafe. Nothing is written then.
        RunFailed: if the run failed and wrote no file; with its own error.
        Unverified: if one of those files differs, or a complete run has no output.
        DiskError: if the disk is full or cannot be written.
    """
    end = _end(kaggle, run)
    if end.name == COMPLETE:
        files, log = yield from output.listed(kaggle, run)
        if not files:
            raise Unverified(f"{run} is COMPLETE and lists no output.\n{LATER}")
    else:
        files, log = kaggle.kernel_output(run.handle, run.version)
        if not files:
            then = f"It lists no output, so nothing was pulled. If it ended just now: {LATER}"
            raise RunFailed(runs.failed(kaggle, run, end.name, end.failure, then))
    places = [output.safe(name) for name in files]
    if both := {str(parent) for place in places for parent in place.parents} & files.keys():
        raise BadAnswer(
            f"{run} lists {min(both)!r} as a file and as a folder.\nNothing was written."
        )
    target = into / output.folder_name(run)
    slug = run.handle.partition("/")[2]
    with output.workplace(into / f".pull.{slug}") as fresh:
        if _keep_noted(fresh, places):
            yield Note(f"{run}: going on with a pull that was interrupted")
        for name in files:
            _download(kaggle, run, name, files, fresh)
        text = fresh / f"{slug}.log"
        if log and not text.exists():
            with writing(text):
                text.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
        differing = _verify(kaggle, run, fresh, complete=end.name == COMPLETE)
        if differing:
            yield Note(
                f"{run}: Kaggle does not have all files as the run wrote them"
                f" ({', '.join(differing)}). Artifact, checkpoints and submission are whole."
            )
        aside = _put(fresh, target, run)
    if aside:
        yield Note(f"{target} was not what {run} wrote; renamed to {aside}, which can be removed.")
    return target


def _end(kaggle: Kaggle, run: Run) -> KernelStatus:
    """Return how a run ended. Raises `DeadlinePassed` if it has not."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except Denied as error:
        raise (runs.of_another(kaggle, run, error) or error) from None
    if status.name not in runs.ENDED:
        raise DeadlinePassed(
            f"{run} is {status.name}; expected its end.\nTo wait for it:\ninvoke watch --run {run}"
        )
    return status


def _note(folder: Path, place: PurePosixPath) -> Path:
    """Return where a pull notes of which file of the storage the bytes at a place are."""
    return folder / NOTES / hashlib.sha256(str(place).encode()).hexdigest()


def _keep_noted(folder: Path, places: Collection[PurePosixPath]) -> bool:
    """Remove all from a pull's folder but noted downloads to these places; return if there are any.

    What has no note may be of another run.
    """
    noted = [place for place in places if _note(folder, place).is_file()]
    kept = {_note(folder, place) for place in noted}
    kept |= {folder / f"{place}{part}" for place in noted for part in ("", transfer.PARTIAL)}
    for path in sorted(folder.rglob("*"), reverse=True):  # a folder comes after what is in it
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path not in kept:
            path.unlink()
    return bool(noted)


def _download(kaggle: Kaggle, run: Run, name: str, files: dict[str, str], folder: Path) -> None:
    def renew() -> str:
        """List once more: a signed address ends within minutes, and this renews all of them."""
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        files.update(renewed)
        return renewed.get(name, "")

    place = output.safe(name)
    kaggle.download(files[name], folder / place, renew, _note(folder, place))


def _verify(kaggle: Kaggle, run: Run, folder: Path, *, complete: bool) -> list[str]:
    """Return the names of the files that Kaggle does not have as the run wrote them.

    They are fetched once more before: the list may have been behind, and bytes may change on the
    way.

    Raises:
        Unverified: if a file of the artifact or of a checkpoint is among them, or the submission;
            or if the artifact is not whole, or another run's; or if the run's own list is missing
            although it made one, or cannot be read.
    """
    reached_its_last_cell = complete or (folder / OUTPUTS).is_file()
    listed = (output.sealed(folder, str(run)) if reached_its_last_cell else None) or {}
    wrong = _differing(folder, listed)
    if wrong:
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        for name in renewed.keys() & wrong:
            _note(folder, output.safe(name)).unlink(missing_ok=True)  # all of it again
            _download(kaggle, run, name, renewed, folder)
        wrong = _differing(folder, listed)
    for name in wrong:
        first, *below = PurePosixPath(name).parts
        if first == ARTIFACT or CHECKPOINTS in (first, *below[:-1]) or name == SUBMISSION:
            raise Unverified(f"{name} of {run} is missing, or not what the run wrote.\n{LATER}")
    artifact = folder / ARTIFACT
    if artifact.exists():
        made_by = saved.manifest(artifact).bundle_sha256
        if run.bundle_sha256 and made_by != run.bundle_sha256:
            raise Unverified(
                f"The artifact of {run} is another run's: it was made by bundle"
                f" {made_by or 'none'}; expected {run.bundle_sha256}.\nPush again."
            )
    return wrong


def _differing(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the files that are not what the run's list says."""
    wrong = []
    for name, entry in sorted(listed.items()):
        path = folder / output.safe(name)
        if not path.is_file() or checksums.file_entry(path) != entry:
            wrong.append(name)
    return wrong


def _put(fresh: Path, target: Path, run: Run) -> str:
    """Give a pulled folder its name and its note. Return what an older folder with other files was
    renamed to, which may be the only copy of somebody's work; "": there is none.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = output.PullNote(str(run), auth.address(), now)
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
    """Return {name: sha256} of all files but the note."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / NOTE]
    return {path.relative_to(folder).as_posix(): checksums.sha256(path) for path in paths}

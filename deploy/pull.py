"""Pull what a run wrote: a folder whose artifact, checkpoints and submission are whole, or none."""

import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from deploy import auth, output, runs, saved, transfer
from deploy.calls import KernelStatus
from deploy.client import Kaggle
from deploy.errors import BadAnswer, DeadlinePassed, Denied, RelayError, RunFailed, Unverified
from deploy.events import Note, Steps
from deploy.log_text import lines as log_lines
from deploy.output import ARTIFACT, CHECKPOINTS, NOTE, OUTPUTS, SUBMISSION
from deploy.runs import Run
from formats import checksums
from formats.errors import writing

COMPLETE = "COMPLETE"
NOTES = f"notes{transfer.PARTIAL}"  # beside what came, while a pull is under way
UNDER_WAY = r"\.([A-Za-z0-9-]+)-v([0-9]+)-[a-z0-9_]{8}"  # the folder of a pull until its rename
LATER = "Kaggle may need a minute: pull again."


def pull(kaggle: Kaggle, run: Run, into: Path) -> Steps[Path]:
    """Download all that a run wrote, verify it, and return its folder `into/<slug>-v<N>/`.

    Files are downloaded to a temporary folder, which is renamed at the end. A pull that is killed
    or loses Kaggle leaves it: the next pull of the same run goes on there with the files that are
    still those of the storage; a pull of a newer version of that notebook removes it. Each file of
    the artifact, of the checkpoints, and the submission must have the size and sha256 that
    `outputs.json` and `artifact/manifest.json` give it, and the artifact's `bundle_sha256` must be
    the run's. Any other file may differ: nobody knows whether Kaggle lists hidden and empty files,
    or serves all of them unchanged. An existing folder with equal files stays; a different one is
    renamed to `<slug>-v<N>-aside-<n>`.

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
    else:
        files, log = kaggle.kernel_output(run.handle, run.version)
    if not files:
        raise _without_output(kaggle, run, end)
    places = _places(run, files)
    target = into / output.folder_name(run)
    with ExitStack() as locks:
        fresh = _locked_folder(target, locks)
        try:
            if _keep_noted(fresh, places):
                yield Note(f"{run}: going on with a pull that was interrupted")
            for name in files:
                _download(kaggle, run, name, files, fresh)
            text = fresh / f"{run.handle.partition('/')[2]}.log"
            if log and not text.exists():
                with writing(text):
                    text.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
            differing = _verify(kaggle, run, fresh, complete=end.name == COMPLETE)
            if differing:
                first = f"{', '.join(differing[:5])}{' …' if len(differing) > 5 else ''}"
                yield Note(
                    f"{run}: Kaggle does not have all files as the run wrote them ({first}). The"
                    " artifact, the checkpoints and the submission are whole."
                )
            aside = _put(fresh, target, run, differing)
        except BaseException as error:
            is_of_use = not isinstance(error, Exception) or isinstance(error, output.KEPT)
            if not is_of_use or not any(path.is_file() for path in fresh.rglob("*")):
                shutil.rmtree(fresh, ignore_errors=True)
            elif not isinstance(error, GeneratorExit):  # after which nobody takes an event
                yield Note("What was downloaded is kept: the same command goes on from there.")
            raise
    if aside is not None:
        yield Note(
            f"{target} was not what {run} wrote; renamed to {aside.name}, which can be removed."
        )
    return target


def _end(kaggle: Kaggle, run: Run) -> KernelStatus:
    """Return how a run ended. Raises `DeadlinePassed` if it has not."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except Denied as error:
        theirs = runs.of_another(kaggle, run, error)
        if theirs is None:
            raise
        raise theirs from error
    if status.name not in (COMPLETE, *runs.ENDED_BADLY) or status.name == "CANCEL_REQUESTED":
        raise DeadlinePassed(
            f"{run} is {status.name}; expected its end, since its output is not complete before.\n"
            f"To wait for it:\ninvoke watch --run {run}"
        )
    return status


def _without_output(kaggle: Kaggle, run: Run, end: KernelStatus) -> RelayError:
    """Return the error for a run that ended so and lists no file."""
    if end.name == COMPLETE:
        return Unverified(
            f"{run} is COMPLETE and lists no output; expected at least __notebook__.ipynb.\n{LATER}"
        )
    then = f"It lists no output, so nothing was pulled. If it ended just now: {LATER}"
    return RunFailed(runs.failed(kaggle, run, end.name, end.failure, then))


def _places(run: Run, names: Collection[str]) -> list[PurePosixPath]:
    """Return where these files belong in the folder. Raises `BadAnswer` if one is unsafe."""
    places = [output.safe(name) for name in names]
    both = {str(parent) for place in places for parent in place.parents} & set(names)
    if both:
        raise BadAnswer(
            f"{run} lists {min(both)!r} as a file and as a folder.\nNothing was written."
        )
    return places


def _locked_folder(target: Path, locks: ExitStack) -> Path:
    """Return a temporary folder beside the target, which is locked until `locks` closes.

    It is that of a killed pull of the same run, with what that left in it, if there is one. Those
    of other killed pulls of this version, or of older versions of its notebook, are removed.
    """
    slug, _, version = target.name.rpartition("-v")
    fresh = None
    with writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in sorted(target.parent.iterdir()):
            found = re.fullmatch(UNDER_WAY, path.name)
            if not found or found[1] != slug or int(found[2]) > int(version):
                continue
            if not output.lock(path, locks):
                continue  # its pull lives
            if fresh is None and found[2] == version:
                fresh = path
            else:
                shutil.rmtree(path, ignore_errors=True)
        while fresh is None:
            made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            output.lock(made, locks, wait=True)
            if made.is_dir():  # another pull did not remove it before it was locked
                fresh = made
    return fresh


def _note(folder: Path, place: PurePosixPath) -> Path:
    """Return where a pull notes of which file of the storage the bytes at a place are."""
    return folder / NOTES / hashlib.sha256(str(place).encode()).hexdigest()


def _keep_noted(folder: Path, places: Collection[PurePosixPath]) -> bool:
    """Remove all from a pull's folder but noted downloads to these places; return if there are any.

    What has no note may be of another run.
    """
    noted = [place for place in places if _note(folder, place).is_file()]
    kept = {_note(folder, place) for place in noted}
    for place in noted:
        download = transfer.Download(folder / place)
        kept |= {download.path, download.part}
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
            or if the artifact is not whole, or another run's.
    """
    wrong = _differing(folder, run, complete=complete)
    if wrong:
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        for name in wrong.keys() & renewed.keys():
            _note(folder, output.safe(name)).unlink(missing_ok=True)  # all of it again
            _download(kaggle, run, name, renewed, folder)
        wrong = _differing(folder, run, complete=complete)
    for name in sorted(wrong):
        first, *below = PurePosixPath(name).parts
        if first == ARTIFACT or CHECKPOINTS in (first, *below[:-1]) or name == SUBMISSION:
            raise Unverified(f"{name} of {run} is {wrong[name]}.\n{LATER}")
    artifact = folder / ARTIFACT
    if artifact.exists():
        made_by = saved.manifest(artifact).bundle_sha256
        if run.bundle_sha256 and made_by != run.bundle_sha256:
            raise Unverified(
                f"The artifact of {run} was made by bundle {made_by or 'none'}; expected"
                f" {run.bundle_sha256}.\nIt is another run's. Push again."
            )
    return sorted(wrong)


def _differing(folder: Path, run: Run, *, complete: bool) -> dict[str, str]:
    """Return {name: what is wrong} of the files that are not what the run's list says.

    Raises `Unverified` if that list is missing although the run made one, or cannot be read.
    """
    wrong = {
        path.name: "no notebook"
        for path in folder.glob("*.ipynb")
        if "cells" not in output.json_object(path)
    }
    if not complete and not (folder / OUTPUTS).is_file():
        return wrong  # it did not reach its last cell
    for name, entry in (output.sealed(folder, str(run)) or {}).items():
        path = folder / output.safe(name)
        if not path.is_file() or checksums.file_entry(path) != entry:
            found = "not what the run wrote" if path.is_file() else "missing"
            expected = f"{entry['size']} bytes, sha256 {entry['sha256'][:12]}…"
            wrong[name] = f"{found}; expected {expected}"
    return wrong


def _put(fresh: Path, target: Path, run: Run, differing: Collection[str]) -> Path | None:
    """Give a pulled folder its name and its note. Return what an older folder that differs was
    renamed to: it may be the only copy of somebody's work.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = output.PullNote(str(run), auth.address(), now, tuple(differing))
    old = output.noted(target)
    is_same_run = old is not None and (old.run, old.server) == (note.run, note.server)
    aside = None
    with writing(target):
        if (fresh / NOTES).exists():
            shutil.rmtree(fresh / NOTES)
        is_equal = is_same_run and _tree(target) == _tree(fresh)
        (fresh / NOTE).write_text(json.dumps(asdict(note)) + "\n", encoding="utf-8")
        if is_equal:
            (fresh / NOTE).replace(target / NOTE)
            shutil.rmtree(fresh, ignore_errors=True)
            return None
        if target.exists() or target.is_symlink():
            numbered = (target.with_name(f"{target.name}-aside-{n}") for n in itertools.count(1))
            aside = next(path for path in numbered if not path.exists())
            target.rename(aside)
        fresh.chmod(0o755)
        fresh.rename(target)
    return aside


def _tree(folder: Path) -> dict[str, str]:
    """Return {name: sha256} of all files but the note."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / NOTE]
    return {path.relative_to(folder).as_posix(): checksums.sha256(path) for path in paths}

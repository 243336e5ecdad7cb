"""Pull what a run wrote: a folder whose artifact, checkpoints and submission are whole, or none."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from deploy import artifact_manifest, file_transfer, listing, server_address
from deploy.client import Kaggle
from deploy.errors import (
    BadAnswer,
    CredentialError,
    DeadlinePassed,
    Denied,
    RunFailed,
    Unreachable,
    Unverified,
)
from deploy.push_and_watch import ENDED_BADLY, Run, failed, of_another
from deploy.responses import MALFORMED, log_lines
from formats import checksums
from formats.errors import writing

ARTIFACT, BUNDLE, OUTPUTS = "artifact", "bundle.json", "outputs.json"
CHECKPOINTS, SUBMISSION = "checkpoints", "submission.csv"
NOTE = ".pulled.json"  # written by the pull, beside what the run wrote
NOTES = f"notes{file_transfer.PARTIAL}"  # beside what came, while a pull is under way
UNDER_WAY = r"\.([A-Za-z0-9-]+)-v([0-9]+)-[a-z0-9_]{8}"  # the folder of a pull until its rename
KEPT = (Unreachable, CredentialError, DeadlinePassed)  # after these, what came is of use
LATER = "Kaggle may need a minute: pull again."


@dataclass(frozen=True)
class Note:
    """What a pull notes in its folder.

    Attributes:
        run: owner/slug/version.
        server: the address of the Kaggle.
        at: the time of the pull, in UTC.
        differing: files that Kaggle did not have as the run wrote them.
    """

    run: str
    server: str
    at: str
    differing: tuple[str, ...] = ()


def folder_name(run: Run) -> str:
    """Return the name of the folder that `pull` makes: `<slug>-v<N>`."""
    return f"{run.handle.partition('/')[2]}-v{run.version}"


def pull(
    kaggle: Kaggle, run: Run, into: Path, *, show: Callable[[str], None] = lambda line: None
) -> Path:
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
        show: is given a line for a renamed folder, a wait, or other files that differ.

    Raises:
        DeadlinePassed: if the run has not ended.
        BadAnswer: if a file's name is unsafe. Nothing is written then.
        RunFailed: if the run failed and wrote no file; with its own error.
        Unverified: if one of those files differs, or a complete run has no output.
        DiskError: if the disk is full or cannot be written.
    """
    target = into / folder_name(run)
    try:
        ended = kaggle.kernel_status(run.handle, run.version)
    except Denied as error:
        theirs = of_another(kaggle, run, error)
        if theirs is None:
            raise
        raise theirs from error
    status = ended.name
    if status not in ("COMPLETE", *ENDED_BADLY) or status == "CANCEL_REQUESTED":
        raise DeadlinePassed(
            f"{run} is {status}; expected its end, since its output is not complete before.\n"
            f"To wait for it:\ninvoke watch --run {run}"
        )
    if status == "COMPLETE":
        files, log = listing.output(kaggle, run, show)
    else:
        files, log = kaggle.kernel_output(run.handle, run.version)
    if status == "COMPLETE" and not files:
        raise Unverified(
            f"{run} is COMPLETE and lists no output; expected at least __notebook__.ipynb.\n{LATER}"
        )
    if not files:
        then = f"It lists no output, so nothing was pulled. If it ended just now: {LATER}"
        raise RunFailed(failed(kaggle, run, status, ended.failure, then))
    places = {name: safe(name) for name in files}
    folders = {str(parent) for place in places.values() for parent in place.parents}
    if NOTE in files:
        raise BadAnswer(
            f"{run} lists a file {NOTE}; expected any other name: a pull writes its own there.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    if folders & set(places):
        raise BadAnswer(
            f"{run} lists {min(folders & set(places))!r} as a file and as a folder.\n"
            "Nothing was written."
        )
    with _fresh(target, show) as fresh:
        if _kept(fresh, places.values()):
            show(f"{run}: going on with a pull that was interrupted")
        for name, place in places.items():
            path = fresh / place
            if not path.resolve().is_relative_to(fresh.resolve()):
                raise BadAnswer(
                    f"{run} lists {name!r}, which lies outside of {target}; nothing was kept."
                )
            _download(kaggle, run, name, files, fresh)
        text = fresh / f"{run.handle.partition('/')[2]}.log"
        if log and not text.exists():
            with writing(text):
                text.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
        complete = status == "COMPLETE"
        if wrong := _differing(fresh, run, complete=complete):
            # Once more: the list may have been behind, and bytes may change on the way.
            renewed, _ = kaggle.kernel_output(run.handle, run.version)
            for name in wrong & renewed.keys() - {NOTE}:
                _note(fresh, safe(name)).unlink(missing_ok=True)  # all of it again
                _download(kaggle, run, name, renewed, fresh)
            wrong = _differing(fresh, run, complete=complete)
        _require_whole(fresh, run, wrong)
        _verify_artifact(fresh / ARTIFACT, run)
        if wrong:
            first = f"{', '.join(sorted(wrong)[:5])}{' …' if len(wrong) > 5 else ''}"
            show(
                f"{run}: Kaggle does not have all files as the run wrote them ({first}). The"
                " artifact, the checkpoints and the submission are whole."
            )
        with writing(target):
            if (fresh / NOTES).exists():
                shutil.rmtree(fresh / NOTES)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        note = Note(str(run), server_address.address(), now, tuple(sorted(wrong)))
        old = noted(target)
        same = old is None or (old.run, old.server) == (note.run, note.server)
        equal = target.is_dir() and same and _tree(target) == _tree(fresh)
        with writing(target):
            (fresh / NOTE).write_text(json.dumps(asdict(note)) + "\n", encoding="utf-8")
            if equal:
                (fresh / NOTE).replace(target / NOTE)
                return target
            if target.exists() or target.is_symlink():
                show(
                    f"{target} is not what {run} wrote; renamed to {_aside(target).name}, which"
                    " can be removed."
                )
            fresh.chmod(0o755)
            fresh.rename(target)
        return target


@contextmanager
def _fresh(target: Path, show: Callable[[str], None]) -> Iterator[Path]:
    """Give a locked temporary folder beside the target, and remove those of killed pulls of this
    version, or of older versions of its notebook.

    It is that of a killed pull of the same run, with what that left in it, if there is one. It
    stays if the body is interrupted, or Kaggle does not answer.
    """
    with ExitStack() as locks:
        fresh, (slug, _, number) = None, target.name.rpartition("-v")
        with writing(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            for path in sorted(target.parent.iterdir()):
                found = re.fullmatch(UNDER_WAY, path.name)
                if not found or found[1] != slug or int(found[2]) > int(number):
                    continue
                lock = ExitStack()
                if lock.enter_context(locked(path, wait=False)):  # its pull has ended
                    if fresh is None and path.name[:-9] == f".{target.name}":
                        fresh = path
                        locks.push(lock.pop_all())
                    else:
                        shutil.rmtree(path, ignore_errors=True)
                lock.close()
            while fresh is None:
                made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
                locks.enter_context(locked(made, wait=True))
                if made.is_dir():  # another pull did not remove it before it was locked
                    fresh = made
        try:
            yield fresh
        except BaseException as error:
            passes = not isinstance(error, Exception) or isinstance(error, KEPT)
            if passes and any(path.is_file() for path in fresh.rglob("*")):
                show("What was downloaded is kept: the same command goes on from there.")
            else:
                shutil.rmtree(fresh, ignore_errors=True)
            raise
        shutil.rmtree(fresh, ignore_errors=True)  # it is gone if it was renamed


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder, until the process ends at the latest; give whether that worked."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, OSError):  # Windows has no such locks; it is a link, or was removed
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def _aside(target: Path) -> Path:
    """Rename a folder and return its new path: it may be the only copy of somebody's work."""
    number = 1
    while (place := target.with_name(f"{target.name}-aside-{number}")).exists():
        number += 1
    target.rename(place)
    return place


def noted(folder: Path) -> Note | None:
    """Return what the pull noted in this folder; None without a readable note."""
    note = json_object(folder / NOTE)
    try:
        differing = tuple(map(str, note.get("differing", ())))
        return Note(str(note["run"]), str(note["server"]), str(note["at"]), differing)
    except (KeyError, TypeError):
        return None


def sealed(folder: Path) -> dict[str, tuple[str, int]] | None:
    """Return {name: (sha256, bytes)} of the run's own list of its files; None if it made none.

    Raises:
        Unverified: if the list cannot be read, or is missing although the run made one.
    """
    path = folder / OUTPUTS
    if not path.is_file():
        if json_object(folder / BUNDLE).get("sealed") is True:
            raise Unverified(
                f"{folder} has no {OUTPUTS}; expected the list of its files, which the run's last"
                " cell writes."
            )
        return None
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {
            str(name): (str(entry["sha256"]), int(entry["size"])) for name, entry in files.items()
        }
    except (*MALFORMED, RecursionError) as error:
        raise Unverified(f"{path} cannot be read: {error}.") from error


def unchanged(path: Path, folder: Path, name: str, run: str = "") -> bool:
    """Return whether the run's own list vouches for a file; False if the run made no list.

    Args:
        path: of the file.
        folder: of the pulled run.
        name: of the file in the list.
        run: owner/slug/version; by default that of the folder.

    Raises:
        Unverified: if the file is not what the run wrote, or the list is missing or unreadable.
    """
    again = (
        "To pull it again, which sets the changed folder aside:\n"
        f"invoke pull --run {run or name_of(folder)}"
    )
    try:
        files = sealed(folder)
    except Unverified as error:
        raise Unverified(f"{error}\n{again}") from error
    if files is None:
        return False
    digest = checksums.sha256(path)
    if name not in files or files[name][0] != digest:
        expected = "a file that it wrote"
        if name in files:
            expected = f"{files[name][0][:12]}…, as {folder / OUTPUTS} says"
        raise Unverified(
            f"{path} is not what the run wrote: it has sha256 {digest[:12]}…,"
            f" expected {expected}.\n{again}"
        )
    return True


def name_of(folder: Path) -> str:
    """Return owner/slug/version of a pulled folder's run; these words for unknown parts."""
    note = noted(folder)
    named = re.fullmatch(r"(.+)-v(\d+)(-aside-\d+)?", folder.resolve().name)
    return note.run if note else f"owner/{named[1]}/{named[2]}" if named else "owner/slug/version"


def of_bundle(folder: Path, name: str) -> str:
    """Return a value of the bundle that wrote this folder; "" if unknown."""
    return str(json_object(folder / BUNDLE).get(name, ""))


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def safe(name: str) -> PurePosixPath:
    """Return the server's name of a file as a relative path inside a folder.

    Raises:
        BadAnswer: if it is absolute, contains "..", or is not a plain name on every system.

    >>> str(safe("artifact/weights.npz"))
    'artifact/weights.npz'
    """
    parts = name.split("/")
    bad = (
        not name
        or any(
            part in ("", ".", "..")
            or len(part.encode(errors="replace")) > 200
            or part.endswith(file_transfer.PARTIAL)
            for part in parts
        )
        or re.search(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:", name)
        or (not name.isascii() and not name.isprintable())
        or len(parts) > 20
    )
    if bad:
        raise BadAnswer(
            f"Kaggle lists the file {name[:200]!r}; expected a plain name inside the folder.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    return PurePosixPath(name)


def _note(folder: Path, place: PurePosixPath) -> Path:
    """Return where a pull notes of which file of the storage the bytes at a place are."""
    return folder / NOTES / hashlib.sha256(str(place).encode()).hexdigest()


def _kept(folder: Path, places: Collection[PurePosixPath]) -> bool:
    """Remove all from a pull's folder but noted downloads to these places; return if there are any.

    What has no note may be of another run.
    """
    noted = [place for place in places if _note(folder, place).is_file()]
    ours = {_note(folder, place) for place in noted}
    for place in noted:
        download = file_transfer.Download(folder / place)
        ours |= {download.path, download.part}
    for path in sorted(folder.rglob("*"), reverse=True):  # a folder comes after what is in it
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path not in ours:
            path.unlink()
    return bool(noted)


def _download(kaggle: Kaggle, run: Run, name: str, files: dict[str, str], folder: Path) -> None:
    def renew() -> str:
        """List once more: a signed address ends within minutes, and this renews all of them."""
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        files.update(renewed)
        return renewed.get(name, "")

    place = safe(name)
    kaggle.download(files[name], folder / place, renew, _note(folder, place))


def _verify_artifact(artifact: Path, run: Run) -> None:
    if not artifact.exists():
        return
    if not (artifact / artifact_manifest.NAME).is_file():
        raise Unverified(
            f"{run} lists files in {artifact.name}/ and no {artifact_manifest.NAME} among them;"
            f" expected one that names the others.\n{LATER} If it fails again, push again."
        )
    found = artifact_manifest.verify(artifact)
    if run.bundle_sha256 and found.bundle_sha256 != run.bundle_sha256:
        raise Unverified(
            f"The artifact of {run} was made by bundle {found.bundle_sha256 or 'none'}; expected"
            f" {run.bundle_sha256}.\nIt is another run's. Push again."
        )


def _differing(folder: Path, run: Run, *, complete: bool) -> set[str]:
    """Return the names of the files that are missing, or are not what the run's list says.

    Raises `Unverified` if that list is missing although the run made one, or cannot be read.
    """
    wrong = {path.name for path in folder.glob("*.ipynb") if "cells" not in json_object(path)}
    if not complete and not (folder / OUTPUTS).is_file():
        return wrong  # it did not reach its last cell
    try:
        files = sealed(folder) or {}
    except Unverified as error:
        said = str(error).replace(str(folder), str(run))
        raise Unverified(f"{said}\n{LATER} If it fails again, push again.") from error
    for name, (digest, size) in files.items():
        path = folder / safe(name)
        whole = path.is_file() and path.stat().st_size == size
        if not whole or checksums.sha256(path) != digest:
            wrong.add(name)
    return wrong


def _require_whole(folder: Path, run: Run, wrong: set[str]) -> None:
    """Raise `Unverified` if one of these files belongs to the artifact or a checkpoint, or is the
    submission.
    """
    for name in sorted(wrong):
        first, *below = PurePosixPath(name).parts
        if first == ARTIFACT or CHECKPOINTS in (first, *below[:-1]) or name == SUBMISSION:
            digest, size = (sealed(folder) or {})[name]
            found = "not what the run wrote" if (folder / safe(name)).is_file() else "missing"
            raise Unverified(
                f"{name} of {run} is {found}; expected {size} bytes, sha256 {digest[:12]}….\n"
                f"{LATER}"
            )


def _tree(folder: Path) -> dict[str, str]:
    """Return {name: sha256} of all files but the note."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / NOTE]
    return {path.relative_to(folder).as_posix(): checksums.sha256(path) for path in paths}

"""Output: what a run wrote, downloaded whole and verified, in one rename.

Reads  the listing of one kernel version, and the addresses in it
Gives  a folder that is complete, or nothing
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from deploy.client import file_transfer, server_address
from deploy.client.client import Kaggle
from deploy.client.responses import log_lines
from deploy.errors import (
    BadAnswer,
    DeadlinePassed,
    Denied,
    Expired,
    Refused,
    RunFailed,
    Unverified,
    writing,
)
from deploy.kernel import artifact_manifest
from deploy.kernel.push_and_watch import ENDED_BADLY, Run, failed

ARTIFACT, BUNDLE, OUTPUTS = "artifact", "bundle.json", "outputs.json"
NOTE = ".pulled.json"  # ours, beside what the run wrote
UNDER_WAY = r"\.[A-Za-z0-9-]+-v[0-9]+-[a-z0-9_]{8}"  # the folder of a pull, until it is whole


@dataclass(frozen=True)
class Note:
    """What a pull leaves in its folder. `run`: owner/slug/version. `server`: of which Kaggle. `at`:
    when, in UTC.
    """

    run: str
    server: str
    at: str


def folder_name(run: Run) -> str:
    """Return the name of the folder that `pull` makes: `<slug>-v<N>`."""
    return f"{run.handle.partition('/')[2]}-v{run.version}"


def pull(
    kaggle: Kaggle, run: Run, into: Path, *, show: Callable[[str], None] = lambda line: None
) -> Path:
    """Download all that this version wrote into `into/<slug>-v<N>/`, verified, in one rename, and
    return that folder.

    Files go to a fresh folder first; what a pull that was killed left of its own is removed. Every
    file that `outputs.json` and `artifact/manifest.json` name must have the size and sha256 that
    they say, and the artifact's `bundle_sha256` must be the run's. An equal folder that is there
    already is kept; another one, changed since or of another Kaggle, is renamed to
    `<slug>-v<N>-aside-<n>`, and that is shown.

    Raises:
        DeadlinePassed: if the run has not ended.
        BadAnswer: if a name would leave the folder. Nothing is written then.
        RunFailed: if it ended badly and left no file; with its own error.
        Unverified: if the artifact is not what its manifest says, or there is no output although
            the run is complete.
        DiskError: if the disk is full, or cannot be written.
    """
    target = into / folder_name(run)
    ended = kaggle.kernel_status(run.handle, run.version)
    status = ended.name
    if status not in ("COMPLETE", *ENDED_BADLY) or status == "CANCEL_REQUESTED":
        raise DeadlinePassed(
            f"{run} is {status}; expected its end: what it has written until now is not all.\n"
            f"To wait for it: invoke watch --run {run}"
        )
    files, log = kaggle.kernel_output(run.handle, run.version)
    if status == "COMPLETE" and not files:
        raise Unverified(
            f"{run} is COMPLETE and lists no output; expected at least __notebook__.ipynb.\n"
            "Kaggle may need a minute: pull again."
        )
    if not files:
        then = "It lists no output, so nothing was pulled. If it ended just now, Kaggle may need a minute: pull again."
        raise RunFailed(failed(kaggle, run, status, ended.failure, then))
    places = {name: safe(name) for name in files}
    folders = {str(parent) for place in places.values() for parent in place.parents}
    if NOTE in files:
        raise BadAnswer(
            f"{run} lists a file {NOTE}; expected any other name: a pull leaves its own there.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    if folders & set(places):
        raise BadAnswer(
            f"{run} lists {sorted(folders & set(places))[0]!r} as a file and as a folder.\nNothing was written."
        )
    with _fresh(target) as fresh:
        for name, place in places.items():
            path = fresh / place
            if not path.resolve().is_relative_to(fresh.resolve()):
                raise BadAnswer(
                    f"{run} lists {name!r}, which lies outside of {target}; nothing was kept."
                )
            _download(kaggle, run, name, files, path)
        note = fresh / f"{run.handle.partition('/')[2]}.log"
        if log and not note.exists():
            with writing(note):
                note.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
        _verify_outputs(fresh, run, complete=status == "COMPLETE")
        _verify(fresh / ARTIFACT, run)
        ours = Note(
            str(run), server_address.address(), datetime.now(UTC).isoformat(timespec="seconds")
        )
        told = noted(target)
        same = told is None or (told.run, told.server) == (ours.run, ours.server)
        whole = target.is_dir() and same and _tree(target) == _tree(fresh)
        with writing(target):
            (fresh / NOTE).write_text(json.dumps(asdict(ours)) + "\n", encoding="utf-8")
            if whole:
                (fresh / NOTE).replace(target / NOTE)  # equal now, whenever it was pulled
                return target
            if target.exists() or target.is_symlink():
                show(
                    f"{target} is not what {run} wrote; it is now {_aside(target).name}, and can be removed."
                )
            fresh.chmod(0o755)
            fresh.rename(target)
        return target


@contextmanager
def _fresh(target: Path) -> Iterator[Path]:
    """Give a folder beside the target, held while the pull lives and removed at its end; and remove
    what pulls that were killed left.

    What is not in its place in the end is of no use: the next pull fetches everything anew.
    """
    with ExitStack() as held:
        with writing(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            for path in target.parent.iterdir():
                if re.fullmatch(UNDER_WAY, path.name):
                    with _hold(path, wait=False) as dead:
                        if dead:
                            shutil.rmtree(path, ignore_errors=True)
            while True:
                fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
                held.enter_context(_hold(fresh, wait=True))
                if fresh.is_dir():  # and was not taken for a dead one before it was held
                    break
        try:
            yield fresh
        finally:
            shutil.rmtree(
                fresh, ignore_errors=True
            )  # after the rename there is nothing left to remove


@contextmanager
def _hold(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a folder as long as this process lives, at most; tell whether it is held: not where
    another process holds it, or nothing can.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, OSError):  # Windows has no such locks; a link is not ours; or it is gone
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _aside(target: Path) -> Path:
    """Rename what is in the way, and return its new place: it may be the only copy of somebody's
    work.
    """
    number = 1
    while (place := target.with_name(f"{target.name}-aside-{number}")).exists():
        number += 1
    target.rename(place)
    return place


def noted(folder: Path) -> Note | None:
    """Return what the pull noted in this folder; None where it did not, or it cannot be read."""
    try:
        told = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        return Note(str(told["run"]), str(told["server"]), str(told["at"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def sealed(folder: Path) -> dict[str, tuple[str, int]] | None:
    """Return {name: (sha256, bytes)} of all that the run wrote, by its own list; None where it made
    none.

    Raises:
        Unverified: if the list cannot be read, or is missing although the run made one.
    """
    told = folder / OUTPUTS
    if not told.is_file():
        if _bundle(folder).get("sealed") is True:
            raise Unverified(
                f"{folder} has no {OUTPUTS}; expected the list of its files, which the run's last cell writes."
            )
        return None
    try:
        files = json.loads(told.read_text(encoding="utf-8"))["files"]
        return {
            str(name): (str(entry["sha256"]), int(entry["size"])) for name, entry in files.items()
        }
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise Unverified(f"{told} cannot be read: {error}.") from error


def unchanged(path: Path, folder: Path, name: str, run: str = "") -> bool:
    """Return True once the file was found to be what the run wrote as `name`; False where no list
    says what that was.

    Raises:
        Unverified: if it is not, or the list is missing or unreadable; the message ends with how to
            get it again.
    """
    again = f"Pull it again: invoke pull --run {run or name_of(folder)} (it sets the changed folder aside)."
    try:
        files = sealed(folder)
    except Unverified as error:
        raise Unverified(f"{error}\n{again}") from error
    if files is None:
        return False
    digest = artifact_manifest.sha256(path)
    if name not in files or files[name][0] != digest:
        expected = (
            f"sha256 {files[name][0][:12]}…, as {folder / OUTPUTS} says"
            if name in files
            else "a file that it wrote"
        )
        raise Unverified(
            f"{path} is not what the run wrote: it has sha256 {digest[:12]}…, expected {expected}.\n{again}"
        )
    return True


def name_of(folder: Path) -> str:
    """Return owner/slug/version of the run that a pulled folder is of; with these words for what
    nothing tells.
    """
    told = noted(folder)
    named = re.fullmatch(r"(.+)-v(\d+)(-aside-\d+)?", folder.resolve().name)
    return told.run if told else f"owner/{named[1]}/{named[2]}" if named else "owner/slug/version"


def bundle_of(folder: Path) -> str:
    """Return the sha256 of the bundle that wrote this folder; "" where it does not say."""
    return str(_bundle(folder).get("bundle_sha256", ""))


def _bundle(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / BUNDLE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # written by no bundle of ours
    return told if isinstance(told, dict) else {}


def safe(name: str) -> PurePosixPath:
    """Return the server's name as a relative path that stays inside the folder it is put in.

    Raises:
        BadAnswer: if it is absolute, climbs, or is no plain name on some system.

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
            f"Kaggle lists an output file {name[:200]!r}; expected a plain name inside the folder.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    return PurePosixPath(name)


def _download(kaggle: Kaggle, run: Run, name: str, files: dict[str, str], path: Path) -> None:
    try:
        kaggle.download(files[name], path)
    except BadAnswer:
        raise  # an address that is not safe does not get better
    except (Refused, Denied, Expired):
        # A signed address expires while the files before it are downloaded; one more listing renews
        # all of them.
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        if name not in renewed:
            raise
        files.update(renewed)
        kaggle.download(files[name], path)


def _verify(artifact: Path, run: Run) -> None:
    if not artifact.exists():
        return
    if not (artifact / artifact_manifest.NAME).is_file():
        raise Unverified(
            f"{run} lists files in {artifact.name}/ and no {artifact_manifest.NAME} among them; expected one that names the others.\n"
            "Kaggle may need a minute: pull again. If it stays so, push again."
        )
    found = artifact_manifest.verify(artifact)
    if run.bundle_sha256 and found.bundle_sha256 != run.bundle_sha256:
        raise Unverified(
            f"The artifact of {run} was made by bundle {found.bundle_sha256 or 'none'}; expected {run.bundle_sha256}.\n"
            "It is another run's. Push again."
        )


def _verify_outputs(folder: Path, run: Run, *, complete: bool) -> None:
    """Compare what came with what the run's last cell wrote down; raise `Unverified` where they
    differ.
    """
    for notebook in folder.glob("*.ipynb"):
        try:
            whole = "cells" in json.loads(notebook.read_text(encoding="utf-8"))
        except (ValueError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise Unverified(
                f"{notebook.name} of {run} came, and is no notebook; expected the executed one.\nPull again."
            )
    if not complete and not (folder / OUTPUTS).is_file():
        return  # it did not come to its last cell
    try:
        files = sealed(folder) or {}
    except Unverified as error:
        said = str(error).replace(str(folder), str(run))
        raise Unverified(
            f"{said}\nKaggle may need a minute: pull again. If it stays so, push again."
        ) from error
    for name, (digest, size) in files.items():
        path = folder / safe(name)
        if (
            not path.is_file()
            or path.stat().st_size != size
            or artifact_manifest.sha256(path) != digest
        ):
            raise Unverified(
                f"{name} of {run} is {'not what the run wrote' if path.is_file() else 'missing'}; expected {size} bytes, sha256"
                f" {digest[:12]}….\nKaggle may need a minute: pull again."
            )


def _tree(folder: Path) -> dict[str, str]:
    """Return {name: sha256} of all that the run wrote into it."""
    found = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    return {name: artifact_manifest.sha256(path) for name, path in found.items() if name != NOTE}

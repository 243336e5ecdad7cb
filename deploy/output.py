"""What a run wrote: as Kaggle lists it, and as a pull left it on this machine.

A pulled folder is believed by the run's own list of its files, outputs.json, and by the note of the
pull. Its name and its place prove nothing.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any

from deploy import errors
from deploy.client import Kaggle
from deploy.decoding import MALFORMED
from deploy.events import Note, Steps
from deploy.runs import Run
from deploy.transfer import PARTIAL
from formats import checksums
from formats.errors import writing

ARTIFACT, BUNDLE, OUTPUTS = "artifact", "bundle.json", "outputs.json"
CHECKPOINTS, SUBMISSION = "checkpoints", "submission.csv"
NOTE = ".pulled.json"  # written by the pull, beside what the run wrote
AGAIN = "To pull it again, which sets a changed folder aside:\ninvoke pull --run {}"
# After these errors, what came is of use.
KEPT = (errors.Unreachable, errors.CredentialError, errors.DeadlinePassed)


# As Kaggle lists it


def listed(kaggle: Kaggle, run: Run) -> Steps[tuple[dict[str, str], str]]:
    """Return the signed addresses of a complete run's files by name, and its log.

    Kaggle may list them some time after the run has ended. This waits for the first file at most
    `kaggle.pace.listed` seconds, and else returns what is listed then.
    """
    seconds = kaggle.pace.listed
    end, note = time.monotonic() + seconds, f"Kaggle lists no output of {run} yet."
    while True:
        files, log = kaggle.kernel_output(run.handle, run.version)
        if files or time.monotonic() >= end:
            return files, log
        if note:
            yield Note(f"{note} Waiting for up to {seconds:.0f} s.")
            note = ""
        time.sleep(kaggle.pace.first)


def safe(name: str) -> PurePosixPath:
    """Return the server's name of a file as a relative path inside a folder.

    Raises:
        BadAnswer: if it is absolute, contains "..", or is not a plain name on every system.

    >>> str(safe("artifact/weights.npz"))
    'artifact/weights.npz'
    """
    path = PurePosixPath(name)
    is_safe = (
        name.isprintable()
        and name == "/".join(path.parts)
        and path.parts == PureWindowsPath(name).parts  # no drive, no backslash
        and name != NOTE  # a pull writes its own there
        and ".." not in path.parts
        and 0 < len(path.parts) <= 20
        and all(len(part.encode()) <= 200 and not part.endswith(PARTIAL) for part in path.parts)
    )
    if not is_safe:
        raise errors.BadAnswer(
            f"Kaggle lists the file {name[:200]!r}; expected a plain name, other than {NOTE}.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    return path


# As a pull left it


@dataclass(frozen=True)
class PullNote:
    """What a pull notes in its folder.

    Attributes:
        run: owner/slug/version.
        server: the address of the Kaggle.
        at: the time of the pull, in UTC.
    """

    run: str
    server: str
    at: str


def folder_name(run: Run) -> str:
    """Return the name of the folder that a pull makes: `<slug>-v<N>`."""
    return f"{run.handle.partition('/')[2]}-v{run.version}"


def noted(folder: Path) -> PullNote | None:
    """Return what the pull noted in this folder; None without a readable note."""
    note = json_object(folder / NOTE)
    try:
        return PullNote(str(note["run"]), str(note["server"]), str(note["at"]))
    except KeyError:
        return None


def name_of(folder: Path) -> str:
    """Return owner/slug/version of a pulled folder's run; these words for unknown parts."""
    note = noted(folder)
    named = re.fullmatch(r"(.+)-v(\d+)(-aside-\d+)?", folder.resolve().name)
    return note.run if note else f"owner/{named[1]}/{named[2]}" if named else "owner/slug/version"


def sealed(folder: Path, run: str = "") -> dict[str, dict[str, Any]] | None:
    """Return the `entries` of the run's own list of its files; None if it made none.

    Args:
        run: owner/slug/version; by default that of the folder.

    Raises:
        Unverified: if the list cannot be read, or is missing although the run made one.
    """
    path, run = folder / OUTPUTS, run or name_of(folder)
    expected = f"the list of its files, which the run's last cell writes.\n{AGAIN.format(run)}"
    if path.is_file():
        with reading(path, expected):
            return entries(json.loads(path.read_text(encoding="utf-8"))["files"])
    if json_object(folder / BUNDLE).get("sealed") is True:
        raise errors.Unverified(f"{run} has no {OUTPUTS}; expected {expected}")
    return None


def unchanged(folder: Path, name: str, run: str = "") -> None:
    """Raise unless a file is as the run's own list says, or the run made no list.

    Args:
        folder: of the pulled run.
        name: of the file in it.
        run: owner/slug/version; by default that of the folder.

    Raises:
        Unverified: if the file is not what the run wrote, or the list is missing or unreadable.
    """
    files = sealed(folder, run)
    if files is not None and files.get(name) != checksums.file_entry(folder / name):
        expected = f"what {folder / OUTPUTS} says.\n{AGAIN.format(run or name_of(folder))}"
        raise errors.Unverified(f"{folder / name} is not what the run wrote; expected {expected}")


def entries(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a list of files in JSON as {name: what `checksums.file_entry` gives for it}.

    Raises:
        Exception: one of `MALFORMED`, if it is no such list.
    """
    return {
        name: {"sha256": str(entry["sha256"]), "size": int(entry["size"])}
        for name, entry in files.items()
    }


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Raise `Unverified` if what a file holds cannot be taken as what is expected."""
    try:
        yield
    except (OSError, *MALFORMED, RecursionError) as error:
        raise errors.Unverified(
            f"{path} cannot be read: {type(error).__name__}: {error}.\nExpected {expected}"
        ) from error


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


@contextmanager
def workplace(place: Path) -> Iterator[Path]:
    """Give a folder to work in, with what an earlier command left there that was killed or lost
    Kaggle: after other errors, and at the end, it is removed. It is a temporary one beside it if
    another process works there, or this system has no locks.
    """
    with ExitStack() as stack:
        with writing(place):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _locked(place, stack):
            temporary = TemporaryDirectory(prefix=f"{place.name}-", dir=place.parent)
            place = Path(stack.enter_context(temporary))
        try:
            yield place
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, KEPT):
                shutil.rmtree(place, ignore_errors=True)
            raise
        shutil.rmtree(place, ignore_errors=True)


def _locked(folder: Path, until: ExitStack) -> bool:
    """Lock a folder until a stack closes, or the process ends; return whether that worked."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        until.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):  # Windows has no such locks; it is a link, or was removed
        return False
    return folder.is_dir()  # the process that had locked it may have renamed it

"""A competition's files: downloads them as one archive, and unpacks it.

Reads  Kaggle's archive of a competition's files, or data/SLUG.zip, which
       `kaggle competitions download SLUG -p data` writes
Gives  data/SLUG, complete or not at all

Until it is complete, everything is in data/SLUG.download: the part of the archive that was
downloaded, which the next process resumes; the archive; and the unpacked files. The lock
data/SLUG.download.lock lets one process at a time work there.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from deploy.client import Kaggle
from deploy.errors import Busy
from deploy.locks import locked
from formats import archives
from formats.errors import writing

AROUND = ".download"  # the suffix of the folder for what is not complete


def done(folder: Path) -> bool:
    """Return whether a competition's files are there; an empty folder does not count.

    Leftovers of a process that was killed at the very end are removed.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    shutil.rmtree(_own(folder).parent, ignore_errors=True)
    with suppress(OSError):
        _lock(folder).unlink()
    return True


def archive(folder: Path) -> Path | None:
    """Return the complete archive of a competition's files, ours or the user's, or None.

    Args:
        folder: where the files go, data/SLUG.
    """
    places = _own(folder), folder.with_name(f"{folder.name}.zip")
    return next((path for path in places if zipfile.is_zipfile(path)), None)


def fetch(kaggle: Kaggle, competition: str, folder: Path) -> Path:
    """Download the archive of a competition's files, or the rest of it, and return its path.

    Raises:
        Busy: if another process downloads or unpacks them, or has just done so.
        DiskError: if the archive and its files do not fit on the disk.
        Denied: if the rules are not accepted.
        Unreachable: if Kaggle does not answer. The download can be resumed.
    """
    path = _own(folder)
    with _alone(folder):
        if done(folder):
            raise Busy(
                f"Another process has just downloaded the files of {competition} to {folder}.\n"
                "Run the same command again, which uses them."
            )
        if not zipfile.is_zipfile(path):  # another process may have completed it
            kaggle.download_competition(competition, path, note=path.with_name("note.json"))
    return path


def unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    """Unpack an archive of a competition's files, and the archives in it, into a new folder, unless
    another process has done so.

    Each file is compared with its checksum. An archive that we downloaded is removed.

    Args:
        show: called with lines.

    Raises:
        ArchiveError: if it is damaged, or contains something that may not be unpacked. A damaged
            archive that we downloaded is removed.
        Busy: if another process downloads or unpacks it.
        DiskError: if the files do not fit on the disk.
    """
    with _alone(folder):
        if not done(folder):
            _unpack(path, folder, show)


def _unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    around, files = _own(folder).parent, _own(folder).parent / "files"
    with writing(around):
        shutil.rmtree(files, ignore_errors=True)  # of a process that was killed
        files.mkdir(parents=True)
    try:
        archives.unpack(path, files, show, PurePosixPath())
        packed = archives.unpack_below(files, show)
    except archives.ArchiveError as error:
        if path.parent != around:
            raise
        if isinstance(error, archives.DamagedError):
            shutil.rmtree(around)
            after = "It is removed: the same command downloads it again."
        else:  # another download would be the same
            shutil.rmtree(files)
            after = f"Put its files into {folder} yourself, and run the same command again."
        raise type(error)(f"{error}\n{after}") from error
    with writing(folder):
        if packed:
            (files / archives.NOTE).write_text(json.dumps(packed, indent=1), encoding="utf-8")
        os.sync()  # so that the files exist if their folder does
        files.rename(folder)  # which may exist, empty
    shutil.rmtree(around, ignore_errors=True)  # otherwise `done` does it


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from downloading or unpacking the same files; they raise `Busy`."""
    lock = _lock(folder)
    busy = (
        f"Another process downloads or unpacks the files for {folder}.\n"
        "Wait until it is done, then run the same command again, which uses them."
    )
    with writing(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, busy):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{AROUND}.lock")


def _own(folder: Path) -> Path:
    """Return the path of the archive that we download."""
    return folder.with_name(f"{folder.name}{AROUND}") / f"{folder.name}.zip"

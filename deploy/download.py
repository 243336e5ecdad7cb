"""The files of a competition on this machine: one archive from Kaggle, unpacked.

Reads  the archive that Kaggle makes of a competition's files; or the one that `kaggle competitions
       download SLUG -p data` left, data/SLUG.zip
Gives  data/SLUG, complete or not at all

Meanwhile everything is in data/SLUG.download: what came of the archive, so that the next process
downloads the rest; the whole archive; and the files that are unpacked already. The lock
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

AROUND = ".download"  # the suffix of the folder that holds what is not complete


def done(folder: Path) -> bool:
    """Return whether a competition's files are there; an empty folder has none.

    What a process left around them that was killed at its very end is removed.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    shutil.rmtree(_own(folder).parent, ignore_errors=True)
    with suppress(OSError):
        _lock(folder).unlink()
    return True


def archive(folder: Path) -> Path | None:
    """Return the whole archive of a competition's files, ours or the user's; None: there is none.

    Args:
        folder: that gets the files, data/SLUG.
    """
    places = _own(folder), folder.with_name(f"{folder.name}.zip")
    return next((path for path in places if zipfile.is_zipfile(path)), None)


def fetch(kaggle: Kaggle, competition: str, folder: Path) -> Path:
    """Download the archive of a competition's files, or the rest of it, and return its path.

    Raises:
        Busy: if another process downloads or unpacks them, or has done so meanwhile.
        DiskError: if the archive and its files do not fit on the disk.
        Denied: if the rules are not accepted.
        Unreachable: if Kaggle does not answer; what came stays.
    """
    path = _own(folder)
    with _alone(folder):
        if done(folder):
            raise Busy(
                f"Another process has brought the files of {competition} into {folder} meanwhile.\n"
                "Run the same command again, which uses them."
            )
        if not zipfile.is_zipfile(path):  # of a process that was alone before
            kaggle.download_competition(competition, path, note=path.with_name("note.json"))
    return path


def unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    """Unpack an archive of a competition's files into a new folder, with the archives in it, unless
    another process has done so meanwhile.

    Each file is compared with its checksum. An archive of ours is removed.

    Args:
        show: is given lines.

    Raises:
        ArchiveError: if it holds what may not be unpacked, or is damaged; then one of ours is
            removed.
        Busy: if another process downloads or unpacks it.
        DiskError: if the files do not fit on the disk.
    """
    with _alone(folder) as warning:
        if warning:
            show(f"Warning: {warning}")
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
        else:  # it would come again as it is
            shutil.rmtree(files)
            after = f"To unpack it yourself, put its files into {folder}; then run the same command"
            after += " again."
        raise type(error)(f"{error}\n{after}") from error
    with writing(folder):
        if packed:
            (files / archives.NOTE).write_text(json.dumps(packed, indent=1), encoding="utf-8")
        os.sync()  # the files have to be there if their folder is
        if folder.is_dir():  # it is empty; Windows renames to no folder that is there
            folder.rmdir()
        files.rename(folder)
    shutil.rmtree(around, ignore_errors=True)  # else `done` does


@contextmanager
def _alone(folder: Path) -> Iterator[str]:
    """Let no other process download or unpack the same files meanwhile; give a warning, or "".

    Raises:
        Busy: if another process does.
    """
    lock = _lock(folder)
    busy = (
        f"Another process downloads or unpacks the files that come into {folder}.\n"
        "Wait until it is done, then run the same command again, which uses them."
    )
    with writing(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, busy) as warning:
        try:
            yield warning
        finally:
            lock.unlink(missing_ok=True)


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{AROUND}.lock")


def _own(folder: Path) -> Path:
    """Return where the archive goes that is downloaded here."""
    return folder.with_name(f"{folder.name}{AROUND}") / f"{folder.name}.zip"

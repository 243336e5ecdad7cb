"""Download a competition's files as a single archive, and unpack it into data/SLUG.

You can also download the archive yourself: `kaggle competitions download SLUG -p data` writes it to
data/SLUG.zip.

If data/SLUG exists, it is complete. While files are missing, data/SLUG.download contains the
archive and the files unpacked so far. If the download was interrupted, the next process can resume
it. The lock data/SLUG.download.lock ensures that only one process uses the folder at a time.
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

AROUND = ".download"  # suffix of the folder for incomplete files


def done(folder: Path) -> bool:
    """Return whether a competition's files are complete. An empty folder does not count.

    This deletes any temporary files left by a process that was killed just before it finished.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    shutil.rmtree(_own(folder).parent, ignore_errors=True)
    with suppress(OSError):
        _lock(folder).unlink()
    return True


def archive(folder: Path) -> Path | None:
    places = _own(folder), folder.with_name(f"{folder.name}.zip")
    return next((path for path in places if zipfile.is_zipfile(path)), None)


def fetch(kaggle: Kaggle, competition: str, folder: Path) -> Path:
    """Download the archive of a competition's files, resuming if possible, and return its path.

    Raises:
        Busy: if another process is downloading or unpacking the files, or has just finished.
        DiskError: if the disk does not have enough space for the archive and its files.
    """
    path = _own(folder)
    with _alone(folder):
        if done(folder):
            raise Busy(
                f"Another process has just downloaded the files for {competition} to {folder}.\n"
                "Run the same command again to use them."
            )
        if not zipfile.is_zipfile(path):  # another process may have completed it
            kaggle.download_competition(competition, path, note=path.with_name("note.json"))
    return path


def unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    """Unpack a competition's archive, including nested archives, into a new folder.

    Do nothing if another process has already done so. Each file is verified against its checksum.
    An archive that we downloaded is deleted afterwards, even if it is damaged.
    """
    with _alone(folder):
        if not done(folder):
            _unpack(path, folder, show)


def _unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    around, files = _own(folder).parent, _own(folder).parent / "files"
    with writing(around):
        shutil.rmtree(files, ignore_errors=True)  # left over from a killed process
        files.mkdir(parents=True)
    try:
        archives.unpack(path, files, show, PurePosixPath())
        packed = archives.unpack_below(files, show)
    except archives.ArchiveError as error:
        if path.parent != around:
            raise
        if isinstance(error, archives.DamagedError):
            shutil.rmtree(around)
            after = "It was deleted. To download the archive again, run the same command."
        else:  # downloading it again would not help
            shutil.rmtree(files)
            after = f"Unpack its files to {folder} by hand, and run the same command again."
        raise type(error)(f"{error}\n{after}") from error
    with writing(folder):
        if packed:
            (files / archives.NOTE).write_text(json.dumps(packed, indent=1), encoding="utf-8")
        os.sync()  # ensures that the files exist if their folder does
        files.rename(folder)  # the folder may already exist, but is empty
    shutil.rmtree(around, ignore_errors=True)  # `done` deletes it if this fails


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = _lock(folder)
    busy = (
        f"Another process is downloading or unpacking the files for {folder}.\n"
        "Wait until it has finished, then run the same command again to use them."
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
    return folder.with_name(f"{folder.name}{AROUND}") / f"{folder.name}.zip"

"""The files of a competition on this machine: one archive from Kaggle, unpacked.

Reads  the archive that Kaggle makes of a competition's files; or the one that `kaggle competitions
       download SLUG -p data` left, data/SLUG.zip
Gives  data/SLUG, complete or not at all

Meanwhile everything is in data/SLUG.download: what came of the archive, so that the next process
downloads the rest; the whole archive; and the files that are unpacked already.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from deploy.client import Kaggle
from formats import archives
from formats.errors import writing

AROUND = ".download"  # the suffix of the folder that holds what is not complete


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
        DiskError: if the archive and its files do not fit on the disk.
        Denied: if the rules are not accepted.
        Unreachable: if Kaggle does not answer; what came stays.
    """
    path = _own(folder)
    kaggle.download_competition(competition, path, note=path.with_name("note.json"))
    return path


def unpack(path: Path, folder: Path, show: Callable[[str], None]) -> None:
    """Unpack an archive of a competition's files into a new folder, with the archives in it.

    Each file is compared with its checksum. An archive of ours is removed.

    Args:
        show: is given lines.

    Raises:
        ArchiveError: if the archive is damaged; one of ours is removed.
        DiskError: if the files do not fit on the disk.
    """
    around, files = _own(folder).parent, _own(folder).parent / "files"
    with writing(around):
        shutil.rmtree(files, ignore_errors=True)  # of a process that was killed
        files.mkdir(parents=True)
    try:
        archives.unpack(path, files, show, PurePosixPath())
        packed = archives.unpack_below(files, show)
    except archives.ArchiveError as error:
        if path.parent == around:
            shutil.rmtree(around)
            raise archives.ArchiveError(
                f"{error}\nIt is removed: the same command downloads it again."
            ) from error
        raise
    with writing(folder):
        if packed:
            (files / archives.NOTE).write_text(json.dumps(packed, indent=1), encoding="utf-8")
        os.sync()  # the files have to be there if their folder is
        files.rename(folder)
    shutil.rmtree(around)


def _own(folder: Path) -> Path:
    """Return where the archive goes that is downloaded here."""
    return folder.with_name(f"{folder.name}{AROUND}") / f"{folder.name}.zip"

"""A competition with some of its files in archives, as is common."""

import io
import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from localkaggle.competitions import Competition


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a ZIP file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def pack(folder: Path) -> None:
    """Pack each table (train.csv.zip) and each folder (train.zip). The first folder is packed with
    its name, the others as the files in them.
    """
    top = True
    for path in sorted(folder.iterdir()):
        if path.is_file():
            shutil.make_archive(str(path), "zip", folder, path.name)
            path.unlink()
        else:
            root, base = (folder, path.name) if top else (path, ".")
            shutil.make_archive(str(path), "zip", root, base)
            shutil.rmtree(path)
            top = False


def archived(competition: Competition) -> Competition:
    """Return the competition with its tables and folders packed."""

    def write(folder: Path, *, hidden: bool = False) -> None:
        competition.write(folder, hidden=hidden)
        pack(folder)

    return replace(competition, writer=write)


def of_folder(slug: str, write: Callable[[Path], object]) -> Competition:
    """Return a competition whose files a function writes, packed; it has no score."""

    def written(folder: Path, *, hidden: bool = False) -> None:
        write(folder)
        pack(folder)

    return Competition(slug, slug.title(), {}, {}, {}, {}, lambda *_: 0.0, writer=written)

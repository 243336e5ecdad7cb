"""A competition whose files come as they often do: some of them in archives of their own."""

import io
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


def pack(folder: Path, keep: Iterable[str] = ()) -> None:
    """Put each table into an archive (train.csv.zip), and each folder (train.zip): the first of
    them with the folder in it, the others with its files at their top.
    """
    top = True
    for path in sorted(folder.iterdir()):
        if path.name in keep:
            continue
        files = (
            [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        )
        start = folder if path.is_file() or top else path
        top &= path.is_file()
        content = zipped((str(each.relative_to(start)), each.read_bytes()) for each in files)
        for each in files:
            each.unlink()
        folder.joinpath(f"{path.name}.zip").write_bytes(content)
        if path.is_dir():
            for each in sorted(path.rglob("*"), reverse=True):
                each.rmdir()
            path.rmdir()


def archived(competition: Competition) -> Competition:
    """Return the competition with its tables and folders packed."""

    def write(folder: Path, *, hidden: bool = False) -> None:
        competition.write(folder, hidden=hidden)
        pack(folder)

    return replace(competition, writer=write)


def of_folder(slug: str, write: Callable[[Path], object]) -> Competition:
    """Return a competition whose files a function writes, packed; nothing is scored there."""

    def written(folder: Path, *, hidden: bool = False) -> None:
        write(folder)
        pack(folder)

    return Competition(slug, slug.title(), {}, {}, {}, {}, lambda *_: 0.0, writer=written)

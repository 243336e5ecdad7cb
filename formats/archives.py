"""Unpack the archives among a competition's files, and pack their contents again.

Kaggle serves a competition's files as a single archive. It may contain further archives, which stay
packed in a notebook. Their contents are unpacked to paths that depend only on file names, so the
paths are the same on this machine and in a session:

    archive         contains             which goes to
    train.csv.zip   train.csv            train.csv
    train.zip       train/ or train.csv  train/ or train.csv
    train.zip       1.jpg, 2.jpg, …      train/1.jpg, train/2.jpg, …

An archive stays packed if its contents already exist.
"""

import gzip
import json
import os
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from formats.errors import DiskError, KnownError, writing

try:
    from lzma import LZMAError
except ImportError:  # Python was built without lzma
    LZMAError = EOFError  # type: ignore[assignment, misc]

ZIP, TARS = ".zip", (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
TABLES = (".csv", ".tsv", ".json", ".parquet", ".txt")
GZIPPED = tuple(f"{ending}.gz" for ending in TABLES)
NOTE = ".packed.json"  # {archive: its contents} for an unpacked folder, in order of unpacking
LEVELS = 3  # maximum depth of nested archives, and of folders searched for them
MOST = 50  # archives in a folder; if there are more, they are assumed to be training examples
FIRST = 20  # entries to check in a folder; it is skipped if they include no archive
PIECE = 1 << 20
SHOWN_SECONDS = 10.0
DAMAGED = zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError
REFUSED = RuntimeError, ValueError  # raised for passwords, unsupported methods and paths
Show = Callable[[str], None]
Packed = Mapping[str, list[str]]
"""{path of an archive: paths of its top-level contents}, relative to the competition's folder."""


class ArchiveError(KnownError):
    """An archive is damaged, or contains files that cannot be unpacked safely."""


class DamagedError(ArchiveError):
    """An archive is corrupt. Downloading it again may help."""


class Member(NamedTuple):
    """A file in an archive. `size` is its unpacked size in bytes, or 0 if that is unknown."""

    path: PurePosixPath
    size: int
    open: Callable[[], Any]


def is_archive(name: str) -> bool:
    """Return whether a file is an archive that can be unpacked, judging by its name.

    >>> [is_archive(name) for name in ("train.csv.zip", "a.TGZ", "train.csv.gz", "brain.nii.gz")]
    [True, True, True, False]
    """
    return name.lower().endswith((ZIP, *TARS, *GZIPPED))


def _stem(name: str) -> str:
    """Return an archive's name without its extension.

    >>> _stem("train.csv.zip"), _stem("train.tar.gz")
    ('train.csv', 'train')
    """
    ending = max(
        (each for each in (ZIP, *TARS, ".gz") if name.lower().endswith(each)), key=len, default=""
    )
    return name[: len(name) - len(ending)]


@contextmanager
def _opened(archive: Path, *, whole: bool = False) -> Iterator[list[Member]]:
    """Yield the files in an archive.

    If `whole` is set, read a TAR to its end after yielding its files, because a compressed TAR ends
    with its checksum.
    """
    name = archive.name.lower()
    try:
        if name.endswith(ZIP):
            with zipfile.ZipFile(archive) as zipped:
                infos = [info for info in zipped.infolist() if not info.is_dir()]
                yield _members(
                    (info.filename, info.file_size, partial(zipped.open, info)) for info in infos
                )
        elif name.endswith(TARS):
            with tarfile.open(archive) as tar:
                files = [each for each in tar.getmembers() if not each.isdir()]
                if odd := [each.name for each in files if not each.isfile()]:
                    raise ValueError(f"it contains {odd[0]!r}, which is a link or a device")
                yield _members(
                    (each.name, each.size, partial(tar.extractfile, each)) for each in files
                )
                while whole and tar.fileobj and tar.fileobj.read(PIECE):
                    pass
        else:
            path = PurePosixPath(_stem(archive.name))
            yield [Member(path, 0, partial(gzip.GzipFile, archive))]
    except (*DAMAGED, *REFUSED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a disk error, since errors from gzip and bz2 have no number
        kind = ArchiveError if isinstance(error, REFUSED) else DamagedError
        why = _first_line(error) or "the file ends too early"
        raise kind(
            f"{archive} cannot be unpacked: {why}; expected an intact archive without a password or"
            " paths outside its folder.\nDownload it again, or unpack it yourself."
        ) from error


def _first_line(error: Exception) -> str:
    """Return an error's first line without its full stop, so that text can be appended.

    >>> _first_line(ValueError("It cannot be opened:\\n- method gz"))
    'It cannot be opened'
    """
    return str(error).partition("\n")[0].rstrip(" .:")


def _members(found: Iterable[tuple[str, int, Callable[[], Any]]]) -> list[Member]:
    """Return an archive's files, except `NOTE` files and files added by macOS."""
    members = []
    for name, size, read in found:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"its path {name[:200]!r} is outside the folder")
        if path.parts[0] != "__MACOSX" and not path.name.startswith("._") and path.name != NOTE:
            members.append(Member(path, size, read))
    return members


def _prefix(archive: Path, members: Iterable[Member]) -> PurePosixPath:
    """Return the subfolder for an archive's contents, or "." if they go next to the archive."""
    name = _stem(archive.name)
    tops = {member.path.parts[0] for member in members}
    alike = all(top == name or Path(top).stem == name for top in tops)
    return PurePosixPath("." if alike or name.lower().endswith(TABLES) else name)


def roots(archive: Path) -> list[str]:
    """Return the names of the files and folders that are created when an archive is unpacked."""
    with _opened(archive) as members:
        prefix = _prefix(archive, members)
        return sorted({(prefix / member.path).parts[0] for member in members})


def unpack(archive: Path, folder: Path, show: Show, prefix: PurePosixPath | None = None) -> None:
    """Unpack an archive, and verify each file's checksum.

    By default, the subfolder `prefix` depends on the names in the archive. If the archive is
    damaged, `ArchiveError` is raised, and some files may already have been unpacked.
    """
    with _opened(archive, whole=True) as members:
        prefix = _prefix(archive, members) if prefix is None else prefix
        require_space(folder, sum(member.size for member in members), archive.name)
        shown = time.monotonic()
        for place, member in enumerate(members):
            path = folder / prefix / member.path
            with member.open() as source, writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as target:
                    shutil.copyfileobj(source, target, PIECE)
            if time.monotonic() >= shown + SHOWN_SECONDS:
                shown = time.monotonic()
                show(f"{archive.name}: unpacked {place + 1:,} of {len(members):,} files")


def unpack_below(folder: Path, show: Show) -> dict[str, list[str]]:
    """Unpack all archives in a folder, including nested ones, and delete them.

    Return the contents of each archive in the form of `Packed`. If an archive cannot be unpacked,
    keep it and show the reason.
    """
    done, left = dict[str, list[str]](), set[Path]()
    for _ in range(LEVELS):
        for path in [path for path in find(folder) if path not in left]:
            if made := _unpacked(path, show):
                below = [root.relative_to(folder).as_posix() for root in made]
                done[path.relative_to(folder).as_posix()] = below
                path.unlink()
            else:
                left.add(path)
    return done


def find(folder: Path, levels: int = LEVELS) -> list[Path]:
    """Return the archives in a folder and its subfolders, sorted.

    If a folder contains more than `MOST` archives, they are skipped, because they are assumed to be
    training examples.
    """
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    entries = [each for each in entries if not each.name.startswith((".", "__"))]
    files = [Path(each.path) for each in entries if is_archive(each.name) and each.is_file()]
    found = files if len(files) <= MOST else []
    for each in entries if levels > 1 else ():
        if each.is_dir():
            found += find(Path(each.path), levels - 1)
    return found


def holding(folder: Path, names: Collection[str] | None) -> list[Path]:
    """Return the archives in a folder that contain one of these paths and are not unpacked yet.

    `names` are paths in the folder, or patterns. None matches all archives.
    """
    if names is None:
        return [path for path in find(folder) if _holds(folder, path, None)]
    found = dict[Path, None]()
    for wanted in map(PurePosixPath, names):
        places = list(wanted.parents)
        # "." is not a valid pattern. Only a few entries are checked, because a folder may contain a
        # hundred thousand images.
        if not wanted.parts or any(folder.glob(str(wanted))):
            first = islice(os.scandir(folder / wanted), FIRST) if (folder / wanted).is_dir() else ()
            places = [wanted] if any(is_archive(entry.name) for entry in first) else []
        for place in places:
            near = find(folder / place, levels=1) if (folder / place).is_dir() else []
            found |= {path: None for path in near if _holds(folder, path, wanted)}
    return list(found)


def _holds(folder: Path, archive: Path, wanted: PurePosixPath | None) -> bool:
    """Return whether an archive is not unpacked yet and contains the path `wanted`.

    None matches all archives.
    """
    try:
        held = [
            PurePosixPath((archive.parent / root).relative_to(folder)) for root in roots(archive)
        ]
    except ArchiveError:
        return False
    if any((folder / root).exists() for root in held):
        return False
    return wanted is None or any(
        wanted in root.parents or root in wanted.parents or fnmatch(str(root), str(wanted))
        for root in held
    )


def beside(folder: Path, names: Collection[str] | None, place: Path, show: Show) -> Path:
    """Return a folder that contains the paths in `names` unpacked. `names` is as in `holding`.

    If no archive contains any of these paths, return `folder` itself. Otherwise, create the folder
    `place`, with links to everything in `folder`. This includes the archives, because a custom
    reader may open them.
    """
    if not holding(folder, names):
        return folder
    done, tried = [], set[Path]()
    _link_contents(folder, place)
    while held := [path for path in holding(place, names) if path not in tried]:
        tried.update(held)
        for path in held:
            for parent in reversed(path.relative_to(place).parents):
                if (place / parent).is_symlink():
                    (place / parent).unlink()
                    _link_contents(folder / parent, place / parent)
            # An earlier archive may have had the same contents.
            if _holds(place, path, None) and _unpacked(path, show):
                done.append(path.relative_to(place).as_posix())
                if not path.is_symlink():  # it was unpacked from another archive
                    path.unlink()
    show(f"Unpacked {', '.join(done) or 'nothing'} to {place}")
    return place


def _unpacked(archive: Path, show: Show) -> list[Path]:
    """Unpack an archive completely or not at all, and return the paths that were created.

    If it stays packed, show the reason and return [].
    """
    made: list[Path] = []
    try:
        held = [archive.parent / root for root in roots(archive)]
        if there := [root for root in held if root.exists()]:
            show(f"{archive.name} stays packed because {there[0].name} already exists")
            return []
        made = held
        unpack(archive, archive.parent, show)
    except ArchiveError as error:
        for root in made:
            _remove(root)
        show(f"Warning: {_first_line(error)}. It stays packed")
        return []
    return made


def _link_contents(folder: Path, place: Path) -> None:
    with writing(place):
        place.mkdir(parents=True)
        for path in folder.iterdir():
            (place / path.name).symlink_to(path.resolve())


def pack(folder: Path, packed: Packed) -> None:
    """Repack the contents of unpacked archives as Kaggle does, but always as ZIP files."""
    for name, held in reversed([*packed.items()]):
        path = folder / name
        path = path.with_name(f"{_stem(path.name)}{ZIP}")
        files = [file for root in held for file in _files(folder / root)]
        if not files or path in files:  # for example if x.tar contained x.zip
            continue
        with writing(path):
            path.unlink(missing_ok=True)  # may be a link to the user's file
            with zipfile.ZipFile(path, "w", strict_timestamps=False) as archive:
                for file in files:
                    archive.write(file, file.relative_to(path.parent))
        for root in held:
            _remove(folder / root)


def packed_in(folder: Path) -> Packed:
    """Read which archives were unpacked in a folder from its NOTE. Return {} if it has none."""
    note = folder / NOTE
    try:
        packed: Packed = json.loads(note.read_text("utf-8"))
        paths = [path for name, held in packed.items() for path in (name, *held)]
        _members((path, 0, note.open) for path in paths)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise ArchiveError(f"{note} cannot be read: {error}.\nDelete it.") from error
    return packed


def require_space(folder: Path, size: int, what: str) -> None:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DiskError(
            f"{what} requires {size / 1e9:,.1f} GB in {folder}, but only {free / 1e9:,.1f} GB are"
            " free.\nFree some space, then run the same command again."
        )


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root, *root.rglob("*")) if path.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

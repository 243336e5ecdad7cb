"""Archives among the files of a competition: unpacked as a person would, and packed again.

Kaggle serves a competition's files as one archive, and some of them are archives themselves, which
a notebook finds packed. Where their contents belong follows from names alone, so this machine and a
session agree:

    archive         holds at its top     which goes to
    train.csv.zip   train.csv            train.csv
    train.zip       train/ or train.csv  train/ or train.csv
    train.zip       1.jpg, 2.jpg, …      train/1.jpg, train/2.jpg, …

An archive whose contents are there already stays packed.
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
except ImportError:  # a Python that was built without it opens no such archive
    LZMAError = EOFError  # type: ignore[assignment, misc]

ZIP, TARS = ".zip", (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
TABLES = (".csv", ".tsv", ".json", ".parquet", ".txt")
GZIPPED = tuple(f"{ending}.gz" for ending in TABLES)
NOTE = ".packed.json"  # in an unpacked folder: {archive: what it held}, in the order of unpacking
LEVELS = 3  # of archives in archives, and of folders that are searched for them
MOST = 50  # archives in one folder; more are examples, each in an archive of its own
FIRST = 20  # entries of a folder: if no archive is among them, it is no folder of archives
PIECE = 1 << 20
SHOWN_SECONDS = 10.0
DAMAGED = zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError
REFUSED = RuntimeError, ValueError  # of a method or a password; of a name
Show = Callable[[str], None]
Packed = Mapping[str, list[str]]
"""{path of an archive: the paths of what it held at its top}, below the competition's folder."""


class ArchiveError(KnownError):
    """An archive is damaged, or holds what may not be unpacked."""


class DamagedError(ArchiveError):
    """The bytes of an archive are not those that were packed; another download may have them."""


class Member(NamedTuple):
    """A file in an archive: its path there, its bytes once unpacked (0: unknown), and how to read
    it.
    """

    path: PurePosixPath
    size: int
    open: Callable[[], Any]


def is_archive(name: str) -> bool:
    """Return whether a file of this name is an archive that can be unpacked.

    >>> [is_archive(name) for name in ("train.csv.zip", "a.TGZ", "train.csv.gz", "brain.nii.gz")]
    [True, True, True, False]
    """
    return name.lower().endswith((ZIP, *TARS, *GZIPPED))


def _stem(name: str) -> str:
    """Return an archive's name without its ending.

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

    Args:
        whole: afterwards, read it to its end, where a compressed TAR has its checksum.

    Raises:
        ArchiveError: if it cannot be read, or a path in it leads out of the folder.
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
                    raise ValueError(f"{odd[0]!r} in it is a link or a device")
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
            raise  # of the disk; those of gzip and bz2 have no number
        kind = ArchiveError if isinstance(error, REFUSED) else DamagedError
        why = _first_line(error) or "it ends too early"
        raise kind(
            f"{archive} cannot be unpacked: {why}; expected a whole archive, without a password,"
            " whose files all lie below one folder.\nDownload it again, or unpack it yourself."
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of a message, to be followed by more words.

    >>> _first_line(ValueError("It cannot be opened:\\n- method gz"))
    'It cannot be opened'
    """
    return str(error).partition("\n")[0].rstrip(" .:")


def _members(found: Iterable[tuple[str, int, Callable[[], Any]]]) -> list[Member]:
    """Return files with safe paths, without what macOS adds, and notes that are not ours.

    Raises:
        ValueError: for a path that leads out of the folder.
    """
    members = []
    for name, size, read in found:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"the path {name[:200]!r} in it leads out of the folder")
        if path.parts[0] != "__MACOSX" and not path.name.startswith("._") and path.name != NOTE:
            members.append(Member(path, size, read))
    return members


def _prefix(archive: Path, members: Iterable[Member]) -> PurePosixPath:
    """Return the folder beside an archive that its contents belong into; ".": beside it."""
    name = _stem(archive.name)
    tops = {member.path.parts[0] for member in members}
    alike = all(top == name or Path(top).stem == name for top in tops)
    return PurePosixPath("." if alike or name.lower().endswith(TABLES) else name)


def roots(archive: Path) -> list[str]:
    """Return the paths, below an archive's folder, of what it puts there.

    Raises:
        ArchiveError: if it cannot be read.
    """
    with _opened(archive) as members:
        prefix = _prefix(archive, members)
        return sorted({(prefix / member.path).parts[0] for member in members})


def unpack(archive: Path, folder: Path, show: Show, prefix: PurePosixPath | None = None) -> None:
    """Unpack an archive, and compare each file with its checksum.

    Args:
        folder: gets the files.
        show: is given a line at most every `SHOWN_SECONDS`.
        prefix: the folder in it; default: what the names say.

    Raises:
        ArchiveError: if it is damaged; a part of its files is there then.
        DiskError: if its files do not fit on the disk, or cannot be written.
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
    """Put the contents of all archives below a folder, of those in them, too, in their place.

    One that cannot be unpacked stays, with a line that says why.

    Returns:
        What was unpacked, and is gone, as `Packed`.

    Raises:
        DiskError: as `unpack` does.
    """
    done, left = dict[str, list[str]](), set[Path]()
    for _ in range(LEVELS):
        for path in [path for path in find(folder) if path not in left]:
            try:
                held = [path.parent / root for root in roots(path)]
            except ArchiveError as error:
                show(f"Warning: {_first_line(error)}. It stays packed")
                left.add(path)
                continue
            if there := [root for root in held if root.exists()]:
                show(f"{path.name} stays packed: {there[0].name} is there already")
                left.add(path)
            elif _unpacked(path, show):
                below = [root.relative_to(folder).as_posix() for root in held]
                done[path.relative_to(folder).as_posix()] = below
                path.unlink()
            else:
                left.add(path)
    return done


def find(folder: Path, levels: int = LEVELS) -> list[Path]:
    """Return the archives in a folder and those below it, sorted. Where a folder has more than
    `MOST`, they are its examples, and none is returned.
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
    """Return the archives in a folder that hold one of these paths, where only an archive does.

    Args:
        names: paths below the folder, or patterns of them; None: whatever an archive holds.
    """
    if names is None:
        return [path for path in find(folder) if _holds(folder, path, None)]
    found = dict[Path, None]()
    for wanted in map(PurePosixPath, names):
        places = list(wanted.parents)
        # "." is there, and no pattern. A hundred thousand pictures need no look at each.
        if not wanted.parts or any(folder.glob(str(wanted))):
            first = islice(os.scandir(folder / wanted), FIRST) if (folder / wanted).is_dir() else ()
            places = [wanted] if any(is_archive(entry.name) for entry in first) else []
        for place in places:
            near = find(folder / place, levels=1) if (folder / place).is_dir() else []
            found |= {path: None for path in near if _holds(folder, path, wanted)}
    return list(found)


def _holds(folder: Path, archive: Path, wanted: PurePosixPath | None) -> bool:
    """Return whether an archive alone holds a path below a folder; None: anything."""
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
    """Return a folder in which these paths are unpacked: the folder itself if no archive holds one
    of them, otherwise a new folder with links to everything in it. The archives are linked too,
    since a custom reader may open them itself.

    Args:
        names: as in `holding`.
        place: the new folder.
        show: is given lines.

    Raises:
        DiskError: if what is unpacked does not fit on the disk.
    """
    if not holding(folder, names):
        return folder
    done, tried = [], set[Path]()
    _link(folder, place)
    while held := [path for path in holding(place, names) if path not in tried]:
        tried.update(held)
        for path in held:
            for parent in reversed(path.relative_to(place).parents):
                if (place / parent).is_symlink():
                    (place / parent).unlink()
                    _link(folder / parent, place / parent)
            # One before it may have held the same.
            if _holds(place, path, None) and _unpacked(path, show):
                done.append(path.relative_to(place).as_posix())
                if not path.is_symlink():  # it came out of another archive
                    path.unlink()
    show(f"Unpacked {', '.join(done) or 'nothing'} into {place}")
    return place


def _unpacked(archive: Path, show: Show) -> bool:
    """Put the contents of an archive in their place, whole or not at all, and return whether they
    are there.
    """
    held = roots(archive)
    try:
        unpack(archive, archive.parent, show)
    except ArchiveError as error:
        for root in held:
            _remove(archive.parent / root)
        show(f"Warning: {_first_line(error)}. It stays packed")
        return False
    return True


def _link(folder: Path, place: Path) -> None:
    """Make a new folder of links to all that is in a folder."""
    with writing(place):
        place.mkdir(parents=True)
        for path in folder.iterdir():
            (place / path.name).symlink_to(path.resolve())


def pack(folder: Path, packed: Packed) -> None:
    """Put what was unpacked into archives again, as Kaggle has it; all of them are ZIP files.

    Raises:
        DiskError: if they cannot be written.
    """
    for name, held in reversed([*packed.items()]):
        path = folder / name
        path = path.with_name(f"{_stem(path.name)}{ZIP}")
        files = [file for root in held for file in _files(folder / root)]
        if not files or path in files:  # x.tar that held x.zip
            continue
        with writing(path):
            path.unlink(missing_ok=True)  # it may be a link to a file of the user
            with zipfile.ZipFile(path, "w", strict_timestamps=False) as archive:
                for file in files:
                    archive.write(file, file.relative_to(path.parent))
        for root in held:
            _remove(folder / root)


def packed_in(folder: Path) -> Packed:
    """Return what `unpack_below` unpacked into a folder, as its note says; {} without one.

    Raises:
        ArchiveError: if the note is not one of `unpack_below`, or names something outside.
    """
    note = folder / NOTE
    try:
        packed: Packed = json.loads(note.read_text("utf-8"))
        paths = [path for name, held in packed.items() for path in (name, *held)]
        _members((path, 0, note.open) for path in paths)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise ArchiveError(f"{note} cannot be read: {error}.\nRemove it.") from error
    return packed


def require_space(folder: Path, size: int, what: str) -> None:
    """Raise `DiskError` if so many bytes do not fit beside what is on the disk of a folder."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DiskError(
            f"{what} needs {size / 1e9:,.1f} GB in {folder}, and {free / 1e9:,.1f} GB are free.\n"
            "Free some space, then run the same command again."
        )


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root, *root.rglob("*")) if path.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

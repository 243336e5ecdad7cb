"""Which image file, or part of a TFRecord file, belongs to an id; missing and broken ones."""

import errno
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any

from formats import checksums
from pipeline.config.data_layout import ENDINGS, PIXELS, Data
from pipeline.data import class_folders, file_images, parallel_decoding, tfrecords
from pipeline.data.decoded_images import Show
from pipeline.data.image_decoding import Shape, differing
from pipeline.data.tfrecords import several
from pipeline.errors import DataError
from pipeline.runtime.mounts import PREPARED

RERUN = "KAGGLE_IS_COMPETITION_RERUN"  # set by Kaggle where nobody is there to fix anything
MOST_SKIPPED = 0.01  # share of the training images; FEW of a small set, up to MOST_BROKEN of it
FEW = 3
MOST_BROKEN = 0.1  # share of the test images
MISSING = os.devnull  # stands for a missing file, and reads as an empty one
Places = str | tuple[str, ...]


def find(folder: Path, places: Places, ids: Sequence[str], data: Data) -> list[str]:
    """Return the path of each id's image file, `MISSING` for a few that have none.

    Raises:
        DataError: if more ids than `most_skipped` have no file, or an id cannot be a file name.
    """
    paths = paths_of(folder, places, ids, data)
    folders = [folder / place for place in several(places)]
    _check_missing(paths, most_skipped(len(ids)), folders, ids, data)
    return [path or MISSING for path in paths]


def find_test(
    folder: Path, ids: Sequence[str], data: Data
) -> Sequence[parallel_decoding.Source | None]:
    """Return where each id's test image is, a file or a part of a TFRecord file; None: missing.

    Raises:
        DataError: if files have no id, or more than one id in ten (in the scored rerun: all) has
            no file.
    """
    rerun, places = bool(os.environ.get(RERUN)), data.test_images
    paths: Sequence[parallel_decoding.Source | None]
    if data.kind == "tfrecords":
        places = data.test_records
        known = _records_by_id(folder, data)
        paths = [known.get(name) for name in ids]
        ids_by_place = {f"The test set ({places!r})": set(known)}
    else:
        paths = paths_of(folder, places, ids, data)
        # A folder that holds training images, too, has files of other ids.
        shared = not data.suffix or set(several(places)) & set(several(data.train_images))
        folders = [] if shared else [folder / place for place in several(places)]
        ids_by_place = {str(place): _ids_in(place, ids, data) for place in folders}
    most = len(ids) - 1 if rerun else len(ids) * MOST_BROKEN
    _check_missing(paths, most, [folder / place for place in several(places)], ids, data)
    for where, names in ids_by_place.items():
        extra = sorted(names - set(ids))
        if extra and not rerun:
            raise DataError(
                f"{where} holds {len(names)} images and {data.sample_submission} asks for "
                f"{len(ids)}: {len(extra)} images have no row, for example {', '.join(extra[:5])}."
                "\nExpected one row per image. Take test set and sample_submission.csv from the "
                "same download."
            )
    return paths


def read(
    paths: parallel_decoding.Paths,
    data: Data,
    cache: Path | None,
    show: Show | None,
    *,
    base: Path | None = None,
    prepared: Sequence[Path] = (),
    in_files: bool = False,
) -> tuple[Any, dict[int, str]]:
    """Return the decoded images, and the reason for each row that cannot be decoded.

    Args:
        paths: n files or parts of files.
        cache, base: as `pipeline.data.parallel_decoding.read` takes them, for large images
            (`Data.decoding`).
        prepared: folders with decoded images; those of another form are not used.
        in_files: leave them in their files (`pipeline.data.file_images`), as is done where neither
            memory nor the cache has room.

    Returns:
        uint8 (n, height, width, channels), zeros for a broken one; {row: reason}.
    """
    show, form = show or (lambda line: None), shape(data)
    cache = cache if data.decoding else None
    decoded: tuple[Any, dict[int, str]]
    if in_files or not parallel_decoding.fits(paths, form, cache):
        why = 'feed="files"' if in_files else "neither memory nor disk can hold them"
        why += "; what was prepared is not used" if prepared else ""
        most = most_skipped(len(paths))
        decoded = file_images.checked(
            paths, form, show, most, why, thumbnails=data.group_duplicates
        )
    else:
        prepared = [folder for folder in prepared if _has_rules(folder, form, show)]
        decoded = parallel_decoding.read(
            paths, form, base=base, cache=cache, prepared=prepared, show=show
        )
    pixels, broken = decoded
    return pixels, broken | {row: "it is missing" for row in broken if paths[row] == MISSING}


def shape(data: Data) -> Shape:
    """Return the shape that each file is decoded to."""
    return Shape(**{name: getattr(data, name) for name in PIXELS})


def most_skipped(count: int) -> float:
    """Return how many of this many training images may be missing or broken.

    >>> [most_skipped(count) for count in (10, 100, 1000)]
    [1.0, 3, 10.0]
    """
    return max(count * MOST_SKIPPED, min(FEW, count * MOST_BROKEN))


def describe_broken(
    broken: Mapping[str, str], total: int, data: Data, *, training: bool = False
) -> str:
    """Return the message that names images that cannot be used, by id."""
    rows = ""
    if training and data.kind == "images":
        rows = f"remove {'them' if data.train_csv is None else f'their rows from {data.train_csv}'}"
    listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
    return (
        f"{len(broken)} of {total} images cannot be used: {listed}.\n"
        "Expected images that can be decoded to height x width x channels = "
        f"{data.height}x{data.width}x{data.channels} (resize={data.resize!r}). Replace the broken "
        f"files, {rows + ', ' if rows else ''}or correct height, width and resize in the config."
    )


def paths_of(folder: Path, places: Places, ids: Sequence[str], data: Data) -> list[str | None]:
    """Return the path of each id's first file, or None.

    An id may name folders: `cats/1` is in the folder `cats` of a place. A place without images of
    its own is searched in all folders below it.

    Raises:
        DataError: if an id cannot be a file name, or two folders below a place have a file of it.
    """
    folders = [os.fspath(folder / place) for place in several(places)]
    endings = _endings(data)
    names_in, folders_of = functools.cache(_names), functools.cache(_folders_below)
    paths: list[str | None] = []
    for name in ids:
        # The table comes from somebody else. An id must not lead out of its place.
        if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise DataError(
                f"{name[:80]!r} cannot be the id of an image: expected a file's name, or folders "
                "and a name, as cats/1.\nCorrect the table."
            )
        inside, _, stem = name.rpartition("/")
        matching = (
            f"{path}/{name}{ending}"
            for path in folders
            for ending in endings
            if f"{stem}{ending}" in names_in(f"{path}/{inside}" if inside else path)
        )
        deeper = (_only(folders_of(path), name, endings, path) for path in folders)
        paths.append(next(matching, None) or next(filter(None, deeper), None))
    return paths


def other_endings(ids: Sequence[str], folders: Sequence[Path]) -> Counter[str]:
    """Return with which endings the files of ids lie in folders, the most frequent first."""

    @functools.cache
    def endings_in(folder: str) -> dict[str, str]:
        parts = (name.rpartition(".") for name in sorted(_names(folder)))
        return {stem: f".{ending}" for stem, _, ending in parts if stem}

    counts: Counter[str] = Counter()
    for name in ids:
        inside, _, stem = name.rpartition("/")
        endings = (endings_in(os.fspath(folder / inside)).get(stem) for folder in folders)
        counts.update(filter(None, [next(filter(None, endings), None)]))
    return Counter(dict(counts.most_common()))


def _has_rules(folder: Path, form: Shape, show: Show) -> bool:
    """Return whether the images in a folder were decoded by these rules, or show why not."""
    try:
        rules = dict(checksums.opened(checksums.read(folder / PREPARED))["rules"])
    except (OSError, ValueError, LookupError, RecursionError) as error:
        show(f"{folder / PREPARED} is corrupt ({error}): the images there are not used")
        return False
    if rules != form.rules:
        show(
            f"{folder} is not used, since its images are decoded by other rules; "
            f"{differing(rules, form.rules, 'there')}"
        )
    return bool(rules == form.rules)


def _folders_below(place: str) -> dict[str, list[str]]:
    """Return the folders below a place by the names of their files; {} where the place has images
    of its own: those below may be other ones, as masks are.
    """
    if not Path(place).is_dir() or class_folders.images(_names(place)):
        return {}
    folders: dict[str, list[str]] = {}
    for inside, names in class_folders.walk(Path(place)):
        for name in names if inside.parts else ():
            folders.setdefault(name, []).append(f"{place}/{inside}")
    return folders


def _only(
    folders_of: Mapping[str, Sequence[str]], name: str, endings: Sequence[str], place: str
) -> str | None:
    """Return the path of an id's file in one of the folders below a place, or None."""
    paths = {  # of several endings in a folder the first one
        folder: f"{folder}/{name}{ending}"
        for ending in reversed(endings)
        for folder in folders_of.get(f"{name}{ending}", ())
    }
    if len(paths) > 1:
        raise DataError(
            f"{' and '.join(sorted(paths)[:2])} both have an image of the id {name[:80]!r}; "
            f"expected it in one folder below {place}.\nSet train_images and test_images in the "
            "config to the folders to read, or remove the copies."
        )
    return next(iter(paths.values()), None)


def _records_by_id(folder: Path, data: Data) -> dict[str, parallel_decoding.Part]:
    """Return where each image lies within the test set's TFRecord files."""
    parts, table = tfrecords.read(folder, data.test_records, data.image_feature, (data.id_column,))
    by_id: dict[str, parallel_decoding.Part] = {}
    for name, part in zip(table[data.id_column], parts, strict=True):
        if name in by_id:
            raise DataError(
                f"{part.path} has {name!r} as its {data.id_column!r} a second time; expected each "
                "id once.\nCorrect test_records and id_column in the config."
            )
        by_id[name] = part
    return by_id


def _ids_in(place: Path, ids: Iterable[str], data: Data) -> set[str]:
    """Return the ids that the image files of a place would have, in the folders that ids name."""
    parents = {name.rpartition("/")[0] for name in ids}
    names = set(_folders_below(os.fspath(place))) if parents == {""} else set()
    for parent in parents:
        inside = f"{parent}/" if parent else ""
        names |= {inside + name for name in _names(os.fspath(place / parent))}
    endings = _endings(data)
    return {
        name.removesuffix(ending) for name in names for ending in endings if name.endswith(ending)
    }


def _endings(data: Data) -> tuple[str, ...]:
    return ENDINGS if data.suffix == "*" else (data.suffix,)


def _names(folder: str) -> set[str]:
    """Return the names of the files in a folder, none if there is no folder.

    One look at a folder costs less than one at each file.
    """
    try:
        with os.scandir(folder) as entries:
            # Systems hide files of their own behind a dot. For a link to itself `entry.is_file`
            # raises.
            return {
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                if entry.is_file(follow_symlinks=False) or isfile(entry.path)  # noqa: PTH113
            }
    except OSError as error:
        # An id may be any text, as one that is too long for a name.
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return set()
        raise DataError(
            f"Could not read {folder}: {error.strerror or error}.\n"
            "Expected a folder that this user may read."
        ) from error


def _check_missing(
    paths: Sequence[object], most: float, folders: Sequence[Path], ids: Sequence[str], data: Data
) -> None:
    """Raise `DataError` if more than `most` ids have no path."""
    missing = [name[:80] for name, path in zip(ids, paths, strict=True) if path is None]
    if len(missing) <= most:
        return
    start, where = f"{len(missing)} of {len(ids)} images are", ", ".join(map(str, folders))
    if data.kind == "tfrecords":
        raise DataError(
            f"{start} in no record of {where}, for example {', '.join(missing[:3])}.\n"
            "Expected a record for every row. Set test_records and id_column in the config, or "
            "complete the download."
        )
    ending = "" if data.suffix == "*" else data.suffix
    expected = "the ending of an image" if data.suffix == "*" else f"suffix={data.suffix!r}"
    why = ""
    edit = "Set train_images, test_images and suffix in the config, or complete the download."
    if endings := other_endings(missing, folders):
        why = f": {sum(endings.values()):,} ids have a {' or '.join(endings)}"
        edit = "Convert these files to PNG, or read them by a reader of your own."
        if all(ending in ENDINGS for ending in endings):
            edit = 'Set data.suffix="*" in the config, which reads all of these.'
    shown = ", ".join(f"{name}{ending}" for name in missing[:3])
    raise DataError(
        f"{start} missing in {where}, for example {shown}{why}.\n"
        f"Expected a file of an id and {expected} for every row. {edit}"
    )

"""Which image file, or part of a TFRecord file, belongs to an id; missing and broken ones."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from formats import checksums
from pipeline.config.data_layout import ENDINGS, PIXELS, Data
from pipeline.data import class_folders, decoded_images, duplicates, table_features, tfrecords
from pipeline.data.image_decoding import Shape, differing
from pipeline.data.parallel_decoding import MISSING as MISSING
from pipeline.data.parallel_decoding import FileImages, Paths, Place, Show, Source
from pipeline.data.tfrecords import several
from pipeline.errors import DataError
from pipeline.runtime import devices
from pipeline.runtime.mounts import PREPARED

RERUN = "KAGGLE_IS_COMPETITION_RERUN"  # set by Kaggle where nobody is there to fix anything
MOST_SKIPPED = 0.01  # share of the training images; FEW of a small set, up to MOST_BROKEN of it
FEW = 3
MOST_BROKEN = 0.1  # share of the test images
SHARE = 0.5  # of memory that decoded images may take
Places = str | tuple[str, ...]


def find(folder: Path, places: Places, ids: Sequence[str], data: Data) -> list[str]:
    """Return the path of each id's image file, `MISSING` for a few that have none.

    Raises:
        DataError: if more ids than `most_skipped` have no file.
    """
    paths = paths_of(folder, places, ids, data)
    folders = [folder / place for place in several(places)]
    _check_missing(paths, most_skipped(len(ids)), folders, ids, data)
    return [path or MISSING for path in paths]


def find_test(folder: Path, ids: Sequence[str], data: Data) -> Sequence[Source | None]:
    """Return where each id's test image is, a file or a part of a TFRecord file; None: missing.

    Raises:
        DataError: if files have no id, or more than one id in ten (in the scored rerun: all) has
            no file.
    """
    rerun, known = bool(os.environ.get(RERUN)), dict[str, Source]()
    if data.kind == "tfrecords":
        places, shared = several(data.test_records), False
        parts, table = tfrecords.read(folder, places, data.image_feature, (data.id_column,))
        names = table_features.unique_ids(table[data.id_column], folder / ", ".join(places))
        known.update(zip(names, parts, strict=True))
    else:
        places = several(data.test_images)
        known.update(_paths_by_id(folder, places, ids, data))
        # A folder that holds training images, too, has files of other ids.
        shared = not data.suffix or bool({*places} & {*several(data.train_images)})
    paths = [known.get(name) for name in ids]
    most = len(ids) - 1 if rerun else len(ids) * MOST_BROKEN
    _check_missing(paths, most, [folder / place for place in places], ids, data)
    parents = {os.path.dirname(name) for name in ids}  # noqa: PTH120
    extra = sorted(name for name in known.keys() - ids if os.path.dirname(name) in parents)  # noqa: PTH120
    if extra and not (shared or rerun):
        raise DataError(
            f"The test set in {', '.join(places)} holds {len(ids) + len(extra)} images and "
            f"{data.sample_submission} asks for {len(ids)}: {len(extra)} images have no row, for "
            f"example {', '.join(extra[:5])}.\nExpected one row per image. Take test set and "
            "sample_submission.csv from the same download."
        )
    return paths


def read(
    sources: Paths,
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
        sources: n files or parts of files.
        cache: a folder that keeps large images (`Data.decoding`) for the next run.
        base: the folder of the competition.
        prepared: folders with decoded images; those of another form are not used.
        in_files: leave them in their files, as is done where memory has no room.

    Returns:
        uint8 (n, height, width, channels), zeros for a broken one, or
        `parallel_decoding.FileImages`; {row: reason}.
    """
    show, form = show or (lambda line: None), shape(data)
    folders = [folder for folder in prepared if _has_rules(folder, form, show)]
    cache = cache if data.decoding and not in_files else None
    images = FileImages(sources, form)
    pixels = None
    if not in_files and images.nbytes <= devices.memory_left() * SHARE:
        pixels = np.empty(images.shape, np.uint8)
    places, digests, thumbs = list[Place](), list[bytes](), list[np.ndarray]()
    broken = dict[int, str]()
    for part, decoded in decoded_images.each(sources, form, base, cache, folders, show):
        broken |= {part.start + row: reason for row, reason in decoded.broken.items()}
        if pixels is not None:
            pixels[part] = decoded.pixels
            continue
        places += list(decoded.pixels) if decoded.folder else sources[part]
        digests += duplicates.row_digests(decoded.pixels)
        if data.group_duplicates:
            thumbs.append(duplicates.thumbnails(decoded.pixels))
    if pixels is not None:
        return pixels, broken
    images = FileImages(places, form)
    images.row_digests = digests
    images.thumbnails = np.concatenate(thumbs) if thumbs else None
    show(f"{len(images):,} images ({images.nbytes / 1e6:,.0f} MB) are read as the run goes")
    return images, broken


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
    remove = ", remove them and their rows" if training and data.kind == "images" else ""
    listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
    return (
        f"{len(broken)} of {total} images cannot be used: {listed}.\n"
        "Expected images that can be decoded to height x width x channels = "
        f"{data.height}x{data.width}x{data.channels} (resize={data.resize!r}). Replace the broken "
        f"files{remove}, or correct height, width and resize in the config."
    )


def paths_of(folder: Path, places: Places, ids: Sequence[str], data: Data) -> list[str | None]:
    """Return the path of each id's first file, or None.

    An id may name folders: `cats/1` is in the folder `cats` of a place. A place without images of
    its own is searched in all folders below it.

    Raises:
        DataError: if two folders below a place have a file of one id.
    """
    known = _paths_by_id(folder, places, ids, data)
    return [known.get(name) for name in ids]


def other_endings(ids: Sequence[str], folders: Sequence[Path]) -> Counter[str]:
    """Return with which endings the files of ids lie in folders."""
    deep = any("/" in name for name in ids)
    names = (name for folder in reversed(folders) for name, _ in _files(folder, deep=deep))
    endings = dict(map(os.path.splitext, names))
    return Counter(endings[name] for name in ids if name in endings)


def _paths_by_id(folder: Path, places: Places, ids: Sequence[str], data: Data) -> dict[str, str]:
    """Return the path of each file by the id that it would have."""
    deep, wanted = any("/" in name for name in ids), set(ids)
    endings = ENDINGS if data.suffix == "*" else (data.suffix,)
    known: dict[str, str] = {}
    for place in several(places):
        found: dict[str, str] = {}
        for name, path in _files(folder / place, deep=deep):
            if not name.endswith(endings):
                continue
            ending = os.path.splitext(name)[1] if data.suffix == "*" else data.suffix  # noqa: PTH122
            stem = name.removesuffix(ending)
            first = found.setdefault(stem, path)
            if stem in wanted and os.path.dirname(first) != os.path.dirname(path):  # noqa: PTH120
                raise DataError(
                    f"{first} and {path} both have an image of the id {stem[:80]!r}; expected it "
                    f"in one folder below {folder / place}.\nSet train_images and test_images in "
                    "the config to the folders to read, or remove the copies."
                )
        known = found | known
    return known


def _files(place: Path, *, deep: bool) -> Iterator[tuple[str, str]]:
    """Yield name and path of each file in a place. Where it has no images of its own, those of all
    folders below; else these may be other ones, as masks are.

    Args:
        deep: names are paths below the place, and all folders are looked into.
    """
    for inside, names in class_folders.walk(place) if place.is_dir() else ():
        below = f"{inside}/" if inside.parts else ""
        for name in names:
            yield below * deep + name, f"{place}/{below}{name}"
        if not deep and not inside.parts and class_folders.images(names):
            return


def _has_rules(folder: Path, form: Shape, show: Show) -> bool:
    """Return whether the images in a folder were decoded by these rules, or show why not."""
    try:
        rules = checksums.opened((folder / PREPARED).read_bytes())["rules"]
    except (OSError, ValueError, LookupError):
        rules = {}
    if other := differing(rules, form.rules, "there"):
        show(f"{folder} is not used, since its images are decoded by other rules; {other}")
    return not other


def _check_missing(
    paths: Sequence[object], most: float, folders: Sequence[Path], ids: Sequence[str], data: Data
) -> None:
    """Raise `DataError` if more than `most` ids have no path."""
    missing = [name for name, path in zip(ids, paths, strict=True) if path is None]
    if len(missing) <= most:
        return
    ending = "" if data.suffix == "*" or data.kind == "tfrecords" else data.suffix
    why = ""
    edit = (
        "Set train_images and test_images with suffix, or test_records with id_column, in the "
        "config, or complete the download."
    )
    if endings := other_endings(missing, folders):
        named = " or ".join(ending for ending, _ in endings.most_common())
        why = f": {endings.total():,} ids have a {named}"
        edit = "Convert these files to PNG, or read them by a reader of your own."
        if endings.keys() <= set(ENDINGS):
            edit = 'Set data.suffix="*" in the config, which reads all of these.'
    raise DataError(
        f"{len(missing)} of {len(ids)} images are missing in {', '.join(map(str, folders))}, for "
        f"example {', '.join(f'{name[:80]}{ending}' for name in missing[:3])}{why}.\n"
        f"Expected an image for every row. {edit}"
    )

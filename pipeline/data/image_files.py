"""Find image files, or images in TFRecord files, by id or label, and report missing images."""

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from pipeline.config.data_layout import ENDINGS, Data
from pipeline.config.rules import as_tuple
from pipeline.data import table_features, tfrecords
from pipeline.data.image_arrays import FIX, MISSING, Show, Source
from pipeline.errors import DataError, reading

RERUN = "KAGGLE_IS_COMPETITION_RERUN"  # set by Kaggle in the scored rerun
DEPTH = 6  # maximum depth of the folder search, because links can be cyclic
MOST_SKIPPED = 0.01  # maximum fraction of training images to skip
FEW = 3  # training images that can be skipped, up to the fraction MOST_BROKEN
MOST_BROKEN = 0.1  # maximum fraction of test images to skip
Places = str | tuple[str, ...]


def find(folder: Path, ids: Sequence[str], data: Data, *, test: bool = False) -> list[Source]:
    """Return the source of each id's image: a file, a part of a TFRecord file, or `MISSING`.

    Raises:
        DataError: if more than `most_skipped` ids have no image. In the test set, the limit is one
            in ten. In the scored rerun, an error is only raised if all images are missing.
    """
    places: Places = data.test_images if test else data.train_images
    known: Mapping[str, Source]
    if data.kind == "tfrecords":
        places, path = data.test_records, folder / ", ".join(as_tuple(data.test_records))
        parts, table = tfrecords.read(folder, places, data.image_feature, (data.id_column,))
        names = table_features.unique_ids(table[data.id_column], path)
        known = dict(zip(names, parts, strict=True))
    else:
        known = paths_by_id(folder, places, ids, data)
    most = most_skipped(len(ids))
    if test:
        most = len(ids) - 1 if os.environ.get(RERUN) else len(ids) * MOST_BROKEN
    missing = [name for name in ids if name not in known]
    if len(missing) > most:
        folders = [folder / place for place in as_tuple(places)]
        endings = other_endings(missing, folders)
        raise DataError(
            f"{len(missing)} of {len(ids)} images are missing in {', '.join(map(str, folders))}, "
            f"for example {', '.join(map(repr, missing[:3]))}. {endings.total():,} of these ids "
            f"have a file with another extension ({', '.join(endings)}).\nExpected an image for "
            "every row. Set train_images and test_images, or test_records and id_column, in the "
            'config. Set data.suffix="*" to read images with any extension. Convert other formats, '
            "or write a custom reader. If files are missing, complete the download."
        )
    return [known.get(name, MISSING) for name in ids]


def paths_by_id(folder: Path, places: Places, ids: Collection[str], data: Data) -> dict[str, str]:
    """Return the path of each id's image file. The first of `places` that contains an id is used.

    An id can contain folders, such as `cats/1`. If one of `places` itself contains no images, all
    its subfolders are searched. Raises `DataError` if two of these contain the same id.
    """
    endings, wanted = ENDINGS if data.suffix == "*" else (data.suffix,), set(ids)
    known: dict[str, str] = {}
    for place in as_tuple(places):
        found: dict[str, str] = {}
        for name, path in _files(folder / place, ids):
            if not name.endswith(endings):
                continue
            ending = os.path.splitext(name)[1] if data.suffix == "*" else data.suffix  # noqa: PTH122
            stem = name.removesuffix(ending)
            first = found.setdefault(stem, path)
            if os.path.dirname(first) != os.path.dirname(path) and stem in wanted:  # noqa: PTH120
                raise DataError(
                    f"{first} and {path} are both images with the id {stem!r}; expected only one in"
                    f" {folder / place}.\nSet train_images and test_images in the config to the "
                    "folders to read, or remove the duplicates."
                )
        known = found | known
    return known


def names(folder: Path, data: Data) -> list[str]:
    """Return the sorted ids of all test images, derived from their file names.

    If a folder itself contains no images, ids are paths in its subfolders ("cats/1").
    """
    found = set[str]()
    for place in as_tuple(data.test_images):
        known = paths_by_id(folder, place, ("/",), data)
        every = {name for name, path in known.items() if images([path])}
        found |= {name for name in every if "/" not in name} or every
    if not found:
        where = ", ".join(str(folder / place) for place in as_tuple(data.test_images))
        raise DataError(
            f"{where} contains no image with the extension {data.suffix!r}. Expected the images of"
            " the test set, whose names are the ids if data.sample_submission is None.\n"
            "Set test_images and suffix in the config, or complete the download."
        )
    return sorted(found)


def class_folders(
    folder: Path, data: Data, show: Show | None = None
) -> tuple[list[str], pd.DataFrame]:
    """Return the paths of the images in `data.train_images`, and a table of their ids and labels.

    The label is the first folder inside `train_images` (train/cats/1.jpg), and the id is the path
    inside `folder`. Images outside the label folders, and all other files, are ignored. The table
    contains strings in the columns `id_column` and `label_column`.

    Raises:
        DataError: if a folder cannot be read, or contains no folder with images.
    """
    rows, skipped = list[tuple[str, str]](), list[str]()
    for place in as_tuple(data.train_images):
        before = len(rows)
        for inside, names in walk(folder / place):
            below, found = Path(place) / inside, images(names) if inside.parts else []
            rows += [(f"{below}/{name}", inside.parts[0]) for name in found]
            skipped += [f"{below}/{name}" for name in sorted({*names} - {*found})]
        if len(rows) == before:
            raise DataError(
                f"{folder / place} has no folder with images; expected a folder for each label, "
                "such as train/cats/1.jpg, because data.train_csv is None.\n"
                "Set data.train_images or data.train_csv in the config, or complete the download."
            )
    if skipped and show:
        show(
            f"Ignored {len(skipped):,} files that are not images in label folders: {skipped[0]}, …"
        )
    table = pd.DataFrame(rows, columns=[data.id_column, *data.labels], dtype=object)
    return [os.path.join(folder, path) for path, _ in rows], table  # noqa: PTH118


def images(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().endswith(ENDINGS)]


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder's path relative to `folder`, and the sorted names of its files.

    Hidden files and folders, and folders that archivers create, such as __MACOSX, are skipped.
    """

    def stop(error: OSError) -> None:
        raise error

    with reading(folder, DataError, FIX):
        for place, below, names in os.walk(folder, onerror=stop, followlinks=True):
            inside = Path(place).relative_to(folder)
            deep = len(inside.parts) >= DEPTH
            below[:] = sorted(name for name in below if not (deep or name.startswith((".", "__"))))
            yield inside, sorted(name for name in names if not name.startswith("."))


def most_skipped(count: int) -> float:
    """Return how many images may be missing or broken in a training set of this size.

    >>> [most_skipped(count) for count in (10, 100, 1000)]
    [1.0, 3, 10.0]
    """
    return max(count * MOST_SKIPPED, min(FEW, count * MOST_BROKEN))


def describe_broken(broken: Mapping[str, str], total: int, data: Data) -> str:
    listed = "; ".join(f"{name!r}: {reason}" for name, reason in list(broken.items())[:5])
    return (
        f"{len(broken)} of {total} images cannot be used: {listed}.\n"
        f"Expected images that decode to the shape {data.shape} (resize={data.resize!r}), or rows"
        f" of {math.prod(data.shape)} integers from 0 to 255. Replace the broken images, or remove"
        " them from the training set. Otherwise, correct the fields height, width and"
        " resize in the config or, for tables, id_column and label_column."
    )


def other_endings(ids: Sequence[str], folders: Sequence[Path]) -> Counter[str]:
    names = (name for folder in reversed(folders) for name, _ in _files(folder, ids))
    endings = dict(map(os.path.splitext, names))
    return Counter(endings[name] for name in ids if name in endings)


def _files(place: Path, ids: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and path of each file in a folder.

    If the folder itself contains no images, the files in its subfolders are included. Otherwise,
    subfolders are skipped, because they may contain other images, such as masks. If ids contain
    folders, names are relative paths, and all subfolders are searched.
    """
    deep = any("/" in name for name in ids)
    for inside, names in walk(place) if place.is_dir() else ():
        below = f"{inside}/" if inside.parts else ""
        for name in names:
            yield below * deep + name, f"{place}/{below}{name}"
        if not deep and not inside.parts and images(names):
            return

"""Files: which image file, or which part of a TFRecord file, belongs to an id, and what becomes of
those that are missing or broken.
"""

import errno
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.config.data_layout import Data
from pipeline.data import parallel_decoding as fast
from pipeline.data import tfrecords
from pipeline.data.image_decoding import ENDINGS, Shape
from pipeline.errors import DataError

RERUN = "KAGGLE_IS_COMPETITION_RERUN"  # set by Kaggle where nobody is there to mend anything
MOST_LEFT_OUT, MOST_BROKEN = 0.01, 0.1  # of the training images; of the test images
MISSING = os.devnull  # in place of a file that is not there: it is read as an empty one


# Smaller images are decoded again in less time than it takes to tell whether a cache is whole.
CACHED_ABOVE = 64


def find(folder: Path, places: str | tuple[str, ...], ids: Sequence[str], data: Data) -> list[str]:
    """Return the path of each id's image file; of a few that have none `MISSING`, which `read`
    tells as broken.

    Raises:
        DataError: if more than one id in a hundred has no file, or one is no file name.
    """
    paths = _found(folder, places, ids, data)
    missing = [name for name, path in zip(ids, paths, strict=True) if path is None]
    if len(missing) > len(ids) * MOST_LEFT_OUT:
        raise DataError(_absent(missing, folder, places, len(ids), data))
    return [path or MISSING for path in paths]


def read(
    paths: fast.Paths, data: Data, cache: Path | None, show: fast.Show | None
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the decoded images, uint8 (n, height, width, channels), zeros where one cannot be
    decoded, and why by its number.

    `cache`: a folder where those above CACHED_ABOVE pixels a side are kept decoded, as
    `pipeline.data.parallel_decoding.read` says.
    """
    large = max(data.height, data.width) > CACHED_ABOVE
    pixels, broken = fast.read(paths, shape(data), cache=cache if large else None, show=show)
    return pixels, {
        row: "it is missing" if paths[row] == MISSING else reason for row, reason in broken.items()
    }


Block = tuple[int, np.ndarray, Mapping[int, str]]


class Blocks(Protocol):
    """What gives a test set block by block: (first row, inputs of the next rows, why a row cannot
    be decoded, by its number).
    """

    def __call__(self, size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        """Yield the blocks of the rows from `first` to before `last`, each of `size` rows; None: to
        the end.
        """


def test_blocks(folder: Path, ids: Sequence[str], data: Data) -> Blocks:
    """Return what `pipeline.data.dataset.TestSet.blocks` is, for image files and TFRecords; an
    image that is missing counts as broken.

    Raises:
        DataError: if files have no id, or too many ids no file (one in ten; in the scored rerun
            all).
    """
    recorded = data.kind == "tfrecords"
    places = data.test_records if recorded else data.test_images
    paths: Sequence[str | fast.Part | None] = (_recorded if recorded else _found)(
        folder, places, ids, data
    )
    missing = [name for name, path in zip(ids, paths, strict=True) if path is None]
    most = len(ids) - 1 if os.environ.get(RERUN) else len(ids) * MOST_BROKEN
    if len(missing) > most:
        raise DataError(_absent(missing, folder, places, len(ids), data))
    shared = set(_several(places)) & set(
        _several(data.train_images)
    )  # then the training images are there, too
    # Where nobody can mend it, what nobody asked for is no reason to end without what was.
    if not recorded and not shared and not os.environ.get(RERUN):
        _all_have_rows(folder, places, ids, data)
    wanted = shape(data)

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        # What is not there is read as an empty file, so that its row stays in its place.
        for start, block, broken in fast.blocks(
            [path or MISSING for path in paths[first:last]], wanted, size
        ):
            told = {first + row: reason for row, reason in broken.items()}
            yield (
                first + start,
                block,
                {row: told[row] if paths[row] else "it is missing" for row in told},
            )

    return blocks


def _recorded(
    folder: Path, places: str | tuple[str, ...], ids: Sequence[str], data: Data
) -> list[fast.Part | None]:
    """Return where each id's image lies within the test set's TFRecord files, or None."""
    parts, table = tfrecords.read(folder, places, data.image_feature, (data.id_column,))
    there: dict[str, fast.Part] = {}
    for name, part in zip(table[data.id_column], parts, strict=True):
        if name in there:
            raise DataError(
                f"{part.path} has {name!r} as its {data.id_column!r} a second time; expected each id once.\n"
                "Correct test_records and id_column in the config."
            )
        there[name] = part
    extra = sorted(set(there) - set(ids))
    if extra and not os.environ.get(RERUN):
        raise DataError(
            f"The records of {places!r} hold {len(there)} images and {data.sample_submission} asks for {len(ids)}: "
            f"{len(extra)} images have no row, for example {', '.join(extra[:5])}.\n"
            "Expected one row an image. Take test set and sample_submission.csv from the same download."
        )
    return [there.get(name) for name in ids]


def shape(data: Data) -> Shape:
    """Return what each file is decoded to."""
    return Shape(data.height, data.width, data.channels, data.resize, data.decode)


def told(broken: Mapping[str, str], total: int, data: Data) -> str:
    """Return what is wrong with which images, for an error."""
    listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
    return (
        f"{len(broken)} of {total} images cannot be used: {listed}.\n"
        f"Expected images that can be decoded to height x width x channels = {data.height}x{data.width}x{data.channels} "
        f"(resize={data.resize!r}). Replace the broken files, or correct height, width and resize in the config."
    )


def _found(
    folder: Path, places: str | tuple[str, ...], ids: Sequence[str], data: Data
) -> list[str | None]:
    """Return the path of each id's file, the first that is there, or None. An id may name folders:
    `cats/1` is in the folder `cats` of a place.
    """
    folders = [os.fspath(folder / place) for place in _several(places)]
    endings = ENDINGS if data.suffix == "*" else (data.suffix,)
    there = functools.cache(_names)
    paths: list[str | None] = []
    for name in ids:
        # An id comes from a table that somebody else wrote; it leads nowhere but below the place.
        if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise DataError(
                f"{name[:80]!r} cannot be the id of an image: expected a file's name, or folders and a name, as cats/1.\nCorrect the table."
            )
        inside, _, own = name.rpartition("/")
        found = (
            f"{path}/{name}{ending}"
            for path in folders
            for ending in endings
            if f"{own}{ending}" in there(f"{path}/{inside}" if inside else path)
        )
        paths.append(next(found, None))
    return paths


def _several(places: str | tuple[str, ...]) -> tuple[str, ...]:
    return places if isinstance(places, tuple) else (places,)


def _names(folder: str) -> set[str]:
    """Return the names of the files in a folder, none where there is no folder: one look for all of
    them costs less than one each.
    """
    try:
        with os.scandir(folder) as entries:
            # What begins with a dot is some system's own. `is_file` of an entry raises for a link
            # that leads to itself.
            return {
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and (entry.is_file(follow_symlinks=False) or os.path.isfile(entry.path))  # noqa: PTH113
            }
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # nothing can lie there: an id may be any text
            return set()
        raise DataError(
            f"Could not read {folder}: {error.strerror or error}.\nExpected a folder that this user may read."
        ) from error


def _absent(
    missing: Sequence[str], folder: Path, places: str | tuple[str, ...], total: int, data: Data
) -> str:
    where = ", ".join(str(folder / place) for place in _several(places))
    if data.kind == "tfrecords":
        return (
            f"{len(missing)} of {total} images are in no record of {where}, for example {', '.join(name[:80] for name in missing[:3])}.\n"
            "Expected a record for every row. Set test_records and id_column in the config, or complete the download."
        )
    ending = (
        " or ".join(ENDINGS[:4]) if data.suffix == "*" else data.suffix
    )  # the other four are these in capitals
    return (
        f"{len(missing)} of {total} images are missing in {where}, for example {', '.join(f'{name[:80]}{ending}' for name in missing[:3])}.\n"
        "Expected <id><suffix> for every row. Set train_images, test_images and suffix in the config, or complete the download."
    )


def _all_have_rows(
    folder: Path, places: str | tuple[str, ...], ids: Sequence[str], data: Data
) -> None:
    known = set(ids)
    above = sorted({name.rpartition("/")[0] for name in known})
    endings = ENDINGS if data.suffix == "*" else (data.suffix,)
    for place in _several(places):
        own = {
            f"{inside}/{name.removesuffix(ending)}" if inside else name.removesuffix(ending)
            for inside in above
            for name in _names(os.fspath(folder / place / inside))
            for ending in endings
            if name.endswith(ending)
        }
        extra = sorted(own - known) if data.suffix else []
        if extra:
            raise DataError(
                f"{folder / place} holds {len(extra) + len(known)} images and {data.sample_submission} asks for {len(known)}: "
                f"{len(extra)} images have no row, for example {', '.join(extra[:5])}.\n"
                "Expected one row an image. Take test set and sample_submission.csv from the same download."
            )

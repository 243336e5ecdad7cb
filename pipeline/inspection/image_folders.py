"""Gallery: the image files of a competition: in which folders they lie, how ids name them, and what
size a model should read.

All are decoded by the pipeline's own decoder, of very many a sample.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from pipeline.config import Data
from pipeline.data import image_files, parallel_decoding
from pipeline.data.image_decoding import ENDINGS
from pipeline.errors import DataError
from pipeline.inspection import duplicates_and_leaks, input_kinds
from pipeline.inspection.duplicates_and_leaks import Headers
from pipeline.inspection.input_kinds import TRAINS, Inputs
from pipeline.inspection.tables import CHOSEN, FOUND, TESTS, UNKNOWN, WARNING, Contents, Finding

Images = Mapping[str, frozenset[str]]  # names of image files by their folder
BESIDE = re.compile(r"mask|seg|annot|depth|thumb|overlay|bound", re.IGNORECASE)
SMALL = 64  # pixels: the longest side that is read without an accelerator
ROUND = 4  # pixels: sides that are chosen are a multiple, so that they can be halved twice
LONG = 2.0  # how much proportions may differ and be evened out, which loses less than zeros at the edges


def find(held: Contents) -> Inputs | None:
    """Return the image files that the examples are; None where at least half of the training ids
    have none.

    Raises:
        DataError: if the test set has none, files are missing, or ids of the two sets are written
            in two ways.
    """
    if held.ids is None or not held.images:
        return None
    ids, test_ids = tuple(held.labelled[held.ids]), tuple(held.wanted.iloc[:, 0])
    images = _below(held.images) if any("/" in name for name in (*ids, *test_ids)) else held.images
    train, endings, lacking = _places(ids, images, TRAINS)
    if 2 * len(lacking) > len(ids):
        return None
    test, test_endings, absent = _places(test_ids, images, TESTS, taken=train)
    if not test:
        raise DataError(
            f"{held.folder} has no image for any id of {held.sample}, for example {test_ids[0]!r}; expected a file for each.\n"
            "Complete the download, or name another file: --sample FILE."
        )
    both = endings | test_endings
    if "" in both and len(both) > 1:
        raise DataError(
            f"The ids of {held.train} and {held.sample} are file names in one and have no ending in the other ({ids[0]!r}, {test_ids[0]!r}); "
            "expected one way.\nWrite them alike in one of the tables."
        )
    suffix = both.pop() if len(both) == 1 else "*"
    rows, test_rows = input_kinds.some(len(ids)), input_kinds.some(len(test_ids))
    paths = _paths(held, images, train, suffix, [ids[row] for row in rows])
    test_paths = _paths(held, images, test, suffix, [test_ids[row] for row in test_rows])
    there = [path for path in (*paths, *test_paths) if path]
    headers = duplicates_and_leaks.headers(there)
    size, told = _size(headers, whole=len(rows) == len(ids) and len(test_rows) == len(test_ids))
    data = Data(
        **input_kinds.base(held),
        train_images=_one(train),
        test_images=_one(test),
        suffix=suffix,
        **size,
    )
    findings = [
        Finding(
            CHOSEN,
            "inputs",
            f"image files: {_of(train)} to train, {_of(test)} to test; {_called(suffix)}",
        ),
        Finding(FOUND, "sizes", headers.told()),
        Finding(CHOSEN, "size", told),
    ]
    if len(rows) < len(ids):
        text = f"{len(rows):,} of {len(ids):,} training images were looked at, chosen at random"
        findings.append(Finding(UNKNOWN, "sample", text))
    if absent:
        shown = ", ".join(sorted(absent)[:3])
        text = f"{len(absent):,} of {len(test_ids):,} test images have no file, for example {shown}; such a row gets the mean prediction"
        findings.append(Finding(WARNING, "missing", text))
    findings += _rivals(ids, held.images, train, test)
    findings += _unused(held, images, train, ids, test_ids)
    pixels, torn = image_files.read(
        image_files.find(held.folder, data.train_images, [ids[row] for row in rows], data),
        data,
        cache=None,
        show=None,
    )
    known = [place for place, path in enumerate(test_paths) if path]
    test_rows = test_rows[known]
    test_pixels, test_torn = parallel_decoding.read(
        [path for path in test_paths if path], image_files.shape(data)
    )
    broken = {ids[rows[place]]: why for place, why in torn.items()}
    test_broken = {test_ids[test_rows[place]]: why for place, why in test_torn.items()}
    if broken or test_broken:
        shown = "; ".join(
            f"{name}: {why}" for name, why in [*broken.items(), *test_broken.items()][:3]
        )
        text = f"{len(broken):,} training and {len(test_broken):,} test images cannot be decoded: {shown}"
        findings.append(Finding(WARNING, "broken", text))
    else:
        findings.append(Finding(FOUND, "broken", f"none: all {len(there):,} files were decoded"))
    keys = duplicates_and_leaks.contents(
        [path or "" for path in (*paths, *(path for path in test_paths if path))]
    )
    parts = keys[: len(rows)], keys[len(rows) :]
    return Inputs(
        data, tuple(findings), *parts, rows, test_rows, pixels, test_pixels, headers, broken=broken, test_broken=test_broken
    )  # fmt: skip


def _below(images: Images) -> Images:
    """Return for each folder with image files, and each above one, the files below it, with the
    folders between in their names.

    >>> {place: sorted(names) for place, names in sorted(_below({"train/cats": frozenset(["1.png"])}).items())}
    {'.': ['train/cats/1.png'], 'train': ['cats/1.png'], 'train/cats': ['1.png']}
    """
    found: dict[str, set[str]] = {}
    for place, names in images.items():
        inside = PurePosixPath(place)
        for above in (inside, *inside.parents):
            before = "" if above == inside else f"{inside.relative_to(above)}/"
            found.setdefault(str(above), set()).update(f"{before}{name}" for name in names)
    return {place: frozenset(names) for place, names in found.items()}


def _places(
    ids: Sequence[str], images: Images, hint: re.Pattern[str], taken: Sequence[str] = ()
) -> tuple[tuple[str, ...], set[str], set[str]]:
    """Return the folders that hold these ids' images, what follows an id in a file's name, and the
    ids without one.
    """
    # Files of the same names may be the other set's, or masks of these.
    other = {
        place
        for place in images
        if _beside(place)
        or ((TESTS if hint is TRAINS else TRAINS).search(place) and not hint.search(place))
    }
    left, folders, endings = set(ids), [], set()
    while left:
        hits = {
            place: _hits(left, names) for place, names in images.items() if place not in folders
        }
        some = [place for place in hits if hits[place][0]]
        # Unlikely ones are taken where nothing else has any, and not for a few that are missing.
        found = [place for place in some if place not in other] or (
            some if 2 * len(left) > len(ids) else []
        )
        if not found:
            break
        best = min(
            found,
            key=lambda place: (
                -len(hits[place][0]),
                not hint.search(place),
                place in taken,
                len(place),
                place,
            ),
        )
        folders.append(best)
        endings |= hits[best][1]
        left -= hits[best][0]
    return tuple(folders), endings, left


def _beside(place: str) -> bool:
    """Return whether a folder's name says that it holds what was drawn beside the images.

    >>> _beside("data/train_masks"), _beside("train_images")
    (True, False)
    """
    return BESIDE.search(PurePosixPath(place).name) is not None


def _rivals(
    ids: Sequence[str], images: Images, places: Sequence[str], test: Sequence[str]
) -> list[Finding]:
    """Return what is said of other folders that have files for half of the ids, too."""
    found = []
    for place, names in sorted(images.items()):
        apart = all(
            place not in map(str, PurePosixPath(one).parents) and place != one
            for one in map(str, (*places, *test))
        )
        both = len(_hits(set(ids), names)[0]) if apart and place not in places else 0
        if 2 * both > len(ids):
            text = f"{place}/ has files for {both:,} of these ids, too; {_of(places)} is read. If {place}/ is meant, set train_images to it"
            found.append(Finding(UNKNOWN, "folders", text))
    return found


def _hits(ids: set[str], names: frozenset[str]) -> tuple[set[str], set[str]]:
    whole = ids & names
    if whole:
        return whole, {""}
    endings = {
        name[: -len(ending)]: ending
        for name in names
        for ending in ENDINGS
        if name.endswith(ending)
    }
    found = ids & endings.keys()
    return found, {endings[name] for name in found}


def _paths(
    held: Contents, images: Images, places: Sequence[str], suffix: str, ids: Sequence[str]
) -> list[str]:
    """Return each id's file, the first that is there; "" where there is none."""
    endings = ENDINGS if suffix == "*" else (suffix,)
    found = []
    for name in ids:
        each = (
            str(held.folder / place / f"{name}{ending}")
            for place in places
            for ending in endings
            if f"{name}{ending}" in images[place]
        )
        found.append(next(each, ""))
    return found


def _size(headers: Headers, *, whole: bool) -> tuple[dict[str, Any], str]:
    """Return height, width, channels and resize for these images, and why."""
    if not headers.sizes:
        raise DataError(
            "None of the images could be opened; expected PNG, JPEG or WebP.\nComplete the download."
        )
    channels = 1 if headers.grey else 3
    colours = "no file has colours" if headers.grey else "colours"
    width, height = headers.middle()
    least = min(1.0, SMALL / max(width, height))
    reduced = (
        f", reduced to {SMALL} pixels at most for a machine without accelerators; a TPU bears more"
        if least < 1
        else ""
    )
    if len(headers.sizes) == 1 and whole and not reduced:
        shape: dict[str, Any] = {"height": height, "width": width, "channels": channels}
        return (
            shape,
            f"{height}x{width}x{channels} (height x width x channels), as all files have it; {colours}",
        )
    shares = np.array([wide / high for wide, high in headers.sizes.elements()])
    low, high = np.quantile(shares, (0.05, 0.95))
    sides = [max(round(side * least / ROUND) * ROUND, 2 * ROUND) for side in (height, width)]
    if high / low > LONG:
        sides = [max(sides)] * 2
        way, why = (
            "pad",
            f"proportions (width / height) go from {low:.2g} to {high:.2g}, so zeros fill up what they leave",
        )
    else:
        way, why = (
            "stretch",
            f"proportions differ by less than {LONG:g} to 1"
            if len(headers.sizes) > 1
            else "all have one size",
        )
    shape = {"height": sides[0], "width": sides[1], "channels": channels, "resize": way}
    return (
        shape,
        f"{sides[0]}x{sides[1]}x{channels} (height x width x channels) by resize={way!r}: {why}{reduced}; {colours}",
    )


def _unused(
    held: Contents,
    images: Images,
    places: Sequence[str],
    ids: Sequence[str],
    test_ids: Sequence[str],
) -> list[Finding]:
    """Return what is said of files without a row, and of columns beside images."""
    found = []
    known = {*ids, *test_ids}
    extra = sum(
        name not in known and name.rpartition(".")[0] not in known
        for place in places
        for name in images[place]
    )
    if extra:
        found.append(
            Finding(
                FOUND,
                "unlabelled",
                f"{extra:,} image files of {_of(places)} have no row in {held.train}",
            )
        )
    beside = [str(name) for name in held.labelled if name not in (held.ids, *held.labels)]
    if beside:
        shown = ", ".join(beside[:6]) + (" …" if len(beside) > 6 else "")
        found.append(
            Finding(
                CHOSEN, "columns", f"{shown} of {held.train} are not read, since the images are"
            )
        )
    return found


def _one(places: tuple[str, ...]) -> str | tuple[str, ...]:
    return places if len(places) > 1 else places[0]


def _of(places: Sequence[str]) -> str:
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)


def _called(suffix: str) -> str:
    if suffix:
        return (
            "ids without ending, files of several"
            if suffix == "*"
            else f"an id and {suffix} make a file's name"
        )
    return "ids are whole file names"

"""The images of a competition, as files or in TFRecords: where they are, and the size to read.

The pipeline's own decoder reads all of them, or a sample where there are very many.
"""

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from pipeline.config import Data
from pipeline.config.data_layout import ENDINGS
from pipeline.data import image_arrays, image_files
from pipeline.data.image_arrays import Source
from pipeline.errors import DataError
from workbench.inspect import image_headers, input_kinds
from workbench.inspect.folder_files import TESTS, TRAINS, Images, holds_extras, shortened
from workbench.inspect.image_headers import Headers
from workbench.inspect.input_kinds import Inputs
from workbench.inspect.records import Records
from workbench.inspect.tables import CHOSEN, FOUND, UNKNOWN, WARNING, Contents, Finding

SMALL = 64  # pixels: the longest side to read without an accelerator
WHITE = 65535  # what `Data.white` is without a value
ROUND = 4  # pixels: sides are multiples, so that they can be halved twice
LONG = 2.0  # proportions that differ by less are stretched; the others are padded with zeros


def find(contents: Contents) -> Inputs | None:
    """Return the images as inputs; None where at least half of the training ids have no file.

    Raises:
        DataError: if the test set has no images, files are missing, or the ids of only one set are
            whole file names.
    """
    if contents.records is not None:
        return _from_records(contents, contents.records)
    if contents.ids is None or not contents.images:
        return None
    ids, test_ids = tuple(contents.train_table[contents.ids]), tuple(contents.sample_ids)
    named = test_ids if contents.class_folders else (*ids, *test_ids)
    images = _nested(contents.images) if any("/" in name for name in named) else contents.images
    train: tuple[str, ...] = (contents.train,)
    endings, missing = set[str](), set[str]()
    if not contents.class_folders:
        train, endings, missing = _folders(ids, images, TRAINS)
    if 2 * len(missing) > len(ids):
        return None
    test, test_endings, missing_test = _folders(test_ids, images, TESTS, last=train)
    if not test:
        raise DataError(
            f"{contents.folder} has no image for any id of {contents.sample}, for example "
            f"{test_ids[0]!r}; expected a file for each.\n"
            "Complete the download, or name another file: --sample FILE"
        )
    both = endings | test_endings
    if "" in both and len(both) > 1:
        raise DataError(
            f"The ids of one of {contents.train} and {contents.sample} are whole file names, those "
            f"of the other have no ending ({ids[0]!r}, {test_ids[0]!r}); expected the same form.\n"
            "Correct the ids of one of the tables."
        )
    suffix = both.pop() if len(both) == 1 else "*"
    # A hidden test set may have other folders below the same one.
    named_train = train if contents.class_folders else _above(train, contents.images, set(ids))
    least = 1 if named_train != train else 2
    named_test = _above(test, contents.images, set(test_ids), least)
    places: dict[str, Any] = {
        "train_images": named_train if len(named_train) > 1 else named_train[0],
        "test_images": named_test if len(named_test) > 1 else named_test[0],
        "suffix": suffix,
    }
    text = (
        f"image files: {_listed(named_train)} to train, {_listed(named_test)} to test; "
        f"{_naming(suffix)}"
    )
    findings = [Finding(CHOSEN, "inputs", text), *_skipped(contents, {*train, *test})]
    if missing_test:
        text = (
            f"{len(missing_test):,} of {len(test_ids):,} test images have no file, for example "
            f"{', '.join(sorted(missing_test)[:3])}; these rows get the mean prediction"
        )
        findings.append(Finding(WARNING, "missing", text))
    if not contents.class_folders:
        findings += _rivals(ids, contents.images, train, test)
        findings += _unused(contents, images, train, {*ids, *test_ids})
    rows, test_rows = input_kinds.some(len(ids)), input_kinds.some(len(test_ids))
    some, some_test = [ids[row] for row in rows], [test_ids[row] for row in test_rows]
    if contents.class_folders:
        paths: Sequence[Source] = [str(contents.folder / name) for name in some]
    else:  # refuses missing files as a training does
        data = Data(**input_kinds.base(contents), **places, height=1, width=1, channels=1)
        paths = image_files.find(contents.folder, some, data)
    test_paths = _paths(contents, images, test, suffix, some_test)
    train_files, test_files = (paths, rows, ids), (test_paths, test_rows, test_ids)
    return _decoded(contents, places, findings, train_files, test_files)


def _from_records(contents: Contents, held: Records) -> Inputs:
    """Return the images of TFRecords as inputs."""
    ids, test_ids = tuple(contents.train_table[held.ids]), tuple(contents.sample_ids)
    places: dict[str, Any] = {
        "kind": "tfrecords",
        "train_records": held.train if len(held.train) > 1 else held.train[0],
        "test_records": held.test if len(held.test) > 1 else held.test[0],
        "image_feature": held.image,
    }
    text = (
        f"TFRecords: {', '.join(held.train)} to train, {', '.join(held.test)} to test; images are "
        f"in {held.image!r}"
    )
    of_test = dict(zip(held.test_ids, held.test_parts, strict=True))
    rows, test_rows = input_kinds.some(len(ids)), input_kinds.some(len(test_ids))
    parts = [held.parts[row] for row in rows]
    test_parts = [of_test.get(test_ids[row], "") for row in test_rows]
    findings = [Finding(CHOSEN, "inputs", text)]
    train_files, test_files = (parts, rows, ids), (test_parts, test_rows, test_ids)
    return _decoded(contents, places, findings, train_files, test_files)


Rows = tuple[Sequence[Source], np.ndarray, Sequence[str]]  # sources, their rows, ids of all rows


def _decoded(
    contents: Contents, places: Mapping[str, Any], findings: list[Finding], train: Rows, test: Rows
) -> Inputs:
    """Return inputs with the size to read, and all images decoded in it.

    Args:
        places: the fields of `Data` that say where the images are.
        findings: on these.
        train, test: the images; MISSING or "" for a file that is not there.
    """
    (paths, rows, ids), (test_paths, test_rows, test_ids) = train, test
    test_rows = test_rows[[path != "" for path in test_paths]]
    test_paths = [path for path in test_paths if path]
    known = ["" if path == image_arrays.MISSING else path for path in (*paths, *test_paths)]
    present = [path for path in known if path]
    headers = image_headers.headers(present)
    complete = len(rows) == len(ids) and len(test_rows) == len(test_ids)
    size, why = _size(headers, complete=complete)
    background, alpha_findings = _alpha(headers)
    white, white_findings = _white(headers)
    data = Data(**input_kinds.base(contents), **places, **size, **background, **white)
    findings = [
        findings[0],
        Finding(FOUND, "sizes", headers.describe()),
        Finding(CHOSEN, "size", why),
        *alpha_findings,
        *white_findings,
        *findings[1:],
    ]
    if len(rows) < len(ids):
        text = f"only {len(rows):,} of {len(ids):,} training images were read, chosen at random"
        findings.append(Finding(UNKNOWN, "sample", text))
    pixels, unreadable = image_arrays.read(paths, data, cache=None, show=None)
    test_pixels, unreadable_test = image_arrays.read(test_paths, data, cache=None, show=None)
    broken = {ids[rows[place]]: why for place, why in unreadable.items()}
    test_broken = {test_ids[test_rows[place]]: why for place, why in unreadable_test.items()}
    if broken or test_broken:
        some = [*broken.items(), *test_broken.items()][:3]
        text = (
            f"{len(broken):,} training and {len(test_broken):,} test images cannot be decoded: "
            + "; ".join(f"{name}: {why}" for name, why in some)
        )
        findings.append(Finding(WARNING, "corrupt", text))
    else:
        findings.append(Finding(FOUND, "corrupt", f"none: all {len(present):,} files were decoded"))
    # What cannot be decoded is not compared: empty files are no copies of each other.
    unread = {*unreadable, *(len(paths) + place for place in unreadable_test)}
    keys = image_headers.digests(["" if n in unread else path for n, path in enumerate(known)])
    return Inputs(
        data,
        tuple(findings),
        keys[: len(rows)],
        keys[len(rows) :],
        rows,
        test_rows,
        pixels,
        test_pixels,
        headers,
        broken=broken,
        test_broken=test_broken,
        sources=paths,
    )


def _alpha(headers: Headers) -> tuple[dict[str, Any], list[Finding]]:
    """Return the field alpha of `Data` where the alpha channel carries the picture, and why."""
    files = headers.transparent
    seen = image_headers.alpha(files)
    if not seen.transparent:
        return {}, []
    colours, white, black = (seen.contrast[name] for name in ("drop", "white", "black"))
    shown = f"contrast {colours:.0f} levels; over white {white:.0f}, over black {black:.0f}"
    background = seen.background
    if background == "drop":
        text = (
            f"{len(files):,} images have an alpha channel, which is dropped, since the colours "
            f'show a picture without it ({shown}). To see them over white, set alpha="white"'
        )
        return {}, [Finding(UNKNOWN, "alpha", text)]
    text = (
        f"the picture is in the alpha channel of {len(files):,} images: the colours alone are flat "
        f'({shown}); alpha="{background}" lays them on that colour'
    )
    return {"alpha": background}, [Finding(CHOSEN, "alpha", text)]


def _white(headers: Headers) -> tuple[dict[str, Any], list[Finding]]:
    """Return the field white of `Data` for images with more than 8 bits, and why."""
    found = image_headers.extremes(headers.deep)
    if found is None or found[1] <= 0:
        return {}, []
    low, high = found
    bits = max(math.ceil(math.log2(high + 1)), 1)
    white: float = 1.0 if high <= 1 else 2**bits - 1
    seen = min(len(headers.deep), image_headers.MOST_SEEN)
    text = (
        f"{len(headers.deep):,} images have more than 8 bits, with values from {low:g} to {high:g} "
        f"({seen:,} looked at)"
    )
    findings = []
    if low < 0:
        findings.append(Finding(WARNING, "white", f"{text}; those below 0 become black"))
    if white == WHITE:
        return {}, [*findings, Finding(FOUND, "white", f"{text}: all of 16 bits")]
    named = f"{bits} bits" if white > 1 else "fractions"
    text += f", so white={white:g} ({named}) becomes 255, and not {WHITE:,}"
    return {"white": white}, [*findings, Finding(CHOSEN, "white", text)]


def _skipped(contents: Contents, places: Collection[str]) -> list[Finding]:
    """Return a finding on files in these folders, or below, that nothing here reads."""
    names = [
        str(PurePosixPath(place) / name)
        for place, files in sorted(contents.others.items())
        for name in sorted(files)
        if not {place, *map(str, PurePosixPath(place).parents)}.isdisjoint(places)
    ]
    if not names:
        return []
    endings = ", ".join(sorted({PurePosixPath(name).suffix or "none" for name in names}))
    text = f"not read: {len(names):,} files with other endings ({endings}), for example {names[0]}"
    return [Finding(WARNING, "skipped", text)]


def _nested(images: Images) -> Images:
    """Return the image files below each folder at any depth, with the folders between as part of
    their names.

    >>> found = _nested({"train/cats": frozenset(["1.png"])})
    >>> {place: sorted(names) for place, names in sorted(found.items())}
    {'.': ['train/cats/1.png'], 'train': ['cats/1.png'], 'train/cats': ['1.png']}
    """
    found: dict[str, set[str]] = {}
    for place, names in images.items():
        inside = PurePosixPath(place)
        for above in (inside, *inside.parents):
            paths = {str(inside.relative_to(above) / name) for name in names}
            found.setdefault(str(above), set()).update(paths)
    return {place: frozenset(names) for place, names in found.items()}


def _folders(
    ids: Sequence[str], images: Images, hint: re.Pattern[str], last: Sequence[str] = ()
) -> tuple[tuple[str, ...], set[str], set[str]]:
    """Return the folders that hold the images of these ids, what follows an id in a file's name,
    and the ids without an image. Folders with `hint` in their names come first, `last` comes last.
    """
    rival = TESTS if hint is TRAINS else TRAINS
    # Files of the same names may belong to the other set, or be masks of these.
    unlikely = {
        place
        for place in images
        if holds_extras(place) or (rival.search(place) and not hint.search(place))
    }
    missing, folders, endings = set(ids), [], set()
    while missing:
        hits = {
            place: _hits(missing, names) for place, names in images.items() if place not in folders
        }
        holding = [place for place in hits if hits[place][0]]
        found = [place for place in holding if place not in unlikely]
        if not found and 2 * len(missing) > len(ids):  # not for a few that are missing
            found = holding
        if not found:
            break

        def order(place: str) -> tuple[object, ...]:
            count = len(hits[place][0])  # noqa: B023 - min calls it at once
            return -count, not hint.search(place), place in last, len(place), place

        best = min(found, key=order)
        folders.append(best)
        endings |= hits[best][1]
        missing -= hits[best][0]
    return tuple(folders), endings, missing


def _above(places: Sequence[str], images: Images, ids: set[str], least: int = 2) -> tuple[str, ...]:
    """Return the folder above these, if they are `least` or more, all image files below it are
    theirs, and no id is in two of them; else these.

    >>> images = {"train/00": frozenset(["a.png"]), "train/01": frozenset(["b.png"])}
    >>> _above(("train/01", "train/00"), images, {"a", "b"})
    ('train',)
    """
    above = PurePosixPath(os.path.commonpath([PurePosixPath(place).parent for place in places]))
    below = {place for place in images if above in PurePosixPath(place).parents}
    if len(places) < least or not above.parts or str(above) in images or below != set(places):
        return tuple(places)
    hits = [_hits(ids, images[place])[0] for place in places]
    once = sum(map(len, hits)) == len(set[str]().union(*hits))
    return (str(above),) if once else tuple(places)


def _rivals(
    ids: Sequence[str], images: Images, train: Sequence[str], test: Sequence[str]
) -> list[Finding]:
    """Return findings on other folders that also have files for more than half of the ids."""
    chosen = {*train, *test}
    above = {str(parent) for place in chosen for parent in PurePosixPath(place).parents}
    found = []
    for place in sorted(set(images) - chosen - above):
        count = len(_hits(set(ids), images[place])[0])
        if 2 * count > len(ids):
            text = (
                f"{place}/ has files for {count:,} of these ids, too; {_listed(train)} is read. To "
                f"read {place}/, set train_images to it"
            )
            found.append(Finding(UNKNOWN, "folders", text))
    return found


def _hits(ids: set[str], names: frozenset[str]) -> tuple[set[str], set[str]]:
    """Return the ids that have a file of these names, and what follows an id in a name."""
    if whole := ids & names:
        return whole, {""}
    endings = {name.removesuffix(e): e for name in names for e in ENDINGS if name.endswith(e)}
    found = ids & endings.keys()
    return found, {endings[name] for name in found}


def _paths(
    contents: Contents, images: Images, places: Sequence[str], suffix: str, ids: Sequence[str]
) -> list[str]:
    """Return the first file of each id; "" where there is none."""
    endings = ENDINGS if suffix == "*" else (suffix,)
    files = (
        (
            str(contents.folder / place / f"{name}{ending}")
            for place in places
            for ending in endings
            if f"{name}{ending}" in images[place]
        )
        for name in ids
    )
    return [next(each, "") for each in files]


def _size(headers: Headers, *, complete: bool) -> tuple[dict[str, Any], str]:
    """Return height, width, channels and resize for these images, and why."""
    if not headers.sizes:
        raise DataError(
            "None of the images could be opened; expected PNG, JPEG, WebP, BMP, GIF or TIFF.\n"
            "Complete the download."
        )
    channels = 1 if headers.grey else 3
    colours = "no file has colours" if headers.grey else "colours"
    width, height = headers.median()
    factor = min(1.0, SMALL / max(width, height))
    size: dict[str, Any] = {"height": height, "width": width, "channels": channels}
    axes = "(height x width x channels)"
    if len(headers.sizes) == 1 and complete and factor == 1:
        return size, f"{height}x{width}x{channels} {axes}, the size of all files; {colours}"
    low, high = np.quantile([wide / tall for wide, tall in headers.sizes.elements()], (0.05, 0.95))
    height, width = (
        max(round(side * factor / ROUND) * ROUND, 2 * ROUND) for side in (height, width)
    )
    if high / low > LONG:
        height = width = max(height, width)
        way = "pad"
        why = f"proportions (width / height) go from {low:.2g} to {high:.2g}; zeros fill the rest"
    else:
        way, why = "stretch", f"proportions differ by less than {LONG:g} to 1"
        if len(headers.sizes) == 1:
            why = "all have one size"
    if factor < 1:
        why += f", reduced to {SMALL} pixels, as a CPU can train on"
    text = f"{height}x{width}x{channels} {axes} by resize={way!r}: {why}; {colours}"
    return {**size, "height": height, "width": width, "resize": way}, text


def _unused(
    contents: Contents, images: Images, places: Sequence[str], known: set[str]
) -> list[Finding]:
    """Return findings on files without a row (whose ids are not `known`), and on unused columns."""
    found = []
    extra = sum(
        name not in known and name.rpartition(".")[0] not in known
        for place in places
        for name in images[place]
    )
    if extra:
        text = f"{extra:,} image files of {_listed(places)} have no row in {contents.train}"
        found.append(Finding(FOUND, "unlabelled", text))
    used = (contents.ids, *contents.labels)
    columns = [str(name) for name in contents.train_table if name not in used]
    if columns:
        text = f"{shortened(columns)} of {contents.train} are not read, since images are"
        found.append(Finding(CHOSEN, "columns", text))
    return found


def _listed(places: Sequence[str]) -> str:
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)


def _naming(suffix: str) -> str:
    if suffix == "*":
        return "ids without an ending, and files with several endings"
    return f"a file's name is an id and {suffix}" if suffix else "ids are whole file names"

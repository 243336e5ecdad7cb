"""Inputs: what the examples of a competition are: image files, pixels in a table, one array of images, or columns; and how a config says it.

The first of the four that fits is taken, in this order. Images are decoded by the pipeline's own decoder, of very many a sample.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import columns as encoding
from pipeline import features, files, reading, survey
from pipeline.config import Data
from pipeline.contents import CHOSEN, FOUND, TESTS, UNKNOWN, WARNING, Contents, Finding
from pipeline.errors import DataError
from pipeline.features import CATEGORY, NUMBER, OUT, Column
from pipeline.images import ENDINGS
from pipeline.survey import Headers

TRAINS = re.compile("train", re.IGNORECASE)
DECODED, ROOM = 20_000, 2**30  # images that are decoded at most, and their bytes
SMALL = 64  # pixels: the longest side that is read without an accelerator
ROUND = 4  # pixels: sides that are chosen are a multiple, so that they can be halved twice
LONG = 2.0  # how much proportions may differ and be evened out, which loses less than zeros at the edges
EDIT = "Set data.{} in the config."


@dataclass(frozen=True)
class Inputs:
    """What examples are.

    Attributes:
        data: as a config says it, without augmentation. findings: why.
        keys, test_keys: equal where two examples have the same content; None: like no other. Of the rows that were looked at.
        rows, test_rows: int64, these rows.
        pixels, test_pixels: uint8 (n, height, width, channels) of these rows; None of a table.
        headers: of image files. columns: of a table. broken: why a file cannot be decoded, by its id.
    """

    data: Data
    findings: tuple[Finding, ...]
    keys: Sequence[Hashable] = field(repr=False)
    test_keys: Sequence[Hashable] = field(repr=False)
    rows: np.ndarray = field(repr=False)
    test_rows: np.ndarray = field(repr=False)
    pixels: np.ndarray | None = field(default=None, repr=False)
    test_pixels: np.ndarray | None = field(default=None, repr=False)
    headers: Headers | None = None
    columns: tuple[Column, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)


def find(held: Contents) -> Inputs | None:
    """Return what the examples are; None where nothing was found for them.

    Raises:
        DataError: if image files are missing or torn, or arrays or tables are not of the form that the pipeline reads.
    """
    return _images(held) or _pixels(held) or _arrays(held) or _table(held)


def _base(held: Contents) -> dict[str, Any]:
    """Return the fields of `Data` that every kind has."""
    return {
        "train_csv": held.train,
        "sample_submission": held.sample,
        "id_column": held.ids or str(held.wanted.columns[0]),
        "label_column": held.labels if len(held.labels) > 1 else held.labels[0],
    }


# -- image files


def _images(held: Contents) -> Inputs | None:
    if held.ids is None or not held.images:
        return None
    ids, test_ids = tuple(held.labelled[held.ids]), tuple(held.wanted.iloc[:, 0])
    train, endings, lacking = _places(ids, held.images, TRAINS)
    if 2 * len(lacking) > len(ids):
        return None
    test, test_endings, _ = _places(test_ids, held.images, TESTS, taken=train)
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
    rows, test_rows = _some(len(ids)), _some(len(test_ids))
    paths = _paths(held, train, suffix, [ids[row] for row in rows])
    test_paths = _paths(held, test, suffix, [test_ids[row] for row in test_rows])
    there = [path for path in (*paths, *test_paths) if path]
    headers = survey.headers(there)
    size, told = _size(headers, whole=len(rows) == len(ids) and len(test_rows) == len(test_ids))
    data = Data(**_base(held), train_images=_one(train), test_images=_one(test), suffix=suffix, **size)
    findings = [
        Finding(CHOSEN, "inputs", f"image files: {_of(train)} to train, {_of(test)} to test; {_called(suffix)}"),
        Finding(FOUND, "sizes", headers.told()),
        Finding(CHOSEN, "size", told),
    ]
    if len(rows) < len(ids):
        text = f"{len(rows):,} of {len(ids):,} training images were looked at, chosen at random"
        findings.append(Finding(UNKNOWN, "sample", text))
    findings += _unused(held, train, ids, test_ids, suffix)
    pixels, torn = files.read(held.folder, data.train_images, [ids[row] for row in rows], data)
    known = [place for place, path in enumerate(test_paths) if path]
    test_rows = test_rows[known]
    shape = files.shape(data)
    test_pixels, test_torn = reading.read([path for path in test_paths if path], shape)
    broken = {ids[rows[place]]: why for place, why in torn.items()}
    broken |= {test_ids[test_rows[place]]: why for place, why in test_torn.items()}
    if broken:
        shown = "; ".join(f"{name}: {why}" for name, why in list(broken.items())[:3])
        text = f"{len(torn):,} training and {len(test_torn):,} test images cannot be decoded: {shown}"
        findings.append(Finding(WARNING, "broken", text))
    else:
        findings.append(Finding(FOUND, "broken", f"none: all {len(there):,} files were decoded"))
    keys = survey.contents([path or "" for path in (*paths, *(path for path in test_paths if path))])
    return Inputs(
        data, tuple(findings), keys[: len(rows)], keys[len(rows) :], rows, test_rows, pixels, test_pixels, headers, broken=broken
    )  # fmt: skip


def _places(
    ids: Sequence[str], images: dict[str, frozenset[str]], hint: re.Pattern[str], taken: Sequence[str] = ()
) -> tuple[tuple[str, ...], set[str], set[str]]:
    """Return the folders that hold these ids' images, what follows an id in a file's name, and the ids without one."""
    left, folders, endings = set(ids), [], set()
    while left:
        hits = {place: _hits(left, names) for place, names in images.items() if place not in folders}
        ranked = sorted(
            hits, key=lambda place: (-len(hits[place][0]), not hint.search(place), place in taken, len(place), place)
        )
        if not ranked or not hits[ranked[0]][0]:
            break
        folders.append(ranked[0])
        endings |= hits[ranked[0]][1]
        left -= hits[ranked[0]][0]
    return tuple(folders), endings, left


def _hits(ids: set[str], names: frozenset[str]) -> tuple[set[str], set[str]]:
    whole = ids & names
    if whole:
        return whole, {""}
    endings = {name[: -len(ending)]: ending for name in names for ending in ENDINGS if name.endswith(ending)}
    found = ids & endings.keys()
    return found, {endings[name] for name in found}


def _paths(held: Contents, places: Sequence[str], suffix: str, ids: Sequence[str]) -> list[str]:
    """Return each id's file, the first that is there; "" where there is none."""
    endings = ENDINGS if suffix == "*" else (suffix,)
    found = []
    for name in ids:
        each = (
            str(held.folder / place / f"{name}{ending}")
            for place in places
            for ending in endings
            if f"{name}{ending}" in held.images[place]
        )
        found.append(next(each, ""))
    return found


def _some(count: int) -> np.ndarray:
    """Return which of so many rows are looked at, int64 and sorted."""
    if count <= DECODED:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, DECODED, replace=False))


def _size(headers: Headers, *, whole: bool) -> tuple[dict[str, Any], str]:
    """Return height, width, channels and resize for these images, and why."""
    if not headers.sizes:
        raise DataError("None of the images could be opened; expected PNG, JPEG or WebP.\nComplete the download.")
    channels = 1 if headers.grey else 3
    colours = "no file has colours" if headers.grey else "colours"
    width, height = headers.middle()
    least = min(1.0, SMALL / max(width, height))
    reduced = (
        f", reduced to {SMALL} pixels at most for a machine without accelerators; a TPU bears more" if least < 1 else ""
    )
    if len(headers.sizes) == 1 and whole and not reduced:
        shape = {"height": height, "width": width, "channels": channels}
        return shape, f"{height}x{width}x{channels} (height x width x channels), as all files have it; {colours}"
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
        way, why = "stretch", "proportions differ little" if len(headers.sizes) > 1 else "all have one size"
    shape = {"height": sides[0], "width": sides[1], "channels": channels, "resize": way}
    return (
        shape,
        f"{sides[0]}x{sides[1]}x{channels} (height x width x channels) by resize={way!r}: {why}{reduced}; {colours}",
    )


def _unused(
    held: Contents, places: Sequence[str], ids: Sequence[str], test_ids: Sequence[str], suffix: str
) -> list[Finding]:
    """Return what is said of files without a row, and of columns beside images."""
    found = []
    known = {*ids, *test_ids}
    extra = sum(
        name not in known and name.rpartition(".")[0] not in known for place in places for name in held.images[place]
    )
    if extra:
        found.append(
            Finding(FOUND, "unlabelled", f"{extra:,} image files of {_of(places)} have no row in {held.train}")
        )
    beside = [str(name) for name in held.labelled if name not in (held.ids, *held.labels)]
    if beside:
        shown = ", ".join(beside[:6]) + (" …" if len(beside) > 6 else "")
        found.append(Finding(CHOSEN, "columns", f"{shown} of {held.train} are not read, since the images are"))
    return found


def _one(places: tuple[str, ...]) -> str | tuple[str, ...]:
    return places if len(places) > 1 else places[0]


def _of(places: Sequence[str]) -> str:
    return ", ".join("the folder itself" if place == "." else f"{place}/" for place in places)


def _called(suffix: str) -> str:
    if suffix:
        return "ids without ending, files of several" if suffix == "*" else f"an id and {suffix} make a file's name"
    return "ids are whole file names"


# -- pixels and arrays


def _pixels(held: Contents) -> Inputs | None:
    """Return columns of pixels as inputs, if their names and values are those of images."""
    if not held.pixels or held.test is None:
        return None
    shape = _grid(held.pixels)
    if shape is None:
        return None
    first = str(held.wanted.columns[0])
    data = Data(**_base(held), kind="pixels", test_csv=held.test, **shape)
    others = (data.id_column, first, *held.labels)
    extra = [str(name) for name in held.labelled if name not in others]
    if extra:
        raise DataError(
            f"{held.folder / held.train} has {len(held.pixels)} columns of pixels and {', '.join(extra[:6])} beside them; expected pixels alone.\n"
            'Describe it by hand: kind="pixels" takes no other columns; kind="table" takes all as numbers.'
        )
    pixels = encoding.pixels(held.folder / held.train, data, others, EDIT.format("train_csv"))
    test_pixels = encoding.pixels(held.folder / held.test, data, others, EDIT.format("test_csv"))
    size = "x".join(str(shape[name]) for name in ("height", "width", "channels"))
    told = f"columns of pixels: {len(held.pixels)} of them, {held.pixels[0]} to {held.pixels[-1]}, are whole numbers from 0 to 255"
    findings = (
        Finding(CHOSEN, "inputs", told),
        Finding(
            CHOSEN,
            "size",
            f"{size} (height x width x channels), by rows; the pictures of the page show whether it is so",
        ),
    )
    return _array(data, findings, pixels, test_pixels)


def _grid(names: Sequence[str]) -> dict[str, int] | None:
    """Return height, width and channels of images with these columns, a square where names do not tell.

    >>> _grid([f"pixel{n}" for n in range(784)]), _grid([f"{r}x{c}" for r in range(4) for c in range(5)])
    ({'height': 28, 'width': 28, 'channels': 1}, {'height': 4, 'width': 5, 'channels': 1})
    """
    pairs = [re.findall(r"\d+", name) for name in names]
    if all(len(pair) == 2 for pair in pairs):
        down, along = len({pair[0] for pair in pairs}), len({pair[1] for pair in pairs})
        if down * along == len(names):
            return {"height": down, "width": along, "channels": 1}
    for channels in (1, 3):
        side = round((len(names) / channels) ** 0.5)
        if side * side * channels == len(names):
            return {"height": side, "width": side, "channels": channels}
    return None


def _arrays(held: Contents) -> Inputs | None:
    """Return two arrays of as many images as the tables have rows."""
    shapes = {name: _shape(held.folder / name) for name in held.arrays}
    found = []
    for count, hint in ((len(held.labelled), TRAINS), (len(held.wanted), TESTS)):
        fitting = [name for name, shape in shapes.items() if len(shape) in (3, 4) and shape[0] == count]
        called = [name for name in fitting if hint.search(Path(name).stem)]
        if not fitting:
            return None
        if len(called or fitting) > 1:
            raise DataError(
                f"{held.folder} holds {len(called or fitting)} arrays of {count:,} images: {', '.join(called or fitting)}; expected one.\n"
                "Move the others away, or describe the data by hand: data.train_array and data.test_array."
            )
        found.append((called or fitting)[0])
    train, test = found
    if shapes[train][1:] != shapes[test][1:]:
        return None
    height, width, *more = shapes[train][1:]
    data = Data(
        **_base(held), kind="arrays", train_array=train, test_array=test, height=height, width=width, channels=(more or [1])[0]
    )  # fmt: skip
    pixels = encoding.array(held.folder / train, data, len(held.labelled), EDIT.format("train_array"))
    test_pixels = encoding.array(held.folder / test, data, len(held.wanted), EDIT.format("test_array"))
    told = f"arrays of images: {train} {shapes[train]} has as many as {held.train} has rows, {test} {shapes[test]} as {held.sample}"
    return _array(data, (Finding(CHOSEN, "inputs", told),), pixels, test_pixels)


def _shape(path: Path) -> tuple[int, ...]:
    """Return the shape of an array on the disk; () of what is none."""
    try:
        found: Any = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            names = list(found)
            return tuple(found[names[0]].shape) if len(names) == 1 else ()
    except (
        Exception
    ):  # what is not ours makes numpy and zipfile raise a dozen kinds; whoever reads it is told by `pipeline.columns`
        return ()
    return tuple(found.shape)


def _array(data: Data, findings: tuple[Finding, ...], pixels: np.ndarray, test_pixels: np.ndarray) -> Inputs:
    rows, test_rows = _some(len(pixels)), _some(len(test_pixels))
    some, others = pixels[rows], test_pixels[test_rows]
    return Inputs(data, findings, survey.digests(some), survey.digests(others), rows, test_rows, some, others)


# -- tables


def _table(held: Contents) -> Inputs | None:
    """Return the columns that a model should read."""
    if held.tested is None or held.test is None:
        return None
    skip = {held.ids, str(held.wanted.columns[0]), *held.labels, ""}
    labelled, tested = held.labelled, held.tested
    if held.pixels:
        return None
    columns = tuple(features.judge(labelled[name], tested.get(name)) for name in labelled if name not in skip)
    used = {use: tuple(column.name for column in columns if column.use == use) for use in (NUMBER, CATEGORY)}
    if not any(used.values()):
        return None
    most = max((column.distinct for column in columns if column.use == CATEGORY), default=0)
    more = {"most_categories": min(most + 2, 64)} if used[CATEGORY] and most < 62 else {}
    data = Data(
        **_base(held), kind="table", test_csv=held.test, numeric_columns=used[NUMBER], categorical_columns=used[CATEGORY], **more
    )  # fmt: skip
    findings = [
        Finding(
            CHOSEN, "inputs", f"a table: {len(used[NUMBER])} columns of numbers, {len(used[CATEGORY])} of categories"
        )
    ]
    for use, name in ((NUMBER, "numbers"), (CATEGORY, "categories")):
        if used[use]:
            findings.append(Finding(CHOSEN, name, _names(used[use])))
    reasons: dict[str, list[str]] = {}
    for column in columns:
        if column.use == OUT:
            reasons.setdefault(column.why, []).append(column.name)
    findings += [Finding(CHOSEN, "left out", f"{_names(names)}: {why}") for why, names in reasons.items()]
    gaps = [column for column in columns if column.use != OUT and (column.missing or column.missing_test)]
    if gaps:
        shown = ", ".join(f"{column.name} {column.missing:.0%}/{column.missing_test or 0:.0%}" for column in gaps[:8])
        text = f"{shown}{' …' if len(gaps) > 8 else ''} of the rows (training/test) lack a value; a missing number is marked as one"
        findings.append(Finding(FOUND, "missing", text))
    read = [*used[NUMBER], *used[CATEGORY]]
    keys, test_keys = ([tuple(row) for row in part[read].itertuples(index=False)] for part in (labelled, tested))
    if held.ids in tested:
        order = {name: place for place, name in enumerate(tested[held.ids])}
        test_keys = [test_keys[order[name]] for name in held.wanted.iloc[:, 0] if name in order]
    rows, test_rows = np.arange(len(labelled)), np.arange(len(test_keys))
    return Inputs(data, tuple(findings), keys, test_keys, rows, test_rows, columns=columns)


def _names(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" … ({len(names)})" if len(names) > most else "")

"""Locate and read a competition's images in files or TFRecords.

Images are decoded in the same way as in training. If there are too many images, only a random
sample of them is decoded.
"""

import io
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from pipeline.config import Data
from pipeline.config.data_layout import ENDINGS
from pipeline.data import duplicates, image_arrays, image_decoding, image_files
from pipeline.data.image_arrays import MISSING, Part, Source
from pipeline.errors import DataError
from workbench.inspect import inputs
from workbench.inspect.folder import (
    TESTS,
    TRAINS,
    Findings,
    Images,
    counted,
    holds_extras,
    listed,
    shortened,
)
from workbench.inspect.inputs import Inputs, Seen
from workbench.inspect.tables import Contents

UNKNOWN: dict[str, Any] = {"height": 1, "width": 1, "channels": 1}  # until images are opened
SMALL = 64  # pixels; longest side for training without an accelerator
WHITE = 65535  # the default of `Data.white`
ROUND = 4  # pixels; sides are multiples of it so that they can be halved twice
LONG = 2.0  # if aspect ratios vary by less, images are stretched, otherwise padded
GREY = {"1", "L", "LA", *image_decoding.DEEP}
MOST_BYTES = 3e9  # total file size to decode, which takes a minute on two cores
MOST_SEEN = 200  # number of files with alpha or with more than 8 bits to check
FLAT, CARRIED = 6.0, 4.0  # maximum contrast of a flat image, and minimum gain by using alpha


def of_files(contents: Contents, findings: Findings) -> Inputs | None:
    """Read the image files, or return None if most of the training ids have no file.

    Raises:
        DataError: if the test set has no images, if the ids of only one set include file
            extensions, if files are missing, or if no file can be opened.
    """
    if contents.ids is None or contents.source.records or not contents.files.images:
        return None
    ids, test_ids, every = inputs.train_ids(contents), contents.sample_ids, contents.files.images
    named = test_ids if contents.source.class_folders else [*ids, *test_ids]
    images = _nested(every) if any("/" in name for name in named) else every
    train: tuple[str, ...] = (contents.train,)
    endings, missing = set[str](), set[str]()
    if not contents.source.class_folders:
        train, endings, missing = _folders(ids, images, TRAINS)
    if 2 * len(missing) > len(ids):
        return None
    test, test_endings, missing_test = _folders(test_ids, images, TESTS, last=train)
    endings |= test_endings
    if not test or ("" in endings and len(endings) > 1):
        wrong = f"has no image for any id of {contents.asking}"
        fix = "Finish the download, or select another sample submission: --sample FILE"
        if test:
            wrong = "has file extensions in the ids of only one set"
            fix = "Add the extensions to the ids of both tables, or remove them from both."
        raise DataError(
            f"{contents.folder} {wrong}. Each id must have one file, and either all ids or none "
            f"must include file extensions. The first ids are {ids[0]!r} in {contents.train} and "
            f"{test_ids[0]!r} in {contents.asking}.\n{fix}"
        )
    suffix = endings.pop() if len(endings) == 1 else "*"
    # A hidden test set may use other subfolders of the same folder.
    above = train if contents.source.class_folders else _above(train, every, set(ids))
    test_above = _above(test, every, set(test_ids), least=1 if above != train else 2)
    places: dict[str, Any] = {
        "train_images": above if len(above) > 1 else above[0],
        "test_images": test_above if len(test_above) > 1 else test_above[0],
        "suffix": suffix,
    }
    naming = f"files are named ID{suffix}" if suffix else "ids include the file extension"
    naming = naming.replace("ID*", "after ids, with several extensions")
    text = f"image files: training images in {listed(above)}, test images in {listed(test_above)}; "
    text += naming
    findings.chosen("inputs", text)
    if missing_test:
        text = f"{len(missing_test):,} of {len(test_ids):,} test images have no file, for example "
        text += f"{', '.join(sorted(missing_test)[:3])}. Their rows get the mean prediction"
        findings.warning("missing", text)
    _describe_unread(contents, {*train, *test}, findings)
    if not contents.source.class_folders:
        _describe_others(contents, images, train, test, findings)
    data = Data(**inputs.base(contents), **places, **UNKNOWN)
    rows = inputs.some(len(ids))
    paths: list[Source] = [str(contents.folder / ids[row]) for row in rows]
    if not contents.source.class_folders:  # raises if files are missing, as training does
        paths = image_files.find(contents.folder, [ids[row] for row in rows], data)
    known = image_files.paths_by_id(contents.folder, data.test_images, test_ids, data)
    return _decoded(data, Seen(ids, rows, sources=paths), _test(test_ids, known), findings)


def _test(ids: Sequence[str], known: Mapping[str, Source]) -> Seen:
    rows = [row for row in inputs.some(len(ids)) if ids[row] in known]
    return Seen(ids, np.array(rows, int), sources=[known[ids[row]] for row in rows])


def of_records(contents: Contents, findings: Findings) -> Inputs | None:
    held = contents.source.records
    if held is None:
        return None
    text = (
        f"TFRecords: {', '.join(held.train)} for training, {', '.join(held.test)} for testing. The "
        f"images are in the feature {held.image!r}"
    )
    findings.chosen("inputs", text)
    data = Data(
        **inputs.base(contents),
        kind="tfrecords",
        train_records=held.train if len(held.train) > 1 else held.train[0],
        test_records=held.test if len(held.test) > 1 else held.test[0],
        image_feature=held.image,
        **UNKNOWN,
    )
    ids = inputs.train_ids(contents)
    rows = inputs.some(len(ids))
    train = Seen(ids, rows, sources=[held.parts[row] for row in rows])
    known = dict(zip(held.test_table[data.id_column], held.test_parts, strict=True))
    return _decoded(data, train, _test(contents.sample_ids, known), findings)


# -- location


def _nested(images: Images) -> Images:
    """Map each folder to the image files below it, as paths relative to the folder.

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


def _hits(ids: set[str], names: frozenset[str]) -> tuple[set[str], set[str]]:
    if whole := ids & names:
        return whole, {""}
    endings = {name.removesuffix(e): e for name in names for e in ENDINGS if name.endswith(e)}
    found = ids & endings.keys()
    return found, {endings[name] for name in found}


def _folders(
    ids: Sequence[str], images: Images, hint: re.Pattern[str], last: Sequence[str] = ()
) -> tuple[tuple[str, ...], set[str], set[str]]:
    """Find the folders that contain the images of these ids.

    Folders that match `hint` are preferred, and folders in `last` are avoided.

    Returns:
        The folders, the extensions of the files, and the ids without an image.
    """
    rival = TESTS if hint is TRAINS else TRAINS
    missing, folders, endings = set(ids), list[str](), set[str]()
    hits = {place: _hits(missing, names) for place, names in images.items()}

    def order(place: str) -> tuple[object, ...]:
        count = len(hits[place][0] & missing)
        return -count, not hint.search(place), place in last, len(place), place

    while holding := [place for place in hits if hits[place][0] & missing]:
        # Other folders may hold the other set or masks, under the same file names.
        found = [
            place
            for place in holding
            if not holds_extras(place) and (hint.search(place) or not rival.search(place))
        ]
        if not found and 2 * len(missing) <= len(ids):  # accept that some images are missing
            break
        best = min(found or holding, key=order)
        folders.append(best)
        endings |= hits[best][1]
        missing.difference_update(hits[best][0])
    return tuple(folders), endings, missing


def _above(places: Sequence[str], images: Images, ids: set[str], least: int = 2) -> tuple[str, ...]:
    """Replace folders by their common parent folder, if possible.

    The parent must replace at least `least` folders, and must not contain other folders with
    images. No id may occur in two of the folders.

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


def _describe_unread(contents: Contents, places: Collection[str], findings: Findings) -> None:
    unread = [PurePosixPath(path) for path in contents.files.unread]
    names = [path for path in unread if any(map(path.is_relative_to, places))]
    if names:
        endings = ", ".join(sorted({path.suffix or "none" for path in names}))
        text = f"{counted(len(names), 'file')} not read due to their extension ({endings}), for "
        findings.warning("skipped", f"{text}example {names[0]}")


def _describe_others(
    contents: Contents,
    images: Images,
    train: Sequence[str],
    test: Sequence[str],
    findings: Findings,
) -> None:
    ids, every = set(inputs.train_ids(contents)), contents.files.images
    chosen = {*train, *test}
    above = {str(parent) for place in chosen for parent in PurePosixPath(place).parents}
    for place in sorted(every.keys() - chosen - above):
        count = len(_hits(ids, every[place])[0])
        if 2 * count > len(ids):
            text = f"{place}/ also has files for {count:,} ids, but {listed(train)} is used. "
            findings.unknown("folders", f"{text}To use {place}/ instead, set train_images")
    known = ids.union(contents.sample_ids)
    names = [name for place in train for name in images[place]]
    extra = sum(not known & {name, name.rpartition(".")[0]} for name in names)
    if extra:
        text = f"{counted(extra, 'image file')} in {listed(train)} with no row in {contents.train}"
        findings.found("unlabelled", f"{text}. To train on them: docs/pseudo-labels.md")
    used = (contents.ids, *contents.labels)
    if columns := [name for name in contents.table if name not in used]:
        text = f"only images are used, so {shortened(columns)} in {contents.train} will be ignored"
        findings.chosen("columns", text)


# -- format


def _decoded(data: Data, train: Seen, test: Seen, findings: Findings) -> Inputs:
    """Choose an image size, and decode the images at this size.

    Sources of images without a file are `MISSING`.
    """
    share = MOST_BYTES / max(sum(map(_bytes, (*train.sources, *test.sources))), 1)
    train, test = _fewer(train, share), _fewer(test, share)
    present = [source for source in (*train.sources, *test.sources) if source != MISSING]
    found = headers(present)
    if found.empty:
        raise DataError(
            "None of the images could be opened. The supported formats are PNG, JPEG, WebP, BMP, "
            "GIF and TIFF.\nDownload the competition files again."
        )
    findings.found("sizes", describe(found))
    complete = (len(train.rows), len(test.rows)) == (len(train.ids), len(test.ids))
    deep = found["mode"].isin(list(image_decoding.DEEP))
    fields = _size(found, findings, complete=complete)
    fields |= _alpha(found.source[found.alpha].tolist(), findings)
    fields |= _white(found.source[deep].tolist(), findings)
    data = replace(data, **fields)
    if len(train.rows) < len(train.ids):
        text = f"only {len(train.rows):,} of {len(train.ids):,} training images were read, because "
        findings.unknown("sample", f"{text}reading all would take minutes. This is a random sample")
    train, test = _read(train, data), _read(test, data)
    if broken := [*train.broken.items(), *test.broken.items()]:
        text = f"{counted(len(train.broken), 'training image')} and "
        text += f"{counted(len(test.broken), 'test image')} cannot be decoded: "
        text += "; ".join(f"{name}: {why}" for name, why in broken[:3])
        findings.warning("corrupt", text)
    else:
        findings.found("corrupt", f"none; all {len(present):,} files could be decoded")
    return Inputs(data, train, test, headers=found)


def _bytes(source: Source) -> int:
    # The decoder reports files that cannot be read.
    with suppress(OSError):
        return source.size if isinstance(source, Part) else os.stat(source).st_size  # noqa: PTH116
    return 0


def _fewer(seen: Seen, share: float) -> Seen:
    places = inputs.some(len(seen.rows), max(int(share * len(seen.rows)), 1))
    return replace(seen, rows=seen.rows[places], sources=[seen.sources[place] for place in places])


def _read(seen: Seen, data: Data) -> Seen:
    """Decode the images of these rows. The key of a broken image matches no other key."""
    pixels, broken = image_arrays.read(seen.sources, data)
    digests = duplicates.row_digests(pixels)
    keys = [None if place in broken else digest for place, digest in enumerate(digests)]
    reasons = {seen.id(place): why for place, why in broken.items()}
    return replace(seen, keys=keys, pixels=pixels, broken=reasons)


def _images(sources: Sequence[Source], *, load: bool = False) -> Iterator[Any]:
    """Open images, and decode them if `load` is set. Yield None for images that cannot be read."""
    for source in sources:
        try:
            is_part = isinstance(source, Part)
            file: Any = io.BytesIO(image_arrays.readable(source)) if is_part else source
            with Image.open(file, formats=image_decoding.FORMATS) as image:
                if load:
                    image.load()
                yield image
        except Exception:  # many types of errors, which the decoder reports
            yield None


def headers(sources: Sequence[Source]) -> pd.DataFrame:
    """Return a table of the image files that can be opened.

    `alpha` is True if the image has an alpha channel.
    """
    rows = [
        (source, *image.size, image.mode, image.format, image.has_transparency_data)
        for source, image in zip(sources, _images(sources), strict=True)
        if image
    ]
    names = ["source", "width", "height", "mode", "format", "alpha"]
    return pd.DataFrame({name: [row[place] for row in rows] for place, name in enumerate(names)})


def median(found: pd.DataFrame) -> tuple[int, int]:
    return round(found.width.median()), round(found.height.median())


def describe(found: pd.DataFrame) -> str:
    pairs = found.width.astype(str) + "x" + found.height.astype(str)
    sizes = f"all {pairs[0]} (width x height)"
    if pairs.nunique() > 1:
        sizes = (
            f"{found.width.min()}x{found.height.min()} to {found.width.max()}x{found.height.max()} "
            f"(width x height), {pairs.nunique():,} sizes, median "
            f"{'x'.join(map(str, median(found)))}"
        )
    counts = (found[name].value_counts().items() for name in ("format", "mode"))
    return "; ".join([sizes, *(", ".join(f"{key} {n:,}" for key, n in each) for each in counts)])


def _size(found: pd.DataFrame, findings: Findings, *, complete: bool) -> dict[str, Any]:
    """Choose the `height`, `width`, `channels` and `resize` fields of `Data`.

    `complete` is True if `found`, the output of `headers`, covers all images.
    """
    grey = set(found["mode"]) <= GREY
    channels, colours = (1, "all images are grey") if grey else (3, "there are colour images")
    width, height = median(found)
    factor = min(1.0, SMALL / max(width, height))
    ratios = found.width / found.height
    low, high = ratios.quantile(0.05), ratios.quantile(0.95)
    one_size = len(found[["width", "height"]].drop_duplicates()) == 1
    way, why = "stretch", f"aspect ratios vary by less than a factor of {LONG:g}"
    if one_size:
        why = "all files have the same size"
    if one_size and complete and factor == 1:
        way = "exact"
    else:
        height, width = (
            max(round(side * factor / ROUND) * ROUND, 2 * ROUND) for side in (height, width)
        )
    if high / low > LONG:
        way, height, width = "pad", max(height, width), max(height, width)
        why = f"aspect ratios (width / height) range from {low:.2g} to {high:.2g}"
    if factor < 1:
        why += f". Reduced to {SMALL} pixels, unless a published network uses more"
    text = f"{height}x{width}x{channels} (height x width x channels), because {colours}; "
    findings.chosen("size", f"{text}resize={way!r}, because {why}")
    return {"height": height, "width": width, "channels": channels, "resize": way}


def _some(files: Sequence[Source]) -> Iterator[Any]:
    return filter(None, _images(files[:: max(len(files) // MOST_SEEN, 1)], load=True))


def _alpha(files: Sequence[Source], findings: Findings) -> dict[str, Any]:
    """Choose the `alpha` field of `Data` if the alpha channel of these files contains the image.

    The colours of such files are nearly uniform, but the image becomes visible on a white or black
    background.
    """
    seen = []
    for image in _some(files):
        over = image.convert("RGBA")
        if np.asarray(over)[:, :, 3].min() < 255:
            ways = {name: image_decoding.laid_on(over, name) for name in ("white", "black")}
            ways["drop"] = over.convert("RGB")
            seen.append({name: np.asarray(way.convert("L")).std() for name, way in ways.items()})
    if not seen:
        return {}
    contrast = pd.DataFrame(seen).mean()
    best = str(contrast[["white", "black"]].idxmax())
    shown = ", ".join(f"{name} {contrast[name]:.0f}" for name in contrast.index)
    if contrast[best] > max(CARRIED * contrast["drop"], FLAT):
        text = f"the alpha channel of {counted(len(files), 'image')} holds the content, because "
        text += f"the colours alone are flat (contrast: {shown}). "
        text += f'alpha="{best}" puts the images on a {best} background'
        findings.chosen("alpha", text)
        return {"alpha": best}
    text = f"the alpha channel of {counted(len(files), 'image')} is dropped, because the colours "
    text += f'alone have contrast ({shown}). To put them on a white background, set alpha="white"'
    findings.unknown("alpha", text)
    return {}


def _white(files: Sequence[Source], findings: Findings) -> dict[str, Any]:
    values = (np.asarray(image) for image in _some(files))
    ends = np.array([(one.min(), one.max()) for one in values if np.isfinite(one).all()], float)
    if not len(ends) or ends.max() <= 0:
        return {}
    bits = max(math.ceil(math.log2(ends.max() + 1)), 1)
    white, named = (2**bits - 1, f"{bits} bits") if ends.max() > 1 else (1.0, "fractions")
    text = (
        f"{counted(len(files), 'image')} with more than 8 bits. Values range from {ends.min():g} "
    )
    text += f"to {ends.max():g} in {len(ends):,} of them, so white={white:g} ({named}) maps to 255"
    if ends.min() < 0:
        findings.warning("white", f"{text}, and negative values become black")
    else:
        findings.chosen("white", text)
    return {} if white == WHITE else {"white": white}

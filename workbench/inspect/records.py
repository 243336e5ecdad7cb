"""Find the training and test sets in a competition's TFRecord files.

All files whose names match the same pattern, such as train*-*.tfrec, form a set. The features of a
set are determined from its first record. Texts and numbers become the columns of a training and a
test table, in which `workbench.inspect.tables` finds the ids and labels.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from PIL import Image

from pipeline.data import tfrecords
from pipeline.data.image_arrays import Part
from pipeline.data.image_decoding import FORMATS
from pipeline.errors import DataError
from workbench.inspect.folder import TESTS, TRAINS, Findings, holds_extras, shortened

PARTS = re.compile("train|test|valid|^val$", re.IGNORECASE)
BY_HAND = (
    'Write the config yourself: Data(kind="tfrecords", train_records=…, test_records=…, '
    "image_feature=…, id_column=…, label_column=…)."
)


@dataclass(frozen=True)
class Records:
    """A training and a test set in TFRecord files.

    Attributes:
        train, test: file name patterns, relative to the competition folder.
        image: name of the feature that contains the image file.
        table, test_table: the other features, as tables of texts.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    image: str
    table: pd.DataFrame = field(repr=False)
    test_table: pd.DataFrame = field(repr=False)
    parts: list[Part] = field(repr=False)
    test_parts: list[Part] = field(repr=False)


def find(folder: Path, paths: Sequence[str], findings: Findings) -> Records:
    """Find the training and test sets in TFRecord files, if no table has the labels.

    Raises:
        DataError: if a file cannot be read, or if it is unclear which files are the training and
            test sets or which feature is the image.
    """
    firsts: dict[str, Mapping[str, list[Any]]] = {}
    families: dict[str, tuple[list[str], list[str]]] = {}
    for path in sorted(paths):
        if (name := pattern(path)) not in firsts:
            _, _, record = next(tfrecords.records(folder / path), (1, 0, b""))
            firsts[name] = tfrecords.feature_values(record, f"Record 1 in {path}")
            is_test = TESTS.search(name) and not TRAINS.search(PurePosixPath(name).name)
            families.setdefault(_family(name), ([], []))[bool(is_test)].append(name)
    described = [f"{name}: {describe(record)}" for name, record in firsts.items()]

    def features(names: Sequence[str]) -> set[str]:
        return set.intersection(*(set(firsts[name]) for name in names))

    train, test = next(
        (families[name] for name in sorted(families) if all(families[name])), ([], [])
    )
    shared = sorted(features(train) & features(test)) if train else []
    images = [name for name in shared if image_of(firsts[train[0]][name])]
    images = [name for name in images if not holds_extras(name)] or images
    if len(images) != 1:
        expected = f"one feature with image files, got {len(images)}"
        if not train:
            expected = "files with test in their names, and others for training"
        raise DataError(
            f"{folder} has TFRecord files and no table with labels; expected {expected}. The first "
            f"records are: {'. '.join(described)}.\n{BY_HAND}"
        )

    def read(names: Sequence[str]) -> tuple[list[Part], pd.DataFrame]:
        known = [name for name in features(names) if is_text(firsts[names[0]][name])]
        return tfrecords.read(folder, tuple(names), images[0], sorted(known))

    for text in described:
        findings.found("records", text)
    if unused := [name for name in firsts if name not in (*train, *test)]:
        text = f"{shortened(unused)} are not used. To use them, set train_records and test_records"
        findings.unknown("records", text)
    (parts, table), (test_parts, test_table) = read(train), read(test)
    return Records(tuple(train), tuple(test), images[0], table, test_table, parts, test_parts)


def pattern(path: str) -> str:
    """Replace each number in a file name with a wildcard.

    >>> pattern("tfrecords/train00-798.tfrec")
    'tfrecords/train*-*.tfrec'
    """
    place = PurePosixPath(path)
    return str(place.with_name(re.sub(r"\d+", "*", place.name)))


def _family(name: str) -> str:
    """Return the folder that training and test files share.

    >>> _family("512/train/*.tfrec"), _family("512/train*.tfrec")
    ('512', '512')
    """
    place = PurePosixPath(name).parent
    return str(place.parent if PARTS.search(place.name) else place)


def describe(record: Mapping[str, list[Any]]) -> str:
    """Summarize a record's values.

    >>> describe({"class": [3], "name": [b"rose"], "raw": [bytes([255] * 9)]})
    "class is '3', name is 'rose', raw is 9 bytes that are neither text nor an image file"
    """
    shown = {}
    for name, values in sorted(record.items()):
        shown[name] = image_of(values) or f"{tfrecords.text(values)!r:.40}"
        if not is_text(values) and not image_of(values):
            shown[name] = f"{len(values[0]):,} bytes that are neither text nor an image file"
    return ", ".join(f"{name} is {text}" for name, text in shown.items())


def is_text(values: Sequence[Any]) -> bool:
    """Return whether a feature contains numbers or texts rather than binary data.

    >>> is_text([1, 2]), is_text([b"rose"]), is_text([bytes([255])])
    (True, True, False)
    """
    try:
        return all(not isinstance(each, bytes) or each.decode() is not None for each in values)
    except UnicodeDecodeError:
        return False


def image_of(values: Sequence[Any]) -> str:
    try:
        with Image.open(io.BytesIO(*values), formats=FORMATS) as image:
            return f"an image, {image.format} {image.width}x{image.height} {image.mode}"
    except Exception:  # Pillow raises many types of errors
        return ""

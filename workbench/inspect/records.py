"""TFRecord files of a competition folder: which of them train, and which of their features is what.

The first records of each set of files are described. A set is what one pattern names, as
train*-*.tfrec. Image, ids and labels have to be clear, or the message says what the records hold.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from PIL import Image

from pipeline.data import tfrecords
from pipeline.data.image_arrays import Part
from pipeline.data.image_decoding import FORMATS
from pipeline.errors import DataError
from workbench.inspect.folder_files import TESTS, TRAINS, holds_extras, shortened

FIRST = 20  # records of a set that are described
LABELS = {"label", "labels", "target", "class", "category", "y"}
PARTS = re.compile("train|test|valid|^val$", re.IGNORECASE)
BY_HAND = (
    'Write the config by hand: Data(kind="tfrecords", train_records=…, test_records=…, '
    "image_feature=…, id_column=…, label_column=…)."
)
Record = Mapping[str, list[Any]]


@dataclass(frozen=True)
class Records:
    """TFRecord files that can be trained on.

    Attributes:
        train, test: patterns of files below the folder.
        image, ids: names of features.
        labels: names of features, in the order of a submission.
        described: what the records of each set hold, a text each.
        unused: patterns of other files.
        parts, test_parts: where the image of each record lies.
        table: ids and labels of the training records, as texts.
        test_ids: of the test records.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    image: str
    ids: str
    labels: tuple[str, ...]
    described: tuple[str, ...]
    unused: tuple[str, ...]
    parts: list[Part] = field(repr=False)
    test_parts: list[Part] = field(repr=False)
    table: pd.DataFrame = field(repr=False)
    test_ids: tuple[str, ...] = field(repr=False)


def find(
    folder: Path, paths: Sequence[str], wanted: pd.DataFrame, labels: Sequence[str] = ()
) -> Records:
    """Return the TFRecord files of a folder without a table of labels.

    Args:
        folder: of the competition.
        paths: of TFRecord files below it.
        wanted: the sample submission.
        labels: features that the user named; (): to be found.

    Raises:
        DataError: if a file cannot be read, or it is not clear which feature is what.
    """
    sets: dict[str, str] = {}
    for path in sorted(paths):
        sets.setdefault(pattern(path), path)
    firsts = {
        name: [
            tfrecords.feature_values(record, f"{path}, record {number}")
            for number, _, record in islice(tfrecords.records(folder / path), FIRST)
        ]
        for name, path in sets.items()
    }
    described = tuple(f"{name}: {describe(records)}" for name, records in firsts.items())

    def unclear(what: str, fix: str = BY_HAND) -> DataError:
        return DataError(
            f"{folder} holds TFRecord files and no table of labels; {what}. Of the first records: "
            f"{'. '.join(described)}.\n{fix}"
        )

    families: dict[str, tuple[list[str], list[str]]] = {}
    for name in firsts:
        train, test = families.setdefault(_family(name), ([], []))
        is_test = TESTS.search(name) and not TRAINS.search(PurePosixPath(name).name)
        (test if is_test else train).append(name)
    complete = sorted(name for name, (train, test) in families.items() if train and test)
    if not complete:
        raise unclear("expected files with test in their names, and others to train on")
    train, test = families[complete[0]]
    known = [firsts[name][0] if firsts[name] else {} for name in (*train, *test)]
    shared = set.intersection(*map(set, known))
    images = [name for name in sorted(shared) if _size(known[0][name])]
    images = [name for name in images if not holds_extras(name)] or images
    if len(images) != 1:
        raise unclear(f"expected one feature with an image file, and {len(images)} are")
    ids = _ids(shared - {images[0]}, wanted, [record for name in test for record in firsts[name]])
    if ids is None:
        raise unclear(f"no feature holds the ids of {wanted.columns[0]!r} of the sample submission")
    only = set.intersection(*map(set, known[: len(train)])) - {images[0], ids}
    own = _labels(only, only - set().union(*known[len(train) :]), wanted, labels)
    if not own:
        chosen = f"--label {','.join(labels)}: " if labels else ""
        raise unclear(
            f"{chosen}expected the labels in one feature that the test records lack",
            f"Name it, or several with commas between: --label {min(only, default='FEATURE')}",
        )
    parts, table = tfrecords.read(folder, tuple(train), images[0], (ids, *own))
    test_parts, test_table = tfrecords.read(folder, tuple(test), images[0], (ids,))
    return Records(
        train=tuple(train),
        test=tuple(test),
        image=images[0],
        ids=ids,
        labels=own,
        described=described,
        unused=tuple(name for name in firsts if name not in (*train, *test)),
        parts=parts,
        test_parts=test_parts,
        table=table,
        test_ids=tuple(test_table[ids]),
    )


def pattern(path: str) -> str:
    """Return a pattern for a file and those that differ from it in numbers.

    >>> pattern("tfrecords/train00-798.tfrec")
    'tfrecords/train*-*.tfrec'
    """
    place = PurePosixPath(path)
    return str(place.with_name(re.sub(r"\d+", "*", place.name)))


def _family(name: str) -> str:
    """Return the folder below which a set's training and test files lie.

    >>> _family("512/train/*.tfrec"), _family("512/train*.tfrec")
    ('512', '512')
    """
    place = PurePosixPath(name).parent
    return str(place.parent if PARTS.search(place.name) else place)


def describe(records: Sequence[Record]) -> str:
    """Return what records hold, in words: each feature with its kind and size.

    >>> describe([{"class": [3], "name": [b"rose"]}, {"class": [4, 5], "name": [b"iris"]}])
    "class is 1 to 2 whole numbers (3), name is a text ('rose')"
    """
    names = sorted({name for record in records for name in record})
    return ", ".join(
        f"{name} is {_described([record[name] for record in records if name in record])}"
        for name in names
    )


def _described(values: Sequence[list[Any]]) -> str:
    counts = sorted({len(each) for each in values})
    first = values[0][0]
    sizes = {_size(each) for each in values}
    if "" not in sizes:
        return f"an image, {shortened(sorted(sizes))}"
    kind = "whole number" if isinstance(first, int) else "number"
    if isinstance(first, bytes):
        kind = "text"
        try:
            first = first.decode()
        except UnicodeDecodeError:
            return f"{len(first):,} bytes, which are neither a text nor an image file"
    number = "a" if counts == [1] else " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    shown = repr(first if isinstance(first, int) else f"{first:.40}" if kind == "text" else first)
    return f"{number} {kind}{'' if number == 'a' else 's'} ({shown})"


def _size(values: list[Any]) -> str:
    """Return format and size of the one image file in a feature; "" if it holds something else."""
    if len(values) != 1 or not isinstance(values[0], bytes):
        return ""
    try:
        with Image.open(io.BytesIO(values[0]), formats=FORMATS) as image:
            return f"{image.format} {image.width}x{image.height} {image.mode}"
    except Exception:  # Pillow raises a dozen kinds of errors
        return ""


def _ids(names: set[str], wanted: pd.DataFrame, records: Sequence[Record]) -> str | None:
    """Return the feature with the ids of the test set: by its name, or by its values."""
    first, known = str(wanted.columns[0]), set(wanted.iloc[:, 0])
    named = sorted(names, key=lambda name: (name != first, name.casefold() != first.casefold()))
    for name in named:
        texts = [tfrecords.text(record[name]) for record in records if name in record]
        if texts and known.issuperset(texts):
            return name
    return None


def _labels(
    names: set[str], only: set[str], wanted: pd.DataFrame, given: Sequence[str]
) -> tuple[str, ...]:
    """Return the label features among `names`, of which the test records lack `only`; () if it is
    not clear which they are.
    """
    if given:
        return tuple(given) if names.issuperset(given) else ()
    by_name = {name.casefold(): name for name in only}
    asked = [str(name).casefold() for name in wanted.columns[1:]]
    if by_name.keys() >= set(asked):
        return tuple(by_name[name] for name in asked)
    usual = [name for name in sorted(only) if name.casefold() in LABELS]
    found = usual if len(usual) == 1 else sorted(only)
    return tuple(found) if len(found) == 1 else ()

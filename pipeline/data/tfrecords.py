"""TFRecord files, as Kaggle's TPU competitions ship them: where each image lies, and its labels.

One pass reads each file from start to end, checks every checksum, and keeps only what is small. An
image is then a `pipeline.data.parallel_decoding.Part` of its file, read in any order like a file.

TensorFlow is imported here only, and only for this kind of data. Its record reader and `Example` do
not start its runtime, so no accelerator is taken from JAX.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.data.parallel_decoding import Part
from pipeline.errors import DataError

HEAD = 12  # bytes before a record: its length (8) and the checksum of that (4)
TAIL = 4  # bytes behind it: its own checksum


def several(places: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return places if isinstance(places, tuple) else (places,)


def read(
    folder: Path, patterns: str | tuple[str, ...], image: str, features: Sequence[str]
) -> tuple[list[Part], pd.DataFrame]:
    """Return where the image of each record lies, and a table with one row a record.

    Args:
        patterns: of files in `folder`, with * and ?. Files are in the order of their names.
        image: the feature with the bytes of an image file.
        features: the columns of the table, as texts: bytes are UTF-8, and several values have
            blanks between them.

    Raises:
        DataError: if no file matches, a file is corrupt or compressed, or a record is not a
            `tf.train.Example` or lacks a feature; with file and record.
    """
    parts, rows = [], []
    for path in files(folder, patterns):
        for number, start, record in records(path):
            where = f"{path}, record {number}"
            values = _features(record, where)
            if missing := [name for name in (image, *features) if name not in values]:
                raise DataError(
                    f"{where}: it has no value of {', '.join(map(repr, missing))}; it has "
                    f"{', '.join(map(repr, sorted(values))) or 'no feature'}.\nSet image_feature, "
                    "id_column and label_column in the config to the names of features, or complete"
                    " the download."
                )
            content = values[image][0]
            if len(values[image]) != 1 or not isinstance(content, bytes):
                raise DataError(
                    f"{where}: {image!r} holds {len(values[image])} values, the first of type "
                    f"{type(content).__name__}; expected the bytes of one image file.\n"
                    "Set data.image_feature in the config to the feature with the encoded image."
                )
            # The image is by far the longest part of a record. An equal part would be as good.
            parts.append(Part(str(path), start + record.index(content), len(content)))
            rows.append([text(values[name], name, where) for name in features])
    if not rows:
        raise DataError(
            f"The files of {', '.join(map(repr, several(patterns)))} in {folder} hold no record; "
            "expected one per example.\nComplete the download."
        )
    return parts, pd.DataFrame(rows, columns=list(features), dtype=object)


def first_features(path: Path, most: int) -> list[dict[str, list[Any]]]:
    """Return all features of the first records of a file, without those that hold no value.

    Args:
        path: of a TFRecord file.
        most: records that are read.

    Returns:
        For each record the values by the feature's name: lists of bytes, whole numbers or floats.

    Raises:
        DataError: if the file is corrupt or compressed, or a record is not a `tf.train.Example`.
    """
    return [
        _features(record, f"{path}, record {number}")
        for number, _, record in islice(records(path), most)
    ]


def files(folder: Path, patterns: str | tuple[str, ...]) -> list[Path]:
    """Return the files that match, in the order of `read`.

    Raises:
        DataError: if no file matches a pattern.
    """
    paths: list[Path] = []
    for pattern in several(patterns):
        matching = sorted(
            path for path in folder.glob(pattern) if path.is_file() and path not in paths
        )
        if not matching:
            names = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else []
            raise DataError(
                f"No file in {folder} matches {pattern!r}; it holds: "
                f"{', '.join(names) or 'nothing'}.\nExpected TFRecord files. Set "
                "data.train_records and data.test_records in the config, or complete the download."
            )
        paths += matching
    return paths


def records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number of each record, from 1, its first byte in the file, and its bytes."""
    import tensorflow as tf

    # A logger keeps a filter once, however often it is added.
    logging.getLogger("tensorflow").addFilter(_is_no_deprecation)
    number, start = 0, HEAD
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            number += 1
            yield number, start, record
            start += len(record) + TAIL + HEAD
    except (tf.errors.OpError, OSError) as error:
        raise DataError(
            f"{path}, record {number + 1}: it cannot be read: {getattr(error, 'message', error)}.\n"
            "Expected a whole TFRecord file, not compressed. Complete the download, or unpack the "
            "file."
        ) from error


def _is_no_deprecation(line: logging.LogRecord) -> bool:
    """Return False for TensorFlow's advice to use `tf.data`, which starts the runtime."""
    return "tf_record_iterator" not in line.getMessage()


def _features(record: bytes, where: str) -> dict[str, list[Any]]:
    """Return the values of each feature that has some: bytes, whole numbers or floats."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise DataError(
            f"{where}: it is not a tf.train.Example: {error}.\nExpected records with named "
            "features. Correct data.train_records and data.test_records, or convert the files."
        ) from error
    kinds = {name: features[name].WhichOneof("kind") for name in sorted(features)}
    known = {
        name: list(getattr(features[name], kind).value) for name, kind in kinds.items() if kind
    }
    return {name: values for name, values in known.items() if values}


def text(values: Sequence[Any], name: str, where: str) -> str:
    """Return values as one text, as a table would hold them."""
    try:
        return " ".join(
            value.decode() if isinstance(value, bytes) else repr(value) for value in values
        )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: {name!r} is not a text: {error}.\n"
            "Set id_column and label_column in the config to other features."
        ) from error

"""Find images and labels in TFRecord files, as used in Kaggle's TPU competitions.

Each file is read once to verify all checksums, but only its small features are kept. TensorFlow's
record reader and `Example` do not start its runtime, so the accelerator remains available to JAX.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.config.rules import as_tuple
from pipeline.data.image_arrays import Part
from pipeline.errors import DataError
from pipeline.runtime import mounts

HEAD = 12  # bytes before a record: its length (8) and a checksum of the length (4)
TAIL = 4  # bytes after a record: a checksum of its content


def read(
    folder: Path, patterns: str | tuple[str, ...], image: str, features: Sequence[str]
) -> tuple[list[Part], pd.DataFrame]:
    """Return the position of each record's image, and a table of strings with one row per record.

    Args:
        patterns: file patterns relative to `folder`, where * and ? are wildcards. The files that
            match a pattern are sorted by name.
        image: feature that contains an encoded image file.
        features: columns of the table. Bytes are decoded as UTF-8, and multiple values are joined
            by spaces.

    Raises:
        DataError: if no file matches, a file is corrupt or compressed, or a record is not a
            `tf.train.Example` or lacks a feature. The message includes the file and record.
    """
    parts, rows = [], []
    for path in files(folder, patterns):
        for number, start, record in records(path):
            where = f"Record {number} in {path}"
            values = feature_values(record, where)
            content = values.get(image, [])
            one_image = len(content) == 1 and isinstance(content[0], bytes)
            if not (one_image and values.keys() >= set(features)):
                counts = {name: len(held) for name, held in values.items()}
                raise DataError(
                    f"{where} has these numbers of values per feature: {counts}. Expected one "
                    f"encoded image file in {image!r}, and at least one value in "
                    f"{', '.join(map(repr, features))}.\nSet image_feature, id_column and "
                    "label_column in the config, or complete the download."
                )
            # `index` is fast, because most of a record is the image.
            parts.append(Part(str(path), start + record.index(content[0]), len(content[0])))
            rows.append([text(values[name]) for name in features])
    if not rows:
        raise DataError(
            f"The files {patterns!r} in {folder} contain no records. They must contain one "
            "record per example.\nComplete the download."
        )
    return parts, pd.DataFrame(rows, columns=list(features), dtype=object)


def files(folder: Path, patterns: str | tuple[str, ...]) -> list[Path]:
    paths: list[Path] = []
    for pattern in as_tuple(patterns):
        matching = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not matching:
            raise DataError(
                f"No file matches {pattern!r}; {mounts.listing(folder)}.\nExpected TFRecord files. "
                "Set train_records and test_records in the config, or complete the download."
            )
        paths += matching
    return list(dict.fromkeys(paths))


def records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield each record's number, starting at 1, its offset in the file, and its content."""
    import tensorflow as tf

    # Otherwise, TensorFlow would recommend `tf.data`, which starts the runtime.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    number, start = 0, HEAD
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            number += 1
            yield number, start, record
            start += len(record) + TAIL + HEAD
    except (tf.errors.OpError, OSError) as error:
        raise DataError(
            f"Record {number + 1} in {path} cannot be read: {getattr(error, 'message', error)}.\n"
            "Expected a complete, uncompressed TFRecord file. Complete the download, or decompress "
            "the file."
        ) from error


def feature_values(record: bytes, where: str) -> dict[str, list[Any]]:
    """Return the bytes, integers or floats of all features that are not empty."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise DataError(
            f"{where} is not a tf.train.Example: {error}.\nExpected records with named "
            "features. Correct data.train_records and data.test_records, or convert the files."
        ) from error
    values = {  # only one of these lists is set for each feature
        name: [*held.bytes_list.value, *held.int64_list.value, *held.float_list.value]
        for name, held in sorted(features.items())
    }
    return {name: held for name, held in values.items() if held}


def text(values: Sequence[Any]) -> str:
    return " ".join(
        value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)
        for value in values
    )

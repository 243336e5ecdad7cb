"""Records: TFRecord files, as Kaggle's TPU competitions ship them → where each example's image
lies, with its id and labels as texts.

One pass goes through each file from its first record to its last, looks at every checksum, and
keeps of a record what is small. An image then is a part of its file
(`pipeline.data.parallel_decoding.Part`), read and decoded like a file of its own, so that both come
out equal, in any order, in constant memory.

TensorFlow is imported here, and for this kind of data alone. Neither its reader of records nor
`Example` starts its runtime, so that no accelerator is taken from JAX.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.data.parallel_decoding import Part
from pipeline.errors import DataError

HEAD, TAIL = (
    12,
    4,
)  # bytes around a record: its length (8) and the checksum of that, and behind it its own


def read(
    folder: Path, patterns: str | tuple[str, ...], image: str, features: Sequence[str]
) -> tuple[list[Part], pd.DataFrame]:
    """Return where the image of each record lies, and a table of its other features, one row a
    record, file by file in the order of their names.

    Args:
        patterns: of files in `folder`, with * and ?. image: the feature with the bytes of an image
            file.
        features: that the table holds, as texts: bytes are UTF-8, several values stand with blanks
            between.

    Raises:
        DataError: if no file fits, a file is torn or compressed, or a record is no
            `tf.train.Example` or lacks a feature; with file and record.
    """
    parts, rows = [], []
    for path in _files(folder, patterns):
        for number, start, record in _records(path):
            where = f"{path}, record {number}"
            found = _features(record, (image, *features), where)
            content = _bytes(found[image], image, where)
            # Nothing else of a record is so long; and what is equal to it is as good.
            parts.append(Part(str(path), start + record.index(content), len(content)))
            rows.append([_text(found[name], name, where) for name in features])
    if not rows:
        raise DataError(
            f"The files of {_said(patterns)} in {folder} hold no record; expected one an example.\nComplete the download."
        )
    return parts, pd.DataFrame(rows, columns=list(features), dtype=object)


def _files(folder: Path, patterns: str | tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for pattern in patterns if isinstance(patterns, tuple) else (patterns,):
        fitting = sorted(
            path for path in folder.glob(pattern) if path.is_file() and path not in found
        )
        if not fitting:
            names = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else []
            raise DataError(
                f"No file in {folder} fits {pattern!r}; it holds: {', '.join(names) or 'nothing'}.\n"
                "Expected TFRecord files. Set data.train_records and data.test_records in the config, or complete the download."
            )
        found += fitting
    return found


def _records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number of each record, from 1, where its bytes begin in the file, and its bytes."""
    import tensorflow as tf

    logging.getLogger("tensorflow").addFilter(
        _wanted
    )  # which it has once, however often it is given
    number, start = 0, HEAD
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            number += 1
            yield number, start, record
            start += len(record) + TAIL + HEAD
    except (tf.errors.OpError, OSError) as error:
        raise DataError(
            f"{path}, record {number + 1}: it cannot be read: {getattr(error, 'message', error)}.\n"
            "Expected a whole TFRecord file, not compressed. Complete the download, or unpack the file."
        ) from error


def _wanted(line: logging.LogRecord) -> bool:
    """Return whether a line of TensorFlow's log is more than its advice to read records by
    `tf.data`, which starts the runtime.
    """
    return "tf_record_iterator" not in line.getMessage()


def _features(record: bytes, names: Sequence[str], where: str) -> dict[str, Any]:
    """Return the values of some features of a record: lists of bytes, whole numbers or floats."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise DataError(
            f"{where}: it is no tf.train.Example: {error}.\n"
            "Expected records with named features. Correct data.train_records and data.test_records, or convert the files."
        ) from error
    # To ask for one that is not there would make it.
    kinds = {
        name: features[name].WhichOneof("kind") if name in features else None for name in names
    }
    missing = [
        name
        for name, kind in kinds.items()
        if kind is None or not getattr(features[name], kind).value
    ]
    if missing:
        there = sorted(name for name in features if name not in missing)
        raise DataError(
            f"{where}: it has no value of {', '.join(map(repr, missing))}; it has {', '.join(map(repr, there)) or 'no feature'}.\n"
            "Set image_feature, id_column and label_column in the config to the names of features, or complete the download."
        )
    return {name: getattr(features[name], str(kind)).value for name, kind in kinds.items()}


def _bytes(values: Sequence[Any], name: str, where: str) -> bytes:
    if len(values) != 1 or not isinstance(values[0], bytes):
        raise DataError(
            f"{where}: {name!r} holds {len(values)} values, the first of type {type(values[0]).__name__}; expected the bytes of one image file.\n"
            "Set data.image_feature in the config to the feature with the encoded image."
        )
    return values[0]


def _text(values: Sequence[Any], name: str, where: str) -> str:
    """Return values as one text, as a table would hold them."""
    try:
        return " ".join(
            value.decode() if isinstance(value, bytes) else repr(value) for value in values
        )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: {name!r} is no text: {error}.\nSet id_column and label_column in the config to other features."
        ) from error


def _said(patterns: str | tuple[str, ...]) -> str:
    return ", ".join(map(repr, patterns)) if isinstance(patterns, tuple) else repr(patterns)

"""Write TFRecord files that contain some of a competition's records."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from formats.errors import writing
from pipeline.config.data_layout import Data
from pipeline.config.rules import as_tuple
from pipeline.data import tfrecords


def copy(folder: Path, patterns: str | tuple[str, ...], out: Path, rows: np.ndarray) -> None:
    """Copy the records with these indices (from 0) to files with the same names in `out`."""
    writers, kept = dict[Path, Any](), set(rows.tolist())
    with writing(out), ExitStack() as stack:
        for row, (path, record) in enumerate(_records(folder, patterns)):
            if row in kept:
                target = out / path.relative_to(folder)
                if target not in writers:
                    writers[target] = stack.enter_context(_writer(target))
                writers[target].write(record)


def as_test(folder: Path, data: Data, out: Path, rows: np.ndarray, names: Sequence[str]) -> None:
    """Write the images of labelled records as a test set, with the ids in `names`."""
    import tensorflow as tf

    called = dict(zip(rows.tolist(), names, strict=True))
    target = out / as_tuple(data.test_records)[0].replace("*", "0").replace("?", "0")
    with writing(target), _writer(target) as writer:
        for row, (_, record) in enumerate(_records(folder, data.train_records)):
            if row in called:
                old = tf.train.Example.FromString(record).features.feature
                key = tf.train.Feature(bytes_list=tf.train.BytesList(value=[called[row].encode()]))
                features = {data.image_feature: old[data.image_feature], data.id_column: key}
                made = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(made.SerializeToString(deterministic=True))


def _records(folder: Path, patterns: str | tuple[str, ...]) -> Iterator[tuple[Path, bytes]]:
    for path in tfrecords.files(folder, patterns):
        for _, _, record in tfrecords.records(path):
            yield path, record


def _writer(target: Path) -> Any:
    import tensorflow as tf

    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # may be a link to the user's file
    return tf.io.TFRecordWriter(str(target))

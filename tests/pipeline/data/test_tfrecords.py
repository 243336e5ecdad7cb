"""TFRecord files give what the same images give as files, and say by file and record where they do
not.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config import Config
from pipeline.data import dataset, tfrecords
from pipeline.data.test_set import read_test
from pipeline.errors import DataError

ROOT = Path(__file__).resolve().parents[3]
SHARDS = 3


def feature(value):
    """Return a feature with one value, or with those of a list."""
    import tensorflow as tf  # seconds, which only the worker that writes records needs

    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    values = [text.encode() if isinstance(text, str) else text for text in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def example(**features):
    import tensorflow as tf

    named = {name: feature(value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString()


def written(path, contents):
    import tensorflow as tf

    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    return path


@pytest.fixture
def both(competition: Path, tiny: Config) -> tuple[Path, Config, Config]:
    """Return a competition that has its images as files and in TFRecords, in another order, and a
    config for each.
    """
    labels = pd.read_csv(competition / "train.csv", dtype=str)
    rows = dict(labels.to_numpy())
    for part in ("train", "test"):
        names = sorted(
            (path.stem for path in (competition / part).iterdir()), key=lambda name: name[::-1]
        )
        for shard in range(SHARDS):
            contents = []
            for name in names[shard::SHARDS]:
                features = {
                    "image_name": name,
                    "image": (competition / part / f"{name}.png").read_bytes(),
                }
                contents.append(
                    example(**features, **({"class": rows[name]} if part == "train" else {}))
                )
            written(
                competition / "tfrecords" / f"{part}{shard:02d}-{len(contents)}.tfrec", contents
            )
    own = replace(
        tiny.data,
        kind="tfrecords",
        train_records="tfrecords/train*.tfrec",
        test_records="tfrecords/test*.tfrec",
        id_column="image_name",
        label_column="class",
    )
    return competition, tiny, replace(tiny, data=own)


def test_records_give_what_image_files_give(both):
    """The same pixels and the same label for each id."""
    folder, files, recorded = both

    one, other = dataset.read_training(folder, files), dataset.read_training(folder, recorded)

    assert sorted(one.ids) == sorted(other.ids) and len(one) == 96
    place = [one.ids.index(name) for name in other.ids]
    assert np.array_equal(one.inputs[place], other.inputs)
    assert np.array_equal(one.labels[place], other.labels)
    assert one.target == other.target


@pytest.mark.parametrize("size", [1, 5, 64])
def test_the_test_set_comes_in_the_sample_s_order(both, size):
    """Block by block, whatever the order of the files."""
    folder, files, recorded = both

    one, other = read_test(folder, files), read_test(folder, recorded)

    assert one.ids == other.ids and len(one) == 21
    blocks = list(other.blocks(size))
    assert [start for start, _, _ in blocks] == list(range(0, 21, size))
    assert np.array_equal(
        np.concatenate([block for _, block, _ in blocks]), one.inputs(np.arange(21))
    )
    assert not any(broken for _, _, broken in blocks)


def test_several_patterns_are_taken_together_and_no_file_twice(both):
    """As where a competition has a folder to train and one to validate."""
    folder, _, recorded = both
    patterns = ("tfrecords/train00*", "tfrecords/train*.tfrec")

    found = dataset.read_training(
        folder, replace(recorded, data=replace(recorded.data, train_records=patterns))
    )

    assert len(found) == len(set(found.ids)) == 96


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"x", "x"), (7, "7"), (-1, "-1"), (0.5, "0.5"), ([3, 1], "3 1"), (["a", "ß"], "a ß")],
    ids=["bytes", "number", "negative", "float", "several", "texts"],
)
def test_a_feature_becomes_the_text_that_a_table_would_hold(tmp_path, value, text):
    written(tmp_path / "a.tfrec", [example(image=b"bytes", label=value)])

    parts, table = tfrecords.read(tmp_path, "a.tfrec", "image", ("label",))

    assert table.to_dict("list") == {"label": [text]}
    assert (tmp_path / "a.tfrec").read_bytes()[parts[0].start :][: parts[0].size] == b"bytes"


def cut(path, ends):
    path.write_bytes(path.read_bytes()[: ends[1] + 30])


def turned(path, ends):
    content = bytearray(path.read_bytes())
    content[ends[1] + 30] ^= 1
    path.write_bytes(content)


def length(path, ends):
    content = bytearray(path.read_bytes())
    content[ends[1]] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [cut, turned, length])
def test_a_file_that_is_damaged_is_named_with_its_record(both, spoil):
    """Truncated, or with a bit flipped in pixels or a length: nothing of it is an image."""
    folder, _, recorded = both
    path = folder / "tfrecords" / "train01-32.tfrec"
    ends = [
        start - tfrecords.HEAD + len(record) + 16 for _, start, record in tfrecords.records(path)
    ]

    spoil(path, ends)

    with pytest.raises(DataError, match=r"train01-32\.tfrec, record 3: it cannot be read"):
        dataset.read_training(folder, recorded)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (
            [example(image=b"a", id="a"), example(image=b"b", name="b")],
            r"b\.tfrec, record 2: it has no value of 'id'; it has 'image'",
        ),
        ([example(id="a", picture=b"")], r"record 1: it has no value of 'image'; it has 'id'"),
        (
            [example(id="a", image=[b"", b""])],
            r"record 1: 'image' holds 2 values, the first of type bytes; expected the bytes of one",
        ),
        (
            [example(id="a", image=[1, 2, 3])],
            r"record 1: 'image' holds 3 values, the first of type int",
        ),
        ([example(id=b"\xff", image=b"a")], r"record 1: 'id' is not a text"),
        ([b"\xff\xff no example"], r"record 1: it is not a tf.train.Example"),
        ([example()], r"record 1: it has no value of 'image', 'id'; it has no feature"),
        ([], r"hold no record"),
    ],
    ids=[
        "no id",
        "no image",
        "two images",
        "pixels",
        "bytes as id",
        "another message",
        "nothing",
        "no record",
    ],
)
def test_a_record_that_cannot_be_used_is_named(tmp_path, contents, said):
    """With its number, what was expected and the edit."""
    written(tmp_path / "b.tfrec", contents)

    with pytest.raises(DataError, match=said):
        tfrecords.read(tmp_path, "*.tfrec", "image", ("id",))


def test_a_pattern_that_fits_nothing_tells_what_is_there(both):
    folder, _, recorded = both

    with pytest.raises(
        DataError, match=r"matches 'tfrec/\*'; it holds: sample_submission.csv, test, tfrecords"
    ):
        dataset.read_training(
            folder, replace(recorded, data=replace(recorded.data, train_records="tfrec/*"))
        )


def test_an_id_without_a_record_is_broken_and_too_many_are_refused(both):
    """As of image files: one in ten."""
    folder, _, recorded = both
    few = replace(recorded, data=replace(recorded.data, test_records="tfrecords/test01*"))
    path = next((folder / "tfrecords").glob("test02*"))
    kept = [record for _, _, record in tfrecords.records(path)]

    written(path, kept[1:])

    test = read_test(folder, recorded)
    broken = {row: reason for _, _, block in test.blocks(8) for row, reason in block.items()}
    assert list(broken.values()) == ["it is missing"]
    with pytest.raises(DataError, match=r"14 of 21 images are in no record of .*test01"):
        read_test(folder, few)


def test_a_record_without_a_row_and_an_id_that_comes_twice_are_refused(both):
    folder, _, recorded = both
    path = next((folder / "tfrecords").glob("test02*"))
    kept = [record for _, _, record in tfrecords.records(path)]

    written(path, [*kept, example(image_name="more", image=b"")])
    with pytest.raises(
        DataError,
        match=r"22 images and sample_submission\.csv asks for 21: "
        r"1 images have no row, for example more",
    ):
        read_test(folder, recorded)
    written(path, [*kept, kept[0]])
    with pytest.raises(DataError, match=r"'image_name' a second time"):
        read_test(folder, recorded)


def test_tensorflow_takes_no_device_for_it(both):
    """Its runtime is not even started, so that all of an accelerator is left to JAX; and it is
    imported for this kind alone.
    """
    folder, _, _ = both
    code = (
        "import sys; from pathlib import Path; from pipeline.data import dataset, tfrecords\n"
        "assert 'tensorflow' not in sys.modules\n"
        f"folder, features = Path({str(folder)!r}), ('image_name',)\n"
        "parts, table = tfrecords.read(folder, 'tfrecords/train*', 'image', features)\n"
        "from tensorflow.python.eager import context\n"
        "print(len(parts), context.context()._initialized)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env={**os.environ}
    )

    assert (done.returncode, done.stdout) == (0, "96 False\n"), done.stderr
    assert "deprecated" not in done.stderr

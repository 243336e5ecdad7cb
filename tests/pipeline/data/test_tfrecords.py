"""TFRecord files are equivalent to image files; errors name file and record."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config import Config
from pipeline.data import dataset, tfrecords
from pipeline.data.dataset import read_test
from pipeline.errors import DataError
from tests.pipeline.handmade import with_data

SHARDS = 3


def example(**features):
    """Return a record of features with one value each, or with those of a list."""
    import tensorflow as tf  # seconds, which only the worker that writes records needs

    named, kinds = {}, {int: "int64_list", float: "float_list", bytes: "bytes_list"}
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        values = [text.encode() if isinstance(text, str) else text for text in values]
        named[name] = tf.train.Feature(**{kinds[type(values[0])]: {"value": values}})
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
    rows = dict(pd.read_csv(competition / "train.csv", dtype=str).to_numpy())
    for part in ("train", "test"):
        paths = sorted((competition / part).iterdir(), key=lambda path: path.stem[::-1])
        for shard in range(SHARDS):
            contents = [
                example(
                    image_name=path.stem, image=path.read_bytes(), label=rows.get(path.stem, "")
                )
                for path in paths[shard::SHARDS]
            ]
            name = f"{part}{shard:02d}-{len(contents)}.tfrec"
            written(competition / "tfrecords" / name, contents)
    recorded = with_data(
        tiny,
        kind="tfrecords",
        train_records="tfrecords/train*.tfrec",
        test_records="tfrecords/test*.tfrec",
        id_column="image_name",
    )
    return competition, tiny, recorded


def test_without_a_sample_submission_ids_are_those_of_the_records(both):
    """In the order of the files, and of the records in them."""
    folder, files, recorded = both
    expected = read_test(folder, files).ids

    ids = read_test(folder, with_data(recorded, sample_submission=None)).ids

    assert sorted(ids) == sorted(expected)


def test_records_give_what_image_files_give(both):
    """The same pixels and the same label for each id."""
    folder, files, recorded = both

    one, other = dataset.read_training(folder, files), dataset.read_training(folder, recorded)

    assert sorted(one.ids) == sorted(other.ids) and len(one) == 96
    place = [one.ids.index(name) for name in other.ids]
    assert np.array_equal(one.inputs[place], other.inputs)
    assert np.array_equal(one.labels[place], other.labels)
    assert one.target == other.target


def test_the_test_set_comes_in_the_sample_s_order(both):
    """Block by block, whatever the order of the files."""
    folder, files, recorded = both

    one, other = read_test(folder, files), read_test(folder, recorded)

    starts, blocks, broken = zip(*other.blocks(5), strict=True)
    assert one.ids == other.ids and starts == (0, 5, 10, 15, 20) and not any(broken)
    assert np.array_equal(np.concatenate(blocks), one.inputs(np.arange(21)))


def test_several_patterns_are_taken_together_and_no_file_twice(both):
    """As for a competition with folders for training and validation."""
    folder, _, recorded = both
    patterns = ("tfrecords/train00*", "tfrecords/train*.tfrec")

    found = dataset.read_training(folder, with_data(recorded, train_records=patterns))

    assert len(found) == len(set(found.ids)) == 96


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"x", "x"),
        (7, "7"),
        (-1, "-1"),
        (0.5, "0.5"),
        ([3, 1], "3 1"),
        (["a", "ß"], "a ß"),
        (b"\xff", "\\xff"),
    ],
    ids=["bytes", "number", "negative", "float", "several", "texts", "no text"],
)
def test_a_feature_becomes_the_text_that_a_table_would_hold(tmp_path, value, text):
    written(tmp_path / "a.tfrec", [example(image=b"bytes", label=value)])

    parts, table = tfrecords.read(tmp_path, "a.tfrec", "image", ("label",))

    assert table.to_dict("list") == {"label": [text]}
    assert (tmp_path / "a.tfrec").read_bytes()[parts[0].start :][: parts[0].size] == b"bytes"


@pytest.mark.parametrize(("place", "flipped"), [(30, False), (30, True), (0, True)])
def test_a_file_that_is_damaged_is_named_with_its_record(both, place, flipped):
    """Truncated, or with a flipped bit in pixels or a length."""
    folder, _, recorded = both
    path = folder / "tfrecords" / "train01-32.tfrec"
    content = bytearray(path.read_bytes())
    _, (_, start, record), *_ = tfrecords.records(path)
    place += start + len(record) + tfrecords.TAIL
    if flipped:
        content[place] ^= 1

    path.write_bytes(content if flipped else content[:place])

    with pytest.raises(DataError, match=r"Record 3 in .*train01-32\.tfrec cannot be read"):
        dataset.read_training(folder, recorded)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (
            {"image": b"b", "name": "b"},
            r": {'image': 1, 'name': 1}. Expected .* in 'image', and at least one value in 'id'",
        ),
        (
            {"id": "a", "image": [b"", b""]},
            r"values per feature: {'id': 1, 'image': 2}. Expected one encoded image file",
        ),
        (
            {"id": "a", "image": [1, 2, 3]},
            r"values per feature: {'id': 1, 'image': 3}. Expected one encoded",
        ),
        (b"\xff\xff no example", "is not a tf.train.Example"),
    ],
)
def test_an_unusable_record_is_named(tmp_path, features, said):
    """With its number, what was expected and the edit."""
    content = features if isinstance(features, bytes) else example(**features)
    written(tmp_path / "b.tfrec", [example(image=b"a", id="a"), content])

    with pytest.raises(DataError, match=rf"Record 2 in .*b\.tfrec.*{said}"):
        tfrecords.read(tmp_path, "*.tfrec", "image", ("id",))


def test_files_without_records_are_refused(tmp_path):
    written(tmp_path / "b.tfrec", [])

    with pytest.raises(DataError, match="contain no records"):
        tfrecords.read(tmp_path, "*.tfrec", "image", ("id",))


def test_a_pattern_without_matches_lists_the_folder(both):
    folder, _, recorded = both

    with pytest.raises(
        DataError, match=r"No file matches 'tfrec/\*'; .* contains: sample_submission.csv, test"
    ):
        dataset.read_training(folder, with_data(recorded, train_records="tfrec/*"))


def test_ids_and_records_of_the_test_set_belong_together(both):
    """One image in ten may be missing, as for files."""
    folder, _, recorded = both
    path = next((folder / "tfrecords").glob("test02*"))
    kept = [record for _, _, record in tfrecords.records(path)]

    written(path, kept[1:])
    blocks = read_test(folder, recorded).blocks(8)
    broken = [reason for _, _, block in blocks for reason in block.values()]
    assert broken == ["it is missing"]

    few = with_data(recorded, test_records="tfrecords/test01*")
    with pytest.raises(DataError, match=r"14 of 21 images are missing in .*test01"):
        read_test(folder, few)
    written(path, [*kept, kept[0]])
    with pytest.raises(DataError, match="expected each id once"):
        read_test(folder, recorded)

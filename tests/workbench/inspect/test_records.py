"""TFRecords are described by their features; if image, ids and labels are clear, a config reads
them.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import dataset
from pipeline.data.dataset import read_test
from pipeline.errors import DataError
from tests.pipeline.data.test_tfrecords import example, written
from tests.workbench.inspect.test_inspection import csv, noise, pictures, png, proposed, put, report
from workbench.inspect import inspection
from workbench.inspect.tables import Given


def records(folder: Path, *, place: str = "tfrec", label: str = "label", **more: object) -> Path:
    """Write a competition of 30 labelled records in two files, and 6 to predict. `more`: further
    features of the training records.
    """
    put(folder, {"sample_submission.csv": csv("name,label", *((f"t{n}", 0) for n in range(6)))})
    (folder / place).mkdir(parents=True)
    for shard in range(2):
        contents = [
            example(image=png(noise(9, 8, 3)), name=f"r{n}", **{label: n % 3, **more})
            for n in range(shard, 30, 2)
        ]
        written(folder / place / f"train{shard:02d}-15.tfrec", contents)
    tests = [example(image=png(noise(9, 8, 3)), name=f"t{n}") for n in range(6)]
    written(folder / place / "test00-6.tfrec", tests)
    return folder


def test_records_are_described_and_a_config_reads_them(tmp_path):
    """Sets follow from file names; ids, image and label from the records."""
    found, config = proposed(records(tmp_path, score=[0.5, 0.25]))

    said = report(found, config)
    for fact in (
        *("kind='tfrecords'", "image_feature='image'", "id_column='name'", "label_column='label'"),
        *("train_records='tfrec/train*-*.tfrec'", "test_records='tfrec/test*-*.tfrec'"),
        *("num_classes=3", "height=9, width=8, channels=3", "30 examples"),
        *("image is an image, PNG 8x9 RGB", "label is '0'", "score is '0.5 0.25'"),
    ):
        assert fact in said
    assert np.array_equal(
        read_test(tmp_path, config).inputs(np.arange(6)), found.inputs.test.pixels
    )


def test_one_of_several_sizes_is_read_and_the_others_are_listed(tmp_path):
    """As in Kaggle's flowers: folders by size, with a folder per part."""
    records(tmp_path, place="192/train")
    for name in ("192/val", "192/test", "512/train", "512/test"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "192/train/test00-6.tfrec").rename(tmp_path / "192/test/00-6.tfrec")
    (tmp_path / "192/train/train01-15.tfrec").rename(tmp_path / "192/val/00-15.tfrec")
    for name in ("train/train00-15.tfrec", "test/00-6.tfrec"):
        (tmp_path / "512" / name).write_bytes((tmp_path / "192" / name).read_bytes())

    found, config = proposed(tmp_path)

    assert set(config.data.train_records) == {"192/train/train*-*.tfrec", "192/val/*-*.tfrec"}
    assert config.data.test_records == "192/test/*-*.tfrec"
    assert "512/test/*-*.tfrec, 512/train/train*-*.tfrec are not used" in report(found, config)
    assert len(dataset.read_training(tmp_path, config)) == 30


def test_a_table_of_labels_is_preferred_to_records(tmp_path):
    """Many competitions have both; a finding lists what is not read."""
    put(tmp_path, {**pictures(), "tfrec/train00-9.tfrec": b"", "tfrec/train01-9.tfrec": b""})

    found, config = proposed(tmp_path)

    assert config.data.kind == "images"
    said = "records: tfrec/train*-*.tfrec are not read, because train.csv has the labels"
    assert said in report(found, config)


def test_ambiguous_records_are_refused_with_their_contents(tmp_path):
    """Two features that the test set lacks, no image file, no ids, no files of a test set."""

    def refused(name: str) -> str:
        with pytest.raises(DataError) as caught:
            inspection.inspect(tmp_path / name)
        return str(caught.value)

    records(tmp_path / "two", label="variety", grade=3)
    assert "has 2 columns missing from the test table: grade, variety" in refused("two")
    assert refused("two").endswith("--label grade")
    assert proposed(tmp_path / "two", Given(labels=("variety",)))[1].num_classes == 3
    raw = records(tmp_path / "raw") / "tfrec"
    for path in raw.iterdir():
        label = {} if "test" in path.name else {"variety": 1}
        written(path, [example(image=b"\xff" * 216, name="t1", **label)])
    assert "216 bytes that are neither text nor an image file" in refused("raw")
    assert 'Data(kind="tfrecords"' in refused("raw").splitlines()[-1]
    sample = csv("name,label", ("other", 0))
    put(records(tmp_path / "ids"), {"sample_submission.csv": sample})
    assert "contains the ids of the sample submission ('name')" in refused("ids")
    (records(tmp_path / "tests") / "tfrec" / "test00-6.tfrec").unlink()
    assert "expected files with test in their names" in refused("tests")


@pytest.mark.slow
def test_records_are_inspected_with_keras_on_jax_and_take_no_device(tmp_path, monkeypatch):
    """TensorFlow, which reads them, imports Keras, whose backend is chosen before that. Its own
    runtime is not even started; and it is imported for this kind alone.
    """
    code = (
        "import sys; from workbench.__main__ import main\n"
        "from pipeline.data import dataset, tfrecords\n"
        "print('tensorflow' in sys.modules)\n"
        "print(main(['inspect', sys.argv[1]]))\n"
        "import keras; from tensorflow.python.eager import context\n"
        "print(keras.backend.backend(), context.context()._initialized)\n"
    )
    monkeypatch.delenv("KERAS_BACKEND")

    words = [sys.executable, "-c", code, records(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)

    lines = done.stdout.splitlines()
    assert (lines[0], lines[-2:]) == ("False", ["0", "jax False"]), done.stdout + done.stderr

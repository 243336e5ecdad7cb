"""A session without an accelerator decodes once what trainings then take as it is."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pipeline.config import data_layout
from pipeline.data import dataset, image_decoding, parallel_decoding
from pipeline.errors import ConfigError
from pipeline.preparation import preparation
from pipeline.runtime import mounts
from pipeline.storage import checksums
from pipeline.training import training


@pytest.fixture
def config(tiny, monkeypatch):
    """Return a config whose 96 images of 8x8 are kept decoded, in shards of 30."""
    monkeypatch.setattr(data_layout, "CACHED_ABOVE", 4)
    monkeypatch.setattr(parallel_decoding, "SHARD", 30 * 64)
    return replace(tiny, session_hours=1.0)


@pytest.fixture
def output(tmp_path):
    """Return the folder of a kernel's output, as the next one mounts it."""
    output = tmp_path / "input" / "notebooks" / "ann" / "digits-prepare-cpu"
    output.mkdir(parents=True)
    return output


def of_files(config, competition):
    return dataset.read_training(competition, config)


def read(config, competition, tmp_path):
    """Return the examples as a training reads them, and what it said."""
    said = []
    found = dataset.read_training(
        competition, config, prepared=mounts.prepared(tmp_path / "input"), show=said.append
    )
    return found, said


@pytest.mark.parametrize("layout", ["notebooks/ann/digits-prepare-cpu", "digits-prepare-cpu"])
def test_a_training_takes_what_was_prepared_in_either_layout_of_mounts(
    config, competition, output, tmp_path, layout
):
    """The same examples, and none decoded."""
    assert preparation.prepare(config, competition, output, show=str) == "complete"
    (tmp_path / "input" / layout).parent.mkdir(parents=True, exist_ok=True)
    output.rename(tmp_path / "input" / layout)

    found, said = read(config, competition, tmp_path)

    assert found.fingerprint == of_files(config, competition).fingerprint
    assert [line.split(" in ")[0] for line in said] == ["Found 96 of 96 images decoded"]


def test_a_training_gives_the_same_weights_however_it_is_fed(config, competition, output, tmp_path):
    """Prepared or not, from memory or from the devices."""
    preparation.prepare(config, competition, output, show=str)
    found, given = set(), mounts.prepared(tmp_path / "input")
    for feed, prepared in (("host", []), ("host", given), ("device", given)):
        one = replace(config, feed=feed, epochs=2)
        examples = training.read(one, competition, prepared=prepared)
        place = tmp_path / f"{feed}-{len(prepared)}"
        run = training.train(one, competition, place, examples=examples, show=str)
        found.add(run.manifest["weights_sha256"])

    assert len(found) == 1


def test_images_in_folders_of_labels_are_prepared_too(config, competition, output, tmp_path):
    """Whatever says which images there are."""
    for number, path in enumerate(sorted((competition / "train").iterdir())):
        folder = competition / "classes" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(folder / path.name)
    data = replace(config.data, train_csv=None, train_images="classes")
    config = replace(config, data=data, num_classes=2)

    preparation.prepare(config, competition, output, show=str)
    found, said = read(config, competition, tmp_path)

    assert found.fingerprint == of_files(config, competition).fingerprint
    assert said[0].startswith("Found 96 of 96")


def test_it_ends_before_its_session_and_the_next_one_takes_what_is_done(
    config, competition, output, tmp_path, monkeypatch
):
    """Shards of the first are decoded once."""
    lines, later = [], tmp_path / "later"
    later.mkdir()
    monkeypatch.setattr(
        preparation.Session, "over", lambda *_: "time" if len(kept(output)) == 2 else None
    )
    assert preparation.prepare(config, competition, output, show=str) == "partial"
    monkeypatch.undo()
    monkeypatch.setattr(data_layout, "CACHED_ABOVE", 4)
    monkeypatch.setattr(parallel_decoding, "SHARD", 30 * 64)

    status = preparation.prepare(
        config, competition, later, earlier=mounts.prepared(tmp_path / "input"), show=lines.append
    )

    assert (status, len(kept(output)), len(kept(later))) == ("complete", 2, 4)
    assert lines[-1].startswith("Prepared 96 images: 36 decoded here")


def kept(folder):
    return sorted(folder.glob("*-of-4-*.json"))


def test_a_file_that_changed_is_never_taken_stale(config, competition, output, tmp_path):
    """Not by a training, and not by the next preparation, which decodes that file alone."""
    preparation.prepare(config, competition, output, show=str)
    path = competition / "train" / "r003.png"
    Image.new("L", (8, 8), 255).save(path)
    os.utime(path, ns=(7, 7))

    found, said = read(config, competition, tmp_path)

    assert found.inputs[found.ids.index("r003")].min() == 255
    assert any("1 files have changed since they were decoded" in line for line in said)
    lines, again = [], tmp_path / "again"
    again.mkdir()
    preparation.prepare(config, competition, again, earlier=[output], show=lines.append)
    assert lines[-1].startswith("Prepared 96 images: 1 decoded here")
    shutil.rmtree(output)
    again.rename(output)
    fresh, said = read(config, competition, tmp_path)
    assert fresh.fingerprint == found.fingerprint
    assert len(said) == 1


def other_shape(config, output, patch):
    return replace(config, data=replace(config.data, height=6, resize="stretch"))


def other_pillow(config, output, patch):
    patch.setattr(image_decoding.PIL, "__version__", "99.0")
    return config


def torn_marker(config, output, patch):
    (output / mounts.PREPARED).write_text("{")
    return config


def no_marker_of_ours(config, output, patch):
    (output / mounts.PREPARED).write_bytes(checksums.sealed({"of": "somebody else"}))
    return config


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_shape, "is not used, since its images are decoded by"),
        (other_pillow, "is not used, since its images are decoded by"),
        (torn_marker, "is corrupt"),
        (no_marker_of_ours, "is corrupt"),
    ],
)
def test_what_does_not_fit_is_named_and_not_used(
    config, competition, output, tmp_path, monkeypatch, change, said
):
    """The training decodes as it always does."""
    preparation.prepare(config, competition, output, show=str)
    config = change(config, output, monkeypatch)

    found, lines = read(config, competition, tmp_path)

    assert found.fingerprint == of_files(config, competition).fingerprint
    assert len(lines) == 1 and said in lines[0]


def test_broken_images_stay_broken(config, competition, output, tmp_path):
    """By name and reason."""
    (competition / "train" / "r003.png").write_bytes(b"no picture")
    config = replace(config, name="broken")
    preparation.prepare(config, competition, output, show=str)
    found, _ = read(config, competition, tmp_path)
    plain = of_files(config, competition)

    assert dict(found.broken) == dict(plain.broken) and list(found.broken) == ["r003"]
    assert found.fingerprint == plain.fingerprint


def test_small_images_and_tables_have_nothing_to_prepare(tiny, competition, output):
    """It says why, and what to type."""
    with pytest.raises(ConfigError, match=r"nothing to prepare(?s:.*)invoke push-train --config"):
        preparation.prepare(tiny, competition, output, show=str)

    assert not list(output.iterdir())


def test_what_kaggle_would_not_keep_is_refused_before_anything_is_decoded(
    config, competition, output, monkeypatch
):
    """With the largest size that it would keep."""
    monkeypatch.setattr(preparation, "MOST_BYTES", 96 * 16.0)

    with pytest.raises(ConfigError, match="Set height=4 and width=4"):
        preparation.prepare(config, competition, output, show=str)
    monkeypatch.setattr(preparation, "MOST_BYTES", 1e9)
    monkeypatch.setattr(preparation, "MOST_FILES", 7)
    with pytest.raises(ConfigError, match="8 files would lie"):
        preparation.prepare(config, competition, output, show=str)

    assert not list(output.iterdir())


def test_the_same_pixels_come_by_tfrecords(config, competition, output, tmp_path):
    """Parts of files have names of their own."""
    contents = [path.read_bytes() for path in sorted((competition / "train").iterdir())]
    (competition / "all").write_bytes(b"".join(contents))
    starts = np.cumsum([0, *map(len, contents)])
    parts = [
        parallel_decoding.Part(str(competition / "all"), int(start), len(content))
        for start, content in zip(starts, contents, strict=False)
    ]
    form = image_decoding.Shape(8, 8, 1, "exact")
    for number in range(1, 5):
        parallel_decoding.keep(parts, form, number, output, base=competition, show=str)

    said = []
    found = parallel_decoding.read(
        parts, form, base=competition, prepared=[output], show=said.append
    )[0]

    assert np.array_equal(found, parallel_decoding.read(parts, form)[0])
    assert said[0].startswith("Found 96 of 96")


def test_images_that_stay_in_their_files_say_that_nothing_is_taken(
    config, competition, output, tmp_path
):
    """The config asks for it, or neither memory nor disk has room."""
    preparation.prepare(config, competition, output, show=str)

    found, said = read(replace(config, feed="files"), competition, tmp_path)

    assert found.fingerprint == of_files(config, competition).fingerprint
    assert said[0].endswith('feed="files"; what was prepared is not used')


def test_the_same_cell_twice_decodes_once(config, competition, output):
    """In one notebook."""
    lines = []
    for _ in range(2):
        assert preparation.prepare(config, competition, output, show=lines.append) == "complete"

    assert lines[-1].startswith("Prepared 96 images: 0 decoded here")

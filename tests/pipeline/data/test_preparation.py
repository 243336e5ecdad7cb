"""A session without an accelerator decodes images once, for all trainings."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pipeline.config import data_layout
from pipeline.data import dataset, image_arrays, preparation
from pipeline.errors import ConfigError
from pipeline.runtime import mounts


def small_shards(monkeypatch):
    """Keep 96 images of 8x8 decoded, in shards of 30."""
    monkeypatch.setattr(data_layout, "CACHED_ABOVE", 4)
    monkeypatch.setattr(image_arrays, "SHARD", 30 * 64)


@pytest.fixture
def config(tiny, monkeypatch):
    """Return a config of a competition that can be prepared."""
    small_shards(monkeypatch)
    return replace(tiny, session_hours=1.0)


@pytest.fixture
def output(tmp_path):
    """Return the folder of a kernel's output, as the next one mounts it."""
    output = tmp_path / "input" / "notebooks" / "ann" / "digits-prepare-cpu"
    output.mkdir(parents=True)
    return output


@pytest.fixture
def prepared(config, competition, output):
    """Return a function that prepares, and returns the last line."""

    def prepare(into=output, **words):
        lines = []
        into.mkdir(exist_ok=True)
        changed = words.pop("config", config)
        ends = words.pop("ends", "complete")
        assert preparation.prepare(changed, competition, into, show=lines.append, **words) == ends
        return lines[-1]

    return prepare


def of_files(config, competition):
    return dataset.read_training(competition, config)


def read(config, competition, tmp_path):
    """Return the examples as a training reads them, and what it said."""
    said = []
    found = dataset.read_training(
        competition, config, prepared=mounts.prepared(tmp_path / "input"), show=said.append
    )
    return found, said


def test_a_training_uses_prepared_images(config, competition, prepared, output, tmp_path):
    """None is decoded again, and unreadable images keep their reason. The same cell twice decodes
    once.
    """
    (competition / "train" / "r003.png").write_bytes(b"no picture")
    prepared()
    assert prepared().startswith("Prepared 96 images, 0 of which were decoded")
    output.rename(tmp_path / "input" / output.name)  # the other layout of mounts

    found, said = read(config, competition, tmp_path)

    plain = of_files(config, competition)
    assert found.fingerprint == plain.fingerprint
    assert [line.split(" in ")[0] for line in said] == ["Found 96 of 96 decoded images"]
    assert dict(found.broken) == dict(plain.broken) and list(found.broken) == ["r003"]


def test_preparation_ends_before_its_session_and_the_next_one_continues(
    config, competition, prepared, output, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        preparation.Session, "over", lambda *_: "time" if len(kept(output)) == 2 else None
    )
    prepared(ends="partial")
    monkeypatch.undo()
    small_shards(monkeypatch)

    said = prepared(tmp_path / "later", earlier=mounts.prepared(tmp_path / "input"))

    assert (len(kept(output)), len(kept(tmp_path / "later"))) == (2, 4)
    assert said.startswith("Prepared 96 images, 36 of which were decoded")


def kept(folder):
    return sorted(folder.glob("*-of-4-*.json"))


def test_a_changed_file_is_decoded_again(config, competition, prepared, output, tmp_path):
    """By a training, and by the next preparation, which decodes only its shard."""
    prepared(config=config)
    path = competition / "train" / "r003.png"
    Image.new("L", (8, 8), 255).save(path)

    found, said = read(config, competition, tmp_path)

    assert found.inputs[found.ids.index("r003")].min() == 255
    assert said[0].startswith("Found 66 of 96 decoded images in")
    again = tmp_path / "again"
    assert prepared(again, earlier=[output]).startswith("Prepared 96 images, 30 of")
    shutil.rmtree(output)
    again.rename(output)
    fresh, said = read(config, competition, tmp_path)
    assert fresh.fingerprint == found.fingerprint
    assert len(said) == 1


def test_small_images_and_tables_have_nothing_to_prepare(tiny, competition, output):
    """With the reason, and the command to type."""
    with pytest.raises(ConfigError, match=r"nothing to prepare(?s:.*)invoke push-train --config"):
        preparation.prepare(tiny, competition, output, show=str)

    assert not list(output.iterdir())


def test_what_kaggle_would_not_keep_is_refused_before_anything_is_decoded(
    config, competition, output, monkeypatch
):
    """With the largest possible size."""
    monkeypatch.setattr(preparation, "MOST_BYTES", 96 * 16.0)

    with pytest.raises(ConfigError, match="Set height=4 and width=4"):
        preparation.prepare(config, competition, output, show=str)

    assert not list(output.iterdir())


def test_images_that_stay_in_their_files_are_taken_from_what_was_prepared(
    config, competition, prepared, output, tmp_path
):
    """Memory-mapped, if the config or a lack of memory demands it."""
    prepared(config=config)

    found, said = read(replace(config, feed="files"), competition, tmp_path)

    plain = of_files(config, competition)
    assert found.fingerprint == plain.fingerprint
    assert np.array_equal(found.inputs[:], plain.inputs)
    assert said[0].startswith("Found 96 of 96 decoded images")

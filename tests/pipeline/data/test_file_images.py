"""Images that stay in their files are used as those in memory are."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.config import Data
from pipeline.data import dataset, file_images
from pipeline.errors import ConfigError, DataError
from pipeline.runtime import devices
from pipeline.training import training
from tests.pipeline.conftest import write_competition


@pytest.fixture
def both(competition, tiny):
    """Return the examples in memory and in their files."""
    return tuple(
        dataset.read_training(competition, replace(tiny, feed=feed)) for feed in ("host", "files")
    )


def test_they_are_the_same_images(both):
    """By a number, a slice, rows, and as a fingerprint, so that a run may move between them."""
    memory, files = (one.inputs for one in both)

    assert isinstance(files, file_images.FileImages)
    assert (files.shape, files.dtype, files.nbytes) == (memory.shape, memory.dtype, memory.nbytes)
    for rows in (3, -1, slice(2, 50, 3), np.array([5, 5, 0]), slice(0, 0)):
        assert np.array_equal(files[rows], memory[rows])
    assert np.array_equal(file_images.some(files, np.array([7, 1]))[:], memory[[7, 1]])
    assert both[0].fingerprint == both[1].fingerprint


def test_a_training_gives_the_same_weights(competition, tiny, tmp_path):
    """And resumes in the other way."""
    found = []
    for first, then in (("host", "host"), ("files", "host"), ("device", "files")):
        output, lines = tmp_path / f"{first}-{then}", []
        for feed, steps in ((first, 5), (then, None)):
            config = replace(tiny, feed=feed, epochs=2)
            run = training.train(config, competition, output, max_steps=steps, show=lines.append)
        found.append(run.manifest["weights_sha256"])
        told = [line.split(" (")[0] for line in lines if line.startswith("Feed")]
        assert ("decode" in told[0], "decode" in told[1]) == (first == "files", then == "files")

    assert len(set(found)) == 1


def test_a_broken_image_is_found_at_the_beginning_and_left_out(tmp_path, tiny):
    folder = write_competition(tmp_path / "competition", train=100)
    (folder / "train" / "r003.png").write_bytes(b"no picture")

    found = dataset.read_training(folder, replace(tiny, feed="files"))

    assert set(found.broken) == {"r003"} and len(found.inputs) == len(found) == 99


def test_an_image_that_breaks_while_the_run_goes_is_named(both, competition):
    """It becomes no black picture in silence."""
    path = next((competition / "train").iterdir())
    path.write_bytes(b"no picture")

    with pytest.raises(DataError, match=rf"{path.name} could be decoded when this run began"):
        both[1].inputs[:]


def test_what_fits_nowhere_stays_in_its_files(competition, tiny, monkeypatch, tmp_path):
    """A full disk, and a small memory."""
    shown = []
    monkeypatch.setattr(devices, "memory_left", lambda: 1000)

    found = dataset.read_training(competition, tiny, show=shown.append)

    assert isinstance(found.inputs, file_images.FileImages)
    assert "are decoded as the run goes" in shown[0]


def test_a_table_has_no_files_to_decode(tiny):
    with pytest.raises(ConfigError, match="feed='files' cannot work"):
        replace(tiny, feed="files", model="mlp", data=Data(kind="table", numeric_columns=("a",)))

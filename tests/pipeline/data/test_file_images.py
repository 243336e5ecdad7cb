"""Images that stay in their files are used as those in memory are."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data import dataset, file_images
from pipeline.errors import DataError
from pipeline.runtime import devices
from pipeline.training import training


@pytest.fixture
def both(competition, tiny):
    """Return the examples in memory and in their files, of which one is broken."""
    (competition / "train" / "r003.png").write_bytes(b"no picture")
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
    assert both[0].broken == both[1].broken and len(files) == 95


@pytest.mark.slow
def test_a_training_gives_the_same_weights_and_resumes_in_the_other_way(
    both, competition, tiny, tmp_path
):
    found, lines = [], list[str]()
    for feed, output, steps in (("files", "a", 3), ("host", "a", None), ("device", "b", None)):
        config, out = replace(tiny, feed=feed, epochs=1), tmp_path / output
        run = training.train(config, competition, out, max_steps=steps, show=lines.append)
        found.append(run.manifest and run.manifest["weights_sha256"])

    assert found[1] == found[2] != found[0]
    assert sum("1 images cannot be decoded and are left out: 'r003'" in line for line in lines) == 3
    feeds = [line.split(" (")[0] for line in lines if line.startswith("Feed")]
    assert ["decode" in line for line in feeds] == [True, False, False]


def test_an_image_that_breaks_while_the_run_goes_is_named(both, competition):
    """It becomes no black picture in silence."""
    (competition / "train" / "r000.png").write_bytes(b"no picture")

    with pytest.raises(DataError, match=r"r000\.png could be decoded when this run began"):
        both[1].inputs[:]


def test_what_fits_nowhere_stays_in_its_files(competition, tiny, monkeypatch):
    shown = []
    monkeypatch.setattr(devices, "memory_left", lambda: 1000)

    found = dataset.read_training(competition, tiny, show=shown.append)

    assert isinstance(found.inputs, file_images.FileImages)
    assert "are decoded as the run goes" in shown[0]

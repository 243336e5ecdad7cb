"""A kill at any moment leaves a whole checkpoint behind, and a torn one is never taken for one."""

import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import checkpoint
from pipeline.errors import CheckpointError, DiskError


def saved(folder: Path, step: int) -> Path:
    return checkpoint.save(
        folder, step, {"weights/a": np.full(3, step, np.float32), "count": np.array(step)}, {"run_id": "r"}
    )


def test_the_newest_checkpoint_comes_back_as_it_was(tmp_path):
    """Names, values, types and details."""
    saved(tmp_path, 3)
    saved(tmp_path, 12)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert (found.step, found.details) == (12, {"run_id": "r"})
    assert list(found.arrays) == ["weights/a", "count"]
    assert found.arrays["weights/a"].dtype == np.float32
    assert np.array_equal(found.arrays["weights/a"], [12, 12, 12])


def test_two_checkpoints_are_kept(tmp_path):
    """One to go on from, one in case it is torn."""
    for step in (1, 2, 3, 4):
        saved(tmp_path, step)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_no_checkpoint_is_no_error(tmp_path):
    """A first run begins at the beginning."""
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", ["state.npz", "manifest.json"])
@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda p: p.write_bytes(p.read_bytes()[:-3]), lambda p: p.write_bytes(b"")]
)
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path, name, spoil):
    """Less is lost than everything."""
    saved(tmp_path, 1)
    spoil(saved(tmp_path, 2) / name)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 1


def test_every_flipped_bit_of_the_state_is_found(tmp_path):
    """A sha256 stands beside it."""
    path = saved(tmp_path, 1) / "state.npz"
    whole = path.read_bytes()

    for place in range(0, len(whole), 7):
        torn = bytearray(whole)
        torn[place] ^= 1
        path.write_bytes(torn)
        with pytest.raises(CheckpointError):
            checkpoint.latest(tmp_path)


def test_checkpoints_of_which_none_is_whole_are_an_error(tmp_path):
    """To begin again in silence would throw the run away."""
    for step in (1, 2):
        (saved(tmp_path, step) / "state.npz").unlink()

    with pytest.raises(CheckpointError, match="none is whole") as caught:
        checkpoint.latest(tmp_path)

    assert "--fresh" in str(caught.value)


def test_an_unfinished_save_is_not_seen(tmp_path):
    """It has another name until it is whole."""
    done = saved(tmp_path, 1)
    shutil.copytree(done, tmp_path / ".writing-abc")

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 1


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    """The exit code says disk, and the message what to do."""
    saved(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(DiskError) as caught:
            checkpoint.save(tmp_path, 2, {"big": np.zeros(10**6)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    found = checkpoint.latest(tmp_path)

    assert caught.value.exit_code == 8
    assert found is not None
    assert found.step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_setting_aside_deletes_nothing(tmp_path):
    """--fresh can be regretted."""
    for number in (1, 2):
        saved(tmp_path / "checkpoints", number)
        checkpoint.set_aside(tmp_path / "checkpoints")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints-set-aside-1", "checkpoints-set-aside-2"]

"""A session takes exactly what the session before it left, under every layout, or says what is
mounted in its place.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import CheckpointError
from pipeline.train import checkpoint

NEWEST = "checkpoints/step-00000040"


def left(folder: Path, run_id: str = "r1", step: int = 40, fold: str = "") -> Path:
    """Write the files of a session."""
    place = folder / fold
    checkpoint.save(place / "checkpoints", step, {"w": np.arange(5.0) + step}, {"run_id": run_id})
    (place / "history.csv").write_text("epoch,step\n1,40\n")
    (place / "progress.jsonl").write_text('{"step": 40, "steps": 120}\n')
    return folder


def expected(
    folder: Path, run_id: str = "r1", step: int = 40, newest: str = NEWEST
) -> dict[str, Any]:
    """Return the bundle's record of it."""
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {"run_id": run_id, "step": step, "checkpoint": newest, "files": files}


def flat(folder: Path, target: Path) -> None:
    """Copy it as a dataset, which has no folders."""
    target.mkdir(parents=True)
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder).as_posix().replace("/", "--")).write_bytes(
                path.read_bytes()
            )


def taken(expect: dict[str, Any], inputs: Path, output: Path) -> list[str]:
    shown: list[str] = []
    output.mkdir(exist_ok=True)
    checkpoint.restore(expect, inputs, output, show=shown.append)
    return shown


@pytest.mark.parametrize(
    ("place", "lay"),
    [
        ("notebooks/ann/digits-train-tpu", shutil.copytree),
        ("digits-train-tpu", shutil.copytree),
        ("datasets/ann/digits-checkpoint", flat),
        ("digits-checkpoint", flat),
    ],
)
def test_the_files_of_a_session_are_restored_from_every_layout(tmp_path, place, lay):
    """File by file, so that training finds one folder per fold."""
    folder, working = tmp_path / "left", tmp_path / "working"
    left(left(folder, step=120, fold="fold-1"), fold="fold-2")
    expect = expected(folder, newest=f"fold-2/{NEWEST}")
    lay(folder, tmp_path / "input" / place)

    told = taken(expect, tmp_path / "input", working)

    found = checkpoint.latest(working / "fold-2" / "checkpoints")
    assert found is not None and found.step == 40
    assert expected(working)["files"] == expect["files"]
    assert told == ["Resuming from step 40 of run r1. The checksums of 8 files were verified."]


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (lambda place: left(place, step=20), r"Expected step 40 of run r1(.|\n)*20/.*run r1"),
        (lambda place: left(place, run_id="r2"), r"step-0+40/.*run r2"),
        (Path.mkdir, r"has not mounted step 40(.|\n)*notebooks/ann/x/"),
        (lambda place: (left(place) / "history.csv").unlink(), r"read .*history\.csv"),
    ],
    ids=["an older output", "the same step of another run", "nothing", "a file is missing"],
)
def test_an_unexpected_mount_is_refused_by_name(tmp_path, mount, said):
    """It would lose a session. The message lists the mounted runs and the commands."""
    expect, place = expected(left(tmp_path / "left")), tmp_path / "input" / "notebooks/ann/x"
    place.parent.mkdir(parents=True)
    mount(place)

    with pytest.raises(CheckpointError, match=said) as refused:
        checkpoint.restore(expect, tmp_path / "input", tmp_path / "working")

    assert "--fresh" in str(refused.value) or "history" in said
    assert not (tmp_path / "working").exists()


def test_a_changed_file_is_refused_and_not_copied(tmp_path, flipped):
    """A single bit. If nothing is expected, a new run starts, whatever is mounted."""
    folder, working = left(tmp_path / "input" / "digits-train-tpu"), tmp_path / "working"
    expect = expected(folder)
    flipped(folder / NEWEST / "state.npz", 99)

    with pytest.raises(CheckpointError, match="the bundle expects"):
        checkpoint.restore(expect, tmp_path / "input", working)

    assert not (working / NEWEST / "state.npz").exists()
    checkpoint.restore({}, tmp_path / "input", tmp_path / "other", show=print)
    assert not (tmp_path / "other").exists()


def test_a_cell_that_runs_twice_restores_nothing(tmp_path):
    """The run has advanced by then."""
    expect = expected(left(tmp_path / "input" / "digits-train-tpu"))
    taken(expect, tmp_path / "input", tmp_path / "working")
    left(tmp_path / "working", step=80)

    taken(expect, tmp_path / "input", tmp_path / "working")

    found = checkpoint.latest(tmp_path / "working" / "checkpoints")
    assert found is not None and found.step == 80

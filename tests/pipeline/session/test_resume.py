"""A session takes exactly what the session before it left, under every layout, or says what is
mounted in its place.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import CheckpointError
from pipeline.runtime import mounts
from pipeline.session import checkpoint, resume

NEWEST = "checkpoints/step-00000040"


def left(folder: Path, run_id: str = "r1", step: int = 40, fold: str = "") -> Path:
    """Write what a session leaves."""
    place = folder / fold
    checkpoint.save(place / "checkpoints", step, {"w": np.arange(5.0) + step}, {"run_id": run_id})
    (place / "history.csv").write_text("epoch,step\n1,40\n")
    (place / "progress.jsonl").write_text('{"step": 40, "steps": 120}\n')
    return folder


def expected(
    folder: Path, run_id: str = "r1", step: int = 40, newest: str = NEWEST
) -> dict[str, Any]:
    """Return what the bundle carries of it."""
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {"run_id": run_id, "step": step, "checkpoint": newest, "files": files}


def flat(folder: Path, target: Path) -> None:
    """Lay it out as a dataset, which has no folders."""
    target.mkdir(parents=True)
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder).as_posix().replace("/", "--")).write_bytes(
                path.read_bytes()
            )


def taken(expect: dict[str, Any], inputs: Path, output: Path) -> list[str]:
    shown: list[str] = []
    output.mkdir(exist_ok=True)
    assert resume.restore(expect, inputs, output, show=shown.append)
    return shown


@pytest.mark.parametrize("place", ["notebooks/ann/digits-train-tpu", "digits-train-tpu"])
def test_the_output_of_an_earlier_version_is_taken_under_both_layouts(tmp_path, place):
    """File by file, so that training finds its folder as it left it."""
    expect = expected(left(tmp_path / "input" / place))

    told = taken(expect, tmp_path / "input", tmp_path / "working")

    found = checkpoint.latest(tmp_path / "working" / "checkpoints")
    assert (
        found is not None and found.step == 40 and (found.arrays["w"] == np.arange(5.0) + 40).all()
    )
    assert expected(tmp_path / "working")["files"] == expect["files"]
    assert told == ["Resuming from step 40 of run r1: 4 files, checksums verified."]


@pytest.mark.parametrize("place", ["datasets/ann/digits-checkpoint", "digits-checkpoint"])
def test_a_dataset_without_folders_is_taken_too(tmp_path, place):
    """Its names hold the paths."""
    expect = expected(left(tmp_path / "left"))
    flat(tmp_path / "left", tmp_path / "input" / place)

    taken(expect, tmp_path / "input", tmp_path / "working")

    assert expected(tmp_path / "working")["files"] == expect["files"]


def test_each_fold_gets_its_own_folder_back(tmp_path):
    """A run of several folds has several checkpoints."""
    folder = tmp_path / "input" / "notebooks" / "ann" / "digits-train-tpu"
    left(left(folder, step=120, fold="fold-1"), fold="fold-2")
    expect = expected(folder, newest=f"fold-2/{NEWEST}")

    taken(expect, tmp_path / "input", tmp_path / "working")

    assert expected(tmp_path / "working")["files"] == expect["files"]
    assert resume.progress(tmp_path / "working") == "fold-1 step 120 of 120, fold-2 step 40 of 120"


def test_where_nothing_is_expected_a_run_begins(tmp_path):
    """Whatever is mounted."""
    left(tmp_path / "input" / "digits-train-tpu")
    (tmp_path / "working").mkdir()

    assert not resume.restore({}, tmp_path / "input", tmp_path / "working", show=print)
    assert not list((tmp_path / "working").iterdir())


def test_an_older_output_is_named_and_refused(tmp_path):
    """Step 20 is mounted where step 40 is expected: plausible, and a session lost."""
    expect = expected(left(tmp_path / "left"))
    left(tmp_path / "input" / "notebooks" / "ann" / "digits-train-tpu", step=20)

    with pytest.raises(
        CheckpointError, match=r"Expected step 40 of run r1(.|\n)*step 20 of run r1"
    ):
        resume.restore(expect, tmp_path / "input", tmp_path / "working")


def test_the_same_step_of_another_run_is_refused(tmp_path):
    """The name of its folder is the same."""
    expect = expected(left(tmp_path / "left"))
    left(tmp_path / "input" / "digits-train-tpu", run_id="r2")

    with pytest.raises(CheckpointError, match="step 40 of run r2"):
        resume.restore(expect, tmp_path / "input", tmp_path / "working")


def test_nothing_mounted_is_told_with_what_is_there(tmp_path):
    """And both ways on."""
    expect = expected(left(tmp_path / "left"))
    (tmp_path / "input" / "competitions" / "digits").mkdir(parents=True)

    with pytest.raises(
        CheckpointError, match=r"has not mounted step 40(.|\n)*competitions/digits/(.|\n)*--fresh"
    ):
        resume.restore(expect, tmp_path / "input", tmp_path / "working")


@pytest.mark.parametrize("name", [f"{NEWEST}/state.npz", "history.csv"])
def test_a_file_that_was_changed_is_refused_and_not_taken(tmp_path, name):
    """By one bit, in the state or beside it."""
    folder = left(tmp_path / "input" / "digits-train-tpu")
    expect = expected(folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)

    with pytest.raises(CheckpointError, match="the bundle expects"):
        resume.restore(expect, tmp_path / "input", tmp_path / "working")

    assert not (tmp_path / "working" / name).exists()


def test_a_missing_file_is_named(tmp_path):
    """The checkpoint is there, and its history is not."""
    folder = left(tmp_path / "input" / "digits-train-tpu")
    expect = expected(folder)
    (folder / "history.csv").unlink()

    with pytest.raises(CheckpointError, match=r"lacks history\.csv"):
        mounts.previous(tmp_path / "input", expect)


def test_a_cell_that_is_run_twice_takes_nothing_back(tmp_path):
    """The run is further by then."""
    expect = expected(left(tmp_path / "input" / "digits-train-tpu"))
    taken(expect, tmp_path / "input", tmp_path / "working")
    left(tmp_path / "working", step=80)

    taken(expect, tmp_path / "input", tmp_path / "working")

    assert resume.progress(tmp_path / "working") == "step 80 of 120"


def test_the_end_of_a_partial_run_says_how_far_it_is_and_how_it_goes_on(tmp_path):
    """It has no artifact to tell of."""
    told = resume.summary("partial", None, left(tmp_path))

    assert "partial, step 40 of 120" in told and "invoke push-train --until-done" in told


def test_the_end_of_a_complete_run_tells_what_it_made(tmp_path):
    """What its manifest has of it."""
    assert json.loads(resume.summary("complete", {"run_id": "r1", "files": {}}, tmp_path)) == {
        "run_id": "r1"
    }


@pytest.mark.parametrize("name", ["../evil", "checkpoints/../../evil", "{top}/evil"])
def test_a_name_that_leads_out_of_the_working_folder_is_refused(tmp_path, name):
    """The file is there, with the right bytes, and is written nowhere else."""
    folder = left(tmp_path / "input" / "x")
    name = name.format(top=tmp_path)
    (tmp_path / "input" / "evil").write_text("evil")
    (tmp_path / "evil").write_text("evil")
    expect = expected(folder)
    expect["files"][name] = hashlib.sha256(b"evil").hexdigest()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(
        CheckpointError, match=r"(?s)evil'; expected names inside the working folder.*push-train"
    ):
        resume.restore(expect, tmp_path / "input", tmp_path / "working", show=lambda line: None)

    assert sorted(tmp_path.rglob("*")) == before

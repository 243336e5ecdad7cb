"""Inputs are found by a marker file, under every layout that Kaggle has, and never guessed."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.errors import ArtifactError, DataError
from pipeline.runtime import mounts

SAMPLE = "sample_submission.csv"


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


R1 = json.dumps({"run_id": "r1"})


@pytest.mark.parametrize(
    ("new", "name", "find"),
    [
        (
            "competitions/digits",
            SAMPLE,
            lambda root: mounts.competition(root, "digits", SAMPLE),
        ),
        (
            "datasets/keras/weights",
            "notop.h5",
            lambda root: (found := mounts.file(root, "keras/weights/notop.h5")) and found.parent,
        ),
        ("datasets/ann/r1", "manifest.json", lambda root: mounts.artifact(root, "r1")),
    ],
    ids=["competition", "file", "artifact"],
)
def test_what_is_mounted_is_found_under_each_layout_and_under_both_at_once(
    tmp_path, new, name, find
):
    """Kaggle moved its inputs; for a while a session may see them at both places, be it by a copy
    or by a link. Two of one name and other bytes are refused: nothing says which is the one.
    """
    flat = new.split("/")[-1]
    for place in (new, flat):
        folder = put(tmp_path / place / place / name, R1)
        assert find(tmp_path / place) == folder
    first = put(tmp_path / "both" / flat / name, R1)
    second = tmp_path / "both" / new
    second.parent.mkdir(parents=True)
    second.symlink_to(first)
    assert find(tmp_path / "both") == second
    second.unlink()
    shutil.copytree(first, second)
    assert find(tmp_path / "both") == second

    put(second / name, json.dumps({"run_id": "r1", "made": "elsewhere"}))
    with pytest.raises((DataError, ArtifactError), match=r"found 2|mounted twice"):
        find(tmp_path / "both")


def test_a_missing_competition_is_answered_with_what_is_there(tmp_path):
    """A listing saves a session that would only look around."""
    put(tmp_path / "competitions" / "other" / SAMPLE)

    with pytest.raises(DataError, match=r"competitions/other/sample_submission\.csv"):
        mounts.competition(tmp_path, "digits", SAMPLE)


@pytest.mark.parametrize("name", ["keras/weights/b1.h5", "keras/weights", "keras/../secret.h5"])
def test_a_file_that_no_dataset_has_is_nowhere(tmp_path, name):
    """And what leads out of the datasets is none of theirs."""
    put(tmp_path / "input" / "datasets" / "keras" / "weights" / "notop.h5")
    put(tmp_path / "secret.h5")

    assert mounts.file(tmp_path / "input", name) is None


def test_an_artifact_is_found_beside_others_and_an_older_one_is_named(tmp_path):
    """In a kernel's output, too. The old dataset version is plausible, and wrong. The folders of a
    competition are not searched: they can hold a hundred thousand images behind a network.
    """
    for place in ("competitions/digits/train", "competitions/digits", "digits/train/x"):
        put(tmp_path / place / "manifest.json", R1)
    for place, text in enumerate(("not JSON", "[]", "[" * 100_000, "3")):
        put(tmp_path / "datasets" / "ann" / f"other-{place}" / "manifest.json", text)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(b"\xff")
    put(tmp_path / "datasets" / "ann" / "digits-artifact" / "manifest.json", '{"run_id": "old"}')

    with pytest.raises(ArtifactError, match="run_id old"):
        mounts.artifact(tmp_path, "r1")
    folder = put(tmp_path / "notebooks/ann/digits-train-tpu/artifact" / "manifest.json", R1)
    assert mounts.artifact(tmp_path, "r1") == folder


def test_the_root_is_kaggle_s_own_unless_the_local_kaggle_says_otherwise(monkeypatch):
    """Only where it may make no folder at the root."""
    monkeypatch.delenv("LOCALKAGGLE_ROOT", raising=False)
    assert mounts.root() == Path("/kaggle")

    monkeypatch.setenv("LOCALKAGGLE_ROOT", "/somewhere")
    assert mounts.root() == Path("/somewhere")


def test_a_listing_of_many_files_is_short(tmp_path):
    """It is a message, and it must not take minutes to make."""
    for index in range(300):
        put(tmp_path / "competitions" / "digits" / "train" / f"{index:04d}.png")
    put(tmp_path / "datasets" / "ann" / "x" / "y.csv")

    told = mounts.listing(tmp_path)

    assert told.count(",") < 40
    assert "and more" in told
    assert "datasets/ann/x/" in told

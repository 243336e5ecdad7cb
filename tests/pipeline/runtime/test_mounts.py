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


@pytest.mark.parametrize("place", ["competitions/digits", "digits"])
def test_a_competition_is_found_under_both_layouts(tmp_path, place):
    """The one of 2026 and the flat one."""
    folder = put(tmp_path / place / SAMPLE)

    assert mounts.competition(tmp_path, "digits", SAMPLE) == folder


@pytest.fixture(params=["a copy", "a link"])
def both(request, tmp_path):
    """Return a function that mounts a folder of the flat layout a second time."""

    def mount(flat: Path, place: str) -> Path:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        if request.param == "a link":
            (tmp_path / place).symlink_to(flat)
        else:
            shutil.copytree(flat, tmp_path / place)
        return tmp_path / place

    return mount


def test_a_competition_under_both_layouts_at_once_is_one(tmp_path, both):
    """Kaggle moved its inputs; for a while a session may see them at both places."""
    folder = both(put(tmp_path / "digits" / SAMPLE, "id,label"), "competitions/digits")

    assert mounts.competition(tmp_path, "digits", SAMPLE) == folder


def test_two_competitions_of_one_name_are_refused(tmp_path):
    """One of them is not the one."""
    put(tmp_path / "digits" / SAMPLE, "id,label")
    put(tmp_path / "competitions" / "digits" / SAMPLE, "id,other")

    with pytest.raises(DataError, match="found 2"):
        mounts.competition(tmp_path, "digits", SAMPLE)


def test_a_missing_competition_is_answered_with_what_is_there(tmp_path):
    """A listing saves a session that would only look around."""
    put(tmp_path / "competitions" / "other" / SAMPLE)

    with pytest.raises(DataError, match=r"competitions/other/sample_submission\.csv"):
        mounts.competition(tmp_path, "digits", SAMPLE)


@pytest.mark.parametrize("place", ["datasets/keras/weights", "weights"])
def test_a_file_of_a_dataset_is_found_under_both_layouts(tmp_path, place):
    """By owner, slug and path."""
    put(tmp_path / place / "b0" / "notop.h5")

    assert (
        mounts.file(tmp_path, "keras/weights/b0/notop.h5") == tmp_path / place / "b0" / "notop.h5"
    )


@pytest.mark.parametrize(
    "name", ["keras/weights/b1.h5", "keras/weights", "notop.h5", "keras/../../secret.h5", ""]
)
def test_a_file_that_no_dataset_has_is_nowhere(tmp_path, name):
    """And what leads out of the datasets is none of theirs."""
    put(tmp_path / "input" / "datasets" / "keras" / "weights" / "notop.h5")
    put(tmp_path / "secret.h5")

    assert mounts.file(tmp_path / "input", name) is None


def test_a_file_under_both_layouts_at_once_is_one(tmp_path, both):
    """The one with its owner in the path."""
    folder = both(put(tmp_path / "weights" / "notop.h5", "arrays"), "datasets/keras/weights")

    assert mounts.file(tmp_path, "keras/weights/notop.h5") == folder / "notop.h5"


def test_two_files_of_one_name_are_refused(tmp_path):
    """One of them is not the one."""
    put(tmp_path / "datasets" / "keras" / "weights" / "notop.h5", "arrays")
    put(tmp_path / "weights" / "notop.h5", "others")

    with pytest.raises(DataError, match="mounted twice"):
        mounts.file(tmp_path, "keras/weights/notop.h5")


@pytest.mark.parametrize(
    "place",
    ["datasets/ann/digits-artifact", "digits-artifact", "notebooks/ann/digits-train-tpu/artifact"],
)
def test_an_artifact_is_found_wherever_it_is_mounted(tmp_path, place):
    """As a dataset, flat, or in a kernel's output."""
    folder = put(tmp_path / place / "manifest.json", json.dumps({"run_id": "r1"}))
    put(tmp_path / "datasets" / "ann" / "other" / "manifest.json", "not JSON")

    assert mounts.artifact(tmp_path, "r1") == folder


def test_an_older_artifact_is_named_and_refused(tmp_path):
    """The old dataset version is mounted: plausible, and wrong."""
    put(
        tmp_path / "datasets" / "ann" / "digits-artifact" / "manifest.json",
        json.dumps({"run_id": "old"}),
    )

    with pytest.raises(ArtifactError, match=r"run_id old"):
        mounts.artifact(tmp_path, "new")


def test_an_artifact_under_both_layouts_at_once_is_one(tmp_path, both):
    """Its manifest seals every other file, and is the same."""
    flat = put(tmp_path / "digits-artifact" / "manifest.json", json.dumps({"run_id": "r1"}))
    folder = both(flat, "datasets/ann/digits-artifact")

    assert mounts.artifact(tmp_path, "r1") == folder


def test_two_artifacts_of_one_run_are_refused(tmp_path):
    """Nothing says which one."""
    for name in ("a", "b"):
        put(tmp_path / name / "manifest.json", json.dumps({"run_id": "r1", "made": name}))

    with pytest.raises(ArtifactError, match="found 2"):
        mounts.artifact(tmp_path, "r1")


def test_the_root_is_kaggle_s_own_unless_the_local_kaggle_says_otherwise(monkeypatch):
    """Only where it may make no folder at the root."""
    monkeypatch.delenv("LOCALKAGGLE_ROOT", raising=False)
    assert mounts.root() == Path("/kaggle")

    monkeypatch.setenv("LOCALKAGGLE_ROOT", "/somewhere")
    assert mounts.root() == Path("/somewhere")


def test_the_folders_of_a_competition_are_not_searched_for_an_artifact(tmp_path):
    """They can hold a hundred thousand images behind a network, and nothing in them is ours."""
    for place in ("competitions/digits/train", "competitions/digits", "digits/train/x"):
        put(tmp_path / place / "manifest.json", json.dumps({"run_id": "r1"}))
    folder = put(
        tmp_path / "datasets" / "ann" / "digits-artifact" / "manifest.json",
        json.dumps({"run_id": "r1"}),
    )

    assert mounts.artifact(tmp_path, "r1") == folder


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "3", "\udcff"], ids=range(4))
def test_a_manifest_that_is_none_does_not_hide_the_artifact(tmp_path, text):
    """A dataset beside it may hold anything."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    folder = put(tmp_path / "digits-artifact" / "manifest.json", json.dumps({"run_id": "r1"}))

    assert mounts.artifact(tmp_path, "r1") == folder


def test_a_listing_of_many_files_is_short(tmp_path):
    """It is a message, and it must not take minutes to make."""
    for index in range(300):
        put(tmp_path / "competitions" / "digits" / "train" / f"{index:04d}.png")
    put(tmp_path / "datasets" / "ann" / "x" / "y.csv")

    told = mounts.listing(tmp_path)

    assert told.count(",") < 40
    assert "and more" in told
    assert "datasets/ann/x/" in told

"""From a submission back to the commit, from what lies on this machine."""

import json
import shutil
from pathlib import Path

import pytest

from deploy import origin
from deploy.errors import UsageError
from deploy.relay import Project

RUN_ID = "digits-20261121-090000-abcdef"


@pytest.fixture
def ours(root: Path) -> Project:
    """A project with a chain behind it: its folders as pulls leave them, its journal as the tasks do."""
    ours = Project(root, "digits", "digits", "dataset", root / "runs", root / "build")
    trained, inferred = ours.runs / "digits-train-tpu-v2", ours.runs / "digits-infer-gpu-v3"
    (trained / "artifact").mkdir(parents=True)
    inferred.mkdir()
    told = {"run_id": RUN_ID, "weights_sha256": "c" * 64, "devices": "8 x TPU v5 lite (tpu)"}
    (trained / "artifact" / "manifest.json").write_text(json.dumps(told))
    (trained / "bundle.json").write_text(json.dumps({"bundle_sha256": "a" * 64, "git_commit": "1" * 40}))
    expect = {"run_id": RUN_ID, "weights_sha256": "c" * 64}
    bundle = {"bundle_sha256": "b" * 64, "git_commit": "2" * 40, "git_dirty": True, "expect": expect}
    (inferred / "bundle.json").write_text(json.dumps(bundle))
    (inferred / "submission.csv").write_text("id,label\n1,2\n")
    journal = ours.journal()
    for table, intent, outcome in (
        (
            "pushes",
            {"kernel": "train-tpu", "handle": "ann/digits-train-tpu", "bundle_sha256": "a" * 64},
            {"version": 2},
        ),
        ("publishes", {"handle": "ann/digits-artifact", "run_id": RUN_ID}, {"version": 5}),
        (
            "pushes",
            {"kernel": "infer-gpu", "handle": "ann/digits-infer-gpu", "bundle_sha256": "b" * 64},
            {"version": 3},
        ),
        ("submissions", {"handle": "ann/digits-infer-gpu", "kernel_version": 3}, {"ref": 77, "score": 0.99}),
    ):
        with journal.recording(table, config="digits", **intent) as done:
            done.update(outcome)
    return ours


def traced(ours: Project, path: Path) -> dict[str, str]:
    return {link.what: link.value for link in origin.trace(ours, path)}


def test_every_link_from_the_score_to_the_commit_is_told(ours):
    """What did I run, in one command."""
    told = traced(ours, ours.runs / "digits-infer-gpu-v3" / "submission.csv")

    assert told == {
        "submission": told["submission"],
        "score": "0.99",
        "infer run": "ann/digits-infer-gpu/3",
        "infer bundle": "b" * 64,
        "infer commit": "2" * 40 + ", with local changes",
        "dataset version": "ann/digits-artifact/5",
        "artifact": f"{RUN_ID}, weights {'c' * 16}",
        "accelerator": "8 x TPU v5 lite (tpu)",
        "train run": "ann/digits-train-tpu/2",
        "train bundle": "a" * 64,
        "train commit": "1" * 40,
    }


def test_a_copy_of_a_submission_is_found_by_its_content(ours, tmp_path):
    """It may have been downloaded again, under another name."""
    copy = tmp_path / "best.csv"
    shutil.copy(ours.runs / "digits-infer-gpu-v3" / "submission.csv", copy)

    assert traced(ours, copy)["infer run"] == "ann/digits-infer-gpu/3"


def test_a_file_that_no_run_wrote_is_refused(ours, tmp_path):
    """One changed label makes it another file."""
    other = tmp_path / "other.csv"
    other.write_text("id,label\n1,3\n")

    with pytest.raises(UsageError, match="written by no run"):
        origin.trace(ours, other)
    with pytest.raises(UsageError, match="missing"):
        origin.trace(ours, tmp_path / "none.csv")


def test_what_is_not_known_here_is_said_to_be(ours):
    """The training may have been pulled on another machine."""
    shutil.rmtree(ours.runs / "digits-train-tpu-v2")
    (ours.runs / "journal.sqlite").unlink()

    told = traced(ours, ours.runs / "digits-infer-gpu-v3" / "submission.csv")

    assert (told["score"], told["infer run"], told["dataset version"]) == (origin.UNKNOWN,) * 3
    assert told["artifact"] == RUN_ID and "train run" not in told

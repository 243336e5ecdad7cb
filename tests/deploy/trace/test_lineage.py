"""From a submission back to the commit, from what lies on this machine."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from deploy.errors import Unverified, UsageError
from deploy.journal import Journal
from deploy.relay.relay import Project
from deploy.trace import lineage

RUN_ID = "digits-20261121-090000-abcdef"


def inferred(folder: Path, text: str = "id,label\n1,2\n", **note: str) -> Path:
    """Write what a pull of an inference leaves, and return its submission."""
    folder.mkdir(parents=True)
    expect = {"run_id": RUN_ID, "weights_sha256": "c" * 64}
    bundle = {
        "bundle_sha256": "b" * 64,
        "git_commit": "2" * 40,
        "git_dirty": True,
        "sealed": True,
        "expect": expect,
    }
    (folder / "bundle.json").write_text(json.dumps(bundle))
    (folder / "submission.csv").write_text(text)
    files = {
        "submission.csv": {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}
    }
    (folder / "outputs.json").write_text(json.dumps({"files": files}))
    if note:
        (folder / ".pulled.json").write_text(
            json.dumps({"at": "2026-11-21T09:00:00+00:00", **note})
        )
    return folder / "submission.csv"


@pytest.fixture
def ours(root: Path) -> Project:
    """A project with a chain behind it: its folders as pulls leave them, its journal as the tasks
    do.
    """
    ours = Project(root, "digits", "digits", "dataset", root / "runs", root / "build")
    trained = ours.runs / "digits-train-tpu-v2"
    (trained / "artifact").mkdir(parents=True)
    inferred(ours.runs / "digits-infer-gpu-v3")
    told = {"run_id": RUN_ID, "weights_sha256": "c" * 64, "devices": "8 x TPU v5 lite (tpu)"}
    (trained / "artifact" / "manifest.json").write_text(json.dumps(told))
    (trained / "bundle.json").write_text(
        json.dumps({"bundle_sha256": "a" * 64, "git_commit": "1" * 40})
    )
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
        (
            "submissions",
            {"handle": "ann/digits-infer-gpu", "kernel_version": 3},
            {"ref": 77, "score": 0.99},
        ),
    ):
        with journal.recording(table, config="digits", **intent) as done:
            done.update(outcome)
    return ours


def traced(ours: Project, path: Path) -> dict[str, str]:
    return {link.what: link.value for link in lineage.trace(ours, path)}


def test_every_link_from_the_score_to_the_commit_is_shown(ours):
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
        lineage.trace(ours, other)
    with pytest.raises(UsageError, match="missing"):
        lineage.trace(ours, tmp_path / "none.csv")


@pytest.mark.parametrize(("name", "said"), [("runs", "is a folder"), ("nothing.csv", "is missing")])
def test_what_is_no_file_is_named_as_what_it_is(ours, name, said):
    """A folder that is there was called missing."""
    with pytest.raises(UsageError, match=rf"{name} {said}; expected the path of a submission\.csv"):
        lineage.trace(ours, ours.root / name)


def test_what_is_not_known_here_is_said_to_be(ours):
    """The training may have been pulled on another machine."""
    shutil.rmtree(ours.runs / "digits-train-tpu-v2")
    (ours.runs / "journal.sqlite").unlink()

    told = traced(ours, ours.runs / "digits-infer-gpu-v3" / "submission.csv")

    assert (told["score"], told["infer run"], told["dataset version"]) == (lineage.UNKNOWN,) * 3
    assert told["artifact"] == RUN_ID and "train run" not in told


def test_an_edited_submission_in_a_pulled_folder_is_not_what_the_run_wrote(ours):
    """One label was edited, and the run's name and score were shown as the file's."""
    path = ours.runs / "digits-infer-gpu-v3" / "submission.csv"
    path.write_text("id,label\n1,3\n")

    with pytest.raises(
        Unverified, match=r"(?s)not what the run wrote.*invoke pull --run owner/digits-infer-gpu/3"
    ) as caught:
        lineage.trace(ours, path)

    assert caught.value.exit_code == 1


def test_a_pulled_submission_whose_list_is_gone_is_not_believed(ours):
    """The run made one; without it nothing tells what the run wrote."""
    folder = ours.runs / "digits-infer-gpu-v3"
    (folder / "outputs.json").unlink()

    with pytest.raises(Unverified, match=r"has no outputs\.json"):
        lineage.trace(ours, folder / "submission.csv")


def test_a_copy_is_found_though_the_pulled_file_was_edited_since(ours, tmp_path):
    """The list tells what the run wrote, not the file."""
    pulled, copy = ours.runs / "digits-infer-gpu-v3" / "submission.csv", tmp_path / "kept.csv"
    shutil.copy(pulled, copy)
    pulled.write_text("id,label\n1,3\n")
    edited = tmp_path / "edited.csv"
    shutil.copy(pulled, edited)

    assert traced(ours, copy)["infer run"] == "ann/digits-infer-gpu/3"
    with pytest.raises(UsageError, match="written by no run"):
        lineage.trace(ours, edited)


def test_a_file_is_its_own_folder_s_and_not_the_newest_push_s(ours):
    """The same bundle may be pushed again, and its second run scored otherwise."""
    journal = ours.journal()
    handle = "ann/digits-infer-gpu"
    with journal.recording(
        "pushes", config="digits", kernel="infer-gpu", handle=handle, bundle_sha256="b" * 64
    ) as done:
        done.update(version=4)
    with journal.recording("submissions", config="digits", handle=handle, kernel_version=4) as done:
        done.update(ref=78, score=0.11)
    other = inferred(ours.runs / "digits-infer-gpu-v4", "id,label\n1,9\n")

    first = traced(ours, ours.runs / "digits-infer-gpu-v3" / "submission.csv")

    assert (first["infer run"], first["score"]) == (f"{handle}/3", "0.99")
    assert (traced(ours, other)["infer run"], traced(ours, other)["score"]) == (
        f"{handle}/4",
        "0.11",
    )


def test_equal_files_of_two_runs_are_both_named(ours, tmp_path):
    """A copy cannot say which of them it is of."""
    inferred(ours.runs / "digits-infer-gpu-v4")
    copy = tmp_path / "best.csv"
    shutil.copy(ours.runs / "digits-infer-gpu-v3" / "submission.csv", copy)

    told = traced(ours, copy)

    assert (told["infer run"], told["also written by"]) == (
        "ann/digits-infer-gpu/3",
        "owner/digits-infer-gpu/4",
    )


def test_a_rehearsal_s_file_is_traced_by_the_rehearsal_s_own_journal(ours):
    """It has the same bundle and other versions, and its Kaggle is gone."""
    place = ours.runs / "dry-run-1"
    handle = "rehearsal/digits-infer-gpu"
    path = inferred(place / "digits-infer-gpu-v3", run=f"{handle}/3", server="127.0.0.1:4001")
    journal = Journal(place / "journal.sqlite", "127.0.0.1:4001")
    with journal.recording(
        "pushes", kernel="infer-gpu", handle=handle, bundle_sha256="b" * 64
    ) as done:
        done.update(version=3)
    with journal.recording("submissions", handle=handle, kernel_version=3) as done:
        done.update(ref=1, score=0.5)

    told = traced(ours, path)

    assert (told["infer run"], told["score"], told["dataset version"]) == (
        f"{handle}/3",
        "0.5",
        lineage.UNKNOWN,
    )


def test_a_file_of_another_kaggle_gets_no_score_of_this_one(ours):
    """The names of their runs are the same."""
    path = inferred(
        ours.runs / "digits-infer-gpu-v5", run="ann/digits-infer-gpu/3", server="127.0.0.1:4001"
    )

    told = traced(ours, path)

    assert (told["infer run"], told["score"]) == ("ann/digits-infer-gpu/3", lineage.UNKNOWN)


def test_a_command_that_submitted_nothing_hides_no_score(ours):
    """`submit` given again without quota left leaves a row of its own."""
    with ours.journal().recording("submissions", handle="ann/digits-infer-gpu", kernel_version=3):
        pass

    assert traced(ours, ours.runs / "digits-infer-gpu-v3" / "submission.csv")["score"] == "0.99"

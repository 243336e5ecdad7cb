"""The provenance of a submission, by the files on this machine."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy import lineage
from deploy.errors import Unverified, UsageError
from deploy.journal import PUBLISH, PUSH, SUBMIT, Journal, Request
from deploy.project import Project
from deploy.records import Records
from tests.deploy.small import recorded

RUN_ID = "digits-20261121-090000-abcdef"


REHEARSED, HANDLE = "127.0.0.1:4001", "ann/digits-infer-gpu"
WEIGHTS, BUNDLE = "c" * 64, "b" * 64


def write(folder: Path, **held: Any) -> None:
    """Write JSON files into a folder."""
    folder.mkdir(parents=True)
    for name, content in held.items():
        (folder / name).write_text(json.dumps(content))


def inferred(folder: Path, text: str = "id,label\n1,2\n", **note: str) -> Path:
    """Write what a pull of an inference leaves, and return its submission."""
    entry = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}
    bundle = {"bundle_sha256": BUNDLE, "git_commit": "2" * 40, "git_dirty": True, "sealed": True}
    bundle["expect"] = {"run_id": RUN_ID, "weights_sha256": WEIGHTS}
    write(folder, **{"bundle.json": bundle, "outputs.json": {"files": {"submission.csv": entry}}})
    if note:
        note["at"] = "2026-11-21T09:00:00+00:00"
        (folder / ".pulled.json").write_text(json.dumps(note))
    (folder / "submission.csv").write_text(text)
    return folder / "submission.csv"


def trained(folder: Path, weights: str, **bundle: str) -> None:
    """Write what a pull of a training leaves."""
    write(folder, **{"bundle.json": bundle})
    write(folder / "artifact", **{"manifest.json": {"run_id": RUN_ID, "weights_sha256": weights}})


def scored(journal: Journal, version: int, ref: int, score: float, handle: str = HANDLE) -> None:
    """Note an inference, and its submission."""
    pushed = Request(PUSH, "digits", handle, bundle_sha256=BUNDLE)
    submitted = Request(SUBMIT, "digits", handle, kernel_version=version)
    recorded(journal, pushed, version, status="COMPLETE")
    recorded(journal, submitted, ref, status="COMPLETE", score=score)


@pytest.fixture
def ours(root: Path) -> Records:
    """Return the records of a chain, with its folders as pulls leave them."""
    ours = Records(Project(root, "digits", "digits", "dataset", root / "runs", root / "build"))
    inferred(ours.project.runs / "digits-infer-gpu-v3")
    bundle = {"bundle_sha256": "a" * 64, "git_commit": "1" * 40}
    trained(ours.project.runs / "digits-train-tpu-v2", WEIGHTS, **bundle)
    train = Request(PUSH, "digits", "ann/digits-train-tpu", bundle_sha256="a" * 64)
    published = Request(PUBLISH, "digits", "ann/digits-artifact", run_id=RUN_ID)
    recorded(ours.journal, train, 2, status="COMPLETE")
    recorded(ours.journal, published, 5, status="READY")
    scored(ours.journal, 3, 77, 0.99)
    return ours


@pytest.fixture
def submission(ours: Records) -> Path:
    return ours.project.runs / "digits-infer-gpu-v3" / "submission.csv"


def traced(ours: Records, path: Path) -> dict[str, str]:
    return {link.what: link.value for link in lineage.trace(ours, path)}


def test_every_link_from_the_score_to_the_commit_is_shown(ours, submission):
    told = traced(ours, submission)

    assert told == {
        "submission": told["submission"],
        "score": "0.99",
        "infer run": f"{HANDLE}/3",
        "infer bundle": BUNDLE,
        "infer commit": "2" * 40 + ", with local changes",
        "dataset version": "ann/digits-artifact/5",
        "artifact": f"{RUN_ID}, weights {'c' * 16}",
        "train run": "ann/digits-train-tpu/2",
        "train bundle": "a" * 64,
        "train commit": "1" * 40,
    }


def test_a_copy_of_a_submission_is_found_by_its_content(ours, submission, tmp_path):
    """Even if the pulled file was edited since: the list has the original. A changed label makes a
    different file.
    """
    copy = Path(shutil.copy(submission, tmp_path / "best.csv"))
    submission.write_text("id,label\n1,3\n")

    assert traced(ours, copy)["infer run"] == f"{HANDLE}/3"
    copy.write_text("id,label\n1,3\n")
    for path, said in ((copy, "not written by any run"), (ours.project.runs, "runs is not a file")):
        with pytest.raises(UsageError, match=said):
            lineage.trace(ours, path)


def test_unknown_links_are_marked_as_unknown(ours, submission):
    """The training may have been pulled on another machine."""
    shutil.rmtree(ours.project.runs / "digits-train-tpu-v2")
    (ours.project.runs / "journal.sqlite").unlink()

    told = traced(ours, submission)

    unknown = [what for what, value in told.items() if value == lineage.UNKNOWN]
    assert unknown == ["score", "infer run", "dataset version"]
    assert told["artifact"] == RUN_ID and "train run" not in told


def test_an_edited_submission_in_a_pulled_folder_is_refused(ours, submission):
    """An edited file once got the run's score. Nor does a file count without its list."""
    submission.write_text("id,label\n1,3\n")
    with pytest.raises(Unverified, match=f"(?s)not the.*invoke pull --run owner/{HANDLE[4:]}/3"):
        lineage.trace(ours, submission)

    submission.with_name("outputs.json").unlink()
    with pytest.raises(Unverified, match=r"has no outputs\.json"):
        lineage.trace(ours, submission)


def test_a_training_is_found_by_its_weights_and_a_dataset_by_its_time(ours, submission):
    """A run id may be used again, and a later publish was not used."""
    trained(ours.project.runs / "digits-train-tpu-v1", "d" * 64)
    again = Request(PUBLISH, "digits", "ann/digits-artifact", run_id=RUN_ID)
    later = recorded(ours.journal, again, 6, status="READY")
    ours.journal.note(later, at="2126-01-01T00:00:00+00:00")

    told = traced(ours, submission)

    assert told["train run"] == "ann/digits-train-tpu/2"
    assert told["dataset version"] == "ann/digits-artifact/5"


def test_a_file_from_another_kaggle_gets_no_score_from_this_one(ours):
    """Their runs may have the same names. A rehearsal has its own journal next to it, and its
    Kaggle is gone.
    """
    place, handle = ours.project.runs / "dry-run-1", "rehearsal/digits-infer-gpu"
    rehearsed = inferred(place / "digits-infer-gpu-v3", run=f"{handle}/3", server=REHEARSED)
    scored(Journal(place / "journal.sqlite", REHEARSED), 3, 1, 0.5, handle)
    same = inferred(ours.project.runs / "digits-infer-gpu-v5", run=f"{HANDLE}/3", server=REHEARSED)

    for path, run, score in ((rehearsed, handle, "0.5"), (same, HANDLE, lineage.UNKNOWN)):
        told = traced(ours, path)
        assert (told["infer run"], told["score"]) == (f"{run}/3", score)
        assert told["dataset version"] == lineage.UNKNOWN

"""A pull downloads and verifies a run's whole output, or nothing."""

import hashlib
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import events, failures, output
from deploy.errors import BadAnswer, Denied, RunFailed, Unverified
from deploy.runs import Run
from formats import checksums

HANDLE = "ann/digits-train-tpu"
OURS = Run(HANDLE, 2, bundle_sha256="b1")
RUN = Run(HANDLE, 2)
LIST = "ListKernelSessionOutput"
STATE = "checkpoints/step-00000008/state.npz"


@pytest.fixture
def pull(kaggle, between, tmp_path, shown):
    """Return what pulls a complete run."""
    between.always("GetKernelSessionStatus", {"status": "COMPLETE"})

    def pull(run=OURS, into=""):
        steps = output.pull(kaggle, run, tmp_path / into)
        return events.completed(steps, lambda note: shown.append(note.text))

    return pull


def listing(between, files, log=""):
    listed = [
        {"fileName": name, "url": between.serve(name.strip("./"), data)}
        for name, data in files.items()
    ]
    return {"files": listed, "log": log}


def listed(files):
    return {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in files.items()
    }


def artifact(bundle_sha256="b1", weights=b"weights"):
    files = listed({"weights.npz": b"weights"})
    value = {"run_id": "r1", "bundle_sha256": bundle_sha256, "files": files}
    value["weights_sha256"] = files["weights.npz"]["sha256"]
    manifest = checksums.sealed(value)
    return {"artifact/manifest.json": manifest, "artifact/weights.npz": weights}


def changed(name, content):
    """Return what a run wrote, but for one file as Kaggle has it; None: Kaggle lacks it."""
    files = {"bundle.json": b'{"sealed": true}', "submission.csv": b"id,label", ".hidden": b"x"}
    files |= {**artifact(), STATE: b"{}"}
    files["outputs.json"] = json.dumps({"files": listed(files)}).encode()
    files |= {"__notebook__.ipynb": b'{"cells": []}', name: content}
    return {name: data for name, data in files.items() if data is not None}


def test_a_pull_brings_every_file_in_one_rename(pull, between, tmp_path):
    """No temporary folder is left. The log becomes text, even if its pieces end inside a character.
    The note names the run and its Kaggle, since runs of two rehearsals may have the same name.
    """
    log = '[{"data": "a\\ud83d"}, {"data": "\\ude00b\\n\\ud83d"}]'
    between.say(LIST, [listing(between, {**artifact(), "a/b.png": b"p"}, log)])

    folder = pull()

    assert folder == tmp_path / "digits-train-tpu-v2" and list(tmp_path.iterdir()) == [folder]
    assert (folder / "a" / "b.png").read_bytes() == b"p"
    assert "a😀b" in (folder / "digits-train-tpu.log").read_text()
    note = output.noted(folder)
    assert (note.run, note.server) == (f"{HANDLE}/2", between.address.removeprefix("http://"))


def test_a_pull_waits_until_the_output_is_listed(kaggle, pull, between, shown):
    """Kaggle may list the output late."""
    kaggle.pace = replace(kaggle.pace, listed=60)
    between.say(LIST, [{}, {}, listing(between, artifact())])

    assert output.manifest(pull() / "artifact").run_id == "r1"
    assert sum("not list any output of" in line for line in shown) == 1


def test_a_failed_run_without_output_is_reported_with_its_error(pull, between, tmp_path):
    """An empty folder and exit code 0 once looked like a success."""
    between.say("GetKernelSessionStatus", [{"status": "ERROR", "failureMessage": "Out of memory"}])
    log = json.dumps([{"data": "ValueError: the batch\n"}])
    between.always(LIST, {"files": [], "log": log})

    with pytest.raises(RunFailed, match=r"(?s)Out of memory.*ValueError: the batch.*nothing was p"):
        pull(into="runs")

    assert not list(tmp_path.iterdir())


def test_a_run_of_another_account_is_reported_with_both_accounts(pull, between):
    """Several accounts may use one machine and journal."""
    between.say("GetKernelSessionStatus", [(403, {"code": 403, "message": "Permission denied"})])

    with pytest.raises(Denied, match="logged in as ann, but the run belongs to bob"):
        pull(Run("bob/digits-train-tpu", 3))


def test_an_equal_folder_is_kept_and_another_is_set_aside_whole(pull, between, tmp_path, shown):
    """Outputs of two runs were once mixed by a newer file that was kept."""
    between.always(LIST, listing(between, artifact()))
    folder = pull()
    assert pull() == folder and list(tmp_path.iterdir()) == [folder]

    for content in (b"newer and longer than what Kaggle has", b"newest"):
        (folder / "artifact" / "weights.npz").write_bytes(content)
        assert pull() == folder

        assert (folder / "artifact" / "weights.npz").read_bytes() == b"weights"
        (name,) = re.findall(rf"renamed to ({folder.name}-aside-\d)", shown[-1])
        assert (tmp_path / name / "artifact" / "weights.npz").read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 3


def begun(kaggle, between, into):
    """Return a pull that has downloaded all that there is, and waits."""
    between.always(LIST, listing(between, changed(".hidden", None)))
    steps = output.pull(kaggle, RUN, into)
    assert "differ from the files that the run wrote (.hidden)" in next(steps).text
    return steps


def test_ctrl_c_keeps_the_files_for_the_next_pull(kaggle, pull, between, tmp_path, shown):
    """Except files from a different run."""
    first = begun(kaggle, between, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.throw(KeyboardInterrupt())
    left = tmp_path / ".pull.digits-train-tpu" / "of another run" / "x"
    left.parent.mkdir()
    left.touch()

    folder = pull(RUN)

    assert "resuming an interrupted pull" in shown[0]
    assert list(tmp_path.iterdir()) == [folder] and not (folder / left.parent.name).exists()


@pytest.mark.parametrize(
    ("files", "kind", "said"),
    [
        ({}, Unverified, "not list any output"),  # a notebook always leaves itself
        # Nothing says what it is.
        ({"artifact/weights.npz": b"weights"}, Unverified, r"manifest\.json cannot be read"),
        # Old or cut weights predict, too.
        (artifact(weights=b"wEights"), Unverified, "weights.npz has changed"),
        (artifact(bundle_sha256="b2"), Unverified, "from a different run"),
        # All names are judged before the first byte. A run could otherwise say where it came from.
        ({output.NOTE: b"{}"}, BadAnswer, "Rename the file"),
        # A page in place of a file, a file that the listing forgot.
        (
            changed("submission.csv", b"<html>"),
            Unverified,
            "submission.csv of .* is missing or differs",
        ),
        (changed("outputs.json", None), Unverified, "has no outputs.json"),
        (
            changed(STATE, b"[]"),
            Unverified,
            "step-00000008/state.npz of .* differs from",
        ),
    ],
)
def test_files_that_the_run_did_not_write_are_not_kept(pull, between, tmp_path, files, kind, said):
    between.always(LIST, listing(between, files))

    with pytest.raises(kind, match=said):
        pull(into="into")

    assert set(tmp_path.rglob("*")) <= {tmp_path / "into"}


@given(st.text())
def test_a_log_cannot_control_the_terminal(text):
    """A log comes from the network. Of the control characters, only newlines and tabs are kept."""
    kept = set(failures.plain(text)) - {"\n", "\t"}

    assert not any(each < " " or "\x7f" <= each <= "\x9f" for each in kept)

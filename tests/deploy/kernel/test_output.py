"""A pull brings all that a run wrote, verified, or nothing; names from the server are judged."""

import hashlib
import io
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import events, failures, output, records, saved
from deploy import pull as pulling
from deploy.errors import BadAnswer, RunFailed, Unverified, UsageError
from deploy.runs import Run
from formats import checksums

HANDLE = "ann/digits-train-tpu"
OURS = Run(HANDLE, 2, bundle_sha256="b1")
RUN = Run(HANDLE, 2)
LIST, DEEP = "ListKernelSessionOutput", b"[" * 100_000
STATE = "checkpoints/step-00000008/state.npz"
ENDLESS = b'{"files": {"x": {"sha256": "0", "size": 1e400}}}'
SEALED = {"bundle.json": b'{"sealed": true}'}


@pytest.fixture
def pull(kaggle, between, tmp_path, shown):
    """Return what pulls a complete run."""
    between.always("GetKernelSessionStatus", {"status": "COMPLETE"})

    def pull(run=OURS, into=""):
        steps = pulling.pull(kaggle, run, tmp_path / into)
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


def sealed(files):
    """Add outputs.json, as the last cell of a notebook writes it."""
    return {**files, "outputs.json": json.dumps({"files": listed(files)}).encode()}


def artifact(bundle_sha256="b1", weights=b"weights"):
    files = listed({"weights.npz": b"weights"})
    value = {"run_id": "r1", "bundle_sha256": bundle_sha256, "files": files}
    value["weights_sha256"] = files["weights.npz"]["sha256"]
    manifest = checksums.sealed(value)
    return {"artifact/manifest.json": manifest, "artifact/weights.npz": weights}


def test_a_pull_brings_every_file_in_one_rename(pull, between, tmp_path):
    """No temporary folder stays; the log comes along as text, whose pieces may hold half of a
    character; the other half may be missing. The note names the run and the Kaggle that it came
    from: version 1 of a rehearsal and version 1 of another have one name.
    """
    log = '[{"data": "a\\ud83d"}, {"data": "\\ude00b\\n\\ud83d"}]'
    between.say(LIST, [listing(between, {**artifact(), "a/b.png": b"p"}, log)])

    folder = pull()

    assert folder == tmp_path / "digits-train-tpu-v2" and list(tmp_path.iterdir()) == [folder]
    assert (folder / "a" / "b.png").read_bytes() == b"p"
    assert "a😀b" in (folder / "digits-train-tpu.log").read_text()
    note = output.noted(folder)
    assert (note.run, note.server) == (f"{HANDLE}/2", between.address.removeprefix("http://"))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (json.dumps([{"data": "ValueError: the batch\n"}]), "ValueError: the batch.*nothing was p"),
        ("", r"The end of its log:\n  \| \(it is empty\)\n"),  # of one that could not be started
    ],
)
def test_a_failed_run_that_left_nothing_is_told_with_its_own_error(
    pull, between, tmp_path, log, said
):
    """An empty folder and exit code 0 once looked like a success."""
    between.say("GetKernelSessionStatus", [{"status": "ERROR", "failureMessage": "Out of memory"}])
    between.always(LIST, {"files": [], "log": log})

    with pytest.raises(RunFailed, match=rf"(?s)Out of memory.*{said}") as caught:
        pull(into="runs")

    assert caught.value.exit_code == 1 and not list(tmp_path.iterdir())


def test_an_equal_folder_is_kept_and_another_is_set_aside_whole(pull, between, tmp_path, shown):
    """Outputs of two runs were once mixed by a newer file that was kept; and "pull again" must
    help.
    """
    between.always(LIST, listing(between, artifact()))
    folder = pull()
    assert pull() == folder and list(tmp_path.iterdir()) == [folder]
    note = json.loads((folder / output.NOTE).read_text())

    (folder / "artifact" / "weights.npz").write_bytes(b"newer and longer than what Kaggle has")
    assert pull() == folder
    (folder / output.NOTE).write_text(json.dumps({**note, "server": "127.0.0.1:1"}))
    assert pull() == folder

    first, second = (tmp_path / f"{folder.name}-aside-{number}" for number in (1, 2))
    assert (folder / "artifact" / "weights.npz").read_bytes() == b"weights"
    assert (first / "artifact" / "weights.npz").read_bytes().startswith(b"newer")
    assert output.noted(second).server == "127.0.0.1:1" and second.name in shown[-1]
    assert len(list(tmp_path.iterdir())) == 3


def test_what_a_killed_pull_left_is_removed_by_the_next(pull, between, tmp_path):
    """What is of no file that the next one downloads may be of another run."""
    left = tmp_path / ".pull.digits-train-tpu"
    (left / "artifact").mkdir(parents=True)
    (left / "artifact" / "weights.npz").write_bytes(b"of another run")
    between.say(LIST, [listing(between, {"a.txt": b"a"})])

    folder = pull(RUN)

    assert list(tmp_path.iterdir()) == [folder] and not (folder / "artifact").exists()


def begun(kaggle, between, into):
    """Return a pull that has downloaded all that there is, and waits."""
    between.always(LIST, listing(between, changed(".hidden", None)))
    steps = pulling.pull(kaggle, RUN, into)
    assert "does not have all files as the run wrote them (.hidden)" in next(steps).text
    return steps


def test_a_pull_that_lives_is_not_taken_for_a_killed_one(kaggle, pull, between, tmp_path):
    """Two terminals pull the same run: while the one downloads, the other begins and ends."""
    first = begun(kaggle, between, tmp_path)

    folder = pull(RUN)

    assert events.completed(first, print) == folder and list(tmp_path.iterdir()) == [folder]


def test_ctrl_c_keeps_what_came_for_the_next_pull(kaggle, pull, between, tmp_path, shown):
    first = begun(kaggle, between, tmp_path)

    with pytest.raises(KeyboardInterrupt):
        first.throw(KeyboardInterrupt())
    second = pulling.pull(kaggle, RUN, tmp_path)
    assert "going on with a pull that was interrupted" in next(second).text
    second.close()  # nobody hears of its end
    folder = pull(RUN)

    assert "going on with a pull that was interrupted" in shown[0]
    assert list(tmp_path.iterdir()) == [folder]


def changed(name, content):
    """Return what a run wrote, but for one file as Kaggle has it; None: Kaggle lacks it."""
    files = {**SEALED, "submission.csv": b"id,label", ".hidden": b"x", "history.csv": b"1\n"}
    files = sealed({**files, **artifact(), STATE: b"{}"})
    files |= {"__notebook__.ipynb": b'{"cells": []}', name: content}
    return {name: data for name, data in files.items() if data is not None}


@pytest.mark.parametrize(
    ("files", "kind", "said"),
    [
        ({}, Unverified, "no output"),  # a notebook always leaves itself
        # Nothing says what it is.
        ({"artifact/weights.npz": b"weights"}, Unverified, r"manifest\.json cannot be read"),
        # Old or cut weights predict, too.
        (artifact(weights=b"wEights"), Unverified, "sha256"),
        (artifact(bundle_sha256="b2"), Unverified, "another run's"),
        # All names are judged before the first byte. A run could otherwise say where it came from.
        ({output.NOTE: b"{}"}, BadAnswer, "Rename it"),
        ({"good": b"x", "../evil": b"x"}, BadAnswer, "plain name"),
        ({"a": b"x", "a/b": b"x"}, BadAnswer, "'a' as a file and as a folder"),
        # A page in place of a file, a file that the listing forgot.
        (changed("submission.csv", None), Unverified, "submission.csv of .* is missing, or"),
        (
            changed("submission.csv", b"<html>"),
            Unverified,
            "submission.csv of .* is missing, or not",
        ),
        (changed("outputs.json", None), Unverified, "has no outputs.json"),
        (changed("outputs.json", DEEP), Unverified, "cannot be read"),
        (changed("outputs.json", ENDLESS), Unverified, "cannot be read"),
        (changed(STATE, b"[]"), Unverified, "step-00000008/state.npz of .* not what the run"),
    ],
)
def test_what_is_not_what_the_run_wrote_is_not_kept(pull, between, tmp_path, files, kind, said):
    between.always(LIST, listing(between, files))

    with pytest.raises(kind, match=said):
        pull(into="into")

    assert set(tmp_path.rglob("*")) <= {tmp_path / "into"}


@pytest.mark.parametrize(
    ("name", "content"),
    [(".hidden", None), ("history.csv", b"1\r\n")],
)
def test_a_run_is_not_lost_by_a_file_that_no_step_needs(pull, between, shown, name, content):
    """Nobody has seen whether Kaggle lists every file, and serves it as it was written."""
    between.always(LIST, listing(between, changed(name, content)))

    folder = pull()

    assert saved.manifest(folder / "artifact").run_id == "r1"
    assert len(shown) == 1 and f"does not have all files as the run wrote them ({name})" in shown[0]


def test_a_file_that_a_list_forgot_is_fetched_by_the_next(pull, between, shown):
    """A list may be behind, and bytes may change on the way."""
    whole, early = changed("a.png", b"a"), changed("history.csv", None)
    between.say(LIST, [listing(between, early), listing(between, whole)])

    assert (pull() / "history.csv").read_bytes() == b"1\n" and shown == []


def test_a_file_that_comes_as_an_archive_is_unpacked(pull, between):
    """Kaggle compresses as it likes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.csv", b"id\n" * 1000)
    url = between.serve("x.csv.zip", buffer.getvalue())
    between.say(LIST, [{"files": [{"fileName": "x.csv", "url": url}]}])

    assert (pull(RUN) / "x.csv").read_bytes() == b"id\n" * 1000


TRICKS = ["../x", "/etc/passwd", "a\\..\\x", "C:/x", "", "a//b", "x\n", "a/.", "\x1b[m"]
PLAIN = ["submission.csv", "artifact/weights.npz", "a b.png", "größe.csv", ".hidden/x"]


def test_known_tricks_are_refused_and_plain_names_pass():
    """Names that have escaped somewhere, and what notebooks really write."""
    for name in TRICKS:
        with pytest.raises(BadAnswer):
            output.safe(name)
    assert [str(output.safe(name)) for name in PLAIN] == PLAIN


@pytest.mark.parametrize("text", ["ann/x", "ann/x/0", "ann/x/v", "ann/x/1/2", "../x/1"])
def test_a_run_is_named_by_owner_slug_and_version(text):
    """Without a version Kaggle answers for the latest, whoever made it."""
    with pytest.raises(UsageError, match="owner/slug/version"):
        records.parse(text)


@given(st.text())
def test_what_is_shown_cannot_steer_the_terminal(text):
    """A log comes from the network; only newlines and tabs are kept of what is not printable ASCII
    control.
    """
    shown = failures.plain(text)

    kept = set(shown) - {"\n", "\t"}
    assert not any(each < " " or "\x7f" <= each <= "\x9f" for each in kept)

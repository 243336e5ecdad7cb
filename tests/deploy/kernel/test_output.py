"""A pull brings all that a run wrote, verified, or nothing."""

import hashlib
import io
import json
import zipfile

import pytest

from deploy.errors import BadAnswer, DeadlinePassed, Expired, RunFailed, Unverified
from deploy.kernel import artifact_manifest, output, push_and_watch

HANDLE = "ann/digits-train-tpu"


@pytest.fixture(autouse=True)
def complete(between):
    between.always("GetKernelSessionStatus", {"status": "COMPLETE"})


def listing(between, files: dict[str, bytes], log: str = "") -> dict[str, object]:
    return {
        "files": [
            {"fileName": name, "url": between.serve(name.strip("./"), data)}
            for name, data in files.items()
        ],
        "log": log,
    }


def artifact(bundle_sha256: str = "b1", weights: bytes = b"weights") -> dict[str, bytes]:
    digest = hashlib.sha256(b"weights").hexdigest()
    files = {"weights.npz": {"sha256": digest, "size": 7}}
    value = {
        "run_id": "r1",
        "weights_sha256": digest,
        "bundle_sha256": bundle_sha256,
        "files": files,
    }
    return {
        "artifact/manifest.json": artifact_manifest.sealed(value),
        "artifact/weights.npz": weights,
    }


OURS = push_and_watch.Run(HANDLE, 2, "", "b1")
RUN = push_and_watch.Run(HANDLE, 2, "", "")


def test_a_pull_brings_every_file_in_one_rename(kaggle, between, tmp_path):
    """No temporary folder stays; the log comes along as text."""
    log = json.dumps([{"data": "hello\n"}])
    between.say("ListKernelSessionOutput", [listing(between, {**artifact(), "a/b.png": b"p"}, log)])

    folder = output.pull(kaggle, OURS, tmp_path)

    assert folder == tmp_path / "digits-train-tpu-v2" and list(tmp_path.iterdir()) == [folder]
    assert (folder / "a" / "b.png").read_bytes() == b"p"
    assert (folder / "digits-train-tpu.log").read_text() == "hello\n"


def test_a_run_that_goes_on_is_not_pulled(kaggle, between, tmp_path):
    """What it has written until now would look like all of it."""
    between.say("GetKernelSessionStatus", [{"status": "RUNNING"}])

    with pytest.raises(DeadlinePassed, match="invoke watch --run ann/digits-train-tpu/2") as caught:
        output.pull(kaggle, OURS, tmp_path)

    assert caught.value.exit_code == 5 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["ERROR", "CANCEL_ACKNOWLEDGED"])
def test_a_failed_run_that_left_nothing_is_told_with_its_own_error(kaggle, between, tmp_path, word):
    """An empty folder and exit code 0 once looked like a success."""
    between.say(
        "GetKernelSessionStatus",
        [{"status": word, "failureMessage": "Your notebook ran out of memory"}],
    )
    log = json.dumps([{"data": "ValueError: the batch does not fit\n"}])
    between.always("ListKernelSessionOutput", {"files": [], "log": log})

    with pytest.raises(
        RunFailed, match=r"(?s)ran out of memory.*the batch does not fit.*nothing was pulled"
    ) as caught:
        output.pull(kaggle, OURS, tmp_path / "runs")

    assert caught.value.exit_code == 1 and not list(tmp_path.iterdir())


def test_a_failed_run_without_a_log_says_that_there_is_none(kaggle, between, tmp_path):
    """Kaggle keeps none of a session that it could not start."""
    between.say("GetKernelSessionStatus", [{"status": "ERROR", "failureMessage": "Unknown error"}])
    between.always("ListKernelSessionOutput", {"files": [], "log": ""})

    with pytest.raises(
        RunFailed, match=r"Unknown error\nThe end of its log:\n  \| \(it is empty\)\n"
    ):
        output.pull(kaggle, OURS, tmp_path / "runs")


def test_a_complete_run_without_output_is_not_believed(kaggle, between, tmp_path):
    """A notebook always leaves itself."""
    between.say("ListKernelSessionOutput", [{"files": []}])

    with pytest.raises(Unverified, match="no output"):
        output.pull(kaggle, OURS, tmp_path)

    assert not list(tmp_path.iterdir())


def test_an_artifact_without_a_manifest_is_not_kept(kaggle, between, tmp_path):
    """Nothing says what it is."""
    between.say("ListKernelSessionOutput", [listing(between, {"artifact/weights.npz": b"weights"})])

    with pytest.raises(Unverified, match=r"manifest\.json"):
        output.pull(kaggle, OURS, tmp_path)

    assert not list(tmp_path.iterdir())


def test_a_log_that_is_cut_inside_a_character_can_be_written(kaggle, between, tmp_path):
    """A piece may hold half of one; the other half may be missing."""
    log = '[{"data": "a\\ud83d"}, {"data": "\\ude00b\\n\\ud83d"}]'
    between.say("ListKernelSessionOutput", [listing(between, {"x": b"x"}, log)])

    assert "a😀b" in (output.pull(kaggle, OURS, tmp_path) / "digits-train-tpu.log").read_text()


def test_an_equal_folder_is_kept_and_another_is_set_aside_whole(kaggle, between, tmp_path, shown):
    """Outputs of two runs were once mixed by a newer file that was kept; and "pull again" must
    help.
    """
    between.always("ListKernelSessionOutput", listing(between, artifact()))
    folder = output.pull(kaggle, OURS, tmp_path)
    assert output.pull(kaggle, OURS, tmp_path) == folder

    for number in (1, 2):
        (folder / "artifact" / "weights.npz").write_bytes(b"newer and longer than what Kaggle has")
        assert output.pull(kaggle, OURS, tmp_path, show=shown.append) == folder

        aside = tmp_path / f"digits-train-tpu-v2-aside-{number}"
        assert (folder / "artifact" / "weights.npz").read_bytes() == b"weights"
        assert (aside / "artifact" / "weights.npz").read_bytes().startswith(b"newer")
        assert aside.name in shown[-1]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_pull_notes_the_run_and_the_kaggle_that_it_came_from(kaggle, between, tmp_path):
    """Version 1 of a rehearsal and version 1 of another have one name."""
    between.always("ListKernelSessionOutput", listing(between, artifact()))
    folder = output.pull(kaggle, OURS, tmp_path)

    note = output.noted(folder)
    assert note is not None
    assert (note.run, note.server) == (f"{HANDLE}/2", between.address.removeprefix("http://"))

    content = json.loads((folder / output.NOTE).read_text())
    (folder / output.NOTE).write_text(json.dumps({**content, "server": "127.0.0.1:1"}))
    assert output.pull(kaggle, OURS, tmp_path) == folder
    aside = output.noted(tmp_path / "digits-train-tpu-v2-aside-1")
    assert aside is not None and aside.server == "127.0.0.1:1"


def test_a_folder_without_a_note_is_kept_where_it_is_equal(kaggle, between, tmp_path):
    """It was pulled by an older version of this project."""
    between.always("ListKernelSessionOutput", listing(between, artifact()))
    folder = output.pull(kaggle, OURS, tmp_path)
    (folder / output.NOTE).unlink()

    assert output.pull(kaggle, OURS, tmp_path) == folder
    assert output.noted(folder) is not None and list(tmp_path.iterdir()) == [folder]


def test_what_a_killed_pull_left_is_removed_by_the_next(kaggle, between, tmp_path):
    """That of this notebook, and of no newer version: the rest may be hours of another download.
    What a living pull holds, and what no pull made, stays.
    """
    into, left = (
        tmp_path / "runs",
        (".digits-train-tpu-v2-abcdefgh", ".digits-train-tpu-v1-k3_x09ab"),
    )
    stays = (
        ".digits-train-tpu-v2-living00",
        ".digits-train-tpu-v2-aside-1",
        ".digits-train-tpu-v2",
        "digits-train-tpu-v2-abcdefgh",
        ".git",
    )
    stays += (".digits-infer-gpu-v1-k3_x09ab", ".digits-train-tpu-v13-k3_x09ab")
    for name in (*left, *stays):
        (into / name / "artifact").mkdir(parents=True)
    (into / ".digits-train-tpu-v2-abcdefg2").symlink_to(tmp_path)
    between.say("ListKernelSessionOutput", [listing(between, {"a.txt": b"a"})])

    with output.locked(into / stays[0], wait=False) as held:
        assert held
        folder = output.pull(kaggle, RUN, into)

    assert sorted(path.name for path in into.iterdir()) == sorted(
        [*stays, ".digits-train-tpu-v2-abcdefg2", folder.name]
    )


def test_a_pull_that_lives_is_not_taken_for_a_killed_one(kaggle, between, tmp_path):
    """Two terminals pull the same run: while the one downloads, the other begins and ends."""
    into = tmp_path / "runs"
    between.say("ListKernelSessionOutput", [listing(between, {"a.txt": b"a"})])

    with output._fresh(into / output.folder_name(RUN), print) as fresh:
        folder = output.pull(kaggle, RUN, into)
        assert fresh.is_dir()

    assert list(into.iterdir()) == [folder]


def test_a_file_named_like_our_note_is_refused(kaggle, between, tmp_path):
    """A run could otherwise say where it came from."""
    between.say("ListKernelSessionOutput", [listing(between, {output.NOTE: b"{}"})])

    with pytest.raises(BadAnswer, match="Rename it"):
        output.pull(kaggle, RUN, tmp_path)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (artifact(weights=b"wEights"), "sha256"),
        (artifact(weights=b""), "0 bytes"),
        (artifact(bundle_sha256="b2"), "another run's"),
    ],
)
def test_an_artifact_that_is_not_what_it_says_is_not_kept(kaggle, between, tmp_path, files, said):
    """Old or cut weights predict, too."""
    between.say("ListKernelSessionOutput", [listing(between, files)])

    with pytest.raises(Unverified, match=said):
        output.pull(kaggle, OURS, tmp_path)

    assert not list(tmp_path.iterdir())


def test_a_name_that_climbs_writes_nothing(kaggle, between, tmp_path):
    """All names are judged before the first byte."""
    between.say("ListKernelSessionOutput", [listing(between, {"good": b"x", "../evil": b"x"})])

    with pytest.raises(BadAnswer, match="plain name"):
        output.pull(kaggle, OURS, tmp_path / "into")

    assert not list(tmp_path.iterdir())


def test_a_name_that_is_a_file_and_a_folder_writes_nothing(kaggle, between, tmp_path):
    """No disk can hold both."""
    between.say("ListKernelSessionOutput", [listing(between, {"a": b"x", "a/b": b"x"})])

    with pytest.raises(BadAnswer, match="as a file and as a folder"):
        output.pull(kaggle, OURS, tmp_path / "into")

    assert not list(tmp_path.iterdir())


def test_a_signed_address_that_expired_is_asked_for_again(kaggle, between, tmp_path):
    """A large pull takes longer than the addresses live."""
    between.always("ListKernelSessionOutput", listing(between, {"x": b"x"}))
    between.say("between", [(403, {"code": 403, "message": "expired"})])

    assert (output.pull(kaggle, OURS, tmp_path) / "x").read_bytes() == b"x"


def test_an_address_that_expires_twice_says_so_and_keeps_nothing(kaggle, between, tmp_path):
    """The message once blamed an owner; the exit code is 6, and the same command helps."""
    between.always("ListKernelSessionOutput", listing(between, {"x": b"x", "y": b"y"}))
    between.always("between", (403, b"<Error><Code>ExpiredToken</Code></Error>"))

    with pytest.raises(
        Expired, match=r"(?s)refused the signed address.*403.*Run the same command again"
    ) as caught:
        output.pull(kaggle, OURS, tmp_path)

    assert caught.value.exit_code == 6 and "somebody else" not in str(caught.value)
    assert between.count("between") == 2 and not list(tmp_path.iterdir())


def test_an_address_that_leaves_this_machine_unencrypted_is_refused(kaggle, between, tmp_path):
    """The cloud's metadata address is a favourite."""
    between.say(
        "ListKernelSessionOutput",
        [{"files": [{"fileName": "x", "url": "http://169.254.169.254/x"}]}],
    )

    with pytest.raises(BadAnswer, match="https"):
        output.pull(kaggle, OURS, tmp_path)


def sealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Add outputs.json, as the last cell of a notebook writes it."""
    listed = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in files.items()
    }
    return {**files, "outputs.json": json.dumps({"files": listed}).encode()}


def test_an_output_is_what_the_run_wrote_down(kaggle, between, tmp_path):
    """Every file by its size and sha256, not the artifact's alone."""
    files = sealed({"bundle.json": b"{}", "a/history.csv": b"1"})
    between.say("ListKernelSessionOutput", [listing(between, files)])

    assert (output.pull(kaggle, RUN, tmp_path) / "a" / "history.csv").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.pop("submission.csv"), "submission.csv of .* is missing"),
        (lambda files: files.update({"submission.csv": b"<html>"}), "not what the run wrote"),
        (lambda files: files.pop("outputs.json"), "has no outputs.json"),
        (lambda files: files.update({"outputs.json": b"[]"}), "cannot be read"),
        (lambda files: files.update({"outputs.json": b"[" * 100_000}), "cannot be read"),
        (
            lambda files: files.update(
                {"outputs.json": b'{"files": {"x": {"sha256": "0", "size": 1e400}}}'}
            ),
            "cannot be read",
        ),
        (
            lambda files: files.update({"checkpoints/step-00000008/state.npz": b"[]"}),
            "step-00000008/state.npz of .* is not what the run wrote",
        ),
        (
            lambda files: files.pop("fold-1/checkpoints/step-00000008/manifest.json"),
            "fold-1/.*/manifest.json of .* is missing",
        ),
        (lambda files: files.pop("artifact/manifest.json"), "artifact/manifest.json of .* missing"),
    ],
)
def test_an_output_that_differs_is_not_kept(kaggle, between, tmp_path, change, said):
    """A page in place of a file, a file that the listing forgot."""
    names = (
        "checkpoints/step-00000008/state.npz",
        "fold-1/checkpoints/step-00000008/manifest.json",
    )
    files = {"bundle.json": b'{"sealed": true}', "submission.csv": b"id,label", **artifact()}
    files = sealed({**files, **dict.fromkeys(names, b"{}")})
    change(files)
    between.always("ListKernelSessionOutput", listing(between, files))

    with pytest.raises(Unverified, match=said):
        output.pull(kaggle, RUN, tmp_path)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (".hidden", lambda files: files.pop(".hidden")),
        ("empty", lambda files: files.pop("empty")),
        ("history.csv", lambda files: files.update({"history.csv": b"epoch\r\n1\r\n"})),
        ("__notebook__.ipynb", lambda files: files.update({"__notebook__.ipynb": b"<html>"})),
        ("__notebook__.ipynb", lambda files: files.update({"__notebook__.ipynb": b"[" * 100_000})),
    ],
)
def test_a_run_is_not_lost_by_a_file_that_no_step_needs(
    kaggle, between, tmp_path, shown, name, change
):
    """Nobody has seen whether Kaggle lists every file, and serves it as it was written."""
    files = {"bundle.json": b'{"sealed": true}', ".hidden": b"x", "empty": b"", **artifact()}
    files = sealed({**files, "history.csv": b"epoch\n1\n"}) | {
        "__notebook__.ipynb": b'{"cells": []}'
    }
    change(files)
    between.always("ListKernelSessionOutput", listing(between, files))

    folder = output.pull(kaggle, OURS, tmp_path, show=shown.append)

    note = output.noted(folder)
    assert artifact_manifest.verify(folder / "artifact").run_id == "r1"
    assert note is not None and note.differing == (name,)
    assert len(shown) == 1 and f"does not have all files as the run wrote them ({name})" in shown[0]


def test_a_file_that_a_list_forgot_is_fetched_by_the_next(kaggle, between, tmp_path, shown):
    """A list may be behind, and bytes may change on the way."""
    files = sealed({"bundle.json": b'{"sealed": true}', "submission.csv": b"id", "a.png": b"a"})
    early = {name: data for name, data in files.items() if name != "a.png"}
    answers = [listing(between, early), listing(between, files)]
    between.say("ListKernelSessionOutput", answers)

    folder = output.pull(kaggle, RUN, tmp_path, show=shown.append)

    assert (folder / "a.png").read_bytes() == b"a" and shown == []


def test_bytes_that_differ_from_the_storage_s_hash_are_fetched_again(kaggle, between, tmp_path):
    """Google's storage tells the MD5 of what it has."""
    between.say("ListKernelSessionOutput", [listing(between, {"x": b"right"})])
    between.say(
        "between", [(200, b"wrong", {"x-goog-hash": "crc32c=AAAA,md5=fOAlC1OSMTq0LDYtX7qMoA=="})]
    )

    assert (output.pull(kaggle, RUN, tmp_path) / "x").read_bytes() == b"right"


def packed(between, content: bytes, size: int | None = None) -> list[dict[str, object]]:
    """Return a listing of x.csv that Kaggle sends as a zip; `size`: what the archive says that it
    unpacks to.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.csv", content)
    data = buffer.getvalue()
    place = data.index(b"PK\x01\x02") + 24
    data = data if size is None else data[:place] + size.to_bytes(4, "little") + data[place + 4 :]
    return [{"files": [{"fileName": "x.csv", "url": between.serve("x.csv.zip", data)}]}]


def test_a_file_that_comes_as_an_archive_is_unpacked(kaggle, between, tmp_path):
    """Kaggle compresses as it likes."""
    between.say("ListKernelSessionOutput", packed(between, b"id\n" * 1000))

    assert (output.pull(kaggle, RUN, tmp_path) / "x.csv").read_bytes() == b"id\n" * 1000


def test_an_archive_that_would_fill_the_disk_is_refused(kaggle, between, tmp_path):
    """A few kilobytes that say that they become gigabytes; nothing is unpacked to find out."""
    between.say("ListKernelSessionOutput", packed(between, b"0" * 10**6, 4 * 10**9))

    with pytest.raises(
        BadAnswer, match=r"x\.csv would unpack from .* to 4,000,000,000 bytes.*ratio of 200"
    ):
        output.pull(kaggle, RUN, tmp_path)

    assert not list(tmp_path.iterdir())


def test_a_note_of_a_pull_that_nobody_can_read_is_none(tmp_path):
    """The next pull sets such a folder aside, as any other that is not what the run wrote."""
    (tmp_path / output.NOTE).write_text("[" * 100_000)
    (tmp_path / output.BUNDLE).write_text("[" * 100_000)

    assert (output.noted(tmp_path), output.of_bundle(tmp_path, "bundle_sha256")) == (None, "")

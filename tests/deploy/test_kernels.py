"""Push, watch and pull against a server that says what real ones have said."""

import hashlib
import itertools
import json

import pytest
from between import RESET

from deploy import bundle, kernels
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    DeadlinePassed,
    Detached,
    DiskError,
    NoQuota,
    Refused,
    RunFailed,
    Unreachable,
    Unverified,
)

HANDLE = "ann/digits-train-tpu"
RUN = kernels.Run(HANDLE, 2, "https://www.kaggle.com/code/ann/digits-train-tpu", "")
LEFT = {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "72000s"}}
FIRST = (404, {"code": 404, "message": "Not found"})


@pytest.fixture
def built(root, between):
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say("GetKernel", [FIRST])
    return bundle.build("train-tpu", config="digits", competition="digits", owner="ann", out=root / "out", root=root)


def current(version: int, text: str) -> dict[str, object]:
    return {"metadata": {"currentVersionNumber": version}, "blob": {"source": text}}


def test_a_push_sends_the_bundle_and_every_setting_written_out(kaggle, between, built):
    """Kaggle's defaults are not those of its documentation."""
    between.say("SaveKernel", [{"versionNumber": 1, "url": "u"}])

    run = kernels.push(kaggle, built, timeout_seconds=3600)

    sent = between.bodies("SaveKernel")[0]
    assert (run.version, run.bundle_sha256) == (1, built.sha256)
    assert sent["text"] == built.notebook.read_text()
    assert (sent["isPrivate"], sent["enableInternet"], sent["enableGpu"], sent["enableTpu"]) == (
        True,
        True,
        False,
        True,
    )
    assert (sent["machineShape"], sent["sessionTimeoutSeconds"]) == ("TpuV5E8", 3600)
    assert "dockerImage" not in sent


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"error": "Notebook not found"}, Refused),
        ({"error": "Maximum batch TPU session count of 1 reached."}, NoQuota),
        ({"error": "Maximum weekly GPU quota of 30.00 hours reached."}, NoQuota),
        ({"versionNumber": 1, "invalidDatasetSources": ["ann/gone"]}, Refused),
        ({"versionNumber": 1, "invalidCompetitionSources": ["digits"]}, Refused),
        ({"versionNumber": 1, "invalidKernelSources": ["ann/gone"]}, Refused),
        ({"versionNumber": 1, "invalidModelSources": ["a/b/c/d/1"]}, Refused),
        ({"versionNumber": 1, "invalidTags": ["tpu"]}, Refused),
        ({}, Ambiguous),
        ((400, {"code": 400, "message": "The kernel source must be less than 1 megabytes in size."}), Refused),
        ((429, {"code": 429, "message": "Too many requests"}), NoQuota),
    ],
)
def test_a_refusal_inside_a_success_is_a_refusal(kaggle, between, built, answer, kind):
    """The official command prints these and ends with 0."""
    between.say("SaveKernel", [answer])

    with pytest.raises(kind):
        kernels.push(kaggle, built, timeout_seconds=3600)

    assert between.count("SaveKernel") == 1


@pytest.mark.parametrize("lost", [RESET, (500, b""), (200, b"<html>"), (504, b"")])
def test_a_lost_answer_is_looked_for_and_the_push_is_not_repeated(kaggle, between, built, lost):
    """A push was seen to be answered by a 500 and to exist; a second one is a second run, which cannot be stopped."""
    between.say("SaveKernel", [lost])
    between.say("GetKernel", [FIRST, FIRST, current(1, f"… {built.sha256} …")])

    run = kernels.push(kaggle, built, timeout_seconds=3600)

    assert run.version == 1 and between.count("SaveKernel") == 1


@pytest.mark.parametrize("now", [FIRST, current(1, "somebody else's")])
def test_a_push_that_cannot_be_found_is_left_open(kaggle, between, built, now):
    """Exit code 6: state unknown; nothing was repeated."""
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", [FIRST, now, now, now])

    with pytest.raises(Ambiguous, match="lost") as caught:
        kernels.push(kaggle, built, timeout_seconds=3600)

    assert caught.value.exit_code == 6 and between.count("SaveKernel") == 1


def test_the_same_source_from_an_earlier_version_is_not_taken_for_ours(kaggle, between, built):
    """The same bundle pushed twice has the same text; only a new version proves the second push."""
    same = current(1, built.sha256)
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", [same, same, same, same])

    with pytest.raises(Ambiguous):
        kernels.push(kaggle, built, timeout_seconds=3600)


def test_without_quota_nothing_is_pushed(kaggle, between, built):
    """The run would wait, or be refused after the bundle was sent."""
    between.say("GetAcceleratorQuotaStatistics", [{"tpuQuota": {"timeUsed": "72000s", "totalTimeAllowed": "72000s"}}])

    with pytest.raises(NoQuota):
        kernels.push(kaggle, built, timeout_seconds=3600)

    assert between.count("SaveKernel") == 0


def states(*names: str) -> list[object]:
    return [{"status": name} for name in names]


def test_a_watch_follows_its_own_version_through_blips(kaggle, between, shown):
    """Not there yet, an unknown word, a server error: none of them is an end."""
    between.say(
        "GetKernelSessionStatus", [FIRST, *states("QUEUED", "RUNNING", "NEW_WORD"), (502, b""), *states("COMPLETE")]
    )
    between.say("ListKernelSessionOutput", [{"log": json.dumps([{"data": "step 1\n\x1b[2Kstep 2\n\n"}])}])

    assert kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append) == "COMPLETE"

    assert {body["versionLabel"] for body in between.bodies("GetKernelSessionStatus")} == {"v2"}
    assert [line.split("  ", 2)[2] for line in shown] == [
        "NOT_THERE_YET",
        "QUEUED",
        "RUNNING  step 2",
        "UNKNOWN(NEW_WORD)",
        "COMPLETE",
    ]


def test_progress_is_shown_rather_than_what_libraries_say(kaggle, between, shown):
    """The last line of progress, without stderr, brackets and keys."""
    line = {"step": 43, "steps": 337, "loss": 0.25, "images_per_second": 1834.5, "other": "x"}
    log = [
        {"stream_name": "stdout", "data": json.dumps(line) + "\n}\n"},
        {"stream_name": "stderr", "data": "I0000 oneDNN\n"},
    ]
    between.say("GetKernelSessionStatus", states("RUNNING", "COMPLETE"))
    between.say("ListKernelSessionOutput", [{"log": json.dumps(log)}])

    kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

    assert shown[0].endswith("RUNNING  step 43  of 337  loss 0.2500  1,834 images/s")


def test_a_log_that_cannot_be_read_does_not_end_a_watch(kaggle, between, shown):
    """The status alone decides."""
    between.say("GetKernelSessionStatus", states("RUNNING", "COMPLETE"))
    between.say("ListKernelSessionOutput", itertools.repeat((500, b"")))

    assert kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append) == "COMPLETE"


def test_a_failed_run_tells_kaggles_message_and_the_error_of_the_cell(kaggle, between, shown):
    """Without a browser, and without what the log would do to the terminal."""
    between.say("GetKernelSessionStatus", [{"status": "ERROR", "failureMessage": "Your notebook threw an exception"}])
    log = [{"data": f"line {n}\n"} for n in range(100)] + [
        {"data": "\x1b[31mValueError\x1b[0m: does not fit\n"},
        {"data": "end\n"},
    ]
    between.say("ListKernelSessionOutput", [{"log": json.dumps(log)}])

    with pytest.raises(RunFailed) as caught:
        kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

    message = str(caught.value)
    assert "threw an exception" in message and "The failing cell said: ValueError: does not fit" in message
    assert "| end" in message and "| line 99" in message and "| line 1\n" not in message and "\x1b" not in message


@pytest.mark.parametrize("name", ["CANCEL_ACKNOWLEDGED", "NEW_SCRIPT"])
def test_an_end_that_is_no_success_is_a_failure(kaggle, between, shown, name):
    """A quick-saved version would otherwise be waited for until the deadline."""
    between.say("GetKernelSessionStatus", states(name))
    between.say("ListKernelSessionOutput", [{"log": ""}])

    with pytest.raises(RunFailed):
        kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)


def test_a_deadline_tells_how_to_attach_again(kaggle, between, shown):
    """The run goes on: no call can stop it."""
    between.say("GetKernelSessionStatus", itertools.repeat({"status": "QUEUED"}))

    with pytest.raises(DeadlinePassed, match="invoke watch --run ann/digits-train-tpu/2"):
        kernels.watch(kaggle, RUN, deadline_seconds=0.2, show=shown.append)


def test_an_interruption_tells_how_to_attach_again(kaggle, between):
    """Ctrl-C leaves the run alone."""
    between.say("GetKernelSessionStatus", itertools.repeat({"status": "QUEUED"}))

    def show(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Detached, match="invoke watch --run ann/digits-train-tpu/2") as caught:
        kernels.watch(kaggle, RUN, deadline_seconds=60, show=show)

    assert caught.value.exit_code == 130


def test_silence_tells_how_to_attach_again(between, kaggle, shown):
    """Exit code 6, with the line."""
    kaggle.pace = type(kaggle.pace)(first=0.05, most=0.1, patience=0.2)
    between.say("GetKernelSessionStatus", itertools.repeat(RESET))

    with pytest.raises(Unreachable, match="invoke watch --run"):
        kernels.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)


def listing(between, files: dict[str, bytes], log: str = "") -> dict[str, object]:
    return {
        "files": [{"fileName": name, "url": between.serve(name.strip("./"), data)} for name, data in files.items()],
        "log": log,
    }


def artifact(bundle_sha256: str = "b1", weights: bytes = b"weights") -> dict[str, bytes]:
    digest = hashlib.sha256(b"weights").hexdigest()
    files = {"weights.npz": {"sha256": digest, "size": 7}}
    value = {"run_id": "r1", "weights_sha256": digest, "bundle_sha256": bundle_sha256, "files": files}
    return {"artifact/manifest.json": json.dumps(value).encode(), "artifact/weights.npz": weights}


OURS = kernels.Run(HANDLE, 2, "", "b1")


def test_a_pull_brings_every_file_in_one_rename(kaggle, between, tmp_path):
    """No temporary folder stays; the log comes along as text."""
    log = json.dumps([{"data": "hello\n"}])
    between.say("ListKernelSessionOutput", [listing(between, {**artifact(), "a/b.png": b"p"}, log)])

    folder = kernels.pull(kaggle, OURS, tmp_path)

    assert folder == tmp_path / "digits-train-tpu-v2" and list(tmp_path.iterdir()) == [folder]
    assert (folder / "a" / "b.png").read_bytes() == b"p"
    assert (folder / "digits-train-tpu.log").read_text() == "hello\n"


def test_an_equal_folder_is_kept_and_another_is_not_touched(kaggle, between, tmp_path):
    """Outputs of two runs were once mixed by a newer file that was kept."""
    between.say("ListKernelSessionOutput", itertools.repeat(listing(between, artifact())))
    folder = kernels.pull(kaggle, OURS, tmp_path)
    assert kernels.pull(kaggle, OURS, tmp_path) == folder

    (folder / "artifact" / "weights.npz").write_bytes(b"newer and longer than what Kaggle has")

    with pytest.raises(DiskError, match="Move it away"):
        kernels.pull(kaggle, OURS, tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


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
        kernels.pull(kaggle, OURS, tmp_path)

    assert not list(tmp_path.iterdir())


def test_a_name_that_climbs_writes_nothing(kaggle, between, tmp_path):
    """All names are judged before the first byte."""
    between.say("ListKernelSessionOutput", [listing(between, {"good": b"x", "../evil": b"x"})])

    with pytest.raises(BadAnswer, match="plain name"):
        kernels.pull(kaggle, OURS, tmp_path / "into")

    assert not list(tmp_path.iterdir())


def test_a_name_that_is_a_file_and_a_folder_writes_nothing(kaggle, between, tmp_path):
    """No disk can hold both."""
    between.say("ListKernelSessionOutput", [listing(between, {"a": b"x", "a/b": b"x"})])

    with pytest.raises(BadAnswer, match="as a file and as a folder"):
        kernels.pull(kaggle, OURS, tmp_path / "into")

    assert not list(tmp_path.iterdir())


def test_a_signed_address_that_expired_is_asked_for_again(kaggle, between, tmp_path):
    """A large pull takes longer than the addresses live."""
    between.say("ListKernelSessionOutput", itertools.repeat(listing(between, {"x": b"x"})))
    between.say("between", [(403, {"code": 403, "message": "expired"})])

    assert (kernels.pull(kaggle, OURS, tmp_path) / "x").read_bytes() == b"x"


def test_an_address_that_leaves_this_machine_unencrypted_is_refused(kaggle, between, tmp_path):
    """The cloud's metadata address is a favourite."""
    between.say("ListKernelSessionOutput", [{"files": [{"fileName": "x", "url": "http://169.254.169.254/x"}]}])

    with pytest.raises(BadAnswer, match="https"):
        kernels.pull(kaggle, OURS, tmp_path)

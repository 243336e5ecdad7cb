"""Push, watch and pull against a server that says what real ones have said."""

import itertools
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from deploy.client.retries import Pace
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    DeadlinePassed,
    Denied,
    Detached,
    NoQuota,
    NotFound,
    Refused,
    RunFailed,
    Unreachable,
)
from deploy.kernel import push_and_watch
from deploy.kernel.push_and_watch import Run
from pipeline.session.progress_log import in_words
from tests.deploy.between import RESET

HANDLE = "ann/digits-train-tpu"
RUN = Run(HANDLE, 2, "https://www.kaggle.com/code/ann/digits-train-tpu", "b1")
LEFT = {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "72000s"}}
FIRST = (404, {"code": 404, "message": "Not found"})


@pytest.fixture
def built(built, between):
    """Return a bundle whose kernel Kaggle does not have yet."""
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say("GetKernel", [FIRST])
    return built


STREAM = "digits-train-tpu"  # the last part of the address of its log


def stream(*pieces: dict[str, str], whole: bool = True):
    """Return a live log as Kaggle sends it, to its end or cut off."""
    events = [f"data: {json.dumps(piece)}\n\n" for piece in pieces]
    return (
        200,
        "".join([*events, *["data: END_OF_LOG\n\n"] * whole]).encode(),
        {"Content-Type": "text/event-stream"},
    )


def current(version: int, text: str, sources: tuple[str, ...] = ("digits",)) -> dict[str, object]:
    metadata = {"currentVersionNumber": version, "competitionDataSources": list(sources)}
    return {"metadata": metadata, "blob": {"source": text}}


def test_a_push_sends_the_bundle_and_every_setting_written_out(kaggle, between, built):
    """Kaggle's defaults are not those of its documentation."""
    between.say("SaveKernel", [{"versionNumber": 1, "url": "u"}])

    run = push_and_watch.push(kaggle, built, timeout_seconds=3600)

    sent = between.bodies("SaveKernel")[0]
    assert (run.version, run.bundle_sha256) == (1, built.sha256)
    assert sent["text"] == built.notebook.read_text()
    flags = [sent[name] for name in ("isPrivate", "enableInternet", "enableGpu", "enableTpu")]
    assert flags == [True, True, False, True]
    assert (sent["machineShape"], sent["sessionTimeoutSeconds"]) == ("TpuV5E8", 3600)
    assert sent["kernelExecutionType"] == "SAVE_AND_RUN_ALL"
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
        ((400, {"code": 400, "message": "The source must be less than 1 megabytes."}), Refused),
        ((429, {"code": 429, "message": "Too many requests"}), NoQuota),
        ({"error": {"code": 429, "message": "Too many requests"}}, NoQuota),
    ],
)
def test_a_refusal_inside_a_success_is_a_refusal(kaggle, between, built, answer, kind):
    """The official command prints these and ends with 0."""
    between.say("SaveKernel", [answer])

    with pytest.raises(kind):
        push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert between.count("SaveKernel") == 1


@pytest.mark.parametrize("now", [FIRST, current(1, "somebody else's")])
def test_a_push_that_cannot_be_found_is_left_open(kaggle, between, built, now):
    """Exit code 6: state unknown; nothing was repeated."""
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", itertools.chain([FIRST], itertools.repeat(now)))

    with pytest.raises(Ambiguous, match="lost") as caught:
        push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert caught.value.exit_code == 6 and between.count("SaveKernel") == 1


def test_the_same_source_from_an_earlier_version_is_not_taken_for_ours(kaggle, between, built):
    """The same bundle pushed twice has the same text; only a new version proves the second push."""
    same = current(1, built.sha256)
    between.say("SaveKernel", [RESET])
    between.always("GetKernel", same)

    with pytest.raises(Ambiguous):
        push_and_watch.push(kaggle, built, timeout_seconds=3600, again=True)


@pytest.mark.parametrize("field", ["ref", "url"])
def test_a_notebook_of_somebody_else_is_never_watched(kaggle, between, built, field):
    """Whatever Kaggle answers."""
    address = f"https://www.kaggle.com/code/{HANDLE.replace('ann', 'bob')}"
    between.say("SaveKernel", [{"versionNumber": 1, field: address}])

    with pytest.raises(BadAnswer, match="somebody else") as caught:
        push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert caught.value.exit_code == 4 and between.count("SaveKernel") == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "Notebook not found"},
        {"error": "Kernel not found"},
        (404, {"code": 404, "message": "Notebook not found"}),
    ],
)
def test_a_first_push_to_an_address_that_is_not_found_names_the_way_out(
    kaggle, between, built, answer
):
    """Kaggle keeps an address without a version where an earlier push was refused."""
    between.say("SaveKernel", [answer])

    with pytest.raises(Refused, match=rf"(?s)not found.*code/{HANDLE}.*\[slugs\]") as caught:
        push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert caught.value.exit_code == 4 and between.count("SaveKernel") == 1


def test_a_first_push_that_kaggle_answers_by_500_says_what_it_may_be(kaggle, between, built):
    """It stays open what happened."""
    between.say("SaveKernel", [(500, b"")])
    between.always("GetKernel", FIRST)

    with pytest.raises(Ambiguous, match=rf"(?s)500 each time: {HANDLE} may be.*Delete it by hand"):
        push_and_watch.push(kaggle, built, timeout_seconds=3600)


def states(*names: str) -> list[object]:
    return [{"status": name} for name in names]


def running_until(happened: Callable[[], bool]) -> Iterator[object]:
    """Say RUNNING until that is so and four times more, then COMPLETE."""
    while not happened():
        yield {"status": "RUNNING"}
    yield from states(*["RUNNING"] * 4, "COMPLETE")


def test_a_watch_follows_its_own_version_through_blips(kaggle, between, shown):
    """Not there yet, an unknown word, a server error: none of them is an end."""
    kaggle.pace = Pace(first=0.01, most=60, patience=60)  # a version is new for `most` seconds
    between.say(
        "GetKernelSessionStatus",
        [FIRST, *states("QUEUED", "RUNNING", "NEW_WORD"), (502, b""), *states("COMPLETE")],
    )

    assert push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append) == "COMPLETE"

    assert {body["versionLabel"] for body in between.bodies("GetKernelSessionStatus")} == {"v2"}
    assert [line.split("  ", 2)[2] for line in shown] == [
        "NOT_THERE_YET",
        "QUEUED",
        "RUNNING",
        "UNKNOWN(NEW_WORD)",
        "COMPLETE",
    ]


def test_a_lost_push_that_lacks_a_source_is_no_success(kaggle, between, built):
    """The answer would have said so; the version that it made says it too."""
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", [FIRST, *itertools.repeat(current(1, built.sha256, sources=()), 3)])

    with pytest.raises(Refused, match="competition sources: digits"):
        push_and_watch.push(kaggle, built, timeout_seconds=3600)


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "COMPLETE"])
def test_the_same_bundle_is_not_pushed_twice(kaggle, between, built, shown, status):
    """The same command after a crash finds what the first one made."""
    between.say("GetKernel", [current(7, f"… {built.sha256} …")])
    between.say("GetKernelSessionStatus", [{"status": status}])

    run = push_and_watch.push(kaggle, built, timeout_seconds=3600, show=shown.append)

    assert (str(run), run.bundle_sha256) == ("ann/digits-train-tpu/7", built.sha256)
    assert between.count("SaveKernel") == 0 and "--again" in shown[0]


def test_a_bundle_is_pushed_again_on_request(kaggle, between, built):
    """Without a question about the run that holds it."""
    between.say("GetKernel", [current(7, built.sha256)])
    between.say("SaveKernel", [{"versionNumber": 8}])

    assert push_and_watch.push(kaggle, built, timeout_seconds=3600, again=True).version == 8


def test_our_version_is_found_behind_one_of_somebody_else(kaggle, between, built):
    """Another browser tab may have saved the notebook since."""
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", [FIRST, current(2, "theirs"), current(2, built.sha256)])

    assert push_and_watch.push(kaggle, built, timeout_seconds=3600).version == 1
    assert between.bodies("GetKernel")[-1]["versionLabel"] == "v1"


@pytest.mark.parametrize(
    "answer",
    [
        {"versionNumber": "1"},
        {"versionNumber": 1, "url": 5},
        {"versionNumber": 1, "invalidDatasetSources": [3]},
        {"versionNumber": True},
        [],
        "text",
        None,
    ],
)
def test_an_answer_of_the_wrong_types_is_no_success_and_no_traceback(
    kaggle, between, built, answer
):
    """It may have happened: what is there is looked at."""
    between.say("SaveKernel", [(200, answer)])
    between.always("GetKernel", FIRST)

    with pytest.raises(Ambiguous):
        push_and_watch.push(kaggle, built, timeout_seconds=3600)


@pytest.mark.parametrize(
    "answer", [{"status": None}, {"status": 5}, {"status": "RUNNING", "failureMessage": 7}, []]
)
def test_an_odd_answer_does_not_end_a_watch(kaggle, between, shown, answer):
    """Nine hours of training are not lost to one of them."""
    between.say("GetKernelSessionStatus", [(200, answer), {"status": "COMPLETE"}])

    assert push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append) == "COMPLETE"


def test_progress_is_shown_rather_than_what_libraries_say(kaggle, between, shown):
    """The last line of progress, without stderr, brackets and keys."""
    line = {
        "step": 43,
        "steps": 337,
        "loss": 0.25,
        "images_per_second": 1834.5,
        "eta_seconds": 7200,
        "other": "x",
    }
    written = {"stream_name": "stdout", "data": json.dumps(line) + "\n}\n"}
    library = {"stream_name": "stderr", "data": "I0000 oneDNN\n"}
    progress = "step 43 of 337  loss 0.2500  1,834 images/s  2:00:00 to go"
    between.say(
        "GetKernelSessionStatus", running_until(lambda: any(" to go" in seen for seen in shown))
    )
    between.say(STREAM, [stream(written, library)])

    push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append, in_words=in_words)

    assert any(seen.endswith(f"RUNNING  {progress}") for seen in shown)


def test_a_short_run_is_not_told_to_use_nothing(kaggle, between, shown):
    """0.0 hours would read as if it were free."""
    written = {"data": json.dumps({"step": 1, "eta_seconds": 30}) + "\n"}
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say(
        "GetKernelSessionStatus", running_until(lambda: any(" to go" in seen for seen in shown))
    )
    between.say(STREAM, [stream(written)])

    push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append, in_words=in_words)

    used = "will use under 0.1 of the 20.0 TPU hours left this week"
    assert any(seen.look.projected == used for seen in shown)  # on a screen


@pytest.mark.parametrize(
    "fragment",
    [
        "Writing pipeline/models/architectures.py",
        "Overwriting bundle.json",
        '  "warmup_epochs": 4,',
        '{"a": 1}',
        '["a", "b"]',
        "'name': 'x'",
        "/kaggle/working/outputs.json",
        "}],",
    ],
)
def test_pieces_of_code_and_paths_are_no_words(kaggle, between, shown, fragment):
    """What the run last said stays, in place of what its notebook prints beside that."""
    between.say(
        "GetKernelSessionStatus", running_until(lambda: any("Devices" in seen for seen in shown))
    )
    between.say(STREAM, [stream({"data": f"Devices: 8 x tpu\n{fragment}\n"})])

    push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

    assert [seen.partition("RUNNING")[2].strip() for seen in shown if "RUNNING  " in seen] == [
        "Devices: 8 x tpu"
    ]


@pytest.mark.parametrize(
    ("run", "now", "kind", "there"),
    [
        (Run(HANDLE, 9, "", ""), current(3, ""), NotFound, "the newest version is 3"),
        (Run(HANDLE, 9, "", ""), FIRST, NotFound, "there is no such notebook"),
        (Run("bob/other", 1, "", ""), FIRST, Denied, "that ann may see"),
    ],
)
def test_a_run_that_is_not_there_is_not_said_to_continue(
    kaggle, between, shown, run, now, kind, there
):
    """It is refused at once, since nobody has just pushed it."""
    between.always("GetKernelSessionStatus", (403, {"code": 403, "message": "Permission denied"}))
    between.say("GetKernel", [now])
    between.always("ListKernels", {"kernels": []})

    with pytest.raises(kind, match=f"There is no run {run}.*{there}") as caught:
        push_and_watch.watch(kaggle, run, deadline_seconds=60, show=shown.append)

    assert "continues" not in str(caught.value) and not shown


def test_a_log_that_breaks_off_is_followed_again(kaggle, between, shown):
    """From its beginning, as Kaggle sends it; and a line may come in two pieces, with what a
    terminal would obey.
    """
    first = stream({"data": '{"step": 1, "loss"'}, whole=False)
    second = stream({"data": '{"step": 1, "loss"'}, {"data": ": 2.5}\n\x1b[2Kwords\n"})
    between.say(
        "GetKernelSessionStatus", running_until(lambda: any("loss 2.5" in seen for seen in shown))
    )
    between.say(STREAM, [first, RESET, (500, b""), (200, b"<html>"), second])

    push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append, in_words=in_words)

    assert any(seen.endswith("RUNNING  step 1  loss 2.5000") for seen in shown)


def test_a_line_of_a_watch_carries_its_look_with_all_progress_once(kaggle, between, shown):
    """A screen draws it. A log that is read again from its beginning counts once."""
    pieces = [{"data": json.dumps({"step": n, "loss": 1 / n}) + "\n"} for n in (1, 2, 3)]
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say(
        "GetKernelSessionStatus", running_until(lambda: any("step 3" in seen for seen in shown))
    )
    between.say(STREAM, [stream(*pieces[:2], whole=False), stream(*pieces)])

    push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append, in_words=in_words)

    look = shown[-1].look
    assert [line["step"] for line in look.progress] == [1, 2, 3]
    assert (look.status, look.ended, look.accelerator) == ("COMPLETE", True, "TPU")
    assert (look.left, look.allowed) == (72_000, 72_000)


@pytest.mark.parametrize("answer", [(500, b""), (404, b""), (200, b"\xff\xfe"), RESET])
def test_a_log_that_cannot_be_read_does_not_end_a_watch(kaggle, between, shown, answer):
    """The status alone decides."""
    between.say("GetKernelSessionStatus", states("RUNNING", "RUNNING", "COMPLETE"))
    between.always(STREAM, answer)

    assert push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append) == "COMPLETE"


def test_waiting_for_a_machine_and_running_have_their_own_limits(
    kaggle, between, shown, monkeypatch
):
    """A TPU is waited for up to seven hours; a run that hangs should not be.

    The message says how to attach again: the run continues, as no call can stop it.
    """
    clock = itertools.count(1000, 0.1)  # seconds: each look at it counts, whatever the machine
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(push_and_watch, "time", time)
    queued, running = [{"status": "QUEUED"}] * 8, itertools.repeat({"status": "RUNNING"})
    between.say("GetKernelSessionStatus", itertools.chain(queued, running))

    with pytest.raises(DeadlinePassed, match="running"):
        push_and_watch.watch(kaggle, RUN, deadline_seconds=0.5, queue_seconds=30, show=shown.append)

    between.always("GetKernelSessionStatus", {"status": "QUEUED"})
    said = r"(?s)waiting for a machine.*invoke watch --run ann/digits-train-tpu/2"
    with pytest.raises(DeadlinePassed, match=said):
        push_and_watch.watch(kaggle, RUN, deadline_seconds=30, queue_seconds=0.5, show=shown.append)


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("tensorflow.errors.ResourceExhaustedError: RESOURCE_EXHAUSTED: 16G", "Memory ran out"),
        ("OSError: [Errno 28] No space left on device", "Keep fewer checkpoints"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "Mount what it needs"),
        (
            "pipeline.errors.DeviceError: This session has no internet: storage.googleapis.com does"
            " not answer (Temporary failure in name resolution)",
            "Verify the phone",
        ),
        ("ModuleNotFoundError: No module named 'timm'", "constraints/"),
        (
            "pipeline.errors.DeviceError: Asked for TpuV5E8; this session has 1 x cpu",
            "Verify the account",
        ),
    ],
)
def test_a_failed_run_tells_its_cell_and_what_usually_helps(kaggle, between, shown, words, fix):
    """So that nobody has to search for what everybody meets."""
    log = [{"data": f'Exception encountered at "In [7]":\n{words}\n'}]
    between.say("GetKernelSessionStatus", states("ERROR"))
    between.say("ListKernelSessionOutput", [{"log": json.dumps(log)}])

    with pytest.raises(RunFailed, match=r"In \[7\]") as caught:
        push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

    assert fix in str(caught.value)


def test_a_failed_run_tells_kaggles_message_and_the_error_of_the_cell(kaggle, between, shown):
    """Without a browser, and without what the log would do to the terminal."""
    between.say(
        "GetKernelSessionStatus",
        [{"status": "ERROR", "failureMessage": "Your notebook threw an exception"}],
    )
    log = [{"data": f"line {n}\n"} for n in range(100)] + [
        {"data": "\x1b[31mValueError\x1b[0m: does not fit\n"},
        {"data": "end\n"},
    ]
    between.say("ListKernelSessionOutput", [{"log": json.dumps(log)}])

    with pytest.raises(RunFailed) as caught:
        push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

    message = str(caught.value)
    for part in ("threw an exception", "said: ValueError: does not fit", "| end", "| line 99"):
        assert part in message
    assert "| line 1\n" not in message and "\x1b" not in message


def test_an_interruption_tells_how_to_attach_again(kaggle, between):
    """Ctrl-C leaves the run alone."""
    between.always("GetKernelSessionStatus", {"status": "QUEUED"})

    def show(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Detached, match="invoke watch --run ann/digits-train-tpu/2") as caught:
        push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=show)

    assert caught.value.exit_code == 130


def test_silence_tells_how_to_attach_again(between, kaggle, shown):
    """Exit code 6, with the line."""
    kaggle.pace = Pace(first=0.05, most=0.1, patience=0.2)
    between.always("GetKernelSessionStatus", RESET)

    with pytest.raises(Unreachable, match="invoke watch --run"):
        push_and_watch.watch(kaggle, RUN, deadline_seconds=60, show=shown.append)

"""Push and watch against a server with real answers."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from commands.telling import in_a_line
from deploy import push as pushing
from deploy import watch as watching
from deploy.connection import Pace
from deploy.errors import (
    Ambiguous,
    DeadlinePassed,
    NoQuota,
    NotFound,
    Refused,
    RunFailed,
)
from deploy.events import completed
from deploy.journal import PUSH, Request
from deploy.records import Records
from deploy.runs import Run
from tests.deploy import steps
from tests.deploy.between import RESET
from tests.deploy.small import recorded

HANDLE = "ann/digits-train-tpu"
RUN = Run(HANDLE, 2, "https://www.kaggle.com/code/ann/digits-train-tpu", "b1")
LEFT = {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "72000s"}}
FIRST = (404, {"code": 404, "message": "Not found"})
STATUS, STREAM = "GetKernelSessionStatus", "digits-train-tpu"  # the end of its log's address


@pytest.fixture
def push(kaggle, ours, built, between, shown):
    """Return the push of a bundle whose kernel Kaggle does not have yet."""
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say("GetKernel", [FIRST])

    def pushed():
        records, current = Records(ours), kaggle.get_kernel(HANDLE)
        request = Request(PUSH, "digits", HANDLE, bundle_sha256=built.sha256)
        request = records.journal.intend(request)
        before = current.version if current else 0
        steps_ = pushing.send(kaggle, records.journal, request, built, before, 3600)
        return steps.done(steps_, shown.append)

    return pushed


@pytest.fixture
def watch(kaggle, ours, shown):
    """Return what watches a run, and returns what it has told."""

    def watched(run=RUN, **more):
        seen = []

        def tell(event):
            seen.append(event)
            shown.append(in_a_line(event))

        records = Records(replace(ours, **more))
        assert completed(watching.watch(kaggle, records, run), tell) == "COMPLETE"
        return seen

    return watched


def stream(*pieces, whole=True):
    """Return a live log as Kaggle sends it, to its end or cut off."""
    events = [f"data: {json.dumps(piece, ensure_ascii=False)}\n\n" for piece in pieces]
    end = ["data:END_OF_LOG\r\n\r\n", 'data:{"data": "of another log\\n"}\n\n']
    text = "".join([*events, *end * whole])
    return 200, text.encode(), {"Content-Type": "text/event-stream"}


def current(version, text, sources=("digits",)):
    metadata = {"currentVersionNumber": version, "competitionDataSources": list(sources)}
    return {"metadata": metadata, "blob": {"source": text}}


def states(*names):
    return [{"status": name} for name in names]


def running_until(shown, words):
    """Say RUNNING until these words were shown and four times more, then COMPLETE."""
    while not any(words in line for line in shown):
        yield {"status": "RUNNING"}
    yield from states(*["RUNNING"] * 4, "COMPLETE")


def test_a_push_sends_the_bundle_and_every_setting(push, between, built):
    """Kaggle's defaults are not those of its documentation."""
    between.say("SaveKernel", [{"versionNumber": 1, "url": "u"}])

    run = push()

    (sent,) = between.bodies("SaveKernel")
    assert (run.version, run.bundle_sha256) == (1, built.sha256)
    wanted = {
        "text": built.notebook.read_text(),
        "machineShape": "TpuV5E8",
        "sessionTimeoutSeconds": 3600,
        "kernelExecutionType": "SAVE_AND_RUN_ALL",
        **dict.fromkeys(("isPrivate", "enableInternet", "enableTpu"), True),
        "enableGpu": False,
    }
    assert sent.items() >= wanted.items() and "dockerImage" not in sent


WAY_OUT = rf"(?s)not found.*code/{HANDLE}.*\[slugs\]"


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ({"error": "Maximum weekly GPU quota of 30.00 hours reached."}, NoQuota, "quota"),
        ({"versionNumber": 1, "invalidTags": ["tpu"]}, Refused, "tpu"),
        # Kaggle keeps an address without a version where an earlier push was refused.
        ((404, {"code": 404, "message": "Notebook not found"}), Refused, WAY_OUT),
        # It may have happened: what is there is looked at.
        ({}, Ambiguous, "not return a version number"),
        ((500, b""), Ambiguous, rf"(?s)every push gets a 500, {HANDLE} may be.*Delete it by hand"),
    ],
)
def test_a_refusal_inside_a_success_is_a_refusal(push, between, answer, kind, said):
    """The official command prints these and ends with 0. Nothing is sent twice."""
    between.say("SaveKernel", [answer])
    between.always("GetKernel", FIRST)

    with pytest.raises(kind, match=said):
        push()

    assert between.count("SaveKernel") == 1


@pytest.mark.parametrize(
    ("before", "sources", "kind", "said"),
    [
        # The same bundle pushed twice has the same text; only a new version proves the second push.
        (1, ("digits",), Ambiguous, "lost"),
        # The answer would have said so; the version that it made says it too.
        (0, (), Refused, "competition sources: digits"),
    ],
)
def test_the_same_source_from_an_earlier_version_is_not_taken_for_ours(
    push, between, built, before, sources, kind, said
):
    """Nor any other version that does not prove that the push arrived."""
    now = current(1, built.sha256, sources)
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", itertools.chain([now if before else FIRST], itertools.repeat(now)))

    with pytest.raises(kind, match=said):
        push()

    assert between.count("SaveKernel") == 1


def test_our_version_is_found_before_somebody_else_s(push, between, built):
    """Another browser tab may have saved the notebook since."""
    between.say("SaveKernel", [RESET])
    between.say("GetKernel", [FIRST, current(2, "theirs"), current(2, built.sha256)])

    assert push().version == 1
    assert between.bodies("GetKernel")[-1]["versionLabel"] == "v1"


def test_a_watch_follows_its_own_version_through_blips(kaggle, watch, between, shown):
    """A missing version, an unknown status, a server error and a wrong type do not end a watch."""
    kaggle.pace = Pace(first=0.01, most=60, patience=60)  # a version is new for `most` seconds
    looks = [FIRST, *states("QUEUED", "RUNNING", "NEW_WORD"), (502, b"")]
    for odd in ({"status": None}, {"status": 5}, {"status": "RUNNING", "failureMessage": 7}, []):
        looks += [(200, odd), *states("RUNNING")]
    between.say(STATUS, [*looks, *states("COMPLETE")])

    watch()

    assert {body["versionLabel"] for body in between.bodies(STATUS)} == {"v2"}
    told = [line.split("  ", 2)[2] for line in shown]
    assert told[:4] == ["NOT_THERE_YET", "QUEUED", "RUNNING", "NEW_WORD"]
    assert told[-1] == "COMPLETE"


def test_progress_is_shown_rather_than_what_libraries_say(watch, between, shown):
    """The last line of progress or of text is shown, without stderr and JSON. A broken log is read
    again from its beginning, and each line of progress counts once.
    """
    early = [{"data": json.dumps({"step": n, "loss": 1 / n}) + "\n"} for n in (1, 2)]
    line = {"step": 43, "steps": 337, "loss": 0.25, "images_per_second": 1834.5, "other": "x"}
    text = json.dumps({**line, "eta_seconds": 30}) + "\n}\n\x1b[2K× Å \u2028 ü 漢字 🎉\n"
    pieces = [{"stream_name": "stdout", "data": each} for each in (text[:9], text[9:])]
    library = {"stream_name": "stderr", "data": "I0000 oneDNN\n"}
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    between.say(STATUS, running_until(shown, " to go"))
    broken = stream(*early, pieces[0], whole=False)
    between.say(
        STREAM, [broken, RESET, (500, b""), (200, b"<html>"), stream(*early, *pieces, library)]
    )

    look = watch()[-1]

    progress = "step 43 of 337  loss 0.2500  1,834 images/s  0:00:30 to go"
    assert any(line.endswith(f"RUNNING  {progress}") for line in shown)
    assert [line["step"] for line in look.progress] == [1, 2, 43]
    assert look.words == "× Å \u2028 ü 漢字 🎉"
    assert (look.status, look.ended, look.accelerator) == ("COMPLETE", True, "TPU")
    assert (look.left, look.allowed) == (72_000, 72_000)


def test_a_missing_run_is_not_said_to_continue(watch, between, shown):
    """It is refused at once, since it was not just pushed."""
    between.always(STATUS, (403, {"code": 403, "message": "Permission denied"}))
    between.always("ListKernels", {"kernels": []})

    said = f"(?s)cannot find {HANDLE}/9: .* renamed on.*code/{HANDLE}, and specify the run.*--run"
    with pytest.raises(NotFound, match=said) as caught:
        watch(Run(HANDLE, 9))

    assert "continues" not in str(caught.value) and not shown


def test_waiting_for_a_machine_and_running_have_their_own_limits(watch, between, monkeypatch):
    """The queue for a TPU may take seven hours, but a run should not hang. The message says how to
    re-attach: the run continues.
    """
    clock = itertools.count(1000, 0.1)  # seconds: each look at it counts, whatever the machine
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(watching, "time", time)
    between.say(
        STATUS, itertools.chain(states(*["QUEUED"] * 8), itertools.repeat(*states("RUNNING")))
    )

    with pytest.raises(DeadlinePassed, match="running"):
        watch(deadline_seconds=0.5, queue_seconds=30)

    between.always(STATUS, {"status": "QUEUED"})
    with pytest.raises(
        DeadlinePassed, match=rf"(?s)waiting for a machine.*invoke watch --run {RUN}"
    ):
        watch(deadline_seconds=30, queue_seconds=0.5)


def test_a_failed_run_is_reported_with_its_cell_and_advice(watch, between):
    """Kaggle's message and the cell's error are shown, without terminal sequences."""
    words = "ConfigError: URL fetch failure: Temporary failure in name resolution"
    between.say(STATUS, [{"status": "ERROR", "failureMessage": "Your notebook threw an exception"}])
    lines = [*(f"line {n}" for n in range(100)), 'Exception encountered at "In [7]":']
    lines += [f"\x1b[31m{words[:9]}\x1b[0m{words[9:]}", "end"]
    log = [{"data": f"{line}\n"} for line in lines]
    between.say("ListKernelSessionOutput", [{"log": json.dumps(log)}])

    with pytest.raises(RunFailed) as caught:
        watch()

    message = str(caught.value)
    for part in ("threw an exception", "In [7]", f"raised: {words}", "| end", "your phone number"):
        assert part in message
    assert "| line 99\n" in message and "| line 1\n" not in message and "\x1b" not in message


def test_a_run_stopped_in_a_browser_is_reported_as_cancelled(watch, between, ours):
    """There is no cause to fix."""
    journal = Records(ours).journal
    recorded(journal, Request(PUSH, "digits", HANDLE, kernel="train-tpu"), 2)
    between.always(STATUS, {"status": "CANCEL_ACKNOWLEDGED"})
    between.always("ListKernelSessionOutput", {"log": ""})

    with pytest.raises(RunFailed, match="cancelled on kaggle") as caught:
        watch()

    said = str(caught.value)
    assert "Fix" not in said and "\ninvoke push-train\n" in said
    assert f"invoke pull --run {RUN}" in said
    assert journal.requests(PUSH)[0].status == "CANCEL_ACKNOWLEDGED"

"""Ordinary days of a watch: a log in any language, a busy one, a run that began hours ago."""

import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy import runs, watch
from deploy.connection import Pace
from deploy.errors import Denied, NotMounted, RunFailed
from deploy.events import Status, completed
from deploy.journal import PUSH, Made, Request, Sending
from deploy.records import Records
from deploy.runs import Run
from localkaggle.faults import edited
from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, metadata

RUN = Run(HANDLE, 1, "", "")


class Held:
    """A session that a test ends; it writes nothing but its log."""

    def __init__(self, folder: Path, notebook: str, *, log: Log, **rest: Any) -> None:
        self.log, self.began, self.ended = log, threading.Event(), threading.Event()
        folder.mkdir(parents=True)

    def run(self) -> Outcome:
        """Run until the test ends it."""
        self.log.start()
        self.began.set()
        self.ended.wait(60)
        return Outcome("", "", 0.0)

    def cancel(self) -> None:
        """End."""
        self.ended.set()


@pytest.fixture
def local(host):
    """A local Kaggle whose sessions run until a test ends them."""
    return host(session=Held)


@pytest.fixture
def kaggle(local):
    """A client of it, which has pushed a run."""
    kaggle, named = connect(), {"id": HANDLE, "title": "digits train tpu"}
    kaggle.save_kernel({**metadata("train-tpu"), **named}, "{}", timeout_seconds=600)
    return kaggle


@pytest.fixture
def session(local, kaggle):
    """The session of that run, which has begun."""
    version = local.kernels.version(HANDLE, 1)
    assert version is not None and version.session.began.wait(60)
    return version.session


def test_a_log_is_read_as_utf_8_while_it_is_written_and_afterwards(kaggle, session):
    said = "× – Å \u2028 \x85 ü 漢字 🎉"
    session.log.add("stdout", f"{said}\n")
    session.log.add("stdout", "half \ud83d")
    session.log.add("stdout", "\ude00 whole\n")
    live = kaggle.follow_log(HANDLE, 1)

    assert next(live) == ("stdout", f"{said}\n")

    session.ended.set()
    rest = "".join(text for _, text in live)
    assert rest.encode("utf-16", "surrogatepass").decode("utf-16") == "half 😀 whole\n"
    assert kaggle.kernel_log(HANDLE, 1) == [said, "half 😀 whole"]


@pytest.mark.parametrize("end", ["data:END_OF_LOG\n\n", "data: END_OF_LOG\r\n\r\n"])
def test_the_end_of_a_log_is_known_with_and_without_a_blank(between, end):
    kaggle = connect()
    pieces = f'data:{{"data": "one"}}\n\n{end}data: {{"data": "of another log"}}\n\n'
    between.say("x", [(200, pieces.encode(), {"Content-Type": "text/event-stream"})])

    assert list(kaggle.follow_log("ann/x", 1)) == [("", "one")]


def test_a_busy_log_asks_for_the_status_no_more_often_than_a_quiet_one(
    local, kaggle, session, ours, monkeypatch
):
    """Once a minute in the long run; and a pipe gets a line of progress every five minutes."""
    kaggle.pace = Pace(first=5, most=60, patience=300)
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed.append(passed[-1] + seconds)
        session.log.add("stdout", json.dumps({"step": len(passed)}) + "\n")
        threading.Event().wait(0.01)  # the log is followed beside the watch
        if passed[-1] > 600:
            session.ended.set()
            local.kernels.version(HANDLE, 1).done.wait(60)

    clock = SimpleNamespace(monotonic=lambda: passed[-1], sleep=sleep)
    monkeypatch.setattr(watch, "time", clock)
    local.faults.plan({})

    shown: list[Status] = []
    completed(watch.watch(kaggle, Records(replace(ours, deadline_seconds=1200)), RUN), shown.append)

    assert local.faults.seen.count("GetKernelSessionStatus") == 16
    assert sum(not seen.often for seen in shown) <= 6 < len(shown)


# How a run ends that did not end by itself


@pytest.mark.parametrize(
    ("shape", "where"), [("NvidiaTeslaT4", " --for gpu-t4x2"), ("TpuV5E8", "")]
)
def test_a_run_that_failed_is_pushed_again_to_the_machine_that_it_was_on(
    kaggle, between, shape, where
):
    """It went to the other one."""
    for said in ("The session was killed (exit code 137)", f"{NotMounted.words} it"):
        between.always("ListKernelSessionOutput", {"log": json.dumps([{"data": f"{said}\n"}])})
        run = replace(RUN, machine_shape=shape)

        message = runs.failed(kaggle, run, "ERROR", "", "then")

        assert f"invoke push-train{where}\n" in f"{message}\n"


def test_a_run_that_was_stopped_in_a_browser_is_said_to_be_cancelled(
    local, kaggle, session, shown, ours
):
    """Nothing is wrong with it: there is no cause to fix."""
    journal = Records(ours).journal
    pushed = journal.intend(Request(PUSH, "digits", HANDLE, kernel="train-tpu"))
    journal.record(journal.record(pushed, Sending(0)), Made(1, {}))
    cancelled = edited(status="CANCEL_ACKNOWLEDGED")
    local.faults.say("GetKernelSessionStatus", itertools.repeat(cancelled))

    with pytest.raises(RunFailed, match="cancelled on kaggle") as caught:
        steps.watched(kaggle, ours, RUN, show=shown.append)

    said = str(caught.value)
    assert "Fix" not in said and "\ninvoke push-train\n" in said
    assert f"invoke pull --run {RUN}" in said
    (row,) = journal.requests(PUSH)
    assert row.status == "CANCEL_ACKNOWLEDGED"


@pytest.mark.parametrize("task", [steps.watched, steps.pulled])
def test_a_run_of_another_account_names_both(kaggle, ours, task):
    """Several accounts use one machine, and one journal."""
    with pytest.raises(Denied, match="logged in as rehearsal, and the run is ann's"):
        task(kaggle, ours, Run("ann/digits-train-tpu", 3, "", ""), show=lambda line: None)

"""The journal knows what was asked for even when the process did not live to see the answer."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import errors, journal
from deploy.deadline import TimeUp
from deploy.journal import (
    PUBLISH,
    PUSH,
    Absent,
    Answer,
    Ended,
    Failed,
    Journal,
    Made,
    Pulled,
    Request,
    Sending,
    State,
)
from formats.errors import DiskError
from tests.deploy.invoked import ROOT

TOKEN = "KGAT_" + "1f" * 16
WORDS = Request(PUSH, "digits", "ann/digits-train-tpu")
PROOFS = (
    errors.UsageError("a check failed"),
    errors.Denied("403"),
    errors.NotFound("404"),
    errors.Refused("it refused"),
    errors.NoQuota("none is left"),
    errors.SourcesRefused("one is not shared", 7),
    # A class that is renamed, or a narrower one, changes nothing of what an error means.
    type("Renamed", (errors.NoQuota,), {})("none is left"),
)
NO_PROOFS = (
    errors.BadAnswer("no number"),
    errors.Ambiguous("no answer"),
    errors.Unreachable("silence"),
    errors.DeadlinePassed("late"),
    errors.RunFailed("it failed"),
    DiskError("full"),
    KeyboardInterrupt(),
    TimeUp(),
    ValueError("a fault of ours"),
)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.integers(0, 2).map(Sending),
    st.integers(1, 3).map(lambda number: Made(number, {"url": "made"})),
    st.sampled_from(PROOFS + NO_PROOFS).map(Failed),
    st.just(Absent()),
    st.sampled_from(["COMPLETE", "ERROR"]).map(lambda status: Ended(status, {"score": 0.5})),
    st.just(Pulled("runs/x", {"step": 3})),
)
OPEN, MADE = (State.SENT, State.UNKNOWN), (State.VERSION, State.ENDED, State.PULLED)
NOTHING = (State.REFUSED, State.INCOMPLETE, State.ABSENT)
FINAL = (*NOTHING, State.NOT_SENT, State.GONE)
# Where an answer is in turn. An error may always come, and is told by the last test of the laws.
IN_TURN = {
    Sending: (State.INTENDED,),
    Made: (State.INTENDED, *OPEN),
    Ended: (State.VERSION, State.ENDED),
    Pulled: MADE,
    Absent: (*OPEN, *MADE),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "journal.sqlite"


# The states of a request


@given(st.lists(ANSWERS, max_size=8))
def test_whatever_comes_in_whatever_order_no_state_says_what_nobody_knows(answers):
    """A number that Kaggle gave stays; what may have been sent is not called unsent or refused
    without a proof; and only Kaggle makes a thing gone.
    """
    now = WORDS
    for answer in answers:
        before, now = now, journal.after(now, answer)
        state = before.state
        if isinstance(answer, Failed):
            assert now.state in {state, State.UNKNOWN, State.NOT_SENT, *NOTHING}
            assert (now.state == State.NOT_SENT) == (state in (State.INTENDED, State.NOT_SENT))
        elif state not in IN_TURN[type(answer)]:
            assert now == before
        if before.number:
            assert now.number == before.number
        if state != State.INTENDED:
            assert now.state != State.INTENDED and now.before == before.before
        if state in FINAL:
            assert now == before
        if now.state == State.GONE != state:
            assert isinstance(answer, Absent) and state in MADE
        if now.state in NOTHING and state in OPEN:
            proof = isinstance(answer, Failed) and answer.error in PROOFS and state == State.SENT
            assert isinstance(answer, Absent) or proof
        assert (now.state in MADE) == now.is_made and (now.state in OPEN) == now.is_open


@pytest.mark.parametrize(
    ("answers", "state", "why", "number"),
    [
        ([Sending(0), Made(1, {}), Ended("COMPLETE", {}), Pulled("x", {})], "pulled", "", 1),
        ([Made(4, {}), Ended("READY", {})], "ended", "", 4),  # it was found
        ([Failed(errors.Unreachable("silence"))], "not sent", "silence", 0),
        ([Sending(0), Failed(TimeUp())], "unknown", "TimeUp", 0),
        ([Sending(0), Failed(TimeUp()), Failed(errors.Refused("no"))], "unknown", "no", 0),
        ([Sending(0), Failed(TimeUp()), Made(1, {})], "version", "", 1),
        ([Sending(0), Failed(TimeUp()), Absent()], "absent", "TimeUp", 0),
        ([Sending(0), Failed(PROOFS[5])], "incomplete", "one is not shared", 7),
        ([Sending(0), Made(1, {}), Failed(errors.Refused("no"))], "version", "no", 1),
        ([Sending(0), Made(1, {}), Absent()], "gone", "", 1),
    ],
)
def test_a_request_goes_where_the_answers_lead(answers, state, why, number):
    now = WORDS
    for answer in answers:
        now = journal.after(now, answer)

    assert (now.state, now.why, now.number) == (state, why, number)


@pytest.mark.parametrize("error", PROOFS + NO_PROOFS)
def test_an_error_after_the_call_is_a_refusal_only_if_it_proves_that_nothing_was_made(error):
    sent = journal.after(WORDS, Sending(0))

    assert journal.after(WORDS, Failed(error)).state == State.NOT_SENT
    assert (journal.after(sent, Failed(error)).state in NOTHING) == (error in PROOFS)


# The file


def execute(path: Path, statement: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement)


def python(code: str, path: Path) -> "subprocess.Popen[str]":
    """Start another process that runs this code with the path of a journal."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def test_each_answer_is_on_disk_before_the_next_call(path):
    """A second process, or the next start after a crash, sees how far it got."""
    ours, seen = Journal(path), []
    request = ours.intend(WORDS)
    for answer in (Sending(2), Made(3, {"url": "u"})):
        seen.append(Journal(path).last(PUSH).state)
        request = ours.record(request, answer)

    assert seen == [State.INTENDED, State.SENT]
    (read,) = Journal(path).requests(PUSH, handle=WORDS.handle, state=State.VERSION)
    assert read == request and (read.number, read.url, read.is_ours) == (3, "u", True)
    assert ours.requests(PUBLISH) == []


def test_an_error_is_recorded_from_the_state_that_the_request_is_in_by_then(path):
    """Whatever the body made of it since."""
    ours = Journal(path)
    request = ours.intend(WORDS)

    with pytest.raises(errors.Refused), ours.ended_by_errors(request):
        ours.record(ours.record(request, Sending(0)), Made(1, {}))
        raise errors.Refused("the status is not told")

    assert ours.last(PUSH).state == State.VERSION


OPENS = """
import sys
from pathlib import Path
from deploy.journal import PUSH, Journal, Request
print("ready", flush=True)
sys.stdin.readline()
Journal(Path(sys.argv[1])).intend(Request(PUSH, "digits", "ann/x"))
"""


def test_processes_that_open_a_new_journal_at_once_all_write_into_it(path):
    processes = [python(OPENS, path) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("now\n")
        process.stdin.flush()

    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(Journal(path).requests(PUSH)) == 3


LOCKS = """
import sys
from pathlib import Path
from deploy.journal import Journal
with Journal(Path(sys.argv[1])).locked("push-train"):
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_only_one_process_pushes_at_a_time(path):
    """The other one says who does; the lock ends with its process, however that ends."""
    other = python(LOCKS, path)
    assert other.stdout.readline() == "locked\n"
    ours = Journal(path)

    who = f"push-train, process {other.pid}, since"
    with pytest.raises(errors.Busy, match=who), ours.locked("push-infer"):
        pytest.fail("it is locked")

    other.kill()
    other.wait(60)
    with ours.locked("push-infer") as warning:
        assert warning == ""


def test_no_secret_gets_into_the_file(path):
    """It is searched for as it is stored."""
    ours = Journal(path)
    kept = ours.note(ours.intend(Request(PUSH, "digits", f"ann/{TOKEN}")), url=TOKEN)

    assert TOKEN not in repr(kept) and TOKEN.encode() not in path.read_bytes()
    assert ours.requests(PUSH, handle=f"ann/{TOKEN}") == [kept]


def test_an_entry_of_another_kaggle_is_not_given(path, monkeypatch):
    """A rehearsal's version 1 was once adopted as the site's. Two local ones differ in their port;
    this process speaks to one of them.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4001")
    Journal(path).intend(WORDS)
    site = Journal(path, "api.kaggle.com")

    assert site.last(PUSH) is None
    assert site.elsewhere() == {"127.0.0.1:4001": 1}
    assert Journal(path, "127.0.0.1:4001").elsewhere() == {}
    assert Journal(path).last(PUSH) is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4002")
    assert Journal(path).last(PUSH) is None


def test_a_file_that_is_no_journal_is_a_disk_error(path):
    """The message says how to go on without it."""
    path.parent.mkdir()
    path.write_bytes(b"this is not a database" * 100)

    with pytest.raises(DiskError, match="--run") as caught:
        Journal(path)

    assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_journal_of_another_format_is_refused_and_stays(path):
    """What it says may mean something else by now."""
    execute(path, "CREATE TABLE pushes (id INTEGER PRIMARY KEY, at, outcome, kernel)")
    before = path.read_bytes()

    with pytest.raises(DiskError, match=r"has format 0; expected \d+: .*Move the file away"):
        Journal(path)

    assert path.read_bytes() == before


def test_a_state_that_is_not_known_is_named(path):
    """It is not taken for "may have happened"."""
    Journal(path).intend(WORDS)
    execute(path, "UPDATE requests SET state = 'NoQuota'")

    with pytest.raises(DiskError, match=r"Entry 1 of the journal .* 'NoQuota'"):
        Journal(path).last(PUSH)

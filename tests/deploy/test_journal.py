"""The journal has each request, even if the process died before the answer."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import errors
from deploy.deadline import TimeUp
from deploy.journal import PUBLISH, PUSH, Journal, Request, State, after, failed
from formats.errors import DiskError
from tests.deploy.invoked import ROOT

TOKEN = "KGAT_" + "1f" * 16
WORDS = Request(PUSH, "digits", "ann/digits-train-tpu")
KINDS = (errors.UsageError, errors.Denied, errors.NotFound, errors.Refused, errors.NoQuota)
# A class that is renamed, or a narrower one, changes nothing of what an error means.
PROOFS = [kind("no") for kind in (*KINDS, type("Another", (errors.NoQuota,), {}))]
PROOFS.append(errors.SourcesRefused("one is not shared", 7))
NO_PROOFS = [
    kind("no")
    for kind in (
        *(errors.BadAnswer, errors.Ambiguous, errors.Unreachable, errors.DeadlinePassed),
        *(errors.RunFailed, DiskError, KeyboardInterrupt, ValueError),
    )
]
SAME = None
ANSWERS = (
    *((State.SENT, {"before": 0}), (State.VERSION, {"number": 7, "url": "made"})),
    *((State.ENDED, {"status": "COMPLETE"}), (State.PULLED, {"folder": "runs/x", "step": 3})),
    *((State.ABSENT, {}), errors.Refused("no"), TimeUp()),
)
# What becomes of each state by each of these answers.
AFTER = {
    State.INTENDED: ("sent", "version", SAME, SAME, SAME, "not sent", "not sent"),
    State.SENT: (SAME, "version", SAME, SAME, "absent", "refused", "unknown"),
    State.UNKNOWN: (SAME, "version", SAME, SAME, "absent", SAME, SAME),
    State.VERSION: (SAME, SAME, "ended", "pulled", "gone", SAME, SAME),
    State.ENDED: (SAME, SAME, SAME, "pulled", "gone", SAME, SAME),
    State.PULLED: (SAME, SAME, SAME, SAME, "gone", SAME, SAME),
    **dict.fromkeys(
        (State.NOT_SENT, State.REFUSED, State.INCOMPLETE, State.ABSENT, State.GONE), (SAME,) * 7
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "journal.sqlite"


# The states of a request


@pytest.mark.parametrize("state", State)
def test_an_answer_changes_the_state_only_if_it_proves_something(state):
    """A number from Kaggle is kept."""
    request = replace(WORDS, state=state, number=3)

    for answer, expected in zip(ANSWERS, AFTER[state], strict=True):
        is_error = isinstance(answer, BaseException)
        now = failed(request, answer) if is_error else after(request, answer[0], **answer[1])
        assert now.state == (expected or state), answer
        assert now.number == (7 if expected == "version" else 3)
        assert now.before == (0 if expected == "sent" else None)


@pytest.mark.parametrize("error", PROOFS + NO_PROOFS)
def test_an_error_after_the_call_is_a_refusal_only_if_it_proves_that_nothing_was_made(error):
    now = failed(replace(WORDS, state=State.SENT), error)

    known = (State.INCOMPLETE, 7) if isinstance(error, errors.SourcesRefused) else ("refused", 0)
    assert (now.state, now.number) == (known if error in PROOFS else (State.UNKNOWN, 0))


# The file


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement)


def test_each_answer_is_on_disk_before_the_next_call(path):
    """A second process, or the next start after a crash, sees how far it got."""
    ours, seen = Journal(path), []
    request = ours.intend(WORDS)
    for state, known in ((State.SENT, {"before": 2}), (State.VERSION, {"number": 3})):
        seen.append(Journal(path).last(PUSH).state)
        request = ours.record(request, state, **known)

    assert seen == [State.INTENDED, State.SENT]
    assert Journal(path).requests(PUSH, state=State.VERSION) == [request] and request.is_ours
    assert ours.requests(PUBLISH) == []
    found = after(after(WORDS, State.SENT, before=3), State.VERSION, number=3)
    assert not found.is_ours  # it was there before the call


def test_an_error_is_recorded_in_the_current_state_of_the_request(path):
    ours = Journal(path)
    request = ours.intend(WORDS)

    with pytest.raises(errors.Refused), ours.ended_by_errors(request):
        request = ours.record(request, State.SENT, before=0)
        ours.record(request, State.VERSION, number=1)
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


def test_processes_that_open_a_new_journal_at_the_same_time_can_all_write(path):
    pipe, command = subprocess.PIPE, [sys.executable, "-c", OPENS, str(path)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("now\n")
        process.stdin.flush()

    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(Journal(path).requests(PUSH)) == 3


def test_no_secret_gets_into_the_file(path):
    """It is looked up as it is stored."""
    ours = Journal(path)
    kept = ours.note(ours.intend(Request(PUSH, "digits", f"ann/{TOKEN}")), url=TOKEN)

    assert TOKEN not in repr(kept) and TOKEN.encode() not in path.read_bytes()
    assert ours.requests(PUSH, handle=f"ann/{TOKEN}") == [kept]


def test_an_entry_of_another_kaggle_is_not_returned(path, monkeypatch):
    """A rehearsal's version 1 was once adopted as the site's. Two local Kaggles differ in their
    port.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4001")
    Journal(path).intend(WORDS)
    site = Journal(path, "api.kaggle.com")

    assert site.last(PUSH) is None
    assert Journal(path).last(PUSH) is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4002")
    assert Journal(path).last(PUSH) is None


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda path: path.write_bytes(b"no database" * 100), r"(?s)cannot be used.*--run"),
        # What it says may mean something else by now.
        (lambda path: execute(path, "CREATE TABLE pushes (at)"), r"format 0; expected \d+.*--run"),
    ],
)
def test_a_file_of_another_format_is_refused_and_kept(path, made, said):
    """The message says how to go on without it."""
    path.parent.mkdir()
    made(path)
    before = path.read_bytes()

    with pytest.raises(DiskError, match=said):
        Journal(path)

    assert path.read_bytes() == before

"""The journal knows what was intended even when the process did not live to see the outcome."""

import sqlite3
from contextlib import closing

import pytest

from deploy.errors import Denied, NoQuota, Refused
from deploy.journal import DONE, NOT_MADE, Journal, Outcome
from formats.errors import DiskError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "journal.sqlite"


def note(journal, error=None, **values):
    """Record a push that ends so, or fails with this error; return the journal."""
    with journal.recording("pushes", kernel="train-tpu") as outcome:
        outcome.update(values)
        if error is not None:
            raise error
    return journal


def execute(path, statement):
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement)


def test_the_intent_is_on_disk_before_the_call(path):
    """A second process, or the next start after a crash, sees it."""
    with Journal(path).recording("pushes", kernel="train-tpu") as outcome:
        seen = Journal(path).last("pushes", kernel="train-tpu")
        outcome.update(version=3)

    assert seen["outcome"] == "intended"
    assert Journal(path).last("pushes", outcome="done")["version"] == 3


@pytest.mark.parametrize(
    ("error", "made", "outcomes"),
    [
        (Refused("no"), False, {Outcome.REFUSED}),
        # A class that is renamed, or a narrower one, changes nothing of what old entries mean.
        (type("Renamed", (NoQuota,), {})("no"), False, {Outcome.NO_QUOTA}),
        # Kaggle may refuse to tell of what it has just made.
        (Denied("no"), True, {*Outcome} - {DONE, *NOT_MADE}),
    ],
)
def test_a_failed_call_leaves_its_kind(path, error, made, outcomes):
    """So that a version is never taken from it."""
    journal = Journal(path)

    with pytest.raises(type(error)):
        note(journal, error, made=made)

    assert journal.last("pushes", outcome="done") is None
    assert journal.recent("pushes", 5)[0]["outcome"] in outcomes


def test_a_column_that_is_not_listed_is_refused(path):
    """Names become part of a statement, and nothing secret has a column."""
    with pytest.raises(KeyError, match="no columns"):
        note(Journal(path), token="x")  # noqa: S106


def test_an_entry_of_another_kaggle_is_not_given(path, monkeypatch):
    """A rehearsal's version 1 was once adopted as the site's. Two local ones differ in their port;
    this process speaks to one of them.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4001")
    note(Journal(path), version=1)
    site = Journal(path, "api.kaggle.com")

    assert site.last("pushes", kernel="train-tpu") is None
    assert site.elsewhere() == {"127.0.0.1:4001": 1}
    assert Journal(path, "127.0.0.1:4001").elsewhere() == {}
    assert Journal(path).last("pushes") is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4002")
    assert Journal(path).last("pushes") is None


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

    with pytest.raises(DiskError, match=r"has format 0; expected 2: .*Move the file away"):
        Journal(path)

    assert path.read_bytes() == before


def test_an_outcome_that_is_not_known_is_named(path):
    """It is not taken for "may have happened"."""
    note(Journal(path))
    execute(path, "UPDATE pushes SET outcome = 'NoQuota'")

    with pytest.raises(DiskError, match=r"Entry 1 of pushes .* has the outcome 'NoQuota'"):
        Journal(path).recent("pushes", 1)

"""The journal knows what was intended even when the process did not live to see the outcome."""

import sqlite3
from contextlib import closing

import pytest

from deploy.errors import Denied, DiskError, NoQuota, Refused
from deploy.journal import DONE, NOT_MADE, Journal, Outcome


def test_the_intent_is_on_disk_before_the_call(tmp_path):
    """A second process, or the next start after a crash, sees it."""
    path = tmp_path / "runs" / "journal.sqlite"

    with Journal(path).recording("pushes", kernel="train-tpu") as outcome:
        seen = Journal(path).last("pushes", kernel="train-tpu")
        outcome.update(version=3)

    assert seen is not None and seen["outcome"] == "intended"
    after = Journal(path).last("pushes", outcome="done")
    assert after is not None and after["version"] == 3


def test_a_failed_call_leaves_its_kind(tmp_path):
    """So that a version is never taken from it."""
    journal = Journal(tmp_path / "journal.sqlite")

    with pytest.raises(Refused), journal.recording("pushes", kernel="train-tpu"):
        raise Refused("no")

    assert journal.last("pushes", outcome="done") is None
    assert journal.recent("pushes", 5)[0]["outcome"] == Outcome.REFUSED


def test_the_newest_comes_first(tmp_path):
    """The last that we made ourselves; two pushes may fall into one second."""
    journal = Journal(tmp_path / "journal.sqlite")
    for version in (1, 2, 3):
        with journal.recording("pushes", kernel="train-tpu") as outcome:
            outcome.update(version=version)

    assert [row["version"] for row in journal.recent("pushes", 2)] == [3, 2]


def test_a_column_that_is_not_listed_is_refused(tmp_path):
    """Names become part of a statement, and nothing secret has a column."""
    with (
        pytest.raises(KeyError, match="no columns"),
        Journal(tmp_path / "j").recording("pushes", token="x"),  # noqa: S106
    ):
        pass


def test_a_file_that_is_no_journal_is_a_disk_error(tmp_path):
    """The message says how to go on without it."""
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is not a database" * 100)

    with pytest.raises(DiskError, match="--run") as caught:
        Journal(path)

    assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_an_entry_of_another_kaggle_is_not_given(tmp_path):
    """A rehearsal's version 1 was once adopted as the site's."""
    path = tmp_path / "journal.sqlite"
    with Journal(path, "127.0.0.1:4001").recording("pushes", kernel="train-tpu") as outcome:
        outcome.update(version=1)

    site = Journal(path, "api.kaggle.com")

    assert site.last("pushes", kernel="train-tpu") is None
    assert site.elsewhere() == {"127.0.0.1:4001": 1}
    assert Journal(path, "127.0.0.1:4001").elsewhere() == {}


def test_the_kaggle_of_a_journal_is_the_one_that_this_process_speaks_to(tmp_path, monkeypatch):
    """Two local ones differ in their port."""
    path = tmp_path / "journal.sqlite"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4001")
    with Journal(path).recording("pushes", kernel="train-tpu"):
        pass
    assert Journal(path).last("pushes") is not None

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:4002")

    assert Journal(path).last("pushes") is None


def test_a_journal_of_another_format_is_refused_and_stays(tmp_path):
    """What it says may mean something else by now."""
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE pushes (id INTEGER PRIMARY KEY, at, outcome, kernel)")
    before = path.read_bytes()

    with pytest.raises(DiskError, match=r"has format 0; expected 2: .*Move the file away"):
        Journal(path)

    assert path.read_bytes() == before


def test_an_outcome_does_not_depend_on_the_name_of_an_error(tmp_path):
    """A class that is renamed, or a narrower one, must not change what old entries mean."""

    class Renamed(NoQuota):
        pass

    journal = Journal(tmp_path / "journal.sqlite")
    with pytest.raises(NoQuota), journal.recording("pushes", kernel="train-tpu"):
        raise Renamed("no")

    row = journal.recent("pushes", 1)[0]
    assert row["outcome"] == Outcome.NO_QUOTA and row["outcome"] in NOT_MADE


def test_an_error_after_the_call_was_accepted_proves_nothing(tmp_path):
    """Kaggle may refuse to tell of what it has just made."""
    journal = Journal(tmp_path / "journal.sqlite")
    with pytest.raises(Denied), journal.recording("publishes", handle="ann/x") as outcome:
        outcome["made"] = True
        raise Denied("no")

    assert journal.recent("publishes", 1)[0]["outcome"] not in (DONE, *NOT_MADE)


def test_an_outcome_that_is_not_known_is_named(tmp_path):
    """It is not taken for "may have happened"."""
    path = tmp_path / "journal.sqlite"
    with Journal(path).recording("pushes", kernel="train-tpu"):
        pass
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("UPDATE pushes SET outcome = 'NoQuota'")

    with pytest.raises(DiskError, match=r"Entry 1 of pushes .* has the outcome 'NoQuota'"):
        Journal(path).recent("pushes", 1)

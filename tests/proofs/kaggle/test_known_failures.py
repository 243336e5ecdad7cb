"""Every known failure between a client and Kaggle ends as documented: the rows K01 to K50."""

import os
import shutil
from dataclasses import replace
from typing import Any

import pytest

from deploy.client import secrets
from deploy.relay import published
from localkaggle.services.uploads import Uploads
from pipeline import artifact
from proofs.kaggle import known_failures, wrong_weights
from proofs.kaggle.failure_cases import CASES
from proofs.kaggle.known_failures import ELSEWHERE, Outcome

BY_ID = {case.id: case for case in CASES}


@pytest.fixture(scope="module")
def rows() -> dict[str, Outcome]:
    """All rows, tried once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_known", set())  # the keys of these Kaggles are nobody's afterwards
        return {outcome.id: outcome for outcome in known_failures.rows()}


@pytest.mark.parametrize("name", known_failures.ROWS)
def test_a_row_ends_as_documented(rows, name):
    """By its exit code, a word of its message, and what Kaggle holds then."""
    assert rows[name].passed, (
        f"{name}, {rows[name].what}: expected {rows[name].expected}; got {rows[name].got}"
    )


def test_no_row_is_missing_and_none_is_there_twice(rows):
    """A row that nobody tries would pass for ever."""
    named = [*BY_ID, *ELSEWHERE, "K29"]

    assert sorted(named) == sorted(rows) == list(known_failures.ROWS)
    assert len(CASES) == len(BY_ID)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"code": 0}, "exit 7"),
        ({"word": "a word that no message has"}, "No TPU time is left"),
        ({"made": (1, 0, 0)}, "made (0, 0, 0)"),
        ({"so": lambda world: False}, "something else"),
    ],
)
def test_a_row_that_ends_otherwise_is_told(change, said):
    """The code, the word, what was made, what else was promised: each counts alone."""
    (outcome,) = known_failures.outcomes([replace(BY_ID["K16"], **change)])

    assert not outcome.passed and said in outcome.got


def test_a_row_without_its_test_is_told():
    """Tests are renamed."""
    test = "tests/pipeline/runtime/test_mounts.py::test_that_was_renamed"

    assert not known_failures.elsewhere("K24", "why", test).passed


def test_a_publish_after_a_killed_one_is_whole():
    """Whatever was uploaded before the kill."""
    row = wrong_weights.hybrid(3, seed=1)

    assert row.passed, row.figure


def test_a_storage_that_mixes_uploads_is_noticed(monkeypatch):
    """As where a resumed upload keeps what came before: the bytes that came back are not those that
    were sent.
    """
    receive = Uploads.receive

    def keeping(self: Uploads, token: str, *request: Any) -> tuple[int, dict[str, str]]:
        answer = receive(self, token, *request)
        blob = self.blobs[token]
        older = [
            other
            for other in self.blobs.values()
            if other.done and (other.name, other.size) == (blob.name, blob.size)
        ]
        if older[0] is not blob:
            shutil.copyfile(older[0].path, blob.path)
        return answer

    monkeypatch.setattr(Uploads, "receive", keeping)

    row = wrong_weights.hybrid(3, seed=1)

    assert not row.passed and "other bytes than were sent" in row.figure


def test_the_weights_of_another_run_are_refused_at_home_and_on_kaggle():
    """By push-infer while nothing is spent, and by infer whatever is mounted."""
    row = wrong_weights.stale(3, seed=1)

    assert row.passed, row.figure


def test_rows_leave_the_environment_as_it_was(monkeypatch):
    """They sign in to Kaggles of their own."""
    monkeypatch.setenv("KAGGLE_USERNAME", "ann")

    known_failures.outcomes([BY_ID["K48"]])

    assert (
        os.environ["KAGGLE_USERNAME"] == "ann"
        and os.environ["KAGGLE_API_ENVIRONMENT"] == "LOCALHOST"
    )


@pytest.mark.parametrize(
    ("where", "name", "said"),
    [
        (published, "require_current", "push-infer: pushed for what is not mounted"),
        (artifact, "load", "infer: took the weights of another run"),
    ],
)
def test_a_side_that_takes_the_weights_of_another_run_is_noticed(monkeypatch, where, name, said):
    """At home, and on Kaggle: each is looked at alone."""
    monkeypatch.setattr(where, name, lambda *given, **named: None)

    row = wrong_weights.stale(4, seed=1)

    assert not row.passed and said in row.figure

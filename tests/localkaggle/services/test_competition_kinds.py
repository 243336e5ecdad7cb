"""Competitions take notebooks or files, and have limits of their own; an account may lack what they
ask for.
"""

from dataclasses import replace
from functools import partial

import kagglesdk.competitions.types.competition_api_service as types
import pytest
import requests

from localkaggle.competitions import EMBEDDED
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import Scripted, ran, refused
from tests.localkaggle.services.test_submissions import (
    FOR_EVER,
    SMALL,
    allowed_now,
    ask,
    complete,
    listed,
    nothing_was_spent,
    submit,
)

BY_FILE = replace(SMALL, takes_files=True, hidden_test=SMALL.visible_test, solution={})
RIGHT = b"id,label\nseen,1\n"


@pytest.fixture
def by_file(start) -> LocalKaggle:
    """Return a local Kaggle with a competition that takes files."""
    solved = replace(BY_FILE, solution={"label": {"seen": "1"}})
    return start(competitions=[solved], queue_seconds=FOR_EVER)


def upload(client, content: bytes = RIGHT, text: str = "") -> int:
    """Upload a file, submit it, and return the submission's number."""
    announced = ask(
        client, "start_submission_upload", file_name="answers.csv", content_length=len(content)
    )
    assert requests.put(announced.create_url, data=content, timeout=30).status_code == 200
    fields = {"blob_file_tokens": announced.token, "submission_description": text}
    return ask(client, "create_submission", **fields).ref


def scored(kaggle: LocalKaggle, client, ref: int):
    """Return a submission at its end."""
    kaggle.submissions.submissions[ref].thread.join(60)
    return ask(client, "get_submission", ref=ref)


@pytest.mark.parametrize("takes_files", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_competition_says_what_it_takes_and_until_when(start, client, takes_files, closed):
    """And that this account takes part."""
    kaggle = start(competitions=[replace(SMALL, takes_files=takes_files, closed=closed)])

    about = ask(client(kaggle), "get_competition")

    assert (about.is_kernels_submissions_only, about.submissions_disabled) == (
        not takes_files,
        closed,
    )
    assert (about.title, about.max_daily_submissions, about.user_has_entered) == (
        "Small Things",
        2,
        True,
    )
    assert about.merger_deadline < about.deadline


def test_a_competition_that_is_not_hosted_is_not_described(start, client):
    """404."""
    with refused(404, "Not found"):
        ask(client(start(competitions=[SMALL])), "get_competition", competition_name="titanic")


def test_one_embedded_competition_takes_files_and_one_gives_two_hours_of_a_gpu():
    """The digits in a table are a CSV competition, as the Digit Recognizer is."""
    made = {slug: build() for slug, build in EMBEDDED.items()}

    assert [slug for slug, one in made.items() if one.takes_files] == ["digits-csv"]
    assert {slug: one.gpu_seconds for slug, one in made.items() if one.gpu_seconds} == {
        "cells": 7200
    }


def test_a_file_is_scored_as_it_is(by_file, client):
    """Nothing reruns, and its name may be any."""
    connected = client(by_file)

    item = scored(by_file, connected, upload(connected, text="by hand"))

    assert (item.status.name, item.public_score, item.error_description) == (
        "COMPLETE",
        "1.00000",
        "",
    )
    assert (item.description, item.file_name, item.total_bytes) == (
        "by hand",
        "answers.csv",
        len(RIGHT),
    )
    assert not [*by_file.folder.rglob("rerun-*")]


def test_a_file_that_cannot_be_scored_is_spent_all_the_same(by_file, client):
    """With Kaggle's name for it."""
    connected = client(by_file)

    item = scored(by_file, connected, upload(connected, b"id,label\nother,1\n"))

    assert (item.status.name, item.public_score) == ("ERROR", "")
    assert item.error_description.startswith("Submission Scoring Error: Submission ids")
    assert allowed_now(connected) == SMALL.daily_submissions - 1


def test_a_day_has_only_so_many_files(by_file, client):
    """A refused one does not count."""
    connected = client(by_file)
    for _ in range(SMALL.daily_submissions):
        upload(connected)

    said = "Submission not allowed: Your team has used its daily Submission allowance (2) today"
    with refused(400, exactly=said):
        upload(connected)

    assert len(listed(connected)) == 2


def test_what_was_never_uploaded_is_not_submitted(by_file, client):
    """Neither a token that nobody gave, nor one of an upload that never came."""
    connected = client(by_file)
    announced = ask(connected, "start_submission_upload", file_name="a.csv", content_length=3)

    for token in ("blob-999999", announced.token):
        with refused(400, "never uploaded"):
            ask(connected, "create_submission", blob_file_tokens=token)

    assert nothing_was_spent(by_file, connected)


def test_a_competition_for_files_takes_no_notebook(by_file, client):
    """It costs nothing."""
    connected = client(by_file)
    complete(by_file, connected)

    said = "This competition does not accept Submissions from Notebooks."
    with refused(400, exactly=f"Submission not allowed: {said}"):
        submit(connected)

    assert nothing_was_spent(by_file, connected)


@pytest.mark.parametrize(
    ("shape", "minutes", "taken"),
    [("NvidiaTeslaT4", 233, False), ("NvidiaTeslaT4", 119, True), ("", 233, True)],
)
def test_a_notebook_that_took_longer_than_the_competition_gives_a_gpu_is_refused(
    start, client, shape, minutes, taken
):
    """A CPU has a limit of its own; a refusal costs nothing."""
    kaggle = start(competitions=[replace(SMALL, gpu_seconds=7200)], queue_seconds=FOR_EVER)
    connected = client(kaggle)
    complete(kaggle, connected, machine_shape=shape).seconds = 60.0 * minutes

    if taken:
        assert submit(connected).ref
        return
    said = (
        "Submission not allowed: Your Notebook's runtime of 233 minutes exceeds this competition's"
        " GPU max of 120 minutes."
    )
    with refused(400, exactly=said):
        submit(connected)
    assert nothing_was_spent(kaggle, connected)


def test_an_output_is_listed_some_time_after_the_end(start, client):
    """A submission before that is spent, and finds no file."""

    def act(session: Scripted) -> None:
        (session.working / "submission.csv").write_text("id,label\nseen,0\n")

    facts = Facts(listing_seconds=FOR_EVER)
    kaggle = start(competitions=[SMALL], session=partial(Scripted, act), facts=facts)
    connected = client(kaggle)
    version = ran(kaggle, connected, "1", competition_data_sources=["small"])

    assert (version.status, version.files()) == ("COMPLETE", [])
    item = ask(connected, "get_submission", ref=submit(connected).ref)
    assert (item.status.name, item.total_bytes) == ("ERROR", 0)
    assert item.error_description == "Submission CSV Not Found"
    assert allowed_now(connected) == SMALL.daily_submissions - 1
    version.listed_at = 0.0
    assert version.files() == ["submission.csv"]


def test_a_score_may_be_hidden(start, client):
    """The submission is complete, and has none to show."""
    solved = replace(BY_FILE, solution={"label": {"seen": "1"}})
    kaggle = start(competitions=[solved], facts=Facts(scores=False))
    connected = client(kaggle)

    item = scored(kaggle, connected, upload(connected))

    assert (item.status.name, item.public_score, item.error_description) == ("COMPLETE", "", "")


def test_a_closed_competition_takes_nothing(start, client):
    """In Kaggle's words."""
    kaggle = start(competitions=[replace(BY_FILE, closed=True)])

    said = "Submission not allowed: Submissions have been disabled for this competition."
    with refused(400, exactly=said):
        upload(client(kaggle))


@pytest.mark.parametrize("method", ["download_data_file", "download_data_files"])
def test_who_has_not_accepted_the_rules_gets_no_file(start, client, method):
    """Their names are listed for everybody."""
    kaggle = start(competitions=[SMALL], facts=Facts(gate="rules"))
    connected = client(kaggle)

    with refused(403, "You must accept this competition's rules"):
        ask(connected, method, **({"file_name": "train.csv"} if method.endswith("file") else {}))

    assert ask(connected, "list_data_files").files
    assert not ask(connected, "get_competition").user_has_entered
    for asked in ("list_submissions", "get_submission_limits", "start_submission_upload"):
        with refused(403, r"Permission 'competitions\.participate' was denied"):
            fields = {"file_name": "a"} if asked.startswith("start") else {}
            ask(connected, asked, **fields)


@pytest.mark.parametrize(
    ("gate", "said"), [("phone", "phone"), ("identity", "identity"), ("captcha", "captcha")]
)
def test_an_account_that_lacks_something_submits_nothing(start, client, gate, said):
    """It takes part, and may download."""
    kaggle = start(competitions=[SMALL], queue_seconds=FOR_EVER, facts=Facts(gate=gate))
    connected = client(kaggle)
    complete(kaggle, connected)

    with refused(403, said):
        submit(connected)

    assert nothing_was_spent(kaggle, connected)
    request = make(
        types.ApiDownloadDataFileRequest, competition_name="small", file_name="train.csv"
    )
    assert connected.competitions.competition_api_client.download_data_file(request).ok

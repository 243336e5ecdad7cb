"""Leaderboards: the best submission of each user, in the order of the competition's metric."""

import csv
import io
import zipfile
from datetime import datetime

import kagglesdk.competitions.types.competition_api_service as types
import pytest

from localkaggle.competitions import Competition
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from localkaggle.services.scoring import Submission
from tests.localkaggle.pushed_notebooks import refused

SCORED = (("rehearsal", 0.5), ("rehearsal", 0.25), ("stranger", 0.375), ("stranger", None))


@pytest.fixture
def ranked(start):
    """Return a function that gives a local Kaggle with these scores in a competition."""

    def host(*, lower_is_better: bool) -> LocalKaggle:
        small = Competition(
            "small", "Small", {}, {}, {}, {}, lambda given, solution: 1.0, lower_is_better
        )
        kaggle = start(competitions=(small,))
        for ref, (user, score) in enumerate(SCORED, 1):
            kaggle.submissions.submissions[ref] = Submission(
                ref, "small", user, "", datetime(2026, 1, ref), status="COMPLETE", score=score
            )
        return kaggle

    return host


def board(client, **fields):
    request = make(types.ApiGetLeaderboardRequest, **{"competition_name": "small", **fields})
    return client.competitions.competition_api_client.get_leaderboard(request)


@pytest.mark.parametrize(
    ("lower_is_better", "expected"),
    [
        (False, [("rehearsal", "0.50000"), ("stranger", "0.37500")]),
        (True, [("rehearsal", "0.25000"), ("stranger", "0.37500")]),
    ],
)
def test_a_team_has_its_best_score(ranked, client, lower_is_better, expected):
    """What was never scored is not there."""
    answer = board(client(ranked(lower_is_better=lower_is_better)))

    assert [(team.team_name, team.score) for team in answer.submissions] == expected


def test_a_leaderboard_has_pages(ranked, client):
    """Each page leads to the next."""
    connected = client(ranked(lower_is_better=True))

    first = board(connected, page_size=1)
    second = board(connected, page_size=1, page_token=first.next_page_token)

    assert [page.submissions[0].team_name for page in (first, second)] == ["rehearsal", "stranger"]
    assert second.next_page_token == ""


def test_a_leaderboard_is_downloaded_as_a_zipped_table(ranked, client):
    """The same teams, scores and numbers."""
    connected = client(ranked(lower_is_better=False))
    request = make(types.ApiDownloadLeaderboardRequest, competition_name="small")

    got = connected.competitions.competition_api_client.download_leaderboard(request)

    with zipfile.ZipFile(io.BytesIO(got.content)) as file:
        rows = list(csv.DictReader(io.StringIO(file.read(file.namelist()[0]).decode())))
    assert [(int(row["TeamId"]), row["TeamName"], row["Score"]) for row in rows] == [
        (team.team_id, team.team_name, team.score) for team in board(connected).submissions
    ]


def test_a_competition_that_is_not_hosted_has_no_leaderboard(ranked, client):
    """That is no call that is not served: the answer is the site's."""
    with refused(404, exactly="Not found"):
        board(client(ranked(lower_is_better=True)), competition_name="large")

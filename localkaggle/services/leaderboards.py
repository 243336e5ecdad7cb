"""Leaderboards: the best score of each user in a competition."""

import csv
import io
import zipfile
from typing import Any

import kagglesdk.competitions.types.competition_api_service as types

from localkaggle.competitions.hosted import Hosted
from localkaggle.services.protocol import ApiError, make, page
from localkaggle.services.scoring import Submission
from localkaggle.services.storage import Redirect, Storage
from localkaggle.services.submissions import Submissions

HEADER = ("TeamId", "TeamName", "SubmissionDate", "Score")


class Leaderboards:
    """The leaderboards of `competitions.CompetitionApiService`. A user is a team of one.

    Args:
        storage: of the server.
        competitions: by slug.
        submissions: that are ranked.
    """

    def __init__(self, storage: Storage, competitions: Hosted, submissions: Submissions) -> None:
        self._storage, self._competitions, self._submissions = storage, competitions, submissions

    def GetLeaderboard(self, request: Any, user: str) -> Any:
        """List a page of a leaderboard, the best first."""
        ranked, token = page(self._ranked(request), request.page_token, request.page_size)
        return make(
            types.ApiGetLeaderboardResponse,
            submissions=[
                make(
                    types.ApiLeaderboardSubmission,
                    team_id=team,
                    team_name=best.user,
                    submission_date=best.date,
                    score=f"{best.score:.5f}",
                )
                for team, best in ranked
            ],
            next_page_token=token,
        )

    def DownloadLeaderboard(self, request: Any, user: str) -> Any:
        """Redirect to a zip with the leaderboard as a CSV."""
        text = io.StringIO(newline="")
        table = csv.writer(text)
        table.writerow(HEADER)
        for team, best in self._ranked(request):
            date = best.date.isoformat(" ", "seconds")
            table.writerow([team, best.user, date, f"{best.score:.5f}"])
        name, archive = request.competition_name, self._storage.fresh()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(f"{name}-publicleaderboard.csv", text.getvalue())
        raise Redirect(self._storage.share(f"{name}.zip", archive))

    def _ranked(self, request: Any) -> list[tuple[int, Submission]]:
        """Return team and best submission of each user, the best first; of equals the oldest."""
        competition = self._competitions.get(request.competition_name or "")
        if competition is None:
            raise ApiError(404, "Not found")
        sign = 1 if competition.lower_is_better else -1
        teams: dict[str, int] = {}
        scored = list[tuple[float, Submission]]()
        for item in self._submissions.submissions.values():
            if item.competition == competition.slug and item.score is not None:
                teams.setdefault(item.user, item.ref)
                scored.append((sign * item.score, item))
        best: dict[str, Submission] = {}
        for _, item in sorted(scored, key=lambda pair: (pair[0], pair[1].ref)):
            best.setdefault(item.user, item)
        return [(teams[user], item) for user, item in best.items()]

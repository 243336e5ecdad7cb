"""The competition service, which accepts and scores submissions.

A competition accepts either notebooks or files. A submitted notebook is rerun on the hidden test
set, and the output of the rerun is scored. A file is scored directly. The names of the six errors
that can end a rerun come from kaggle.com/code-competition-debugging, as quoted on public pages as
of 2026-11-21.
"""

import math
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import BadRequest, Forbidden, NotFound

from localkaggle.competitions import Competition, ScoringError
from localkaggle.services.kernels import Version
from localkaggle.services.protocol import Json, file_in, file_names, listed, page
from localkaggle.services.state import NOT_KEPT
from localkaggle.sessions.machine_shapes import kind_of
from localkaggle.sessions.session import Session

if TYPE_CHECKING:
    from localkaggle.server import LocalKaggle

FILE = "submission.csv"
NOT_FOUND = "Submission CSV Not Found"
ERRORS = {
    "": "",
    "time": "Notebook Timeout",
    "exception": "Notebook Threw Exception",
    "cancelled": "Kaggle Error",
    **dict.fromkeys(("memory", "killed"), "Notebook Exceeded Allowed Compute"),
}
TEAMS_END, ENDS = "2029-12-24T23:59:00Z", "2029-12-31T23:59:00Z"


@dataclass
class Submission:
    """A submission and its status."""

    ref: int
    competition: str
    description: str
    date: str
    file_name: str = FILE
    status: str = "PENDING"
    score: float | None = None
    error: str = ""
    session: Session | None = field(default=None, metadata=NOT_KEPT)
    thread: threading.Thread | None = field(default=None, repr=False, metadata=NOT_KEPT)

    def end(self, error: str) -> None:
        self.error, self.status = error, "ERROR" if error else "COMPLETE"


def refused(why: str) -> BadRequest:
    """Return the error for a refused submission. It does not count towards the daily limit."""
    return BadRequest(f"Submission not allowed: {why}")


class Submissions:
    """`competitions.CompetitionApiService`. Reruns use the `sessions` folder of the site."""

    KEPT = ("submissions",)

    def __init__(self, site: "LocalKaggle") -> None:
        self.submissions: dict[int, Submission] = {}
        self._site = site

    # Competitions

    def GetCompetition(self, request: Any, user: str) -> Json:
        competition = self._competition(request)
        address = f"https://www.kaggle.com/competitions/{competition.slug}"
        return {
            "id": list(self._site.competitions).index(competition.slug) + 1,
            "ref": address,
            "url": address,
            "title": competition.title,
            "userHasEntered": self._site.facts.gate != "rules",
            "isKernelsSubmissionsOnly": not competition.takes_files,
            "submissionsDisabled": competition.closed,
            "maxDailySubmissions": competition.daily_submissions,
            **dict.fromkeys(("mergerDeadline", "newEntrantDeadline"), TEAMS_END),
            "deadline": ENDS,
        }

    # Data

    def ListDataFiles(self, request: Any, user: str) -> Json:
        folder = self._site.competitions.folder(self._competition(request).slug)
        names, token = page(file_names(folder), request, most=1000)
        return {"files": listed(folder, names), "nextPageToken": token}

    def DownloadDataFile(self, request: Any, user: str) -> Path:
        folder = self._site.competitions.folder(self._competition(request).slug)
        return file_in(folder, request.file_name)

    def DownloadDataFiles(self, request: Any, user: str) -> Path:
        return self._site.competitions.archive(self._competition(request).slug)

    # Submissions

    def CreateCodeSubmission(self, request: Any, user: str) -> Json:
        competition = self._open(request)
        if not request.kernel_version:
            raise Forbidden("Permission 'kernelSessions.get' was denied")
        handle = f"{request.kernel_owner}/{request.kernel_slug}"
        version = self._site.kernels.version(handle, request.kernel_version)
        if version is None:
            raise NotFound("Kernel version not found")
        _require_fit(competition, version, request.file_name or "")
        submission = self._spend(competition, request.submission_description, FILE)
        if not version.listed:  # it has no score, but counts towards the limit
            submission.end(NOT_FOUND)
            return _submitted(submission, competition)
        folder = self._site.folder / "sessions" / f"rerun-{submission.ref}"
        submission.session = self._site.kernels.open_session(version, folder, rerun=True)
        return self._start(submission, competition, submission.session.working / FILE)

    def StartSubmissionUpload(self, request: Any, user: str) -> Json:
        self._open(request)
        return self._site.uploads.announce(request.file_name, request.content_length)

    def CreateSubmission(self, request: Any, user: str) -> Json:
        competition = self._open(request)
        if not competition.takes_files:
            raise refused(f"{competition.title} only accepts Submissions from Notebooks.")
        blob = self._site.uploads.complete(request.blob_file_tokens or "")
        submission = self._spend(competition, request.submission_description, blob.name)
        return self._start(submission, competition, blob.path)

    def GetSubmission(self, request: Any, user: str) -> Json:
        if request.ref not in self.submissions:
            raise NotFound("Not found")
        return self._described(self.submissions[request.ref])

    def ListSubmissions(self, request: Any, user: str) -> Json:
        submissions = reversed(self._sent(self._competition(request)))
        return {"submissions": [self._described(item) for item in submissions]}

    def GetSubmissionLimits(self, request: Any, user: str) -> Json:
        competition = self._competition(request)
        used = len(self._sent(competition))
        left = max(competition.daily_submissions - used, 0)
        return {"numToday": used, "numTotal": used, "numAllowedNow": left}

    def interrupt(self) -> None:
        """Mark submissions as failed if an earlier server was killed while scoring them."""
        for submission in self.submissions.values():
            if submission.status == "PENDING":
                submission.end(ERRORS["cancelled"])

    def close(self) -> None:
        for submission in self.submissions.values():
            if submission.session is not None:
                submission.session.cancel()
            if submission.thread is not None:
                submission.thread.join(30)

    # Checks

    def _competition(self, request: Any) -> Competition:
        competition = self._site.competitions.get(request.competition_name or "")
        if competition is None:
            raise NotFound("Not found")
        return competition

    def _open(self, request: Any) -> Competition:
        competition = self._competition(request)
        if competition.closed:
            raise refused("Submissions have been disabled for this competition.")
        return competition

    def _sent(self, competition: Competition) -> list[Submission]:
        found = self.submissions.values()
        return [submission for submission in found if submission.competition == competition.slug]

    def _spend(self, competition: Competition, description: str, name: str) -> Submission:
        used = len(self._sent(competition))
        if used >= competition.daily_submissions:
            raise refused(f"Your team has used its daily Submission allowance ({used}) today")
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        ref = len(self.submissions) + 40_000_001
        made = Submission(ref, competition.slug, description or "", f"{now}Z", name)
        self.submissions[ref] = made
        return made

    # Scores

    def _start(self, submission: Submission, competition: Competition, file: Path) -> Json:
        arguments = (submission, competition, file)
        submission.thread = threading.Thread(target=self._score, args=arguments, daemon=True)
        submission.thread.start()
        return _submitted(submission, competition)

    def _score(self, submission: Submission, competition: Competition, file: Path) -> None:
        score, error = None, ""
        try:
            if submission.session is not None:
                error = ERRORS[submission.session.run().reason]
            if not error and not file.is_file():
                error = NOT_FOUND
            if not error:
                score = competition.judge(file)
        except ScoringError as failed:
            error = f"Submission Scoring Error: {failed}"
        except Exception as failed:
            # This is not the notebook's fault. Unlike Kaggle, add the type for debugging.
            error = f"Kaggle Error: {type(failed).__name__}"
        with self._site.state.changes():
            submission.score = score
            submission.end(error)

    # Responses

    def _described(self, submission: Submission) -> Json:
        score = None if submission.score is None else f"{submission.score:.5f}"
        return {
            "ref": submission.ref,
            "description": submission.description,
            "fileName": submission.file_name,
            "date": submission.date,
            "status": submission.status,
            "publicScore": score,
            "privateScore": score,
            "errorDescription": submission.error or None,
        }


def _require_fit(competition: Competition, version: Version, file_name: str) -> None:
    # The messages are the same as on Kaggle.
    request = version.request
    limit = math.inf if competition.gpu_seconds is None else competition.gpu_seconds
    kinds = kind_of(version.shape), kind_of(request.machine_shape or "")
    is_included = ("competition", competition.slug) in version.sources()
    refusals = {
        "This competition does not accept Submissions from Notebooks.": competition.takes_files,
        "Your Notebook must complete successfully before it can be submitted": (
            version.status != "COMPLETE"
        ),
        "Your Notebook cannot use TPU in this competition": "TPU" in kinds,
        "Your Notebook cannot use internet access in this competition. Please disable internet in"
        " the Notebook editor and save a new version.": request.enable_internet,
        "Your Notebook must include this competition as a data source": not is_included,
        f'Submission files must be named "{FILE}"': file_name != FILE,
        f"Could not find output file {FILE}": version.listed and FILE not in version.files(),
        f"Your Notebook's runtime of {version.seconds / 60:.0f} minutes exceeds this competition's"
        f" GPU max of {limit / 60:.0f} minutes.": kinds[0] == "GPU" and version.seconds > limit,
    }
    for why, is_so in refusals.items():
        if is_so:
            raise refused(why)


def _submitted(submission: Submission, competition: Competition) -> Json:
    said = f"Successfully submitted to {competition.title}"
    return {"ref": submission.ref, "message": said}

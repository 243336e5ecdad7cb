"""Submissions: the competition service.

A competition takes notebooks or files. A code submission reruns the notebook on the hidden test
set, shows no log and gets a score; a file is scored as it is. The six errors of a rerun have
Kaggle's own names (kaggle.com/code-competition-debugging, as public pages copy it, read
2026-11-21).
"""

import math
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from werkzeug.exceptions import BadRequest, Forbidden, NotFound

from localkaggle.competitions import Competition, ScoringError
from localkaggle.services.kernels import Kernels, Version
from localkaggle.services.login import USER
from localkaggle.services.protocol import Json, file_names, listed, page
from localkaggle.services.site import Site
from localkaggle.services.state import NOT_KEPT
from localkaggle.sessions.machine_shapes import kind_of
from localkaggle.sessions.session import Session

FILE = "submission.csv"
NOT_FOUND = "Submission CSV Not Found"
ERRORS = {
    "time": "Notebook Timeout",
    "exception": "Notebook Threw Exception",
    "cancelled": "Kaggle Error",
    **dict.fromkeys(("memory", "output", "killed"), "Notebook Exceeded Allowed Compute"),
}
# What is said to who lacks something.
DENIED = "Permission 'competitions.participate' was denied"
GATES = {
    "rules": DENIED,
    "phone": "You must verify your phone number before you can submit",
    "identity": "You must verify your identity before you can submit",
    "captcha": "You must solve a captcha before you can submit",
}
TEAMS_END, ENDS = "2029-12-24T23:59:00Z", "2029-12-31T23:59:00Z"


@dataclass
class Submission:
    """One submission and its state."""

    ref: int
    competition: str
    description: str
    date: str
    file_name: str = FILE
    size: int = 0
    status: str = "PENDING"
    score: float | None = None
    error: str = ""
    session: Session | None = field(default=None, metadata=NOT_KEPT)
    thread: threading.Thread | None = field(default=None, repr=False, metadata=NOT_KEPT)

    def end(self, error: str) -> None:
        """End it, with an error unless that is an empty text."""
        self.error, self.status = error, "ERROR" if error else "COMPLETE"


def refused(why: str) -> BadRequest:
    """Return the refusal of a submission. It uses up none."""
    return BadRequest(f"Submission not allowed: {why}")


class Submissions:
    """`competitions.CompetitionApiService`.

    Args:
        site: on which they are; a rerun gets a folder in its `sessions`.
        kernels: whose versions are submitted.
    """

    KEPT = ("submissions",)

    def __init__(self, site: Site, kernels: Kernels) -> None:
        self.submissions: dict[int, Submission] = {}
        self._site, self._kernels, self._facts = site, kernels, site.options.facts
        self._competitions = site.competitions

    # Competitions

    def GetCompetition(self, request: Any, user: str) -> Json:
        """Describe a competition, and whether this account takes part."""
        return self._about(self._competition(request))

    def ListCompetitions(self, request: Any, user: str) -> Json:
        """List a page of the competitions; of embedded ones it makes those on that page."""
        slugs, token = page(list(self._competitions), request)
        found = [self._about(self._competitions[slug]) for slug in slugs]
        return {"competitions": found, "nextPageToken": token}

    # Data

    def ListDataFiles(self, request: Any, user: str) -> Json:
        """List a page of the competition's files."""
        folder = self._competitions.folder(self._competition(request).slug)
        names, token = page(file_names(folder), request, most=1000)
        return {"files": listed(folder, names), "nextPageToken": token}

    def DownloadDataFile(self, request: Any, user: str) -> Path:
        """Lead to one file."""
        folder = self._downloadable(request)
        name: str = request.file_name
        if name not in file_names(folder):
            raise NotFound("Not found")
        return folder / name

    def DownloadDataFiles(self, request: Any, user: str) -> Path:
        """Lead to an archive of all files."""
        return self._site.storage.zipped(self._downloadable(request))

    # Submissions

    def CreateCodeSubmission(self, request: Any, user: str) -> Json:
        """Rerun a kernel version on the hidden test set, or refuse it."""
        competition = self._open(request)
        if not request.kernel_version:
            raise Forbidden("Permission 'kernelSessions.get' was denied")
        handle = f"{request.kernel_owner}/{request.kernel_slug}"
        version = self._kernels.version(handle, request.kernel_version)
        if version is None or request.kernel_owner != user:
            raise NotFound("Kernel version not found")
        is_listed = version.listed
        _require_fit(competition, version, request.file_name or "")
        file = version.working / FILE
        size = file.stat().st_size if is_listed else 0
        submission = self._spend(competition, request.submission_description, FILE, size)
        if not is_listed:  # it is spent, and scores nothing
            submission.end(NOT_FOUND)
            return _submitted(submission, competition)
        folder = self._site.folder / "sessions" / f"rerun-{submission.ref}"
        submission.session = self._kernels.open_session(version, folder, rerun=True)
        return self._start(submission, competition, submission.session.working / FILE)

    def StartSubmissionUpload(self, request: Any, user: str) -> Json:
        """Announce the upload of a submission file."""
        self._open(request)
        return self._site.uploads.announce(request.file_name, request.content_length)

    def CreateSubmission(self, request: Any, user: str) -> Json:
        """Score an uploaded file, or refuse it."""
        competition = self._open(request)
        if not competition.takes_files:
            raise refused(f"{competition.title} only accepts Submissions from Notebooks.")
        blob = self._site.uploads.complete(request.blob_file_tokens or "")
        said = request.submission_description
        submission = self._spend(competition, said, blob.name, blob.size)
        return self._start(submission, competition, blob.path)

    def GetSubmission(self, request: Any, user: str) -> Json:
        """Describe a submission."""
        if request.ref not in self.submissions:
            raise NotFound("Not found")
        return self._described(self.submissions[request.ref])

    def ListSubmissions(self, request: Any, user: str) -> Json:
        """List the submissions to a competition, newest first."""
        submissions = reversed(self._sent(self._entered(request)))
        return {"submissions": [self._described(item) for item in submissions]}

    def GetSubmissionLimits(self, request: Any, user: str) -> Json:
        """Return how many submissions today still allows."""
        competition = self._entered(request)
        used = len(self._sent(competition))
        left = max(competition.daily_submissions - used, 0)
        return {"numToday": used, "numTotal": used, "numAllowedNow": left}

    def interrupt(self) -> None:
        """End what was being scored when the server before this one died."""
        for submission in self.submissions.values():
            if submission.status == "PENDING":
                submission.end(ERRORS["cancelled"])

    def close(self) -> None:
        """End all reruns and wait for them."""
        for submission in self.submissions.values():
            if submission.session is not None:
                submission.session.cancel()
            if submission.thread is not None:
                submission.thread.join(30)

    # Who may do what

    def _competition(self, request: Any) -> Competition:
        competition = self._competitions.get(request.competition_name or "")
        if competition is None:
            raise NotFound("Not found")
        return competition

    def _entered(self, request: Any) -> Competition:
        """Return the competition of a call that only who takes part may make."""
        competition = self._competition(request)
        if self._facts.gate == "rules":
            raise Forbidden(DENIED)
        return competition

    def _open(self, request: Any) -> Competition:
        """Return the competition of a call that submits."""
        competition = self._competition(request)
        if self._facts.gate:
            raise Forbidden(GATES[self._facts.gate])
        if competition.closed:
            raise refused("Submissions have been disabled for this competition.")
        return competition

    def _downloadable(self, request: Any) -> Path:
        """Return the folder that everybody sees who accepted the rules."""
        competition = self._competition(request)
        if self._facts.gate == "rules":
            said = "You must accept this competition's rules before you'll be able to download"
            raise Forbidden(f"{said} files.")
        return self._competitions.folder(competition.slug)

    def _sent(self, competition: Competition) -> list[Submission]:
        found = self.submissions.values()
        return [submission for submission in found if submission.competition == competition.slug]

    def _spend(self, competition: Competition, said: str, name: str, size: int) -> Submission:
        """Make a submission, which is one of the day's.

        Args:
            competition: that it is sent to.
            said: what the user said of it.
            name: of the file.
            size: of the file, in bytes.

        Raises:
            BadRequest: if none is left.
        """
        used = len(self._sent(competition))
        if used >= competition.daily_submissions:
            raise refused(f"Your team has used its daily Submission allowance ({used}) today")
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        ref = len(self.submissions) + 40_000_001
        made = Submission(ref, competition.slug, said or "", f"{now}Z", name, size)
        self.submissions[ref] = made
        return made

    # Scores

    def _start(self, submission: Submission, competition: Competition, file: Path) -> Json:
        """Score a file in a thread, after the rerun that writes it, and return the answer."""
        arguments = (submission, competition, file)
        submission.thread = threading.Thread(target=self._score, args=arguments, daemon=True)
        submission.thread.start()
        return _submitted(submission, competition)

    def _score(self, submission: Submission, competition: Competition, file: Path) -> None:
        score = None
        try:
            error = ""
            if submission.session is not None:
                outcome = submission.session.run()
                error = "" if outcome.ok else ERRORS[outcome.reason]
                error = error or ("" if file.is_file() else NOT_FOUND)
            if not error:
                score = competition.judge(file)
        except ScoringError as failed:
            error = f"Submission Scoring Error: {failed}"
        except Exception as failed:
            # Not the notebook's error. Kaggle names only itself; the type helps to fix this server.
            error = f"Kaggle Error: {type(failed).__name__}"
        with self._site.state.changes():
            submission.score = score
            submission.end(error)

    # What is said

    def _about(self, competition: Competition) -> Json:
        """Describe a competition, and whether this account takes part."""
        address = f"https://www.kaggle.com/competitions/{competition.slug}"
        return {
            "id": list(self._competitions).index(competition.slug) + 1,
            "ref": address,
            "url": address,
            "title": competition.title,
            "category": "Getting Started",
            "reward": "Knowledge",
            "userHasEntered": self._facts.gate != "rules",
            "isKernelsSubmissionsOnly": not competition.takes_files,
            "submissionsDisabled": competition.closed,
            "maxDailySubmissions": competition.daily_submissions,
            "mergerDeadline": TEAMS_END,
            "newEntrantDeadline": TEAMS_END,
            "deadline": ENDS,
        }

    def _described(self, submission: Submission) -> Json:
        scored = submission.score is not None and self._facts.scores
        score = f"{submission.score:.5f}" if scored else None
        return {
            "ref": submission.ref,
            "description": submission.description,
            "submittedBy": USER,
            "fileName": submission.file_name,
            "totalBytes": submission.size,
            "date": submission.date,
            "status": submission.status,
            "publicScore": score,
            "privateScore": score,
            "errorDescription": submission.error or None,
        }


def _require_fit(competition: Competition, version: Version, file_name: str) -> None:
    """Refuse, in Kaggle's words, a version that cannot be submitted.

    Raises:
        BadRequest: says why.
    """
    request = version.request
    limit = math.inf if competition.gpu_seconds is None else competition.gpu_seconds
    kinds = kind_of(version.shape), kind_of(request.machine_shape or "")
    why = ""
    if competition.takes_files:
        why = "This competition does not accept Submissions from Notebooks."
    elif version.status != "COMPLETE":
        why = "Your Notebook must complete successfully before it can be submitted"
    elif "TPU" in kinds:
        why = "Your Notebook cannot use TPU in this competition"
    elif request.enable_internet:
        why = "Your Notebook cannot use internet access in this competition. Please disable"
        why += " internet in the Notebook editor and save a new version."
    elif ("competition", competition.slug) not in version.sources():
        why = "Your Notebook must include this competition as a data source"
    elif file_name != FILE:
        why = f'Submission files must be named "{FILE}"'
    elif version.listed and FILE not in version.files():
        why = f"Could not find output file {FILE}"
    elif kinds[0] == "GPU" and version.seconds > limit:
        why = f"Your Notebook's runtime of {version.seconds / 60:.0f} minutes exceeds this"
        why += f" competition's GPU max of {limit / 60:.0f} minutes."
    if why:
        raise refused(why)


def _submitted(submission: Submission, competition: Competition) -> Json:
    said = f"Successfully submitted to {competition.title}"
    return {"ref": submission.ref, "message": said}

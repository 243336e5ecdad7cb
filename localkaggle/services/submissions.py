"""Submissions: the competition service.

A code submission reruns the notebook on the hidden test set, shows no log and gets a score. The six
errors of a rerun have Kaggle's own names (kaggle.com/code-competition-debugging, as public pages
copy it, read 2026-11-21).
"""

import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kagglesdk.competitions.types.competition_api_service as types
from kagglesdk.competitions.types.submission_status import SubmissionStatus

from localkaggle.competitions import Competition, ScoringError
from localkaggle.competitions.hosted import Hosted
from localkaggle.services.kernels import Kernels, Version
from localkaggle.services.protocol import ApiError, make
from localkaggle.services.storage import Redirect, Storage, list_files
from localkaggle.services.uploads import Uploads
from localkaggle.sessions.machine_shapes import machine
from localkaggle.sessions.session import Session

FILE = "submission.csv"
ERRORS = {
    "time": "Notebook Timeout",
    "exception": "Notebook Threw Exception",
    "memory": "Notebook Exceeded Allowed Compute",
    "output": "Notebook Exceeded Allowed Compute",
    "cancelled": "Kaggle Error",
    "killed": "Notebook Exceeded Allowed Compute",
}


@dataclass
class Submission:
    """One submission and its state."""

    ref: int
    competition: str
    user: str
    description: str
    date: datetime
    status: str = "PENDING"
    score: float | None = None
    error: str = ""
    session: Session | None = None
    thread: threading.Thread | None = field(default=None, repr=False)


class Submissions:
    """`competitions.CompetitionApiService`.

    Args:
        storage: of the server.
        folder: gets one folder per rerun.
        competitions: by slug, with the folders that can be downloaded.
        kernels: whose versions are submitted.
        uploads: where submission files are announced.
        open_session: makes the session of a rerun: (version, folder, rerun) → Session.
    """

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        competitions: Hosted,
        kernels: Kernels,
        uploads: Uploads,
        open_session: Callable[[Version, Path, bool], Session],
    ) -> None:
        self.submissions: dict[int, Submission] = {}
        self._storage, self._folder, self._competitions = storage, folder, competitions
        self._kernels, self._uploads, self._open_session = kernels, uploads, open_session

    # Data

    def ListDataFiles(self, request: Any, user: str) -> Any:
        """List a page of the competition's files."""
        files, token = list_files(self._data(request), types.ApiDataFile, request, most=1000)
        return make(types.ApiListDataFilesResponse, files=files, next_page_token=token)

    def DownloadDataFile(self, request: Any, user: str) -> Any:
        """Redirect to one file."""
        folder = self._data(request)
        path = folder / (request.file_name or "")
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise ApiError(404, "Not found")
        raise Redirect(self._storage.share(path.name, path))

    def DownloadDataFiles(self, request: Any, user: str) -> Any:
        """Redirect to a zip of all files."""
        folder, archive = self._data(request), self._storage.fresh()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder))
        raise Redirect(self._storage.share(f"{request.competition_name}.zip", archive))

    # Submissions

    def CreateCodeSubmission(self, request: Any, user: str) -> Any:
        """Rerun a kernel version on the hidden test set, or refuse it."""
        competition = self._competition(request)
        if not request.kernel_version:
            raise ApiError(403, "Permission 'kernelSessions.get' was denied")
        handle = f"{request.kernel_owner}/{request.kernel_slug}"
        version = self._kernels.version(handle, request.kernel_version)
        if version is None or request.kernel_owner != user:
            raise ApiError(404, "Kernel version not found")
        refusal = self._refusal(competition, version, request.file_name or "", user)
        if refusal:
            raise ApiError(400, f"Submission not allowed: {refusal}")
        ref = len(self.submissions) + 40_000_001
        now = datetime.now(UTC).replace(tzinfo=None)
        description = request.submission_description or ""
        submission = Submission(ref, competition.slug, user, description, now)
        self.submissions[ref] = submission
        submission.session = self._open_session(version, self._folder / f"rerun-{ref}", True)
        submission.thread = threading.Thread(
            target=self._rerun, args=(competition, submission, submission.session), daemon=True
        )
        submission.thread.start()
        return make(
            types.ApiCreateCodeSubmissionResponse,
            ref=ref,
            message=f"Successfully submitted to {competition.title}",
        )

    def StartSubmissionUpload(self, request: Any, user: str) -> Any:
        """Announce the upload of a submission file."""
        self._competition(request)
        return self._uploads.announce(
            types.ApiStartSubmissionUploadResponse, request.file_name, request.content_length
        )

    def CreateSubmission(self, request: Any, user: str) -> Any:
        """Refuse a file: every competition here takes notebooks."""
        title = self._competition(request).title
        raise ApiError(
            400, f"Submission not allowed: {title} only accepts Submissions from Notebooks."
        )

    def GetSubmission(self, request: Any, user: str) -> Any:
        """Describe a submission."""
        submission = self.submissions.get(request.ref)
        if submission is None or submission.user != user:
            raise ApiError(404, "Not found")
        return _described(submission)

    def ListSubmissions(self, request: Any, user: str) -> Any:
        """List the submissions to a competition, newest first."""
        submissions = reversed(self._of_user(self._competition(request), user))
        return make(
            types.ApiListSubmissionsResponse, submissions=[_described(item) for item in submissions]
        )

    def GetSubmissionLimits(self, request: Any, user: str) -> Any:
        """Return how many submissions today still allows."""
        competition = self._competition(request)
        used = len(self._of_user(competition, user))
        return make(
            types.ApiSubmissionLimits,
            num_today=used,
            num_total=used,
            num_allowed_now=max(competition.daily_submissions - used, 0),
        )

    def close(self) -> None:
        """End all reruns and wait for them."""
        for submission in self.submissions.values():
            if submission.session is not None:
                submission.session.cancel()
            if submission.thread is not None:
                submission.thread.join(30)

    def _competition(self, request: Any) -> Competition:
        competition = self._competitions.get(request.competition_name or "")
        if competition is None:
            raise ApiError(404, "Not found")
        return competition

    def _data(self, request: Any) -> Path:
        """Return the folder that everybody sees."""
        return self._competitions.folder(self._competition(request).slug)

    def _of_user(self, competition: Competition, user: str) -> list[Submission]:
        return [
            submission
            for submission in self.submissions.values()
            if submission.competition == competition.slug and submission.user == user
        ]

    def _refusal(
        self, competition: Competition, version: Version, file_name: str, user: str
    ) -> str:
        """Return why nothing is rerun, in Kaggle's words. A refusal uses up no submission."""
        used = len(self._of_user(competition, user))
        if version.status != "COMPLETE":
            return "Your Notebook must complete successfully before it can be submitted"
        if "TPU" in (machine(version.shape), machine(version.request.machine_shape or "")):
            return "Your Notebook cannot use TPU in this competition"
        if version.request.enable_internet:
            return (
                "Your Notebook cannot use internet access in this competition. "
                "Please disable internet in the Notebook editor and save a new version."
            )
        if competition.slug not in (version.request.competition_data_sources or []):
            return "Your Notebook must include this competition as a data source"
        if file_name != FILE:
            return f'Submission files must be named "{FILE}"'
        if FILE not in version.files():
            return f"Could not find output file {FILE}"
        if used >= competition.daily_submissions:
            return f"Your team has used its daily Submission allowance ({used}) today"
        return ""

    def _rerun(self, competition: Competition, submission: Submission, session: Session) -> None:
        try:
            outcome = session.run()
            if not outcome.ok:
                submission.error = ERRORS[outcome.reason]
            elif not (session.working / FILE).is_file():
                submission.error = "Submission CSV Not Found"
            else:
                submission.score = competition.judge(session.working / FILE)
        except ScoringError as error:
            submission.error = f"Submission Scoring Error: {error}"
        except Exception as error:
            # Not the notebook's error. Kaggle names only itself; the type helps to fix this server.
            submission.error = f"Kaggle Error: {type(error).__name__}"
        submission.status = "ERROR" if submission.error else "COMPLETE"


def _described(submission: Submission) -> Any:
    item = make(
        types.ApiSubmission,
        ref=submission.ref,
        description=submission.description,
        submitted_by=submission.user,
        file_name=FILE,
        date=submission.date,
        status=SubmissionStatus[submission.status],
    )
    if submission.score is not None:
        item.public_score = item.private_score = f"{submission.score:.5f}"
    if submission.error:
        item.error_description = submission.error
    return item

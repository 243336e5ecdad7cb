"""Submissions: the competition service. A code submission reruns the notebook on the hidden test
set, shows no log, and is scored.

The six errors of a rerun carry Kaggle's own names (kaggle.com/code-competition-debugging, as public
pages copy it, read 2026-11-21).
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
from localkaggle.services.protocol import Fault, Redirect, Storage, page
from localkaggle.sessions.session import Session, machine

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
    """One submission and how it stands."""

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
        competitions: by slug, with the folders that are mounted, for downloads.
        kernels: whose versions are submitted.
        folder: gets one folder a rerun.
        open_session: makes the session of a rerun: (version, folder, rerun) → Session.
    """

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        competitions: Hosted,
        kernels: Kernels,
        open_session: Callable[[Version, Path, bool], Session],
        announce: Callable[[str, int], str],
        address: Callable[[str], str],
    ) -> None:
        self.submissions: dict[int, Submission] = {}
        self._storage, self._folder, self._competitions = storage, folder, competitions
        self._kernels, self._open, self._announce, self._address = (
            kernels,
            open_session,
            announce,
            address,
        )

    # Data

    def ListDataFiles(self, request: Any, user: str) -> Any:
        """List a page of the competition's files."""
        folder = self._competitions.folder(self._competition(request).slug)
        names = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
        shown, token = page(names, request.page_token or "", request.page_size, most=1000)
        answer = types.ApiListDataFilesResponse()
        answer.files = []
        for name in shown:
            file = types.ApiDataFile()
            file.name, file.total_bytes = name, (folder / name).stat().st_size
            file.creation_date = datetime(2026, 1, 1)
            answer.files.append(file)
        answer.next_page_token = token or None
        return answer

    def DownloadDataFile(self, request: Any, user: str) -> Any:
        """Lead to one file."""
        folder = self._competitions.folder(self._competition(request).slug)
        path = folder / (request.file_name or "")
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise Fault(404, "Not found")
        raise Redirect(self._storage.share(path.name, path))

    def DownloadDataFiles(self, request: Any, user: str) -> Any:
        """Lead to all files as a zip."""
        folder, archive = (
            self._competitions.folder(self._competition(request).slug),
            self._storage.fresh(),
        )
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder).as_posix())
        raise Redirect(self._storage.share(f"{request.competition_name}.zip", archive))

    # Submissions

    def CreateCodeSubmission(self, request: Any, user: str) -> Any:
        """Refuse, or rerun a kernel version on the hidden test set."""
        competition = self._competition(request)
        handle = f"{request.kernel_owner}/{request.kernel_slug}"
        if not request.kernel_version:
            raise Fault(403, "Permission 'kernelSessions.get' was denied")
        version = (
            self._kernels.version(handle, request.kernel_version)
            if request.kernel_owner == user
            else None
        )
        if version is None:
            raise Fault(404, "Kernel version not found")
        refusal = self._refusal(competition, version, request.file_name or "", user)
        if refusal:
            raise Fault(400, refusal)
        submission = self._new(competition, user, request.submission_description or "")
        submission.session = self._open(version, self._folder / f"rerun-{submission.ref}", True)
        submission.thread = threading.Thread(
            target=self._rerun, args=(competition, submission), daemon=True
        )
        submission.thread.start()
        answer = types.ApiCreateCodeSubmissionResponse()
        answer.ref, answer.message = (
            submission.ref,
            f"Successfully submitted to {competition.title}",
        )
        return answer

    def StartSubmissionUpload(self, request: Any, user: str) -> Any:
        """Announce the upload of a submission file."""
        self._competition(request)
        answer = types.ApiStartSubmissionUploadResponse()
        answer.token = self._announce(request.file_name, request.content_length)
        answer.create_url = self._address(answer.token)
        return answer

    def CreateSubmission(self, request: Any, user: str) -> Any:
        """Refuse a file: all competitions here take notebooks."""
        competition = self._competition(request)
        raise Fault(
            400,
            f"Submission not allowed: {competition.title} only accepts Submissions from Notebooks.",
        )

    def GetSubmission(self, request: Any, user: str) -> Any:
        """Tell how a submission stands."""
        submission = self.submissions.get(request.ref)
        if submission is None or submission.user != user:
            raise Fault(404, "Not found")
        return _described(submission)

    def ListSubmissions(self, request: Any, user: str) -> Any:
        """List the submissions to a competition, newest first."""
        slug = self._competition(request).slug
        answer = types.ApiListSubmissionsResponse()
        mine = [s for s in self.submissions.values() if s.competition == slug and s.user == user]
        answer.submissions = [_described(submission) for submission in reversed(mine)]
        return answer

    def GetSubmissionLimits(self, request: Any, user: str) -> Any:
        """Tell how many submissions are left today."""
        competition = self._competition(request)
        made = self._today(competition.slug, user)
        answer = types.ApiSubmissionLimits()
        answer.num_today = answer.num_total = made
        answer.num_allowed_now = max(competition.daily_submissions - made, 0)
        return answer

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
            raise Fault(404, "Not found")
        return competition

    def _today(self, slug: str, user: str) -> int:
        return sum(s.competition == slug and s.user == user for s in self.submissions.values())

    def _new(self, competition: Competition, user: str, description: str) -> Submission:
        ref = len(self.submissions) + 40_000_001
        self.submissions[ref] = Submission(
            ref, competition.slug, user, description, datetime.now(UTC).replace(tzinfo=None)
        )
        return self.submissions[ref]

    def _refusal(
        self, competition: Competition, version: Version, file_name: str, user: str
    ) -> str:
        """Return why nothing is rerun, in Kaggle's words; no submission is spent then."""
        made = self._today(competition.slug, user)
        if version.status != "COMPLETE":
            return "Submission not allowed: Your Notebook must complete successfully before it can be submitted"
        if machine(version.given) == "TPU" or machine(version.request.machine_shape or "") == "TPU":
            return "Submission not allowed: Your Notebook cannot use TPU in this competition"
        if version.request.enable_internet:
            return (
                "Submission not allowed: Your Notebook cannot use internet access in this competition. "
                "Please disable internet in the Notebook editor and save a new version."
            )
        if competition.slug not in (version.request.competition_data_sources or []):
            return "Submission not allowed: Your Notebook must include this competition as a data source"
        if file_name != FILE:
            return f'Submission not allowed: Submission files must be named "{FILE}"'
        if FILE not in version.files():
            return f"Submission not allowed: Could not find output file {FILE}"
        if made >= competition.daily_submissions:
            return f"Submission not allowed: Your team has used its daily Submission allowance ({made}) today"
        return ""

    def _rerun(self, competition: Competition, submission: Submission) -> None:
        session = submission.session
        assert session is not None  # noqa: S101 - set before this thread starts
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
            # Ours, not the notebook's: Kaggle says as little, and the type helps whoever mends this
            # file.
            submission.error = f"Kaggle Error: {type(error).__name__}"
        submission.status = "ERROR" if submission.error else "COMPLETE"


def _described(submission: Submission) -> Any:
    item = types.ApiSubmission()
    item.ref, item.description, item.submitted_by = (
        submission.ref,
        submission.description,
        submission.user,
    )
    item.file_name, item.date = FILE, submission.date
    item.status = SubmissionStatus[submission.status]
    if submission.score is not None:
        item.public_score = item.private_score = f"{submission.score:.5f}"
    if submission.error:
        item.error_description = submission.error
    return item

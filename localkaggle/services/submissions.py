"""Submissions: the competition service.

A competition takes notebooks or files. A code submission reruns the notebook on the hidden test
set, shows no log and gets a score; a file is scored as it is. The six errors of a rerun have
Kaggle's own names (kaggle.com/code-competition-debugging, as public pages copy it, read
2026-11-21).
"""

import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kagglesdk.competitions.types.competition_api_service as types
from kagglesdk.competitions.types.submission_status import SubmissionStatus

from localkaggle.competitions import Competition
from localkaggle.competitions.hosted import Hosted
from localkaggle.facts import Facts
from localkaggle.services import scoring
from localkaggle.services.kernels import Kernels, Version
from localkaggle.services.protocol import ApiError, make
from localkaggle.services.scoring import FILE, Submission
from localkaggle.services.state import Changes
from localkaggle.services.storage import Redirect, Storage, list_files
from localkaggle.services.uploads import Uploads
from localkaggle.sessions.machine_shapes import machine
from localkaggle.sessions.session import Session

# What is said to who lacks something.
DENIED = "Permission 'competitions.participate' was denied"
GATES = {
    "rules": DENIED,
    "phone": "You must verify your phone number before you can submit",
    "identity": "You must verify your identity before you can submit",
    "captcha": "You must solve a captcha before you can submit",
}
TEAMS_END, ENDS = datetime(2029, 12, 24, 23, 59), datetime(2029, 12, 31, 23, 59)


class Submissions:
    """`competitions.CompetitionApiService`.

    Args:
        storage: of the server.
        folder: gets one folder per rerun.
        competitions: by slug, with the folders that can be downloaded.
        kernels: whose versions are submitted.
        uploads: where submission files are announced.
        open_session: makes the session of a rerun: (version, folder, rerun) → Session.
        facts: how it behaves.
        changes: gives the context in which a thread changes what is kept.
    """

    KEPT = ("submissions",)

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        competitions: Hosted,
        kernels: Kernels,
        uploads: Uploads,
        open_session: Callable[[Version, Path, bool], Session],
        facts: Facts,
        changes: Changes,
    ) -> None:
        self.submissions: dict[int, Submission] = {}
        self._facts, self._changes = facts, changes
        self._storage, self._folder, self._competitions = storage, folder, competitions
        self._kernels, self._uploads, self._open_session = kernels, uploads, open_session

    # Competitions

    def GetCompetition(self, request: Any, user: str) -> Any:
        """Describe a competition, and whether this account takes part."""
        return self.about(self._competition(request))

    # Data

    def ListDataFiles(self, request: Any, user: str) -> Any:
        """List a page of the competition's files."""
        files, token = list_files(self._data(request), types.ApiDataFile, request, most=1000)
        return make(types.ApiListDataFilesResponse, files=files, next_page_token=token)

    def DownloadDataFile(self, request: Any, user: str) -> Any:
        """Redirect to one file."""
        folder = self._given(request)
        path = folder / (request.file_name or "")
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise ApiError(404, "Not found")
        raise Redirect(self._storage.share(path.name, path))

    def DownloadDataFiles(self, request: Any, user: str) -> Any:
        """Redirect to a zip of all files."""
        folder, archive = self._given(request), self._storage.fresh()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder))
        raise Redirect(self._storage.share(f"{request.competition_name}.zip", archive))

    # Submissions

    def CreateCodeSubmission(self, request: Any, user: str) -> Any:
        """Rerun a kernel version on the hidden test set, or refuse it."""
        competition = self._open(request)
        if not request.kernel_version:
            raise ApiError(403, "Permission 'kernelSessions.get' was denied")
        handle = f"{request.kernel_owner}/{request.kernel_slug}"
        version = self._kernels.version(handle, request.kernel_version)
        if version is None or request.kernel_owner != user:
            raise ApiError(404, "Kernel version not found")
        listed = version.listed
        refusal = self._refusal(competition, version, request.file_name or "", user)
        if refusal:
            raise ApiError(400, f"Submission not allowed: {refusal}")
        size = (version.working / FILE).stat().st_size if listed else 0
        submission = self._made(competition, user, request, FILE, size)
        if listed:
            session = self._open_session(version, self._folder / f"rerun-{submission.ref}", True)
            submission.session = session
            submission.start(competition, lambda: scoring.rerun(session), self._changes)
        else:  # it is spent, and scores nothing
            submission.end(scoring.NOT_FOUND)
        return make(
            types.ApiCreateCodeSubmissionResponse,
            ref=submission.ref,
            message=f"Successfully submitted to {competition.title}",
        )

    def StartSubmissionUpload(self, request: Any, user: str) -> Any:
        """Announce the upload of a submission file."""
        self._open(request)
        return self._uploads.announce(
            types.ApiStartSubmissionUploadResponse, request.file_name, request.content_length
        )

    def CreateSubmission(self, request: Any, user: str) -> Any:
        """Score an uploaded file, or refuse it."""
        competition = self._open(request)
        if not competition.takes_files:
            said = f"{competition.title} only accepts Submissions from Notebooks."
            raise ApiError(400, f"Submission not allowed: {said}")
        refusal = self._spent(competition, user)
        if refusal:
            raise ApiError(400, f"Submission not allowed: {refusal}")
        blob = self._uploads.complete(request.blob_file_tokens or "")
        submission = self._made(competition, user, request, blob.name, blob.size)
        submission.start(competition, lambda: blob.path, self._changes)
        return make(
            types.ApiCreateSubmissionResponse,
            ref=submission.ref,
            message=f"Successfully submitted to {competition.title}",
        )

    def GetSubmission(self, request: Any, user: str) -> Any:
        """Describe a submission."""
        submission = self.submissions.get(request.ref)
        if submission is None or submission.user != user:
            raise ApiError(404, "Not found")
        return self._described(submission)

    def ListSubmissions(self, request: Any, user: str) -> Any:
        """List the submissions to a competition, newest first."""
        submissions = reversed(self._of_user(self._entered(request), user))
        return make(
            types.ApiListSubmissionsResponse,
            submissions=[self._described(item) for item in submissions],
        )

    def GetSubmissionLimits(self, request: Any, user: str) -> Any:
        """Return how many submissions today still allows."""
        competition = self._entered(request)
        used = len(self._of_user(competition, user))
        return make(
            types.ApiSubmissionLimits,
            num_today=used,
            num_total=used,
            num_allowed_now=max(competition.daily_submissions - used, 0),
        )

    def interrupt(self) -> None:
        """End what was being scored when the server before this one died."""
        for submission in self.submissions.values():
            if submission.status == "PENDING":
                submission.end(scoring.ERRORS["cancelled"])

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

    def _entered(self, request: Any) -> Competition:
        """Return the competition of a call that only who takes part may make."""
        competition = self._competition(request)
        if self._facts.gate == "rules":
            raise ApiError(403, DENIED)
        return competition

    def _open(self, request: Any) -> Competition:
        """Return the competition of a call that submits."""
        competition = self._competition(request)
        if self._facts.gate:
            raise ApiError(403, GATES[self._facts.gate])
        if competition.closed:
            said = "Submissions have been disabled for this competition."
            raise ApiError(400, f"Submission not allowed: {said}")
        return competition

    def about(self, competition: Competition) -> Any:
        """Describe a competition, and whether this account takes part."""
        address = f"https://www.kaggle.com/competitions/{competition.slug}"
        return make(
            types.ApiCompetition,
            id=list(self._competitions).index(competition.slug) + 1,
            ref=address,
            url=address,
            title=competition.title,
            category="Getting Started",
            reward="Knowledge",
            user_has_entered=self._facts.gate != "rules",
            is_kernels_submissions_only=not competition.takes_files,
            submissions_disabled=competition.closed,
            max_daily_submissions=competition.daily_submissions,
            merger_deadline=TEAMS_END,
            new_entrant_deadline=TEAMS_END,
            deadline=ENDS,
        )

    def _data(self, request: Any) -> Path:
        """Return the folder that everybody sees."""
        return self._competitions.folder(self._competition(request).slug)

    def _given(self, request: Any) -> Path:
        """Return the same, of a call that only who accepted the rules may make."""
        if self._facts.gate == "rules":
            self._competition(request)
            said = "You must accept this competition's rules before you'll be able to download"
            raise ApiError(403, f"{said} files.")
        return self._data(request)

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
        if competition.takes_files:
            return "This competition does not accept Submissions from Notebooks."
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
        if version.listed and FILE not in version.files():
            return f"Could not find output file {FILE}"
        limit = competition.gpu_seconds
        if limit is not None and machine(version.shape) == "GPU" and version.seconds > limit:
            return (
                f"Your Notebook's runtime of {version.seconds / 60:.0f} minutes exceeds this"
                f" competition's GPU max of {limit / 60:.0f} minutes."
            )
        return self._spent(competition, user)

    def _spent(self, competition: Competition, user: str) -> str:
        """Return why no submission is left today, or an empty text."""
        used = len(self._of_user(competition, user))
        if used >= competition.daily_submissions:
            return f"Your team has used its daily Submission allowance ({used}) today"
        return ""

    def _made(
        self, competition: Competition, user: str, request: Any, name: str, size: int
    ) -> Submission:
        """Make a submission, which is one of the day's."""
        ref = len(self.submissions) + 40_000_001
        now = datetime.now(UTC).replace(tzinfo=None)
        description = request.submission_description or ""
        made = Submission(ref, competition.slug, user, description, now, name, size)
        self.submissions[ref] = made
        return made

    def _described(self, submission: Submission) -> Any:
        item = make(
            types.ApiSubmission,
            ref=submission.ref,
            description=submission.description,
            submitted_by=submission.user,
            file_name=submission.file_name,
            total_bytes=submission.size,
            date=submission.date,
            status=SubmissionStatus[submission.status],
        )
        if submission.score is not None and self._facts.scores:
            item.public_score = item.private_score = f"{submission.score:.5f}"
        if submission.error:
            item.error_description = submission.error
        return item

"""Calls about competitions: read its files, submit to it, read the scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy import failure_messages, responses
from deploy.errors import Ambiguous
from deploy.responses import Competition, Limits, Scored, split
from deploy.retries import Exchange


class CompetitionCalls(Exchange):
    """What Kaggle is asked about competitions."""

    _competitions: Any
    _competitions_types: Any

    def competition(self, name: str) -> Competition:
        """Return what Kaggle says of a competition."""
        request = self._competitions_types.ApiGetCompetitionRequest()
        request.competition_name = name

        def ask() -> Competition:
            answer = self._competitions.get_competition(request)
            if not (answer.id or answer.ref):
                # All its values are defaults.
                raise responses.Malformed("the answer names no competition")
            return Competition(
                takes_files=not answer.is_kernels_submissions_only,
                entered=answer.user_has_entered,
                closed=answer.submissions_disabled,
                daily=responses.number(answer.max_daily_submissions),
                entry_ends=responses.moment(answer.new_entrant_deadline),
                teams_end=responses.moment(answer.merger_deadline),
                ends=responses.moment(answer.deadline),
            )

        return self._read(f"look at the competition {name}", ask)

    def download_competition_file(self, competition: str, name: str, path: Path) -> None:
        """Download one file of the competition to `path`."""
        request = self._file_request(competition, name)
        what = f"download {name} of the competition {competition}"
        ask = self._with_headers(lambda: self._competitions.download_data_file(request))
        self._download(what, path, ask)

    def open_competition_file(self, competition: str, name: str) -> None:
        """Ask for one file of the competition, and read nothing of it."""
        request = self._file_request(competition, name)
        what = f"open {name} of the competition {competition}"
        self._read(what, lambda: self._competitions.download_data_file(request).close())

    def _file_request(self, competition: str, name: str) -> Any:
        request = self._competitions_types.ApiDownloadDataFileRequest()
        request.competition_name, request.file_name = competition, name
        return request

    def competition_files(self, competition: str) -> list[str]:
        """Return the names of the competition's files, from the first page."""
        request = self._competitions_types.ApiListDataFilesRequest()
        request.competition_name, request.page_size = competition, 100

        def ask() -> list[str]:
            files = self._competitions.list_data_files(request).files or ()
            return [responses.text(file.name) for file in files]

        return self._read(f"list the files of the competition {competition}", ask)

    def submit_code(
        self, competition: str, handle: str, version: int, *, file_name: str, description: str
    ) -> int:
        """Submit a kernel version and return the submission's number.

        Sent once; may raise `Ambiguous`.
        """
        request = self._competitions_types.ApiCreateCodeSubmissionRequest()
        request.competition_name = competition
        request.kernel_owner, request.kernel_slug = split(handle)
        request.kernel_version = version
        request.file_name, request.submission_description = file_name, description
        what = f"submit {handle} version {version} to {competition}"
        return self._submit(what, lambda: self._competitions.create_code_submission(request))

    def upload_submission(self, competition: str, path: Path) -> str:
        """Upload a file and return its token for `submit_file`. It is no submission yet."""
        request = self._competitions_types.ApiStartSubmissionUploadRequest()
        request.competition_name, request.file_name = competition, path.name
        request.content_length = path.stat().st_size
        request.last_modified_epoch_seconds = int(path.stat().st_mtime)
        return self._upload(path, lambda: self._competitions.start_submission_upload(request))

    def submit_file(self, competition: str, token: str, *, description: str) -> int:
        """Submit an uploaded file, and return the submission's number.

        Sent once; may raise `Ambiguous`.
        """
        request = self._competitions_types.ApiCreateSubmissionRequest()
        request.competition_name, request.blob_file_tokens = competition, token
        request.submission_description = description
        what = f"submit a file to {competition}"
        return self._submit(what, lambda: self._competitions.create_submission(request))

    def _submit(self, what: str, send: Callable[[], Any]) -> int:
        def order() -> tuple[int, str]:
            answer = send()
            return responses.number(answer.ref), responses.text(answer.message)

        ref, message = self._write(what, order)
        if ref < 1:
            raise Ambiguous(
                f"Kaggle accepted the call to {what} but gave no number: {message!r}.\n"
                f"{failure_messages.LOOK}"
            )
        return ref

    def get_submission(self, ref: int) -> Scored:
        """Return the submission with that number."""
        request = self._competitions_types.ApiGetSubmissionRequest()
        request.ref = ref

        return self._read(
            f"look at submission {ref}", lambda: self._scored(self._plain("GetSubmission", request))
        )

    def list_submissions(self, competition: str) -> list[Scored]:
        """Return our team's latest submissions, newest first: up to 1,000, those of months."""
        what = f"list the submissions to {competition}"
        found: dict[int, Scored] = {}
        request = self._competitions_types.ApiListSubmissionsRequest()
        request.competition_name, request.page_size = competition, 100

        def ask() -> list[Scored]:
            rows = self._plain("ListSubmissions", request).get("submissions") or ()
            return [self._scored(row) for row in rows]

        for request.page in range(1, 11):
            listed = self._read(what, ask)
            found.update({item.ref: item for item in listed})
            if len(listed) < request.page_size:
                break
        return list(found.values())

    def _plain(self, name: str, request: Any) -> Any:
        return self._http.call("competitions.CompetitionApiService", name, request, responses.Plain)

    def _scored(self, row: dict[str, Any]) -> Scored:
        return responses.scored(row, self._competitions_types.ApiSubmission.from_dict)

    def submission_limits(self, competition: str) -> Limits:
        """Return how many submissions are left; all zeros if our team is not known yet."""
        request = self._competitions_types.ApiGetSubmissionLimitsRequest()
        request.competition_name = competition
        what = f"ask for the submission limits of {competition}"
        answer = self._read(what, lambda: self._competitions.get_submission_limits(request))
        return Limits(
            responses.number(answer.num_today),
            responses.number(answer.num_total),
            responses.number(answer.num_allowed_now),
            by_total=answer.limited_by_total is True,
        )

"""Client: the only door to Kaggle. Typed questions and answers over the official kagglesdk, with
timeouts and verdicts.

Reads  handles, versions, files Gives  plain values (deploy/client/responses.py); an answer that is
missing or unknown never looks like success

How often it is asked and what happens where no answer comes is in deploy/client/retries.py. Calls
about a kernel's run name the version: without it Kaggle answers for the latest, whoever made that.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from deploy.client import credentials, failure_messages, file_transfer, responses
from deploy.client.responses import (
    Dataset,
    KernelStatus,
    Limits,
    Quota,
    Saved,
    Scored,
    Source,
    split,
)
from deploy.client.retries import LOOPBACK, REMOTE, UNREADABLE, Exchange, Pace
from deploy.errors import Ambiguous, BadAnswer, CredentialError, Refused, Unreachable, UsageError

# Fields of a kernel's metadata as GetKernel tells them: kernel-metadata.json's name → the SDK's.
ASKED = ("enable_internet", "is_private", "machine_shape")
SOURCES = {
    f"{kind}_sources": f"{kind}_data_sources"
    for kind in ("dataset", "competition", "kernel", "model")
}
INVALID = ("tags", "dataset_sources", "competition_sources", "kernel_sources", "model_sources")


class Kaggle(Exchange):
    """A signed-in connection. Use `Kaggle.connect()`."""

    def __init__(
        self, client: Any, username: str, pace: Pace, timeouts: tuple[float, float]
    ) -> None:
        super().__init__(username, pace)
        from kagglesdk.blobs.types import blob_api_service as blobs_types
        from kagglesdk.competitions.types import competition_api_service as competitions_types
        from kagglesdk.datasets.types import dataset_api_service as datasets_types
        from kagglesdk.kernels.types import kernels_api_service as kernels_types

        # The client ships no types: everything behind these names is Any, and leaves this class as
        # a plain value.
        self._kernels_types: Any = kernels_types
        self._datasets_types: Any = datasets_types
        self._competitions_types: Any = competitions_types
        self._blobs_types: Any = blobs_types
        self._kernels = client.kernels.kernels_api_client
        self._datasets = client.datasets.dataset_api_client
        self._competitions = client.competitions.competition_api_client
        self._blobs = client.blobs.blob_api_client
        self._anonymous = file_transfer.anonymous(timeouts)
        self._attend(client.http_client())
        self._http, self._timeouts = client.http_client(), timeouts

    @classmethod
    def connect(cls, *, pace: Pace | None = None, timeouts: tuple[float, float] = (10, 60)) -> Self:
        """Return a connection with the credentials that the official client would use.

        Args:
            pace: default: that of the address, Kaggle's or this machine's.
            timeouts: seconds to connect, and between two bytes.

        Raises:
            CredentialError: without credentials, or with ones that Kaggle does not know.
            Unreachable: if Kaggle had to be asked and did not answer.
        """
        try:
            client, username = credentials.sign_in(timeouts)
        except requests.RequestException as error:
            verdict = failure_messages.judge("sign in", error)
            raise verdict or Unreachable(failure_messages.unanswered("sign in", error)) from error
        except (OSError, *UNREADABLE) as error:
            if (
                str(getattr(error, "doc", "")).lstrip().startswith("<")
            ):  # a page, in place of Kaggle's answer
                raise Unreachable(failure_messages.unanswered("sign in", error)) from error
            # What the error says may quote the file, and so the key.
            raise CredentialError(
                f"The Kaggle credentials that were found cannot be read ({type(error).__name__}).\n{credentials.HOW}"
            ) from error
        here = file_transfer.is_loopback(client.http_client()._endpoint)
        return cls(client, username, pace or (LOOPBACK if here else REMOTE), timeouts)

    # Kernels

    def save_kernel(self, metadata: Mapping[str, Any], text: str, *, timeout_seconds: int) -> Saved:
        """Push a kernel: `metadata` as in kernel-metadata.json, `text` the notebook. Sent once; may
        raise `Ambiguous`.
        """
        request = self._kernels_types.ApiSaveKernelRequest()
        request.slug = metadata["id"]
        request.new_title = metadata["title"]
        request.text = text
        for name in (
            "language",
            "kernel_type",
            "is_private",
            "enable_gpu",
            "enable_tpu",
            "enable_internet",
            "machine_shape",
        ):
            setattr(request, name, metadata[name])
        for name in ("dataset", "competition", "kernel", "model"):
            setattr(request, f"{name}_data_sources", list(metadata.get(f"{name}_sources", [])))
        request.session_timeout_seconds = timeout_seconds

        def order() -> Saved:
            answer = self._kernels.save_kernel(request)
            invalid = {
                kind: responses.texts(getattr(answer, f"invalid_{kind}")) for kind in INVALID
            }
            return Saved(
                responses.number(answer.version_number),
                responses.text(answer.url),
                failure_messages.told(f"push {metadata['id']}", answer.error),
                invalid,
            )

        return self._write(f"push {metadata['id']}", order)

    def kernel_status(self, handle: str, version: int) -> KernelStatus:
        """Return the state of that version. A word that the client does not know comes back as
        UNKNOWN(word).
        """
        request = _of_kernel(
            self._kernels_types.ApiGetKernelSessionStatusRequest(), handle, version
        )

        def ask() -> KernelStatus:
            try:
                answer = self._kernels.get_kernel_session_status(request)
            except KeyError as error:
                return KernelStatus(f"UNKNOWN({error.args[0]})", "")
            return KernelStatus(answer.status.name, responses.text(answer.failure_message))

        return self._read(f"ask for the status of {handle} version {version}", ask)

    def kernel_output(self, handle: str, version: int) -> tuple[dict[str, str], str]:
        """Return the output files of that version, {name: signed address}, all pages, and the log
        as Kaggle stores it.

        The names are the server's: validate them before use.
        """
        what = f"list the output of {handle} version {version}"
        request = _of_kernel(
            self._kernels_types.ApiListKernelSessionOutputRequest(), handle, version
        )
        files: dict[str, str] = {}
        log = ""
        for page in self._pages(what, request, 100, self._kernels.list_kernel_session_output):
            log = log or page.log or ""
            for file in page.files or ():
                if not isinstance(file.file_name, str) or not isinstance(file.url, str):
                    raise BadAnswer(
                        f"Could not {what}: a file has no name or no address.\nTry again in a minute."
                    )
                if file.file_name in files:
                    raise BadAnswer(
                        f"Could not {what}: {file.file_name!r} is listed twice.\nTry again."
                    )
                files[file.file_name] = file.url
        return files, log

    def kernel_log(
        self, handle: str, version: int, *, stdout: bool = False, patience: float | None = None
    ) -> list[str]:
        """Return the lines of the log of that version, as far as Kaggle tells it.

        Args:
            stdout: without stderr. patience: seconds; default that of the pace.
        """
        request = _of_kernel(
            self._kernels_types.ApiListKernelSessionOutputRequest(), handle, version
        )
        request.page_size = 1
        what = f"read the log of {handle} version {version}"
        ask = lambda: responses.text(self._kernels.list_kernel_session_output(request).log)  # noqa: E731
        return responses.log_lines(self._read(what, ask, patience), stdout=stdout)

    def follow_log(self, handle: str, version: int) -> Iterator[tuple[str, str]]:
        """Yield (stream, text) of that version's log from its beginning, as it is written; ends
        with the run or the connection.

        Raises:
            requests.RequestException, ValueError: as the connection breaks. Nothing is repeated
            here.
        """
        with file_transfer.copied(self._http._session, self._timeouts) as session:
            base = (
                self._http._endpoint
                if "api." in self._http._endpoint
                else f"{self._http._endpoint}/api"
            )
            address = f"{base}/v1/kernels/logs/stream/{handle}"
            label = {"versionLabel": f"v{version}"}
            headers = {"Accept": "text/event-stream, */*", "Content-Type": None}
            with session.get(
                address, params=label, headers=headers, stream=True, allow_redirects=False
            ) as answer:
                answer.raise_for_status()
                if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                    yield from responses.log_pieces(answer.text)
                    return
                for line in answer.iter_lines(chunk_size=None, decode_unicode=True):
                    if line == "data: END_OF_LOG":
                        return
                    if line.startswith("data:"):
                        yield from responses.log_pieces(f"[{line.removeprefix('data:')}]")

    def get_kernel(self, handle: str, version: int | None = None) -> Source | None:
        """Return a version of our own kernel, the current one without a number; None where it is
        not there.
        """
        request = _of_kernel(self._kernels_types.ApiGetKernelRequest(), handle, version)

        def ask() -> Source:
            answer = self._kernels.get_kernel(request)
            metadata, blob = answer.metadata, answer.blob
            asks = {name: getattr(metadata, name, None) for name in ASKED}
            asks |= {
                name: responses.texts(getattr(metadata, was, None)) for name, was in SOURCES.items()
            }
            newest = responses.number(metadata.current_version_number)
            return Source(version or newest, responses.text(blob.source if blob else ""), asks)

        return self._mine(handle, f"look at {handle}", ask)

    def quota(self, patience: float | None = None) -> Quota:
        """Return the accelerator time that is left this week. `patience`: seconds; default that of
        the pace.
        """
        request = self._kernels_types.ApiGetAcceleratorQuotaStatisticsRequest()
        answer = self._read(
            "ask for the quota",
            lambda: self._kernels.get_accelerator_quota_statistics(request),
            patience,
        )
        return Quota(
            responses.left(answer.gpu_quota),
            responses.left(answer.tpu_quota),
            responses.moment(answer.quota_refresh_time),
        )

    # Datasets

    def dataset(self, handle: str) -> Dataset | None:
        """Return what Kaggle knows of our own dataset, or None where there is none yet."""
        request = _of_dataset(self._datasets_types.ApiGetDatasetRequest(), handle)

        def ask() -> Dataset:
            answer = self._datasets.get_dataset(request)
            notes = {
                responses.number(v.version_number): responses.text(v.version_notes)
                for v in answer.versions or ()
            }
            return Dataset(responses.number(answer.current_version_number), notes)

        return self._mine(handle, f"look at the dataset {handle}", ask)

    def dataset_status(self, handle: str) -> str:
        """Return Kaggle's word for how far the current version is, READY at the end; an unknown
        word as UNKNOWN(word).
        """
        request = _of_dataset(self._datasets_types.ApiGetDatasetStatusRequest(), handle)

        def ask() -> str:
            try:
                return str(self._datasets.get_dataset_status(request).status.name)
            except KeyError as error:
                return f"UNKNOWN({error.args[0]})"

        return self._read(f"ask for the status of the dataset {handle}", ask)

    def dataset_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: bytes} of that version, all pages."""
        request = _of_dataset(self._datasets_types.ApiListDatasetFilesRequest(), handle)
        request.dataset_version_number = version
        files = {}
        for page in self._pages(
            f"list the files of {handle} version {version}",
            request,
            100,
            self._datasets.list_dataset_files,
        ):
            if page.error_message:
                raise Refused(
                    f"Kaggle did not list the files of {handle}: {page.error_message}.\nTry again in a minute."
                )
            files.update({file.name: file.total_bytes or 0 for file in page.dataset_files or ()})
        return files

    def download_dataset_file(self, handle: str, version: int, name: str, path: Path) -> None:
        """Download one file of that version to `path`."""
        request = _of_dataset(self._datasets_types.ApiDownloadDatasetRequest(), handle)
        request.file_name = name
        request.dataset_version_number = version
        what = f"download {name} of {handle} version {version}"
        self._read(what, lambda: file_transfer.save(self._datasets.download_dataset(request), path))

    def upload(self, path: Path) -> str:
        """Upload a file and return its token, for `create_dataset`; repeated through blips, as
        nothing refers to it yet.
        """
        request = self._blobs_types.ApiStartBlobUploadRequest()
        request.type = self._blobs_types.ApiBlobType.DATASET
        request.name = path.name
        request.content_length = path.stat().st_size
        request.last_modified_epoch_seconds = int(path.stat().st_mtime)

        def send() -> str:
            answer = self._blobs.start_blob_upload(request)
            if not answer.token or not answer.create_url:
                raise BadAnswer(
                    f"Kaggle gave no address to upload {path.name} to; expected token and createUrl.\nTry again."
                )
            file_transfer.put(self._anonymous, answer.create_url, path)
            return str(answer.token)

        return self._read(f"upload {path.name}", send)

    def create_dataset(
        self, handle: str, *, title: str, description: str, tokens: Sequence[str]
    ) -> None:
        """Create a private dataset from uploaded files. Sent once; may raise `Ambiguous`."""
        request = self._datasets_types.ApiCreateDatasetRequest()
        request.owner_slug, request.slug = split(handle)
        request.title, request.description = title, description
        request.license_name = "CC0-1.0"  # Kaggle asks for one; the dataset is private
        request.is_private = True
        request.files = self._new_files(tokens)
        what = f"create the dataset {handle}"
        failure_messages.require_ok(
            what, self._write(what, lambda: self._datasets.create_dataset(request))
        )

    def create_dataset_version(self, handle: str, *, notes: str, tokens: Sequence[str]) -> None:
        """Add a version made of exactly these uploaded files. Sent once; may raise `Ambiguous`."""
        request = _of_dataset(self._datasets_types.ApiCreateDatasetVersionRequest(), handle)
        request.body = self._datasets_types.ApiCreateDatasetVersionRequestBody()
        request.body.version_notes = notes
        request.body.files = self._new_files(tokens)
        what = f"add a version to the dataset {handle}"
        # The official client's own wrapper repeats this call, and so makes two versions of one.
        failure_messages.require_ok(
            what, self._write(what, lambda: self._datasets.create_dataset_version(request))
        )

    def _new_files(self, tokens: Sequence[str]) -> list[Any]:
        files = []
        for token in tokens:
            file = self._datasets_types.ApiDatasetNewFile()
            file.token = token
            files.append(file)
        return files

    # Competitions

    def download_competition_file(self, competition: str, name: str, path: Path) -> None:
        """Download one file of the competition to `path`."""
        request = self._competitions_types.ApiDownloadDataFileRequest()
        request.competition_name, request.file_name = competition, name
        what = f"download {name} of the competition {competition}"
        self._read(
            what, lambda: file_transfer.save(self._competitions.download_data_file(request), path)
        )

    def competition_files(self, competition: str) -> list[str]:
        """Return the names of the competition's files, the first page of them."""
        request = self._competitions_types.ApiListDataFilesRequest()
        request.competition_name, request.page_size = competition, 100
        what = f"list the files of the competition {competition}"
        return self._read(
            what,
            lambda: [
                responses.text(f.name)
                for f in self._competitions.list_data_files(request).files or ()
            ],
        )

    def open_competition_file(self, competition: str, name: str) -> None:
        """Ask for one file of the competition, and read nothing of it."""
        request = self._competitions_types.ApiDownloadDataFileRequest()
        request.competition_name, request.file_name = competition, name
        what = f"open {name} of the competition {competition}"
        self._read(what, lambda: self._competitions.download_data_file(request).close())

    def submit_code(
        self, competition: str, handle: str, version: int, *, file_name: str, description: str
    ) -> int:
        """Submit that kernel version and return the submission's number. Sent once; may raise
        `Ambiguous`.
        """
        request = self._competitions_types.ApiCreateCodeSubmissionRequest()
        request.competition_name = competition
        request.kernel_owner, request.kernel_slug = split(handle)
        request.kernel_version = version
        request.file_name, request.submission_description = file_name, description
        what = f"submit {handle} version {version} to {competition}"

        def order() -> tuple[int, str]:
            answer = self._competitions.create_code_submission(request)
            return responses.number(answer.ref), responses.text(answer.message)

        ref, message = self._write(what, order)
        if ref < 1:
            raise Ambiguous(
                f"Kaggle took the call to {what} and gave no number: {message!r}.\n{failure_messages.LOOK}"
            )
        return ref

    def get_submission(self, ref: int) -> Scored:
        """Return the submission of that number."""
        request = self._competitions_types.ApiGetSubmissionRequest()
        request.ref = ref

        return self._read(
            f"look at submission {ref}", lambda: self._scored(self._plain("GetSubmission", request))
        )

    def list_submissions(self, competition: str) -> list[Scored]:
        """Return the latest submissions of our team, newest first; as many as a team can make in
        months.
        """
        what = f"list the submissions to {competition}"
        found: dict[int, Scored] = {}
        request = self._competitions_types.ApiListSubmissionsRequest()
        request.competition_name, request.page_size = competition, 100
        for request.page in range(1, 11):

            def ask() -> list[Scored]:
                return [
                    self._scored(row)
                    for row in self._plain("ListSubmissions", request).get("submissions") or ()
                ]

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
        """Return how many submissions are left; all zeros where our team is not known yet."""
        request = self._competitions_types.ApiGetSubmissionLimitsRequest()
        request.competition_name = competition
        what = f"ask for the submission limits of {competition}"
        answer = self._read(what, lambda: self._competitions.get_submission_limits(request))
        return Limits(
            *map(responses.number, (answer.num_today, answer.num_total, answer.num_allowed_now))
        )

    def download(self, url: str, path: Path) -> None:
        """Download a signed address, as `kernel_output` gives them. Raises `Expired` where the
        storage does not take it.
        """
        self._read(f"download {path.name}", lambda: file_transfer.fetch(self._anonymous, url, path))


def _of_kernel(request: Any, handle: str, version: int | None) -> Any:
    request.user_name, request.kernel_slug = split(handle)
    if version is not None:
        if version < 1:
            raise UsageError(
                f"{handle}: version {version} cannot be; expected 1 or more.\nCorrect the version."
            )
        request.version_label = f"v{version}"  # a bare number is not found by the real server
    return request


def _of_dataset(request: Any, handle: str) -> Any:
    request.owner_slug, request.dataset_slug = split(handle)
    return request

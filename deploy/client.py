"""The client: what Kaggle is asked about kernels, datasets and competitions.

A call about a run names its version. Without it Kaggle answers for the latest, whoever made that.
A missing or unknown answer never looks like success.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import requests

from deploy import calls, errors, failures, log_text, transfer
from deploy.calls import ASKED, RUN, SOURCES
from deploy.connection import UNREADABLE, Connection, Values

T = TypeVar("T")

SETTINGS = ("language", "kernel_type", "enable_gpu", "enable_tpu", *ASKED)
LISTED = 20  # kernels a page: Kaggle was seen to answer larger ones by 500
EMPTY_LOOKS = 3  # in a row, before a kernel counts as one without a version


class Kaggle(Connection):
    """A logged-in connection. Use `Kaggle.connect()`."""

    # Kernels: push one, follow a run, list its output

    def save_kernel(
        self, metadata: Mapping[str, Any], text: str, *, timeout_seconds: int, execution: str = RUN
    ) -> calls.Saved:
        """Push a kernel. Sent once; may raise `Ambiguous`.

        Args:
            metadata: as in kernel-metadata.json.
            text: the notebook.
            timeout_seconds: after which Kaggle ends the session.
            execution: RUN or SAVE; "" leaves it to Kaggle.
        """
        sources = {name.replace("_", "_data_"): list(metadata.get(name, [])) for name in SOURCES}
        values = {
            "slug": metadata["id"],
            "new_title": metadata["title"],
            "text": text,
            "session_timeout_seconds": timeout_seconds,
            "kernel_execution_type": execution or None,
            **{name: metadata[name] for name in SETTINGS},
            **sources,
        }
        return self._write(f"push {metadata['id']}", calls.SAVE_KERNEL, values)

    def kernel_status(self, handle: str, version: int) -> calls.KernelStatus:
        """Return the state of a version; UNKNOWN(word) for a word that the client does not know.

        Raises:
            NotFound: if there is no such version; also if Kaggle answers 403 of a kernel that would
                be ours, and our list lacks it, or has it with fewer versions.
            Unknown: if Kaggle answers 403, and the list has it or is not shown, either.
        """
        what = f"ask for the status of {handle} version {version}"
        ask = partial(self._read, what, calls.KERNEL_STATUS, _kernel(handle, version))
        return self._ours("notebook", handle, ask, version)

    def kernel_output(self, handle: str, version: int) -> tuple[dict[str, str], str]:
        """Return the output of a version, from all pages, and its log.

        Returns:
            {name: signed address}, and the log as Kaggle stores it. The names are the server's:
            validate them before use.
        """
        what = f"list the output of {handle} version {version}"
        files: dict[str, str] = {}
        log = ""
        for page in self._pages(what, calls.KERNEL_OUTPUT, _kernel(handle, version)):
            log = log or page.log
            for file in page.files:
                if file.name in files:
                    raise errors.BadAnswer(
                        f"Could not {what}: {file.name!r} is listed twice.\nTry again."
                    )
                files[file.name] = file.url
        return files, log

    def kernel_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: bytes} of a version's output, from all pages; asked once a page.

        Kaggle was seen to list wrong sizes, and no files at all: use `kernel_output` for the names.
        """
        what = f"list the files of {handle} version {version}"
        pages = self._pages(what, calls.KERNEL_FILES, _kernel(handle, version), patience=0)
        return {file.name: file.size for page in pages for file in page.files}

    def kernel_log(self, handle: str, version: int) -> list[str]:
        """Return the lines of a version's log, as far as Kaggle has them."""
        return log_text.lines(self._log(handle, version))

    def kernel_seconds(self, handle: str, version: int) -> float | None:
        """Return how long a version ran, by the last line of its log; None if it has no times."""
        return log_text.seconds(self._log(handle, version))

    def _log(self, handle: str, version: int) -> str:
        what = f"read the log of {handle} version {version}"
        about = {**_kernel(handle, version), "page_size": 1}
        return self._read(what, calls.KERNEL_OUTPUT, about).log

    def follow_log(self, handle: str, version: int) -> Iterator[tuple[str, str]]:
        """Yield (stream, text) of a version's log as it is written, from its beginning.

        It ends with the run or the connection, and never retries.

        Raises:
            requests.RequestException, ValueError: if the connection breaks.
        """
        base = self._endpoint if "api." in self._endpoint else f"{self._endpoint}/api"
        with (
            transfer.copied(self._session, self._timeouts) as session,
            session.get(
                f"{base}/v1/kernels/logs/stream/{handle}",
                params={"versionLabel": f"v{version}"},
                headers={"Accept": "text/event-stream, */*", "Content-Type": None},
                stream=True,
                allow_redirects=False,
            ) as answer,
        ):
            answer.raise_for_status()
            answer.encoding = "utf-8"  # requests would guess, and take a stream for Latin-1
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                yield from log_text.pieces(answer.text)
                return
            # No other line ends: a log may hold them, as U+2028.
            for line in answer.iter_lines(chunk_size=None, delimiter=b"\n"):
                name, _, data = line.decode("utf-8", "replace").partition(":")
                if name == "data" and data.strip() == "END_OF_LOG":
                    return
                if name == "data":
                    yield from log_text.pieces(f"[{data}]")

    def get_kernel(self, handle: str, version: int | None = None) -> calls.Source | None:
        """Return a version of our kernel, by default the current one; None if it does not exist.

        Raises:
            Refused: if the kernel has no version, so that no call about it works.
            Unknown: if Kaggle does not tell.
        """
        request, looks = calls.GET_KERNEL.request(_kernel(handle, version)), 0

        def ask() -> calls.Source:
            nonlocal looks
            try:
                return self._send(calls.GET_KERNEL, request)
            except requests.HTTPError as error:
                empty = failures.code(error) == 500 and self._has_no_status(handle)
                looks = looks + 1 if empty else 0
                if looks == EMPTY_LOOKS:
                    raise errors.Refused(failures.without_version(handle)) from error
                raise

        with suppress(errors.NotFound):
            ask_often = partial(self._retried, f"look at {handle}", ask)
            found = self._ours("notebook", handle, ask_often)
            return replace(found, version=version or found.version)
        return None

    def own_kernels(
        self, page_size: int = LISTED, patience: float | None = None
    ) -> Iterator[calls.OwnKernel]:
        """Yield all our kernels that have a version, the one that ran last first.

        Args:
            page_size: so many are asked for by one call.
            patience: seconds to retry one; by default a part of the pace's: this list may fail for
                days.
        """
        about = {
            "page_size": page_size,
            "group": "PROFILE",
            "sort_by": "DATE_RUN",
            **dict.fromkeys(("language", "kernel_type", "output_type"), "all"),
        }
        patience = self.pace.most if patience is None else patience
        pages = self._pages("list your notebooks", calls.LIST_KERNELS, about, patience)
        return (kernel for page in pages for kernel in page.kernels if kernel.handle)

    def _has_no_status(self, handle: str) -> bool:
        """Return whether Kaggle answers 404 when it is asked how the newest version stands."""
        try:
            self._send(calls.KERNEL_STATUS, calls.KERNEL_STATUS.request(_kernel(handle, None)))
        except UNREADABLE as error:
            return failures.code(error) == 404  # else it has some status, or nobody knows
        return False

    def quota(self, patience: float | None = None) -> calls.Quota:
        """Return the accelerator time of this week.

        Args:
            patience: seconds to retry; by default those of the pace.
        """
        return self._read("ask for the quota", calls.QUOTA, {}, patience)

    def download(
        self, url: str, path: Path, renew: Callable[[], str] = str, note: Path | None = None
    ) -> None:
        """Download a signed address of `kernel_output`.

        Args:
            renew: returns another address of the file when this one has ended; "" if there is none.
            note: as in `_download`.

        Raises:
            Expired: if the address is not valid, and `renew` has no valid one.
        """

        def ask(headers: Mapping[str, str]) -> requests.Response:
            return self._anonymous.get(url, stream=True, headers=headers)

        def renewed() -> bool:
            nonlocal url
            url = renew()
            return bool(url)

        self._download(f"download {path.name}", path, ask, renewed, note)

    def delete_kernel(self, handle: str) -> None:
        """Delete our kernel with all of its versions. Sent once; may raise `Ambiguous`."""
        self._write(f"delete {handle}", calls.DELETE_KERNEL, _kernel(handle, None))

    # Datasets: upload files, make a version of them, read it back

    def dataset(self, handle: str) -> calls.Dataset | None:
        """Return what Kaggle knows of our dataset, or None if it does not exist.

        Raises:
            Unknown: if Kaggle does not tell.
        """
        what = f"look at the dataset {handle}"
        with suppress(errors.NotFound):
            ask = partial(self._read, what, calls.GET_DATASET, _dataset(handle))
            return self._ours("dataset", handle, ask)
        return None

    def own_datasets(self) -> Iterator[calls.Dataset]:
        """Yield all our datasets."""
        about = {"group": "DATASET_SELECTION_GROUP_MY"}
        pages = self._pages("list your datasets", calls.LIST_DATASETS, about)
        return (dataset for page in pages for dataset in page.datasets if dataset.handle)

    def dataset_status(self, handle: str) -> str:
        """Return the state of the current version, READY at the end; UNKNOWN(word) if unknown."""
        what = f"ask for the status of the dataset {handle}"
        return self._read(what, calls.DATASET_STATUS, _dataset(handle)).status

    def dataset_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: bytes} of a version, from all pages."""
        what = f"list the files of {handle} version {version}"
        about = {**_dataset(handle), "dataset_version_number": version}
        pages = self._pages(what, calls.DATASET_FILES, about)
        return {file.name: file.total_bytes for page in pages for file in page.dataset_files}

    def download_dataset_file(
        self, handle: str, version: int, name: str, path: Path, note: Path | None = None
    ) -> None:
        """Download one file of a version to `path`. `note`: as in `_download`."""
        what = f"download {name} of {handle} version {version}"
        about = {**_dataset(handle), "dataset_version_number": version, "file_name": name}
        self._download(what, path, self._file(calls.DATASET_FILE, about), note=note)

    def upload(self, path: Path, note: Path | None = None) -> str:
        """Upload a file and return its token for `create_dataset`.

        An upload is retried, since nothing refers to it yet. `note`: as in `_upload`.
        """
        about = {"type": "DATASET", "name": path.name}
        return self._upload(path, calls.START_UPLOAD, about, note)

    def create_dataset(
        self, handle: str, *, title: str, description: str, tokens: Sequence[str]
    ) -> None:
        """Create a private dataset from uploaded files. Sent once; may raise `Ambiguous`."""
        owner, slug = split(handle)
        values = {
            "owner_slug": owner,
            "slug": slug,
            "title": title,
            "description": description,
            "license_name": "CC0-1.0",  # Kaggle requires one; the dataset is private
            "is_private": True,
            "files": [{"token": token} for token in tokens],
        }
        self._change_dataset(f"create the dataset {handle}", calls.CREATE_DATASET, values)

    def create_dataset_version(self, handle: str, *, notes: str, tokens: Sequence[str]) -> None:
        """Add a version made of exactly these uploaded files. Sent once; may raise `Ambiguous`."""
        what = f"add a version to the dataset {handle}"
        body = {"versionNotes": notes, "files": [{"token": token} for token in tokens]}
        # The official client's own wrapper retries this call, and so makes two versions.
        values = {**_dataset(handle), "body": body}
        self._change_dataset(what, calls.CREATE_DATASET_VERSION, values)

    def _change_dataset(self, what: str, call: calls.Call[calls.Done], values: Values) -> None:
        status = self._write(what, call, values).status
        if status.lower() != "ok":
            raise errors.Ambiguous(
                f"Kaggle accepted the call to {what} and answered status {status!r};"
                f" expected 'ok'.\n{failures.LOOK}"
            )

    def delete_dataset(self, handle: str) -> None:
        """Delete our dataset with all of its versions. Sent once; may raise `Ambiguous`."""
        self._write(f"delete the dataset {handle}", calls.DELETE_DATASET, _dataset(handle))

    def _ours(self, kind: str, handle: str, ask: Callable[[], T], version: int = 0) -> T:
        """Ask for something that may be ours. Kaggle answers 403, even to the owner, for what does
        not exist, and for what these credentials may not see: the list of what is ours tells.

        Args:
            kind: "notebook" or "dataset".
            ask: asks for it.
            version: of it that is asked for.

        Raises:
            NotFound: if it does not exist.
            Unknown: if it may be there: the list has it, or is not shown, either.
            Denied: if it is somebody else's, or if Kaggle names what a person has to do first.
        """
        try:
            return ask()
        except errors.Denied as error:
            if split(handle)[0].lower() != self.username.lower() or error.gate:
                raise
            listed = self.own_kernels if kind == "notebook" else self.own_datasets
            found: bool | None = None
            with suppress(*errors.UNTOLD):  # such a list shows nothing
                found = any(
                    one.handle.lower() == handle.lower()
                    and (not one.version or one.version >= version)
                    for one in listed()
                )
            if found is not False:
                raise failures.unknown(kind, handle, error, found) from error
            heading, _, _ = str(error).partition("\n")
            raise errors.NotFound(f"{heading}\nThe list of your {kind}s lacks it, too.") from error

    # Competitions: read the files, submit, read the scores

    def competition(self, name: str) -> calls.Competition:
        """Return what Kaggle says of a competition."""
        what = f"look at the competition {name}"
        return self._read(what, calls.GET_COMPETITION, {"competition_name": name})

    def download_competition_file(self, competition: str, name: str, path: Path) -> None:
        """Download one file of the competition to `path`."""
        what = f"download {name} of the competition {competition}"
        about = {"competition_name": competition, "file_name": name}
        self._download(what, path, self._file(calls.COMPETITION_FILE, about))

    def open_competition_file(self, competition: str, name: str) -> None:
        """Ask for one file of the competition, and read nothing of it."""
        what = f"open {name} of the competition {competition}"
        about = {"competition_name": competition, "file_name": name}
        self._read(what, calls.COMPETITION_FILE, about).close()

    def competition_files(self, competition: str) -> list[str]:
        """Return the names of the competition's files, from the first page."""
        what = f"list the files of the competition {competition}"
        about = {"competition_name": competition, "page_size": 100}
        return [file.name for file in self._read(what, calls.COMPETITION_FILES, about).files]

    def submit_code(
        self, competition: str, handle: str, version: int, *, file_name: str, description: str
    ) -> int:
        """Submit a kernel version and return the submission's number.

        Sent once; may raise `Ambiguous`.
        """
        owner, slug = split(handle)
        values = {
            "competition_name": competition,
            "kernel_owner": owner,
            "kernel_slug": slug,
            "kernel_version": version,
            "file_name": file_name,
            "submission_description": description,
        }
        what = f"submit {handle} version {version} to {competition}"
        return self._submit(what, calls.SUBMIT_CODE, values)

    def upload_submission(self, competition: str, path: Path) -> str:
        """Upload a file and return its token for `submit_file`. It is no submission yet."""
        about = {"competition_name": competition, "file_name": path.name}
        return self._upload(path, calls.START_SUBMISSION_UPLOAD, about)

    def submit_file(self, competition: str, token: str, *, description: str) -> int:
        """Submit an uploaded file, and return the submission's number.

        Sent once; may raise `Ambiguous`.
        """
        values = {
            "competition_name": competition,
            "blob_file_tokens": token,
            "submission_description": description,
        }
        return self._submit(f"submit a file to {competition}", calls.SUBMIT_FILE, values)

    def _submit(self, what: str, call: calls.Call[calls.Submitted], values: Values) -> int:
        answer = self._write(what, call, values)
        if answer.ref < 1:
            raise errors.Ambiguous(
                f"Kaggle accepted the call to {what} but gave no number: {answer.message!r}.\n"
                f"{failures.LOOK}"
            )
        return answer.ref

    def get_submission(self, ref: int) -> calls.Scored:
        """Return the submission with that number."""
        return self._read(f"look at submission {ref}", calls.GET_SUBMISSION, {"ref": ref})

    def list_submissions(self, competition: str) -> list[calls.Scored]:
        """Return our team's latest submissions, newest first: up to 1,000, those of months."""
        what = f"list the submissions to {competition}"
        about = {"competition_name": competition, "page_size": 100}
        found: dict[int, calls.Scored] = {}
        for page in range(1, 11):
            listed = self._read(what, calls.LIST_SUBMISSIONS, {**about, "page": page}).submissions
            found.update({item.ref: item for item in listed})
            if len(listed) < 100:
                break
        return list(found.values())

    def submission_limits(self, competition: str) -> calls.Limits:
        """Return how many submissions are left; all zeros if our team is not known yet."""
        what = f"ask for the submission limits of {competition}"
        return self._read(what, calls.SUBMISSION_LIMITS, {"competition_name": competition})


def split(handle: str) -> tuple[str, str]:
    """Return owner and slug of `owner/slug`. Raises `UsageError` for anything else."""
    owner, slash, slug = handle.partition("/")
    if not (owner and slash and slug) or "/" in slug:
        raise errors.UsageError(
            f"{handle!r} is not a handle; expected owner/slug.\n"
            "Copy it from the address on kaggle.com."
        )
    return owner, slug


def _kernel(handle: str, version: int | None) -> dict[str, Any]:
    """Return the fields of a request about a version; None: the latest."""
    owner, slug = split(handle)
    if version is not None and version < 1:
        raise errors.UsageError(
            f"{handle}: got version {version}; expected 1 or more.\nCorrect the version."
        )
    # The real server does not find a bare number.
    label = f"v{version}" if version is not None else None
    return {"user_name": owner, "kernel_slug": slug, "version_label": label}


def _dataset(handle: str) -> dict[str, Any]:
    """Return the fields of a request about a dataset."""
    owner, slug = split(handle)
    return {"owner_slug": owner, "dataset_slug": slug}

"""The Kaggle client, with one method per API call.

Calls about a run specify its version, because Kaggle would otherwise use the latest version, no
matter who created it. Missing or unknown responses are never treated as successful. Calls that make
changes are sent once and may raise `Ambiguous`.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import requests

from deploy import calls, errors, failures, models
from deploy.calls import ASKED, RUN, SOURCES
from deploy.connection import UNREADABLE, Connection
from deploy.decoding import log_lines, log_pieces
from deploy.transfer import Download

T = TypeVar("T")

EMPTY_LOOKS = 3  # checks before a kernel is considered to have no versions
SETTINGS = ("language", "kernel_type", "enable_gpu", "enable_tpu", *ASKED)


class Kaggle(Connection):
    """A logged-in connection to Kaggle. Use `Kaggle.connect()` to create one."""

    # Kernels

    def save_kernel(
        self, metadata: Mapping[str, Any], text: str, *, timeout_seconds: int, execution: str = RUN
    ) -> calls.Saved:
        """Push a kernel. The session stops after `timeout_seconds`. `execution` is RUN or SAVE."""
        sources = {name.replace("_", "_data_"): metadata.get(name) or None for name in SOURCES}
        values = {
            "slug": metadata["id"],
            "new_title": metadata["title"],
            "text": text,
            "session_timeout_seconds": timeout_seconds,
            "kernel_execution_type": execution,
            **{name: metadata[name] for name in SETTINGS},
            **sources,
        }
        return self._write(f"push {metadata['id']}", calls.SAVE_KERNEL, values)

    def kernel_status(self, handle: str, version: int) -> calls.KernelStatus:
        """Return a version's status.

        Raises:
            NotFound: if the version does not exist. This includes a 403 if this account owns the
                kernel but the list of our kernels does not contain that version.
            Unknown: if Kaggle responds with a 403, but the list contains the version or is not
                available.
        """
        what = f"get the status of {handle} version {version}"
        ask = partial(self._read, what, calls.KERNEL_STATUS, _kernel(handle, version))
        return self._ours("notebook", handle, ask, version)

    def kernel_output(self, handle: str, version: int) -> tuple[dict[str, str], str]:
        """Return {name: signed URL} for a version's output, and the log as stored by Kaggle.

        The names come from the network and must be validated before use.
        """
        what = f"list the output of {handle} version {version}"
        pages = list(self._pages(what, calls.KERNEL_OUTPUT, _kernel(handle, version)))
        log = next((page.log for page in pages if page.log), "")
        return {file.file_name: file.url for page in pages for file in page.files}, log

    def kernel_log(self, handle: str, version: int) -> list[str]:
        what = f"read the log of {handle} version {version}"
        about = {**_kernel(handle, version), "page_size": 1}
        return log_lines(self._read(what, calls.KERNEL_OUTPUT, about).log)

    def follow_log(self, handle: str, version: int) -> Iterator[tuple[str, str]]:
        """Yield a version's log from the start, as (stream, text) pairs, as the run writes it.

        The iteration stops when the run ends. If the connection breaks, this does not retry but
        raises `requests.RequestException` or `ValueError`.
        """
        session, site = copy.copy(self._session), self._http._endpoint  # this runs in a thread
        within = "v1" if "//api." in site else "api/v1"  # only kaggle.com has a separate API host
        with session.get(
            f"{site}/{within}/kernels/logs/stream/{handle}",
            params={"versionLabel": f"v{version}"},
            headers={"Accept": "text/event-stream, */*", "Content-Type": None},
            stream=True,
            allow_redirects=False,
        ) as answer:
            answer.raise_for_status()
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                yield from log_pieces(answer.content.decode("utf-8", "replace"))
                return
            # Do not split at other line separators in a log, such as U+2028.
            for line in answer.iter_lines(chunk_size=None, delimiter=b"\n"):
                name, _, data = line.decode("utf-8", "replace").partition(":")
                if name == "data" and data.strip() == "END_OF_LOG":
                    return
                if name == "data":
                    yield from log_pieces(f"[{data}]")

    def get_kernel(self, handle: str, version: int | None = None) -> calls.Source | None:
        """Return a version of our kernel, by default the current one, or None if it does not exist.

        Raises:
            Refused: if the kernel has no versions, which makes all calls about it fail.
            Unknown: if Kaggle does not report whether the kernel exists.
        """
        looks = itertools.count(1)

        def ask() -> calls.Source:
            try:
                return self._send(calls.GET_KERNEL, _kernel(handle, version))
            except requests.HTTPError as error:
                empty = failures.code(error) == 500 and self._has_no_status(handle)
                if empty and next(looks) == EMPTY_LOOKS:
                    raise errors.Refused(failures.without_version(handle)) from error
                raise

        with suppress(errors.NotFound):
            ask_often = partial(self._retried, f"get {handle}", ask)
            found = self._ours("notebook", handle, ask_often)
            return replace(found, version=version or found.version)
        return None

    def _has_no_status(self, handle: str) -> bool:
        try:
            self._send(calls.KERNEL_STATUS, _kernel(handle, None))
        except UNREADABLE as error:
            return failures.code(error) == 404
        return False

    def own_kernels(self) -> Iterator[calls.OwnKernel]:
        """Yield all of our kernels, newest run first. Some may not have a version yet.

        This call sometimes fails for days, so it is retried only briefly.
        """
        kinds = dict.fromkeys(("language", "kernel_type", "output_type"), "all")
        # Larger pages have failed with a 500.
        about = {"page_size": 20, "group": "PROFILE", "sort_by": "DATE_RUN", **kinds}
        pages = self._pages("list your notebooks", calls.LIST_KERNELS, about, self.pace.most)
        return (kernel for page in pages for kernel in page.kernels if "/" in kernel.handle)

    def quota(self, patience: float | None = None) -> calls.Quota:
        return self._read("get the quota", calls.QUOTA, {}, patience)

    def download(
        self, url: str, path: Path, renew: Callable[[], str] = str, note: Path | None = None
    ) -> None:
        """Download a file from a signed URL returned by `kernel_output`.

        If the URL has expired, `renew` returns a new one, or "" if Kaggle does not provide one.
        `Expired` is raised if the storage server also rejects the new URL. See `Transfer` for
        `note`.
        """

        def ask(headers: Mapping[str, str]) -> requests.Response:
            nonlocal url
            get = partial(self._anonymous.get, stream=True, headers=headers)
            answer = get(url)
            if answer.status_code in failures.STORAGE["GET"] and (renewed := renew()):
                url = renewed
                answer = get(url)
            return answer

        self._transferred(f"download {path.name}", Download(path, self._show, note, ask))

    def delete_kernel(self, handle: str) -> None:
        self._write(f"delete {handle}", calls.DELETE_KERNEL, _kernel(handle, None))

    # Datasets

    def dataset(self, handle: str) -> calls.Dataset | None:
        """Return our dataset, or None if it does not exist.

        Raises `Unknown` if Kaggle does not report whether it exists.
        """
        what = f"get the dataset {handle}"
        with suppress(errors.NotFound):
            ask = partial(self._read, what, calls.GET_DATASET, _dataset(handle))
            return self._ours("dataset", handle, ask)
        return None

    def own_datasets(self) -> Iterator[calls.Dataset]:
        about = {"group": "DATASET_SELECTION_GROUP_MY"}
        pages = self._pages("list your datasets", calls.LIST_DATASETS, about)
        return (dataset for page in pages for dataset in page.datasets if dataset.handle)

    def dataset_status(self, handle: str) -> str:
        what = f"get the status of the dataset {handle}"
        return self._read(what, calls.DATASET_STATUS, _dataset(handle)).status

    def dataset_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: size in bytes} for all files of a version."""
        what = f"list the files of {handle} version {version}"
        about = {**_dataset(handle), "dataset_version_number": version}
        pages = self._pages(what, calls.DATASET_FILES, about)
        return {file.name: file.total_bytes for page in pages for file in page.dataset_files}

    def download_dataset_file(
        self, handle: str, version: int, name: str, path: Path, note: Path | None = None
    ) -> None:
        what = f"download {name} of {handle} version {version}"
        about = {**_dataset(handle), "dataset_version_number": version, "file_name": name}
        ask = partial(self._send, calls.DATASET_FILE, about)
        self._transferred(what, Download(path, self._show, note, ask))

    def upload(self, path: Path, note: Path | None = None) -> str:
        """Upload a file and return its token for `create_dataset`. See `_upload` for `note`.

        Retrying an upload is safe, because nothing uses the file yet.
        """
        about = {"type": "DATASET", "name": path.name}
        return self._upload(path, calls.START_UPLOAD, about, note)

    def create_dataset(
        self, handle: str, *, title: str, description: str, tokens: Sequence[str]
    ) -> None:
        owner, slug = handle.split("/")
        values = {
            "owner_slug": owner,
            "slug": slug,
            "title": title,
            "description": description,
            "license_name": "CC0-1.0",  # required by Kaggle, even though the dataset is private
            "is_private": True,
            "files": [{"token": token} for token in tokens],
        }
        self._write(f"create the dataset {handle}", calls.CREATE_DATASET, values)

    def create_dataset_version(self, handle: str, *, notes: str, tokens: Sequence[str]) -> None:
        what = f"add a version to the dataset {handle}"
        body = {"versionNotes": notes, "files": [{"token": token} for token in tokens]}
        # The official client retries this call, which may create two versions.
        self._write(what, calls.CREATE_DATASET_VERSION, {**_dataset(handle), "body": body})

    def delete_dataset(self, handle: str) -> None:
        self._write(f"delete the dataset {handle}", calls.DELETE_DATASET, _dataset(handle))

    def _ours(self, kind: str, handle: str, ask: Callable[[], T], version: int = 0) -> T:
        """Make a call about a notebook or dataset that may belong to this account.

        If one of our own items does not exist, Kaggle responds with the same 403 that it sends when
        these credentials have no access to an item. The list of our own items distinguishes the two
        cases.

        Raises:
            NotFound: if the item does not exist.
            Unknown: if the item may exist, because it is in the list or the list is not available.
            Denied: if the item belongs to somebody else, or requires an action on kaggle.com first.
        """
        try:
            return ask()
        except errors.Denied as error:
            if handle.split("/")[0].lower() != self.username.lower() or error.gate:
                raise
            listed = self.own_kernels if kind == "notebook" else self.own_datasets
            found: bool | None = None
            with suppress(*errors.UNTOLD):
                found = any(
                    one.handle.lower() == handle.lower()
                    and (not one.version or one.version >= version)
                    for one in listed()
                )
            if found is not False:
                raise failures.unknown(kind, handle, error, found) from error
            heading, _, _ = str(error).partition("\n")
            raise errors.NotFound(f"{heading}\nIt is not in the list of your {kind}s.") from error

    # Models

    def look_at_model(self, name: str) -> None:
        """Check that this account has access to a model by listing its files.

        In the name, the framework is spelled as on Kaggle. See `deploy.models.spelled`.
        """
        owner, model, framework, variation, version = name.split("/")
        about = {
            "owner_slug": owner,
            "model_slug": model,
            "framework": models.word(framework),
            "instance_slug": variation,
            "version_number": int(version),
        }
        self._read(f"get the model {name}", calls.MODEL_FILES, about)

    # Competitions

    def competition(self, name: str) -> calls.Competition:
        what = f"get the competition {name}"
        return self._read(what, calls.GET_COMPETITION, {"competition_name": name})

    def download_competition_file(self, competition: str, name: str, path: Path) -> None:
        what = f"download {name} of the competition {competition}"
        about = {"competition_name": competition, "file_name": name}
        ask = partial(self._send, calls.COMPETITION_FILE, about)
        self._transferred(what, Download(path, self._show, None, ask))

    def download_competition(self, competition: str, path: Path, note: Path) -> None:
        what = f"download the files of the competition {competition}"
        ask = partial(self._send, calls.COMPETITION_FILES, {"competition_name": competition})
        self._transferred(what, Download(path, self._show, note, ask, copies=2))

    def submit_code(
        self, competition: str, handle: str, version: int, *, file_name: str, description: str
    ) -> int:
        owner, slug = handle.split("/")
        values = {
            "competition_name": competition,
            "kernel_owner": owner,
            "kernel_slug": slug,
            "kernel_version": version,
            "file_name": file_name,
            "submission_description": description,
        }
        what = f"submit {handle} version {version} to {competition}"
        return self._write(what, calls.SUBMIT_CODE, values).ref

    def upload_submission(self, competition: str, path: Path) -> str:
        """Upload a file and return its token for `submit_file`. This does not submit it yet."""
        about = {"competition_name": competition, "file_name": path.name}
        return self._upload(path, calls.START_SUBMISSION_UPLOAD, about)

    def submit_file(self, competition: str, token: str, *, description: str) -> int:
        values = {
            "competition_name": competition,
            "blob_file_tokens": token,
            "submission_description": description,
        }
        return self._write(f"submit a file to {competition}", calls.SUBMIT_FILE, values).ref

    def get_submission(self, ref: int) -> calls.Scored:
        return self._read(f"get submission {ref}", calls.GET_SUBMISSION, {"ref": ref})

    def list_submissions(self, competition: str) -> list[calls.Scored]:
        """Return our team's last 100 submissions, newest first."""
        what = f"list the submissions to {competition}"
        about = {"competition_name": competition, "page_size": 100}
        return [*self._read(what, calls.LIST_SUBMISSIONS, about).submissions]

    def submission_limits(self, competition: str) -> calls.Limits:
        """Return the submission limits, which are all 0 until Kaggle recognizes our team."""
        what = f"get the submission limits of {competition}"
        return self._read(what, calls.SUBMISSION_LIMITS, {"competition_name": competition})


def _kernel(handle: str, version: int | None) -> dict[str, Any]:
    """Return the request fields that identify a version. None is the latest version."""
    owner, slug = handle.split("/")
    # Kaggle does not accept a bare number here.
    label = f"v{version}" if version is not None else None
    return {"user_name": owner, "kernel_slug": slug, "version_label": label}


def _dataset(handle: str) -> dict[str, Any]:
    owner, slug = handle.split("/")
    return {"owner_slug": owner, "dataset_slug": slug}

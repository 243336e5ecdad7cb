"""The client: what Kaggle is asked about kernels, datasets and competitions.

A call about a run names its version. Without it Kaggle answers for the latest, whoever made that.
A missing or unknown answer never looks like success.
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

EMPTY_LOOKS = 3  # before a kernel counts as one without a version
SETTINGS = ("language", "kernel_type", "enable_gpu", "enable_tpu", *ASKED)


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
        sources = {name.replace("_", "_data_"): metadata.get(name) or None for name in SOURCES}
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
        """Return the state of a version.

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
        pages = list(self._pages(what, calls.KERNEL_OUTPUT, _kernel(handle, version)))
        log = next((page.log for page in pages if page.log), "")
        return {file.file_name: file.url for page in pages for file in page.files}, log

    def kernel_log(self, handle: str, version: int) -> list[str]:
        """Return the lines of a version's log, as far as Kaggle has them."""
        what = f"read the log of {handle} version {version}"
        about = {**_kernel(handle, version), "page_size": 1}
        return log_lines(self._read(what, calls.KERNEL_OUTPUT, about).log)

    def follow_log(self, handle: str, version: int) -> Iterator[tuple[str, str]]:
        """Yield (stream, text) of a version's log as it is written, from its beginning.

        It ends with the run or the connection, and never retries.

        Raises:
            requests.RequestException, ValueError: if the connection breaks.
        """
        session, site = copy.copy(self._session), self._http._endpoint  # another thread follows
        within = "v1" if "//api." in site else "api/v1"  # only the site has a host for calls alone
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
            # No other line ends: a log may hold them, as U+2028.
            for line in answer.iter_lines(chunk_size=None, delimiter=b"\n"):
                name, _, data = line.decode("utf-8", "replace").partition(":")
                if name == "data" and data.strip() == "END_OF_LOG":
                    return
                if name == "data":
                    yield from log_pieces(f"[{data}]")

    def get_kernel(self, handle: str, version: int | None = None) -> calls.Source | None:
        """Return a version of our kernel, by default the current one; None if it does not exist.

        Raises:
            Refused: if the kernel has no version, so that no call about it works.
            Unknown: if Kaggle does not tell.
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
            ask_often = partial(self._retried, f"look at {handle}", ask)
            found = self._ours("notebook", handle, ask_often)
            return replace(found, version=version or found.version)
        return None

    def _has_no_status(self, handle: str) -> bool:
        """Return whether Kaggle answers 404 when it is asked how the newest version stands."""
        try:
            self._send(calls.KERNEL_STATUS, _kernel(handle, None))
        except UNREADABLE as error:
            return failures.code(error) == 404  # else it has some status, or nobody knows
        return False

    def own_kernels(self, patience: float | None = None) -> Iterator[calls.OwnKernel]:
        """Yield all our kernels, the one that ran last first. One may have no version yet.

        Args:
            patience: seconds to retry one page; by default a part of the pace's: this list may fail
                for days.
        """
        kinds = dict.fromkeys(("language", "kernel_type", "output_type"), "all")
        # Kaggle was seen to answer larger pages by 500.
        about = {"page_size": 20, "group": "PROFILE", "sort_by": "DATE_RUN", **kinds}
        patience = self.pace.most if patience is None else patience
        pages = self._pages("list your notebooks", calls.LIST_KERNELS, about, patience)
        return (kernel for page in pages for kernel in page.kernels if "/" in kernel.handle)

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
            note: as in `Transfer`.

        Raises:
            Expired: if the address is not valid, and `renew` has no valid one.
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
        """Return the state of the current version, READY at the end."""
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
        """Download one file of a version to `path`. `note`: as in `Transfer`."""
        what = f"download {name} of {handle} version {version}"
        about = {**_dataset(handle), "dataset_version_number": version, "file_name": name}
        ask = partial(self._send, calls.DATASET_FILE, about)
        self._transferred(what, Download(path, self._show, note, ask))

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
        owner, slug = handle.split("/")
        values = {
            "owner_slug": owner,
            "slug": slug,
            "title": title,
            "description": description,
            "license_name": "CC0-1.0",  # Kaggle requires one; the dataset is private
            "is_private": True,
            "files": [{"token": token} for token in tokens],
        }
        self._write(f"create the dataset {handle}", calls.CREATE_DATASET, values)

    def create_dataset_version(self, handle: str, *, notes: str, tokens: Sequence[str]) -> None:
        """Add a version made of exactly these uploaded files. Sent once; may raise `Ambiguous`."""
        what = f"add a version to the dataset {handle}"
        body = {"versionNotes": notes, "files": [{"token": token} for token in tokens]}
        # The official client's own wrapper retries this call, and so makes two versions.
        self._write(what, calls.CREATE_DATASET_VERSION, {**_dataset(handle), "body": body})

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
            if handle.split("/")[0].lower() != self.username.lower() or error.gate:
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

    # Models: those that a notebook mounts

    def look_at_model(self, name: str) -> None:
        """Ask for the files of a model's version.

        Args:
            name: owner/model/framework/variation/version, the framework as Kaggle writes it.

        Raises:
            NotFound, Denied: if Kaggle does not show it to this account.
        """
        owner, model, framework, variation, version = name.split("/")
        about = {
            "owner_slug": owner,
            "model_slug": model,
            "framework": models.word(framework),
            "instance_slug": variation,
            "version_number": int(version),
        }
        self._read(f"look at the model {name}", calls.MODEL_FILES, about)

    # Competitions: read the files, submit, read the scores

    def competition(self, name: str) -> calls.Competition:
        """Return what Kaggle says of a competition."""
        what = f"look at the competition {name}"
        return self._read(what, calls.GET_COMPETITION, {"competition_name": name})

    def download_competition_file(self, competition: str, name: str, path: Path) -> None:
        """Download one file of the competition to `path`."""
        what = f"download {name} of the competition {competition}"
        about = {"competition_name": competition, "file_name": name}
        ask = partial(self._send, calls.COMPETITION_FILE, about)
        self._transferred(what, Download(path, self._show, None, ask))

    def download_competition(self, competition: str, path: Path, note: Path) -> None:
        """Download all files of the competition as one archive. `note`: as in `Transfer`."""
        what = f"download the files of the competition {competition}"
        ask = partial(self._send, calls.COMPETITION_FILES, {"competition_name": competition})
        self._transferred(what, Download(path, self._show, note, ask, copies=2))

    def submit_code(
        self, competition: str, handle: str, version: int, *, file_name: str, description: str
    ) -> int:
        """Submit a kernel version and return the submission's number.

        Sent once; may raise `Ambiguous`.
        """
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
        return self._write(f"submit a file to {competition}", calls.SUBMIT_FILE, values).ref

    def get_submission(self, ref: int) -> calls.Scored:
        """Return the submission with that number."""
        return self._read(f"look at submission {ref}", calls.GET_SUBMISSION, {"ref": ref})

    def list_submissions(self, competition: str) -> list[calls.Scored]:
        """Return our team's latest submissions, newest first: up to 100, those of weeks."""
        what = f"list the submissions to {competition}"
        about = {"competition_name": competition, "page_size": 100}
        return [*self._read(what, calls.LIST_SUBMISSIONS, about).submissions]

    def submission_limits(self, competition: str) -> calls.Limits:
        """Return how many submissions are left; all zeros if our team is not known yet."""
        what = f"ask for the submission limits of {competition}"
        return self._read(what, calls.SUBMISSION_LIMITS, {"competition_name": competition})


def _kernel(handle: str, version: int | None) -> dict[str, Any]:
    """Return the fields of a request about a version; None: the latest."""
    owner, slug = handle.split("/")
    # The real server does not find a bare number.
    label = f"v{version}" if version is not None else None
    return {"user_name": owner, "kernel_slug": slug, "version_label": label}


def _dataset(handle: str) -> dict[str, Any]:
    """Return the fields of a request about a dataset."""
    owner, slug = handle.split("/")
    return {"owner_slug": owner, "dataset_slug": slug}

"""Calls about kernels: push one, follow a run, list its output.

A call about a run names its version. Without it Kaggle answers for the latest, whoever made that.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

from deploy import failure_messages, file_transfer, responses
from deploy.errors import BadAnswer, Denied, NotFound, Refused, UsageError
from deploy.responses import KernelStatus, Malformed, OwnKernel, Quota, Saved, Source, split
from deploy.retries import UNREADABLE, Exchange

# Fields of kernel-metadata.json that GetKernel returns; for SOURCES, the client's name of each.
ASKED = ("enable_internet", "is_private", "machine_shape")
SOURCES = {
    f"{kind}_sources": f"{kind}_data_sources"
    for kind in ("dataset", "competition", "kernel", "model")
}
INVALID = ("tags", *SOURCES)
RUN, SAVE = "SAVE_AND_RUN_ALL", "QUICK_SAVE"  # what becomes of a push, in Kaggle's words
SETTINGS = ("language", "kernel_type", "enable_gpu", "enable_tpu", *ASKED)
# Before owner/slug or a competition's slug, where Kaggle shows addresses in place of handles.
PREFIX = {
    "dataset_sources": r"datasets/(?=[^/]+/)",
    "competition_sources": r"(?:competitions|c)/",
    "kernel_sources": r"code/(?=[^/]+/)",
    "model_sources": r"models/(?=[^/]+/)",
}
LISTED = 20  # kernels a page: Kaggle was seen to answer larger ones by 500
EMPTY_LOOKS = 3  # in a row, before a kernel counts as one without a version


class KernelCalls(Exchange):
    """What Kaggle is asked about kernels."""

    # The client ships no types: everything behind these names is Any.
    _kernels: Any
    _kernels_types: Any

    def save_kernel(
        self,
        metadata: Mapping[str, Any],
        text: str,
        *,
        timeout_seconds: int,
        execution: str = RUN,
    ) -> Saved:
        """Push a kernel. Sent once; may raise `Ambiguous`.

        Args:
            metadata: as in kernel-metadata.json.
            text: the notebook.
            timeout_seconds: after which Kaggle ends the session.
            execution: RUN or SAVE; "" leaves it to Kaggle.
        """
        request = self._kernels_types.ApiSaveKernelRequest()
        request.slug, request.new_title = metadata["id"], metadata["title"]
        request.text = text
        for name in SETTINGS:
            setattr(request, name, metadata[name])
        for name, field in SOURCES.items():
            setattr(request, field, list(metadata.get(name, [])))
        request.session_timeout_seconds = timeout_seconds
        if execution:
            request.kernel_execution_type = self._kernels_types.KernelExecutionType[execution]
        what = f"push {metadata['id']}"

        def order() -> Saved:
            answer = self._kernels.save_kernel(request)
            return Saved(
                responses.number(answer.version_number),
                responses.text(answer.url),
                responses.handle(answer.ref) or responses.handle(answer.url),
                failure_messages.error_text(what, answer.error),
                {kind: responses.texts(getattr(answer, f"invalid_{kind}")) for kind in INVALID},
                responses.number(answer.kernel_id),
            )

        return self._write(what, order)

    def kernel_status(self, handle: str, version: int) -> KernelStatus:
        """Return the state of a version; UNKNOWN(word) for a word that the client does not know.

        Raises:
            NotFound: if there is no such version; also if Kaggle answers 403 of a kernel that would
                be ours, and our list lacks it, or has it with fewer versions.
            Unknown: if Kaggle answers 403, and the list has it or is not shown, either.
        """
        request = self._about_kernel("GetKernelSessionStatus", handle, version)

        def ask() -> KernelStatus:
            try:
                answer = self._kernels.get_kernel_session_status(request)
            except Malformed as error:
                return KernelStatus(responses.unknown_word(error), "")
            return KernelStatus(
                responses.word(answer.status), responses.text(answer.failure_message)
            )

        what = f"ask for the status of {handle} version {version}"
        try:
            return self._read(what, ask)
        except Denied as error:

            def ours() -> Iterator[str]:
                kernels = self.own_kernels()
                return (one.handle for one in kernels if not one.version or one.version >= version)

            self._require_absent("notebook", handle, error, ours)
            heading, _, _ = str(error).partition("\n")
            raise NotFound(f"{heading}\nThe list of your notebooks lacks it, too.") from error

    def kernel_output(self, handle: str, version: int) -> tuple[dict[str, str], str]:
        """Return the output of a version, from all pages, and its log.

        Returns:
            {name: signed address}, and the log as Kaggle stores it. The names are the server's:
            validate them before use.
        """
        what = f"list the output of {handle} version {version}"
        request = self._about_kernel("ListKernelSessionOutput", handle, version)
        files: dict[str, str] = {}
        log = ""
        for page in self._pages(what, request, 100, self._kernels.list_kernel_session_output):
            log = log or page.log or ""
            for file in page.files or ():
                if not isinstance(file.file_name, str) or not isinstance(file.url, str):
                    raise BadAnswer(
                        f"Could not {what}: a file has no name or no address.\n"
                        "Try again in a minute."
                    )
                if file.file_name in files:
                    raise BadAnswer(
                        f"Could not {what}: {file.file_name!r} is listed twice.\nTry again."
                    )
                files[file.file_name] = file.url
        return files, log

    def kernel_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: bytes} of a version's output, from all pages; asked once a page.

        Kaggle was seen to list wrong sizes, and no files at all: use `kernel_output` for the names.
        """
        what = f"list the files of {handle} version {version}"
        request = self._about_kernel("ListKernelFiles", handle, version)
        pages = self._pages(what, request, 100, self._kernels.list_kernel_files, patience=0)
        return {file.name: file.size or 0 for page in pages for file in page.files or ()}

    def kernel_log(self, handle: str, version: int) -> list[str]:
        """Return the lines of a version's log, as far as Kaggle has them."""
        return responses.log_lines(self._log(handle, version))

    def kernel_seconds(self, handle: str, version: int) -> float | None:
        """Return how long a version ran, by the last line of its log; None if it has no times."""
        return responses.log_seconds(self._log(handle, version))

    def _log(self, handle: str, version: int) -> str:
        request = self._about_kernel("ListKernelSessionOutput", handle, version)
        request.page_size = 1

        def ask() -> str:
            return responses.text(self._kernels.list_kernel_session_output(request).log)

        return self._read(f"read the log of {handle} version {version}", ask)

    def follow_log(self, handle: str, version: int) -> Iterator[tuple[str, str]]:
        """Yield (stream, text) of a version's log as it is written, from its beginning.

        It ends with the run or the connection, and never retries.

        Raises:
            requests.RequestException, ValueError: if the connection breaks.
        """
        endpoint = self._http._endpoint
        base = endpoint if "api." in endpoint else f"{endpoint}/api"
        with (
            file_transfer.copied(self._http._session, self._timeouts) as session,
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
                yield from responses.log_pieces(answer.text)
                return
            rest = b""
            for chunk in answer.iter_content(chunk_size=None):
                # No other line ends: a log may hold them, as U+2028.
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    name, _, data = line.decode("utf-8", "replace").partition(":")
                    if name == "data" and data.strip() == "END_OF_LOG":
                        return
                    if name == "data":
                        yield from responses.log_pieces(f"[{data}]")

    def get_kernel(self, handle: str, version: int | None = None) -> Source | None:
        """Return a version of our kernel, by default the current one; None if it does not exist.

        Raises:
            Refused: if the kernel has no version, so that no call about it works.
            Unknown: if Kaggle does not tell.
        """
        request, looks = self._about_kernel("GetKernel", handle, version), 0

        def ask() -> Source:
            nonlocal looks
            try:
                answer = self._kernels.get_kernel(request)
            except requests.HTTPError as error:
                empty = failure_messages.answered(500, error) and self._has_no_status(handle)
                looks = looks + 1 if empty else 0
                if looks == EMPTY_LOOKS:
                    raise Refused(failure_messages.without_version(handle)) from error
                raise
            metadata, blob = answer.metadata, answer.blob
            if metadata is None:
                raise Malformed("the answer has no metadata")
            asks = {name: getattr(metadata, name, None) for name in ASKED}
            for name, field in SOURCES.items():
                sources = responses.texts(getattr(metadata, field, None))
                asks[name] = tuple(re.sub(f"^{PREFIX[name]}", "", source) for source in sources)
            newest = responses.number(metadata.current_version_number)
            return Source(version or newest, responses.text(blob.source if blob else ""), asks)

        return self._mine("notebook", handle, f"look at {handle}", ask, self._handles)

    def _handles(self) -> Iterator[str]:
        return (kernel.handle for kernel in self.own_kernels())

    def own_kernels(
        self, page_size: int = LISTED, patience: float | None = None
    ) -> Iterator[OwnKernel]:
        """Yield all our kernels that have a version, the one that ran last first.

        Args:
            page_size: so many are asked for by one call.
            patience: seconds to retry one; by default a part of the pace's: this list may fail for
                days.
        """
        patience = self.pace.most if patience is None else patience
        types = self._kernels_types
        request = types.ApiListKernelsRequest()
        request.group = types.KernelsListViewType.PROFILE
        request.sort_by = types.KernelsListSortType.DATE_RUN
        request.language = request.kernel_type = request.output_type = "all"
        ask = self._kernels.list_kernels
        pages = self._pages("list your notebooks", request, page_size, ask, patience)
        for page in pages:
            for kernel in page.kernels or ():
                if kernel and kernel.ref:
                    yield OwnKernel(
                        kernel.ref,
                        kernel.current_version_number or 0,
                        kernel.machine_shape or "",
                        bool(kernel.enable_tpu),
                        bool(kernel.enable_gpu),
                        kernel.id or 0,
                    )

    def _has_no_status(self, handle: str) -> bool:
        """Return whether Kaggle answers 404 when it is asked how the newest version stands."""
        try:
            self._kernels.get_kernel_session_status(
                self._about_kernel("GetKernelSessionStatus", handle, None)
            )
        except requests.HTTPError as error:
            return failure_messages.answered(404, error)
        except UNREADABLE:
            return False  # it has some status, or nobody knows
        return False

    def quota(self, patience: float | None = None) -> Quota:
        """Return the accelerator time of this week.

        Args:
            patience: seconds to retry; by default those of the pace.
        """
        request = self._kernels_types.ApiGetAcceleratorQuotaStatisticsRequest()

        def ask() -> Quota:
            answer = self._kernels.get_accelerator_quota_statistics(request)
            given = {"GPU": answer.gpu_quota, "TPU": answer.tpu_quota}
            known = {name: one for name, one in given.items() if one is not None}
            return Quota(
                responses.seconds_left(answer.gpu_quota),
                responses.seconds_left(answer.tpu_quota),
                responses.moment(answer.quota_refresh_time),
                responses.seconds_allowed(answer.gpu_quota),
                responses.seconds_allowed(answer.tpu_quota),
                {
                    name: one.time_reserved.total_seconds()
                    for name, one in known.items()
                    if one.time_reserved
                },
                # kagglesdk 0.1.37 may not know of it.
                tuple(
                    name
                    for name, one in known.items()
                    if getattr(one, "is_pay_to_scale_enabled", False)
                ),
            )

        return self._read("ask for the quota", ask, patience)

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

        self._download(f"download {path.name}", path, ask, renewed, note=note)

    def delete_kernel(self, handle: str) -> None:
        """Delete our kernel with all of its versions. Sent once; may raise `Ambiguous`."""
        request = self._about_kernel("DeleteKernel", handle, None)
        what = f"delete {handle}"
        answer = self._write(what, lambda: self._kernels.delete_kernel(request))
        failure_messages.require_none(what, answer.error_message)

    def _about_kernel(self, call: str, handle: str, version: int | None) -> Any:
        request = getattr(self._kernels_types, f"Api{call}Request")()
        request.user_name, request.kernel_slug = split(handle)
        if version is not None:
            if version < 1:
                raise UsageError(
                    f"{handle}: got version {version}; expected 1 or more.\nCorrect the version."
                )
            request.version_label = f"v{version}"  # the real server does not find a bare number
        return request

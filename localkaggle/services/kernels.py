"""Kernels: the service that takes pushes, runs them, and tells how they stand.

Statuses advance as on Kaggle: QUEUED, RUNNING, then COMPLETE or ERROR. Which session gets which
machine, and the limits, are as public reports describe them (docs/facts.md).
"""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kagglesdk.kernels.types.kernels_api_service as types
from kagglesdk.kernels.types.kernels_enums import KernelExecutionType, KernelWorkerStatus

from localkaggle.services.protocol import SLUG, Fault, Redirect, Storage, page, require, slug
from localkaggle.sessions.session import Outcome, Session, machine
from localkaggle.sessions.session_log import Log

SOURCE_BYTES = 1024 * 1024
SHAPES = {
    "",
    "None",
    "NvidiaTeslaT4",
    "NvidiaL4",
    "NvidiaL4X1",
    "NvidiaTeslaA100",
    "NvidiaH100",
    "NvidiaRtxPro6000",
    "TpuV5E8",
    "TpuV6E8",
}
# What kaggle 2.2.5 says of retired shapes: some become others, some become a CPU in silence.
RETIRED = {
    "NvidiaTeslaP100": "NvidiaTeslaT4",
    "TpuV38": "TpuV5E8",
    "Tpu1VmV38": "TpuV5E8",
    "TpuV232": "",
    "TpuV2256": "",
}
SESSIONS = {"TPU": 1, "GPU": 2, "CPU": 5}
WEEKLY_SECONDS = {"TPU": 20 * 3600.0, "GPU": 30 * 3600.0}


@dataclass
class Version:
    """One version of a kernel and its one session."""

    number: int
    request: Any
    notebook: str
    given: str
    folder: Path
    status: str = "QUEUED"
    failure: str = ""
    began: float = 0.0
    seconds: float = 0.0
    log: Log = field(default_factory=Log)
    session: Session | None = None
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def working(self) -> Path:
        """The output's folder."""
        return self.folder / "working"

    def files(self) -> list[str]:
        """Return the output's file names, once it has ended."""
        if not self.done.is_set() or not self.working.is_dir():
            return []
        return sorted(
            path.relative_to(self.working).as_posix()
            for path in self.working.rglob("*")
            if path.is_file() and not path.is_symlink()
        )


@dataclass
class Kernel:
    """A kernel and its versions, oldest first."""

    id: int
    owner: str
    slug: str
    title: str
    versions: list[Version] = field(default_factory=list)


class Kernels:
    """`kernels.KernelsApiService`.

    Args:
        storage: of the server.
        folder: gets one folder a session.
        open_session: makes the session of a version: (version, folder, rerun) → Session.
        known: tells whether a source exists: (kind, name) → bool.
        verified: whether the account is; if not, who asks for a TPU gets a CPU, in silence.
        queue_seconds: how long a version stays QUEUED.
        own_output: whether a kernel may be a source of itself; a version then sees the output of
            the newest complete one before it.
    """

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        open_session: Callable[[Version, Path, bool], Session],
        known: Callable[[str, str], bool],
        verified: bool,
        queue_seconds: float,
        own_output: bool = True,
    ) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.used_seconds = {"TPU": 0.0, "GPU": 0.0}
        self._storage, self._folder, self._open, self._known = storage, folder, open_session, known
        self._verified, self._queue_seconds, self._own_output = verified, queue_seconds, own_output
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    # The calls of the protocol; each runs under the server's lock

    def SaveKernel(self, request: Any, user: str) -> Any:
        """Make a version and start its session."""
        answer = types.ApiSaveKernelResponse()
        owner, _, name = (request.slug or "").partition("/")
        if owner != user:
            answer.error = "Kernel not found"
            return answer
        require(SLUG, name, "slug")
        if len((request.text or "").encode()) >= SOURCE_BYTES:
            raise Fault(400, "The kernel source must be less than 1 megabytes in size.")
        kernel = self.kernels.get(request.slug)
        if kernel is None:
            title = request.new_title or name
            if len(title) < 5 or len(title) > 50:
                raise Fault(400, "The title must be between 5 and 50 characters long.")
            # The address is made from the title, whatever slug was asked for.
            name = require(SLUG, slug(title), "title")
            kernel = self.kernels.get(f"{owner}/{name}") or Kernel(
                len(self.kernels) + 1000, owner, name, title
            )
        given = self._give(request)
        kind = machine(given)
        quick = request.kernel_execution_type == KernelExecutionType.QUICK_SAVE
        answer.error = "" if quick else self._refuse(kind)
        if answer.error:
            return answer
        for kind_of_source in ("dataset", "competition", "kernel", "model"):
            wanted = getattr(request, f"{kind_of_source}_data_sources") or []
            missing = [source for source in wanted if not self._known(kind_of_source, source)]
            if kind_of_source == "kernel" and not self._own_output:
                missing += [
                    source
                    for source in wanted
                    if source == f"{owner}/{name}" and source not in missing
                ]
            setattr(answer, f"invalid_{kind_of_source}_sources", missing)
            setattr(
                request,
                f"{kind_of_source}_data_sources",
                [source for source in wanted if source not in missing],
            )
        self.kernels[f"{owner}/{name}"] = kernel
        number = len(kernel.versions) + 1
        folder = self._folder / f"{owner}--{name}--v{number}"
        version = Version(number, request, _notebook(request), given, folder)
        if quick:
            version.status = "NEW_SCRIPT"
            version.done.set()
        else:
            self._begin(version)
        kernel.versions.append(version)
        answer.ref, answer.url = (
            f"/code/{owner}/{name}",
            f"https://www.kaggle.com/code/{owner}/{name}",
        )
        answer.version_number, answer.kernel_id = number, kernel.id
        return answer

    def GetKernelSessionStatus(self, request: Any, user: str) -> Any:
        """Tell how a version stands."""
        _, version = self._find(request, user)
        answer = types.ApiGetKernelSessionStatusResponse()
        answer.status = KernelWorkerStatus[version.status]
        if version.failure:
            answer.failure_message = version.failure
        return answer

    def ListKernelSessionOutput(self, request: Any, user: str) -> Any:
        """List a page of a version's output, and its log so far."""
        _, version = self._find(request, user)
        names, token = page(version.files(), request.page_token or "", request.page_size)
        answer = types.ApiListKernelSessionOutputResponse()
        answer.files = []
        for name in names:
            file = types.ApiKernelSessionOutputFile()
            file.file_name, file.url = name, self._storage.share(name, version.working / name)
            answer.files.append(file)
        answer.log = version.log.text()
        answer.next_page_token = token or None
        return answer

    def ListKernelFiles(self, request: Any, user: str) -> Any:
        """List a page of a version's output with sizes."""
        _, version = self._find(request, user)
        names, token = page(version.files(), request.page_token or "", request.page_size)
        answer = types.ApiListKernelFilesResponse()
        answer.files = []
        for name in names:
            item = types.ApiListKernelFilesItem()
            item.name, item.size = name, (version.working / name).stat().st_size
            item.creation_date = "2026-01-01T00:00:00Z"
            answer.files.append(item)
        answer.next_page_token = token or None
        return answer

    def DownloadKernelOutput(self, request: Any, user: str) -> Any:
        """Lead to one file of a version's output."""
        kernel = self._kernel(f"{request.owner_slug}/{request.kernel_slug}", user)
        version = self._version(kernel, request.version_number)
        if request.file_path not in version.files():
            raise Fault(404, "Not found")
        raise Redirect(
            self._storage.share(
                request.file_path.split("/")[-1], version.working / request.file_path
            )
        )

    def GetKernel(self, request: Any, user: str) -> Any:
        """Return a kernel's metadata and source."""
        kernel, version = self._find(request, user)
        answer, metadata, blob = (
            types.ApiGetKernelResponse(),
            types.ApiKernelMetadata(),
            types.ApiKernelBlob(),
        )
        metadata.id, metadata.ref, metadata.title = (
            kernel.id,
            f"{kernel.owner}/{kernel.slug}",
            kernel.title,
        )
        metadata.author, metadata.slug, metadata.current_version_number = (
            kernel.owner,
            kernel.slug,
            kernel.versions[-1].number,
        )
        for name in (
            "language",
            "kernel_type",
            "is_private",
            "enable_gpu",
            "enable_tpu",
            "enable_internet",
            "machine_shape",
        ):
            setattr(metadata, name, getattr(version.request, name))
        for name in ("dataset", "kernel", "competition", "model"):
            setattr(
                metadata, f"{name}_data_sources", getattr(version.request, f"{name}_data_sources")
            )
        blob.source, blob.language, blob.slug = (
            version.request.text,
            version.request.language,
            kernel.slug,
        )
        blob.kernel_type = version.request.kernel_type
        answer.metadata, answer.blob = metadata, blob
        return answer

    def GetAcceleratorQuotaStatistics(self, request: Any, user: str) -> Any:
        """Tell the week's quota; durations as text, since the SDK's own writer loses whole days."""
        now = time.monotonic()
        running = [
            (machine(version.given), now - version.began)
            for kernel in self.kernels.values()
            for version in kernel.versions
            if version.status == "RUNNING"
        ]
        return {
            "quotaRefreshTime": "2030-01-05T00:00:00Z",
            **{
                f"{kind.lower()}Quota": {
                    "timeUsed": f"{self.used_seconds[kind] + sum(seconds for of, seconds in running if of == kind):.0f}s",
                    "totalTimeAllowed": f"{WEEKLY_SECONDS[kind]:.0f}s",
                }
                for kind in WEEKLY_SECONDS
            },
        }

    # What the rest of the server needs

    def version(self, handle: str, number: int) -> Version | None:
        """Return that version, or None."""
        kernel = self.kernels.get(handle)
        return next((v for v in kernel.versions if v.number == number), None) if kernel else None

    def latest_output(self, handle: str) -> Path | None:
        """Return the output's folder of the newest version that is complete, which is what a
        notebook mounts.
        """
        kernel = self.kernels.get(handle)
        done = [v for v in kernel.versions if v.status == "COMPLETE"] if kernel else []
        return done[-1].working if done else None

    def close(self) -> None:
        """End all sessions and wait for them."""
        self._closing.set()
        for kernel in self.kernels.values():
            for version in kernel.versions:
                if version.session is not None:
                    version.session.cancel()
        for thread in self._threads:
            thread.join(30)

    # Sessions

    def _give(self, request: Any) -> str:
        """Return the shape that the session really gets; "" is a CPU."""
        asked = request.machine_shape or (
            "TpuV5E8" if request.enable_tpu else "NvidiaTeslaT4" if request.enable_gpu else ""
        )
        if asked not in SHAPES | RETIRED.keys():
            raise Fault(400, f"Invalid machine shape: {asked}")
        shape = RETIRED.get(asked, asked).replace("None", "")
        if machine(shape) == "TPU" and (not self._verified or _pinned(request)):
            return ""
        return shape

    def _refuse(self, kind: str) -> str:
        active = [
            v
            for k in self.kernels.values()
            for v in k.versions
            if not v.done.is_set() and machine(v.given) == kind
        ]
        if len(active) >= SESSIONS[kind]:
            return f"Maximum batch {kind} session count of {SESSIONS[kind]} reached."
        if kind in WEEKLY_SECONDS and self.used_seconds[kind] >= WEEKLY_SECONDS[kind]:
            return (
                f"Maximum weekly {kind} quota of {WEEKLY_SECONDS[kind] / 3600:.2f} hours reached."
            )
        return ""

    def _begin(self, version: Version) -> None:
        version.session = self._open(version, version.folder, False)  # the sources are those of now
        thread = threading.Thread(target=self._run, args=(version, version.session), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, version: Version, session: Session) -> None:
        try:
            if self._closing.wait(self._queue_seconds):
                outcome = Outcome("cancelled", "The session was cancelled before it began", 0.0)
            else:
                version.began, version.status = time.monotonic(), "RUNNING"
                outcome = session.run()
        except Exception as error:
            # A fault of this Kaggle or of this machine: the notebook must not look as if it ran for
            # ever.
            outcome = Outcome(
                "exception", f"The session could not be run: {type(error).__name__}: {error}", 0.0
            )
        version.seconds = outcome.seconds
        kind = machine(version.given)
        if kind in self.used_seconds:
            self.used_seconds[kind] += outcome.seconds
        version.log.end()
        version.failure = outcome.message
        version.done.set()
        version.status = (
            "COMPLETE"
            if outcome.ok
            else "CANCEL_ACKNOWLEDGED"
            if outcome.reason == "cancelled"
            else "ERROR"
        )

    def _find(self, request: Any, user: str) -> tuple[Kernel, Version]:
        kernel = self._kernel(f"{request.user_name}/{request.kernel_slug}", user)
        label = getattr(request, "version_label", None)
        if not label:
            return kernel, kernel.versions[-1]
        number = label[1:] if label[:1] == "v" else ""
        return kernel, self._version(
            kernel, int(number) if re.fullmatch(r"[0-9]{1,9}", number) else 0
        )

    def _kernel(self, handle: str, user: str) -> Kernel:
        kernel = self.kernels.get(handle)
        if kernel is None or kernel.owner != user:
            raise Fault(403, "Permission 'kernels.get' was denied")
        return kernel

    def _version(self, kernel: Kernel, number: int) -> Version:
        for version in kernel.versions:
            if version.number == number:
                return version
        raise Fault(404, "Not found")


def _notebook(request: Any) -> str:
    """Return what papermill gets; a script becomes a notebook of one cell."""
    text: str = request.text or ""
    if request.kernel_type != "script":
        return text
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "script",
        "metadata": {},
        "source": text,
        "outputs": [],
        "execution_count": None,
    }
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps(
        {
            "cells": [cell],
            "metadata": {"kernelspec": kernelspec},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def _pinned(request: Any) -> bool:
    """Return whether a docker image is pinned, in the request or in the notebook; it overrides the
    TPU machine.
    """
    try:
        metadata = json.loads(request.text or "{}").get("metadata", {}).get("kaggle", {})
    except (ValueError, AttributeError):
        metadata = {}  # not a notebook; papermill will say so
    return bool(request.docker_image) or any(
        metadata.get(key) for key in ("dockerImageVersionId", "accelerator")
    )

"""Kernels: the service that takes pushes, runs them and reports their status.

A status goes as on Kaggle: QUEUED, RUNNING, then COMPLETE or ERROR. Machines and limits follow
public reports (docs/facts.md).
"""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kagglesdk.kernels.types.kernels_api_service as types
from kagglesdk.kernels.types.kernels_enums import (
    KernelExecutionType,
    KernelsListViewType,
    KernelWorkerStatus,
)

from localkaggle.facts import Facts
from localkaggle.services import pushed_notebook
from localkaggle.services.protocol import SLUG, ApiError, make, missing, page, require, slug
from localkaggle.services.quota import Quota
from localkaggle.services.state import NOT_KEPT, Changes
from localkaggle.services.storage import Redirect, Storage, file_names, keep
from localkaggle.sessions.machine_shapes import RETIRED, SHAPES, machine
from localkaggle.sessions.session import Outcome, Session
from localkaggle.sessions.session_log import Log

SOURCE_BYTES = 1024 * 1024
SETTINGS = (
    *("language", "kernel_type", "is_private", "enable_gpu", "enable_tpu", "enable_internet"),
    *("machine_shape", "dataset_data_sources", "kernel_data_sources"),
    *("competition_data_sources", "model_data_sources"),
)
PREFIXES = {
    "dataset_data_sources": "datasets/",
    "kernel_data_sources": "code/",
    "competition_data_sources": "competitions/",
}
# Calls that need the permission to get a kernel.
READS = ("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "ListKernelFiles")
KILLED = ("time", "memory", "killed")
INTERRUPTED = "The session was interrupted: this Kaggle ended while it ran"
NOT_FOUND = "Notebook not found"


@dataclass
class Version:
    """One version of a kernel and its one session. `shape` is the machine that it really gets.

    Times are those of `time.time`, since they outlive this process.
    """

    number: int
    request: Any
    shape: str
    folder: Path
    status: str = "QUEUED"
    failure: str = ""
    pushed: float = field(default_factory=time.time)
    began: float = 0.0
    seconds: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    listed_at: float = 0.0
    session: Session | None = field(default=None, metadata=NOT_KEPT)
    log: Log = field(init=False, metadata=NOT_KEPT)

    def __post_init__(self) -> None:
        self.log = Log(self.log_file)

    @property
    def log_file(self) -> Path:
        """The file that keeps the log."""
        return self.folder / "log.jsonl"

    @property
    def notebook(self) -> str:
        """The text of the notebook that runs."""
        return pushed_notebook.text_of(self.request)

    @property
    def listed(self) -> bool:
        """Whether the files of the output are listed."""
        return self.done.is_set() and time.time() >= self.listed_at

    @property
    def working(self) -> Path:
        """The output's folder."""
        return self.folder / "working"

    def files(self) -> list[str]:
        """Return the names of the output's files; none while it runs, or is not listed yet."""
        if not self.listed or not self.working.is_dir():
            return []
        return [name for name in file_names(self.working) if not (self.working / name).is_symlink()]


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
        folder: gets one folder per session.
        open_session: makes the session of a version: (version, folder, rerun) → Session.
        source_exists: (kind, name) → bool.
        verified: whether the account is verified; otherwise a TPU push silently gets a CPU.
        queue_seconds: how long a version stays QUEUED.
        own_output: whether a kernel may be a source of itself; a version then sees the output of
            the newest complete version before it.
        session_seconds: after which a session is ended, by "TPU", "GPU" and "CPU".
        facts: how it behaves.
        changes: gives the context in which a thread changes what is kept.
    """

    KEPT = ("kernels", "used_seconds", "_made", "_last_id")

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        open_session: Callable[[Version, Path, bool], Session],
        source_exists: Callable[[str, str], bool],
        verified: bool,
        queue_seconds: float,
        own_output: bool,
        session_seconds: Mapping[str, float],
        facts: Facts,
        changes: Changes,
    ) -> None:
        self.kernels: dict[str, Kernel] = {}
        self._quota = Quota(self._versions, reserves=facts.reserves, pays=facts.pays)
        self.used_seconds = self._quota.used_seconds
        self._storage, self._folder = storage, folder
        self._open_session, self._source_exists = open_session, source_exists
        self._verified, self._queue_seconds, self._own_output = verified, queue_seconds, own_output
        self._facts, self._session_seconds = facts, session_seconds
        self._threads: list[threading.Thread] = []
        self._changes = changes
        self._last_id, self._made = 999, Counter[str]()  # a deleted one may come back
        self._closing = threading.Event()

    # The calls of the protocol; each runs under the server's lock

    def SaveKernel(self, request: Any, user: str) -> Any:
        """Make a version and start its session."""
        owner, _, name = (request.slug or "").partition("/")
        if owner != user:
            return make(types.ApiSaveKernelResponse, error="Kernel not found")
        require(SLUG, name, "slug")
        if len((request.text or "").encode()) >= SOURCE_BYTES:
            raise ApiError(400, "The kernel source must be less than 1 megabytes in size.")
        kernel = self.kernels.get(request.slug)
        if kernel is None:
            title = request.new_title or name
            if not 5 <= len(title) <= 50:
                raise ApiError(400, "The title must be between 5 and 50 characters long.")
            # The address comes from the title, whatever slug was asked for.
            name = require(SLUG, slug(title), "title")
            if name[0].isdigit() and not self._facts.leading_digit:
                return make(types.ApiSaveKernelResponse, error=NOT_FOUND)
            name += self._facts.other_slug
            self._last_id += 1
            kernel = self.kernels.get(f"{owner}/{name}") or Kernel(
                self._last_id, owner, name, title
            )
        handle, number = f"{owner}/{name}", len(kernel.versions) + 1
        if handle in self.kernels and not kernel.versions:
            return make(types.ApiSaveKernelResponse, error=NOT_FOUND)
        shape = self._given_shape(request)
        cap, asked = self._session_seconds[machine(shape)], request.session_timeout_seconds
        if self._facts.lower_timeouts and asked and asked >= cap:
            raise ApiError(400, f"The session timeout must be lower than {cap:.0f} seconds.")
        self._made[handle] += 1
        folder = self._folder / f"{owner}--{name}--v{self._made[handle]}"
        version = Version(number, request, shape, folder)
        quick = self._is_only_saved(request)
        seconds = request.session_timeout_seconds
        error = "" if quick else self._quota.refusal(machine(shape), seconds)
        if error:
            self._leave(version, kernel, handle)
            return make(types.ApiSaveKernelResponse, error=error)
        invalid = self._drop_invalid_sources(request, handle)
        self.kernels[handle] = kernel
        if quick:
            version.status = "NEW_SCRIPT"
            version.done.set()
        else:
            self._start(version)
        kernel.versions.append(version)
        return make(
            types.ApiSaveKernelResponse,
            error="",
            ref=f"/code/{handle}",
            url=f"https://www.kaggle.com/code/{handle}",
            version_number=number,
            kernel_id=kernel.id,
            **invalid,
        )

    def GetKernelSessionStatus(self, request: Any, user: str) -> Any:
        """Return the status of a version."""
        _, version = self._requested(request, user)
        new = time.time() - version.pushed < self._facts.new_script_seconds
        status = KernelWorkerStatus["NEW_SCRIPT" if new else version.status]
        answer = make(types.ApiGetKernelSessionStatusResponse, status=status)
        if version.failure:
            answer.failure_message = version.failure
        return answer

    def ListKernelSessionOutput(self, request: Any, user: str) -> Any:
        """List a page of a version's output, and its log so far."""
        _, version = self._requested(request, user)
        names, token = page(version.files(), request.page_token, request.page_size)
        files = [
            make(
                types.ApiKernelSessionOutputFile,
                file_name=name,
                url=self._storage.share(name, version.working / name),
            )
            for name in names
        ]
        return make(
            types.ApiListKernelSessionOutputResponse,
            files=files,
            log=version.log.text(),
            next_page_token=token,
        )

    def ListKernelFiles(self, request: Any, user: str) -> Any:
        """List a page of a version's output with sizes."""
        _, version = self._requested(request, user)
        names, token = page(version.files(), request.page_token, request.page_size)
        files = [
            make(
                types.ApiListKernelFilesItem,
                name=name,
                size=(version.working / name).stat().st_size,
                creation_date="2026-01-01T00:00:00Z",
            )
            for name in names
        ]
        return make(types.ApiListKernelFilesResponse, files=files, next_page_token=token)

    def DownloadKernelOutput(self, request: Any, user: str) -> Any:
        """Redirect to one file of a version's output."""
        handle, path = f"{request.owner_slug}/{request.kernel_slug}", request.file_path
        _, version = self.find(handle, f"v{request.version_number}", user)
        if path not in version.files():
            raise ApiError(404, "Not found")
        raise Redirect(self._storage.share(path.split("/")[-1], version.working / path))

    def GetKernel(self, request: Any, user: str) -> Any:
        """Return a kernel's metadata and source."""
        empty = self.kernels.get(f"{request.user_name}/{request.kernel_slug}")
        if empty is not None and not empty.versions:
            raise ApiError(500, "Internal error")
        kernel, version = self._requested(request, user)
        pushed, metadata = version.request, self._described(kernel, version)
        if self._facts.prefixes:
            for name, prefix in PREFIXES.items():
                sources = [prefix + source for source in getattr(metadata, name) or []]
                setattr(metadata, name, sources)
        blob = make(
            types.ApiKernelBlob,
            source=pushed.text,
            language=pushed.language,
            slug=kernel.slug,
            kernel_type=pushed.kernel_type,
        )
        return make(types.ApiGetKernelResponse, metadata=metadata, blob=blob)

    def ListKernels(self, request: Any, user: str) -> Any:
        """List a page of this user's kernels that have a version, the one that ran last first."""
        mine = request.group == KernelsListViewType.PROFILE
        found = [one for one in self.kernels.values() if mine and one.owner == user]
        found = sorted(filter(self.known, found), key=lambda one: -one.versions[-1].pushed)
        kernels, token = page(found, request.page_token, request.page_size)
        described = [self._described(kernel, kernel.versions[-1]) for kernel in kernels]
        return make(types.ApiListKernelsResponse, kernels=described, next_page_token=token)

    def DeleteKernel(self, request: Any, user: str) -> Any:
        """Delete a kernel, also one without a version, and end its sessions."""
        kernel = self.kernels.get(f"{request.user_name}/{request.kernel_slug}")
        if kernel is None or kernel.owner != user:
            raise ApiError(403, "Permission 'kernels.delete' was denied")
        for version in kernel.versions:
            if version.session is not None:
                version.session.cancel()
        del self.kernels[f"{kernel.owner}/{kernel.slug}"]
        return types.ApiDeleteKernelResponse()

    def GetAcceleratorQuotaStatistics(self, request: Any, user: str) -> Any:
        """Return the week's quota."""
        return self._quota.statistics()

    # What the rest of the server needs

    def find(self, handle: str, label: str | None, user: str) -> tuple[Kernel, Version]:
        """Return a kernel of this user, and its version with that label ("v2"), or the newest.

        Raises:
            ApiError: as `missing` if there is no such kernel, 404 if there is no such version.
        """
        kernel = self.kernels.get(handle)
        known = self.known(kernel) if kernel else []
        if kernel is None or kernel.owner != user or (kernel.versions and not known):
            raise missing("kernels", handle.partition("/")[0], user, self._facts.missing)
        newest = f"v{known[-1].number}" if known else ""
        found = [version for version in known if f"v{version.number}" == (label or newest)]
        if not found:
            raise ApiError(404, "Not found")
        return kernel, found[0]

    def version(self, handle: str, number: int) -> Version | None:
        """Return that version, or None."""
        kernel = self.kernels.get(handle)
        return next((v for v in kernel.versions if v.number == number), None) if kernel else None

    def latest_output(self, handle: str) -> Path | None:
        """Return the output's folder of the newest complete version, which a notebook mounts."""
        kernel = self.kernels.get(handle)
        complete = [v for v in kernel.versions if v.status == "COMPLETE"] if kernel else []
        return complete[-1].working if complete else None

    def interrupt(self) -> None:
        """End what ran when the server before this one died, as Kaggle ends an interrupted session.
        It used the quota until it wrote its last line.
        """
        for version in self._versions():
            version.log.end()
            if not version.done.is_set():
                last = version.log_file.stat().st_mtime if version.log_file.is_file() else 0.0
                seconds = max(last - version.began, 0.0) if version.began else 0.0
                self._end(version, Outcome("killed", INTERRUPTED, seconds))

    def close(self) -> None:
        """End all sessions and wait for them."""
        self._closing.set()
        for version in self._versions():
            if version.session is not None:
                version.session.cancel()
        for thread in self._threads:
            thread.join(30)

    # A push

    def _given_shape(self, request: Any) -> str:
        """Return the shape that the session really gets; "" is a CPU."""
        asked = request.machine_shape or (
            "TpuV5E8" if request.enable_tpu else "NvidiaTeslaT4" if request.enable_gpu else ""
        )
        if asked not in SHAPES | RETIRED.keys():
            raise ApiError(400, f"Invalid machine shape: {asked}")
        shape = RETIRED.get(asked, asked).replace("None", "")
        if machine(shape) == "TPU" and (
            not self._verified or pushed_notebook.image_is_pinned(request)
        ):
            return ""
        return shape

    def _is_only_saved(self, request: Any) -> bool:
        asked = request.kernel_execution_type
        if asked == KernelExecutionType.KERNEL_EXECUTION_TYPE_UNSPECIFIED:
            return self._facts.default_execution == "saved"
        return bool(asked == KernelExecutionType.QUICK_SAVE)

    def _leave(self, refused: Version, kernel: Kernel, handle: str) -> None:
        """Keep what a push leaves that was refused for its quota."""
        if self._facts.refused_push == "nothing":
            return
        self.kernels[handle] = kernel
        if self._facts.refused_push == "source":
            refused.done.set()  # and it stays QUEUED
            kernel.versions.append(refused)

    def _drop_invalid_sources(self, request: Any, handle: str) -> dict[str, list[str]]:
        """Remove the sources that cannot be mounted, and return them as fields of the answer."""
        fields = {}
        for kind in ("dataset", "competition", "kernel", "model"):
            wanted = getattr(request, f"{kind}_data_sources") or []
            invalid = [source for source in wanted if not self._source_exists(kind, source)]
            if kind == "kernel" and not self._own_output and handle not in invalid:
                invalid += [source for source in wanted if source == handle]
            valid = [source for source in wanted if source not in invalid]
            setattr(request, f"{kind}_data_sources", valid)
            fields[f"invalid_{kind}_sources"] = invalid
        return fields

    def _start(self, version: Version) -> None:
        # Opened now, so that it mounts what its sources hold at the time of the push.
        version.session = self._open_session(version, version.folder, False)
        thread = threading.Thread(target=self._run, args=(version, version.session), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, version: Version, session: Session) -> None:
        try:
            if self._closing.wait(self._queue_seconds):
                outcome = Outcome("cancelled", "The session was cancelled before it began", 0.0)
            else:
                with self._changes():
                    version.began, version.status = time.time(), "RUNNING"
                outcome = session.run()
                keep(version.working, self._facts)
        except Exception as error:
            # An error of the local Kaggle or of this machine. The notebook must not seem to run.
            outcome = Outcome(
                "exception", f"The session could not be run: {type(error).__name__}: {error}", 0.0
            )
        with self._changes():
            self._end(version, outcome)

    def _end(self, version: Version, outcome: Outcome) -> None:
        version.seconds = outcome.seconds
        kind = machine(version.shape)
        if kind in self.used_seconds:
            self.used_seconds[kind] += outcome.seconds
        version.log.end()
        if outcome.reason in KILLED and not self._facts.killed_output:
            shutil.rmtree(version.working, ignore_errors=True)
        version.failure = outcome.message
        version.listed_at = time.time() + self._facts.listing_seconds
        cancelled = "CANCEL_ACKNOWLEDGED" if outcome.reason == "cancelled" else "ERROR"
        version.status = "COMPLETE" if outcome.ok else cancelled
        version.done.set()

    def _requested(self, request: Any, user: str) -> tuple[Kernel, Version]:
        handle = f"{request.user_name}/{request.kernel_slug}"
        return self.find(handle, getattr(request, "version_label", None), user)

    def _described(self, kernel: Kernel, version: Version) -> Any:
        """Return what is said of a kernel, with the settings of a version."""
        return make(
            types.ApiKernelMetadata,
            id=kernel.id,
            ref=f"{kernel.owner}/{kernel.slug}",
            title=kernel.title,
            author=kernel.owner,
            slug=kernel.slug,
            current_version_number=self.known(kernel)[-1].number,
            **{name: getattr(version.request, name) for name in SETTINGS},
        )

    def _versions(self) -> Iterator[Version]:
        return (version for kernel in self.kernels.values() for version in kernel.versions)

    def rename(self, handle: str, title: str) -> None:
        """Give a kernel another title, and so another address, as its owner can on the site."""
        kernel = self.kernels.pop(handle)
        kernel.title, kernel.slug = title, slug(title)
        self.kernels[f"{kernel.owner}/{kernel.slug}"] = kernel
        for version in kernel.versions:
            version.request.slug = f"{kernel.owner}/{kernel.slug}"

    def known(self, kernel: Kernel) -> list[Version]:
        """Return the versions that calls know of: one that was just pushed may not be among
        them.
        """
        end = time.time() - self._facts.versions_seconds
        return [version for version in kernel.versions if version.pushed <= end]

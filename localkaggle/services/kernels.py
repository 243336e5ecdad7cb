"""The kernel service, which accepts pushes, runs notebooks and reports their status.

As on Kaggle, the status of a run changes from QUEUED to RUNNING, and then to COMPLETE or ERROR.
Machines and limits are based on public reports (see docs/facts.md).
"""

import math
import secrets
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import BadRequest, Forbidden, InternalServerError, NotFound

from localkaggle.services import protocol
from localkaggle.services.protocol import SLUG, Json, file_names
from localkaggle.services.state import NOT_KEPT
from localkaggle.sessions import machine_shapes
from localkaggle.sessions.machine_shapes import Machine, kind_of
from localkaggle.sessions.session import Outcome, Session
from localkaggle.sessions.session_log import Log

if TYPE_CHECKING:
    from localkaggle.server import LocalKaggle

PROJECT = Path(__file__).resolve().parents[2]
SOURCE_BYTES = 1024 * 1024
SECONDS = 9 * 3600.0  # quota reserved for a session without a timeout
SETTINGS = (
    *("language", "kernelType", "isPrivate", "enableGpu", "enableTpu", "enableInternet"),
    *("machineShape", "datasetDataSources", "kernelDataSources", "competitionDataSources"),
    "modelDataSources",
)
# Folder in /kaggle/input for each kind of source.
PLACES = {
    "competition": "competitions",
    "dataset": "datasets",
    "kernel": "notebooks",
    "model": "models",
}
KILLED = ("time", "memory", "killed")
INTERRUPTED = "The session was interrupted because the local Kaggle stopped"


@dataclass
class Version:
    """A version of a kernel, with its session.

    Times are values of `time.time`, because they must remain valid after a restart.

    Attributes:
        shape: machine shape that the session actually gets.
        seconds: duration of the session.
        listed_at: time from which the output files are listed.
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
    listed_at: float = 0.0
    session: Session | None = field(default=None, metadata=NOT_KEPT)
    done: threading.Event = field(default_factory=threading.Event, metadata=NOT_KEPT)
    log: Log = field(init=False, metadata=NOT_KEPT)

    def __post_init__(self) -> None:
        self.log = Log(self.folder / "log.jsonl")
        if self.status not in ("QUEUED", "RUNNING"):  # restored from disk
            self.done.set()

    @property
    def asked(self) -> float:
        """The requested session time in seconds. Kaggle may reserve this much of the quota."""
        return self.request.session_timeout_seconds or SECONDS

    @property
    def listed(self) -> bool:
        return self.done.is_set() and time.time() >= self.listed_at

    @property
    def working(self) -> Path:
        return self.folder / "working"

    def files(self) -> list[str]:
        if not self.listed or not self.working.is_dir():
            return []
        return [name for name in file_names(self.working) if not (self.working / name).is_symlink()]

    def sources(self) -> list[tuple[str, str]]:
        return [
            (kind, name)
            for kind in PLACES
            for name in getattr(self.request, f"{kind}_data_sources") or []
        ]


@dataclass
class Kernel:
    """A kernel, whose versions are sorted from oldest to newest."""

    id: int
    owner: str
    slug: str
    title: str
    versions: list[Version] = field(default_factory=list)

    @property
    def handle(self) -> str:
        return f"{self.owner}/{self.slug}"


class Kernels:
    """`kernels.KernelsApiService`. Sessions use the `sessions` folder of the site.

    `used_seconds` is the quota used by this week's finished sessions, as {accelerator: seconds}.
    """

    KEPT = ("kernels", "used_seconds")

    def __init__(self, site: "LocalKaggle") -> None:
        self.kernels: dict[str, Kernel] = {}
        self.used_seconds = dict.fromkeys(machine_shapes.WEEKLY_SECONDS, 0.0)
        self._site, self._options = site, site.options
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    # API calls, which hold the server's lock

    def SaveKernel(self, request: Any, user: str) -> Json:
        owner, _, name = (request.slug or "").partition("/")
        if owner != user:
            return {"error": "Kernel not found"}
        protocol.require(SLUG, name, "slug")
        if len((request.text or "").encode()) >= SOURCE_BYTES:
            raise BadRequest("The kernel source must be less than 1 megabytes in size.")
        kernel = self.kernels.get(request.slug) or self._named(request.new_title or name, owner)
        facts = self._site.facts
        is_empty = kernel.handle in self.kernels and not kernel.versions  # after a refused push
        if is_empty or (kernel.slug[0].isdigit() and not facts.leading_digit):
            return {"error": "Notebook not found"}
        number, shape = len(kernel.versions) + 1, self._given_shape(request)
        folder = protocol.unused_folder(self._site.folder / "sessions", kernel.handle, number)
        version = Version(number, request, shape, folder)
        cap = self._options.session_seconds[kind_of(shape)]
        if facts.lower_timeouts and (request.session_timeout_seconds or 0) >= cap:
            raise BadRequest(f"The session timeout must be lower than {cap:.0f} seconds.")
        is_only_saved = request.kernel_execution_type.name == "QUICK_SAVE"
        error = "" if is_only_saved else self._quota_refusal(version)
        invalid = self._drop_invalid_sources(request, kernel.handle)
        if not error and not is_only_saved:
            self._start(version)
        else:  # a refused version stays QUEUED
            version.status = "QUEUED" if error else "NEW_SCRIPT"
            version.done.set()
        if not error or facts.refused_push != "nothing":
            self.kernels[kernel.handle] = kernel
        if not error or facts.refused_push == "source":
            kernel.versions.append(version)
        if error:
            return {"error": error}
        return {
            "ref": f"/code/{kernel.handle}",
            "url": f"https://www.kaggle.com/code/{kernel.handle}",
            "versionNumber": number,
            "kernelId": kernel.id,
            **invalid,
        }

    def GetKernelSessionStatus(self, request: Any, user: str) -> Json:
        version = self._requested(request, user)
        is_new = time.time() - version.pushed < self._site.facts.new_script_seconds
        status = "NEW_SCRIPT" if is_new else version.status
        return {"status": status, "failureMessage": version.failure or None}

    def ListKernelSessionOutput(self, request: Any, user: str) -> Json:
        version = self._requested(request, user)
        names, token = protocol.page(version.files(), request)
        files = [
            {"fileName": name, "url": self._site.storage.share(name, version.working / name)}
            for name in names
        ]
        return {"files": files, "log": version.log.text(), "nextPageToken": token}

    def GetKernel(self, request: Any, user: str) -> Json:
        handle = f"{request.user_name}/{request.kernel_slug}"
        if handle in self.kernels and not self.kernels[handle].versions:
            raise InternalServerError("Internal error")
        version = self._requested(request, user)
        pushed, metadata = version.request, self._described(self.kernels[handle], version)
        if self._site.facts.prefixes:
            for kind, place in {**PLACES, "kernel": "code"}.items():
                name = f"{kind}DataSources"
                metadata[name] = [f"{place}/{source}" for source in metadata.get(name, ())]
        blob = {"source": pushed.text, "language": pushed.language, "slug": request.kernel_slug}
        return {"metadata": metadata, "blob": {**blob, "kernelType": pushed.kernel_type}}

    def ListKernels(self, request: Any, user: str) -> Json:
        # The most recently pushed kernel comes first.
        known = filter(self._known, self.kernels.values())
        found = sorted(known, key=lambda one: -one.versions[-1].pushed)
        kernels, token = protocol.page(found, request)
        described = [self._described(kernel, kernel.versions[-1]) for kernel in kernels]
        return {"kernels": described, "nextPageToken": token}

    def DeleteKernel(self, request: Any, user: str) -> Json:
        kernel = self.kernels.get(f"{request.user_name}/{request.kernel_slug}")
        if kernel is None or kernel.owner != user:
            raise Forbidden("Permission 'kernels.delete' was denied")
        for version in kernel.versions:
            if version.session is not None:
                version.session.cancel()
        del self.kernels[kernel.handle]
        return {}

    def GetAcceleratorQuotaStatistics(self, request: Any, user: str) -> Json:
        answer: Json = {"quotaRefreshTime": "2030-01-05T00:00:00Z"}
        for kind, total in machine_shapes.WEEKLY_SECONDS.items():
            active, now = self._active(kind), time.time()
            running = sum(now - each.began for each in active if each.status == "RUNNING")
            seconds = {"timeUsed": self.used_seconds[kind] + running, "totalTimeAllowed": total}
            if self._site.facts.reserves:
                seconds["timeReserved"] = sum(each.asked for each in active) - running
            answer[f"{kind.lower()}Quota"] = {
                "isPayToScaleEnabled": self._site.facts.pays,
                **{name: f"{max(value, 0):.0f}s" for name, value in seconds.items()},
            }
        return answer

    # Interface for the rest of the server

    def find(self, handle: str, label: str | None, user: str) -> Version:
        """Return a version of a kernel. `label` is "v2", or None or "" for the newest version.

        Raises:
            HTTPException: if the kernel (see `LocalKaggle.missing`) or the version (404) does not
                exist.
        """
        kernel = self.kernels.get(handle)
        known = self._known(kernel) if kernel else []
        if kernel is None or kernel.owner != user or (kernel.versions and not known):
            raise self._site.missing("kernels", handle.startswith(f"{user}/"))
        for version in reversed(known):
            if label in (None, "", f"v{version.number}"):
                return version
        raise NotFound("Not found")

    def version(self, handle: str, number: int) -> Version | None:
        return next((found for found in self._of(handle) if found.number == number), None)

    def open_session(self, version: Version, folder: Path, *, rerun: bool) -> Session:
        """Return a session for a version. It mounts the sources with their current contents.

        `folder` is a new folder. With `rerun`, this is a scored rerun on the hidden test set.
        """
        request, options, kind = version.request, self._options, kind_of(version.shape)
        internet = request.enable_internet and self._site.facts.internet
        machine = Machine(
            version.shape,
            internet=internet and not options.offline and not rerun,
            python=options.python.get(kind, sys.executable),
            variables=options.variables,
            hidden=[PROJECT, self._site.folder, *options.private],
            seconds=min(request.session_timeout_seconds or math.inf, options.session_seconds[kind]),
            memory_bytes=options.memory_bytes,
        )
        return options.session(
            folder,
            request.text or "",
            inputs=self._inputs(version, rerun=rerun),
            rerun=rerun,
            machine=machine,
            log=Log(folder / "log.jsonl") if rerun else version.log,
        )

    def interrupt(self) -> None:
        """Mark sessions as failed if they were running when an earlier server was killed.

        Each of these sessions is considered to have used quota until it wrote its last line of
        output.
        """
        for version in self._versions():
            version.log.end()
            if not version.done.is_set():
                log = version.folder / "log.jsonl"
                last = log.stat().st_mtime if version.began and log.is_file() else 0.0
                self._end(version, Outcome("killed", INTERRUPTED, max(last - version.began, 0.0)))

    def close(self) -> None:
        self._closing.set()
        for version in self._versions():
            if version.session is not None:
                version.session.cancel()
        for thread in self._threads:
            thread.join(30)

    # Pushes

    def _named(self, title: str, owner: str) -> Kernel:
        if not 5 <= len(title) <= 50:
            raise BadRequest("The title must be between 5 and 50 characters long.")
        name = protocol.require(SLUG, protocol.slug(title), "title") + self._site.facts.other_slug
        known = self.kernels.get(f"{owner}/{name}")
        return known or Kernel(secrets.randbelow(10**8) + 1, owner, name, title)

    def _given_shape(self, request: Any) -> str:
        """Return the machine shape that a session actually gets, or "" for a CPU."""
        usual = "TpuV5E8" if request.enable_tpu else "NvidiaTeslaT4" if request.enable_gpu else ""
        asked = request.machine_shape or usual
        if asked not in machine_shapes.SHAPES:
            raise BadRequest(f"Invalid machine shape: {asked}")
        shape = asked.replace("None", "")
        return "" if kind_of(shape) == "TPU" and not self._options.verified else shape

    def _quota_refusal(self, version: Version) -> str:
        """Return Kaggle's refusal if a quota or limit prevents the session, or "" otherwise."""
        kind = kind_of(version.shape)
        active, quota = self._active(kind), machine_shapes.WEEKLY_SECONDS.get(kind)
        if len(active) >= machine_shapes.SESSIONS[kind]:
            return f"Maximum batch {kind} session count of {machine_shapes.SESSIONS[kind]} reached."
        if quota is None or self._site.facts.pays:
            return ""
        left = quota - self.used_seconds[kind]
        if self._site.facts.reserves:
            left -= sum(each.asked for each in [*active, version])
        if left < 0 or (left == 0 and not self._site.facts.reserves):
            return f"Maximum weekly {kind} quota of {quota / 3600:.2f} hours reached."
        return ""

    def _drop_invalid_sources(self, request: Any, handle: str) -> Json:
        """Remove a request's sources that cannot be mounted, and return them as response fields."""
        answer = {}
        for kind in PLACES:
            wanted = getattr(request, f"{kind}_data_sources") or []
            refused = set() if self._options.own_output or kind != "kernel" else {handle}
            valid = [name for name in wanted if name not in refused and self._source(kind, name)]
            setattr(request, f"{kind}_data_sources", valid)
            invalid = [source for source in wanted if source not in valid]
            answer[f"invalid{kind.title()}Sources"] = invalid
        return answer

    def _source(self, kind: str, name: str, *, hidden: bool = False) -> Path | None:
        """Return the folder of a source, or None if it does not exist.

        The folder of a kernel contains the output of its newest complete version.
        """
        if kind == "competition" and name in self._site.competitions:
            return self._site.competitions.folder(name, hidden=hidden)
        if kind == "dataset":
            return self._site.datasets.mounted(name)
        if kind == "model":
            return self._site.models.mounted(name)
        found = self._of(name) if kind == "kernel" else []
        complete = [version.working for version in found if version.status == "COMPLETE"]
        return complete[-1] if complete else None

    def _inputs(self, version: Version, *, rerun: bool) -> dict[str, Path]:
        earlier = self._of(version.request.slug)
        before = {source for each in earlier for source in each.sources()}
        if self._site.facts.late_sources and not rerun and not before.issuperset(version.sources()):
            return {}  # at least one source is new in this version
        inputs: dict[str, Path] = {}
        for kind, name in version.sources():
            # Mounted model names are in lower case, and dataset names have no version.
            handle = name.lower() if kind == "model" else "/".join(name.split("/")[:2])
            flat = handle.partition("/")[2] or handle  # without the owner
            places = {"2026": f"{PLACES[kind]}/{handle}", "flat": flat}
            if found := self._source(kind, name, hidden=rerun):
                for layout, place in places.items():
                    if self._options.layout in (layout, "both"):
                        inputs[place] = found
        return inputs

    def _start(self, version: Version) -> None:
        # Create the session now, so that it mounts its sources as of the time of the push.
        version.session = self.open_session(version, version.folder, rerun=False)
        thread = threading.Thread(target=self._run, args=(version, version.session), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, version: Version, session: Session) -> None:
        try:
            if self._closing.wait(self._options.queue_seconds):
                outcome = Outcome("cancelled", "The session was cancelled before it started", 0.0)
            else:
                with self._site.state.changes():
                    version.began, version.status = time.time(), "RUNNING"
                outcome = session.run()
        except Exception as error:
            # If the local Kaggle or this machine fails, the version must not stay RUNNING.
            said = f"The session could not be run: {type(error).__name__}: {error}"
            outcome = Outcome("exception", said, 0.0)
        with self._site.state.changes():
            self._end(version, outcome)

    def _end(self, version: Version, outcome: Outcome) -> None:
        version.seconds = outcome.seconds
        kind = kind_of(version.shape)
        if kind in self.used_seconds:
            self.used_seconds[kind] += outcome.seconds
        version.log.end()
        if outcome.reason in KILLED and not self._site.facts.killed_output:
            shutil.rmtree(version.working, ignore_errors=True)
        version.failure = outcome.message
        version.listed_at = time.time() + self._site.facts.listing_seconds
        cancelled = "CANCEL_ACKNOWLEDGED" if outcome.reason == "cancelled" else "ERROR"
        version.status = "COMPLETE" if outcome.ok else cancelled
        version.done.set()

    # Lookup

    def _requested(self, request: Any, user: str) -> Version:
        handle = f"{request.user_name}/{request.kernel_slug}"
        return self.find(handle, getattr(request, "version_label", None), user)

    def _described(self, kernel: Kernel, version: Version) -> Json:
        pushed = version.request.to_dict()
        return {
            "id": kernel.id,
            "ref": kernel.handle,
            "title": kernel.title,
            "author": kernel.owner,
            "slug": kernel.slug,
            "currentVersionNumber": self._known(kernel)[-1].number,
            **{name: pushed[name] for name in SETTINGS if name in pushed},
        }

    def _of(self, handle: str) -> list[Version]:
        return self.kernels[handle].versions if handle in self.kernels else []

    def _versions(self) -> list[Version]:
        return [version for kernel in self.kernels.values() for version in kernel.versions]

    def _active(self, kind: str) -> list[Version]:
        running = [version for version in self._versions() if not version.done.is_set()]
        return [version for version in running if kind_of(version.shape) == kind]

    def _known(self, kernel: Kernel) -> list[Version]:
        # A recent push may be missing.
        end = time.time() - self._site.facts.versions_seconds
        return [version for version in kernel.versions if version.pushed <= end]

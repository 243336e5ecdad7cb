"""Server: Kaggle's protocol on 127.0.0.1, for any of Kaggle's own clients.

It answers `POST /api/v1/<service>/<Method>` as the site would. It answers the same call as a proxy
for http://localhost, so environment variables alone lead the official client here.
"""

import base64
import fcntl
import json
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Self

import kagglesdk.blobs.types.blob_api_service as blob_types
import kagglesdk.competitions.types.competition_api_service as competition_types
import kagglesdk.datasets.types.dataset_api_service as dataset_types
import kagglesdk.kernels.types.kernels_api_service as kernel_types
import kagglesdk.security.types.oauth_service as security_types
import kagglesdk.users.types.account_service as account_types
from kagglesdk.kaggle_object import KaggleObject

from localkaggle.competitions import NAMES, Competition
from localkaggle.competitions.hosted import Hosted
from localkaggle.facts import Facts
from localkaggle.faults import Faults
from localkaggle.http_handler import Handler
from localkaggle.services import state
from localkaggle.services.datasets import Datasets
from localkaggle.services.kernels import READS, Kernels, Version
from localkaggle.services.oauth import CALLS, OAuth
from localkaggle.services.protocol import ApiError, make
from localkaggle.services.state import State
from localkaggle.services.storage import Storage
from localkaggle.services.submissions import Submissions
from localkaggle.services.uploads import Uploads
from localkaggle.sessions.machine_shapes import machine
from localkaggle.sessions.session import Limits, Session
from localkaggle.sessions.session_log import Log
from localkaggle.wire import Wire

USER = "rehearsal"
SESSION_SECONDS = {"TPU": 9 * 3600.0, "GPU": 12 * 3600.0, "CPU": 12 * 3600.0}
READING = ("Get", "List", "Download", "Introspect", "Start")  # calls that change nothing kept
KEPT = ("key", "token", "refresh_token", "last_port", "hosted")
PROJECT = Path(__file__).resolve().parent.parent


class LocalKaggle:
    """A Kaggle with one account; a context manager that serves and, at exit, ends all sessions.

    Args:
        folder: empty or new, or that of a local Kaggle that has ended or died, which it goes on
            with: credentials, kernels, datasets, models, submissions and the quota that is used.
            What was running then has ended with an error.
        competitions: slugs of embedded ones, each built on first use, or `Competition`s.
        port: of 127.0.0.1; 0 takes a free one; None takes the folder's last one, or a free one.
        offline: give no session the internet, not even one that asks for it.
        layout: of /kaggle/input: "2026" (`competitions/<slug>`, `datasets/<owner>/<slug>` …),
            "flat" (`<slug>`), or "both" at once.
        verified: whether the account is verified; otherwise a TPU push silently gets a CPU.
        session_seconds: after how long a session is killed, by "TPU", "GPU", "CPU"; Kaggle's own
            limit where it says nothing.
        own_output: whether a notebook may list its own output as a source.
        memory_bytes: limit of a session's memory.
        output_bytes: limit of a session's output.
        queue_seconds: how long a push queues.
        ready_seconds: how long a dataset version is processed.
        datasets: {owner/slug: folder} that other users published; ready from the start.
        python: interpreters by machine ("TPU", "GPU", "CPU"), to rehearse with other versions than
            this one's.
        variables: environment variables for all sessions.
        private: folders that no session sees, as one that holds hidden labels.
        session: makes a session; another class than `Session` where no notebook has to run.
        facts: how it behaves where Kaggle's own behaviour is not known, or changes.

    Attributes:
        key, token: of the account; neither ends.
        refresh_token: what a login in the browser leaves; it gives access tokens.
        wire: counts the bytes of files that pass, and breaks connections.
        disk_full: what could not be written since the disk is full; "": nothing.

    Raises:
        FileExistsError: if the folder holds something else, or is in use.
        ValueError: if what is kept there cannot be read, or is of a competition that is not hosted.
    """

    def __init__(
        self,
        folder: Path,
        *,
        competitions: Sequence[str | Competition] = NAMES,
        port: int | None = None,
        offline: bool = False,
        layout: str = "2026",
        verified: bool = True,
        session_seconds: Mapping[str, float] | None = None,
        own_output: bool = True,
        memory_bytes: int = 30 * 10**9,
        output_bytes: int = 20 * 10**9,
        queue_seconds: float = 0.3,
        ready_seconds: float = 1.0,
        datasets: Mapping[str, Path] | None = None,
        python: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        private: Sequence[Path] = (),
        session: Callable[..., Session] = Session,
        facts: Facts | None = None,
    ) -> None:
        if layout not in ("2026", "flat", "both"):
            raise ValueError(f"layout={layout!r}: expected '2026', 'flat' or 'both'")
        self.folder = folder.resolve()
        self._lock_file = _claimed(self.folder)
        self.layout, self.offline = layout, offline
        self.facts = facts or Facts()
        self.session_seconds = {**SESSION_SECONDS, **(session_seconds or {})}
        self._memory_bytes, self._output_bytes = memory_bytes, output_bytes
        self._python, self._session = dict(python or {}), session
        self._variables, self._private = dict(variables or {}), list(private)
        self.competitions = Hosted(self.folder / "competitions", competitions)
        self.key, self.token = secrets.token_hex(16), f"KGAT_{secrets.token_hex(16)}"
        self.faults = Faults()
        self.disk_full = ""
        self.journal: list[tuple[str, Any, int, Any]] = []
        self.lock = threading.RLock()
        self.wire = Wire()
        self.storage = Storage(self.folder, self.facts.address_seconds)
        self.kernels = Kernels(
            self.storage,
            self.folder / "sessions",
            open_session=self._open_session,
            source_exists=self._source_exists,
            verified=verified,
            queue_seconds=queue_seconds,
            own_output=own_output,
            session_seconds=self.session_seconds,
            facts=self.facts,
            changes=self._changes,
        )
        self.uploads = Uploads(self.storage)
        self.datasets = Datasets(
            self.storage,
            self.folder / "datasets",
            uploads=self.uploads,
            ready_seconds=ready_seconds,
            facts=self.facts,
        )
        self.submissions = Submissions(
            self.storage,
            self.folder / "sessions",
            competitions=self.competitions,
            kernels=self.kernels,
            uploads=self.uploads,
            open_session=self._open_session,
            facts=self.facts,
            changes=self._changes,
        )
        self.oauth = OAuth(USER, self.facts.token_seconds)
        self.refresh_token = self.oauth.sign_in()
        # Service → (who answers, module of its messages).
        self._services: dict[str, tuple[Sequence[object], object]] = {
            "kernels.KernelsApiService": ((self.kernels,), kernel_types),
            "datasets.DatasetApiService": ((self.datasets,), dataset_types),
            "blobs.BlobApiService": ((self.uploads,), blob_types),
            "competitions.CompetitionApiService": ((self.submissions,), competition_types),
            "security.OAuthService": ((self, self.oauth), security_types),
            "users.AccountService": ((self.oauth,), account_types),
        }
        self.last_port = 0
        self.hosted = list(self.competitions)
        services = (self.kernels, self.datasets, self.submissions, self.oauth)
        self._state = State(
            self.folder,
            {"account": (self, KEPT)}
            | {type(owner).__name__: (owner, owner.KEPT) for owner in services},
        )
        self._state.load()
        lost = sorted({*self.hosted} - {*self.competitions})
        if lost:
            raise ValueError(
                f"{self.folder} is of a local Kaggle that hosts {lost[0]}; expected that to be"
                " hosted again, by the command that it was started with (`invoke serve --input` for"
                " a folder of your own), or a new folder"
            )
        self._remove_unkept()
        self.datasets.publish(datasets or {})
        self.kernels.interrupt()
        self.submissions.interrupt()
        address = ("127.0.0.1", self.last_port if port is None else port)
        self._server = ThreadingHTTPServer(address, partial(Handler, self))
        self._server.daemon_threads = True
        self.last_port, self.hosted = self.port, list(self.competitions)
        self._state.save()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that lead any Kaggle client here, with this Kaggle's credentials.

        HOME is private: a token in the real one would win over these credentials and be sent.
        Nobody listens on the port of the https proxy, so a request to elsewhere fails at once.
        """
        home = self.folder / "home"
        for name in (".kaggle", "tmp"):
            (home / name).mkdir(parents=True, exist_ok=True)
        proxy, nowhere = f"http://127.0.0.1:{self.port}", "http://127.0.0.1:9"
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "KAGGLE_USERNAME": USER,
            "KAGGLE_KEY": self.key,
            "KAGGLE_CONFIG_DIR": str(home / ".kaggle"),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            **dict.fromkeys(("http_proxy", "HTTP_PROXY"), proxy),
            **dict.fromkeys(("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), nowhere),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
        }

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.faults.close()
        self.kernels.close()
        self.submissions.close()
        self._server.shutdown()
        self._server.server_close()
        self._lock_file.close()

    def _remove_unkept(self) -> None:
        """Remove uploads, and what a server that died made for a call that it did not answer: the
        same call again makes a folder of that name.
        """
        owners: list[Any] = [*self.kernels.kernels.values(), *self.datasets.datasets.values()]
        kept = {version.folder for owner in owners for version in owner.versions}
        for name in ("sessions", "datasets", "objects"):
            for path in (self.folder / name).glob("*"):
                if path.is_file():
                    path.unlink()
                elif path not in kept:
                    shutil.rmtree(path)

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Let a thread change what is kept; it is written before any call can tell of it."""
        with self.lock:
            yield
            try:
                self._state.save()
            except OSError as error:  # no call could say so
                self.disk_full = str(error)

    # Credentials

    def IntrospectToken(self, request: Any, user: str) -> Any:
        """Return the owner of a token."""
        if not self._is_valid(request.token):
            raise ApiError(404, "Token not found")
        return make(
            security_types.IntrospectTokenResponse,
            active=True,
            username=USER,
            user_id=1,
            scope="resources.admin:*",
        )

    def user(self, header: str | None) -> str | None:
        """Return the user whose credentials the Authorization header holds, or None."""
        kind, _, value = (header or "").partition(" ")
        if kind == "Bearer":
            return USER if self._is_valid(value) else None
        if kind != "Basic":
            return None
        try:
            given = base64.b64decode(value, validate=True)
        except ValueError:  # not Base64, or not even ASCII
            return None
        return USER if secrets.compare_digest(given, f"{USER}:{self.key}".encode()) else None

    def _is_valid(self, token: str) -> bool:
        is_lasting = secrets.compare_digest(token.encode(), self.token.encode())
        return is_lasting or self.oauth.accepts(token)

    # Sessions

    def _source_exists(self, kind: str, name: str) -> bool:
        """Return whether a session can mount a source."""
        if kind == "competition":
            return name in self.competitions
        if kind == "dataset":
            return self.datasets.mounted(name) is not None
        return kind == "kernel" and self.kernels.latest_output(name) is not None

    def _open_session(self, version: Version, folder: Path, rerun: bool) -> Session:
        request, kind = version.request, machine(version.shape)
        inputs: dict[str, Path] = {}
        for slug in request.competition_data_sources or []:
            if slug in self.competitions:
                found = self.competitions.folder(slug, hidden=rerun)
                inputs |= dict.fromkeys(self._places("competitions", slug), found)
        for handle in request.dataset_data_sources or []:
            if dataset := self.datasets.mounted(handle):
                name = "/".join(handle.split("/")[:2])
                inputs |= dict.fromkeys(self._places("datasets", name), dataset)
        for handle in request.kernel_data_sources or []:
            if output := self.kernels.latest_output(handle):
                inputs |= dict.fromkeys(self._places("notebooks", handle), output)
        if self.facts.late_sources and not rerun and self._attaches(version):
            inputs = {}
        cap = self.session_seconds[kind]
        seconds = min(float(request.session_timeout_seconds or cap), cap)
        return self._session(
            folder,
            version.notebook,
            inputs=inputs,
            shape=version.shape,
            internet=(
                request.enable_internet and self.facts.internet and not self.offline and not rerun
            ),
            rerun=rerun,
            limits=Limits(seconds, self._memory_bytes, self._output_bytes),
            hidden=[PROJECT, self.folder, *self._private],
            variables=self._variables,
            gpus=self.facts.gpus,
            python=self._python.get(kind, sys.executable),
            log=Log() if rerun else version.log,
        )

    def _attaches(self, version: Version) -> bool:
        """Return whether a version has a source that no version of the kernel before it had."""

        def sources(request: Any) -> set[str]:
            kinds = ("competition", "dataset", "kernel")
            return {name for kind in kinds for name in getattr(request, f"{kind}_data_sources")}

        kernel = self.kernels.kernels.get(version.request.slug)
        earlier = [sources(one.request) for one in kernel.versions] if kernel else []
        return bool(sources(version.request).difference(*earlier))

    def _places(self, kind: str, name: str) -> list[str]:
        places = {"2026": f"{kind}/{name}", "flat": name.split("/")[-1]}
        return [place for layout, place in places.items() if self.layout in (layout, "both")]

    def dispatch(self, service: str, method: str, body: bytes, authorization: str | None) -> Any:
        """Answer one call.

        Returns:
            What becomes the JSON of the answer.

        Raises:
            ApiError: if the call is refused.
            Redirect: if the answer is a stored object.
        """
        owners, types = self._services.get(service, ((), None))
        owner = next((owner for owner in owners if hasattr(owner, method)), None)
        cls = getattr(types, f"Api{method}Request", None) or getattr(
            types, f"{method}Request", None
        )
        if cls is None or owner is None or not method[:1].isupper():
            raise ApiError(404, f"{service}/{method} is not served here")
        try:
            data = json.loads(body or b"{}")
            if not isinstance(data, dict):
                raise ValueError(f"unknown fields {data!r}")
            unknown = set(data) - {field.json_name for field in cls._fields}
            if unknown:
                raise ValueError(f"unknown fields {sorted(unknown)}")
            request = cls.from_dict(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ApiError(400, f"Malformed request: {error}") from error
        user = self.user(authorization)
        if user is None and method not in CALLS:
            raise ApiError(401, "Unauthorized")
        if self.facts.key_refused and method in READS and "Basic" in (authorization or ""):
            raise ApiError(403, "Permission 'kernels.get' was denied")
        with self.lock:
            answer = getattr(owner, method)(request, user)
            if not method.startswith(READING):
                self._state.save()
        return answer.__class__.to_dict(answer) if isinstance(answer, KaggleObject) else answer


def _claimed(folder: Path) -> IO[str]:
    """Return the open lock of a folder that is new, empty, or of a local Kaggle.

    On a file system without locks it locks nothing.

    Raises:
        FileExistsError: if it is none, or another process serves it.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; expected a folder")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / state.FILE
    if not kept.is_file():
        if any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty, and no local Kaggle's; expected a new or empty folder, or"
                " one that a local Kaggle served from"
            )
        kept.write_text("{}")
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise FileExistsError(
            f"{folder} is in use by another local Kaggle; expected one that has ended"
        ) from error
    except OSError:
        pass  # no locks here
    return lock

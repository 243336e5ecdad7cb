"""Inject faults into the calls between a client and the local Kaggle.

If a fault occurs before a call is handled, the call has no effect. If it occurs afterwards, the
call takes effect, but the response is lost or wrong. docs/facts.md lists the faults that were
observed on Kaggle. The remaining faults can occur on any network.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from socket import socket
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

DRIP_SECONDS = 1.0  # delay between two bytes
SILENT_AT_MOST = 120.0
CUSTOM = "custom"  # name used for kinds that are not in `KINDS`
Change = Callable[[Response], object]
"""A function that modifies a response. It returns False if there is nothing to change."""
Edit = Callable[[Any], object]
"""A function that modifies the JSON object or the list of files in a response. It returns False if
there is nothing to change.
"""


@dataclass(frozen=True)
class Kind:
    """A way in which a call can fail.

    Attributes:
        after: whether the call takes effect before it fails.
        change: function that modifies the response.
        lost: whether the connection is closed without a response.
        silence: whether the connection stays open for a while without any data being sent.
        drip: whether the response is sent at one byte per second.
        cut: fraction of the response body that is sent.
        only: operations that can fail in this way, or empty if all operations can.
        never: operations that cannot fail in this way.
    """

    after: bool
    change: Change = lambda answer: True
    lost: bool = False
    silence: bool = False
    drip: bool = False
    cut: float = 1.0
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def strikes(self, operation: str) -> bool:
        return (not self.only or operation in self.only) and operation not in self.never


def instead(code: int, value: Any, *, after: bool = False, **headers: str) -> Kind:
    """Return a kind of fault that replaces the response.

    Args:
        code: HTTP status code.
        value: an object to send as JSON, or an HTML page as bytes.
        after: whether the call takes effect before it fails.
        headers: HTTP headers, with underscores instead of hyphens.
    """

    def change(answer: Response) -> None:
        is_page = isinstance(value, bytes)
        answer.status_code, answer.data = code, value if is_page else json.dumps(value).encode()
        answer.headers.pop("Location", None)
        answer.content_type = "text/html" if is_page else "application/json"
        answer.headers.update({name.replace("_", "-"): text for name, text in headers.items()})

    return Kind(after, change)


def edited(**values: Any) -> Kind:
    return _edits(lambda value: value.update(values))


def meanwhile(happens: Callable[[], object], *, after: bool = True) -> Kind:
    """Return a kind of fault that calls a function before the response is sent.

    If `after` is not set, the call has no effect, and its response is empty.
    """
    return Kind(after, lambda answer: happens() is not False)


def _refusal(code: int, message: str, *, after: bool = False, **headers: str) -> Kind:
    return instead(code, {"code": code, "message": message}, after=after, **headers)


def _edits(edit: Edit, *only: str) -> Kind:
    def change(answer: Response) -> bool:
        value = answer.get_json(silent=True)
        if answer.status_code != 200 or not isinstance(value, dict) or edit(value) is False:
            return False
        answer.data = json.dumps(value).encode()
        return True

    return Kind(True, change, only=only)


def _files(edit: Edit) -> Edit:
    def change(value: dict[str, Any]) -> object:
        files = value.get("files") or value.get("datasetFiles")
        return edit(files) if files else False

    return change


def _other_bytes(answer: Response) -> None:
    body = bytearray(answer.data)
    body[len(body) // 2] ^= 1
    answer.data = bytes(body)


def _removed(*names: str) -> Edit:
    return lambda value: any(value.pop(name, None) is not None for name in names)


def _older(value: dict[str, Any]) -> object:
    """Remove the latest change from a response, as if an outdated replica had sent it."""
    if value.get("currentVersionNumber"):
        value["currentVersionNumber"] -= 1
    elif value.get("publicScore"):
        del value["publicScore"]
        value["status"] = "PENDING"
    elif value.get("status") in ("READY", "COMPLETE", "RUNNING"):
        value["status"] = "BLOBS_RECEIVED" if value["status"] == "READY" else "QUEUED"
    elif value.get("submissions"):
        del value["submissions"][0]
    else:
        return _files(list.clear)(value)
    return True


def _climb(files: list[dict[str, Any]]) -> None:
    name = "fileName" if "fileName" in files[0] else "name"
    files[0][name] = f"../../{files[0][name]}"


LISTS = ("ListKernelSessionOutput", "ListDatasetFiles")
STATUSES = ("GetKernelSessionStatus", "GetDatasetStatus", "GetSubmission")
MADE = (
    *("SaveKernel", "CreateDataset", "CreateDatasetVersion", "StartBlobUpload"),
    *("StartSubmissionUpload", "CreateCodeSubmission", "CreateSubmission"),
)
FIELDS = ("status", "versionNumber", "token", "ref", "currentVersionNumber", "publicScore")
PAGE = b"<html><body>We will be back soon</body></html>"
EXPIRED = b"<Error><Code>ExpiredToken</Code></Error>"
NO_NOTEBOOK = {"error": "Notebook not found"}
KINDS: dict[str, Kind] = {
    # Faults that occur before the call, so that it has no effect
    "500": _refusal(500, "Internal error"),
    "502": _refusal(502, "Bad gateway"),
    "503, Retry-After 0": _refusal(503, "Unavailable", Retry_After="0"),
    "429, Retry-After 0": _refusal(429, "Too many requests", Retry_After="0"),
    "429, Retry-After nonsense": _refusal(429, "Too many requests", Retry_After="tomorrow"),
    "429, Retry-After an hour": _refusal(429, "Too many requests", Retry_After="3600"),
    "400": _refusal(400, "Bad request"),
    "401": _refusal(401, "Unauthorized"),
    "403": _refusal(403, "Permission was denied"),
    "404": _refusal(404, "Not found"),
    "HTML with 200": instead(200, PAGE),
    "an empty object": replace(instead(200, {}), never=("storage", "upload")),
    "no such notebook": replace(instead(200, NO_NOTEBOOK), only=("SaveKernel",)),
    "reset": Kind(False, lost=True),
    "silence": Kind(False, lost=True, silence=True),
    # Faults that occur after the call has taken effect
    "500 after": _refusal(500, "Internal error", after=True),
    "reset after": Kind(True, lost=True),
    "silence after": Kind(True, lost=True, silence=True),
    "HTML after": instead(200, PAGE, after=True),
    "cut off": Kind(True, cut=0.5),
    "one byte a second": Kind(True, drip=True),
    "other bytes": Kind(True, _other_bytes, only=("storage",)),
    "an expired address": replace(instead(403, EXPIRED, after=True), only=("storage",)),
    "unknown word": replace(edited(status="SOMETHING_NEW"), only=STATUSES),
    "a field is missing": _edits(_removed(*FIELDS), *STATUSES, *MADE, "GetDataset"),
    "an older answer": _edits(_older, *STATUSES, *LISTS, "GetDataset", "ListSubmissions"),
    "a name that climbs": _edits(_files(_climb), *LISTS),
    "a file less": _edits(_files(list.pop), *LISTS),
    "saved only": replace(edited(status="NEW_SCRIPT"), only=("GetKernelSessionStatus",)),
    "a score hidden": _edits(_removed("publicScore"), "GetSubmission"),
}


def operation_of(path: str) -> str:
    """Return the API method that a path calls, or "storage", "upload" or "log"."""
    parts = path.strip("/").split("/")
    if "v1" in parts:
        return "log" if "stream" in parts else parts[-1]
    return parts[0]


@dataclass
class Faults:
    """WSGI middleware that makes requests fail as planned.

    Attributes:
        app: the wrapped application, which handles the requests that do not fail.
        seen: the operation of each request since the last `clear`, except for requests that follow
            a log, whose number depends on timing.
        struck: the (kind, operation) of each request that failed as planned.
    """

    app: "WSGIApplication"
    seen: list[str] = field(default_factory=list)
    struck: list[tuple[str, str]] = field(default_factory=list)
    _planned: dict[str, Iterator[str | Kind | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def clear(self) -> None:
        """Forget all planned and recorded faults, and release the requests that are waiting."""
        with self._lock:
            self._ended.set()
            self._ended = threading.Event()
            self.seen, self.struck, self._planned = [], [], {}

    def say(self, operation: str, kinds: Iterable[str | Kind | None]) -> None:
        """Plan faults for the next requests that call an operation (see `operation_of`).

        `kinds` contains a kind of fault for each request, or None for a request that succeeds.
        """
        with self._lock:
            self._planned[operation] = iter(kinds)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        operation = operation_of(environ["PATH_INFO"])
        with self._lock:
            ended, planned = self._ended, next(self._planned.get(operation, iter(())), None)
            if operation != "log":
                self.seen.append(operation)
        kind = KINDS[planned] if isinstance(planned, str) else planned
        if kind is None or not kind.strikes(operation):
            return self.app(environ, start_response)
        if kind.after:
            answer = Response.from_app(self.app, environ, buffered=True)
        else:
            Request(environ).get_data()
            answer = Response()
        if kind.change(answer) is False:
            return answer(environ, start_response)
        with self._lock:
            self.struck.append((planned if isinstance(planned, str) else CUSTOM, operation))
        if kind.silence:
            ended.wait(SILENT_AT_MOST)
        if kind.lost:
            raise ConnectionResetError("planned")
        if kind.drip:
            _drip(environ["werkzeug.socket"], answer, ended)
        if kind.cut < 1:  # the Content-Length header is not changed
            body = answer.data
            answer.response = [body[: len(body) - max(int(len(body) * (1 - kind.cut)), 1)]]
        return answer(environ, start_response)


def _drip(connection: socket, answer: Response, ended: threading.Event) -> None:
    """Send a response one byte at a time, until it is complete or the client disconnects.

    Raises:
        ConnectionResetError: always, to close the connection afterwards.
    """
    raw = f"HTTP/1.1 {answer.status}\r\n{answer.headers}".encode() + answer.data
    for place in range(len(raw)):
        connection.sendall(raw[place : place + 1])
        if ended.wait(DRIP_SECONDS):
            break
    raise ConnectionResetError("planned")


@dataclass
class Wire:
    """Counts the bytes of transferred files, and can break the connections.

    Attributes:
        breaks_after: number of bytes after which a connection breaks, or 0 for never.
        down, up: number of bytes that were downloaded and uploaded.
        passed: called after each chunk of a file.
    """

    breaks_after: int = 0
    down: int = 0
    up: int = 0
    passed: Callable[[], object] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def passing(self, pieces: Iterable[bytes], *, up: bool) -> Iterator[bytes]:
        before = 0
        for piece in pieces:
            left = max(self.breaks_after - before, 0) if self.breaks_after else len(piece)
            size = min(left, len(piece))
            if size:
                yield piece[:size]
            before += size
            with self._lock:
                self.up += size if up else 0
                self.down += 0 if up else size
            self.passed()
            if size < len(piece):
                raise ConnectionResetError("the connection broke as planned")

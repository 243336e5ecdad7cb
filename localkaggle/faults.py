"""Faults: what can go wrong between a client and Kaggle, planned in advance for any call.

A fault comes before the call (nothing happens) or after it (it happens, and the answer is lost or
wrong). docs/facts.md says which of them Kaggle was seen to give; the others are those of any
network.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.client import HTTPMessage
from typing import Any

DRIP_SECONDS = 1.0  # between two bytes
SILENT_AT_MOST = 120.0
OWN = "said"  # the name of a kind that is not in the list below


@dataclass
class Answer:
    """The answer that would have been sent."""

    code: int
    headers: HTTPMessage
    body: bytes

    @classmethod
    def parse(cls, raw: bytes) -> "Answer":
        """Read an answer as `BaseHTTPRequestHandler` writes it."""
        head, _, body = raw.partition(b"\r\n\r\n")
        status, _, lines = head.partition(b"\r\n")
        return cls(int(status.split()[1]), BytesParser(HTTPMessage).parsebytes(lines), body)

    def value(self) -> dict[str, Any] | None:
        """Return the JSON object that the body is, or None."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def raw(self) -> bytes:
        """Return the bytes, with the Content-Length that they have."""
        del self.headers["Content-Length"]
        self.headers["Content-Length"] = str(len(self.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"HTTP/1.1 {self.code} X\r\n{lines}\r\n".encode() + self.body


Change = Callable[[Answer, str], bool]
"""Makes an answer to an operation wrong, and returns whether it could."""


@dataclass(frozen=True)
class Kind:
    """One way to fail.

    Attributes:
        after: whether the call takes effect first.
        change: makes the answer wrong; None: there is no answer.
        silence: whether the connection stays open without a byte.
        drip: whether one byte a second is sent.
        cut: the share of the body that is sent.
        only: the operations whose answers can fail in this way; empty: all.
    """

    after: bool
    change: Change | None
    silence: bool = False
    drip: bool = False
    cut: float = 1.0
    only: tuple[str, ...] = ()

    def strikes(self, operation: str) -> bool:
        """Return whether a request of this operation can fail in this way."""
        return not self.only or operation in self.only


def _become(answer: Answer, code: int, value: Any, headers: Mapping[str, str]) -> None:
    html = isinstance(value, bytes)
    answer.code, answer.body = code, value if html else json.dumps(value).encode()
    for name in ("Content-Type", "Location"):
        del answer.headers[name]
    answer.headers["Content-Type"] = "text/html" if html else "application/json"
    for name, text in headers.items():
        answer.headers[name.replace("_", "-")] = text


def _reply(code: int, value: Any, **headers: str) -> Change:
    def change(answer: Answer, operation: str) -> bool:
        _become(answer, code, value, headers)
        return True

    return change


def _refusal(code: int, message: str, *, after: bool = False, **headers: str) -> Kind:
    return Kind(after, _reply(code, {"code": code, "message": message}, **headers))


def _empty(answer: Answer, operation: str) -> bool:
    if operation in ("storage", "upload"):
        return False
    _become(answer, 200, {}, {})
    return True


def _other_bytes(answer: Answer, operation: str) -> bool:
    body = bytearray(answer.body)
    if body:
        body[len(body) // 2] ^= 1
    answer.body = bytes(body)
    return bool(body)


def _same(answer: Answer, operation: str) -> bool:
    return True


def _edits(edit: Callable[[dict[str, Any]], bool], only: tuple[str, ...] = ()) -> Kind:
    """Return the kind that edits the answer's JSON object; `edit` returns whether it could."""

    def change(answer: Answer, operation: str) -> bool:
        value = answer.value()
        if value is None or not edit(value):
            return False
        answer.body = json.dumps(value).encode()
        return True

    return Kind(True, change, only=only)


def _unknown_word(value: dict[str, Any]) -> bool:
    found = "status" in value and value["status"] != "ok"
    if found:
        value["status"] = "SOMETHING_NEW"
    return found


def _field_missing(value: dict[str, Any]) -> bool:
    for name in ("status", "versionNumber", "token", "ref", "currentVersionNumber", "publicScore"):
        if name in value:
            del value[name]
            return True
    return False


def _error_text(value: dict[str, Any]) -> bool:
    if not {"versionNumber", "status"} & set(value) or "ref" not in value:
        return False
    value.pop("versionNumber", None)
    value["error"], value["status"] = "Something went wrong on our side", "error"
    return True


def _older(value: dict[str, Any]) -> bool:
    """Answer as a replica that has not heard of the newest yet."""
    if value.get("currentVersionNumber"):
        value["currentVersionNumber"] -= 1
        value["versions"] = (value.get("versions") or [])[:-1]
    elif value.get("status") in ("READY", "COMPLETE", "RUNNING") and "publicScore" not in value:
        value["status"] = "BLOBS_RECEIVED" if value["status"] == "READY" else "QUEUED"
    elif value.get("submissions"):
        value["submissions"] = value["submissions"][1:]
    elif value.get("publicScore"):
        del value["publicScore"]
        value["status"] = "PENDING"
    elif _listing(value):
        value.update({name: [] for name in ("files", "datasetFiles") if name in value})
    else:
        return False
    return True


def _source_dropped(value: dict[str, Any]) -> bool:
    found = "versionNumber" in value
    if found:
        value["invalidCompetitionSources"] = ["digits"]
    return found


def _listing(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files that an answer lists; a change of the list changes the answer."""
    return value.get("files") or value.get("datasetFiles") or []


def _endless(value: dict[str, Any]) -> bool:
    found = bool(_listing(value))
    if found:
        value["nextPageToken"] = "again"
    return found


def _rename(rename: Callable[[str], str]) -> Callable[[dict[str, Any]], bool]:
    def edit(value: dict[str, Any]) -> bool:
        for file in _listing(value)[:1]:
            for name in {"fileName", "name"} & set(file):
                file[name] = rename(file[name])
        return bool(_listing(value))

    return edit


def _twice(value: dict[str, Any]) -> bool:
    files = _listing(value)
    files += files[:1]
    return bool(files)


def _one_less(value: dict[str, Any]) -> bool:
    files = _listing(value)
    found = bool(files)
    del files[-1:]
    return found


def instead(code: int, value: Any, **headers: str) -> Kind:
    """Return the kind in which nothing happens and this is answered. `headers`: with _ for -."""
    return Kind(False, _reply(code, value, **headers))


def edited(**values: Any) -> Kind:
    """Return the kind in which it happens, and the answer's object has these values."""

    def edit(value: dict[str, Any]) -> bool:
        value.update(values)
        return True

    return _edits(edit)


def meanwhile(happens: Callable[[], object], *, after: bool = True, cut: float = 1.0) -> Kind:
    """Return the kind in which something else happens before the answer is sent.

    If `after`, the answer is the true one; otherwise the call has no effect and an empty answer.
    """

    def change(answer: Answer, operation: str) -> bool:
        happens()
        return True

    return Kind(after, change, cut=cut)


LISTS = ("ListKernelSessionOutput", "ListDatasetFiles")
STATUSES = ("GetKernelSessionStatus", "GetDatasetStatus", "GetSubmission")
MADE = ("SaveKernel", "CreateDataset", "CreateDatasetVersion")
ANNOUNCED = ("StartBlobUpload", "StartSubmissionUpload")
SUBMITTED = ("CreateCodeSubmission", "CreateSubmission")
HTML = _reply(200, b"<html><body>We will be back soon</body></html>")
EXPIRED = _reply(403, b"<Error><Code>ExpiredToken</Code></Error>")
KINDS: dict[str, Kind] = {
    # Before: nothing happens
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
    "HTML with 200": Kind(False, HTML),
    "an empty object": Kind(False, _empty),
    "reset": Kind(False, None),
    "silence": Kind(False, None, silence=True),
    # After: it happens
    "500 after": _refusal(500, "Internal error", after=True),
    "504 after": _refusal(504, "Gateway timeout", after=True),
    "reset after": Kind(True, None),
    "silence after": Kind(True, None, silence=True),
    "HTML after": Kind(True, HTML),
    "empty object after": Kind(True, _empty),
    "cut off": Kind(True, _same, cut=0.5),
    "one byte a second": Kind(True, _same, drip=True),
    "unknown word": _edits(_unknown_word, STATUSES),
    "a field is missing": _edits(
        _field_missing,
        (*STATUSES, *MADE, *ANNOUNCED, *SUBMITTED, "GetDataset"),
    ),
    "an error with 200": _edits(_error_text, MADE),
    "an older answer": _edits(_older, (*STATUSES, *LISTS, "GetDataset", "ListSubmissions")),
    "endless pages": _edits(_endless, LISTS),
    "a name that climbs": _edits(_rename(lambda name: f"../../{name}"), LISTS),
    "an absolute name": _edits(_rename(lambda name: f"/tmp/{name}"), LISTS),  # noqa: S108
    "a name twice": _edits(_twice, LISTS),
    "a file less": _edits(_one_less, LISTS),
    "a source dropped": _edits(_source_dropped, ("SaveKernel",)),
    "other bytes": Kind(True, _other_bytes, only=("storage",)),
    "an expired address": Kind(True, EXPIRED, only=("storage",)),
}


@dataclass
class Faults:
    """What is planned, and what came of it.

    Attributes:
        seen: the operation of every request since the plan. Following a log does not count, since
            the clock decides when a client asks again.
        struck: (index, kind, operation) of the requests that failed as planned.
        log: the kind that strikes every request for a log.
    """

    seen: list[str] = field(default_factory=list)
    struck: list[tuple[int, str, str]] = field(default_factory=list)
    log: str = ""
    _by_index: dict[int, str] = field(default_factory=dict)
    _by_operation: dict[str, Iterator[str | Kind | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def plan(self, faults: dict[int, str], log: str = "") -> None:
        """Forget the plan before, and let the request of each index (0 is the next) fail.

        Raises:
            ValueError: if there is no such kind.
        """
        unknown = {*faults.values(), *filter(None, [log])} - KINDS.keys()
        if unknown:
            raise ValueError(f"unknown kinds {sorted(unknown)}; expected some of {list(KINDS)}")
        with self._lock:
            self._ended.set()  # releases the requests that wait in silence
            self._ended = threading.Event()
            self.seen, self.struck, self.log = [], [], log
            self._by_index, self._by_operation = dict(faults), {}

    def say(self, operation: str, kinds: Iterable[str | Kind | None]) -> None:
        """Let the next requests of this operation fail, one after the other; None lets one pass."""
        with self._lock:
            self._by_operation[operation] = iter(kinds)

    def take(self, operation: str) -> tuple[int, str, Kind] | None:
        """Count a request, and return its index and the fault that is planned for it, if any."""
        with self._lock:
            if operation == "log":
                return (-1, self.log, KINDS[self.log]) if self.log else None
            index = len(self.seen)
            self.seen.append(operation)
            queued = self._by_operation.get(operation, iter(()))
            planned = self._by_index.get(index) or next(queued, None)
        if isinstance(planned, Kind):
            return index, OWN, planned
        if planned and KINDS[planned].strikes(operation):
            return index, planned, KINDS[planned]
        return None

    def strike(
        self,
        index: int,
        name: str,
        kind: Kind,
        operation: str,
        handle: Callable[[], bytes],
        ignore: Callable[[], None],
        write: Callable[[bytes], Any],
    ) -> bool:
        """Let one request fail, and return whether the connection can still be used.

        Args:
            index, name, kind: as `take` returns them.
            operation: what the request asks for.
            handle: does it and returns the answer's bytes.
            ignore: reads the request and does nothing.
            write: sends bytes.
        """
        ended = self._ended
        raw = handle() if kind.after else b""
        answer = Answer.parse(raw) if kind.after else Answer(200, HTTPMessage(), b"")
        if kind.change is not None and not kind.change(answer, operation):
            write(raw or handle())  # this request cannot fail in this way
            return True
        if not kind.after:
            ignore()
        with self._lock:
            self.struck.append((index, name, operation))
        if kind.silence:
            ended.wait(SILENT_AT_MOST)
        if kind.change is None:
            return False
        raw = answer.raw()
        if kind.cut < 1:
            raw = raw[: len(raw) - max(int(len(answer.body) * (1 - kind.cut)), 1)]
        if kind.drip:
            for place in range(len(raw)):
                write(raw[place : place + 1])
                if ended.wait(DRIP_SECONDS):
                    break
            return False
        write(raw)
        return kind.cut == 1

    def close(self) -> None:
        """Release every request that is kept waiting."""
        self._ended.set()

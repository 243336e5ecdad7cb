"""Faults: what can go wrong between a client and Kaggle, at any call, planned in advance.

A fault comes before the call (nothing happened) or after it (it happened, and the answer is lost or
wrong). Which answers Kaggle has really given in these ways is in docs/facts.md; the others are
those of any network.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.client import HTTPMessage
from typing import Any

DRIP_SECONDS = 1.0  # between two bytes
SILENT_AT_MOST = 120.0
OWN = "said"  # the name of what is no kind of the list below


@dataclass
class Answer:
    """What would have been sent."""

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

    def raw(self, announced: int | None = None) -> bytes:
        """Return the bytes; `announced`: a Content-Length that need not be true."""
        del self.headers["Content-Length"]
        self.headers["Content-Length"] = str(len(self.body) if announced is None else announced)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"HTTP/1.1 {self.code} X\r\n{lines}\r\n".encode() + self.body


@dataclass(frozen=True)
class Kind:
    """One way to go wrong.

    Attributes:
        after: the call takes effect first.
        change: makes the answer wrong and returns whether it could; None: there is no answer.
        silence: the connection stays open without a byte. drip: one byte a second.
        cut: the share of the body that is sent.
        only: the operations in whose answers there is something to go wrong; empty: all.
    """

    after: bool
    change: Callable[[Answer, str], bool] | None
    silence: bool = False
    drip: bool = False
    cut: float = 1.0
    only: tuple[str, ...] = ()

    def strikes(self, operation: str) -> bool:
        """Return whether a request of this operation can go wrong in this way."""
        return not self.only or operation in self.only


def _refuse(code: int, message: str, **headers: str) -> Callable[[Answer, str], bool]:
    def change(answer: Answer, operation: str) -> bool:
        _become(answer, code, {"code": code, "message": message})
        for name, value in headers.items():
            answer.headers[name.replace("_", "-")] = value
        return True

    return change


def _become(answer: Answer, code: int, value: Any) -> None:
    answer.code, answer.body = (
        code,
        value if isinstance(value, bytes) else json.dumps(value).encode(),
    )
    for name in ("Content-Type", "Location"):
        del answer.headers[name]
    answer.headers["Content-Type"] = "text/html" if isinstance(value, bytes) else "application/json"


def _html(answer: Answer, operation: str) -> bool:
    _become(answer, 200, b"<html><body>We will be back soon</body></html>")
    return True


def _empty(answer: Answer, operation: str) -> bool:
    if operation in ("storage", "upload"):
        return False
    _become(answer, 200, {})
    return True


def _edit(edit: Callable[[dict[str, Any]], bool]) -> Callable[[Answer, str], bool]:
    """Return a change of the JSON object in the body; `edit` returns whether it found what to
    change.
    """

    def change(answer: Answer, operation: str) -> bool:
        value = answer.value()
        if value is None or not edit(value):
            return False
        answer.body = json.dumps(value).encode()
        return True

    return change


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
    """As a replica answers that has not heard of the newest yet."""
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
    elif value.get("files") or value.get("datasetFiles"):
        value.update({name: [] for name in ("files", "datasetFiles") if name in value})
    else:
        return False
    return True


def _endless(value: dict[str, Any]) -> bool:
    found = bool(value.get("files") or value.get("datasetFiles"))
    if found:
        value["nextPageToken"] = "again"
    return found


def _names(rename: Callable[[str], str]) -> Callable[[dict[str, Any]], bool]:
    def edit(value: dict[str, Any]) -> bool:
        for files, key in (("files", "fileName"), ("datasetFiles", "name")):
            if value.get(files) and key in value[files][0]:
                value[files][0][key] = rename(value[files][0][key])
                return True
        return False

    return edit


def _twice(value: dict[str, Any]) -> bool:
    for files in ("files", "datasetFiles"):
        if value.get(files):
            value[files].append(value[files][0])
            return True
    return False


def _one_less(value: dict[str, Any]) -> bool:
    for files in ("files", "datasetFiles"):
        if value.get(files):
            value[files].pop()
            return True
    return False


def _dropped(value: dict[str, Any]) -> bool:
    if "versionNumber" not in value:
        return False
    value["invalidCompetitionSources"] = ["digits"]
    return True


def _other_bytes(answer: Answer, operation: str) -> bool:
    if operation != "storage" or not answer.body:
        return False
    middle = len(answer.body) // 2
    answer.body = (
        answer.body[:middle] + bytes([answer.body[middle] ^ 1]) + answer.body[middle + 1 :]
    )
    return True


def _expired(answer: Answer, operation: str) -> bool:
    if operation != "storage":
        return False
    _become(answer, 403, b"<Error><Code>ExpiredToken</Code></Error>")
    return True


def _same(answer: Answer, operation: str) -> bool:
    return True


def instead(code: int, value: Any, **headers: str) -> Kind:
    """Return the way in which nothing happens, and this is answered. `headers`: with _ for -."""

    def change(answer: Answer, operation: str) -> bool:
        _become(answer, code, value)
        for name, text in headers.items():
            answer.headers[name.replace("_", "-")] = text
        return True

    return Kind(False, change)


def edited(**values: Any) -> Kind:
    """Return the way in which it happens, and the object that tells of it has these values."""

    def edit(value: dict[str, Any]) -> bool:
        value.update(values)
        return True

    return Kind(True, _edit(edit))


def meanwhile(happens: Callable[[], object], *, after: bool = True, cut: float = 1.0) -> Kind:
    """Return the way in which something else happens while the answer, a true one, is on its way;
    or, not `after`, instead of it.
    """

    def change(answer: Answer, operation: str) -> bool:
        happens()
        return True

    return Kind(after, change, cut=cut)


LISTS = ("ListKernelSessionOutput", "ListDatasetFiles")
STATUSES = ("GetKernelSessionStatus", "GetDatasetStatus", "GetSubmission")
MADE = ("SaveKernel", "CreateDataset", "CreateDatasetVersion")
KINDS: dict[str, Kind] = {
    # Before: nothing has happened
    "500": Kind(False, _refuse(500, "Internal error")),
    "502": Kind(False, _refuse(502, "Bad gateway")),
    "503, Retry-After 0": Kind(False, _refuse(503, "Unavailable", Retry_After="0")),
    "429, Retry-After 0": Kind(False, _refuse(429, "Too many requests", Retry_After="0")),
    "429, Retry-After nonsense": Kind(
        False, _refuse(429, "Too many requests", Retry_After="tomorrow")
    ),
    "429, Retry-After an hour": Kind(False, _refuse(429, "Too many requests", Retry_After="3600")),
    "400": Kind(False, _refuse(400, "Bad request")),
    "401": Kind(False, _refuse(401, "Unauthorized")),
    "403": Kind(False, _refuse(403, "Permission was denied")),
    "404": Kind(False, _refuse(404, "Not found")),
    "HTML with 200": Kind(False, _html),
    "an empty object": Kind(False, _empty),
    "reset": Kind(False, None),
    "silence": Kind(False, None, silence=True),
    # After: it has happened
    "500 after": Kind(True, _refuse(500, "Internal error")),
    "504 after": Kind(True, _refuse(504, "Gateway timeout")),
    "reset after": Kind(True, None),
    "silence after": Kind(True, None, silence=True),
    "HTML after": Kind(True, _html),
    "empty object after": Kind(True, _empty),
    "cut off": Kind(True, _same, cut=0.5),
    "one byte a second": Kind(True, _same, drip=True),
    "unknown word": Kind(True, _edit(_unknown_word), only=STATUSES),
    "a field is missing": Kind(
        True,
        _edit(_field_missing),
        only=(*STATUSES, *MADE, "StartBlobUpload", "GetDataset", "CreateCodeSubmission"),
    ),
    "an error with 200": Kind(True, _edit(_error_text), only=MADE),
    "an older answer": Kind(
        True, _edit(_older), only=(*STATUSES, *LISTS, "GetDataset", "ListSubmissions")
    ),
    "endless pages": Kind(True, _edit(_endless), only=LISTS),
    "a name that climbs": Kind(True, _edit(_names(lambda name: f"../../{name}")), only=LISTS),
    "an absolute name": Kind(True, _edit(_names(lambda name: f"/tmp/{name}")), only=LISTS),  # noqa: S108 - it must be refused
    "a name twice": Kind(True, _edit(_twice), only=LISTS),
    "a file less": Kind(True, _edit(_one_less), only=LISTS),
    "a source dropped": Kind(True, _edit(_dropped), only=("SaveKernel",)),
    "other bytes": Kind(True, _other_bytes, only=("storage",)),
    "an expired address": Kind(True, _expired, only=("storage",)),
}


@dataclass
class Faults:
    """What is planned, and what has come: `seen` holds the operation of every request since then.

    Following a log is not counted: when it asks again depends on the clock. `log` strikes all of
    these requests.
    """

    seen: list[str] = field(default_factory=list)
    struck: list[tuple[int, str, str]] = field(default_factory=list)
    log: str = ""
    _at: dict[int, str] = field(default_factory=dict)
    _said: dict[str, Iterator[str | Kind | None]] = field(default_factory=dict)
    _own: dict[int, Kind] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def plan(self, faults: dict[int, str], log: str = "") -> None:
        """Forget what came, and let the request of each index (0 is the next one) go wrong in this
        way.
        """
        unknown = {*faults.values(), *filter(None, [log])} - KINDS.keys()
        if unknown:
            raise ValueError(
                f"unknown kinds {sorted(unknown)}; expected some of {', '.join(KINDS)}"
            )
        with self._lock:
            self._ended.set()  # whoever is kept in silence may go
            self._ended = threading.Event()
            self.seen, self.struck, self._at, self.log = [], [], dict(faults), log
            self._said, self._own = {}, {}

    def say(self, operation: str, kinds: Iterable[str | Kind | None]) -> None:
        """Let the next requests of this operation go wrong in these ways, one after the other; None
        lets one through.
        """
        with self._lock:
            self._said[operation] = iter(kinds)

    def take(self, operation: str) -> tuple[int, str] | None:
        """Count a request, and return its index and kind if something is planned for it."""
        with self._lock:
            if operation == "log":
                return (-1, self.log) if self.log else None
            index = len(self.seen)
            self.seen.append(operation)
            name = self._at.get(index) or next(self._said.get(operation, iter(())), None) or ""
            if isinstance(name, Kind):
                self._own[index] = name
                return index, OWN
            return (index, name) if name and KINDS[name].strikes(operation) else None

    def strike(
        self,
        index: int,
        name: str,
        operation: str,
        handle: Callable[[], bytes],
        ignore: Callable[[], None],
        write: Callable[[bytes], Any],
    ) -> bool:
        """Let one request go wrong, and return whether the connection can still be used.

        Args:
            handle: does what was asked and returns the answer's bytes. ignore: reads the request
                and does nothing.
            write: sends bytes.
        """
        kind, ended = self._own[index] if name == OWN else KINDS[name], self._ended
        before = Answer(200, HTTPMessage(), b"")
        if not kind.after and kind.change is not None and not kind.change(before, operation):
            write(handle())
            return True  # such a request cannot go wrong in this way
        if kind.after:
            raw = handle()
            answer = Answer.parse(raw)
            if kind.change is not None and not kind.change(answer, operation):
                write(raw)
                return True
        else:
            ignore()
            answer = before
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
        """Let go of everybody who is kept waiting."""
        self._ended.set()

"""Fault kinds: how a call between a client and Kaggle can go wrong.

A fault comes before the call (nothing happens) or after it (it happens, and the answer is lost or
wrong). docs/facts.md says which of them Kaggle was seen to give; the others are those of any
network.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from http.client import HTTPMessage
from typing import Any


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


def _saved_only(value: dict[str, Any]) -> bool:
    value["status"] = "NEW_SCRIPT"
    return True


def _score_hidden(value: dict[str, Any]) -> bool:
    return value.pop("publicScore", None) is not None


def _sizes_wrong(value: dict[str, Any]) -> bool:
    """List each file with the size that Kaggle gave for an output of 1.2 GB."""
    for file in _listing(value):
        file["size"] = 946
    return bool(_listing(value))


def _none_listed(value: dict[str, Any]) -> bool:
    found = bool(_listing(value))
    if found:
        value["files"] = []
    return found


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


LISTS = ("ListKernelSessionOutput", "ListKernelFiles", "ListDatasetFiles")
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
    "saved only": _edits(_saved_only, ("GetKernelSessionStatus",)),
    "a score hidden": _edits(_score_hidden, ("GetSubmission",)),
    "size 946": _edits(_sizes_wrong, ("ListKernelFiles",)),
    "0 files listed": _edits(_none_listed, ("ListKernelFiles",)),
    "no such notebook": Kind(
        False, _reply(200, {"error": "Notebook not found"}), only=("SaveKernel",)
    ),
    "a source dropped": _edits(_source_dropped, ("SaveKernel",)),
    "other bytes": Kind(True, _other_bytes, only=("storage",)),
    "an expired address": Kind(True, EXPIRED, only=("storage",)),
}

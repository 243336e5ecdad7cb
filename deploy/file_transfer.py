"""Downloads from and uploads to the addresses that Kaggle names: complete files, or none.

Both go on where a connection broke, or a process was killed.

Every connection of the Kaggle side goes through `Guard`. The official client has no timeouts
(measured: it waits for ever), and follows redirects to any host over plain HTTP.
"""

import base64
import hashlib
import ipaddress
import json
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from deploy.errors import BadAnswer, UsageError
from formats.errors import DiskError, writing

CHUNK_BYTES = 1 << 20
# So little is lost where a connection breaks: of a chunk that is not complete nothing is kept.
RECEIVED_BYTES = 1 << 16
SHOWN_SECONDS = 10.0  # between two lines about one transfer
UNPACKED_AT_MOST = 20 * 10**9  # bytes: Kaggle's limit for an output
# A file of more bytes than SUSPECT may have been compressed by this ratio at most: no table of
# numbers compresses as well as that.
SUSPECT, RATIO_AT_MOST = 10**8, 200
PARTIAL = ".relay-part"  # the suffix of an incomplete download; no output may have it


def is_loopback(url: str) -> bool:
    """Return whether the address is on this machine.

    >>> is_loopback("http://127.0.0.1:8080/x"), is_loopback("http://localhost.example.com/")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Heard:
    """An answer as it came.

    Attributes:
        method, path, asked: of the request; the body is "" where there is none.
        code: of the answer.
        said: its body; None: a file that is read later.
    """

    method: str
    path: str
    asked: str
    code: int
    said: str | None


Listener = Callable[[Heard], None]


class Guard(HTTPAdapter):
    """Gives each request timeouts, and refuses unsafe addresses.

    Args:
        timeouts: seconds to connect, and between two bytes.

    Attributes:
        listener: is given each answer; None: nobody listens.
    """

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self.timeouts = timeouts
        self.listener: Listener | None = None

    def send(  # type: ignore[override]  # the base class names its defaults
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send. Raises `BadAnswer` for an address, or redirect, that is neither https nor local."""
        url = request.url or ""
        if urlsplit(url).scheme != "https" and not is_loopback(url):
            raise BadAnswer(
                f"Kaggle's answer points at {_without_key(url)}; expected https, or an address of"
                " this machine.\n"
                "Nothing was transferred. Check the proxy settings of this machine and try again."
            )
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self.timeouts
        try:
            answer = super().send(request, **kwargs)
        except OSError as error:
            file = kwargs.get("verify")
            if not isinstance(file, str) or file not in str(error):
                raise
            raise UsageError(  # requests looks for the file of authorities when it connects
                f"Nothing was sent: {error}.\n"
                "Expected the path of a PEM file in REQUESTS_CA_BUNDLE, or no such variable."
                " Correct or unset it."
            ) from error
        if self.listener is not None:
            self.listener(_heard(request, answer, streamed=bool(kwargs.get("stream"))))
        return answer


def guarded(session: requests.Session, timeouts: tuple[float, float]) -> requests.Session:
    """Return the session with `Guard` on every address."""
    session.mount("http://", Guard(timeouts))
    session.mount("https://", Guard(timeouts))
    return session


def _heard(
    request: requests.PreparedRequest, answer: requests.Response, *, streamed: bool
) -> Heard:
    body = request.body if isinstance(request.body, (bytes, str)) else ""  # not the files sent
    asked = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    whole = not streamed or answer.status_code >= 400
    said = answer.content.decode("utf-8", "replace") if whole else None
    path = urlsplit(request.url or "").path
    return Heard(request.method or "", path, asked, answer.status_code, said)


def anonymous(timeouts: tuple[float, float]) -> requests.Session:
    """Return a guarded session without credentials, for signed addresses."""
    session = guarded(requests.Session(), timeouts)
    session.auth = lambda request: request  # otherwise requests would read ~/.netrc
    return session


def listen(session: requests.Session, listener: Listener) -> None:
    """Give each answer that a guarded session gets to `listener`, before anybody reads it."""
    for adapter in session.adapters.values():
        if isinstance(adapter, Guard):
            adapter.listener = listener


def copied(session: requests.Session, timeouts: tuple[float, float]) -> requests.Session:
    """Return a guarded session with the same credentials, for another thread."""
    other = guarded(requests.Session(), timeouts)
    other.auth, other.trust_env = session.auth, session.trust_env
    other.headers.update(session.headers)
    return other


class Progress:
    """How far one transfer got, over all of its connections; a long one says so now and then.

    Args:
        name: of the file.
        show: is given a line at most every `SHOWN_SECONDS`.

    Attributes:
        furthest: the place, in bytes, that it reached.
        at: when it got there, by the monotonic clock.
    """

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self.furthest, self.at = 0, time.monotonic()
        self._name, self._show = name, show
        self._first: tuple[int, float] | None = None
        self._shown = self.at

    def reached(self, place: int, total: int | None) -> None:
        """Note that the transfer is at this place now."""
        now = time.monotonic()
        if place > self.furthest:
            self.furthest, self.at = place, now
        if self._first is None:
            self._first, self._shown = (place, now), now
        if total and now >= self._shown + SHOWN_SECONDS:
            self._shown = now
            since, began = self._first
            speed = (place - since) / (now - began) if now > began else 0.0
            left = f", {(total - place) / speed / 60:,.1f} min left" if speed > 0 else ""
            self._show(f"{self._name}: {place / 1e6:,.0f} of {total / 1e6:,.0f} MB{left}")


@dataclass(frozen=True)
class Origin:
    """The file that a part is a part of.

    Attributes:
        validator: its ETag, or else its date, as the storage gave it; "": it gave none, so that
            nobody can say whether a part is still of the same file.
        total: its bytes; None: unknown.
        md5: in Base64; "": unknown.
    """

    validator: str
    total: int | None
    md5: str

    @classmethod
    def of(cls, answer: requests.Response, total: int | None) -> "Origin":
        """Return the file that an answer is about."""
        headers = answer.headers
        if headers.get("Content-Encoding", "identity") != "identity":
            return cls("", None, "")  # its bytes are not those of the storage
        tag = headers.get("ETag", "")  # a weak one does not tell whether bytes are equal
        validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
        md5 = re.search(r"md5=([A-Za-z0-9+/=]+)", headers.get("x-goog-hash", ""))
        stored = headers.get("x-goog-stored-content-encoding", "identity")
        # A file that is stored compressed has the hash of that.
        return cls(validator, total, md5[1] if md5 and stored == "identity" else "")


Ask = Callable[[Mapping[str, str]], requests.Response]
"""Asks for a file with these headers beside its own, and returns the streamed answer."""


class Download:
    """One file on its way to `path`: the bytes that came, and what file they are of.

    Args:
        note: a file that says so to a later process, too; None: only this one has to know. It
            stays beside a complete file until `forget`.

    Attributes:
        part: where the bytes are until all of them came.
        origin: the file that they are of; None: nobody knows.
    """

    def __init__(self, path: Path, note: Path | None = None) -> None:
        self.path, self.part = path, path.with_name(path.name + PARTIAL)
        self._note, self.origin = note, _origin(note)

    def forget(self) -> None:
        """Remove what came, so that the next attempt begins at the start."""
        self.part.unlink(missing_ok=True)
        self.unnote()

    def unnote(self) -> None:
        """Use the bytes that came for nothing else."""
        if self._note is not None:
            self._note.unlink(missing_ok=True)
        self.origin = None

    def begin(self, origin: Origin) -> None:
        """Expect the bytes of another file."""
        self.forget()  # first: what came is not of this file
        self.origin = origin
        if self._note is not None:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")

    def have(self) -> int:
        """Return how many bytes can be used, if the storage still has that file."""
        if self.origin is None or not self.origin.validator or self.origin.total is None:
            return 0
        if self.path.is_file() and not self.part.exists():
            self.path.replace(self.part)  # complete, by a process that was killed later
        have = self.part.stat().st_size if self.part.exists() else 0
        if have > self.origin.total:
            return 0
        # Of a complete file the last byte is asked for: whether the file is still the same.
        return have - 1 if have and have == self.origin.total else have


def _origin(note: Path | None) -> Origin | None:
    """Return the file that a note names; None if there is no such note."""
    try:
        value = json.loads(note.read_text(encoding="utf-8")) if note else {}
        return Origin(str(value["validator"]), value["total"], str(value["md5"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def fetch(ask: Ask, download: Download, progress: Progress) -> None:
    """Download a file, complete or not at all, and go on where an earlier attempt stopped.

    Bytes that came earlier are used only if the storage still has the file that they are of, by
    its ETag or date; otherwise all of it is fetched.

    Raises:
        requests.RequestException: if the connection breaks, bytes are missing or changed, or a web
            page came in place of the file. Another attempt goes on, or begins anew.
        BadAnswer: if it is an archive that does not unpack to this file alone. Nothing stays.
        DiskError: if the disk is full or cannot be written. Nothing stays.
    """
    path, part = download.path, download.part
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            url, md5 = _receive(ask, download, progress)
            # Google's storage sends the MD5: no defence, but it finds transfer errors.
            if md5 and _md5(part) != md5:
                download.forget()
                raise requests.ConnectionError(f"{path.name}: its MD5 is not that of the storage")
            if _is_zipped(url, part, path.name):
                download.unnote()  # first: it is of the archive
                _unzip(part, path.name)
            part.replace(path)
    except (BadAnswer, DiskError):
        download.forget()
        raise


def _receive(ask: Ask, download: Download, progress: Progress) -> tuple[str, str]:
    """Bring the rest of a file into its part; return the address that it came from, and its MD5."""
    name, have, origin = download.path.name, download.have(), download.origin
    # A compressed transfer would hide the announced size.
    headers = {"Accept-Encoding": "identity"}
    if origin is not None and have:
        headers |= {"Range": f"bytes={have}-", "If-Range": origin.validator}
    with _answered(ask, headers, download) as answer:
        page = answer.headers.get("Content-Type", "").startswith("text/html")
        if page and download.path.suffix not in (".html", ".htm"):
            raise requests.ConnectionError(f"{name}: got a web page in its place")
        if origin is None or not have or answer.status_code != 206:
            announced = answer.headers.get("Content-Length", "")
            origin = Origin.of(answer, int(announced) if announced.isdigit() else None)
            have = 0
            download.begin(origin)
        elif not _is_rest(answer, origin, have):
            download.forget()
            raise requests.ConnectionError(f"{name}: got another part than was asked for")
        progress.reached(have, origin.total)
        with download.part.open("r+b" if have else "wb") as file:
            file.truncate(have)
            file.seek(have)
            for chunk in answer.iter_content(RECEIVED_BYTES):
                have += file.write(chunk)
                file.flush()  # a process that is killed keeps what came
                progress.reached(have, origin.total)
        if origin.total not in (None, have):
            raise requests.ConnectionError(f"{name}: got {have} of {origin.total} bytes")
        return answer.url, origin.md5


def _answered(ask: Ask, headers: Mapping[str, str], download: Download) -> requests.Response:
    try:
        answer = ask(headers)
        answer.raise_for_status()
    except requests.HTTPError as error:
        if error.response is not None and error.response.status_code == 416:
            download.forget()
            raise requests.ConnectionError("the file is shorter than what came of it") from error
        raise
    except ValueError as error:
        if isinstance(error, requests.RequestException):
            raise
        # A redirect may lead to any text, of which urllib makes an error of its own.
        raise requests.exceptions.InvalidURL(str(error)) from error
    return answer


def _is_rest(answer: requests.Response, origin: Origin, have: int) -> bool:
    """Return whether an answer is the rest of the file from this place on."""
    ranged = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    now = Origin.of(answer, origin.total)
    return (
        ranged is not None
        and (int(ranged[1]), int(ranged[2])) == (have, origin.total)
        and now.validator in ("", origin.validator)
        and now.md5 in ("", origin.md5)
    )


def _md5(path: Path) -> str:
    """Return the MD5 of a file in Base64."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()


def _is_zipped(url: str, part: Path, name: str) -> bool:
    """Return whether Kaggle sent `name` zipped, which it may always do."""
    zipped = urlsplit(url).path.endswith(".zip") and not name.endswith(".zip")
    return zipped and zipfile.is_zipfile(part)


def _unzip(part: Path, name: str) -> None:
    """Replace an archive by its only member."""
    plain = part.with_name(part.name + ".plain")
    try:
        _unpack(part, plain, name)
        plain.replace(part)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise requests.ConnectionError(
            f"{name} came as an archive that cannot be read: {error}"
        ) from error
    finally:
        plain.unlink(missing_ok=True)


def _unpack(part: Path, plain: Path, name: str) -> None:
    with zipfile.ZipFile(part) as archive:
        members = archive.infolist()
        if len(members) != 1 or Path(members[0].filename).name != name:
            raise BadAnswer(
                f"Kaggle sent an archive of {[member.filename for member in members][:5]};"
                f" expected {name} alone.\n"
                "Look at the file on kaggle.com; try again if it is there."
            )
        size, packed = members[0].file_size, members[0].compress_size
        if size > UNPACKED_AT_MOST or (size > SUSPECT and size > RATIO_AT_MOST * packed):
            raise BadAnswer(
                f"{name} would unpack from {packed:,} to {size:,} bytes; expected an output's size,"
                f" and a ratio of {RATIO_AT_MOST} at most.\nLook at it on kaggle.com."
            )
        with archive.open(members[0]) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)


def _without_key(url: str) -> str:
    """Return scheme and host alone: the rest of a signed address is a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"

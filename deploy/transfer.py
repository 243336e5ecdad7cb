"""Resumable downloads and uploads, using the URLs that Kaggle provides.

Transfers are resumed after a broken connection or a killed process. Uploads use Google's resumable
protocol, in which the storage server reports the number of bytes received and the client sends the
rest.

All connections use `Guard`, because the official client has no timeouts and follows redirects to
any host, even over plain HTTP. In our tests, it waited indefinitely.
"""

import io
import ipaddress
import json
import re
import shutil
import time
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from deploy.errors import BadAnswer
from formats import archives
from formats.errors import writing

# A broken connection loses at most one chunk, because incomplete chunks are discarded.
RECEIVED_BYTES = 1 << 16
SHOWN_SECONDS = 10.0  # minimum interval between progress lines of a transfer
PARTIAL = ".relay-part"  # suffix of incomplete downloads; output files cannot have it


def is_loopback(url: str) -> bool:
    """Return whether a URL points to this machine.

    >>> is_loopback("http://127.0.0.1:8080/x"), is_loopback("http://localhost.example.com/")
    (True, False)
    """
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard(HTTPAdapter):
    """HTTP adapter that sets timeouts for all requests and rejects unsafe URLs.

    `timeouts` are the connect and read timeouts in seconds.
    """

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self.timeouts = timeouts

    def send(  # type: ignore[override]  # the base class lists its arguments
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send a request. Raises `BadAnswer` unless URLs and redirects use https or are local."""
        parts = urlsplit(request.url or "")
        if parts.scheme != "https" and not is_loopback(request.url or ""):
            raise BadAnswer(  # omits the rest of the URL, because signed URLs are secret
                f"Kaggle's response points to {parts.scheme}://{parts.hostname}; expected an https"
                " URL or one on this machine. Nothing was transferred.\n"
                "Check this machine's proxy settings and try again."
            )
        kwargs["timeout"] = kwargs.get("timeout") or self.timeouts
        try:
            answer = super().send(request, **kwargs)
            urlsplit(answer.headers.get("Location", ""))  # requests crashes on invalid URLs
        except (OSError, ValueError) as error:
            if isinstance(error, requests.RequestException):
                raise
            raise requests.exceptions.InvalidURL(str(error)) from error  # or a bad CA bundle
        return answer


def guarded(session: requests.Session, timeouts: tuple[float, float]) -> requests.Session:
    session.mount("http://", Guard(timeouts))
    session.mount("https://", Guard(timeouts))
    return session


Ask = Callable[[Mapping[str, str]], requests.Response]
"""Function that requests a file with additional headers and returns the streamed response."""


@dataclass(frozen=True)
class Place:
    """A signed URL for an upload, and the token that identifies the uploaded file later."""

    token: str
    create_url: str


@dataclass
class Transfer(ABC):
    """A file transfer, which may use several connections in turn.

    Attributes:
        show: function that prints a progress line, at most every `SHOWN_SECONDS` seconds.
        note: private file that stores `known` for later processes, or None to keep it in memory. A
            download's note is kept next to the complete file.
        known: state to resume from, which is the ETag of a partial download or the `Place` of an
            upload. {} starts from the beginning.
        furthest: number of bytes transferred so far.
        at: when `furthest` last changed, as a value of `time.monotonic`.
        begun: position in bytes and time at which this process started the transfer, or None if it
            has not started yet.
    """

    path: Path
    show: Callable[[str], None]
    note: Path | None
    known: dict[str, str] = field(default_factory=dict, init=False)
    furthest: int = field(default=0, init=False)
    at: float = field(default_factory=time.monotonic, init=False)
    begun: tuple[int, float] | None = field(default=None, init=False)
    _shown: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        if self.note is not None:
            with suppress(OSError, ValueError):  # missing or corrupt
                self.known = json.loads(self.note.read_text("utf-8"))

    def keep(self, known: dict[str, str]) -> None:
        """Store the state to resume from. Raises `DiskError`."""
        self.known = known
        if self.note is None:
            return
        with writing(self.note):
            self.note.unlink(missing_ok=True)
            if known:
                self.note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.note.touch(mode=0o600)  # restrict access before writing the signed URL
                self.note.write_text(json.dumps(known), encoding="utf-8")

    def forget(self) -> None:
        """Discard the state, so that the next attempt starts from the beginning."""
        self.keep({})

    @abstractmethod
    def attempt(self) -> str:
        """Transfer the file, resuming where the previous attempt stopped."""

    def reached(self, place: int, total: int | None) -> None:
        now = time.monotonic()
        self.begun = self.begun or (place, now)
        if place > self.furthest:
            self.furthest, self.at = place, now
        if total and now >= self._shown + SHOWN_SECONDS:
            self._shown = now
            start, since = self.begun
            left = (total - place) * (now - since) / (place - start) if place > start else None
            to_go = "" if left is None else f", {timedelta(seconds=round(left))} to go"
            self.show(f"{self.path.name}: {place / 1e6:,.0f} of {total / 1e6:,.0f} MB{to_go}")


@dataclass
class Download(Transfer):
    """A file download to `path`.

    `copies` is the number of copies of the file that must fit on the disk, for example 2 for an
    archive that will be unpacked.
    """

    ask: Ask
    copies: int = 1

    @property
    def part(self) -> Path:
        return self.path.with_name(self.path.name + PARTIAL)

    def forget(self) -> None:
        self.part.unlink(missing_ok=True)
        super().forget()

    def attempt(self) -> str:
        """Download the file, resuming where an earlier attempt stopped.

        Data from an earlier attempt is only used if the file's ETag on the storage server has not
        changed.

        Raises:
            requests.RequestException: if the connection breaks, the file is incomplete, or a web
                page was sent instead. The next attempt resumes the download or starts again.
            BadAnswer: if Kaggle sends an archive that contains anything other than this file.
        """
        name = self.path.name
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            address = self._receive()
            zipped = address.endswith(".zip") and not name.endswith(".zip")
            if zipped and zipfile.is_zipfile(self.part):  # Kaggle may compress any file
                self.keep({})  # do this first, because the note belongs to the archive
                _unzip(self.part, name)
            self.part.replace(self.path)
            return ""

    def _receive(self) -> str:
        name, have = self.path.name, 0
        if self.known and self.path.is_file() and not self.part.exists():
            self.path.replace(self.part)  # a process was killed right after completing it
        # Disable compression, which would hide the file size.
        headers = {"Accept-Encoding": "identity"}
        if self.known and self.part.exists() and self.part.stat().st_size > 1:
            # Start at the last byte so that the ETag of a complete file is checked, too.
            have = self.part.stat().st_size - 1
            headers |= {"Range": f"bytes={have}-", "If-Range": self.known["tag"]}
        with self.ask(headers) as answer:
            answer.raise_for_status()
            told = answer.headers
            if told.get("Content-Type", "").startswith("text/html") and ".htm" not in name:
                raise requests.ConnectionError(f"{name}: received a web page instead of the file")
            if have and answer.status_code == 206:
                size = re.fullmatch(rf"bytes {have}-\d+/(\d+)", told.get("Content-Range", ""))
                if size is None or told.get("ETag", self.known["tag"]) != self.known["tag"]:
                    self.forget()
                    raise requests.ConnectionError(f"{name}: received the wrong part of the file")
            else:
                self.forget()  # do this first, because the earlier bytes are from another file
                have, tag = 0, told.get("ETag", "")
                size = re.fullmatch(r"(\d+)", told.get("Content-Length", ""))
                if told.get("Content-Encoding", "identity") != "identity":
                    tag, size = "", None  # the bytes differ from those in the storage
                # A weak ETag does not guarantee identical bytes.
                self.keep({"tag": tag} if tag.startswith('"') else {})
            total = int(size[1]) if size else None
            archives.require_space(self.part.parent, (total or 0) * self.copies - have, name)
            with self.part.open("r+b" if have else "wb") as file:
                file.truncate(have)
                file.seek(have)
                for chunk in answer.iter_content(RECEIVED_BYTES):
                    have += file.write(chunk)
                    file.flush()  # so that a killed process keeps them
                    self.reached(have, total)
            if total not in (None, have):
                raise requests.ConnectionError(f"{name}: received {have} of {total} bytes")
            return urlsplit(answer.url).path


def _unzip(part: Path, name: str) -> None:
    plain = part.with_name(part.name + ".plain")
    try:
        with zipfile.ZipFile(part) as archive:
            members = archive.namelist()
            if [Path(member).name for member in members] != [name]:
                raise BadAnswer(
                    f"Kaggle sent an archive that contains {members[:5]}; expected only {name}.\n"
                    "Check the file on kaggle.com. If it is there, try again."
                )
            with archive.open(members[0]) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
        plain.replace(part)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise requests.ConnectionError(f"{name}: its archive cannot be read: {error}") from error
    finally:
        plain.unlink(missing_ok=True)


@dataclass
class Upload(Transfer):
    """A file upload, which uses an unauthenticated session.

    `announce` requests an upload location from Kaggle.
    """

    session: requests.Session
    announce: Callable[[], Place]

    def attempt(self) -> str:
        size, start = self.path.stat().st_size, 0
        if self.known:
            answer = self._put(b"", f"bytes */{size}")
            if answer.status_code in (200, 201):
                return self.known["token"]
            if answer.status_code == 308:
                found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
                start = min(int(found[1]) + 1, size) if found else 0
            elif answer.status_code >= 500 or answer.status_code in (408, 429):
                raise requests.HTTPError("the storage did not report a position", response=answer)
            else:
                self.forget()  # the storage no longer has the upload
        if not self.known:
            self.keep(asdict(self.announce()))
        with _Sent(self, start, size) as file:
            # requests would use chunked encoding, without a length, for an empty file object.
            part = f"bytes {start}-{size - 1}/{size}" if start else None
            answer = self._put(file if size else b"", part)
        if answer.status_code not in (200, 201):
            raise requests.HTTPError(f"the upload of {self.path.name} failed", response=answer)
        return self.known["token"]

    def _put(self, body: Any, part: str | None) -> requests.Response:
        url, headers = self.known["create_url"], {"Content-Range": part}
        return self.session.put(url, data=body, headers=headers, allow_redirects=False)


class _Sent(io.FileIO):
    """A file that is read from a start position and reports the upload's progress."""

    def __init__(self, upload: Upload, start: int, size: int) -> None:
        super().__init__(upload.path)
        self.seek(start)
        self._upload, self._size = upload, size

    def read(self, size: int | None = -1, /) -> bytes:
        # All previous bytes have been sent.
        self._upload.reached(self.tell(), self._size)
        return super().read(size)

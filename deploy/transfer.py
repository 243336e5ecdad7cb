"""Downloads and uploads of whole files, from and to the addresses that Kaggle names.

Both resume where a connection broke or a process was killed. Uploads follow Google's resumable
protocol: the storage reports how many bytes it has, and the rest is sent.

Every connection goes through `Guard`. The official client has no timeouts (measured: it waits for
ever), and follows redirects to any host over plain HTTP.
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

# A broken connection loses a chunk at most: an incomplete one is not kept.
RECEIVED_BYTES = 1 << 16
SHOWN_SECONDS = 10.0  # between two lines about one transfer
PARTIAL = ".relay-part"  # the suffix of an incomplete download; no output may have it


def is_loopback(url: str) -> bool:
    """Return whether the address is on this machine.

    >>> is_loopback("http://127.0.0.1:8080/x"), is_loopback("http://localhost.example.com/")
    (True, False)
    """
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard(HTTPAdapter):
    """Sets timeouts for each request, and refuses unsafe addresses.

    Args:
        timeouts: seconds to connect, and between two bytes.
    """

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self.timeouts = timeouts

    def send(  # type: ignore[override]  # the base class names its defaults
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send. Raises `BadAnswer` for an address or redirect that is neither https nor local."""
        parts = urlsplit(request.url or "")
        if parts.scheme != "https" and not is_loopback(request.url or ""):
            raise BadAnswer(  # without the rest of a signed address, which is a secret
                f"Kaggle's answer points at {parts.scheme}://{parts.hostname}; expected https, or"
                " an address of this machine. Nothing was transferred.\n"
                "Check the proxy settings of this machine and try again."
            )
        kwargs["timeout"] = kwargs.get("timeout") or self.timeouts
        try:
            answer = super().send(request, **kwargs)
            urlsplit(answer.headers.get("Location", ""))  # requests crashes on invalid addresses
        except (OSError, ValueError) as error:
            if isinstance(error, requests.RequestException):
                raise
            raise requests.exceptions.InvalidURL(str(error)) from error  # or REQUESTS_CA_BUNDLE
        return answer


def guarded(session: requests.Session, timeouts: tuple[float, float]) -> requests.Session:
    """Return the session with `Guard` on every address."""
    session.mount("http://", Guard(timeouts))
    session.mount("https://", Guard(timeouts))
    return session


Ask = Callable[[Mapping[str, str]], requests.Response]
"""Requests a file with these extra headers, and returns the streamed answer."""


@dataclass(frozen=True)
class Place:
    """Where to upload a file: the token that names it afterwards, and the signed address."""

    token: str
    create_url: str


@dataclass
class Transfer(ABC):
    """The transfer of a file, over one connection after the other.

    Attributes:
        path: of the file on this machine.
        show: called with a line about the progress at most every `SHOWN_SECONDS`.
        note: a file that keeps `known` for a later process, for this user alone; None keeps it in
            this process only. A download's note stays beside the complete file.
        known: what the transfer resumes from: the ETag of a partial download, or the `Place` of an
            upload; {} starts at the beginning.
        furthest: the last byte that it reached.
        at: when it got there, by the monotonic clock.
        begun: the byte where this process started, and when; None if nothing has moved.
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
        """Resume from this from now on. Raises `DiskError`."""
        self.known = known
        if self.note is None:
            return
        with writing(self.note):
            self.note.unlink(missing_ok=True)
            if known:
                self.note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.note.touch(mode=0o600)  # before it holds a signed address
                self.note.write_text(json.dumps(known), encoding="utf-8")

    def forget(self) -> None:
        """Start at the beginning with the next attempt."""
        self.keep({})

    @abstractmethod
    def attempt(self) -> str:
        """Transfer the file from where the last attempt stopped."""

    def reached(self, place: int, total: int | None) -> None:
        """Note the place that the transfer has reached, in bytes."""
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
    """The download of a file to `path`.

    Attributes:
        ask: requests it.
        copies: how often the file must fit on the disk: 2 for an archive that will be unpacked.
    """

    ask: Ask
    copies: int = 1

    @property
    def part(self) -> Path:
        """The file that holds the bytes until the download is complete."""
        return self.path.with_name(self.path.name + PARTIAL)

    def forget(self) -> None:
        """Remove what was downloaded, so that the next attempt starts at the beginning."""
        self.part.unlink(missing_ok=True)
        super().forget()

    def attempt(self) -> str:
        """Download the whole file, and resume where an earlier attempt stopped.

        Earlier bytes are used only if the storage still has the same file, by its ETag.

        Raises:
            requests.RequestException: if the connection breaks, bytes are missing, or a web page
                came in place of the file. Another attempt resumes, or starts again.
            BadAnswer: if it is an archive that does not contain this file alone.
            DiskError: if the disk is full or cannot be written.
        """
        name = self.path.name
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            address = self._receive()
            zipped = address.endswith(".zip") and not name.endswith(".zip")
            if zipped and zipfile.is_zipfile(self.part):  # Kaggle may always compress a file
                self.keep({})  # first, since the note is about the archive
                _unzip(self.part, name)
            self.part.replace(self.path)
            return ""

    def _receive(self) -> str:
        """Download the rest of the file into its part, and return the path of its address."""
        name, have = self.path.name, 0
        if self.known and self.path.is_file() and not self.part.exists():
            self.path.replace(self.part)  # complete, by a process that was killed later
        # A compressed transfer would hide the size.
        headers = {"Accept-Encoding": "identity"}
        if self.known and self.part.exists() and self.part.stat().st_size > 1:
            # From the last byte, so that a complete file is checked by its ETag too.
            have = self.part.stat().st_size - 1
            headers |= {"Range": f"bytes={have}-", "If-Range": self.known["tag"]}
        with self.ask(headers) as answer:
            answer.raise_for_status()
            told = answer.headers
            if told.get("Content-Type", "").startswith("text/html") and ".htm" not in name:
                raise requests.ConnectionError(f"{name}: got a web page in its place")
            if have and answer.status_code == 206:
                size = re.fullmatch(rf"bytes {have}-\d+/(\d+)", told.get("Content-Range", ""))
                if size is None or told.get("ETag", self.known["tag"]) != self.known["tag"]:
                    self.forget()
                    raise requests.ConnectionError(f"{name}: got a different part")
            else:
                self.forget()  # first, since the earlier bytes are not this file's
                have, tag = 0, told.get("ETag", "")
                size = re.fullmatch(r"(\d+)", told.get("Content-Length", ""))
                if told.get("Content-Encoding", "identity") != "identity":
                    tag, size = "", None  # its bytes are not those of the storage
                # A weak tag does not prove that bytes are equal.
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
                raise requests.ConnectionError(f"{name}: got {have} of {total} bytes")
            return urlsplit(answer.url).path


def _unzip(part: Path, name: str) -> None:
    """Replace an archive by its only member, which must have this name."""
    plain = part.with_name(part.name + ".plain")
    try:
        with zipfile.ZipFile(part) as archive:
            members = archive.namelist()
            if [Path(member).name for member in members] != [name]:
                raise BadAnswer(
                    f"Kaggle sent an archive of {members[:5]}; expected {name} alone.\n"
                    "Look at the file on kaggle.com; try again if it is there."
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
    """The upload of a file.

    Attributes:
        session: without credentials.
        announce: asks Kaggle for the place of an upload.
    """

    session: requests.Session
    announce: Callable[[], Place]

    def attempt(self) -> str:
        """Send the bytes that the storage lacks, and return the upload's token.

        Raises:
            requests.RequestException: if it fails. Another attempt resumes it.
        """
        size, start = self.path.stat().st_size, 0
        if self.known:
            answer = self._put(b"", f"bytes */{size}")
            if answer.status_code in (200, 201):
                return self.known["token"]
            if answer.status_code == 308:
                found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
                start = min(int(found[1]) + 1, size) if found else 0
            elif answer.status_code >= 500 or answer.status_code in (408, 429):
                raise requests.HTTPError("the storage gives no position", response=answer)
            else:
                self.forget()  # as the storage did
        if not self.known:
            self.keep(asdict(self.announce()))
        with _Sent(self, start, size) as file:
            # An empty file object would be sent chunked, without a length.
            part = f"bytes {start}-{size - 1}/{size}" if start else None
            answer = self._put(file if size else b"", part)
        if answer.status_code not in (200, 201):
            raise requests.HTTPError(f"the upload of {self.path.name} failed", response=answer)
        return self.known["token"]

    def _put(self, body: Any, part: str | None) -> requests.Response:
        url, headers = self.known["create_url"], {"Content-Range": part}
        return self.session.put(url, data=body, headers=headers, allow_redirects=False)


class _Sent(io.FileIO):
    """A file that is read from a place on, to be sent."""

    def __init__(self, upload: Upload, start: int, size: int) -> None:
        super().__init__(upload.path)
        self.seek(start)
        self._upload, self._size = upload, size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes. The bytes before them have been sent by now."""
        self._upload.reached(self.tell(), self._size)
        return super().read(size)

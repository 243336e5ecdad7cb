"""Downloads from and uploads to the addresses that Kaggle names: complete files, or none.

Both go on where a connection broke, or a process was killed. Uploads follow Google's resumable
protocol: the storage tells how many bytes it has, and the rest is sent from there.

Every connection of the Kaggle side goes through `Guard`. The official client has no timeouts
(measured: it waits for ever), and follows redirects to any host over plain HTTP.
"""

import base64
import hashlib
import ipaddress
import json
import math
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from deploy.errors import BadAnswer, UsageError
from formats.errors import DiskError, writing

N = TypeVar("N", "Origin", "Place")

CHUNK_BYTES = 1 << 20
# So little is lost where a connection breaks: of a chunk that is not complete nothing is kept.
RECEIVED_BYTES = 1 << 16
SHOWN_SECONDS = 10.0  # between two lines about one transfer
UNPACKED_AT_MOST = 20 * 10**9  # bytes: Kaggle's limit for an output
# A file of more bytes than SUSPECT may have been compressed by this ratio at most: no table of
# numbers compresses as well as that.
SUSPECT, RATIO_AT_MOST = 10**8, 200
PARTIAL = ".relay-part"  # the suffix of an incomplete download; no output may have it
VALID_SECONDS = 6 * 24 * 3600.0  # the storage forgets an upload after a week


def is_loopback(url: str) -> bool:
    """Return whether the address is on this machine.

    >>> is_loopback("http://127.0.0.1:8080/x"), is_loopback("http://localhost.example.com/")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard(HTTPAdapter):
    """Gives each request timeouts, and refuses unsafe addresses.

    Args:
        timeouts: seconds to connect, and between two bytes.
    """

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self.timeouts = timeouts

    def send(  # type: ignore[override]  # the base class names its defaults
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send. Raises `BadAnswer` for an address, or redirect, that is neither https nor local."""
        parts = urlsplit(request.url or "")
        if parts.scheme != "https" and not is_loopback(request.url or ""):
            raise BadAnswer(  # without the rest of a signed address, which is a key
                f"Kaggle's answer points at {parts.scheme}://{parts.hostname}; expected https, or"
                " an address of this machine.\n"
                "Nothing was transferred. Check the proxy settings of this machine and try again."
            )
        authorities = kwargs.get("verify")
        if isinstance(authorities, str) and not Path(authorities).exists():
            raise UsageError(
                f"Nothing was sent: {authorities} is not there.\n"
                "Expected the path of a PEM file in REQUESTS_CA_BUNDLE, or no such variable."
                " Correct or unset it."
            )
        return super().send(
            request, **{**kwargs, "timeout": kwargs.get("timeout") or self.timeouts}
        )


def guarded(session: requests.Session, timeouts: tuple[float, float]) -> requests.Session:
    """Return the session with `Guard` on every address."""
    session.mount("http://", Guard(timeouts))
    session.mount("https://", Guard(timeouts))
    return session


def anonymous(timeouts: tuple[float, float]) -> requests.Session:
    """Return a guarded session without credentials, for signed addresses."""
    session = guarded(requests.Session(), timeouts)
    session.auth = lambda request: request  # otherwise requests would read ~/.netrc
    return session


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

    validator: str = ""
    total: int | None = None
    md5: str = ""

    @classmethod
    def described_by(cls, answer: requests.Response) -> "Origin":
        """Return the file that an answer is about."""
        headers = answer.headers
        if headers.get("Content-Encoding", "identity") != "identity":
            return cls()  # its bytes are not those of the storage
        tag = headers.get("ETag", "")  # a weak one does not tell whether bytes are equal
        validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
        size = re.search(r"\d+$", headers.get("Content-Range") or headers.get("Content-Length", ""))
        md5 = re.search(r"md5=([A-Za-z0-9+/=]+)", headers.get("x-goog-hash", ""))
        if headers.get("x-goog-stored-content-encoding", "identity") != "identity":
            md5 = None  # it is of the compressed file
        return cls(validator, int(size[0]) if size else None, md5[1] if md5 else "")


@dataclass(frozen=True)
class Place:
    """Where Kaggle takes a file: the token that names it then, and the address, which is a key."""

    token: str
    create_url: str


def _write_note(note: Path | None, value: Origin | Place) -> None:
    """Write to a file that this user alone can read. Raises `DiskError`."""
    if note is None:
        return
    with writing(note):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = note.with_name(note.name + PARTIAL)
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)  # before there is a key in it
        part.write_text(json.dumps(asdict(value)), encoding="utf-8")
        part.replace(note)


def _read_note(note: Path | None, kind: type[N], most_seconds: float = math.inf) -> N | None:
    """Return what was written; None without it, or if it is older than so many seconds."""
    try:
        if note is None or time.time() - note.stat().st_mtime > most_seconds:
            return None
        return kind(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


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
        self._note, self.origin = note, _read_note(note, Origin)

    def forget(self) -> None:
        """Remove what came, so that the next attempt begins at the start."""
        self.part.unlink(missing_ok=True)
        self._unnote()

    def _unnote(self) -> None:
        """Use the bytes that came for nothing else."""
        if self._note is not None:
            self._note.unlink(missing_ok=True)
        self.origin = None

    def begin(self, origin: Origin) -> None:
        """Expect the bytes of another file."""
        self.forget()  # first: what came is not of this file
        self.origin = origin
        _write_note(self._note, origin)

    def fetch(self, ask: Ask, progress: Progress) -> None:
        """Download the file, complete or not at all, and go on where an earlier attempt stopped.

        Bytes that came earlier are used only if the storage still has the file that they are of, by
        its ETag or date; otherwise all of it is fetched.

        Raises:
            requests.RequestException: if the connection breaks, bytes are missing or changed, or a
                web page came in place of the file. Another attempt goes on, or begins anew.
            BadAnswer: if it is an archive that does not unpack to this file alone. Nothing stays.
            DiskError: if the disk is full or cannot be written. Nothing stays.
        """
        name = self.path.name
        try:
            with writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                origin, place = self._receive(ask, progress)
                # Google's storage sends the MD5: no defence, but it finds transfer errors.
                if origin.md5 and _md5(self.part) != origin.md5:
                    self.forget()
                    raise requests.ConnectionError(f"{name}: its MD5 is not that of the storage")
                zipped = place.endswith(".zip") and not name.endswith(".zip")
                if zipped and zipfile.is_zipfile(self.part):  # Kaggle may always compress a file
                    self._unnote()  # first: it is of the archive
                    _unzip(self.part, name)
                self.part.replace(self.path)
        except (BadAnswer, DiskError):
            self.forget()
            raise

    def _have(self) -> int:
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

    def _receive(self, ask: Ask, progress: Progress) -> tuple[Origin, str]:
        """Bring the rest of the file into its part; return what it is, and its address's path."""
        name, have, origin = self.path.name, self._have(), self.origin
        # A compressed transfer would hide the announced size.
        headers = {"Accept-Encoding": "identity"}
        if origin is not None and have:
            headers |= {"Range": f"bytes={have}-", "If-Range": origin.validator}
        with self._answer(ask, headers) as answer:
            page = answer.headers.get("Content-Type", "").startswith("text/html")
            if page and self.path.suffix not in (".html", ".htm"):
                raise requests.ConnectionError(f"{name}: got a web page in its place")
            if origin is None or not have or answer.status_code != 206:
                origin = Origin.described_by(answer)
                have = 0
                self.begin(origin)
            elif not _is_rest(answer, origin, have):
                self.forget()
                raise requests.ConnectionError(f"{name}: got another part than was asked for")
            progress.reached(have, origin.total)
            with self.part.open("r+b" if have else "wb") as file:
                file.truncate(have)
                file.seek(have)
                for chunk in answer.iter_content(RECEIVED_BYTES):
                    have += file.write(chunk)
                    file.flush()  # a process that is killed keeps what came
                    progress.reached(have, origin.total)
            if origin.total not in (None, have):
                raise requests.ConnectionError(f"{name}: got {have} of {origin.total} bytes")
            return origin, urlsplit(answer.url).path

    def _answer(self, ask: Ask, headers: Mapping[str, str]) -> requests.Response:
        try:
            answer = ask(headers)
            answer.raise_for_status()
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != 416:
                raise
            self.forget()
            raise requests.ConnectionError("the file is shorter than what came of it") from error
        except ValueError as error:
            if isinstance(error, requests.RequestException):
                raise
            # A redirect may lead to any text, of which urllib makes an error of its own.
            raise requests.exceptions.InvalidURL(str(error)) from error
        return answer


def _is_rest(answer: requests.Response, origin: Origin, have: int) -> bool:
    """Return whether an answer is the rest of the file from this place on."""
    now = Origin.described_by(answer)
    return (
        answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        and now.total == origin.total
        and now.validator in ("", origin.validator)
        and now.md5 in ("", origin.md5)
    )


def _md5(path: Path) -> str:
    """Return the MD5 of a file in Base64."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()


def _unzip(part: Path, name: str) -> None:
    """Replace an archive by its only member, which has this name."""
    plain = part.with_name(part.name + ".plain")
    try:
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
                    f"{name} would unpack from {packed:,} to {size:,} bytes; expected an output's"
                    f" size, and a ratio of {RATIO_AT_MOST} at most.\nLook at it on kaggle.com."
                )
            with archive.open(members[0]) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target, CHUNK_BYTES)
        plain.replace(part)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise requests.ConnectionError(
            f"{name} came as an archive that cannot be read: {error}"
        ) from error
    finally:
        plain.unlink(missing_ok=True)


class Upload:
    """One file on its way to Kaggle.

    Args:
        session: without auth.
        announce: asks Kaggle for the place of an upload.
        note: a file that keeps the place for a later process, for this user alone; None: none does.
    """

    def __init__(
        self,
        path: Path,
        session: requests.Session,
        announce: Callable[[], Place],
        note: Path | None = None,
    ) -> None:
        self._path, self._session, self._announce, self._note = path, session, announce, note
        self._place = _read_note(note, Place, VALID_SECONDS)

    def forget(self) -> bool:
        """Begin anew, at another address, with the next attempt. Returns whether that can help."""
        self._place = None
        if self._note is not None:
            self._note.unlink(missing_ok=True)
        return True

    def send(self, progress: Progress) -> str:
        """Send what the storage lacks of the file, and return the upload's token.

        Raises:
            requests.RequestException: if it fails. It may go on: nothing refers to it yet.
        """
        size, start = self._path.stat().st_size, 0
        if self._place is not None:
            answer = self._put(self._place, b"", f"bytes */{size}")
            if answer.status_code in (200, 201):
                return self._place.token
            if answer.status_code == 308:
                found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
                start = min(int(found[1]) + 1, size) if found else 0
            elif answer.status_code >= 500 or answer.status_code in (408, 429):
                raise requests.HTTPError("the storage does not tell what came", response=answer)
            else:
                self.forget()  # as the storage did
        if self._place is None:
            self._place = self._announce()
            _write_note(self._note, self._place)
        with self._path.open("rb") as file:
            # An empty file object would be sent chunked, without a length.
            body = _Rest(file, start, size, progress) if size else b""
            answer = self._put(
                self._place, body, f"bytes {start}-{size - 1}/{size}" if start else None
            )
        if answer.status_code not in (200, 201):
            raise requests.HTTPError(f"the upload of {self._path.name} failed", response=answer)
        return self._place.token

    def _put(self, place: Place, body: Any, part: str | None) -> requests.Response:
        headers = {"Content-Range": part}
        return self._session.put(
            place.create_url, data=body, headers=headers, allow_redirects=False
        )


class _Rest:
    """The rest of a file, as it is read to be sent."""

    def __init__(self, file: BinaryIO, start: int, size: int, progress: Progress) -> None:
        file.seek(start)
        self._file, self._place, self._size, self._progress = file, start, size, progress

    def __len__(self) -> int:
        return self._size - self._place

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; they have been sent when the next are asked for."""
        self._progress.reached(self._place, self._size)
        data = self._file.read(size)
        self._place += len(data)
        return data

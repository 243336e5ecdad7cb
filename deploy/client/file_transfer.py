"""Downloads from and uploads to the addresses that Kaggle names: complete files, or none.

Every connection of the Kaggle side goes through `Guard`. The official client has no timeouts
(measured: it waits for ever), and follows redirects to any host over plain HTTP.
"""

import base64
import hashlib
import ipaddress
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from deploy.errors import BadAnswer, UsageError, writing

CHUNK_BYTES = 1 << 20
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
            if isinstance(error, requests.RequestException):
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


def save(response: requests.Response, path: Path) -> None:
    """Write the body of a streamed answer to `path`, complete or not at all.

    Raises:
        requests.RequestException: if the connection breaks, bytes are missing or changed, or a web
            page came in place of the file.
        BadAnswer: if it is an archive that does not unpack to this file alone.
        DiskError: if the disk is full or cannot be written.
    """
    response.raise_for_status()
    page = response.headers.get("Content-Type", "").startswith("text/html")
    if page and path.suffix not in (".html", ".htm"):
        raise requests.ConnectionError(f"{path.name}: got a web page in its place")
    part = path.with_name(path.name + PARTIAL)
    announced = response.headers.get("Content-Length", "")
    received = 0
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Google's storage sends the MD5: no defence, but it finds transfer errors.
            digest = hashlib.md5(usedforsecurity=False)
            with part.open("wb") as file:
                for chunk in response.iter_content(CHUNK_BYTES):
                    digest.update(chunk)
                    received += file.write(chunk)
            encoded = response.headers.get("Content-Encoding", "identity") != "identity"
            if announced.isdigit() and not encoded and received != int(announced):
                raise requests.ConnectionError(f"{path.name}: got {received} of {announced} bytes")
            md5 = re.search(r"md5=([A-Za-z0-9+/=]+)", response.headers.get("x-goog-hash", ""))
            if md5 and not encoded and md5[1] != base64.b64encode(digest.digest()).decode():
                raise requests.ConnectionError(f"{path.name}: its MD5 is not that of the storage")
            _unzip_one(response.url, part, path.name)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _unzip_one(url: str, part: Path, name: str) -> None:
    """Replace `part` by its only member if Kaggle sent `name` zipped, which it may always do."""
    zipped = urlsplit(url).path.endswith(".zip") and not name.endswith(".zip")
    if not zipped or not zipfile.is_zipfile(part):
        return
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


def fetch(session: requests.Session, url: str, path: Path) -> None:
    """Download a signed address to `path`. Raises as `save`."""
    # A compressed transfer would hide the announced size.
    headers: Mapping[str, str] = {"Accept-Encoding": "identity"}
    with session.get(url, stream=True, headers=headers) as response:
        save(response, path)


def put(session: requests.Session, url: str, path: Path) -> None:
    """Upload a file to a signed address.

    Raises:
        requests.RequestException: if the upload fails. It may be retried: nothing refers to it yet.
    """
    with path.open("rb") as file:
        # An empty file object would be sent chunked, without a length.
        response = session.put(url, data=file if path.stat().st_size else b"")
    if response.status_code not in (200, 201):
        raise requests.HTTPError(
            f"the upload of {path.name} failed: {response.status_code}", response=response
        )


def _without_key(url: str) -> str:
    """Return scheme and host alone: the rest of a signed address is a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"

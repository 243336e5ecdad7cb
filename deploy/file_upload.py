"""Uploads to the addresses that Kaggle announces: Google's resumable protocol.

The storage tells how many bytes it has, and the rest is sent from there.
"""

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import requests

from deploy.file_transfer import PARTIAL, Progress
from formats.errors import writing

VALID_SECONDS = 6 * 24 * 3600.0  # the storage forgets an upload after a week


@dataclass(frozen=True)
class Upload:
    """An upload that Kaggle announced: its token, and its address, which is a key."""

    token: str
    url: str


def note(path: Path | None, upload: Upload) -> None:
    """Write an upload to a file that this user alone can read. Raises `DiskError`."""
    if path is None:
        return
    with writing(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(path.name + PARTIAL)
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)  # before there is a key in it
        part.write_text(json.dumps(asdict(upload)), encoding="utf-8")
        part.replace(path)


def noted(path: Path | None) -> Upload | None:
    """Return the upload that was written to a file; None without one, or if it is too old."""
    try:
        if path is None or time.time() - path.stat().st_mtime > VALID_SECONDS:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
        return Upload(str(value["token"]), str(value["url"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


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


def received(session: requests.Session, url: str, size: int) -> int | None:
    """Return how many bytes of an upload the storage has; None if it does not know the upload.

    Args:
        size: of the whole file.

    Raises:
        requests.RequestException: without an answer.
    """
    headers = {"Content-Range": f"bytes */{size}"}
    answer = session.put(url, data=b"", headers=headers, allow_redirects=False)
    if answer.status_code in (200, 201):
        return size
    if answer.status_code == 308:
        found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
        return min(int(found[1]) + 1, size) if found else 0
    if answer.status_code < 500 and answer.status_code not in (408, 429):
        return None
    raise requests.HTTPError(f"the upload is not told: {answer.status_code}", response=answer)


def put(
    session: requests.Session,
    url: str,
    path: Path,
    progress: Progress,
    start: int = 0,
) -> None:
    """Upload a file to a signed address, from this byte on.

    Raises:
        requests.RequestException: if the upload fails. It may go on: nothing refers to it yet.
    """
    size = path.stat().st_size
    headers = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
    with path.open("rb") as file:
        # An empty file object would be sent chunked, without a length.
        body = _Rest(file, start, size, progress) if size else b""
        response = session.put(url, data=body, headers=headers, allow_redirects=False)
    if response.status_code not in (200, 201):
        raise requests.HTTPError(
            f"the upload of {path.name} failed: {response.status_code}", response=response
        )

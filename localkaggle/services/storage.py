"""Signed download URLs and resumable uploads, as in Google Cloud Storage."""

import secrets
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from werkzeug.exceptions import BadRequest, NotFound
from werkzeug.http import parse_content_range_header
from werkzeug.wrappers import Response

from localkaggle.services.protocol import FILE, Json, require

# If an upload is interrupted, Google Cloud Storage keeps multiples of this size.
KEPT_BYTES = 256 * 1024

EXPIRED = "<Error><Code>ExpiredToken</Code><Message>Invalid argument.</Message></Error>"


class Storage:
    """Files that can be downloaded with URLs that contain a secret key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._ended: set[str] = set()

    def fresh(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / secrets.token_hex(8)

    def share(self, name: str, path: Path) -> str:
        key = secrets.token_urlsafe(32)
        self._paths[key] = path
        return f"/storage/{key}/{quote(name)}?X-Goog-Signature=local"

    def find(self, key: str) -> Path:
        path = self._paths.get(key)
        if path is None or not path.is_file():
            raise NotFound("Not found")
        if key in self._ended:
            raise BadRequest(response=Response(EXPIRED, 400, mimetype="application/xml"))
        return path

    def expire(self) -> None:
        self._ended = set(self._paths)


@dataclass
class Blob:
    """An upload.

    Attributes:
        size: announced file size in bytes.
        have: number of bytes that are kept if the upload is interrupted.
        lock: held by the request that is writing.
    """

    name: str
    size: int
    path: Path
    done: bool = False
    have: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def progress(self) -> Response:
        sent = {"Range": f"bytes=0-{self.have - 1}"} if self.have and not self.done else {}
        return Response(status=200 if self.done else 308, headers=sent)


class Uploads:
    """`blobs.BlobApiService`."""

    def __init__(self, storage: Storage) -> None:
        self.blobs: dict[str, Blob] = {}
        self._storage = storage

    def StartBlobUpload(self, request: Any, user: str) -> Json:
        return self.announce(request.name, request.content_length)

    def announce(self, name: str, size: int | None) -> Json:
        token = secrets.token_urlsafe(32)
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return {"token": token, "createUrl": f"/upload/{token}"}

    def expire(self) -> None:
        """Discard incomplete uploads, as Google Cloud Storage does after a week."""
        self.blobs = {token: blob for token, blob in self.blobs.items() if blob.done}

    def receive(
        self, token: str, content_range: str | None, length: int, pieces: Iterable[bytes]
    ) -> Response:
        """Write uploaded bytes to disk as they are received, or report how many have been received.

        `content_range` is None if the request contains the whole file of `length` bytes. If
        iterating over `pieces` fails, the chunks before the failure are kept.
        """
        blob = self.blobs.get(token)
        if blob is None:
            raise NotFound("Not found")
        given = parse_content_range_header(content_range)
        with blob.lock:
            if given and given.start is None:
                return blob.progress()
            start = given.start or 0 if given else 0
            fits = start <= blob.have and start + length <= blob.size
            if content_range is not None:  # `stop` is exclusive
                sent = (given.units, given.stop, given.length) if given else None
                fits = fits and sent == ("bytes", start + length, blob.size)
            if not fits:
                raise BadRequest(f"Invalid Content-Range: {content_range}, of {length} bytes")
            blob.have, blob.done, end = start, False, start
            with blob.path.open("r+b" if blob.path.exists() else "wb", buffering=0) as file:
                file.seek(start)
                file.truncate()
                for piece in pieces:
                    file.write(piece)
                    end += len(piece)
                    blob.have = max(start, end - end % KEPT_BYTES)
            blob.have, blob.done = end, end == blob.size
            return blob.progress()

    def complete(self, token: str) -> Blob:
        blob = self.blobs.get(token)
        if blob is None or not blob.done:
            raise BadRequest(f"Blob {token} was never uploaded")
        return blob

    def write(self, content: Any, folder: Path) -> None:
        """Create a folder that contains the uploaded files to which a request refers.

        Raises:
            BadRequest: if a file was not uploaded, is listed twice, or is an archive or folder,
                which this project's client never sends. In these cases, the folder is not created.
        """
        blobs = [self.complete(file.token) for file in content.files or ()]
        names = {blob.name for blob in blobs}
        if len(names) < len(blobs):
            raise BadRequest("Duplicate file name")
        if content.directories or any(name.endswith(".zip") for name in names):
            raise BadRequest("The local Kaggle does not support folders or archives")
        folder.mkdir(parents=True)
        for blob in blobs:
            shutil.copyfile(blob.path, folder / blob.name)

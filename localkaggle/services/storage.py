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
    """Files that can be downloaded with URLs that contain a secret key.

    Args:
        folder: folder for new files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._ended: set[str] = set()

    def fresh(self) -> Path:
        """Return the path of a file that does not exist yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / secrets.token_hex(8)

    def share(self, name: str, path: Path) -> str:
        """Return the URL of a file, relative to the server's URL."""
        key = secrets.token_urlsafe(32)
        self._paths[key] = path
        return f"/storage/{key}/{quote(name)}?X-Goog-Signature=local"

    def find(self, key: str) -> Path:
        """Return the path of the file that has the given key.

        Raises:
            NotFound: if the key or the file does not exist.
            BadRequest: if the URL has expired.
        """
        path = self._paths.get(key)
        if path is None or not path.is_file():
            raise NotFound("Not found")
        if key in self._ended:
            raise BadRequest(response=Response(EXPIRED, 400, mimetype="application/xml"))
        return path

    def expire(self) -> None:
        """Let all URLs that were created so far expire."""
        self._ended = set(self._paths)


@dataclass
class Blob:
    """An upload.

    Attributes:
        name: name of the file.
        size: announced file size in bytes.
        path: path where the uploaded bytes are written.
        done: whether all bytes were written.
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
        """Return a response that says how many bytes have been received so far."""
        sent = {"Range": f"bytes=0-{self.have - 1}"} if self.have and not self.done else {}
        return Response(status=200 if self.done else 308, headers=sent)


class Uploads:
    """`blobs.BlobApiService`."""

    def __init__(self, storage: Storage) -> None:
        self.blobs: dict[str, Blob] = {}
        self._storage = storage

    def StartBlobUpload(self, request: Any, user: str) -> Json:
        """Start an upload."""
        return self.announce(request.name, request.content_length)

    def announce(self, name: str, size: int | None) -> Json:
        """Return the token and the URL of a new upload."""
        token = secrets.token_urlsafe(32)
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return {"token": token, "createUrl": f"/upload/{token}"}

    def expire(self) -> None:
        """Discard incomplete uploads, as Google Cloud Storage does after a week."""
        self.blobs = {token: blob for token, blob in self.blobs.items() if blob.done}

    def receive(
        self, token: str, content_range: str | None, length: int, pieces: Iterable[bytes]
    ) -> Response:
        """Write uploaded bytes to disk as they are received, or report how many bytes have been
        received so far.

        Args:
            token: token of the upload.
            content_range: Content-Range header, or None if the request contains the whole file.
            length: number of bytes in the request.
            pieces: chunks of bytes. If iterating over them fails, the chunks before the failure are
                kept.

        Raises:
            NotFound: if the upload does not exist.
            BadRequest: if the range does not start where the upload stopped.
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
        """Return a completed upload.

        Raises:
            BadRequest: if the upload does not exist or is incomplete.
        """
        blob = self.blobs.get(token)
        if blob is None or not blob.done:
            raise BadRequest(f"Blob {token} was never uploaded")
        return blob

    def write(self, content: Any, folder: Path) -> None:
        """Create a folder that contains the uploaded files to which a request refers.

        Raises:
            BadRequest: if a file was not uploaded, is listed twice, or is an archive or folder,
                which this project's client never sends. The folder is then not created.
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

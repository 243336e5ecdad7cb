"""Storage: files behind signed addresses and uploads, as Google's storage has them for Kaggle."""

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

# Of a request that breaks, Google's storage keeps whole pieces of this many bytes.
KEPT_BYTES = 256 * 1024

EXPIRED = "<Error><Code>ExpiredToken</Code><Message>Invalid argument.</Message></Error>"


class Storage:
    """Files by key. A key is what signs an address: whoever does not have it cannot guess it.

    Args:
        folder: gets new files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._ended: set[str] = set()

    def fresh(self) -> Path:
        """Return a path that nothing uses yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / secrets.token_hex(8)

    def share(self, name: str, path: Path) -> str:
        """Return the address, below that of the server, at which a file can be downloaded."""
        key = secrets.token_urlsafe(32)
        self._paths[key] = path
        return f"/storage/{key}/{quote(name)}?X-Goog-Signature=local"

    def find(self, key: str) -> Path:
        """Return the file behind an address.

        Raises:
            NotFound: without such a key, or file.
            BadRequest: if the address has ended.
        """
        path = self._paths.get(key)
        if path is None or not path.is_file():
            raise NotFound("Not found")
        if key in self._ended:
            raise BadRequest(response=Response(EXPIRED, 400, mimetype="application/xml"))
        return path

    def expire(self) -> None:
        """End all addresses that were given until now."""
        self._ended = set(self._paths)


@dataclass
class Blob:
    """One upload of `size` announced bytes; `done` once all of them are at `path`.

    Attributes:
        have: how many bytes are kept for good.
        lock: is held by the request that writes.
    """

    name: str
    size: int
    path: Path
    done: bool = False
    have: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def progress(self) -> Response:
        """Return the storage's answer to a request that sent a part, or asks how much is there."""
        sent = {"Range": f"bytes=0-{self.have - 1}"} if self.have and not self.done else {}
        return Response(status=200 if self.done else 308, headers=sent)


class Uploads:
    """`blobs.BlobApiService`."""

    def __init__(self, storage: Storage) -> None:
        self.blobs: dict[str, Blob] = {}
        self._storage = storage

    def StartBlobUpload(self, request: Any, user: str) -> Json:
        """Announce an upload."""
        return self.announce(request.name, request.content_length)

    def announce(self, name: str, size: int | None) -> Json:
        """Return the token and the address of a new upload."""
        token = secrets.token_urlsafe(32)
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return {"token": token, "createUrl": f"/upload/{token}"}

    def expire(self) -> None:
        """Forget all uploads that are not complete, as the storage does after a week."""
        self.blobs = {token: blob for token, blob in self.blobs.items() if blob.done}

    def receive(
        self, token: str, content_range: str | None, length: int, pieces: Iterable[bytes]
    ) -> Response:
        """Store bytes of an upload as they come, or answer how many there are.

        Args:
            token: of the upload.
            content_range: the header; None: the whole file is sent.
            length: of what is sent now.
            pieces: of it. One that raises ends the request, and what came before is kept.

        Raises:
            NotFound: without such an upload.
            BadRequest: if this is no part of it that can come next.
        """
        blob = self.blobs.get(token)
        if blob is None:
            raise NotFound("Not found")
        told = parse_content_range_header(content_range)
        with blob.lock:
            if told and told.start is None:
                return blob.progress()
            start = told.start or 0 if told else 0
            fits = start <= blob.have and start + length <= blob.size
            if content_range is not None:  # `stop` is the place behind the last byte
                sent = (told.units, told.stop, told.length) if told else None
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
        """Return an upload of which all bytes arrived.

        Raises:
            BadRequest: if there is none.
        """
        blob = self.blobs.get(token)
        if blob is None or not blob.done:
            raise BadRequest(f"Blob {token} was never uploaded")
        return blob

    def write(self, content: Any, folder: Path) -> None:
        """Make a folder of the files that a request names.

        Raises:
            BadRequest: if something was not uploaded, is there twice, or is an archive or a
                folder, which nobody sends here. Then there is no such folder.
        """
        blobs = [self.complete(file.token) for file in content.files or ()]
        names = {blob.name for blob in blobs}
        if len(names) < len(blobs):
            raise BadRequest("Duplicate file name")
        if content.directories or any(name.endswith(".zip") for name in names):
            raise BadRequest("This Kaggle takes neither folders nor archives")
        folder.mkdir(parents=True)
        for blob in blobs:
            shutil.copyfile(blob.path, folder / blob.name)

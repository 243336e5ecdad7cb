"""Uploads: the service that announces uploads, receives their bytes, and makes folders of them."""

import re
import secrets
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kagglesdk.blobs.types.blob_api_service as types

from localkaggle.services.protocol import BASE, FILE, ApiError, make, require
from localkaggle.services.storage import Storage

# Of a request that breaks, Google's storage keeps whole pieces of this many bytes.
KEPT_BYTES = 256 * 1024


@dataclass
class Blob:
    """One upload of `size` announced bytes; `done` once all of them are at `path`.

    Attributes:
        have: how many bytes are kept for good.
        turn: the number of the request that may write; a later one ends those before it.
    """

    name: str
    size: int
    path: Path
    done: bool = False
    have: int = 0
    turn: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """`blobs.BlobApiService`."""

    def __init__(self, storage: Storage) -> None:
        self.blobs: dict[str, Blob] = {}
        self._storage = storage

    def StartBlobUpload(self, request: Any, user: str) -> Any:
        """Announce an upload."""
        return self.announce(types.ApiStartBlobUploadResponse, request.name, request.content_length)

    def announce(self, kind: type, name: str, size: int | None) -> Any:
        """Return an answer of this class, with the token and the address of a new upload."""
        if (size or 0) < 0:
            raise ApiError(400, f"Invalid content length: {size}")
        token = secrets.token_urlsafe(32)
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return make(kind, token=token, create_url=f"{BASE}/upload/{token}")

    def expire(self) -> None:
        """Forget all uploads that are not complete, as the storage does after a week."""
        self.blobs = {token: blob for token, blob in self.blobs.items() if blob.done}

    def receive(
        self, token: str, content_range: str | None, length: int, pieces: Iterable[bytes]
    ) -> tuple[int, dict[str, str]]:
        """Store bytes of an upload as they come, or answer how many there are.

        Args:
            length: of what is sent now.
            pieces: of it. One that raises ends the request, and what came before is kept.

        Returns:
            The HTTP code and headers.
        """
        blob = self.blobs.get(token)
        if blob is None:
            return 404, {}
        with blob.lock:
            blob.turn += 1
            turn = blob.turn
            if content_range and content_range.startswith("bytes */"):
                if blob.done:
                    return 200, {}
                return 308, {"Range": f"bytes=0-{blob.have - 1}"} if blob.have else {}
            start = 0
            if content_range:
                found = re.fullmatch(r"bytes ([0-9]+)-([0-9]+)/([0-9]+)", content_range)
                if not found:
                    return 400, {}
                start, last, total = map(int, found.groups())
                if start > blob.have or last != start + length - 1 or total != blob.size:
                    return 400, {}
            if start + length > blob.size:
                return 400, {}
            blob.have, blob.done = start, False
        end = start
        with blob.path.open("r+b" if blob.path.exists() else "wb", buffering=0) as file:
            file.seek(start)
            file.truncate()
            for piece in pieces:
                with blob.lock:
                    if blob.turn != turn:
                        raise ConnectionAbortedError("another request goes on with this upload")
                    file.write(piece)
                    end += len(piece)
                    blob.have = max(start, end - end % KEPT_BYTES)
        with blob.lock:
            blob.have, blob.done = end, end == blob.size
        return (200, {}) if blob.done else (308, {"Range": f"bytes=0-{end - 1}"})

    def complete(self, token: str) -> Blob:
        """Return an upload of which all bytes arrived.

        Raises:
            ApiError: 400 if there is none.
        """
        blob = self.blobs.get(token)
        if blob is None or not blob.done:
            raise ApiError(400, f"Blob {token} was never uploaded")
        return blob

    def write(self, content: Any, folder: Path) -> None:
        """Make a folder of the files that a request names.

        Raises:
            ApiError: 400 if something was not uploaded, is there twice, or is an archive or a
                folder, which nobody sends here. Then there is no such folder.
        """
        blobs = [self.complete(file.token) for file in content.files or ()]
        names = {blob.name for blob in blobs}
        if len(names) < len(blobs):
            raise ApiError(400, "Duplicate file name")
        if content.directories or any(name.endswith(".zip") for name in names):
            raise ApiError(400, "This Kaggle takes neither folders nor archives")
        folder.mkdir(parents=True)
        for blob in blobs:
            shutil.copyfile(blob.path, folder / blob.name)

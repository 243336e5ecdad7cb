"""Uploads: the service that announces uploads and receives their bytes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kagglesdk.blobs.types.blob_api_service as types

from localkaggle.services.protocol import BASE, FILE, ApiError, make, require
from localkaggle.services.storage import Storage


@dataclass
class Blob:
    """One upload of `size` announced bytes; `done` once all of them are at `path`."""

    name: str
    size: int
    path: Path
    done: bool = False


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
        token = f"blob-{len(self.blobs) + 1:06d}"
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return make(kind, token=token, create_url=f"{BASE}/upload/{token}")

    def receive(
        self, token: str, content_range: str | None, body: bytes
    ) -> tuple[int, dict[str, str]]:
        """Store bytes of an upload, or answer how many there are.

        Returns:
            The HTTP code and headers.
        """
        blob = self.blobs.get(token)
        if blob is None:
            return 404, {}
        have = blob.path.stat().st_size if blob.path.exists() else 0
        if content_range and content_range.startswith("bytes */"):
            if blob.done:
                return 200, {}
            return 308, {"Range": f"bytes=0-{have - 1}"} if have else {}
        start = 0
        if content_range:
            found = re.fullmatch(r"bytes ([0-9]+)-([0-9]+)/([0-9]+)", content_range)
            if not found:
                return 400, {}
            start, last, total = map(int, found.groups())
            if start > have or last != start + len(body) - 1 or total != blob.size:
                return 400, {}
        end = start + len(body)
        if end > blob.size:
            return 400, {}
        with blob.path.open("r+b" if blob.path.exists() else "wb") as file:
            file.seek(start)
            file.truncate()
            file.write(body)
        blob.done = end == blob.size
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

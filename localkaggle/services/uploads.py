"""Uploads: the service that announces uploads, receives their bytes, and makes folders of them."""

import re
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import kagglesdk.blobs.types.blob_api_service as types

from localkaggle.services.protocol import BASE, FILE, ApiError, make, require
from localkaggle.services.storage import Storage

UNPACKED_AT_MOST = 20 * 10**9  # bytes
PATH_AT_MOST = 1000  # bytes, to leave room for the folders above


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

    def write(self, content: Any, folder: Path) -> None:
        """Make a folder of what a request names: `files` and, in folders, `directories`.

        Raises:
            ApiError: 400 if something was not uploaded, cannot be unpacked, or is there twice. Then
                there is no such folder.
        """
        folder.mkdir(parents=True)
        try:
            self._fill(folder, content)
        except BaseException as error:
            shutil.rmtree(folder)
            if isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)):
                raise ApiError(400, "A file and a folder have the same name") from error
            raise

    def _fill(self, folder: Path, content: Any) -> None:
        for file in content.files or ():
            blob = self.complete(file.token)
            if blob.name.endswith(".zip"):
                # As Kaggle does. Without its ending the name is a new one.
                target = folder / require(FILE, blob.name.removesuffix(".zip"), "file name")
                if target.exists():
                    raise ApiError(400, f"Duplicate name: {target.name}")
                _unpack(blob.path, target)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                if (folder / blob.name).exists():
                    raise ApiError(400, f"Duplicate file name: {blob.name}")
                shutil.copyfile(blob.path, folder / blob.name)
        for directory in content.directories or ():
            self._fill(folder / require(FILE, directory.name, "folder name"), directory)


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as file:
            _extract(file, folder)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        raise ApiError(400, f"The archive cannot be read: {error}") from error


def _extract(archive: zipfile.ZipFile, folder: Path) -> None:
    if sum(info.file_size for info in archive.infolist()) > UNPACKED_AT_MOST:
        raise ApiError(400, "The archive is too large")
    for info in archive.infolist():
        if info.is_dir():
            continue
        if len(info.filename.encode(errors="replace")) > PATH_AT_MOST:
            raise ApiError(400, f"Invalid name in the archive: {info.filename[:80]!r}")
        parts = PurePosixPath(info.filename).parts
        target = folder.joinpath(*(require(FILE, part, "name in the archive") for part in parts))
        if target.is_file():
            raise ApiError(400, f"Duplicate name in the archive: {info.filename[:80]!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)

"""Datasets: the services that take uploads and make versions of them. A version is current only
once it is ready.
"""

import os
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import kagglesdk.blobs.types.blob_api_service as blob_types
import kagglesdk.datasets.types.dataset_api_service as types
from kagglesdk.datasets.types.dataset_enums import DatabundleVersionStatus
from kagglesdk.datasets.types.dataset_types import DatasetInfo, SettingsLicense

from localkaggle.services.protocol import FILE, SLUG, Fault, Redirect, Storage, page, require

STAGES = (
    "NOT_YET_PERSISTED",
    "BLOBS_RECEIVED",
    "BLOBS_DECOMPRESSED",
    "BLOBS_COPIED_TO_SDS",
    "INDIVIDUAL_BLOBS_COMPRESSED",
    "READY",
)
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}")
UNPACKED_AT_MOST = 20 * 10**9
PATH_AT_MOST = 1000  # bytes: what lies above it has to fit, too


@dataclass
class Blob:
    """An upload: `size` bytes are announced."""

    name: str
    size: int
    path: Path
    done: bool = False


@dataclass
class DatasetVersion:
    """One version: its files lie in `folder`; it is ready `ready_seconds` after `made` (monotonic)."""

    folder: Path
    notes: str
    made: float
    ready_seconds: float

    def status(self) -> str:
        """Return how far the processing is."""
        share = (time.monotonic() - self.made) / max(self.ready_seconds, 1e-9)
        return STAGES[min(int(share * (len(STAGES) - 1)), len(STAGES) - 1)]

    def files(self) -> list[str]:
        """Return the names of its files."""
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        )


@dataclass
class Dataset:
    """A dataset and its versions, oldest first."""

    id: int
    owner: str
    slug: str
    title: str
    license: str
    is_private: bool
    versions: list[DatasetVersion] = field(default_factory=list)

    def current(self) -> int:
        """Return the number of the newest version that is ready; 0 before the first is."""
        ready = [
            number for number, version in enumerate(self.versions, 1) if version.status() == "READY"
        ]
        return ready[-1] if ready else 0


def placed(text: str) -> tuple[str, Path]:
    """Return handle and folder of a dataset that is there from the beginning, from OWNER/SLUG=DIR.

    >>> placed("ann/weights=.")
    ('ann/weights', PosixPath('.'))

    Raises:
        ValueError: if it has another form, or there is no such folder; with what to write.
    """
    handle, _, folder = text.partition("=")
    owner, _, slug = handle.partition("/")
    if not OWNER.fullmatch(owner) or not SLUG.fullmatch(slug) or not folder:
        raise ValueError(f"{text[:200]!r}: expected OWNER/SLUG=DIR, as ann/weights=data/weights")
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        raise ValueError(
            f"{text[:200]!r}: there is no folder {folder[:200]!r}; expected one with the dataset's files"
        )
    return handle, Path(folder)


class Datasets:
    """`datasets.DatasetApiService` and `blobs.BlobApiService`.

    Args:
        storage: of the server. folder: gets one folder a version.
        ready_seconds: how long a version is processed.
        address: gives the address of an upload: token → url.
        published: {owner/slug: folder}, of others; they are ready, and mounted from where they lie.
    """

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        ready_seconds: float,
        address: Callable[[str], str],
        published: Mapping[str, Path],
    ) -> None:
        self.datasets: dict[str, Dataset] = {}
        for number, (handle, files) in enumerate(published.items()):
            owner, _, slug = handle.partition("/")
            version = DatasetVersion(
                files.resolve(), "", -1.0, 0.0
            )  # made before this process began
            self.datasets[handle] = Dataset(
                number + 4000, owner, slug, slug, "unknown", False, [version]
            )
        self.blobs: dict[str, Blob] = {}
        self._storage, self._folder, self._ready_seconds, self._address = (
            storage,
            folder,
            ready_seconds,
            address,
        )

    # Uploads

    def StartBlobUpload(self, request: Any, user: str) -> Any:
        """Announce an upload."""
        answer = blob_types.ApiStartBlobUploadResponse()
        answer.token = self.announce(request.name, request.content_length)
        answer.create_url = self._address(answer.token)
        return answer

    def announce(self, name: str, size: int) -> str:
        """Return the token of a new upload."""
        if (size or 0) < 0:
            raise Fault(400, f"Invalid content length: {size}")
        token = f"blob-{len(self.blobs) + 1:06d}"
        self.blobs[token] = Blob(require(FILE, name, "file name"), size or 0, self._storage.fresh())
        return token

    def receive(
        self, token: str, content_range: str | None, body: bytes
    ) -> tuple[int, dict[str, str]]:
        """Take bytes of an upload, or a question how far it is; return the HTTP code and headers."""
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
        if start + len(body) > blob.size:
            return 400, {}
        with blob.path.open("r+b" if blob.path.exists() else "wb") as file:
            file.seek(start)
            file.truncate()
            file.write(body)
        blob.done = start + len(body) == blob.size
        return (200, {}) if blob.done else (308, {"Range": f"bytes=0-{start + len(body) - 1}"})

    # Datasets

    def CreateDataset(self, request: Any, user: str) -> Any:
        """Make a dataset with its first version."""
        answer = types.ApiCreateDatasetResponse()
        owner = request.owner_slug or user
        if owner != user:
            raise Fault(403, "Permission 'datasets.create' was denied")
        handle = f"{owner}/{require(SLUG, request.slug, 'slug')}"
        if handle in self.datasets:
            answer.status, answer.error = (
                "error",
                f'The requested title "{request.title}" is already in use by a dataset.',
            )
            return answer
        if not 6 <= len(request.title or "") <= 50:
            answer.status, answer.error = (
                "error",
                "The dataset title must be between 6 and 50 characters",
            )
            return answer
        dataset = Dataset(
            len(self.datasets) + 5000,
            owner,
            request.slug,
            request.title,
            request.license_name,
            bool(request.is_private),
        )
        self._add(
            dataset, request.files, request.directories, request.description or "Initial release"
        )
        self.datasets[handle] = dataset
        return _accepted(answer, handle)

    def CreateDatasetVersion(self, request: Any, user: str) -> Any:
        """Add a version. Files are not inherited from the one before."""
        dataset = self._mine(request, user)
        if dataset.current() == 0:
            raise Fault(403, "The dataset is still being processed")
        self._add(
            dataset, request.body.files, request.body.directories, request.body.version_notes or ""
        )
        return _accepted(types.ApiCreateDatasetResponse(), f"{dataset.owner}/{dataset.slug}")

    def GetDatasetStatus(self, request: Any, user: str) -> Any:
        """Tell how far the newest version is."""
        answer = types.ApiGetDatasetStatusResponse()
        answer.status = DatabundleVersionStatus[self._mine(request, user).versions[-1].status()]
        return answer

    def GetDataset(self, request: Any, user: str) -> Any:
        """Describe a dataset."""
        dataset = self._mine(request, user)
        answer = types.ApiDataset()
        answer.ref, answer.id, answer.title = (
            f"{dataset.owner}/{dataset.slug}",
            dataset.id,
            dataset.title,
        )
        answer.is_private, answer.owner_ref, answer.license_name = (
            dataset.is_private,
            dataset.owner,
            dataset.license,
        )
        answer.current_version_number = dataset.current()
        answer.versions = []
        for number, version in enumerate(dataset.versions[: dataset.current()], 1):
            item = types.ApiDatasetVersion()
            item.version_number, item.version_notes, item.status = number, version.notes, "Ready"
            answer.versions.append(item)
        return answer

    def GetDatasetMetadata(self, request: Any, user: str) -> Any:
        """Return title, licence and the rest of a dataset's settings."""
        dataset = self._mine(request, user)
        answer, info, licence = (
            types.ApiGetDatasetMetadataResponse(),
            DatasetInfo(),
            SettingsLicense(),
        )
        licence.name = dataset.license or "unknown"
        info.dataset_id, info.dataset_slug, info.owner_user = (
            dataset.id,
            dataset.slug,
            dataset.owner,
        )
        info.title, info.licenses, info.is_private = dataset.title, [licence], dataset.is_private
        answer.info = info
        return answer

    def ListDatasetFiles(self, request: Any, user: str) -> Any:
        """List a page of a version's files."""
        version = self._version(self._mine(request, user), request.dataset_version_number)
        names, token = page(version.files(), request.page_token or "", request.page_size)
        answer = types.ApiListDatasetFilesResponse()
        answer.dataset_files = []
        for name in names:
            file = types.ApiDatasetFile()
            file.name, file.total_bytes = name, (version.folder / name).stat().st_size
            file.creation_date = datetime(2026, 1, 1)
            answer.dataset_files.append(file)
        answer.next_page_token = token or None
        return answer

    def DownloadDataset(self, request: Any, user: str) -> Any:
        """Lead to one file of a version, or to all of it as a zip."""
        version = self._version(self._mine(request, user), request.dataset_version_number)
        if request.file_name:
            if request.file_name not in version.files():
                raise Fault(404, "Not found")
            raise Redirect(
                self._storage.share(
                    request.file_name.split("/")[-1], version.folder / request.file_name
                )
            )
        archive = self._storage.fresh()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for name in version.files():
                file.write(version.folder / name, name)
        raise Redirect(self._storage.share("archive.zip", archive))

    def mounted(self, handle: str) -> Path | None:
        """Return the folder of the current version, or None."""
        dataset = self.datasets.get("/".join(handle.split("/")[:2]))
        number = dataset.current() if dataset else 0
        return dataset.versions[number - 1].folder if dataset and number else None

    def _add(self, dataset: Dataset, files: Any, directories: Any, notes: str) -> None:
        folder = self._folder / f"{dataset.owner}--{dataset.slug}--v{len(dataset.versions) + 1}"
        folder.mkdir(parents=True)
        try:
            self._take(folder, files or (), directories or ())
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            shutil.rmtree(folder)
            raise Fault(400, "A file and a folder have the same name") from error
        except BaseException:
            shutil.rmtree(folder)
            raise
        dataset.versions.append(
            DatasetVersion(folder, notes, time.monotonic(), self._ready_seconds)
        )

    def _take(self, folder: Path, files: Any, directories: Any) -> None:
        for file in files:
            blob = self.blobs.get(file.token)
            if blob is None or not blob.done:
                raise Fault(400, f"Blob {file.token} was never uploaded")
            if blob.name.endswith(".zip"):
                # As Kaggle does; the name without its ending is a new name.
                place = folder / require(FILE, blob.name.removesuffix(".zip"), "file name")
                if place.exists():
                    raise Fault(400, f"Duplicate name: {place.name}")
                _unpack(blob.path, place)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                if (folder / blob.name).exists():
                    raise Fault(400, f"Duplicate file name: {blob.name}")
                shutil.copyfile(blob.path, folder / blob.name)
        for directory in directories:
            self._take(
                folder / require(FILE, directory.name, "folder name"),
                directory.files or (),
                directory.directories or (),
            )

    def _mine(self, request: Any, user: str) -> Dataset:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or dataset.owner != user:
            raise Fault(403, "Permission 'datasets.get' was denied")
        return dataset

    def _version(self, dataset: Dataset, number: int | None) -> DatasetVersion:
        wanted = number or dataset.current()
        if not 1 <= wanted <= dataset.current():
            raise Fault(404, "Not found")
        return dataset.versions[wanted - 1]


def _accepted(answer: Any, handle: str) -> Any:
    answer.status, answer.ref, answer.url = (
        "ok",
        f"/{handle}",
        f"https://www.kaggle.com/datasets/{handle}",
    )
    return answer


def _unpack(archive: Path, folder: Path) -> None:
    try:
        _extract(archive, folder)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise Fault(400, f"The archive cannot be read: {error}") from error


def _extract(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        if sum(info.file_size for info in file.infolist()) > UNPACKED_AT_MOST:
            raise Fault(400, "The archive is too large")
        for info in file.infolist():
            parts = PurePosixPath(info.filename).parts
            if info.is_dir():
                continue
            if len(info.filename.encode(errors="replace")) > PATH_AT_MOST:
                raise Fault(400, f"Invalid name in the archive: {info.filename[:80]!r}")
            target = folder.joinpath(
                *(require(FILE, part, "name in the archive") for part in parts)
            )
            if target.is_file():
                raise Fault(400, f"Duplicate name in the archive: {info.filename[:80]!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open(info) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)

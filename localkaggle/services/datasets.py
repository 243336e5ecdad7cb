"""Datasets: the service that makes versions of uploads. A version is current only when ready."""

import os
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import kagglesdk.datasets.types.dataset_api_service as types
from kagglesdk.datasets.types.dataset_enums import DatabundleVersionStatus
from kagglesdk.datasets.types.dataset_types import DatasetInfo, SettingsLicense

from localkaggle.services.protocol import FILE, SLUG, ApiError, make, require
from localkaggle.services.storage import Redirect, Storage, file_names, list_files
from localkaggle.services.uploads import Uploads

STAGES = (
    "NOT_YET_PERSISTED",
    "BLOBS_RECEIVED",
    "BLOBS_DECOMPRESSED",
    "BLOBS_COPIED_TO_SDS",
    "INDIVIDUAL_BLOBS_COMPRESSED",
    "READY",
)
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}")
SOURCE = re.compile(r"([^/]+/[^/]+)(?:/([1-9][0-9]{0,8}))?")  # a dataset, or a version of one
UNPACKED_AT_MOST = 20 * 10**9  # bytes
PATH_AT_MOST = 1000  # bytes, to leave room for the folders above


@dataclass
class DatasetVersion:
    """One version.

    Attributes:
        folder: holds its files.
        notes: what the user wrote about it.
        made: when it was made, in seconds of `time.monotonic`.
        ready_seconds: how long Kaggle processes it.
    """

    folder: Path
    notes: str
    made: float
    ready_seconds: float

    def status(self) -> str:
        """Return the stage of the processing."""
        share = (time.monotonic() - self.made) / max(self.ready_seconds, 1e-9)
        return STAGES[min(int(share * (len(STAGES) - 1)), len(STAGES) - 1)]


@dataclass
class Dataset:
    """A dataset and its versions, oldest first.

    Attributes:
        is_folder: it is a folder that somebody gave, which stands for whatever version is asked
            for.
    """

    id: int
    owner: str
    slug: str
    title: str
    license: str
    is_private: bool
    versions: list[DatasetVersion] = field(default_factory=list)
    is_folder: bool = False

    @property
    def handle(self) -> str:
        """The owner and the slug."""
        return f"{self.owner}/{self.slug}"

    def current(self) -> int:
        """Return the number of the newest ready version, or 0 if none is ready."""
        ready = [
            number for number, version in enumerate(self.versions, 1) if version.status() == "READY"
        ]
        return ready[-1] if ready else 0

    def files(self, number: int) -> Path | None:
        """Return the folder of a ready version, 0 for the current one; None if it has none."""
        number = 1 if self.is_folder else number or self.current()
        return self.versions[number - 1].folder if 1 <= number <= self.current() else None


def parse_published(text: str) -> tuple[str, Path]:
    """Return handle and folder of a published dataset from OWNER/SLUG=DIR.

    >>> parse_published("ann/weights=.")
    ('ann/weights', PosixPath('.'))

    Raises:
        ValueError: if the form is wrong or the folder is missing; says what to write.
    """
    handle, _, folder = text.partition("=")
    owner, _, slug = handle.partition("/")
    if not OWNER.fullmatch(owner) or not SLUG.fullmatch(slug) or not folder:
        raise ValueError(f"{text[:200]!r}: expected OWNER/SLUG=DIR, as ann/weights=data/weights")
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        raise ValueError(
            f"{text[:200]!r}: there is no folder {folder[:200]!r};"
            " expected one with the dataset's files"
        )
    return handle, Path(folder)


class Datasets:
    """`datasets.DatasetApiService`.

    Args:
        storage: of the server.
        folder: gets one folder per version.
        uploads: the files that new versions are made of.
        ready_seconds: how long a version is processed.
        published: {owner/slug: folder} of other users; ready, and mounted from these folders.
    """

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        uploads: Uploads,
        ready_seconds: float,
        published: Mapping[str, Path],
    ) -> None:
        self.datasets: dict[str, Dataset] = {}
        for number, (handle, files) in enumerate(published.items(), 4000):
            owner, _, slug = handle.partition("/")
            version = DatasetVersion(files.resolve(), "", -1.0, 0.0)  # ready from the start
            self.datasets[handle] = Dataset(
                number, owner, slug, slug, "unknown", False, [version], is_folder=True
            )
        self._storage, self._folder = storage, folder
        self._uploads, self._ready_seconds = uploads, ready_seconds

    # The calls of the protocol

    def CreateDataset(self, request: Any, user: str) -> Any:
        """Make a dataset with its first version."""
        if (request.owner_slug or user) != user:
            raise ApiError(403, "Permission 'datasets.create' was denied")
        handle = f"{user}/{require(SLUG, request.slug, 'slug')}"
        error = ""
        if handle in self.datasets:
            error = f'The requested title "{request.title}" is already in use by a dataset.'
        elif not 6 <= len(request.title or "") <= 50:
            error = "The dataset title must be between 6 and 50 characters"
        if error:
            return make(types.ApiCreateDatasetResponse, status="error", error=error)
        dataset = Dataset(
            len(self.datasets) + 5000,
            user,
            request.slug,
            request.title,
            request.license_name,
            bool(request.is_private),
        )
        self._add_version(dataset, request, request.description or "Initial release")
        self.datasets[handle] = dataset
        return _created(dataset)

    def CreateDatasetVersion(self, request: Any, user: str) -> Any:
        """Add a version. It inherits no files from the one before."""
        dataset = self._find(request, user)
        if dataset.owner != user:
            raise ApiError(403, "Permission 'datasets.update' was denied")
        if dataset.current() == 0:
            raise ApiError(403, "The dataset is still being processed")
        self._add_version(dataset, request.body, request.body.version_notes or "")
        return _created(dataset)

    def GetDatasetStatus(self, request: Any, user: str) -> Any:
        """Return the stage of the newest version."""
        status = self._find(request, user).versions[-1].status()
        return make(types.ApiGetDatasetStatusResponse, status=DatabundleVersionStatus[status])

    def GetDataset(self, request: Any, user: str) -> Any:
        """Describe a dataset and its versions up to the current one."""
        dataset = self._find(request, user)
        return make(
            types.ApiDataset,
            ref=dataset.handle,
            id=dataset.id,
            title=dataset.title,
            is_private=dataset.is_private,
            owner_ref=dataset.owner,
            license_name=dataset.license,
            current_version_number=dataset.current(),
            versions=[
                make(
                    types.ApiDatasetVersion,
                    version_number=number,
                    version_notes=version.notes,
                    status="Ready",
                )
                for number, version in enumerate(dataset.versions[: dataset.current()], 1)
            ],
        )

    def GetDatasetMetadata(self, request: Any, user: str) -> Any:
        """Return a dataset's settings, such as title and licence."""
        dataset = self._find(request, user)
        info = make(
            DatasetInfo,
            dataset_id=dataset.id,
            dataset_slug=dataset.slug,
            owner_user=dataset.owner,
            title=dataset.title,
            licenses=[make(SettingsLicense, name=dataset.license or "unknown")],
            is_private=dataset.is_private,
        )
        return make(types.ApiGetDatasetMetadataResponse, info=info)

    def ListDatasetFiles(self, request: Any, user: str) -> Any:
        """List a page of a version's files."""
        folder = self._version_folder(request, user)
        files, token = list_files(folder, types.ApiDatasetFile, request)
        return make(types.ApiListDatasetFilesResponse, dataset_files=files, next_page_token=token)

    def DownloadDataset(self, request: Any, user: str) -> Any:
        """Redirect to one file of a version, or to a zip of all of them."""
        folder, name = self._version_folder(request, user), request.file_name
        names = file_names(folder)
        if name:
            if name not in names:
                raise ApiError(404, "Not found")
            raise Redirect(self._storage.share(name.split("/")[-1], folder / name))
        archive = self._storage.fresh()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for name in names:
                file.write(folder / name, name)
        raise Redirect(self._storage.share("archive.zip", archive))

    # What the rest of the server needs

    def mounted(self, source: str) -> Path | None:
        """Return the folder of owner/slug, or of owner/slug/3; None if there is no such version."""
        match = SOURCE.fullmatch(source)
        dataset = self.datasets.get(match[1]) if match else None
        return dataset.files(int(match[2] or 0)) if match and dataset else None

    def _find(self, request: Any, user: str) -> Dataset:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or (dataset.owner != user and dataset.is_private):
            raise ApiError(403, "Permission 'datasets.get' was denied")
        return dataset

    def _version_folder(self, request: Any, user: str) -> Path:
        folder = self._find(request, user).files(request.dataset_version_number or 0)
        if folder is None:
            raise ApiError(404, "Not found")
        return folder

    def _add_version(self, dataset: Dataset, content: Any, notes: str) -> None:
        folder = self._folder / f"{dataset.owner}--{dataset.slug}--v{len(dataset.versions) + 1}"
        folder.mkdir(parents=True)
        try:
            self._fill(folder, content)
        except BaseException as error:
            shutil.rmtree(folder)
            if isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)):
                raise ApiError(400, "A file and a folder have the same name") from error
            raise
        dataset.versions.append(
            DatasetVersion(folder, notes, time.monotonic(), self._ready_seconds)
        )

    def _fill(self, folder: Path, content: Any) -> None:
        """Write the `files` and, in folders, the `directories` that a request names."""
        for file in content.files or ():
            blob = self._uploads.complete(file.token)
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


def _created(dataset: Dataset) -> Any:
    return make(
        types.ApiCreateDatasetResponse,
        status="ok",
        ref=f"/{dataset.handle}",
        url=f"https://www.kaggle.com/datasets/{dataset.handle}",
    )


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

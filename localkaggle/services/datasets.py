"""Datasets: the service that makes versions of uploads. A version is current only when ready."""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kagglesdk.datasets.types.dataset_api_service as types
from kagglesdk.datasets.types.dataset_enums import DatabundleVersionStatus, DatasetSelectionGroup

from localkaggle.facts import Facts
from localkaggle.services.protocol import SLUG, ApiError, make, missing, page, require
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
MINE = DatasetSelectionGroup.DATASET_SELECTION_GROUP_MY


@dataclass
class DatasetVersion:
    """One version.

    Attributes:
        folder: holds its files.
        notes: what the user wrote about it.
        made: when it was made, in seconds of `time.time`.
        ready_seconds: how long Kaggle processes it.
        mount_seconds: how long it is not mounted although it is READY.
    """

    folder: Path
    notes: str
    made: float
    ready_seconds: float
    mount_seconds: float = 0.0

    def is_mounted(self) -> bool:
        """Return whether a session that starts now sees it."""
        return time.time() >= self.made + self.ready_seconds + self.mount_seconds

    def status(self) -> str:
        """Return the stage of the processing."""
        share = (time.time() - self.made) / max(self.ready_seconds, 1e-9)
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

    def mounted(self, number: int) -> Path | None:
        """Return the folder that a session sees of a version, 0 for the newest; None for none."""
        shown = [n for n in range(1, self.current() + 1) if self.versions[n - 1].is_mounted()]
        wanted = number if number and not self.is_folder else max(shown, default=0)
        return self.files(wanted) if wanted in shown else None


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
        facts: how it behaves.
    """

    KEPT = ("datasets", "_made", "_last_id")

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        *,
        uploads: Uploads,
        ready_seconds: float,
        facts: Facts,
    ) -> None:
        self.datasets: dict[str, Dataset] = {}
        self._last_id = 4999
        # {handle: versions ever made}, since a deleted dataset can be made again.
        self._made = Counter[str]()
        self._storage, self._folder = storage, folder
        self._uploads, self._ready_seconds = uploads, ready_seconds
        self._facts = facts

    def publish(self, published: Mapping[str, Path]) -> None:
        """Add the {owner/slug: folder} of other users; ready, and mounted from these folders."""
        for number, (handle, files) in enumerate(published.items(), 4000):
            owner, _, slug = handle.partition("/")
            version = DatasetVersion(files.resolve(), "", -1.0, 0.0)  # ready from the start
            self.datasets[handle] = Dataset(
                number, owner, slug, slug, "unknown", False, [version], is_folder=True
            )

    # The calls of the protocol

    def CreateDataset(self, request: Any, user: str) -> Any:
        """Make a dataset with its first version."""
        if (request.owner_slug or user) != user:
            raise ApiError(403, "Permission 'datasets.create' was denied")
        handle = f"{user}/{require(SLUG, request.slug, 'slug')}"
        error = _unfit(request)
        if handle in self.datasets:
            error = f'The requested title "{request.title}" is already in use by a dataset.'
        if error:
            return make(types.ApiCreateDatasetResponse, status="error", error=error)
        self._last_id += 1
        dataset = Dataset(
            self._last_id,
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
        return self._update(self._own(request, user), request.body)

    def GetDatasetStatus(self, request: Any, user: str) -> Any:
        """Return the stage of the newest version."""
        status = self._find(request, user).versions[-1].status()
        return make(types.ApiGetDatasetStatusResponse, status=DatabundleVersionStatus[status])

    def GetDataset(self, request: Any, user: str) -> Any:
        """Describe a dataset and its versions up to the current one."""
        dataset = self._find(request, user)
        answer = _described(dataset)
        answer.versions = [
            make(
                types.ApiDatasetVersion,
                version_number=number,
                version_notes=version.notes,
                status="Ready",
            )
            for number, version in enumerate(dataset.versions[: dataset.current()], 1)
        ]
        return answer

    def ListDatasets(self, request: Any, user: str) -> Any:
        """List a page of this user's ready datasets, the newest first."""
        ready = [item for item in self.datasets.values() if item.owner == user and item.current()]
        mine = ready[::-1] if request.group == MINE else []
        datasets, token = page(mine, request.page_token, request.page_size)
        described = [_described(dataset) for dataset in datasets]
        return make(types.ApiListDatasetsResponse, datasets=described, next_page_token=token)

    def DeleteDataset(self, request: Any, user: str) -> Any:
        """Delete a dataset. A session that has mounted it keeps its files."""
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or dataset.owner != user:
            raise ApiError(403, "Permission 'datasets.delete' was denied")
        del self.datasets[dataset.handle]
        return types.ApiDeleteDatasetResponse()

    def ListDatasetFiles(self, request: Any, user: str) -> Any:
        """List a page of a version's files."""
        folder = self._version_folder(request, user)
        files, token = list_files(folder, types.ApiDatasetFile, request)
        return make(types.ApiListDatasetFilesResponse, dataset_files=files, next_page_token=token)

    def DownloadDataset(self, request: Any, user: str) -> Any:
        """Redirect to one file of a version."""
        folder, name = self._version_folder(request, user), request.file_name
        if name not in file_names(folder):
            raise ApiError(404, "Not found")
        raise Redirect(self._storage.share(name.split("/")[-1], folder / name))

    # What the rest of the server needs

    def mounted(self, source: str) -> Path | None:
        """Return the folder that a session sees of owner/slug, or of owner/slug/3, or None."""
        match = SOURCE.fullmatch(source)
        dataset = self.datasets.get(match[1]) if match else None
        return dataset.mounted(int(match[2] or 0)) if match and dataset else None

    def _find(self, request: Any, user: str) -> Dataset:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or (dataset.owner != user and dataset.is_private):
            raise missing("datasets", request.owner_slug, user, self._facts.missing)
        return dataset

    def _own(self, request: Any, user: str) -> Dataset:
        dataset = self._find(request, user)
        if dataset.owner != user:
            raise ApiError(403, "Permission 'datasets.update' was denied")
        return dataset

    def _update(self, dataset: Dataset, body: Any) -> Any:
        if dataset.current() == 0:
            raise ApiError(403, "The dataset is still being processed")
        self._add_version(dataset, body, body.version_notes or "")
        return _created(dataset)

    def _version_folder(self, request: Any, user: str) -> Path:
        folder = self._find(request, user).files(request.dataset_version_number or 0)
        if folder is None:
            raise ApiError(404, "Not found")
        return folder

    def _add_version(self, dataset: Dataset, content: Any, notes: str) -> None:
        number = self._made[dataset.handle] + 1
        folder = self._folder / f"{dataset.owner}--{dataset.slug}--v{number}"
        self._uploads.write(content, folder)
        self._made[dataset.handle] = number
        dataset.versions.append(
            DatasetVersion(
                folder, notes, time.time(), self._ready_seconds, self._facts.mount_seconds
            )
        )


def _described(dataset: Dataset) -> Any:
    """Return what lists say of a dataset, with the bytes of its current version."""
    folder = dataset.files(0)
    names = file_names(folder) if folder else []
    return make(
        types.ApiDataset,
        ref=dataset.handle,
        id=dataset.id,
        title=dataset.title,
        is_private=dataset.is_private,
        owner_ref=dataset.owner,
        owner_name=dataset.owner,
        license_name=dataset.license,
        url=_address(dataset),
        current_version_number=dataset.current(),
        total_bytes=sum((folder / name).stat().st_size for name in names) if folder else 0,
    )


def _unfit(page: Any) -> str:
    """Return what is wrong with the title and the subtitle of a dataset, or an empty text."""
    if not 6 <= len(page.title or "") <= 50:
        return "The dataset title must be between 6 and 50 characters"
    if page.subtitle and not 20 <= len(page.subtitle) <= 80:
        return "Subtitle length must be between 20 and 80 characters"
    return ""


def _created(dataset: Dataset) -> Any:
    return make(
        types.ApiCreateDatasetResponse,
        status="ok",
        ref=f"/{dataset.handle}",
        url=_address(dataset),
    )


def _address(dataset: Dataset) -> str:
    return f"https://www.kaggle.com/datasets/{dataset.handle}"

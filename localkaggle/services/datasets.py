"""The dataset service, which creates dataset versions from uploaded files."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import Forbidden, NotFound

from localkaggle.services import protocol
from localkaggle.services.protocol import SLUG, Json, file_names

if TYPE_CHECKING:
    from localkaggle.server import LocalKaggle

SOURCE = re.compile(r"([^/]+/[^/]+)(?:/([1-9][0-9]{0,8}))?")  # a dataset or one of its versions


@dataclass
class DatasetVersion:
    """A version of a dataset, whose processing finishes at `ready_at` (`time.time`)."""

    folder: Path
    ready_at: float = 0.0

    def is_ready(self) -> bool:
        return time.time() >= self.ready_at


@dataclass
class Dataset:
    """A dataset, whose versions are sorted from oldest to newest.

    If `is_folder` is true, all version numbers of the dataset refer to the same local folder.
    """

    owner: str
    slug: str
    title: str
    is_private: bool
    versions: list[DatasetVersion] = field(default_factory=list)
    is_folder: bool = False

    @property
    def handle(self) -> str:
        return f"{self.owner}/{self.slug}"

    def current(self) -> int:
        return max(self.folders(), default=0)

    def folders(self) -> dict[int, Path]:
        versions = enumerate(self.versions, 1)
        return {number: version.folder for number, version in versions if version.is_ready()}

    def files(self, number: int) -> Path | None:
        """Return the folder of a ready version, or None. Version 0 means the newest version."""
        return self.folders().get(self.current() if self.is_folder else number or self.current())

    def described(self) -> Json:
        return {
            "ref": self.handle,
            "title": self.title,
            "isPrivate": self.is_private,
            "url": f"https://www.kaggle.com/datasets/{self.handle}",
            "currentVersionNumber": self.current(),
        }


class Datasets:
    """`datasets.DatasetApiService`."""

    KEPT = ("datasets",)

    def __init__(self, site: "LocalKaggle") -> None:
        self.datasets: dict[str, Dataset] = {}
        self._site = site

    def publish(self, published: Mapping[str, Path]) -> None:
        """Add datasets of other users, as {owner/slug: folder}. Sessions mount these folders."""
        for handle, files in published.items():
            owner, _, slug = handle.partition("/")
            version = DatasetVersion(files.resolve())
            self.datasets[handle] = Dataset(owner, slug, slug, False, [version], is_folder=True)

    # API calls

    def CreateDataset(self, request: Any, user: str) -> Json:
        if (request.owner_slug or user) != user:
            raise Forbidden("Permission 'datasets.create' was denied")
        slug, title = protocol.require(SLUG, request.slug, "slug"), request.title or ""
        if f"{user}/{slug}" in self.datasets:
            error = f'The requested title "{title}" is already in use by a dataset.'
        elif not 6 <= len(title) <= 50:
            error = "The dataset title must be between 6 and 50 characters"
        else:
            dataset = Dataset(user, slug, title, bool(request.is_private))
            answer = self._add_version(dataset, request)
            self.datasets[dataset.handle] = dataset
            return answer
        return {"status": "error", "error": error}

    def CreateDatasetVersion(self, request: Any, user: str) -> Json:
        # The version does not include files from the previous one.
        dataset = self._find(request, user)
        if dataset.owner != user:
            raise Forbidden("Permission 'datasets.update' was denied")
        if dataset.current() == 0:
            raise Forbidden("The dataset is still being processed")
        return self._add_version(dataset, request.body)

    def GetDatasetStatus(self, request: Any, user: str) -> Json:
        is_ready = self._find(request, user).versions[-1].is_ready()
        return {"status": "READY" if is_ready else "BLOBS_RECEIVED"}

    def GetDataset(self, request: Any, user: str) -> Json:
        return self._find(request, user).described()

    def ListDatasets(self, request: Any, user: str) -> Json:
        ready = [one for one in self.datasets.values() if one.owner == user and one.current()]
        datasets, token = protocol.page(ready[::-1], request)
        return {"datasets": [one.described() for one in datasets], "nextPageToken": token}

    def DeleteDataset(self, request: Any, user: str) -> Json:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or dataset.owner != user:
            raise Forbidden("Permission 'datasets.delete' was denied")
        del self.datasets[dataset.handle]
        return {}

    def ListDatasetFiles(self, request: Any, user: str) -> Json:
        folder = self._version_folder(request, user)
        names, token = protocol.page(file_names(folder), request)
        return {"datasetFiles": protocol.listed(folder, names), "nextPageToken": token}

    def DownloadDataset(self, request: Any, user: str) -> Path:
        return protocol.file_in(self._version_folder(request, user), request.file_name)

    # Interface for the rest of the server

    def mounted(self, source: str) -> Path | None:
        match = SOURCE.fullmatch(source)
        dataset = self.datasets.get(match[1]) if match else None
        return dataset.files(int(match[2] or 0)) if match and dataset else None

    def _find(self, request: Any, user: str) -> Dataset:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or (dataset.owner != user and dataset.is_private):
            raise self._site.missing("datasets", request.owner_slug == user)
        return dataset

    def _version_folder(self, request: Any, user: str) -> Path:
        folder = self._find(request, user).files(request.dataset_version_number or 0)
        if folder is None:
            raise NotFound("Not found")
        return folder

    def _add_version(self, dataset: Dataset, content: Any) -> Json:
        folder = protocol.unused_folder(
            self._site.folder / "datasets", dataset.handle, len(dataset.versions) + 1
        )
        self._site.uploads.write(content, folder)
        ready_at = time.time() + self._site.options.ready_seconds
        dataset.versions.append(DatasetVersion(folder, ready_at))
        return {"status": "ok", "ref": f"/{dataset.handle}", "url": dataset.described()["url"]}

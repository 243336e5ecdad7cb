"""Datasets: the service that makes versions of uploads. A version is current only when ready."""

import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from werkzeug.exceptions import Forbidden, NotFound

from localkaggle.services import protocol
from localkaggle.services.protocol import SLUG, Json, file_names
from localkaggle.services.site import Site

STAGES = (
    *("NOT_YET_PERSISTED", "BLOBS_RECEIVED", "BLOBS_DECOMPRESSED", "BLOBS_COPIED_TO_SDS"),
    *("INDIVIDUAL_BLOBS_COMPRESSED", "READY"),
)
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}")
SOURCE = re.compile(r"([^/]+/[^/]+)(?:/([1-9][0-9]{0,8}))?")  # a dataset, or a version of one


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
        ready = [n for n, version in enumerate(self.versions, 1) if version.status() == "READY"]
        return max(ready, default=0)

    def files(self, number: int) -> Path | None:
        """Return the folder of a ready version, 0 for the current one; None if it has none."""
        number = 1 if self.is_folder else number or self.current()
        return self.versions[number - 1].folder if 1 <= number <= self.current() else None

    def mounted(self, number: int) -> Path | None:
        """Return the folder that a session sees of a version, 0 for the newest; None for none."""
        shown = [n for n in range(1, self.current() + 1) if self.versions[n - 1].is_mounted()]
        wanted = number if number and not self.is_folder else max(shown, default=0)
        return self.files(wanted) if wanted in shown else None

    def described(self) -> Json:
        """Return what is said of it, with the bytes of its current version."""
        folder = self.files(0)
        sizes = [(folder / name).stat().st_size for name in file_names(folder)] if folder else []
        return {
            "ref": self.handle,
            "id": self.id,
            "title": self.title,
            "isPrivate": self.is_private,
            "ownerRef": self.owner,
            "ownerName": self.owner,
            "licenseName": self.license,
            "url": f"https://www.kaggle.com/datasets/{self.handle}",
            "currentVersionNumber": self.current(),
            "totalBytes": sum(sizes),
        }


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
        site: on which they are.
    """

    KEPT = ("datasets",)

    def __init__(self, site: Site) -> None:
        self.datasets: dict[str, Dataset] = {}
        self._site, self._facts = site, site.options.facts

    def publish(self, published: Mapping[str, Path]) -> None:
        """Add the {owner/slug: folder} of other users; ready, and mounted from these folders."""
        for number, (handle, files) in enumerate(published.items(), 1):
            owner, _, slug = handle.partition("/")
            version = DatasetVersion(files.resolve(), "", -1.0, 0.0)  # ready from the start
            self.datasets[handle] = Dataset(
                number, owner, slug, slug, "unknown", False, [version], is_folder=True
            )

    # The calls of the protocol

    def CreateDataset(self, request: Any, user: str) -> Json:
        """Make a dataset with its first version."""
        if (request.owner_slug or user) != user:
            raise Forbidden("Permission 'datasets.create' was denied")
        slug, title = protocol.require(SLUG, request.slug, "slug"), request.title or ""
        if f"{user}/{slug}" in self.datasets:
            error = f'The requested title "{title}" is already in use by a dataset.'
        elif not 6 <= len(title) <= 50:
            error = "The dataset title must be between 6 and 50 characters"
        elif request.subtitle and not 20 <= len(request.subtitle) <= 80:
            error = "Subtitle length must be between 20 and 80 characters"
        else:
            number, private = secrets.randbelow(10**8) + 1, bool(request.is_private)
            dataset = Dataset(number, user, slug, title, request.license_name, private)
            answer = self._add_version(dataset, request, request.description or "Initial release")
            self.datasets[dataset.handle] = dataset
            return answer
        return {"status": "error", "error": error}

    def CreateDatasetVersion(self, request: Any, user: str) -> Json:
        """Add a version. It inherits no files from the one before."""
        dataset = self._find(request, user)
        if dataset.owner != user:
            raise Forbidden("Permission 'datasets.update' was denied")
        if dataset.current() == 0:
            raise Forbidden("The dataset is still being processed")
        return self._add_version(dataset, request.body, request.body.version_notes or "")

    def GetDatasetStatus(self, request: Any, user: str) -> Json:
        """Return the stage of the newest version."""
        return {"status": self._find(request, user).versions[-1].status()}

    def GetDataset(self, request: Any, user: str) -> Json:
        """Describe a dataset and its versions up to the current one."""
        dataset = self._find(request, user)
        versions = [
            {"versionNumber": number, "versionNotes": version.notes, "status": "Ready"}
            for number, version in enumerate(dataset.versions[: dataset.current()], 1)
        ]
        return {**dataset.described(), "versions": versions}

    def GetDatasetMetadata(self, request: Any, user: str) -> Json:
        """Return what the client shows before a download."""
        dataset = self._find(request, user)
        return {"info": {"title": dataset.title, "licenses": [{"name": dataset.license}]}}

    def ListDatasets(self, request: Any, user: str) -> Json:
        """List a page of this user's ready datasets, the newest first."""
        is_own = request.group.name == "DATASET_SELECTION_GROUP_MY"
        ready = [one for one in self.datasets.values() if one.owner == user and one.current()]
        datasets, token = protocol.page(ready[::-1] if is_own else [], request)
        return {"datasets": [one.described() for one in datasets], "nextPageToken": token}

    def DeleteDataset(self, request: Any, user: str) -> Json:
        """Delete a dataset. A session that has mounted it keeps its files."""
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or dataset.owner != user:
            raise Forbidden("Permission 'datasets.delete' was denied")
        del self.datasets[dataset.handle]
        return {}

    def ListDatasetFiles(self, request: Any, user: str) -> Json:
        """List a page of a version's files."""
        folder = self._version_folder(request, user)
        names, token = protocol.page(file_names(folder), request)
        return {"datasetFiles": protocol.listed(folder, names), "nextPageToken": token}

    def DownloadDataset(self, request: Any, user: str) -> Path:
        """Lead to one file of a version, or to an archive of all."""
        folder = self._version_folder(request, user)
        name: str = request.file_name or ""
        if not name:
            return self._site.storage.zipped(folder)
        if name not in file_names(folder):
            raise NotFound("Not found")
        return folder / name

    # What the rest of the server needs

    def mounted(self, source: str) -> Path | None:
        """Return the folder that a session sees of owner/slug, or of owner/slug/3, or None."""
        match = SOURCE.fullmatch(source)
        dataset = self.datasets.get(match[1]) if match else None
        return dataset.mounted(int(match[2] or 0)) if match and dataset else None

    def _find(self, request: Any, user: str) -> Dataset:
        dataset = self.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or (dataset.owner != user and dataset.is_private):
            raise protocol.missing("datasets", request.owner_slug, user, self._facts.missing)
        return dataset

    def _version_folder(self, request: Any, user: str) -> Path:
        folder = self._find(request, user).files(request.dataset_version_number or 0)
        if folder is None:
            raise NotFound("Not found")
        return folder

    def _add_version(self, dataset: Dataset, content: Any, notes: str) -> Json:
        """Add a version of what was uploaded, and return the answer."""
        folder = protocol.unused_folder(
            self._site.folder / "datasets", dataset.handle, len(dataset.versions) + 1
        )
        self._site.uploads.write(content, folder)
        waits = self._site.options.ready_seconds, self._facts.mount_seconds
        dataset.versions.append(DatasetVersion(folder, notes, time.time(), *waits))
        url = dataset.described()["url"]
        return {"status": "ok", "ref": f"/{dataset.handle}", "url": url}

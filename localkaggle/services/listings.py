"""Listings: what is found among the kernels, datasets and competitions, and taken from there.

Here nobody votes, views or comments. So the newest is first, whatever order is asked for, but for
kernels by their last run.
"""

from collections.abc import Iterable
from typing import Any

import kagglesdk.competitions.types.competition_api_service as competition_types
import kagglesdk.datasets.types.dataset_api_service as dataset_types
import kagglesdk.kernels.types.kernels_api_service as kernel_types
from kagglesdk.competitions.types.competition_enums import CompetitionListTab, HostSegment
from kagglesdk.datasets.types.dataset_enums import (
    DatasetFileTypeGroup,
    DatasetLicenseGroup,
    DatasetSelectionGroup,
)
from kagglesdk.kernels.types.kernels_enums import KernelsListSortType, KernelsListViewType

from localkaggle.competitions.hosted import Hosted
from localkaggle.services.datasets import Dataset, Datasets, described
from localkaggle.services.kernels import SETTINGS, Kernel, Kernels
from localkaggle.services.protocol import ApiError, make, page
from localkaggle.services.storage import file_names, folder_date
from localkaggle.services.submissions import Submissions

LICENSES = {"CC": ("CC",), "GPL": ("GPL", "LGPL", "AGPL"), "ODB": ("ODBL", "DBCL", "ODC", "PDDL")}
# Nobody else hosts a competition here, and all are launched.
TABS = (
    CompetitionListTab.COMPETITION_LIST_TAB_EVERYTHING,
    CompetitionListTab.COMPETITION_LIST_TAB_GENERAL,
    CompetitionListTab.COMPETITION_LIST_TAB_ENTERED,
)
CATEGORIES = (HostSegment.HOST_SEGMENT_UNSPECIFIED, HostSegment.HOST_SEGMENT_GETTING_STARTED)


class Listings:
    """Lists of three services, and what deletes from them.

    Args:
        kernels: of the server.
        datasets: of the server.
        competitions: by slug.
        submissions: which describe a competition.
    """

    def __init__(
        self,
        kernels: Kernels,
        datasets: Datasets,
        competitions: Hosted,
        submissions: Submissions,
    ) -> None:
        self._kernels, self._datasets = kernels, datasets
        self._competitions, self._submissions = competitions, submissions

    # Kernels

    def ListKernels(self, request: Any, user: str) -> Any:
        """List a page of the kernels that have a version and that this user may see."""
        mine = request.group == KernelsListViewType.PROFILE
        newest = list(reversed(self._kernels.kernels.values()))
        if request.sort_by == KernelsListSortType.DATE_RUN:
            newest.sort(key=lambda kernel: max((v.pushed for v in kernel.versions), default=0.0))
            newest.reverse()
        found = [
            kernel
            for kernel in newest
            if self._kernels.known(kernel)
            and _seen(kernel.owner, kernel.versions[-1].request.is_private, request, user, mine)
            and _has(request.search, kernel.slug, kernel.title)
            and _asked(kernel, request)
        ]
        kernels, token = _page(found, request)
        return make(
            kernel_types.ApiListKernelsResponse,
            kernels=[_kernel(kernel) for kernel in kernels],
            next_page_token=token,
        )

    def DeleteKernel(self, request: Any, user: str) -> Any:
        """Delete a kernel, also one without a version, and end its sessions."""
        kernel = self._kernels.kernels.get(f"{request.user_name}/{request.kernel_slug}")
        if kernel is None or kernel.owner != user:
            raise ApiError(403, "Permission 'kernels.delete' was denied")
        for version in kernel.versions:
            if version.session is not None:
                version.session.cancel()
        del self._kernels.kernels[f"{kernel.owner}/{kernel.slug}"]
        return kernel_types.ApiDeleteKernelResponse()

    # Datasets

    def ListDatasets(self, request: Any, user: str) -> Any:
        """List a page of the ready datasets that this user may see."""
        mine = request.group == DatasetSelectionGroup.DATASET_SELECTION_GROUP_MY
        found = [
            dataset
            for dataset in reversed(self._datasets.datasets.values())
            if dataset.current()
            and _seen(dataset.owner, dataset.is_private, request, user, mine)
            and _has(request.search, dataset.slug, dataset.title)
            and _fits(dataset, request)
        ]
        datasets, token = _page(found, request)
        return make(
            dataset_types.ApiListDatasetsResponse,
            datasets=[described(dataset) for dataset in datasets],
            next_page_token=token,
        )

    def DeleteDataset(self, request: Any, user: str) -> Any:
        """Delete a dataset. A session that has mounted it keeps its files."""
        dataset = self._datasets.datasets.get(f"{request.owner_slug}/{request.dataset_slug}")
        if dataset is None or dataset.owner != user:
            raise ApiError(403, "Permission 'datasets.delete' was denied")
        del self._datasets.datasets[dataset.handle]
        return dataset_types.ApiDeleteDatasetResponse()

    # Competitions

    def ListCompetitions(self, request: Any, user: str) -> Any:
        """List a page of the competitions. All of them are for practice."""
        hosted = request.group in TABS and request.category in CATEGORIES
        found = [slug for slug in self._competitions if hosted and _has(request.search, slug)]
        slugs, token = _page(found, request)  # only these are built
        return make(
            competition_types.ApiListCompetitionsResponse,
            competitions=[self._submissions.about(self._competitions[slug]) for slug in slugs],
            next_page_token=token,
        )


def _page(found: list[Any], request: Any) -> tuple[list[Any], str | None]:
    return page(found, request.page_token, request.page_size, number=request.page or 1)


def _seen(owner: str, is_private: bool, request: Any, user: str, mine: bool) -> bool:
    """Return whether a list has something of this owner.

    Private things are in the lists alone that their owner asks for of his own.
    """
    named = user if mine else request.user or ""
    if named and owner != named:
        return False
    return not is_private or owner == user == named


def _has(search: str | None, *texts: str) -> bool:
    return any((search or "").lower() in text.lower() for text in texts)


def _asked(kernel: Kernel, request: Any) -> bool:
    """Return whether a kernel is of the kind that a request asks for."""
    version = kernel.versions[-1]
    pushed = version.request
    if request.parent_kernel or request.output_type == "visualization":
        return False  # nothing is forked here, and no kernel is known for its pictures
    return (
        (request.language or "all") in ("all", pushed.language)
        and (request.kernel_type or "all") in ("all", pushed.kernel_type)
        and (request.output_type != "data" or bool(version.files()))
        and _lists(pushed.competition_data_sources, request.competition)
        and _lists(pushed.dataset_data_sources, request.dataset)
    )


def _lists(sources: Iterable[str] | None, wanted: str | None) -> bool:
    return not wanted or wanted in (sources or ())


def _fits(dataset: Dataset, request: Any) -> bool:
    """Return whether a dataset has the licence, the tags, a file and the size that are asked for.

    A file is of the type that its ending says.
    """
    tags = [tag for tag in (request.tag_ids or "").split(",") if tag]
    folder = dataset.files(0)
    assert folder is not None  # noqa: S101 - it is ready
    names = file_names(folder)
    size = sum((folder / name).stat().st_size for name in names)
    wanted = request.file_type.name.removeprefix("DATASET_FILE_TYPE_GROUP_").replace("_", "")
    ending = "" if request.file_type == DatasetFileTypeGroup(0) else f".{wanted.lower()}"
    return (
        request.license in (DatasetLicenseGroup(0), _license(dataset.license))
        and set(tags) <= set(dataset.page.keywords or ())
        and any(name.lower().endswith(ending) for name in names)
        and (request.min_size or 0) <= size <= (request.max_size or size)
    )


def _license(name: str) -> DatasetLicenseGroup:
    for group, begins in LICENSES.items():
        if name.upper().startswith(begins):
            return DatasetLicenseGroup[f"DATASET_LICENSE_GROUP_{group}"]
    return DatasetLicenseGroup.DATASET_LICENSE_GROUP_OTHER


def _kernel(kernel: Kernel) -> Any:
    version = kernel.versions[-1]
    return make(
        kernel_types.ApiKernelMetadata,
        id=kernel.id,
        ref=f"{kernel.owner}/{kernel.slug}",
        title=kernel.title,
        author=kernel.owner,
        slug=kernel.slug,
        current_version_number=version.number,
        last_run_time=folder_date(version.folder),
        **{name: getattr(version.request, name) for name in SETTINGS},
    )

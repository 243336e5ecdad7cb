"""Kaggle API calls and dataclasses for their responses.

Kaggle omits fields whose value is 0, false, "" or empty, so such fields need a default.
"""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import requests

from deploy.decoding import Malformed, Word, called, camel_case
from deploy.models import spelled
from deploy.transfer import Place

T = TypeVar("T")

# Fields of kernel-metadata.json that GetKernel returns.
ASKED = ("enable_internet", "is_private", "machine_shape")
SOURCES = ("dataset_sources", "competition_sources", "kernel_sources", "model_sources")
# Prefix that Kaggle may add to owner/slug or to a competition's slug.
ADDRESS = re.compile(r"^(?:(?:datasets|code|models)/(?=[^/]+/)|(?:competitions|c)/)")
RUN, SAVE = "SAVE_AND_RUN_ALL", "QUICK_SAVE"  # Kaggle's names for what a push does


@dataclass(frozen=True)
class Saved:
    """Response to a push. `version` is 0 if Kaggle did not return one."""

    version: int = called("versionNumber", 0)
    url: str = ""
    ref: str = ""
    error: str = ""
    invalid_tags: tuple[str, ...] = ()
    invalid_dataset_sources: tuple[str, ...] = ()
    invalid_competition_sources: tuple[str, ...] = ()
    invalid_kernel_sources: tuple[str, ...] = ()
    invalid_model_sources: tuple[str, ...] = ()

    @property
    def handle(self) -> str:
        """The kernel's owner/slug, or "" if the response does not contain it.

        >>> Saved(ref="https://www.kaggle.com/code/ann/digits-train-tpu").handle
        'ann/digits-train-tpu'
        """
        pattern = r"/code/([A-Za-z0-9_-]+/[A-Za-z0-9_-]+)/?(?:[?#].*)?$"
        found = re.search(pattern, self.ref) or re.search(pattern, self.url)
        return found[1] if found else ""

    @property
    def invalid(self) -> Mapping[str, tuple[str, ...]]:
        """Sources that Kaggle rejected, by kind. The run starts without them."""
        return {kind: getattr(self, f"invalid_{kind}") for kind in ("tags", *SOURCES)}


@dataclass(frozen=True)
class KernelStatus:
    """Status of a kernel version, with Kaggle's message if it failed."""

    name: Word = called("status", "QUEUED")
    failure: str = called("failureMessage", "")


@dataclass(frozen=True)
class OwnKernel:
    """An entry in the list of our kernels.

    `version` is 0 if the kernel has no version, or if the list does not include its version.
    """

    handle: str = called("ref", "")
    version: int = called("currentVersionNumber", 0)


@dataclass(frozen=True)
class Source:
    """A kernel version, including its notebook and the settings from kernel-metadata.json."""

    version: int = called("metadata.currentVersionNumber")
    text: str = called("blob.source", "")
    enable_internet: bool = called("metadata.enableInternet", False)
    is_private: bool = called("metadata.isPrivate", False)
    machine_shape: str = called("metadata.machineShape", "")
    dataset_sources: tuple[str, ...] = called("metadata.datasetDataSources", ())
    competition_sources: tuple[str, ...] = called("metadata.competitionDataSources", ())
    kernel_sources: tuple[str, ...] = called("metadata.kernelDataSources", ())
    model_sources: tuple[str, ...] = called("metadata.modelDataSources", ())

    @property
    def asks(self) -> Mapping[str, Any]:
        sources = {
            name: tuple(spelled(ADDRESS.sub("", source)) for source in getattr(self, name))
            for name in SOURCES
        }
        return {name: getattr(self, name) for name in ASKED} | sources


@dataclass(frozen=True)
class Quota:
    """This week's accelerator time in seconds, or None where Kaggle does not report it.

    Running sessions reserve time. Users can pay for additional time beyond the quota.
    """

    gpu_allowed: float | None = called("gpuQuota.totalTimeAllowed", None)
    tpu_allowed: float | None = called("tpuQuota.totalTimeAllowed", None)
    gpu_used: float = called("gpuQuota.timeUsed", 0.0)
    tpu_used: float = called("tpuQuota.timeUsed", 0.0)
    gpu_reserved: float = called("gpuQuota.timeReserved", 0.0)
    tpu_reserved: float = called("tpuQuota.timeReserved", 0.0)
    gpu_paid: bool = called("gpuQuota.isPayToScaleEnabled", False)
    tpu_paid: bool = called("tpuQuota.isPayToScaleEnabled", False)
    renewed: datetime | None = called("quotaRefreshTime", None)

    @property
    def gpu_seconds(self) -> float | None:
        return None if self.gpu_allowed is None else max(0.0, self.gpu_allowed - self.gpu_used)

    @property
    def tpu_seconds(self) -> float | None:
        return None if self.tpu_allowed is None else max(0.0, self.tpu_allowed - self.tpu_used)

    @property
    def reserved(self) -> Mapping[str, float]:
        reserved = {"GPU": self.gpu_reserved, "TPU": self.tpu_reserved}
        return {name: seconds for name, seconds in reserved.items() if seconds}

    @property
    def paid(self) -> tuple[str, ...]:
        return tuple(name for name in ("GPU", "TPU") if getattr(self, f"{name.lower()}_paid"))


@dataclass(frozen=True)
class Dataset:
    """A dataset and its current version."""

    handle: str = called("ref", "")
    version: int = called("currentVersionNumber", 0)
    is_private: bool = False


@dataclass(frozen=True)
class Done:
    """Response to calls that change a dataset or kernel, or that return a dataset's status."""

    status: Word = called("status", "NOT_YET_PERSISTED")


@dataclass(frozen=True)
class Scored:
    """A submission. Kaggle returns scores as strings. A score is "" until it is known."""

    ref: int
    status: Word = called("status", "PENDING")
    description: str = ""
    public_score: str = ""
    private_score: str = ""
    error: str = called("errorDescription", "")


@dataclass(frozen=True)
class Competition:
    """A competition's details for this account.

    Attributes:
        id: Kaggle's numeric ID of the competition, which every valid response includes.
        entered: whether this account has accepted the rules.
        closed: whether submissions are disabled.
        daily: submissions per day and team, or 0 if unknown.
        ends: deadline in UTC, or None if unknown.
    """

    id: int
    is_kernels_submissions_only: bool = False
    entered: bool = called("userHasEntered", False)
    closed: bool = called("submissionsDisabled", False)
    daily: int = called("maxDailySubmissions", 0)
    ends: datetime | None = called("deadline", None)

    @property
    def takes_files(self) -> bool:
        return not self.is_kernels_submissions_only


@dataclass(frozen=True)
class Limits:
    """A team's submission limits. All numbers are 0 until Kaggle recognizes our team.

    If `by_total` is true, the limit applies to all submissions in total rather than per day.
    """

    today: int = called("numToday", 0)
    total: int = called("numTotal", 0)
    allowed_now: int = called("numAllowedNow", 0)
    by_total: bool = called("limitedByTotal", False)

    @property
    def next(self) -> str:
        if self.by_total:
            return (
                "This competition limits the total number of submissions, so you cannot submit any"
                " more."
            )
        return "The next submission is possible after midnight UTC."


@dataclass(frozen=True)
class ListedFile:
    """A file in a list. For a run's output, `url` is a signed URL that expires within minutes."""

    name: str = ""
    file_name: str = ""
    total_bytes: int = 0
    url: str = ""


@dataclass(frozen=True)
class Page:
    """A page of a list.

    If the files are a run's output, `log` is the run's log. `next_page_token` is "" on the last
    page.
    """

    files: tuple[ListedFile, ...] = ()
    dataset_files: tuple[ListedFile, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    kernels: tuple[OwnKernel, ...] = ()
    submissions: tuple[Scored, ...] = ()
    log: str = ""
    next_page_token: str = ""


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call to Kaggle's API. The response to a call for a file is a `requests.Response`."""

    service: str
    method: str
    answer: type[T]

    def request(self, values: Mapping[str, Any]) -> Any:
        folder, _, name = self.service.partition(".")
        module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        # Import kagglesdk late, so that tasks that never call Kaggle work without it.
        types = importlib.import_module(f"kagglesdk.{folder}.types.{module}")
        kind = getattr(types, f"Api{self.method}Request")
        given = {camel_case(key): value for key, value in values.items() if value is not None}
        return kind.from_dict(given)

    def prepare_from(self, response: requests.Response) -> dict[str, Any]:
        """Return the JSON object in a response. This method is called by kagglesdk.

        Raises:
            HTTPError: if the response has status 200 but contains an error, unless its type has a
                field for errors.
            Malformed: if the response is not a JSON object.
        """
        value = response.json()
        if not isinstance(value, dict):
            raise Malformed(f"expected an object, got {type(value).__name__}")
        error = value.get("error") or value.get("errorMessage")
        if isinstance(error, dict) or (error and self.answer is not Saved):
            raise requests.HTTPError("the response contains an error", response=response)
        return value


KERNELS, DATASETS = "kernels.KernelsApiService", "datasets.DatasetApiService"
COMPETITIONS, MODELS = "competitions.CompetitionApiService", "models.ModelApiService"

SAVE_KERNEL = Call(KERNELS, "SaveKernel", Saved)
GET_KERNEL = Call(KERNELS, "GetKernel", Source)
LIST_KERNELS = Call(KERNELS, "ListKernels", Page)
DELETE_KERNEL = Call(KERNELS, "DeleteKernel", Done)
KERNEL_STATUS = Call(KERNELS, "GetKernelSessionStatus", KernelStatus)
KERNEL_OUTPUT = Call(KERNELS, "ListKernelSessionOutput", Page)
QUOTA = Call(KERNELS, "GetAcceleratorQuotaStatistics", Quota)

START_UPLOAD = Call("blobs.BlobApiService", "StartBlobUpload", Place)
CREATE_DATASET = Call(DATASETS, "CreateDataset", Done)
CREATE_DATASET_VERSION = Call(DATASETS, "CreateDatasetVersion", Done)
GET_DATASET = Call(DATASETS, "GetDataset", Dataset)
LIST_DATASETS = Call(DATASETS, "ListDatasets", Page)
DELETE_DATASET = Call(DATASETS, "DeleteDataset", Done)
DATASET_STATUS = Call(DATASETS, "GetDatasetStatus", Done)
DATASET_FILES = Call(DATASETS, "ListDatasetFiles", Page)
DATASET_FILE = Call(DATASETS, "DownloadDataset", requests.Response)

MODEL_FILES = Call(MODELS, "ListModelInstanceVersionFiles", Page)

GET_COMPETITION = Call(COMPETITIONS, "GetCompetition", Competition)
COMPETITION_FILES = Call(COMPETITIONS, "DownloadDataFiles", requests.Response)
COMPETITION_FILE = Call(COMPETITIONS, "DownloadDataFile", requests.Response)
SUBMISSION_LIMITS = Call(COMPETITIONS, "GetSubmissionLimits", Limits)
START_SUBMISSION_UPLOAD = Call(COMPETITIONS, "StartSubmissionUpload", Place)
SUBMIT_CODE = Call(COMPETITIONS, "CreateCodeSubmission", Scored)
SUBMIT_FILE = Call(COMPETITIONS, "CreateSubmission", Scored)
GET_SUBMISSION = Call(COMPETITIONS, "GetSubmission", Scored)
LIST_SUBMISSIONS = Call(COMPETITIONS, "ListSubmissions", Page)

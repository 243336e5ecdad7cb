"""Kaggle's API: the calls that we make, and the answers as dataclasses.

Kaggle omits values that are 0, false, "" or empty, so only a field that cannot be any of them has
no default.
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

# The fields of kernel-metadata.json that GetKernel returns.
ASKED = ("enable_internet", "is_private", "machine_shape")
SOURCES = ("dataset_sources", "competition_sources", "kernel_sources", "model_sources")
# A prefix that Kaggle may put before owner/slug, or before a competition's slug.
ADDRESS = re.compile(r"^(?:(?:datasets|code|models)/(?=[^/]+/)|(?:competitions|c)/)")
RUN, SAVE = "SAVE_AND_RUN_ALL", "QUICK_SAVE"  # what a push does, in Kaggle's words


@dataclass(frozen=True)
class Saved:
    """Kaggle's answer to a push.

    Attributes:
        version: the kernel's new version; 0 if Kaggle gave none.
        url: the kernel's page.
        error: in Kaggle's words; "" without an error.
    """

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
        """The kernel's owner/slug in Kaggle's answer; "" if it has none.

        >>> Saved(ref="https://www.kaggle.com/code/ann/digits-train-tpu").handle
        'ann/digits-train-tpu'
        """
        pattern = r"/code/([A-Za-z0-9_-]+/[A-Za-z0-9_-]+)/?(?:[?#].*)?$"
        found = re.search(pattern, self.ref) or re.search(pattern, self.url)
        return found[1] if found else ""

    @property
    def invalid(self) -> Mapping[str, tuple[str, ...]]:
        """The sources that Kaggle rejected, by kind. The run starts without them."""
        return {kind: getattr(self, f"invalid_{kind}") for kind in ("tags", *SOURCES)}


@dataclass(frozen=True)
class KernelStatus:
    """The status of a kernel version, and Kaggle's message about a failure."""

    name: Word = called("status", "QUEUED")
    failure: str = called("failureMessage", "")


@dataclass(frozen=True)
class OwnKernel:
    """One of our kernels in the list of them.

    Attributes:
        version: the newest one; 0 if it has none yet, or the list does not say.
    """

    handle: str = called("ref", "")
    version: int = called("currentVersionNumber", 0)


@dataclass(frozen=True)
class Source:
    """A version of a kernel: its number, its notebook, and fields of kernel-metadata.json."""

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
        """The fields of kernel-metadata.json by name."""
        sources = {
            name: tuple(spelled(ADDRESS.sub("", source)) for source in getattr(self, name))
            for name in SOURCES
        }
        return {name: getattr(self, name) for name in ASKED} | sources


@dataclass(frozen=True)
class Quota:
    """Accelerator time of this week, in seconds; None where Kaggle does not say.

    Attributes:
        gpu_allowed, tpu_allowed: the week's quota.
        gpu_used, tpu_used: what was used of it.
        gpu_reserved, tpu_reserved: what running sessions may still use.
        gpu_paid, tpu_paid: whether the account pays for time beyond the quota.
        renewed: when the next week begins, in UTC.
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
        """Seconds left on GPUs, as `kaggle quota` prints."""
        return None if self.gpu_allowed is None else max(0.0, self.gpu_allowed - self.gpu_used)

    @property
    def tpu_seconds(self) -> float | None:
        """Seconds left on TPUs."""
        return None if self.tpu_allowed is None else max(0.0, self.tpu_allowed - self.tpu_used)

    @property
    def reserved(self) -> Mapping[str, float]:
        """The reserved seconds by "GPU" and "TPU", without zeros."""
        reserved = {"GPU": self.gpu_reserved, "TPU": self.tpu_reserved}
        return {name: seconds for name, seconds in reserved.items() if seconds}

    @property
    def paid(self) -> tuple[str, ...]:
        """The accelerators for which the account pays beyond the quota: "GPU" and "TPU"."""
        return tuple(name for name in ("GPU", "TPU") if getattr(self, f"{name.lower()}_paid"))


@dataclass(frozen=True)
class Dataset:
    """A dataset and its current version."""

    handle: str = called("ref", "")
    version: int = called("currentVersionNumber", 0)
    is_private: bool = False


@dataclass(frozen=True)
class Done:
    """The answer to a change of a dataset or kernel, or the status of a dataset."""

    status: Word = called("status", "NOT_YET_PERSISTED")


@dataclass(frozen=True)
class Scored:
    """A submission by its number. The scores are Kaggle's texts, "" while unknown."""

    ref: int
    status: Word = called("status", "PENDING")
    description: str = ""
    public_score: str = ""
    private_score: str = ""
    error: str = called("errorDescription", "")


@dataclass(frozen=True)
class Competition:
    """A competition, as Kaggle describes it to this account.

    Attributes:
        id: Kaggle's number. An answer without one is no competition.
        entered: whether this account accepted the rules.
        closed: whether submissions are disabled.
        daily: submissions per day and team; 0 if Kaggle does not say.
        ends: the deadline in UTC; None if Kaggle does not say.
    """

    id: int
    is_kernels_submissions_only: bool = False
    entered: bool = called("userHasEntered", False)
    closed: bool = called("submissionsDisabled", False)
    daily: int = called("maxDailySubmissions", 0)
    ends: datetime | None = called("deadline", None)

    @property
    def takes_files(self) -> bool:
        """Whether a submission is an uploaded file, and not a notebook."""
        return not self.is_kernels_submissions_only


@dataclass(frozen=True)
class Limits:
    """The submissions made today and in total, and how many are allowed now; all 0 if Kaggle does
    not know our team yet.

    Attributes:
        by_total: whether the total limits them, and not the day.
    """

    today: int = called("numToday", 0)
    total: int = called("numTotal", 0)
    allowed_now: int = called("numAllowedNow", 0)
    by_total: bool = called("limitedByTotal", False)

    @property
    def next(self) -> str:
        """When the next one is allowed, if none is allowed now."""
        if self.by_total:
            return "The competition limits the total, so no more will be allowed."
        return "The next one is allowed after midnight UTC."


@dataclass(frozen=True)
class ListedFile:
    """A file in a list. `url`: the signed address of a run's output, valid for some minutes."""

    name: str = ""
    file_name: str = ""
    total_bytes: int = 0
    url: str = ""


@dataclass(frozen=True)
class Page:
    """A page of a list. `next_page_token` asks for the next page; "" on the last one. A list of a
    run's output also has the run's log, as Kaggle stores it.
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
    """A call of Kaggle's API.

    Attributes:
        service, method: its name.
        answer: the type of the answer; `requests.Response` for a file.
    """

    service: str
    method: str
    answer: type[T]

    def request(self, values: Mapping[str, Any]) -> Any:
        """Return kagglesdk's request with the values that are not None."""
        folder, _, name = self.service.partition(".")
        module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        # Imported late: a task that does not connect starts without the client.
        types = importlib.import_module(f"kagglesdk.{folder}.types.{module}")
        kind = getattr(types, f"Api{self.method}Request")
        given = {camel_case(key): value for key, value in values.items() if value is not None}
        return kind.from_dict(given)

    def prepare_from(self, response: requests.Response) -> dict[str, Any]:
        """Return the JSON object of an answer. kagglesdk calls this method.

        Raises:
            HTTPError: for an error in a 200, unless the answer has a field for it.
            Malformed: if it is not an object.
        """
        value = response.json()
        if not isinstance(value, dict):
            raise Malformed(f"{type(value).__name__} in place of an object")
        error = value.get("error") or value.get("errorMessage")
        if isinstance(error, dict) or (error and self.answer is not Saved):
            raise requests.HTTPError("an error in a 200", response=response)
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

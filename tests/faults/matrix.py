"""The calls of each task, and the ways in which each call can fail."""

from werkzeug.wrappers import Response

from localkaggle.faults import KINDS, Kind
from tests.faults.world import World

# The calls of each task when nothing fails.
_PUSH = {
    "GetKernel",
    "GetCompetition",
    "GetAcceleratorQuotaStatistics",
    "SaveKernel",
}
_SEND = {"GetDatasetStatus", "GetDataset", "StartBlobUpload", "upload", "ListDatasetFiles"}
_READ = {"DownloadDataset", "storage"}
_SAMPLE = {"GetCompetition", "DownloadDataFile", "storage"}
_ALLOWED = {"ListSubmissions", "GetSubmissionLimits", "GetSubmission", *_SAMPLE}
_OUTPUT = {"GetKernelSessionStatus", "ListKernelSessionOutput"}
CALLS = {
    "push-train": _PUSH,
    "watch": {"GetAcceleratorQuotaStatistics", "GetKernelSessionStatus"},
    "pull": {*_OUTPUT, "storage"},
    "publish": {*_SEND, "CreateDataset", *_READ},
    "publish the next": {*_SEND, "CreateDatasetVersion", *_READ},
    "publish again": {"GetDatasetStatus", "GetDataset", *_READ},
    "push-infer": {"GetDataset", *_PUSH},
    "submit": {*_ALLOWED, "CreateCodeSubmission"},
    "submit a file": {*_ALLOWED, "StartSubmissionUpload", "upload", "CreateSubmission"},
    "status": {*_OUTPUT, "GetAcceleratorQuotaStatistics"},
}
# Calls from code that another task runs, too.
SAME = {"push-infer": _PUSH - {"SaveKernel"}, "submit a file": _ALLOWED - {"GetSubmission"}}
MUTATING = {
    *("SaveKernel", "CreateDataset", "CreateDatasetVersion"),
    *("CreateCodeSubmission", "CreateSubmission"),
}
LOST = ("reset", "reset after", "500 after", "HTML after", "a field is missing")
DRIP, ENDED = "one byte a second", "the access token has ended"
# Requests without our credentials: signed addresses, and calls for tokens.
WITHOUT_LOGIN = {"storage", "upload", "GenerateAccessToken", "IntrospectToken"}
# The first answers have nothing that such a fault could change.
LATER = {
    *(("publish", "GetDatasetStatus"), ("publish", "GetDataset")),
    *(("submit", "GetSubmission"), ("submit a file", "GetSubmission")),
}


def _can(call: str, kind: str) -> bool:
    """Return whether the answers to this call can fail in this way."""
    if kind == ENDED:
        return call not in WITHOUT_LOGIN
    return KINDS[kind].strikes(call) and (call, kind) != ("ListSubmissions", "an older answer")


CELLS = [
    (task, call, kind)
    for task, calls in CALLS.items()
    for call in sorted(calls - SAME.get(task, set()))
    for kind in [*KINDS, ENDED]
    if _can(call, kind)
]


def ended_token(world: World) -> Kind:
    """Return the kind in which the access token expires right before a call."""

    def end(answer: Response) -> None:
        world.local.oauth.end_access()
        answer.status_code, answer.data = 401, b'{"code": 401, "message": "Unauthorized"}'

    return Kind(False, end)

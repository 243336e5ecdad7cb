"""The catalogue of known failures between a client and Kaggle: the rows K01 to K50.

A case has what Kaggle answers or what is on the disk, the task that meets it, its documented exit
code, a text of its message, and what the server holds then. Rows that no command at home can meet
are in `proofs.kaggle.known_failures`, with the test of each.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.relay import relay
from localkaggle.fault_kinds import edited, instead
from proofs.kaggle.failure_fixtures import (
    LONG,
    Arrange,
    another_run_s_version,
    another_session,
    asked,
    both,
    converted,
    exchanged,
    failed,
    hosted_long,
    in_child,
    interrupted,
    long_name,
    more_files,
    mounts_the_output,
    over,
    padded,
    pinned,
    poisoned,
    say,
    second_run_failed,
    somebody_else_s,
    soon,
    state,
)
from tests.faults.world import User, World


def _nothing(world: World) -> None:
    """Arrange nothing."""


def _so(world: World) -> bool:
    return True


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        id, what: of the row.
        task: as in `tests.faults.world.TASKS`; its preparation comes first.
        code: the exit code.
        word: a text of the message, or of what a success showed.
        made: how many kernel versions, dataset versions and submissions there are then.
        arrange: makes something go wrong.
        body: instead of the task's own.
        child: instead of both, in a process of its own.
        so: what else is true then.
        own: whether the world cannot serve another case.
    """

    id: str
    what: str
    task: str
    code: int
    word: str
    made: tuple[int, int, int]
    arrange: Arrange = _nothing
    body: Callable[[User, Kaggle], Any] | None = None
    child: Callable[[World], tuple[int, str]] | None = None
    so: Callable[[World], bool] = _so
    own: bool = False


REFUSED = instead(403, {"code": 403, "message": "Permission 'datasets.get' was denied"})
ABSENT = instead(404, {"code": 404, "message": "Not found"})
HASTY = tuple(
    instead(429, {"code": 429, "message": "Too many requests"}, Retry_After=text)
    for text in ("-5", "NaN", "1e9")
)
STATUS, SAVE = "GetKernelSessionStatus", "SaveKernel"
NONE, PUSHED, PUBLISHED, DONE = (0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 1, 1)

CASES = (
    Case("K01", "a refusal in an answer of 200", "push-train", 4, "Notebook not found", NONE,
         say(SAVE, instead(200, {"error": "Notebook not found"}))),
    Case("K02", "a source that is not there", "push-train", 4, "competition sources: digits",
         PUSHED,
         say(SAVE, edited(invalidCompetitionSources=["digits"]))),
    Case("K03", "a model source dropped in silence", "push-train", 4, "model sources: a/b/jax/1",
         PUSHED,
         say(SAVE, edited(invalidModelSources=["a/b/jax/1"]))),
    Case("K04", "a push that happened, its answer lost", "push-train", 0, "is pushed", PUSHED,
         say(SAVE, "reset after"), so=asked(SAVE, 1)),
    Case("K05", "a dataset version that happened, its answer lost", "publish", 0,
         "checksum verified", (1, 2, 0),
         both(another_run_s_version, say("CreateDatasetVersion", "reset after", "reset after")),
         so=asked("CreateDatasetVersion", 1)),
    Case("K06", "no byte, ever", "watch", 6, "invoke watch --run", PUSHED, say(STATUS, "silence",
         ever=True)),
    Case("K07", "Ctrl-C, in a process of its own", "watch", 130, "invoke watch --run", PUSHED,
         state("RUNNING"),
         child=interrupted),
    Case("K08", "502, 503, a reset and half an answer", "watch", 0, "COMPLETE", PUSHED,
         say(STATUS, "502", "503, Retry-After 0", "reset", "cut off")),
    Case("K09", "Retry-After that is negative, no number, or years", "watch", 0, "COMPLETE", PUSHED,
         say(STATUS, *HASTY[:2], "429, Retry-After nonsense", HASTY[2])),
    Case("K10", "429 for as long as one waits", "watch", 7, "429", PUSHED,
         say(STATUS, "429, Retry-After 0", ever=True)),
    Case("K11", "no status at all, which the SDK reads as QUEUED", "watch", 5,
         "waiting for a machine", PUSHED,
         both(soon, say(STATUS, instead(200, {}), ever=True))),
    Case("K12", "version 1 complete, ours failed", "watch", 1, "/2 ended as ERROR", (2, 0, 0),
         second_run_failed, own=True),
    Case("K13", "queued for ever", "watch", 5, "waiting for a machine", PUSHED, both(soon,
         state("QUEUED")),
         so=asked(SAVE, 0)),
    Case("K14", "a second push while the first runs: nothing can stop one", "watch", 7,
         "Wait for its end", PUSHED,
         state("RUNNING"), over, so=asked(SAVE, 0), own=True),
    Case("K15", "the one TPU session is taken", "push-train", 7,
         "active: rehearsal/other/1", PUSHED, another_session, so=asked(SAVE, 0)),
    Case("K16", "the week's quota is gone", "push-train", 7, "No TPU time is left", NONE,
         lambda world: world.local.kernels.used_seconds.update(TPU=1e6), so=asked(SAVE, 0)),
    Case("K17", "an image is pinned: a CPU in place of the TPU", "push-train", 2, "docker_image",
         NONE, body=pinned),
    Case("K18", "the address is made from the title", "push-train", 0, "is pushed", PUSHED,
         hosted_long, long_name,
         so=lambda world: list(world.local.kernels.kernels) == [bundle.kernel_handle("rehearsal",
         LONG, relay.TRAIN)]),
    Case("K19", "403 for what is not there, or not ours", "watch", 3, "that rehearsal may see",
         PUSHED,
         body=somebody_else_s),
    Case("K20", "a notebook without kernelspec", "watch", 1, "invoke build", PUSHED,
         failed("ValueError: No kernel name found in notebook and no override provided.")),
    Case("K21", "a source of a megabyte", "push-train", 2, "fewer than 900,000", NONE, body=padded),
    Case("K22", "403, READY too early, an earlier stage, 404", "publish", 0, "checksum verified",
         PUBLISHED,
         say("GetDatasetStatus", REFUSED, instead(200, {"status": "READY"}), instead(200,
         {"status": "BLOBS_RECEIVED"}),
             ABSENT)),
    Case("K23", "the current version is another run's", "push-infer", 2, "invoke publish", (1, 2,
         0),
         another_run_s_version, so=asked(SAVE, 0)),
    Case("K25", "a new dataset is not found for a while", "publish", 0, "checksum verified",
         PUBLISHED,
         say("GetDataset", *[ABSENT] * 6), so=asked("CreateDataset", 1)),
    Case("K26", "a dataset refused in an answer of 200", "publish", 4, "already in use", PUSHED,
         say("CreateDataset", instead(200, {"status": "error",
         "error": "The requested title is already in use"}))),
    Case("K27", "an upload that is not taken", "publish", 4, "refused to upload", PUSHED,
         say("upload", None, instead(400, {}), ever=True), so=asked("CreateDataset", 0)),
    Case("K28", "a folder in the artifact", "publish", 2, "flat", PUSHED,
         more_files("folder/array.npz"),
         so=asked("CreateDataset", 0)),
    Case("K30", "a file that Kaggle converted", "publish", 1, "other bytes", PUBLISHED,
         lambda world: say("GetDatasetStatus", converted(world), ever=True)(world)),
    Case("K31", "too many files", "publish", 2, "at most 20 files", PUSHED,
         more_files(*(f"part-{number}.npz" for number in range(25))), so=asked("CreateDataset", 0)),
    Case("K32", "pages without an end", "pull", 4, "repeats the page", PUSHED,
         say("ListKernelSessionOutput", instead(200, {"files": [], "nextPageToken": "again"}),
         ever=True)),
    Case("K33", "an address that has expired", "pull", 0, "digits-train-tpu-v1", PUSHED,
         say("storage", "an expired address")),
    Case("K34", "half a body", "pull", 0, "digits-train-tpu-v1", PUSHED, say("storage", None,
         "cut off", None, "cut off")),
    Case("K35", "another object between two halves", "pull", 1, "not what the run wrote", PUSHED,
         lambda world: say("storage", None, exchanged(world))(world), own=True),
    Case("K36", "a name that climbs", "pull", 4, "plain name", PUSHED,
         say("ListKernelSessionOutput", "a name that climbs", ever=True)),
    Case("K37", "the session's time ended", "watch", 1, "The session's time ended", PUSHED,
         state("CANCEL_ACKNOWLEDGED", "Your notebook exceeded the maximum allowed execution time")),
    Case("K38", "a failed run, its log cut off", "watch", 1, "invoke pull --run", PUSHED,
         both(state("ERROR"), say("ListKernelSessionOutput", edited(log='[{"data": "half a li'),
         ever=True))),
    Case("K39", "the working folder is full", "watch", 1, "/kaggle/working is full", PUSHED,
         failed("OSError: [Errno 28] No space left on device")),
    Case("K40", "memory ran out", "watch", 1, "its memory ran out", PUSHED,
         failed("nbclient.exceptions.DeadKernelError: Kernel died")),
    Case("K41", "a download without the internet", "watch", 1, "reached for the internet", PUSHED,
         failed("socket.gaierror: [Errno -3] Temporary failure in name resolution")),
    Case("K44", "no score, ever", "submit", 5, "without spending another", DONE,
         both(soon, say("GetSubmission", instead(200, {"status": "COMPLETE"}), ever=True))),
    Case("K45", "a submission that happened, its answer lost", "submit", 0, "is there", DONE,
         say("CreateCodeSubmission", "reset after"), so=asked("CreateCodeSubmission", 1), own=True),
    Case("K46", "the rerun's rows are not the hidden sample's", "submit", 1, "rows, ids or types",
         DONE,
         say("GetSubmission", edited(status="ERROR",
         errorDescription="Submission Scoring Error: 3048 rows"), ever=True)),
    Case("K47", "the client cannot be imported", "watch", 2, "cannot be imported", PUSHED,
         child=in_child("without six")),
    Case("K48", "an environment that the client would ignore", "watch", 2,
         "expected LOCALHOST, PROD", PUSHED,
         lambda world: os.environ.update(KAGGLE_API_ENVIRONMENT="TEST")),
    Case("K49", "VERBOSE, which prints the key", "watch", 0, "hours: Quota(", PUSHED,
         child=in_child(VERBOSE="1", VERBOSE_OUTPUT="1")),
    Case("K50", "500 for this one, for ever", "push-infer", 6, 'write handoff="kernel"',
         PUBLISHED, poisoned,
         so=lambda world: asked(SAVE, 1)(world) and mounts_the_output(world)),
)  # fmt: skip

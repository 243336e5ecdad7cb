"""The catalogue of known failures between a client and Kaggle: each ends as documented.

K07 and K29 are in test_kills. K24, K42 and K43 occur only in notebooks: see tests/pipeline.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from deploy import bundle
from deploy.project import TRAIN
from deploy.records import Records
from localkaggle.competitions.hosted import Hosted
from localkaggle.faults import Kind, edited, instead
from localkaggle.sessions.session_log import Log
from tests.deploy import steps
from tests.faults.matrix import MUTATING
from tests.faults.recorded_session import write_artifact
from tests.faults.world import (
    HURRIED,
    KERNEL,
    PACE,
    Body,
    World,
    another_run_s_version,
    attempt,
    temporary,
)

STATUS, SAVE = "GetKernelSessionStatus", "SaveKernel"
CREATE, NEXT, SEND = "CreateDataset", "CreateDatasetVersion", "CreateCodeSubmission"
OUTPUT, SCORE, READY = "ListKernelSessionOutput", "GetSubmission", "GetDatasetStatus"
OTHER_WAY = 'set handoff="kernel"'
LONG = "a-competition-whose-name-is-longer-than-an-address-on-kaggle-may-be-2026"
Arrange = Callable[[World], object]


@dataclass(frozen=True)
class Row:
    """One known failure.

    Attributes:
        name: of the row.
        code: the exit code.
        word: a text of the message, or of the output of a success.
        faults: the faults of each call.
        sent: the one call that changes something, if it is sent.
        made: the number of things that it makes on the server.
        ever: whether the faults repeat for ever.
        arrange: another cause of the failure.
        body: replaces the function of the task.
    """

    name: str
    code: int
    word: str
    faults: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    sent: str = ""
    made: int = 0
    ever: bool = False
    arrange: Arrange = id
    body: Body | None = None


def said(status: int, **value: Any) -> Kind:
    return instead(status, {"code": status, "message": "So it is"} | value)


def hasty(wait: str) -> Kind:
    return instead(429, {"code": 429, "message": "Too many requests"}, Retry_After=wait)


def soon(world: World) -> None:
    """Shorten the patience of the task."""
    world.changes["deadline_seconds"] = 1.0


def state(name: str, *lines: str) -> Arrange:
    """Return a function that puts the run into a state, with these lines in its log."""

    def arrange(world: World) -> None:
        run = world.local.kernels.version(KERNEL, 1)
        run.status, run.log = name, Log(run.folder / "other.jsonl")
        for line in lines:
            run.log.add("stdout", f"{line}\n")
        run.log.end()

    return arrange


def failed(line: str) -> Arrange:
    return state("ERROR", 'Exception encountered at "In [3]":', line)


def queued_for_ever(world: World) -> None:
    soon(world)
    state("QUEUED")(world)


def no_quota(world: World) -> None:
    world.local.kernels.used_seconds.update(TPU=1e6)


def elsewhere(world: World) -> None:
    os.environ["KAGGLE_API_ENVIRONMENT"] = "TEST"


def second_run_failed(world: World) -> None:
    """Leave a version 2 that failed behind a version 1 that is complete."""
    attempt(world, "push-train", body=pushed(again=True))
    world.ended()
    world.local.kernels.version(KERNEL, 2).status = "ERROR"


def pushed(**how: Any) -> Body:
    return lambda world, kaggle: steps.pushed(
        kaggle, world.project, TRAIN, show=world.shown.append, **how
    )


def long_name(world: World) -> None:
    """Push for a competition whose name is too long for an address."""
    digits = world.local.competitions["digits"]
    there = [digits, replace(digits, slug=LONG)]
    world.local.competitions = Hosted(world.folder / "kaggle/hosted", there)
    world.changes["competition"] = LONG


def holding(*names: str) -> Arrange:
    """Return a function that adds files to the pulled artifact."""

    def arrange(world: World) -> None:
        folder = Records(world.project).last_artifact()
        bundle_sha256 = json.loads((folder / "manifest.json").read_text())["bundle_sha256"]
        write_artifact(folder, bundle_sha256, dict.fromkeys(["weights.npz", *names], b"x"))

    return arrange


NO_KERNEL = "ValueError: No kernel name found in notebook and no override provided."
DEAD = "nbclient.exceptions.DeadKernelError: Kernel died"
TIME = "Your notebook exceeded the maximum allowed execution time"
NO_DATA = edited(invalidCompetitionSources=["a/b"])
NO_MODEL = edited(invalidModelSources=["a/b"])
TAKEN = instead(200, {"status": "error", "error": "The requested title is already in use"})
PAGE_AGAIN = instead(200, {"files": [], "nextPageToken": "again"})
LOST_ROWS = edited(status="ERROR", errorDescription="Submission Scoring Error: 3048 rows")
HALF_A_LOG = edited(log='[{"data": "half a li')
NONE, ABSENT, COMPLETE = instead(200, {}), said(404), instead(200, {"ref": 1, "status": "COMPLETE"})
EARLY = [said(403), instead(200, {"status": "READY"}), instead(200, {"status": "BLOBS_RECEIVED"})]
SLOW = [hasty("-5"), hasty("NaN"), "429, Retry-After nonsense", hasty("1e9")]
BLIPS = ["502", "503, Retry-After 0", "reset", "cut off"]
MANY = holding(*(f"part-{number}.npz" for number in range(225)))
ADDRESS = bundle.address("rehearsal", LONG, TRAIN)

PUSHES = [
    Row("K01 refused by a 200", 4, "Notebook not found", {SAVE: ["no such notebook"]}, SAVE),
    Row("K02 no such source", 4, "competition sources: a/b", {SAVE: [NO_DATA]}, SAVE, 1),
    Row("K03 a model dropped", 4, "model sources: a/b", {SAVE: [NO_MODEL]}, SAVE, 1),
    Row("K04 a lost answer", 0, "Pushed ", {SAVE: ["reset after"]}, SAVE, 1),
    Row("K16 no quota", 7, "No TPU time is left", arrange=no_quota),
    Row("K18 the title's address", 0, ADDRESS, {}, SAVE, 1, arrange=long_name),
]
WATCHES = [
    Row("K06 no byte, ever", 6, "invoke watch --run", {STATUS: ["silence"]}, ever=True),
    Row("K08 four blips", 0, "COMPLETE", {STATUS: BLIPS}),
    Row("K09 odd Retry-After", 0, "COMPLETE", {STATUS: SLOW}),
    Row("K10 429 for ever", 7, "429", {STATUS: ["429, Retry-After 0"]}, ever=True),
    Row("K11 no status", 5, "for a machine", {STATUS: [NONE]}, ever=True, arrange=soon),
    Row("K12 ours failed", 1, "/2 ended as ERROR", arrange=second_run_failed),
    Row("K13 queued for ever", 5, "waiting for a machine", arrange=queued_for_ever),
    Row("K14 a push", 7, "Wait until it ends", arrange=state("RUNNING"), body=pushed(fresh=True)),
    Row("K20 no kernelspec", 1, "invoke build", arrange=failed(NO_KERNEL)),
    Row("K37 time", 1, "The session ran out of time", arrange=state("CANCEL_ACKNOWLEDGED", TIME)),
    Row("K38 half a log", 1, "pull --run", {OUTPUT: [HALF_A_LOG]}, ever=True, arrange=failed("")),
    Row("K40 out of memory", 1, "ran out of memory", arrange=failed(DEAD)),
    Row("K48 another server", 2, "expected LOCALHOST, PROD", arrange=elsewhere),
]
PULLS = [
    Row("K32 endless pages", 4, "the same page twice", {OUTPUT: [PAGE_AGAIN]}, ever=True),
    Row("K33 an expired address", 0, "digits-train-tpu-v1", {"storage": ["an expired address"]}),
    Row("K34 half a body", 0, "digits-train-tpu-v1", {"storage": [None, "cut off"] * 2}),
    Row("K36 a climbing name", 4, "plain name", {OUTPUT: ["a name that climbs"]}, ever=True),
]
PUBLISHES = [
    Row("K22 ready too early", 0, "its checksums match", {READY: [*EARLY, ABSENT]}, CREATE, 1),
    Row("K25 not found yet", 0, "its checksums match", {"GetDataset": [ABSENT] * 6}, CREATE, 1),
    Row("K26 refused by a 200", 4, "already in use", {CREATE: [TAKEN]}, CREATE),
    Row("K27 no upload", 4, "refused to upload", {"upload": [None, said(400)]}, ever=True),
    Row("K28 a folder", 2, "no folders", arrange=holding("folder/array.npz")),
    Row("K31 too many files", 2, "at most 200 files", arrange=MANY),
]
NEXT_PUBLISHES = [
    Row("K05 a lost answer", 0, "its checksums match", {NEXT: ["reset after"]}, NEXT, 1),
]
INFERENCES = [
    Row("K23 another run's version", 2, "invoke publish", arrange=another_run_s_version),
    Row("K50 500 for ever", 6, OTHER_WAY, {SAVE: ["500"]}, SAVE, ever=True),
]
SUBMISSIONS = [
    Row("K44 no score", 5, "spending another", {SCORE: [COMPLETE]}, SEND, 1, True, arrange=soon),
    Row("K45 a lost answer", 0, "submission exists", {SEND: ["reset after"]}, SEND, 1),
    Row("K46 other rows", 1, "rows, ids or types", {SCORE: [LOST_ROWS]}, SEND, 1, ever=True),
]
ROWS = {
    "push-train": PUSHES,
    "watch": WATCHES,
    "pull": PULLS,
    "publish": PUBLISHES,
    "publish the next": NEXT_PUBLISHES,
    "push-infer": INFERENCES,
    "submit": SUBMISSIONS,
}


@pytest.mark.parametrize(
    ("task", "row"),
    [pytest.param(task, row, id=row.name) for task, rows in ROWS.items() for row in rows],
)
def test_a_known_failure_ends_as_documented(task, row):
    with temporary(task) as world:
        row.arrange(world)
        world.shown.clear()
        before = sum(world.counts())
        all_of_them = sum(kind is not None for kinds in row.faults.values() for kind in kinds)
        least = min(all_of_them, 1) if row.ever else all_of_them
        pace = HURRIED if row.code in (6, 7) else PACE
        with world.failing(row.faults, ever=row.ever, least=least, pace=pace):
            code = attempt(world, task, body=row.body)
            seen = list(world.local.faults.seen)

        assert (code, row.word in "\n".join(world.shown)) == (row.code, True), world.shown
        assert [call for call in seen if call in MUTATING] == ([row.sent] if row.sent else [])
        assert sum(world.counts()) == before + row.made

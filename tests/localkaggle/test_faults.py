"""A planned fault strikes the planned call, in the way that its name says, and no other call."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import requests

from localkaggle.competitions import Competition, accuracy
from localkaggle.faults import KINDS
from localkaggle.server import LocalKaggle
from localkaggle.services.submissions import Submission
from tests.localkaggle.pushed_notebooks import Scripted, finished, notebook, push, request, soon

SMALL = Competition("small", "Small", {}, {}, {}, {}, accuracy)
RUN = {"userName": "rehearsal", "kernelSlug": "small-kernel", "versionLabel": "v1"}
DATA = {"ownerSlug": "ann", "datasetSlug": "weights"}
PUSH = {"slug": "rehearsal/small-kernel", "newTitle": "Small Kernel", "text": notebook("1")}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "SaveKernel": ("kernels.KernelsApiService", {**PUSH, "kernelExecutionType": "QUICK_SAVE"}),
    "GetKernelSessionStatus": ("kernels.KernelsApiService", RUN),
    "ListKernelSessionOutput": ("kernels.KernelsApiService", RUN),
    "GetDataset": ("datasets.DatasetApiService", DATA),
    "GetDatasetStatus": ("datasets.DatasetApiService", DATA),
    "ListDatasetFiles": ("datasets.DatasetApiService", DATA),
    "GetSubmission": ("competitions.CompetitionApiService", {"ref": 1}),
    "ListSubmissions": ("competitions.CompetitionApiService", {"competitionName": "small"}),
}


class Heard(NamedTuple):
    """What a caller receives: an error of the connection, or an answer with JSON or bytes."""

    error: str = ""
    code: int = 0
    wait: str | None = None
    said: Any = None


def write(session: Scripted) -> None:
    """Leave a file."""
    (session.working / "a.txt").write_text("the bytes of a.txt")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a local Kaggle with a run that left two files, a dataset, and a score."""
    folder, theirs = tmp_path_factory.mktemp("kaggle"), tmp_path_factory.mktemp("weights")
    (theirs / "one.txt").write_text("one")
    options = {"competitions": [SMALL], "datasets": {"ann/weights": theirs}, "queue_seconds": 0}
    with LocalKaggle(folder, session=partial(Scripted, write), **options) as kaggle:
        push(kaggle)
        finished(kaggle)
        kaggle.submissions.submissions[1] = Submission(
            1, "small", "", "2026-01-01T00:00:00Z", status="COMPLETE", score=0.5
        )
        yield kaggle


@pytest.fixture
def kaggle(site):
    """Return it without planned faults."""
    site.faults.clear()
    yield site
    site.faults.clear()


def hear(kaggle: LocalKaggle, call: str, seconds: float = 60) -> Heard:
    """Make one call on a new connection."""
    try:
        if call == "storage":
            path = kaggle.kernels.version("rehearsal/small-kernel", 1).working / "a.txt"
            answer = request(kaggle, "GET", kaggle.storage.share("a.txt", path), timeout=seconds)
        else:
            service, body = CALLS[call]
            path = f"/api/v1/{service}/{call}"
            answer = request(kaggle, "POST", path, json=body, timeout=seconds)
    except requests.RequestException as error:
        return Heard(error=type(error).__name__)
    is_json = "json" in answer.headers["Content-Type"]
    said = answer.json() if is_json else answer.content
    return Heard("", answer.status_code, answer.headers.get("Retry-After"), said)


def pushed(kaggle: LocalKaggle) -> int:
    """Return the number of versions."""
    return len(kaggle.kernels.kernels["rehearsal/small-kernel"].versions)


Effect = Callable[[Heard], bool]


def error(*names: str) -> Effect:
    return lambda heard: heard.error in names


def html(heard: Heard) -> bool:
    return heard.code == 200 and heard.said.startswith(b"<html>")


def nothing(heard: Heard) -> bool:
    return (heard.code, heard.said) == (200, {})


# Kind of a refused push → its Retry-After header.
WAITS = {
    "503, Retry-After 0": "0",
    "429, Retry-After 0": "0",
    "429, Retry-After nonsense": "tomorrow",
    "429, Retry-After an hour": "3600",
}
# Kind → what a push receives, and the number of versions that it makes.
PUSHES: dict[str, tuple[Effect, int]] = {
    "HTML with 200": (html, 0),
    "an empty object": (nothing, 0),
    "reset": (error("ConnectionError"), 0),
    "silence": (error("ReadTimeout"), 0),
    "no such notebook": (lambda heard: heard.said == {"error": "Notebook not found"}, 0),
    "reset after": (error("ConnectionError"), 1),
    "silence after": (error("ReadTimeout"), 1),
    "HTML after": (html, 1),
    "cut off": (error("ChunkedEncodingError"), 1),
    # A byte came within the timeout, so it is the whole answer that never comes.
    "one byte a second": (error("ReadTimeout", "ConnectionError"), 1),
    "a field is missing": (lambda heard: heard.code and "versionNumber" not in heard.said, 1),
}
REFUSALS = [kind for kind in KINDS if kind[0].isdecimal()]


def files(said: dict[str, Any]) -> list[str]:
    """Return the names that an answer lists."""
    listed = said.get("files") or said.get("datasetFiles") or []
    return [file.get("fileName") or file["name"] for file in listed]


# Kinds of calls that read: the call, and whether the answer differs as expected.
STATUS, OUTPUT = "GetKernelSessionStatus", "ListKernelSessionOutput"
READS: list[tuple[str, str, Callable[[Any, Any], bool]]] = [
    ("unknown word", STATUS, lambda said, true: said == {**true, "status": "SOMETHING_NEW"}),
    ("saved only", STATUS, lambda said, true: said["status"] == "NEW_SCRIPT"),
    ("an older answer", STATUS, lambda said, true: said["status"] == "QUEUED"),
    ("an older answer", "GetDatasetStatus", lambda said, true: said["status"] != true["status"]),
    ("an older answer", "GetDataset", lambda said, true: not said["currentVersionNumber"]),
    ("an older answer", "GetSubmission", lambda said, true: said["status"] == "PENDING"),
    ("an older answer", "ListSubmissions", lambda said, true: not said["submissions"]),
    ("an older answer", "ListDatasetFiles", lambda said, true: not files(said)),
    ("a score hidden", "GetSubmission", lambda said, true: "publicScore" not in said),
    ("a name that climbs", OUTPUT, lambda said, true: files(said)[0] == f"../../{files(true)[0]}"),
    ("a file less", "ListDatasetFiles", lambda said, true: files(said) == files(true)[:-1]),
    ("other bytes", "storage", lambda said, true: said != true and len(said) == len(true)),
    ("an expired address", "storage", lambda said, true: b"ExpiredToken" in said),
]


def test_each_kind_has_a_test_of_its_effect():
    assert {*PUSHES, *REFUSALS} | {kind for kind, _, _ in READS} == {*KINDS}


def refusal(kind: str) -> tuple[Effect, int]:
    """Return what a push receives for a kind that starts with a status."""
    code = int(kind[:3])
    expected = ("", code, WAITS.get(kind), code)
    return lambda heard: (*heard[:3], heard.said["code"]) == expected, kind.endswith("after")


@pytest.mark.parametrize("kind", [*PUSHES, *REFUSALS])
def test_a_fault_strikes_a_push_before_or_after_it_takes_effect(kaggle, kind):
    """The next push is answered correctly."""
    effect, made = PUSHES.get(kind) or refusal(kind)
    before, stuck = pushed(kaggle), KINDS[kind].silence or KINDS[kind].drip
    kaggle.faults.say("SaveKernel", [kind])

    assert effect(hear(kaggle, "SaveKernel", 0.5 if stuck else 60))

    assert soon(lambda: kaggle.faults.struck == [(kind, "SaveKernel")])
    assert pushed(kaggle) == before + made
    assert hear(kaggle, "SaveKernel").said["versionNumber"] == before + made + 1


@pytest.mark.parametrize(
    ("kind", "call", "effect"), READS, ids=[f"{kind}, {call}" for kind, call, _ in READS]
)
def test_a_fault_changes_one_answer(kaggle, kind, call, effect):
    true = hear(kaggle, call)
    kaggle.faults.say(call, [kind])

    assert effect(hear(kaggle, call).said, true.said)

    assert kaggle.faults.struck == [(kind, call)]
    assert hear(kaggle, call).code == true.code == 200
    assert not effect(true.said, true.said)


def test_an_answer_with_nothing_to_change_stays_correct(kaggle, monkeypatch):
    """Neither of a call that the fault does not concern, nor of a submission without a score."""
    monkeypatch.setattr(kaggle.submissions.submissions[1], "score", None)
    calls = ("GetDataset", "storage", "GetSubmission")
    for call in calls:
        kaggle.faults.say(call, ["a score hidden"])

    heard = [hear(kaggle, call) for call in calls]

    assert [one.code for one in heard] == [200] * 3 and kaggle.faults.struck == []

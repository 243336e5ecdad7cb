"""What the answers of a smoke test show, and what they do not."""

import inspect
import json
from typing import Any

import pytest

from deploy.live import seen_facts
from localkaggle import facts as local_facts
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle


def record(call: str, at: float, answer: Any = None, **more: Any) -> dict[str, Any]:
    common = {"step": "cpu", "asked": {"kernelSlug": "x"}, "code": 200, "until": at, "times": 1}
    return {**common, "call": call, "at": at, "answer": answer or {}, **more}


def pushed(at: float, number: int = 1, **asked: Any) -> dict[str, Any]:
    answer = {"versionNumber": number, "ref": "/code/owner/x"}
    return record("SaveKernel", at, answer, asked={"slug": "owner/x", **asked})


def status(word: str, at: float, until: float | None = None, number: int = 1) -> dict[str, Any]:
    asked = {"kernelSlug": "x", "versionLabel": f"v{number}"}
    answer = {"status": word} if word != "QUEUED" else {}  # as the site leaves it out
    return record("GetKernelSessionStatus", at, answer, asked=asked, until=until or at)


def output(at: float, *names: str, number: int = 1, lines: tuple[Any, ...] = ()) -> dict[str, Any]:
    asked = {"kernelSlug": "x", "versionLabel": f"v{number}"}
    log = json.dumps([{"stream_name": "stdout", "data": f"{json.dumps(line)}\n"} for line in lines])
    files = [{"fileName": name, "url": "…"} for name in names]
    return record("ListKernelSessionOutput", at, {"files": files, "log": log}, asked=asked)


def test_every_fact_is_one_that_a_local_kaggle_takes():
    """With the value that it has unless it is told otherwise, and as it comes out of a file."""
    options = inspect.signature(LocalKaggle).parameters
    theirs = {**vars(Facts()), **{name: options[name].default for name in local_facts.OPTIONS}}

    ours = seen_facts.assumed()

    assert ours == {name: theirs[name] for name in ours} | {"rewritten": list(theirs["rewritten"])}


def test_without_answers_no_fact_is_seen():
    """The table still has a row for each, with the step that would show it."""
    rows = seen_facts.table([])

    assert seen_facts.seen([]) == {}
    assert [row.fact for row in rows] == list(seen_facts.FACTS)


def at_once(word: str = "COMPLETE") -> list[dict[str, Any]]:
    return [pushed(0), status(word, 1)]


def at_step(step: str, *answers: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "step": step} for one in answers]


def mounted(*entries: str) -> list[dict[str, Any]]:
    """Return a session that printed where its inputs are."""
    line = {"about": "input", "entries": [[entry, "/real"] for entry in entries]}
    made = pushed(0, competitionDataSources=["digits"])
    return [made, status("COMPLETE", 1), output(2, "a", lines=(line,))]


def refused(**look: Any) -> list[dict[str, Any]]:
    """Return a push that was refused for want of a TPU, and a look at what it left."""
    said = {"error": "Maximum batch TPU session count of 1 reached."}
    push = {**pushed(1), "answer": said, "asked": {"slug": "owner/y"}}
    return at_step(
        "tpu", pushed(0), push, record("GetKernel", 2, asked={"kernelSlug": "y"}, **look)
    )


def sources(*named: str) -> list[dict[str, Any]]:
    return [record("GetKernel", 0, {"metadata": {"competitionDataSources": [*named]}})]


def reserving(step: str) -> list[dict[str, Any]]:
    quota = {"timeUsed": "5s", "timeReserved": "895s", "totalTimeAllowed": "72000s"}
    asked = record("GetAcceleratorQuotaStatistics", 0, {"tpuQuota": quota}, asked={})
    return at_step(step, asked)


FILES = {"about": "files", "files": {"table.csv": "a1", "arrays.npz": "b2"}, "many": 600}
UNKNOWN = {**status("", 0.5, 3.0), "code": 404, "answer": {"code": 404}}
ONLY_THERE = "https://www.kaggle.com/code/owner/x?scriptVersionId=3"
# What was answered, and what is seen in it: None is not seen.
SEEN: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "the last poll that saw a state counts, and none that saw it means 0": (
        [
            *(pushed(10), status("NEW_SCRIPT", 10.5, 12), status("QUEUED", 12.5, 16)),
            *(status("RUNNING", 16.5, 20), status("COMPLETE", 20.5)),
            *(output(20.6), output(23.0), output(23.5, "empty.txt")),
        ],
        {
            "new_script_seconds": 2.0,
            "queue_seconds": 6.0,
            "listing_seconds": 2.5,
            "versions_seconds": 0.0,
            "default_execution": "run",
        },
    ),
    "a command that was given again an hour later saw neither end nor beginning": (
        [pushed(10), status("COMPLETE", 3600), output(3600.1, "a")],
        dict.fromkeys(("new_script_seconds", "versions_seconds", "listing_seconds")),
    ),
    "a push that names no execution and never starts is only saved": (
        [
            *(pushed(0), status("NEW_SCRIPT", 1, 600)),
            pushed(601, 2, kernelExecutionType="SAVE_AND_RUN_ALL"),
            *(status("RUNNING", 601.5, number=2), status("COMPLETE", 605, number=2)),
        ],
        {"default_execution": "saved", "new_script_seconds": 0.0},
    ),
    "a version that is not known yet is answered by 404": (
        [pushed(0), UNKNOWN, status("QUEUED", 3.5), status("RUNNING", 4)],
        {"versions_seconds": 3.0},
    ),
    "the layout of 2026": (mounted("competitions", "competitions/digits"), {"layout": "2026"}),
    "files that are lost or rewritten": (
        [
            *at_once(),
            output(2, "table.csv", "arrays.npz", ".hidden", lines=("no JSON of ours", FILES)),
            *(
                record("downloaded", 3, {"name": name, "sha256": got}, asked=None, code=0)
                for name, got in (("table.csv", "ff"), ("arrays.npz", "b2"))
            ),
        ],
        {"hidden_files": True, "empty_files": False, "rewritten": ["table.csv"]},
    ),
    "a source with one": (sources("c/digits"), {"prefixes": True}),
    "a refused push leaves a shell": (refused(code=500), {"refused_push": "shell"}),
    "it leaves a version": (
        refused(answer={"metadata": {"currentVersionNumber": 1}}),
        {"refused_push": "source"},
    ),
    "an address may be given only once, and hold more than the notebook": (
        [
            {**pushed(0, slug="owner/asked"), "answer": {"versionNumber": 1, "url": ONLY_THERE}},
            status("COMPLETE", 1),
        ],
        {"default_execution": "run"},
    ),
    "a session reserves time": (reserving("tpu"), {"reserves": True}),
    "none does": (reserving("reads"), {"reserves": None}),
}


@pytest.mark.parametrize("what", SEEN)
def test_a_fact_is_what_the_answers_show(what):
    answers, expected = SEEN[what]

    found = seen_facts.seen(answers)

    assert {name: found.get(name) for name in expected} == expected


def test_an_answer_that_lacks_what_would_show_a_fact_hides_only_that_fact():
    """Kaggle leaves out what is 0; a page may come in place of JSON. The notes name the fact."""
    page = record("GetKernel", 0.5, "<html>")
    held = [page, *at_once(), output(2, ".hidden"), *refused(answer={"metadata": {}})]

    found = seen_facts.seen(held)

    assert "refused_push" not in found and found["hidden_files"] is True
    assert "refused_push: an answer lacks what would show it" in seen_facts.notes(held)

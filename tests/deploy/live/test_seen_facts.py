"""What the answers of a smoke test show, and what they do not."""

from typing import Any

import pytest

from deploy import seen_facts

VERSION = {"kernelSlug": "x", "versionLabel": "v1"}


def record(call: str, at: float, answer: Any = None, **more: Any) -> dict[str, Any]:
    common = {"step": "cpu", "asked": {"kernelSlug": "x"}, "code": 200, "until": at, "times": 1}
    return {**common, "call": call, "at": at, "answer": answer or {}, **more}


def pushed(at: float) -> dict[str, Any]:
    answer = {"versionNumber": 1, "ref": "/code/owner/x"}
    return record("SaveKernel", at, answer, asked={"slug": "owner/x"})


def status(word: str, at: float, until: float | None = None) -> dict[str, Any]:
    answer = {"status": word} if word != "QUEUED" else {}  # as the site leaves it out
    return record("GetKernelSessionStatus", at, answer, asked=VERSION, until=until or at)


def output(at: float, *names: str) -> dict[str, Any]:
    files = [{"fileName": name, "url": "…"} for name in names]
    return record("ListKernelSessionOutput", at, {"files": files, "log": "[]"}, asked=VERSION)


def test_without_answers_no_fact_is_seen():
    """The table still has a row for each, with the step that would show it."""
    rows = seen_facts.table([])

    assert seen_facts.seen([]) == {}
    assert [row.fact for row in rows] == list(seen_facts.FACTS)


UNKNOWN = {**status("", 0.5, 3.0), "code": 404, "answer": {"code": 404}}
# What was answered, and what is seen in it: None is not seen. tests/e2e sees the other facts.
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
            "hidden_files": False,
        },
    ),
    "a command that was given again an hour later saw neither end nor beginning": (
        [pushed(10), status("COMPLETE", 3600), output(3600.1, "a")],
        dict.fromkeys(("new_script_seconds", "versions_seconds", "listing_seconds")),
    ),
    "a version that is not known yet is answered by 404": (
        [pushed(0), UNKNOWN, status("QUEUED", 3.5), status("RUNNING", 4)],
        {"versions_seconds": 3.0},
    ),
}


@pytest.mark.parametrize("what", SEEN)
def test_a_fact_is_what_the_answers_show(what):
    answers, expected = SEEN[what]

    found = seen_facts.seen(answers)

    assert {name: found.get(name) for name in expected} == expected


def test_an_answer_that_lacks_what_would_show_a_fact_hides_only_that_fact():
    """Kaggle leaves out what is 0; a page may come in place of JSON. The notes name the fact."""
    odd = {"metadata": {"competitionDataSources": [5]}}
    made = [pushed(0), status("COMPLETE", 1), output(2, ".hidden")]
    held = [record("GetKernel", 0.5, "<html>"), record("GetKernel", 0.5, odd), *made]

    found = seen_facts.seen(held)

    assert "prefixes" not in found and found["hidden_files"] is True
    assert "prefixes: an answer lacks what would show it" in seen_facts.notes(held)

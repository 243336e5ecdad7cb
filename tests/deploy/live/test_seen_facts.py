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
    assert "gpus                2           - (gpu)" in [str(row) for row in rows]


def test_seconds_are_those_for_which_a_state_was_seen():
    """The last poll that saw it counts; none that saw it means 0."""
    found = seen_facts.seen(
        [
            pushed(10),
            status("NEW_SCRIPT", 10.5, 12),
            status("QUEUED", 12.5, 16),
            status("RUNNING", 16.5, 20),
            status("COMPLETE", 20.5),
            output(20.6),
            output(23.0),
            output(23.5, "empty.txt"),
        ]
    )

    assert found["new_script_seconds"] == 2.0
    assert found["queue_seconds"] == 6.0
    assert found["listing_seconds"] == 2.5
    assert found["versions_seconds"] == 0.0
    assert found["default_execution"] == "run"


def test_seconds_are_not_seen_if_nobody_looked_in_time():
    """A command that was killed and given again an hour later saw neither end nor beginning."""
    found = seen_facts.seen([pushed(10), status("COMPLETE", 3600), output(3600.1, "a")])

    assert not {"new_script_seconds", "versions_seconds", "listing_seconds"} & found.keys()


def test_a_push_that_only_names_no_execution_and_never_starts_is_saved_only():
    """The one that named it, and ran, tells the rest."""
    found = seen_facts.seen(
        [
            pushed(0),
            status("NEW_SCRIPT", 1, 600),
            pushed(601, 2, kernelExecutionType="SAVE_AND_RUN_ALL"),
            status("RUNNING", 601.5, number=2),
            status("COMPLETE", 605, number=2),
        ]
    )

    assert (found["default_execution"], found["new_script_seconds"]) == ("saved", 0.0)


def test_a_version_that_is_not_known_yet_is_answered_by_404():
    """Or by 403, as for things that do not exist."""
    unknown = {**status("", 0.5, 3.0), "code": 404, "answer": {"code": 404}}

    found = seen_facts.seen([pushed(0), unknown, status("QUEUED", 3.5), status("RUNNING", 4)])

    assert found["versions_seconds"] == 3.0


@pytest.mark.parametrize(
    ("entries", "layout"),
    [
        (["competitions", "competitions/digits"], "2026"),
        (["digits"], "flat"),
        (["digits", "competitions", "competitions/digits"], "both"),
    ],
)
def test_the_layout_is_where_the_competition_is_mounted(entries, layout):
    """Both places at once are a layout of their own."""
    line = {"about": "input", "entries": [[entry, "/real"] for entry in entries]}

    found = seen_facts.seen(
        [
            pushed(0, competitionDataSources=["digits"]),
            status("COMPLETE", 1),
            output(2, "a", lines=(line,)),
        ]
    )

    assert found["layout"] == layout


def test_files_that_are_lost_or_rewritten_are_told_from_those_that_are_not():
    """By the names that are listed, and by the sha256 that the session printed."""
    line = {"about": "files", "files": {"table.csv": "a1", "arrays.npz": "b2"}, "many": 600}
    got = [
        record("downloaded", 3, {"name": name, "sha256": digest}, asked=None, code=0)
        for name, digest in (("table.csv", "ff"), ("arrays.npz", "b2"))
    ]

    found = seen_facts.seen(
        [
            pushed(0),
            status("COMPLETE", 1),
            output(2, "table.csv", "arrays.npz", ".hidden", lines=("no JSON of ours", line)),
            *got,
        ]
    )

    assert (found["hidden_files"], found["empty_files"]) == (True, False)
    assert found["rewritten"] == ["table.csv"]


def test_names_of_sources_with_a_prefix_are_seen():
    """Also "c/" in place of "competitions/"."""
    plain = {"metadata": {"competitionDataSources": ["digits"]}}
    prefixed = {"metadata": {"competitionDataSources": ["c/digits"]}}

    assert seen_facts.seen([record("GetKernel", 0, plain)])["prefixes"] is False
    assert seen_facts.seen([record("GetKernel", 0, prefixed)])["prefixes"] is True


@pytest.mark.parametrize(
    ("look", "left"),
    [
        ({"code": 403}, "nothing"),
        ({"code": 500}, "shell"),
        ({"code": 200, "answer": {"metadata": {"currentVersionNumber": 1}}}, "source"),
    ],
)
def test_what_a_refused_push_leaves_is_asked_for_afterwards(look, left):
    """No kernel, one that answers 500, or one with a version."""
    refused = {
        **pushed(1),
        "answer": {"error": "Maximum batch TPU session count of 1 reached."},
        "asked": {"slug": "owner/y"},
    }
    after = {**record("GetKernel", 2, asked={"kernelSlug": "y"}), **look}

    found = seen_facts.seen([{**each, "step": "tpu"} for each in (pushed(0), refused, after)])

    assert found["refused_push"] == left


def test_an_answer_that_lacks_what_would_show_a_fact_hides_only_that_fact():
    """Kaggle leaves out what is 0; a page may come in place of JSON. The notes name the fact."""
    refused = {**pushed(1), "answer": {"error": "no quota"}, "step": "tpu"}
    shell = record("GetKernel", 2, {"metadata": {}}, step="tpu")
    page = record("GetKernel", 0.5, "<html>")
    held = [pushed(0), page, status("COMPLETE", 1), output(2, ".hidden"), refused, shell]

    found = seen_facts.seen(held)

    assert "refused_push" not in found and found["hidden_files"] is True
    assert "refused_push: an answer lacks what would show it" in seen_facts.notes(held)


def test_an_address_may_hold_more_than_the_kernel_and_may_be_given_only_once():
    """What follows a "?" is no part of its name."""
    url = "https://www.kaggle.com/code/owner/x?scriptVersionId=3"
    only_there = {**pushed(0, slug="owner/asked"), "answer": {"versionNumber": 1, "url": url}}

    found = seen_facts.seen([only_there, status("COMPLETE", 1)])

    assert found["default_execution"] == "run"


def test_what_is_left_of_a_token_is_not_called_its_life():
    """Nobody sees when it was made; the facts are what a local Kaggle is told."""
    held = [record("token", 0, {"left": 5000}, step="reads", asked=None, code=0)]

    assert seen_facts.seen(held) == {}
    assert seen_facts.notes(held) == ["the access token was valid for 5000 s more"]


def test_a_tpu_that_is_not_given_is_seen_although_the_second_push_ran_too():
    """No TPU keeps it from running, and its output is not waited for."""
    printed = {"about": "tpu", "first": {"platform": "cpu"}, "simulated": ""}
    answers = [
        *(pushed(0), status("RUNNING", 1)),
        *(pushed(2, number=2), status("RUNNING", 3, number=2)),
        *(status("COMPLETE", 4), output(5, lines=(printed,))),
    ]

    assert seen_facts.seen([{**one, "step": "tpu"} for one in answers])["verified"] is False


def test_time_that_a_session_reserves_is_seen_while_it_runs():
    """Kaggle leaves the field out, or says 0, where it reserves nothing."""
    quota = {"tpuQuota": {"timeUsed": "5s", "timeReserved": "895s", "totalTimeAllowed": "72000s"}}

    reserving = [record("GetAcceleratorQuotaStatistics", 0, quota, step="tpu", asked={})]
    before = [record("GetAcceleratorQuotaStatistics", 0, quota, step="reads", asked={})]

    assert seen_facts.seen(reserving)["reserves"] is True
    assert "reserves" not in seen_facts.seen(before)

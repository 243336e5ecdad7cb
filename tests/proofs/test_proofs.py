"""The short form of the proof about Kaggle holds, and its detectors see what they must."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from deploy.client import secrets
from deploy.client.client import Kaggle
from deploy.client.deadline import TimeUp
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from proofs.kaggle import claims, fault_schedules, kills, known_failures, random_schedules
from proofs.kaggle.failure_cases import CASES
from proofs.kaggle.fault_schedules import Verdict, attempt
from proofs.kaggle.kills import Stop
from proofs.shared import results_table
from proofs.shared.results_table import Later, Row, Table
from tests.faults.world import TASKS, User, World

ROOT = Path(__file__).resolve().parents[2]


def test_the_kaggle_side_never_lies_and_never_loses():
    """A sample of the faults, schedules and kills that the full proof tries; tests/deploy plants
    all of its secrets.
    """
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "prove", "kaggle", "--short", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    told = json.loads(done.stdout.splitlines()[-1])
    assert [row for row in told["rows"] if not row["passed"]] == []
    assert (done.returncode, told["subject"]) == (0, "kaggle") and len(told["rows"]) >= 6


def test_a_miss_is_told_by_the_exit_code_and_stays_in_the_table(tmp_path):
    """No figure is edited away."""
    results = tmp_path / "results.md"
    results.write_text("# Results\n<!-- prove x -->\nold\n<!-- end x -->\n")
    missed = Table(
        "x",
        (
            Row("It is fast", "≤ 1 s", "2 s | slow", False, 7),
            Row("It is right", "yes", "yes", True),
        ),
        {"date": "d"},
    )

    results_table.record(missed, results)

    assert not missed.passed and "old" not in results.read_text()
    assert "| It is fast | ≤ 1 s | 2 s \\| slow | 7 | MISS |" in results.read_text()


def test_a_row_that_is_measured_again_replaces_its_own_line_alone(tmp_path):
    """Its commit stands beside it, since the others are of another one."""
    results, slow = tmp_path / "results.md", Row("It is fast", "≤ 1 s", "2 s", False)
    results.write_text("<!-- prove x -->\n<!-- end x -->\n")
    results_table.record(Table("x", (slow, Row("It is right", "yes", "yes", True)), {}), results)
    before = results.read_text()
    made = [Later("It is fast", lambda: replace(slow, figure="1 s", passed=True)), slow]

    again = results_table.measure(
        "x", made[:1], ROOT, command="prove x", show=lambda line: None, only="fast"
    )
    results_table.record(again, results, only="fast")

    when = f"{again.where['date']}, commit {again.where['commit']}"
    line = "| It is fast | ≤ 1 s | 2 s |  | MISS |"
    assert results.read_text() == before.replace(
        line, f"| It is fast | ≤ 1 s | 1 s ({when}) |  | pass |"
    )
    other = results_table.measure("x", made, ROOT, command="", show=lambda line: None, only="odd")
    with pytest.raises(ValueError, match="no row 'odd' to record"):
        results_table.record(other, results, only="odd")


def test_rows_are_recorded_one_by_one_in_an_empty_section(tmp_path):
    """As where all of them take longer than a session has."""
    results = tmp_path / "results.md"
    results.write_text("<!-- prove x -->\n<!-- end x -->\n# Next\n")
    for claim in ("It is fast", "It is right"):
        table = Table("x", (Row(claim, "yes", "yes", True),), {"date": "d", "commit": "c"})
        results_table.record(table, results, only=claim)
    assert results.read_text().splitlines() == [
        "<!-- prove x -->",
        "date d, commit c.",
        "",
        "| claim | target | figure | seed | |",
        "|---|---|---|---|---|",
        "| It is fast | yes | yes (d, commit c) |  | pass |",
        "| It is right | yes | yes (d, commit c) |  | pass |",
        "<!-- end x -->",
        "# Next",
    ]


def test_a_subject_without_a_place_in_the_results_is_refused(tmp_path):
    """Rather than lost."""
    (tmp_path / "results.md").write_text("# Results\n")

    with pytest.raises(ValueError, match="expected 1"):
        results_table.record(Table("x", (), {}), tmp_path / "results.md")


def test_a_table_without_rows_proves_nothing():
    """An empty list of failures is no success."""
    assert not Table("x", (), {}).passed


# The detectors: each is shown what it must tell


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of its own, whose keys are nobody's afterwards."""
    monkeypatch.setattr(secrets, "_known", set())
    kept = dict(os.environ)
    with redirect_stdout(StringIO()), World(tmp_path / "prove" / "world") as world:
        yield world
    os.environ.clear()
    os.environ.update(kept)


def failed(world: World) -> None:
    version = world.local.kernels.version("rehearsal/digits-train-tpu", 1)
    assert version is not None
    version.status = "ERROR"


def rewritten(world: World) -> None:
    version = world.local.kernels.version("rehearsal/digits-train-tpu", 1)
    assert version is not None
    (version.working / "artifact" / "weights.npz").write_bytes(b"other weights")


def converted(world: World) -> None:
    (dataset,) = world.local.datasets.datasets.values()
    (dataset.versions[-1].folder / "weights.npz").write_bytes(b"other weights")


def gone(world: World) -> None:
    world.local.kernels.kernels.clear()


def unscored(world: World) -> None:
    (submission,) = world.local.submissions.submissions.values()
    submission.score = 0.25


@pytest.mark.parametrize(
    ("task", "plant"),
    [
        ("push-train", gone),
        ("watch", failed),
        ("pull", rewritten),
        ("publish", converted),
        ("push-infer", gone),
        ("submit", unscored),
        ("status", failed),
    ],
)
def test_a_success_that_is_none_is_told(world, task, plant):
    """Each task goes well, and what it said is made untrue before it is judged."""
    TASKS[task].before(world)
    world.ended()
    honest, lying = Verdict(()), Verdict(())

    def lie(user: User, kaggle: Kaggle) -> object:
        said = TASKS[task].body(user, kaggle)
        plant(world)
        return said

    assert attempt(world, task, honest) and honest.wrong == []
    attempt(world, task, lying, {task: replace(TASKS[task], body=lie)})

    assert lying.wrong == [f"{task}: said success, and it is not so"]
    (row, _) = claims.judged("x", [lying], 1, 0)
    assert not row.passed and "1 wrong successes" in row.figure


def push_twice(user: User, kaggle: Kaggle) -> object:
    relay.push(kaggle, user.project, relay.TRAIN, again=True, show=user.shown.append)
    return relay.push(kaggle, user.project, relay.TRAIN, again=True, show=user.shown.append)


def publish_twice(user: User, kaggle: Kaggle) -> object:
    done = TASKS["publish"].body(user, kaggle)
    kaggle.create_dataset_version(done.handle, notes="", tokens=[kaggle.upload(ROOT / "LICENSE")])
    return done


def submit_twice(user: User, kaggle: Kaggle) -> object:
    done = TASKS["submit"].body(user, kaggle)
    handle = Pushes(user.project).last_run(relay.INFER).handle
    kaggle.submit_code("digits", handle, 1, file_name="submission.csv", description="once more")
    return done


@pytest.mark.parametrize(
    ("task", "body", "what"),
    [
        ("push-train", push_twice, "kernel version"),
        ("publish", publish_twice, "dataset version"),
        ("submit", submit_twice, "submission"),
    ],
)
def test_what_is_made_twice_is_told(world, task, body, what):
    """By the server's own count, whatever the task said."""
    TASKS[task].before(world)
    body(world, world.connect())
    verdict = Verdict(())

    fault_schedules.judge(world, [task], verdict)

    assert [words for words in verdict.wrong if f"duplicate {what}" in words] == verdict.wrong != []
    (row, _) = claims.judged("x", [verdict], 1, 0)
    assert not row.passed and "1 duplicates" in row.figure


def test_what_is_written_where_it_must_not_be_is_told(world):
    """Half a pull, and a name that climbed out of it."""
    (world.project.runs / ".half").mkdir(parents=True)
    (world.project.runs / ".half" / "../../escaped").write_text("x")
    verdict = Verdict(())

    fault_schedules.judge(world, ["pull"], verdict)

    assert [words.split(":")[0] for words in verdict.wrong] == ["half written", "written outside"]


def test_a_task_that_outlives_its_deadline_is_told(world, monkeypatch):
    """It takes the first ring for nothing."""
    monkeypatch.setattr(fault_schedules, "DEADLINE_SECONDS", 0.1)
    verdict = Verdict(())

    def deaf(user: User, kaggle: Kaggle) -> object:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            with suppress(TimeUp):
                time.sleep(0.1)
        return None

    task = replace(TASKS["status"], body=deaf, truth=lambda world, said: True)
    attempt(world, "status", verdict, {"status": task}, sorted(fault_schedules.ENDLESS))

    (_, row) = claims.judged("x", [verdict], 1, 0)
    assert verdict.late > 0.3 and row.figure.startswith(f"{verdict.late:.2f} s late")


@pytest.mark.parametrize(
    ("verdicts", "runs", "kinds", "passed"),
    [
        ([Verdict((), struck=["500", "reset"])], 1, 2, True),
        ([Verdict((), struck=["500", "500"])], 1, 2, False),
        ([Verdict((), struck=["500", "reset"])], 2, 2, False),
        ([], 0, 1, False),
    ],
)
def test_faults_that_never_struck_prove_nothing(verdicts, runs, kinds, passed):
    """So many runs, and so many kinds that did strike."""
    assert next(iter(claims.judged("x", verdicts, runs, kinds))).passed is passed


def stops(each: int, **change: Any) -> list[Stop]:
    """Return stops of which so many struck in each task."""
    good = Stop("", Verdict(()), True, -9, 0.1, (0, 0, 0))
    met = [replace(good, name=name) for name in kills.NAMES for _ in range(each)]
    return [
        replace(met[0], **change),
        *met[1:],
        *(replace(good, name=name, struck=False) for name in kills.NAMES),
    ]


@pytest.mark.parametrize(
    ("number", "found", "passed"),
    [
        (signal.SIGKILL, stops(2), True),
        (signal.SIGKILL, stops(1), False),
        (signal.SIGKILL, stops(2, struck=False), False),
        (signal.SIGKILL, stops(2, verdict=Verdict((), wrong=["never went through"])), False),
        (signal.SIGINT, stops(2), True),
        (signal.SIGINT, stops(2, seconds=2.5), False),
    ],
)
def test_only_stops_that_struck_a_running_task_count(number, found, passed):
    """As many in each of the four, each of them reconciled; and Ctrl-C returns in time."""
    assert claims.stopped(found, number, 8).passed is passed


def test_stops_are_drawn_until_enough_struck_and_no_longer():
    """Where none ever strikes, the row is a miss and not endless."""

    def give(stop: object, orders: Sequence[kills.Order], hits: Iterator[bool]) -> list[Stop]:
        return [Stop(name, Verdict(()), next(hits), -9, 0.1, (0, 0, 0)) for name, _, _ in orders]

    window = dict.fromkeys(kills.NAMES, 1.0)
    most = kills.stops(
        40, 9, window, partial(give, hits=itertools.cycle([True, True, True, False])), 1
    )
    none = kills.stops(40, 9, window, partial(give, hits=itertools.repeat(False)), 1)

    assert kills.enough(most, 40) and not kills.enough(none, 40)
    assert len(none) == 66 and sum(kills.struck(most).values()) == 40


def test_a_stop_after_the_end_of_a_task_strikes_nothing(monkeypatch):
    """And one in it does, as the process itself tells; a duplicate made afterwards is told."""
    monkeypatch.setattr(secrets, "_known", set())

    late = kills.stop("pull", 3.0, signal.SIGKILL)
    assert not late.struck and late.verdict.wrong == []

    monkeypatch.setitem(TASKS, "push-train", replace(TASKS["push-train"], body=push_twice))
    early = kills.stop("push-train", 0.0, signal.SIGKILL)
    assert early.struck and early.code == -signal.SIGKILL
    assert any("were asked for" in words for words in early.verdict.wrong)


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """A process as a shell starts one with & at its end: with Ctrl-C ignored, which its children
    inherit.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_stop_strikes_in_the_background_too(in_the_background, monkeypatch):
    """Ctrl-C met nobody there: all its rows and K07 were misses."""
    monkeypatch.setattr(secrets, "_known", set())

    stopped = kills.stop("push-train", 0.0, signal.SIGINT)
    (told,) = known_failures.outcomes(case for case in CASES if case.id == "K07")

    assert stopped.struck and stopped.verdict.wrong == []
    assert told.passed, told.got


def test_a_generated_schedule_tells_what_is_made_twice(monkeypatch):
    """The chain as a state machine counts at its end, too."""
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setitem(
        random_schedules.CHAIN, "push-train", replace(TASKS["push-train"], body=push_twice)
    )

    (verdict,) = random_schedules.explore(1, 1)

    assert any("duplicate kernel version" in words for words in verdict.wrong)

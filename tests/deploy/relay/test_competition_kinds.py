"""A run is submitted as its competition takes it, within what that allows, and once; the real
client against a local Kaggle whose sessions are recorded.
"""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.client import server_address
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import (
    Denied,
    Refused,
    RelayError,
    Unverified,
    UsageError,
)
from deploy.journal import DONE
from deploy.kernel import output
from deploy.kernel.push_and_watch import Run
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.facts import Facts
from localkaggle.fault_kinds import edited
from tests.faults import world as worlds
from tests.faults.world import World, competition

QUICK = Pace(first=0.02, most=0.06, patience=60)
RULES = "https://www.kaggle.com/competitions/digits/rules"
Begin = Callable[..., World]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that makes a world with an inference that ran and was pulled."""
    with ExitStack() as stack:

        def make(task: str = "submit", facts: Facts | None = None, **more: Any) -> World:
            hosting = {"competitions": [competition(**more)], "facts": facts}
            return stack.enter_context(worlds.temporary(task, **hosting))

        yield make


def inference(world: World) -> tuple[Run, Path]:
    """Return the last inference and its pulled folder."""
    pushes = Pushes(world.project)
    run = pushes.last_run(relay.INFER)
    return run, pushes.pulled_folder(run)


def submit(world: World, pace: Pace = QUICK, hours: float | None = None, **more: Any) -> Any:
    """Submit it, as `invoke submit` does."""
    run, folder = inference(world)
    project = dataclasses.replace(world.project, infer_hours=hours)
    kaggle, more = Kaggle.connect(pace=pace), {"check": lambda *_: None, **more}
    return relay.submit(kaggle, project, run, folder, show=world.shown.append, **more)


def calls(world: World, method: str) -> int:
    """Return how many such calls the server has answered."""
    return sum(1 for name, *_ in world.local.journal if name.endswith(method))


def spent(world: World) -> int:
    return len(world.local.submissions.submissions)


# Both kinds


def test_a_competition_that_takes_files_gets_the_pulled_file(begin):
    """Checked, byte by byte that of the run in question, and its sha256 is in the journal."""
    world = begin(takes_files=True)
    run, folder = inference(world)
    checked = []

    scored = submit(world, check=lambda given, sample: checked.append(given))

    (made,) = world.local.submissions.submissions.values()
    *_, blob = world.local.uploads.blobs.values()  # behind those of the dataset
    content = (folder / "submission.csv").read_bytes()
    assert (scored.ref, scored.score, scored.uploaded) == (made.ref, 0.5, True)
    assert checked == [folder / "submission.csv"]
    assert (made.file_name, made.description) == ("submission.csv", f"digits [run {run}]")
    assert blob.path.read_bytes() == content and not [*world.local.folder.rglob("rerun-*")]
    row = world.project.journal().last("submissions", ref=made.ref)
    assert row["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_competition_that_takes_notebooks_gets_the_notebook(begin):
    """No file is uploaded, and the journal has the sha256 of the one that was checked."""
    world = begin()

    scored = submit(world)

    _, folder = inference(world)
    row = world.project.journal().last("submissions", ref=scored.ref)
    content = (folder / "submission.csv").read_bytes()
    assert (scored.uploaded, calls(world, "StartSubmissionUpload")) == (False, 0)
    assert row["sha256"] == hashlib.sha256(content).hexdigest()


def test_the_chain_ends_with_an_upload_where_files_are_taken(begin):
    """From the push of the training to the score, by one command."""
    world = begin("", takes_files=True)
    kaggle, show = Kaggle.connect(pace=QUICK), world.shown.append

    result = relay.run(kaggle, world.project, show=show, check=lambda *_: None)

    assert result.submission.uploaded and result.values()["score"] == 0.5
    assert world.counts() == (2, 1, 1)


@pytest.mark.parametrize("takes_files", [True, False])
def test_the_same_run_is_submitted_once(begin, takes_files):
    """The same command follows the submission that is there, with the journal and without."""
    world = begin(takes_files=takes_files)
    first = submit(world)

    assert submit(world) == first
    journal = world.project.journal().path
    journal.rename(journal.with_suffix(".before"))
    run, folder = Run("rehearsal/digits-infer-gpu", 1, "", ""), world.project.runs
    again = relay.submit(
        Kaggle.connect(pace=QUICK),
        world.project,
        run,
        folder / output.folder_name(run),
        check=lambda *_: None,
        show=world.shown.append,
    )
    assert (again, spent(world)) == (first, 1)


def test_bytes_that_did_not_arrive_are_sent_again(begin):
    """Nothing refers to them yet."""
    world = begin(takes_files=True)
    world.local.faults.say("upload", ["503, Retry-After 0", "reset"])

    assert submit(world).score == 0.5
    assert spent(world) == 1


@pytest.mark.parametrize("takes_files", [True, False])
def test_a_file_that_the_run_did_not_write_is_not_submitted(begin, takes_files):
    """One label was edited; nothing is even uploaded."""
    world = begin(takes_files=takes_files)
    _, folder = inference(world)
    (folder / "submission.csv").write_text("id,label\na,0\nb,1\n")

    with pytest.raises(Unverified, match="not what the run wrote"):
        submit(world)

    assert (spent(world), calls(world, "StartSubmissionUpload")) == (0, 0)


def test_an_answer_that_describes_no_competition_is_asked_for_again(begin):
    """All of its values would be defaults: a competition for files, not entered."""
    world = begin()
    world.local.faults.say("GetCompetition", ["an empty object"])

    assert not submit(world).uploaded


# What a competition allows


@pytest.mark.parametrize(
    ("hours", "seconds"), [(None, 9 * 3600 - 60), (2.0, 7200), (0.5, 1800), (24.0, 12 * 3600 - 60)]
)
def test_an_inference_gets_as_long_as_the_competition_gives(begin, hours, seconds):
    """A training does not: its output is not submitted."""
    world = begin("push-infer")
    project = dataclasses.replace(world.project, infer_hours=hours)
    kaggle, show = Kaggle.connect(pace=QUICK), world.shown.append
    artifact = Pushes(project).last_artifact()

    run = relay.push(kaggle, project, relay.INFER, artifact=artifact, show=show)

    requests = {
        handle: kernel.versions[0].request.session_timeout_seconds
        for handle, kernel in world.local.kernels.kernels.items()
    }
    assert requests == {"rehearsal/digits-train-tpu": 9 * 3600 - 60, run.handle: seconds}


def test_a_run_that_took_longer_than_the_competition_gives_is_not_sent(begin):
    """With the words that Kaggle would say, and the edit."""
    world = begin(gpu_seconds=1e-3)

    with pytest.raises(
        UsageError, match=r"(?s)exceeds this competition's GPU max .*push-infer"
    ) as it:
        submit(world, hours=1e-6)

    assert "infer_hours=1e-06" in str(it.value)
    assert (calls(world, "CreateCodeSubmission"), spent(world)) == (0, 0)


def test_a_run_within_what_the_competition_gives_is_sent(begin):
    """An hour is more than a moment."""
    assert submit(begin(gpu_seconds=3600), hours=1.0).score == 0.5


@pytest.mark.parametrize(
    ("gpu_seconds", "advice"),
    [(7200, "Write infer_hours=2 into the config"), (0, "takes no notebook with a GPU")],
)
def test_a_limit_that_nobody_wrote_down_is_learned_from_the_refusal(begin, gpu_seconds, advice):
    """Kaggle tells it only then."""
    world = begin(gpu_seconds=gpu_seconds)
    run, _ = inference(world)
    world.local.kernels.version(run.handle, run.version).seconds = 233 * 60.0

    with pytest.raises(Refused, match=rf"(?s)runtime of 233 minutes exceeds.*{advice}"):
        submit(world)

    assert spent(world) == 0


def test_a_closed_competition_warns_before_a_push_and_refuses_a_submission(begin):
    """A training may be of use all the same."""
    world = begin("push-train", closed=True)
    kaggle, show = Kaggle.connect(pace=QUICK), world.shown.append
    relay.push(kaggle, world.project, relay.TRAIN, show=show)
    assert any("takes no submissions now" in line for line in world.shown)

    world = begin(closed=True)
    with pytest.raises(Refused, match="takes no submissions now"):
        submit(world)
    assert calls(world, "CreateCodeSubmission") == 0


def test_a_competition_that_has_ended_is_named_before_a_push(begin):
    """Kaggle may still score it."""
    world = begin("push-train")
    ended = edited(deadline="2020-01-02T23:59:00Z")
    world.local.faults.say("GetCompetition", [ended])

    relay.push(Kaggle.connect(pace=QUICK), world.project, relay.TRAIN, show=world.shown.append)

    assert any("digits ended on 2020-01-02 23:59 UTC" in line for line in world.shown)


# What Kaggle lists late, or never


def test_a_pull_waits_until_the_output_is_listed(begin):
    """A run was COMPLETE, and Kaggle listed nothing for some time."""
    world = begin("push-train", facts=Facts(listing_seconds=0.5))
    kaggle, show = Kaggle.connect(pace=dataclasses.replace(QUICK, listed=60)), world.shown.append
    run = relay.push(kaggle, world.project, relay.TRAIN, show=show)
    relay.watch(kaggle, world.project, run, show=show)

    folder = relay.pull(kaggle, world.project, run, show=show)

    assert (folder / "artifact" / "manifest.json").is_file()
    assert sum("lists no output yet" in line for line in world.shown) == 1


@pytest.mark.parametrize(
    ("now", "pulled", "waits"), [(False, 60, True), (True, 60, False), (False, 0, False)]
)
def test_a_submission_waits_some_more_after_the_pull_unless_it_is_told_not_to(
    begin, now, pulled, waits
):
    """Where the pull was longer ago, there is nothing to wait for. To be sure of the first, its
    clock is a minute ahead.
    """
    world = begin()
    run, folder = inference(world)
    note = {
        "run": str(run),
        "server": server_address.address(),
        "at": (datetime.now(UTC) + timedelta(seconds=pulled)).isoformat(),
    }
    (folder / output.NOTE).write_text(json.dumps(note))
    time.sleep(0.25)

    assert submit(world, dataclasses.replace(QUICK, settled=0.2), now=now).score == 0.5

    assert any("to skip this: --now" in line for line in world.shown) == waits


def test_an_upload_waits_for_no_listing(begin):
    """The file is here."""
    world = begin(takes_files=True)
    run, _ = inference(world)
    world.local.kernels.version(run.handle, run.version).listed_at = math.inf

    assert submit(world, dataclasses.replace(QUICK, settled=60)).score == 0.5


@pytest.mark.parametrize("takes_files", [True, False])
def test_a_hidden_score_ends_the_wait_as_a_success(begin, takes_files):
    """Some competitions show none until they end; the journal says so."""
    world = begin(takes_files=takes_files, facts=Facts(scores=False))

    scored = submit(world, dataclasses.replace(QUICK, hidden=0.2))

    assert (scored.score, str(scored)) == (None, "complete, score hidden")
    row = world.project.journal().last("submissions")
    assert (row["outcome"], row["score"]) == (DONE, None)
    assert any("score hidden" in line for line in status.journal_lines(world.project))


def test_a_score_that_comes_late_is_waited_for(begin):
    """Half an hour on Kaggle's site."""
    world = begin()
    late = edited(publicScore="")
    world.local.faults.say("GetSubmission", [late] * 5)

    assert submit(world).score == 0.5


# What an account lacks


@pytest.mark.parametrize("kernel", [relay.TRAIN, relay.INFER])
def test_nothing_is_pushed_before_the_competition_is_entered(begin, kernel):
    """Exit code 3, with the address of the rules."""
    world = begin("push-infer" if kernel == relay.INFER else "push-train")
    before = world.counts()
    world.local.faults.say("GetCompetition", [edited(userHasEntered=False)])
    artifact = Pushes(world.project).last_artifact() if kernel == relay.INFER else None

    with pytest.raises(Denied, match=RULES) as caught:
        relay.push(
            Kaggle.connect(pace=QUICK),
            world.project,
            kernel,
            artifact=artifact,
            show=world.shown.append,
        )

    assert (caught.value.exit_code, world.counts()) == (3, before)


def test_nothing_is_pushed_for_who_gets_no_file(begin):
    """Kaggle's own words, and ours, say that it is the rules."""
    world = begin("push-train", facts=Facts(gate="rules"))

    with pytest.raises(Denied, match=RULES):
        world_push(world)

    assert world.counts() == (0, 0, 0)


def world_push(world: World) -> Run:
    kaggle = Kaggle.connect(pace=QUICK)
    return relay.push(kaggle, world.project, relay.TRAIN, show=world.shown.append)


def test_who_enters_too_late_is_told_so(begin):
    """A competition takes nobody new some days before its end."""
    world = begin("push-train")
    late = edited(userHasEntered=False, newEntrantDeadline="2020-01-02T23:59:00Z")
    world.local.faults.say("GetCompetition", [late])

    with pytest.raises(Denied, match="takes nobody new since 2020-01-02") as caught:
        world_push(world)

    assert "Accept" not in str(caught.value)


def test_who_comes_after_the_end_accepts_the_rules_for_a_late_submission(begin):
    world = begin("push-train")
    over = {"newEntrantDeadline": "2020-01-02T23:59:00Z", "deadline": "2020-01-09T23:59:00Z"}
    world.local.faults.say("GetCompetition", [edited(userHasEntered=False, **over)])

    with pytest.raises(Denied, match=r"(?sm)not accepted\.$.*^Accept them at") as caught:
        world_push(world)

    assert "nobody new" not in str(caught.value)


@pytest.mark.parametrize("takes_files", [True, False])
@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("phone", "phone is not verified.*kaggle.com/settings"),
        ("identity", "identity is not verified.*kaggle.com/settings"),
        ("captcha", "CAPTCHA.*browser"),
    ],
)
def test_what_only_a_person_can_do_is_named(begin, takes_files, gate, said):
    """Exit code 3; nothing is spent, and nothing else is blamed."""
    world = begin(takes_files=takes_files, facts=Facts(gate=gate))

    with pytest.raises(RelayError, match=rf"(?s){said}") as caught:
        submit(world)

    assert (caught.value.exit_code, spent(world)) == (3, 0)

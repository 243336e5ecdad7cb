"""A run is submitted as its competition takes it, within what that allows, and once."""

import dataclasses
import hashlib
import json
import math
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from deploy import competition_rules, output, relay, server_address, status
from deploy.errors import Denied, Refused, RelayError, UsageError
from deploy.journal import DONE
from deploy.last_runs import Pushes
from localkaggle.facts import Facts
from localkaggle.fault_kinds import edited
from tests.deploy.small import QUICK, connect
from tests.faults import world as worlds
from tests.faults.world import competition

RULES = "https://www.kaggle.com/competitions/digits/rules"
SESSION = 9 * 3600 - 60
OVER = {"newEntrantDeadline": "2020-01-02T23:59:00Z"}


@pytest.fixture
def begin():
    """Return a function that makes a world with an inference that ran and was pulled."""
    with ExitStack() as stack:

        def make(task="submit", facts=None, **more):
            hosting = {"competitions": [competition(**more)], "facts": facts}
            return stack.enter_context(worlds.temporary(task, **hosting))

        yield make


def inference(world):
    """Return the last inference and its pulled folder."""
    pushes = Pushes(world.project)
    run = pushes.last_run(relay.INFER)
    return run, pushes.pulled_folder(run)


def submit(world, hours=None, now=False, check=lambda *_: None, **pace):
    """Submit it, as `invoke submit` does."""
    project = dataclasses.replace(world.project, infer_hours=hours)
    kaggle, more = connect(pace=dataclasses.replace(QUICK, **pace)), {"check": check, "now": now}
    return relay.submit(kaggle, project, *inference(world), show=world.shown.append, **more)


def push(world, kernel=relay.TRAIN, hours=None, **more):
    project = dataclasses.replace(world.project, infer_hours=hours)
    if kernel == relay.INFER:
        more["artifact"] = Pushes(project).last_artifact()
    return relay.push(connect(), project, kernel, show=world.shown.append, **more)


def spent(world):
    return len(world.local.submissions.submissions)


def calls(world, method):
    """Return how many such calls the server has answered."""
    return sum(name.endswith(method) for name, *_ in world.local.journal)


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


def test_the_same_run_is_submitted_once(begin):
    """The same command follows the submission that is there, with the journal and without."""
    world = begin(takes_files=True)
    run, folder = inference(world)
    first = submit(world)

    assert submit(world) == first and first.uploaded
    journal = world.project.journal().path
    journal.rename(journal.with_suffix(".before"))
    show, check = world.shown.append, lambda *_: None
    again = relay.submit(connect(), world.project, run, folder, check=check, show=show)
    assert (again, spent(world)) == (first, 1)


# What a competition allows


@pytest.mark.parametrize(("hours", "seconds"), [(2.0, 7200), (24.0, 12 * 3600 - 60)])
def test_an_inference_gets_as_long_as_the_competition_gives(begin, hours, seconds):
    """A training does not: its output is not submitted."""
    world = begin("push-infer")

    run = push(world, relay.INFER, hours)

    requests = {
        handle: kernel.versions[0].request.session_timeout_seconds
        for handle, kernel in world.local.kernels.kernels.items()
    }
    assert requests == {worlds.KERNEL: SESSION, run.handle: seconds}


def test_only_a_run_within_what_the_competition_gives_is_sent(begin):
    """Else with the words that Kaggle would say, and the edit."""
    world = begin(gpu_seconds=1e-3)

    with pytest.raises(UsageError, match=r"(?s)exceeds .* GPU max .*infer_hours=1e-06.*push-infer"):
        submit(world, hours=1e-6)

    assert calls(world, "CreateCodeSubmission") == 0
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


@pytest.mark.parametrize(
    ("closed", "said"),
    [(True, "takes no submissions now"), (False, "digits ended on 2020-01-02 23:59 UTC")],
)
def test_a_competition_that_is_closed_or_over_is_named_before_a_push(begin, closed, said):
    """A training may be of use all the same; a submission to a closed one is refused."""
    world = begin("push-train", closed=closed)
    if not closed:
        world.local.faults.say("GetCompetition", [edited(deadline="2020-01-02T23:59:00Z")])
    push(world)
    assert any(said in line for line in world.shown)

    if closed:
        world = begin(closed=True)
        with pytest.raises(Refused, match=said):
            submit(world)
        assert calls(world, "CreateCodeSubmission") == 0


# What Kaggle lists late, or never


def test_a_pull_waits_until_the_output_is_listed(begin):
    """A run was COMPLETE, and Kaggle listed nothing for some time."""
    world = begin("push-train", facts=Facts(listing_seconds=0.2))
    kaggle, show = connect(pace=dataclasses.replace(QUICK, listed=60)), world.shown.append
    run = push(world)
    relay.watch(kaggle, world.project, run, show=show)

    folder = relay.pull(kaggle, world.project, run, show=show)

    assert (folder / "artifact" / "manifest.json").is_file()
    assert sum("lists no output yet" in line for line in world.shown) == 1


@pytest.mark.parametrize(
    ("now", "pulled", "settled", "waits"),
    [(False, 60, 0.2, True), (True, 60, 0.2, False), (False, 0, 1e-4, False)],
)
def test_a_submission_waits_some_more_after_the_pull_unless_it_is_told_not_to(
    begin, now, pulled, settled, waits
):
    """Where the pull was longer ago, there is nothing to wait for. To be sure of the first, its
    clock is a minute ahead.
    """
    world = begin()
    run, folder = inference(world)
    at = (datetime.now(UTC) + timedelta(seconds=pulled)).isoformat()
    note = {"run": str(run), "server": server_address.address(), "at": at}
    (folder / output.NOTE).write_text(json.dumps(note))

    assert submit(world, now=now, settled=settled).score == 0.5

    assert any("to skip this: --now" in line for line in world.shown) == waits


def test_an_upload_waits_for_no_listing(begin):
    """The file is here."""
    world = begin(takes_files=True)
    run, _ = inference(world)
    world.local.kernels.version(run.handle, run.version).listed_at = math.inf

    assert submit(world, settled=60).score == 0.5


def test_a_hidden_score_ends_the_wait_as_a_success(begin):
    """Some competitions show none until they end; the journal says so."""
    world = begin(facts=Facts(scores=False))

    scored = submit(world, hidden=0.2)

    assert (scored.score, str(scored)) == (None, "complete, score hidden")
    row = world.project.journal().last("submissions")
    assert (row["outcome"], row["score"]) == (DONE, None)
    assert any("score hidden" in line for line in status.journal_lines(world.project))


# What an account lacks


@pytest.mark.parametrize(
    ("answer", "said", "unsaid"),
    [
        ({"userHasEntered": False}, RULES, "nobody new"),
        # A competition takes nobody new some days before its end, and for a late submission again.
        ({"userHasEntered": False, **OVER}, "nobody new since 2020-01-02", "Accept"),
        (
            {"userHasEntered": False, **OVER, "deadline": "2020-01-09T23:59:00Z"},
            r"(?sm)not accepted\.$.*^Accept them at",
            "nobody new",
        ),
        # Kaggle lists the files to everybody, and gives them only to who accepted.
        ({}, RULES, "nobody new"),
    ],
    ids=["not entered", "too late", "after the end", "no file"],
)
def test_nothing_is_pushed_or_asked_before_the_rules_are_accepted(begin, answer, said, unsaid):
    """Exit code 3, with the address of the rules where that helps."""
    world = begin("push-train", facts=None if answer else Facts(gate="rules"))
    before = world.counts()
    world.local.faults.say("GetCompetition", [edited(**answer)] if answer else [])

    with pytest.raises(Denied, match=said) as caught:
        push(world, agree=lambda seen: pytest.fail("asked before it was looked at"))

    assert (caught.value.exit_code, world.counts()) == (3, before)
    assert unsaid not in str(caught.value)


@pytest.mark.parametrize(
    ("takes_files", "gate", "said"),
    [
        (False, "phone", "phone is not verified.*kaggle.com/settings"),
        (False, "identity", "identity is not verified.*kaggle.com/settings"),
        (True, "captcha", "CAPTCHA.*browser"),
    ],
)
def test_what_only_a_person_can_do_is_named(begin, takes_files, gate, said):
    """Exit code 3; nothing is spent, and nothing else is blamed."""
    world = begin(takes_files=takes_files, facts=Facts(gate=gate))

    with pytest.raises(RelayError, match=rf"(?s){said}") as caught:
        submit(world)

    assert (caught.value.exit_code, spent(world)) == (3, 0)


def test_an_answer_that_describes_no_competition_is_asked_for_again(begin):
    """All of its values would be defaults: a competition for files, not entered."""
    world = begin()
    world.local.faults.say("GetCompetition", ["an empty object"])

    assert not submit(world).uploaded


SLUG = "verify-phone-prices"
ASKED = {
    "GetCompetition": lambda kaggle: competition_rules.look(kaggle, SLUG),
    "ListDataFiles": lambda kaggle: competition_rules.files(kaggle, SLUG),
    "DownloadDataFile": lambda kaggle: competition_rules.require_rules(kaggle, SLUG, ["a.csv"]),
}


@pytest.mark.parametrize("call", ASKED)
def test_who_has_to_verify_something_is_not_sent_to_the_rules(kaggle, between, call):
    """Nor is anybody sent to the phone by a slug, which our own text names."""
    refusal = {"code": 403, "message": "Permission denied"}
    verify = {"code": 403, "message": "You must verify your phone number"}

    for said, told, other in ((refusal, "/rules", "phone is"), (verify, "phone is", "/rules")):
        between.always(call, (403, said))
        with pytest.raises(Denied, match=told) as caught:
            ASKED[call](kaggle)
        assert other not in str(caught.value)

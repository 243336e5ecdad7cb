"""Before a submission is spent: what Kaggle has of the file, what the user says, and one call."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import artifact_manifest, competition_rules, errors, output, relay
from deploy.last_runs import Pushes
from deploy.push_and_watch import Run
from deploy.retries import Pace
from deploy.submit import Spending
from localkaggle.fault_kinds import edited, instead
from localkaggle.sessions.session import Outcome
from pipeline.infer import submission
from tests.deploy.small import QUICK, connect
from tests.faults import world as worlds
from tests.faults.recorded_session import Recorded
from tests.faults.world import World, competition

SPENT = (
    "Your team has used its daily Submission allowance (5) today, please try again tomorrow UTC"
    " (3 hours from now)."
)
PROCESSED = "Your team has 1 submission being processed"
LOST = "Could not find provided notebook"
SIZE = len(b"id,label\na,0\nb,0\n")


class Throws(Recorded):
    """A notebook that runs on the public files, and throws on the hidden ones."""

    def __init__(self, *place: Any, rerun: bool = False, **rest: Any) -> None:
        super().__init__(*place, **rest)
        self._rerun = rerun

    def run(self) -> Outcome:
        """End as the rerun of such a notebook ends."""
        ended = super().run()
        return Outcome("exception", "It threw", 0.0) if self._rerun else ended


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """Return a world with an inference that ran and was pulled; nobody here submits it."""
    with worlds.temporary("submit", competitions=[competition(daily_submissions=5)]) as world:
        yield world


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """Return that world, with no fault planned and nothing shown."""
    shared.shown.clear()
    yield shared
    shared.local.faults.plan({})
    assert spent(shared) == 0


def inference(world: World) -> tuple[Run, Path]:
    """Return the last inference and its pulled folder."""
    pushes = Pushes(world.project)
    run = pushes.last_run(relay.INFER)
    return run, pushes.pulled_folder(run)


def submit(world: World, pace: Pace = QUICK, **more: Any) -> Any:
    """Submit it, as `invoke submit` does."""
    run, folder = inference(world)
    kaggle, more = connect(pace=pace), {"check": lambda *_: None, **more}
    return relay.submit(kaggle, world.project, run, folder, show=world.shown.append, **more)


def offered(world: World, pace: Pace = QUICK, **more: Any) -> list[str]:
    """Return what a user is asked to agree to, who then declines."""
    seen: list[str] = []

    def decline(spending: Spending) -> None:
        seen.extend(spending.lines())
        raise errors.Detached("Nothing was submitted.")

    with pytest.raises(errors.Detached):
        submit(world, pace, agree=decline, **more)
    return seen


def spent(world: World) -> int:
    return len(world.local.submissions.submissions)


def warnings(world: World) -> list[str]:
    return [line for line in world.shown if line.startswith("Warning")]


def test_a_sample_that_kaggle_has_replaced_asks_for_another_inference(world):
    """Exit code 2. The rows that the run wrote stay what they are, however often they are sent."""
    sample = world.local.competitions.folder("digits") / "sample_submission.csv"
    before = sample.read_bytes()
    sample.unlink()  # it is a link
    sample.write_bytes(before + b"c,0\n")

    with pytest.raises(errors.UsageError) as raised:
        submit(world, check=submission.check)

    sample.write_bytes(before)
    said = str(raised.value)
    assert "sample_submission.csv" in said and "relay-sample" not in said
    assert said.endswith("\ninvoke push-infer --again --config digits")
    assert world.project.journal().last("submissions")["outcome"] == "bad input"


@pytest.mark.parametrize("kind", ["size 946", "403"])
def test_a_wrong_listed_size_is_a_warning_and_none_stops_nothing(world, kind):
    """Kaggle listed 946 bytes for an output of 1.2 GB, and never another size; the file is in the
    other list, from which it was pulled.
    """
    world.local.faults.say("ListKernelFiles", itertools.repeat(kind))

    assert offered(world)

    told = f"submission.csv of {inference(world)[0]} with 946 bytes, and {SIZE} were"
    assert [told in line for line in warnings(world)] == ([True] if "946" in kind else [])


def test_a_file_that_is_not_among_the_outputs_is_submitted_only_with_now(world):
    """Exit code 5; the message ends with the command that submits it all the same."""
    world.local.faults.say("ListKernelSessionOutput", itertools.repeat("an older answer"))
    anyway = f"invoke submit --run {inference(world)[0]} --now --config digits"

    with pytest.raises(errors.DeadlinePassed, match=r"no submission\.csv among the") as caught:
        submit(world)

    assert str(caught.value).splitlines()[-1] == anyway
    assert offered(world, now=True)


@pytest.mark.parametrize(
    ("in_all", "kind", "when"),
    [(False, errors.NoQuota, "midnight UTC"), (True, errors.Refused, "no later day")],
)
def test_that_no_submission_is_left_is_said_before_the_chain_begins(world, in_all, kind, when):
    """It was found when the training and the inference had run; and no midnight brings another one
    where the competition limits how many there are in all.
    """
    none = edited(numToday=1, numTotal=40, numAllowedNow=0, limitedByTotal=in_all)
    world.local.faults.say("GetSubmissionLimits", itertools.repeat(none))

    with pytest.raises(kind, match=when) as caught:
        relay.run(connect(), world.project, show=world.shown.append, check=lambda *_: None)

    assert "no submission to digits is left" in world.shown[0] and when in world.shown[0]
    assert len(world.shown) > 1 and ("midnight" in str(caught.value)) == (not in_all)


def test_what_a_submission_spends_is_shown_before_the_question(world):
    """File, rows, run, competition, what is left today, and what validation said."""
    run, folder = inference(world)
    (path,) = world.project.runs.glob(f"*/{output.ARTIFACT}/{artifact_manifest.NAME}")
    manifest = json.loads(path.read_text())
    told = {"metric": "accuracy", "metrics": {"validation_accuracy": 0.98765}}
    path.write_text(json.dumps(manifest | told))
    expect = {"expect": {"weights_sha256": manifest["weights_sha256"]}}
    bundle = folder / output.BUNDLE
    bundle.write_text(json.dumps(json.loads(bundle.read_text()) | expect))

    assert offered(world) == [
        f"submit      submission.csv of {run}, 2 rows; runs the notebook on the hidden test set",
        "competition digits: 5 submissions are left today",
        "validation  accuracy 0.9877",
    ]


@pytest.mark.parametrize(
    ("code", "said", "kind", "advice"),
    [
        (400, SPENT, errors.NoQuota, "Try again after midnight UTC:\ninvoke submit --run {run}"),
        (400, PROCESSED, errors.NoQuota, "before has its score:\ninvoke submit --run {run}"),
        (404, LOST, errors.NotFound, "A new version .*\ninvoke push-infer --again --config"),
    ],
)
def test_a_submission_that_is_refused_says_what_helps(world, code, said, kind, advice):
    """No file has to be corrected. The same command is right later, or never."""
    refusal = instead(code, {"code": code, "message": f"Submission not allowed: {said}"})
    world.local.faults.say("CreateCodeSubmission", [refusal])

    with pytest.raises(kind, match=advice.format(run=inference(world)[0])) as caught:
        submit(world)

    assert type(caught.value) is kind and "Correct what it names" not in str(caught.value)


def test_a_file_that_is_declined_is_not_uploaded(world):
    """Where the competition takes files. After its end a submission counts for nothing."""
    over = edited(isKernelsSubmissionsOnly=False, deadline="2020-01-09T23:59:00Z")
    world.local.faults.say("GetCompetition", [over])

    assert "uploads the file" in offered(world)[0]
    assert not [name for name, *_ in world.local.journal if name == "StartSubmissionUpload"]
    (warning,) = warnings(world)
    assert "digits ended on 2020-01-09 23:59 UTC" in warning and "counts for nothing" in warning


def test_a_run_that_was_submitted_while_the_question_stood_is_submitted_once():
    """In another window; and the same command asks nothing any more."""
    with worlds.temporary("submit") as world:
        first = submit(world, agree=lambda spending: submit(world))
        asked: list[Spending] = []

        assert submit(world, agree=asked.append) == first
        assert (spent(world), asked) == (1, [])
        assert any("was submitted meanwhile" in line for line in world.shown)


def test_a_run_whose_submission_failed_is_submitted_again_only_if_that_is_said():
    """The same command once spent one more submission each time that it was given."""
    with worlds.temporary("submit", session=Throws) as world:
        run, again = inference(world)[0], {"again": True, "agree": world.shown.append}
        for _ in range(2):
            with pytest.raises(errors.RunFailed, match="Notebook Threw Exception") as caught:
                submit(world)
            assert spent(world) == 1
        assert str(caught.value).splitlines()[-1] == (
            f"invoke submit --run {run} --again --config digits"
        )

        (ref,) = world.local.submissions.submissions
        assert offered(world, again=True)[-1] == (
            f"before      submission {ref} of this run failed: Notebook Threw Exception"
        )
        with pytest.raises(errors.RunFailed):
            submit(world, **again)
        assert spent(world) == 2


def test_limits_that_kaggle_does_not_tell_keep_no_chain_from_beginning(world):
    world.local.faults.say("GetSubmissionLimits", itertools.repeat("500"))

    competition_rules.foresee(
        connect(pace=replace(QUICK, patience=0.1)), "digits", world.shown.append
    )

    assert world.shown == []

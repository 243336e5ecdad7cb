"""A push checks the competition, and an inference gets the time that it allows."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from deploy.errors import Denied
from deploy.project import INFER, TRAIN
from deploy.records import Records
from localkaggle.facts import Facts
from localkaggle.faults import edited
from tests.deploy import steps
from tests.deploy.small import connect
from tests.faults import world as worlds
from tests.faults.world import competition

RULES = "https://www.kaggle.com/competitions/digits/rules"
SESSION = 9 * 3600 - 60


@pytest.fixture
def begin():
    """Return a function that makes a world, prepared for a task."""
    with ExitStack() as stack:

        def make(task, facts=None, **more):
            hosting = {"competitions": [competition(**more)], "facts": facts or Facts()}
            return stack.enter_context(worlds.temporary(task, **hosting))

        yield make


def push(world, kernel=TRAIN, project=None, **more):
    project = project or world.project
    return steps.pushed(connect(), project, kernel, show=world.shown.append, **more)


@pytest.mark.parametrize(("hours", "seconds"), [(2.0, 7200), (24.0, 12 * 3600 - 60)])
def test_an_inference_gets_as_long_as_the_competition_gives(begin, hours, seconds):
    """A training does not, since its output is not submitted."""
    world = begin("push-infer")
    project = replace(world.project, infer_hours=hours)

    run = push(world, INFER, project, artifact=Records(project).last_artifact())

    requests = {
        handle: kernel.versions[0].request.session_timeout_seconds
        for handle, kernel in world.local.kernels.kernels.items()
    }
    assert requests == {worlds.KERNEL: SESSION, run.handle: seconds}


@pytest.mark.parametrize(
    ("closed", "said"),
    [(True, "is not accepting submissions"), (False, "digits ended on 2020-01-02 23:59 UTC")],
)
def test_a_competition_that_is_closed_or_over_is_named_before_a_push(begin, closed, said):
    """A training may be useful anyway."""
    world = begin("push-train", closed=closed)
    if not closed:
        world.local.faults.say("GetCompetition", [edited(deadline="2020-01-02T23:59:00Z")])
    push(world)
    assert any(said in line for line in world.shown)


def test_nothing_is_pushed_or_asked_before_the_rules_are_accepted(begin):
    """Exit code 3."""
    world = begin("push-train", facts=Facts(gate="rules"))
    before = world.counts()

    with pytest.raises(Denied, match=RULES):
        push(world, agree=lambda seen: pytest.fail("asked before it was looked at"))

    assert world.counts() == before

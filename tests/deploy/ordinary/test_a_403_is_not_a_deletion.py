"""A 403 about something of ours does not mean that it is gone; a 404 does, or a list without it."""

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from deploy.errors import Ambiguous, RelayError, Unknown
from deploy.journal import PUSH, State
from deploy.project import Project
from deploy.records import Records
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from tests.deploy import steps
from tests.deploy.small import HANDLE, QUICK, connect, ended, push, sent
from tests.deploy.trainer import Script

FOR_EVER = itertools.repeat("403")
READS = ("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput")


@pytest.fixture
def start(host):
    """Return a function that starts a Kaggle with these facts, and logs in."""

    def begin(script: Script | None = None, **facts: Any):
        return host(session=script or Script(), facts=Facts(**facts)), connect()

    return begin


@pytest.fixture
def complete(start, ours):
    """Return a Kaggle on which a training is complete, the client that pushed it, and its run."""
    local, kaggle = start(Script(v1="complete"))
    run = push(kaggle, ours)
    ended(local)
    return local, kaggle, run


def outcomes(local: LocalKaggle, ours: Project) -> tuple[int, bool]:
    """Return how many pushes were sent, and whether the journal takes one for deleted, or for never
    made.
    """
    return sent(local), any(
        row.state in (State.GONE, State.ABSENT) for row in Records(ours).journal.requests(PUSH)
    )


def deny(local: LocalKaggle, *operations: str) -> None:
    """Answer all calls of these operations by 403, until `allow`."""
    for operation in operations:
        local.faults.say(operation, FOR_EVER)


def allow(local: LocalKaggle) -> None:
    """Answer all calls as before."""
    seen = local.faults.seen
    local.faults.clear()
    local.faults.seen = seen


# What we pushed


def test_a_training_that_kaggle_hides_is_not_pushed_again(complete, ours):
    """Once Kaggle shows it again, it is used."""
    local, kaggle, run = complete
    for operations in (READS[1:2], (*READS, "ListKernels")):
        deny(local, *operations)

        with pytest.raises(Unknown) as caught:
            push(kaggle, ours)

        said = str(caught.value)
        assert caught.value.exit_code == 3 and outcomes(local, ours) == (1, False)
        assert ("is not available either" in said) == ("ListKernels" in operations)
        assert f"https://www.kaggle.com/code/{HANDLE}" in said
        assert said.endswith("invoke push-train --again --config digits")
        allow(local)
        assert push(kaggle, ours) == run and sent(local) == 1


def test_a_training_does_not_start_over_because_its_checkpoint_is_hidden(start, ours, shown):
    """The second session is found while it runs; afterwards nothing is sent."""
    local, kaggle = start(script := Script(v2="waits"))
    steps.watched(kaggle, ours, push(kaggle, ours), show=shown.append)
    second = push(kaggle, ours)
    for folder in ours.runs.glob("*v1*"):
        folder.rename(folder.with_name("elsewhere"))
    deny(local, "ListKernelSessionOutput")

    assert push(kaggle, ours) == second
    script.released.set()
    ended(local, second.version)
    with pytest.raises(RelayError, match="403"):
        push(kaggle, ours)

    assert outcomes(local, ours) == (2, False)


def test_again_pushes_even_if_kaggle_does_not_say(start, ours, shown):
    """And reports what is unknown."""
    local, kaggle = start(script := Script(v1="waits"))
    push(kaggle, ours)
    deny(local, *READS)
    plans: list[Any] = []

    with suppress(RelayError):  # Kaggle allows one session on a TPU
        push(kaggle, ours, again=True, show=shown.append, agree=plans.append)

    script.released.set()
    assert outcomes(local, ours) == (2, False)
    assert any("--again: anything running there is ignored." in line for line in shown)
    assert "version 2" in plans[0].lines()[0]


def test_a_push_whose_answer_was_lost_is_looked_for_and_not_sent_again(start, ours):
    """While Kaggle hides the notebook, the version may exist."""
    local, kaggle = start(Script(v1="complete"))
    local.faults.say("SaveKernel", ["reset after"])
    local.faults.say("GetKernel", itertools.chain([None], FOR_EVER))

    with pytest.raises(Ambiguous, match="its version cannot be determined: Kaggle refused"):
        push(kaggle, ours)
    with pytest.raises(Unknown, match="push-train --again"):
        push(kaggle, ours)
    with pytest.raises(Unknown):
        steps.resolved(kaggle, ours)
    assert Records(ours).journal.requests(PUSH)[0].is_open
    allow(local)

    assert push(kaggle, ours).version == sent(local) == 1


# What is really gone, and what is new


@pytest.mark.parametrize("missing", ["404", "403"])
def test_a_new_or_deleted_notebook_is_pushed(start, ours, shown, missing):
    """Kaggle answers 404, or 403 with a list without it."""
    local, kaggle = start(missing=missing)
    plans: list[Any] = []
    push(kaggle, ours, agree=plans.append)
    ended(local)
    kaggle.delete_kernel(HANDLE)

    assert push(kaggle, ours, show=shown.append, agree=plans.append).version == 1
    assert [plan.version for plan in plans] == [0, 0]
    states = [row.state for row in Records(ours).journal.requests(PUSH)]
    assert states == [State.VERSION, State.GONE]
    assert any("The version was deleted" in line for line in shown)


def test_a_push_without_an_answer_is_looked_for_while_its_version_may_be_hidden(start, ours):
    """Also by the next command, if the first one was killed or had no time left."""
    local, kaggle = start(Script(v1="complete"), missing="404", versions_seconds=1.0)
    local.faults.say("SaveKernel", ["reset after"])
    with pytest.raises(Ambiguous):
        push(kaggle, ours)
    kaggle.pace = replace(QUICK, most=3.0)

    assert push(kaggle, ours).version == sent(local) == 1

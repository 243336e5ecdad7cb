"""Another machine, a browser or another window pushes, too: it is seen, and nothing is sent
twice.
"""

import errno
import fcntl
import itertools
from dataclasses import replace
from typing import Any

import pytest

from deploy.errors import Busy, NoQuota
from deploy.project import PAIR, Project
from tests.deploy.small import HANDLE, connect, push, sent
from tests.deploy.trainer import Script


@pytest.fixture
def local(host):
    """A Kaggle whose runs wait in a queue for ever."""
    return host(queue_seconds=3600.0, session=Script())


@pytest.fixture
def kaggle(local):
    return connect()


def elsewhere(ours: Project, slug: str = "other") -> Project:
    """Return the project on another machine: another journal, and another notebook."""
    return replace(ours, runs=ours.root / "other runs", slug=slug)


# Runs that were started elsewhere


def test_a_run_of_another_machine_counts_before_a_push(local, kaggle, ours):
    """Kaggle allows one session on a TPU: a push would be refused, and leave its traces."""
    other = push(kaggle, elsewhere(ours))
    before = list(local.faults.seen)

    with pytest.raises(NoQuota, match=f"active: {other}.*\n.*\ninvoke watch --run {other}"):
        push(kaggle, ours)

    asked = local.faults.seen[len(before) :]
    assert asked.count("ListKernels") == 1 == asked.count("GetKernelSessionStatus")
    assert sent(local) == 1


def test_a_run_of_another_config_is_followed_with_that_config(local, kaggle, ours):
    """What follows it was of the config that was to be pushed."""
    other = push(kaggle, replace(ours, slug="other"))
    ours.journal().note("pushes", 1, config="digits_b")
    config = ours.root / "pipeline" / "configs" / "digits_b.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.touch()

    with pytest.raises(NoQuota, match=f"\ninvoke watch --run {other} --config digits_b\n"):
        push(kaggle, ours)


def test_a_run_of_another_machine_on_other_hardware_does_not_count(local, kaggle, ours):
    """A GPU is no TPU."""
    push(kaggle, replace(elsewhere(ours), runtime=PAIR))
    plans: list[Any] = []

    push(kaggle, ours, agree=plans.append)

    assert (plans[0].active, plans[0].unasked) == ((), ())


@pytest.mark.parametrize(
    ("answer", "again"),
    [("403", False), ("429, Retry-After an hour", True)],
)
def test_a_list_that_does_not_answer_is_said_as_not_asked(local, kaggle, ours, answer, again):
    """A limited token, or a list that fails for days: the push goes on, and the plan says what is
    not known.
    """
    kaggle.pace = replace(kaggle.pace, patience=0.1)
    local.faults.say("ListKernels", itertools.repeat(answer))
    plans: list[Any] = []

    push(kaggle, ours, again=again, agree=plans.append)

    told = [line for line in plans[0].lines() if line.startswith("not asked ")]
    assert plans[0].active == ()
    assert "runs that were started elsewhere: " in told[0] and "notebooks" in told[0]


def test_again_pushes_beside_a_run_that_kaggle_calls_active_for_ever(local, kaggle, ours):
    """Such a session may be over, and no call can end it: its page may, and Kaggle decides."""
    other = push(kaggle, elsewhere(ours))

    with pytest.raises(NoQuota) as caught:
        push(kaggle, ours)

    said = str(caught.value)
    assert f"https://www.kaggle.com/code/{other.handle}\n" in said
    assert said.endswith("invoke push-train --again --config digits")
    version = local.kernels.version(other.handle, 1)
    version.done.set()  # it takes no slot any more, and its status stays
    assert push(kaggle, ours, again=True).version == 1


# Another machine of Kaggle's


def test_the_pair_of_gpus_is_asked_for_while_the_tpu_version_waits(local, kaggle, ours, shown):
    """It is another push; the plan says what becomes of the first."""
    first = push(kaggle, ours)
    plans: list[Any] = []

    second = push(kaggle, replace(ours, runtime=PAIR), agree=plans.append, show=shown.append)

    assert (first.version, second.version) == (1, 2)
    assert second.machine_shape == "NvidiaTeslaT4" and not any("already" in one for one in shown)
    said = "\n".join(plans[0].lines())
    assert f"beside      {first} is QUEUED on TpuV5E8: it keeps its place" in said
    assert f"its page can: https://www.kaggle.com/code/{HANDLE}" in said
    for project, run in ((ours, first), (replace(ours, runtime=PAIR), second)):
        assert push(kaggle, project, show=shown.append) == run
    assert sent(local) == 2
    for line, run, where in ((shown[-2], first, ""), (shown[-1], second, " --for gpu-t4x2")):
        assert line.startswith(f"{run} holds this bundle already, QUEUED on {run.machine_shape}")
        assert line.endswith(f"`push-train{where} --again`")


# Two windows


def test_two_pushes_of_one_project_at_a_time_send_one(local, kaggle, ours):
    """Also with --again: the second says who is at it."""

    def in_another_window(plan: Any) -> None:
        with pytest.raises(Busy, match=r"pushes from this project: push-train, process \d+, since"):
            push(kaggle, ours, again=True)

    push(kaggle, ours, agree=in_another_window)

    assert sent(local) == 1 and Busy.exit_code == 7


def test_a_folder_that_cannot_be_locked_is_pushed_from(local, kaggle, ours, shown, monkeypatch):
    """As in a home over NFS or in some mounted drives."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)

    assert push(kaggle, ours, show=shown.append).version == sent(local)
    assert shown[0].startswith(f"{ours.runs} cannot be locked (Operation not supported)")

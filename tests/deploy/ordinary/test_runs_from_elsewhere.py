"""Another machine, a browser or another window pushes, too: it is seen, and nothing is sent
twice.
"""

import errno
import fcntl
import itertools
from dataclasses import replace
from typing import Any

import pytest

from deploy import status
from deploy.errors import Busy, NoQuota
from deploy.preview import Preview
from deploy.project import KERNELS, PAIR, TRAIN, Project
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.between import Between
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
    """Kaggle allows one session on a TPU: a push would be refused, and leave its traces. Such a
    session may be over, and no call can end it: then Kaggle decides. A GPU is no TPU.
    """
    push(kaggle, replace(elsewhere(ours, "pair"), runtime=PAIR))
    other = push(kaggle, elsewhere(ours))
    before = len(local.faults.seen)

    with pytest.raises(NoQuota, match=f"active: {other}.*\n.*\ninvoke watch --run") as caught:
        push(kaggle, ours)

    asked = local.faults.seen[before:]
    assert asked.count("ListKernels") == 1 == asked.count("GetKernelSessionStatus")
    assert sent(local) == 2
    assert f"https://www.kaggle.com/code/{other.handle}\n" in str(caught.value)
    assert str(caught.value).endswith("invoke push-train --again --config digits")
    local.kernels.version(other.handle, 1).done.set()  # it takes no slot; its status stays
    assert push(kaggle, ours, again=True).version == 1


def test_a_list_that_does_not_answer_is_said_as_not_asked(local, kaggle, ours):
    """A limited token, or a list that fails for days: the push goes on, and the plan says what is
    not known.
    """
    kaggle.pace = replace(kaggle.pace, patience=0.1)
    for answer in ("403", "429, Retry-After an hour"):
        local.faults.say("ListKernels", itertools.repeat(answer))
        plans: list[Any] = []

        push(kaggle, ours, again=True, agree=plans.append)

        (told,) = [line for line in plans[0].lines() if line.startswith("not asked ")]
        assert "what else runs: " in told and "notebooks" in told
        local.kernels.version(HANDLE, 1).done.set()


def test_a_slot_that_is_taken_is_no_quota_that_is_used_up(local, kaggle, ours):
    """By a notebook that Kaggle does not list. It is free once a run ends, before the week does."""
    push(kaggle, elsewhere(ours))
    local.faults.say("ListKernels", itertools.repeat("403"))

    with pytest.raises(NoQuota, match="To resume then:\ninvoke push-train") as caught:
        steps.trained(kaggle, ours, show=lambda line: None)

    assert "session count of 1" in str(caught.value) and "quota returns" not in str(caught.value)


# Another machine of Kaggle's


def test_the_pair_of_gpus_is_asked_for_while_the_tpu_version_waits(local, kaggle, ours, shown):
    """It is another push."""
    first = push(kaggle, ours)
    second = push(kaggle, replace(ours, runtime=PAIR), show=shown.append)

    assert (first.version, second.version) == (1, 2)
    assert second.machine_shape == "NvidiaTeslaT4" and not any("already" in one for one in shown)
    for project, run in ((ours, first), (replace(ours, runtime=PAIR), second)):
        assert push(kaggle, project, show=shown.append) == run
    assert sent(local) == 2
    assert shown[-1].startswith(f"{second} holds this bundle already, QUEUED on NvidiaTeslaT4")
    assert shown[-1].endswith("invoke push-train --again --config digits --for gpu-t4x2")


# Two windows


def test_two_pushes_of_one_project_at_a_time_send_one(local, kaggle, ours):
    """Also with --again."""

    def in_another_window(plan: Any) -> None:
        with pytest.raises(Busy, match="pushes from this project"):
            push(kaggle, ours, again=True)

    push(kaggle, ours, agree=in_another_window)

    assert sent(local) == 1 and Busy.exit_code == 7


def test_a_folder_that_cannot_be_locked_is_pushed_from(local, kaggle, ours, shown, monkeypatch):
    """As in a home over NFS or in some mounted drives."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)

    assert push(kaggle, ours, show=shown.append).version == sent(local)
    assert shown[0].startswith(
        f"{ours.runs / 'push.lock'} cannot be locked (Operation not supported)"
    )


# The week's quota: a session that runs reserves some, and an account may pay


def says(between: Between, **spans: Any) -> None:
    """Let Kaggle tell this of the TPU, and of no notebook."""
    between.always("GetAcceleratorQuotaStatistics", {"tpuQuota": spans})
    between.always("ListKernels", {})
    between.always("GetKernel", (404, {"code": 404, "message": "Not found"}))


def preview(ours: Project) -> Preview:
    return steps.looked(connect(), ours)


def test_a_session_asks_for_what_is_neither_used_nor_reserved(between, ours):
    """What is left is what `kaggle quota` prints: allowed minus used. What a session reserves that
    runs is named beside it.
    """
    says(between, totalTimeAllowed="72000s", timeUsed="36000s", timeReserved="18000s")

    seen = preview(ours)

    assert (seen.hours_left, seen.seconds) == (10.0, 5 * 3600)
    assert "10.0 hours are left this week, 5.0 of them reserved by what runs" in seen.lines()[1]
    told = "\n".join(status.state_lines(status.now(connect(), Records(ours))))
    assert "10.0 hours, 5.0 hours of them reserved" in told


def test_an_account_that_pays_is_warned_and_not_refused(between, ours):
    says(between, totalTimeAllowed="72000s", timeUsed="72000s", isPayToScaleEnabled=True)

    seen = preview(ours)

    assert seen.seconds == KERNELS[TRAIN].seconds
    assert "0.0 hours are left this week; beyond them Kaggle charges" in seen.lines()[1]

"""Another machine, a browser or another window pushes too: nothing is sent twice."""

from dataclasses import replace
from typing import Any

import pytest

from deploy import status
from deploy.errors import Busy, NoSlot
from deploy.preview import Preview
from deploy.project import KERNELS, PAIR, TRAIN, Project
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.between import Between
from tests.deploy.small import connect, push, sent
from tests.deploy.trainer import Script


@pytest.fixture
def local(host):
    """A Kaggle whose runs wait in a queue for ever."""
    return host(queue_seconds=3600.0, session=Script())


@pytest.fixture
def kaggle(local):
    return connect()


# Runs that take the last slot


def test_a_push_waits_for_the_slot_that_another_run_takes(local, kaggle, ours):
    """Kaggle may report a session that has ended as active for ever: --again pushes anyway."""
    other = push(kaggle, replace(ours, slug="other"))

    with pytest.raises(NoSlot, match=f"active: {other}.*\n.*\ninvoke watch --run") as caught:
        push(kaggle, ours)

    assert sent(local) == 1 and f"https://www.kaggle.com/code/{other.handle}\n" in str(caught.value)
    assert str(caught.value).endswith("invoke push-train --again --config digits")
    local.kernels.version(other.handle, 1).done.set()  # frees the slot; its status stays
    assert push(kaggle, ours, again=True).version == 1


def test_a_run_from_another_machine_takes_the_slot_until_it_ends(local, kaggle, ours):
    """Kaggle refuses the push, which spends nothing; the week's quota is not used up."""
    push(kaggle, replace(ours, runs=ours.root / "other runs", slug="other"))

    with pytest.raises(NoSlot, match="To resume then:\ninvoke push-train") as caught:
        steps.trained(kaggle, ours)

    assert "session count of 1" in str(caught.value) and "quota resets" not in str(caught.value)


# Another machine of Kaggle's


def test_two_gpus_can_be_requested_while_the_tpu_version_waits(local, kaggle, ours, shown):
    """They are two pushes."""
    first = push(kaggle, ours)
    second = push(kaggle, replace(ours, runtime=PAIR), show=shown.append)

    assert (first.version, second.version) == (1, 2)
    assert second.machine_shape == "NvidiaTeslaT4" and not any("already" in one for one in shown)
    for project, run in ((ours, first), (replace(ours, runtime=PAIR), second)):
        assert push(kaggle, project, show=shown.append) == run
    assert sent(local) == 2
    assert shown[-1].startswith(f"{second} already has this bundle and is QUEUED on NvidiaTeslaT4")
    assert shown[-1].endswith("invoke push-train --again --config digits --for gpu-t4x2")


# Two windows


def test_two_pushes_of_one_project_at_a_time_send_one(local, kaggle, ours):
    """Also with --again."""

    def in_another_window(plan: Any) -> None:
        with pytest.raises(Busy, match="pushing from this project"):
            push(kaggle, ours, again=True)

    push(kaggle, ours, agree=in_another_window)

    assert sent(local) == 1 and Busy.exit_code == 7


# The week's quota: a session that runs reserves some, and an account may pay


def says(between: Between, **spans: Any) -> None:
    """Let Kaggle tell this of the TPU, and of no notebook."""
    between.always("GetAcceleratorQuotaStatistics", {"tpuQuota": spans})
    between.always("ListKernels", {})
    between.always("GetKernel", (404, {"code": 404, "message": "Not found"}))


def preview(ours: Project) -> Preview:
    return steps.looked(connect(), ours)


def test_a_session_asks_for_what_is_neither_used_nor_reserved(between, ours):
    """The hours left are those of `kaggle quota`: allowed minus used. What running sessions reserve
    is shown beside them.
    """
    says(between, totalTimeAllowed="72000s", timeUsed="36000s", timeReserved="18000s")

    seen = preview(ours)

    assert (seen.hours_left, seen.seconds) == (10.0, 5 * 3600)
    said = "10.0 hours are left this week, of which running sessions reserve 5.0"
    assert said in seen.lines()[1]
    told = "\n".join(status.state_lines(status.now(connect(), Records(ours))))
    assert "10.0 hours, of which running sessions reserve 5.0 hours" in told


def test_a_paying_account_is_warned_and_not_refused(between, ours):
    says(between, totalTimeAllowed="72000s", timeUsed="72000s", isPayToScaleEnabled=True)

    seen = preview(ours)

    assert seen.seconds == KERNELS[TRAIN].seconds
    assert "0.0 hours are left this week; Kaggle charges this account" in seen.lines()[1]

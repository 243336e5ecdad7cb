"""Ordinary days of a week's quota: a session that runs reserves some, and an account may pay."""

from typing import Any

from deploy.client.client import Kaggle
from deploy.project import Project
from deploy.relay import push_preview, relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.facts import Facts
from tests.deploy.between import Between
from tests.deploy.ordinary.test_watching import Held
from tests.deploy.small import connect, push

HOUR = 3600.0


def preview(kaggle: Kaggle, ours: Project, kernel: str = relay.TRAIN) -> push_preview.Preview:
    return push_preview.look(kaggle, relay.build(ours, kernel, kaggle.username), Pushes(ours))


def says(between: Between, **spans: Any) -> None:
    """Let Kaggle tell this of the TPU, and of no notebook."""
    between.always("GetAcceleratorQuotaStatistics", {"tpuQuota": spans})
    between.always("ListKernels", {})
    between.always("GetKernel", (404, {"code": 404, "message": "Not found"}))


def test_what_is_left_is_what_kaggle_quota_prints(kaggle, between, ours):
    """Allowed minus used: what a session reserves that runs is named beside it, and is no end."""
    says(between, totalTimeAllowed="72000s", timeUsed="36000s", timeReserved="36000s")

    seen = preview(kaggle, ours)

    assert seen.hours_left == 10.0
    assert "10.0 hours are left this week, 10.0 of them reserved by what runs" in seen.lines()[1]
    found = status.now(kaggle, ours)
    assert any(
        "10.0 hours, 10.0 hours of them reserved" in line for line in status.state_lines(found)
    )


def test_a_session_asks_for_what_is_neither_used_nor_reserved(kaggle, between, ours):
    says(between, totalTimeAllowed="72000s", timeUsed="36000s", timeReserved="18000s")

    assert preview(kaggle, ours).seconds == 5 * HOUR


def test_an_account_that_pays_is_warned_and_not_refused(kaggle, between, ours):
    says(between, totalTimeAllowed="72000s", timeUsed="72000s", isPayToScaleEnabled=True)

    seen = preview(kaggle, ours)

    assert seen.seconds == push_preview.SESSION_SECONDS
    assert "0.0 hours are left this week; beyond them Kaggle charges" in seen.lines()[1]


def test_a_push_asks_for_less_than_the_longest_session_even_past_the_quota(host, ours):
    """Kaggle's own client says that the timeout must be lower than the maximum."""
    local = host(session=Held, facts=Facts(lower_timeouts=True, pays=True))
    local.kernels.used_seconds["TPU"] = 21 * HOUR

    run = push(connect(), ours)

    asked = local.kernels.version(run.handle, run.version).request.session_timeout_seconds
    assert 8.9 * HOUR < asked < local.session_seconds["TPU"]

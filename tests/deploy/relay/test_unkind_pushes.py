"""Reported trouble with pushes and watches on Kaggle."""

from dataclasses import replace

import pytest

from deploy import push as push_steps
from deploy import status
from deploy.connection import Pace
from deploy.errors import NoQuota, Refused
from deploy.project import INFER, TRAIN
from deploy.records import Records
from localkaggle.facts import Facts
from localkaggle.faults import instead
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, ended, push, sent
from tests.deploy.trainer import Script, unbroken

# What was just pushed is new for four seconds, and may be called saved only for two minutes.
PACE = Pace(first=0.02, most=2, patience=60)
WEEK, SESSION = 20 * 3600.0, 9 * 3600 - 60
QUOTA, NOTHING = "GetAcceleratorQuotaStatistics", instead(200, {})


@pytest.fixture
def site(host):
    """Return what starts a Kaggle with these facts, whose sessions do what a script says, and logs
    in.
    """

    def begin(script=None, **facts):
        local = host(ready_seconds=0.05, session=script or Script(), facts=Facts(**facts))
        return local, connect(pace=PACE)

    return begin


def refused_for_quota(local, kaggle, ours, **more):
    """Push while Kaggle has no time left, and does not say so when it is asked."""
    local.faults.say(QUOTA, [NOTHING])
    local.kernels.used_seconds["TPU"] = WEEK
    with pytest.raises(NoQuota, match="weekly TPU quota"):
        push(kaggle, ours, **more)
    local.kernels.used_seconds["TPU"] = 0.0


# A first push that was refused leaves a notebook without a version


def test_a_notebook_without_a_version_is_named_with_both_ways_out(site, ours):
    """Exit code 4, after the retries."""
    local, kaggle = site(refused_push="shell")
    refused_for_quota(local, kaggle, ours)

    for again in (False, True):
        with pytest.raises(Refused, match=rf"(?s)code/{HANDLE}.*relay\.toml:\n\[slugs\]") as caught:
            push(kaggle, ours, again=again)
        assert caught.value.exit_code == 4 and sent(local) == 1

    other = push(kaggle, replace(ours, slug="digits-2"))
    assert other.handle == "rehearsal/digits-2-train-tpu"
    del local.kernels.kernels[HANDLE]  # by hand, on its page
    assert local.kernels.version(other.handle, 1).done.wait(60)
    assert str(push(kaggle, ours)) == f"{HANDLE}/1"


# A push that was refused, and stored its source


def test_the_leftover_of_a_refused_push_is_not_a_run(site, ours):
    """It stays QUEUED for ever. A run in the queue is still adopted, and a complete one counts
    although a later push of it was refused.
    """
    local, kaggle = site(script := Script(v2="waits"), refused_push="source")
    refused_for_quota(local, kaggle, ours)
    assert local.kernels.version(HANDLE, 1).status == "QUEUED"

    run = push(kaggle, ours)

    assert run.version == 2 and push(kaggle, ours) == run
    script.released.set()
    ended(local, 2)
    refused_for_quota(local, kaggle, ours, again=True)
    built = steps.built(ours, TRAIN, "rehearsal")
    assert steps.done(push_steps.recorded(kaggle, Records(ours), built)) == (run, "COMPLETE")


# A version that is called saved only right after its push


def test_a_new_version_that_looks_like_a_draft_is_waited_for(site, ours, shown):
    """The TPU once ran on unwatched. Meanwhile a second push is refused, or finds it."""
    local, kaggle = site(Script(v1="complete"), new_script_seconds=4.0)
    run = push(kaggle, ours)

    with pytest.raises(NoQuota, match=f"active: {run}"):
        push(kaggle, replace(ours, slug="other"))
    assert status.now(kaggle, Records(ours))["runs"] == {str(run): "QUEUED"}
    assert push(kaggle, ours) == run
    assert steps.watched(kaggle, ours, run, show=shown.append) == "COMPLETE"
    assert any(line.endswith("NEW_SCRIPT") for line in shown)
    assert steps.trained(kaggle, ours).run == run and sent(local) == 1


def test_a_run_that_failed_is_pushed_again(site, ours):
    local, kaggle = site(Script(v1="fails"))
    push(kaggle, ours)
    ended(local)

    assert push(kaggle, ours).version == sent(local) == 2


def test_restored_code_finds_its_earlier_run(site, ours):
    """A newer version has other code."""
    local, kaggle = site(Script(v1="complete", v2="complete"))
    model, first = ours.root / "pipeline" / "model.py", push(kaggle, ours)
    ended(local)
    text = model.read_text()
    model.write_text(f"{text}\ntried = True\n")
    assert push(kaggle, ours).version == 2
    ended(local, 2)
    model.write_text(text)

    assert push(kaggle, ours) == first and sent(local) == 2


# Addresses


def test_a_new_address_that_begins_with_a_digit_names_the_edit(site, ours):
    """Kaggle answers that the notebook was not found. An existing one is kept."""
    _, kaggle = site(leading_digit=False)

    with pytest.raises(Refused, match=r"(?s)starts with a digit.*relay\.toml:\n\[slugs\]"):
        push(kaggle, replace(ours, slug="2026-digits"))

    assert push(kaggle, replace(ours, slug="k-2026-digits")).version == 1


@pytest.mark.parametrize("facts", [{"other_slug": "-9"}, {"prefixes": True}])
def test_the_same_push_finds_its_run(site, ours, facts):
    """At another address; and from another machine without its journal, whatever prefixes Kaggle
    gives its sources.
    """
    local, kaggle = site(Script(v1="complete"), **facts)
    again = ours if "other_slug" in facts else replace(ours, runs=ours.root / "other runs")

    run = push(kaggle, ours)

    assert push(kaggle, again) == run == Records(again).last_run(TRAIN)
    assert run.handle == HANDLE + facts.get("other_slug", "") and sent(local) == 1


def test_a_notebook_at_another_address_is_followed_there(site, ours, shown):
    """Through all sessions of a training."""
    local, kaggle = site(script := Script(), other_slug="-9")
    other = f"{HANDLE}-9"

    done = steps.trained(kaggle, ours, show=shown.append)

    assert (done.folder / "artifact" / "weights.npz").read_bytes() == unbroken()
    assert str(done.run) == f"{other}/3" and list(local.kernels.kernels) == [other]
    assert script.sources[3] == [f"notebooks/{other}"]
    assert sum("Kaggle changed" in line for line in shown) == 1
    infer = replace(ours, handoff="kernel")
    built = steps.built(infer, INFER, "rehearsal", artifact=done.folder / "artifact")
    assert built.metadata["kernel_sources"] == [other]


# The week's quota


@pytest.mark.parametrize(
    ("left", "facts", "asked"),
    [
        (3 * 3600, {"reserves": True}, 3 * 3600),
        (12 * 3600, {"reserves": True}, SESSION),
        # Kaggle's own client says that the timeout must be lower than the maximum.
        (-3600, {"lower_timeouts": True, "pays": True}, SESSION),
        (None, {}, SESSION),
    ],
)
def test_a_session_never_asks_for_more_time_than_is_left(site, ours, left, facts, asked):
    """Kaggle may reserve all of it, which the preview shows. If Kaggle does not say what is left,
    it decides.
    """
    local, kaggle = site(**facts)
    if left is None:
        local.faults.say(QUOTA, [NOTHING])
    else:
        local.kernels.used_seconds["TPU"] = WEEK - left
    previews = []

    run = push(kaggle, ours, agree=previews.append)

    request = local.kernels.version(run.handle, run.version).request
    short = asked < SESSION
    assert request.session_timeout_seconds == asked < local.session_seconds["TPU"]
    assert ("is limited to this" in previews[0].lines()[1]) == short
    assert (f'\\"session_seconds\\": {asked}' in request.text) == short

"""What was reported of pushes and watches on the site: it happens here, and the relay goes on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import NoQuota, Refused, RunFailed, UsageError
from deploy.kernel import push_and_watch
from deploy.project import Project
from deploy.relay import chained_sessions, reconcile, relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.facts import Facts
from localkaggle.fault_kinds import instead
from localkaggle.server import LocalKaggle
from tests.deploy.trainer import Script, unbroken
from tests.faults.world import competition

HANDLE = "rehearsal/digits-train-tpu"
# What was just pushed is new for four seconds, and may be called saved only for two minutes.
PACE = Pace(first=0.02, most=2, patience=60)
WEEK = 20 * 3600.0
Start = Callable[..., tuple[LocalKaggle, Kaggle]]


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=60
    )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a Kaggle with these facts, and logs in.

    Its sessions do what a script says.
    """
    with ExitStack() as stack:

        def begin(script: Script | None = None, **facts: object) -> tuple[LocalKaggle, Kaggle]:
            local = stack.enter_context(
                LocalKaggle(
                    tmp_path / "kaggle",
                    competitions=[competition()],
                    offline=True,
                    queue_seconds=0.01,
                    ready_seconds=0.05,
                    session=script or Script(),  # type: ignore[arg-type]
                    facts=Facts(**facts),  # type: ignore[arg-type]
                )
            )
            for name, value in local.environment.items():
                monkeypatch.setenv(name, value)
            return local, Kaggle.connect(pace=PACE)

        yield begin


@pytest.fixture
def push(shown) -> Callable[..., push_and_watch.Run]:
    """Return the push of a training."""
    return lambda kaggle, project, **more: relay.push(
        kaggle, project, relay.TRAIN, show=shown.append, **more
    )


def sent(local: LocalKaggle) -> int:
    """Return how many pushes arrived."""
    return [line[0] for line in local.journal].count("SaveKernel")


def refused_for_quota(local: LocalKaggle, push: Callable[[], object]) -> None:
    """Push while Kaggle has no time left, and does not say so when it is asked."""
    local.faults.plan({})
    local.faults.say("GetAcceleratorQuotaStatistics", [instead(200, {})])
    local.kernels.used_seconds["TPU"] = WEEK
    with pytest.raises(NoQuota, match="weekly TPU quota"):
        push()
    local.kernels.used_seconds["TPU"] = 0.0


# A first push that was refused leaves a notebook without a version


def test_a_notebook_without_a_version_is_named_with_both_ways_out(start, ours, push):
    """Exit code 4, at once: nobody can wait for it to become well."""
    local, kaggle = start(refused_push="shell")
    refused_for_quota(local, partial(push, kaggle, ours))
    before = sent(local)

    for again in (False, True):
        with pytest.raises(Refused, match=f"kaggle.com/code/{HANDLE}") as caught:
            push(kaggle, ours, again=again)
        assert caught.value.exit_code == 4 and "relay.toml:\n[slugs]" in str(caught.value)

    assert sent(local) == before
    assert push(kaggle, replace(ours, slug="digits-2")).handle == "rehearsal/digits-2-train-tpu"
    del local.kernels.kernels[HANDLE]  # by hand, on its page
    version = local.kernels.version("rehearsal/digits-2-train-tpu", 1)
    assert version is not None and version.done.wait(60)
    assert str(push(kaggle, ours)) == f"{HANDLE}/1"


def test_one_error_about_a_notebook_that_is_not_there_is_no_such_notebook(start, ours, push):
    """A blip: Kaggle answers 404 about the status of what does not exist, too."""
    local, kaggle = start()
    local.faults.plan({})
    local.faults.say("GetKernel", ["500", "500", None, "500", "500"])
    local.faults.say("GetKernelSessionStatus", ["404"] * 4)

    assert push(kaggle, ours).version == 1


# A push that was refused, and stored its source


def test_what_a_refused_push_stored_is_not_taken_for_a_run(start, ours, push, shown):
    """It says QUEUED for ever; and a run that waits for a machine is still adopted."""
    local, kaggle = start(refused_push="source")
    refused_for_quota(local, partial(push, kaggle, ours))
    stored = local.kernels.version(HANDLE, 1)
    assert stored is not None and stored.status == "QUEUED"

    run = push(kaggle, ours)

    assert run.version == 2 and push(kaggle, ours) == run
    assert relay.watch(kaggle, ours, run, show=shown.append) == "COMPLETE"


def test_a_complete_run_counts_although_a_later_push_of_it_was_refused(start, ours, push, shown):
    """What `--again` could not run is behind it."""
    local, kaggle = start(refused_push="source")
    run = push(kaggle, ours)
    relay.watch(kaggle, ours, run, show=shown.append)
    refused_for_quota(local, partial(push, kaggle, ours, again=True))

    assert reconcile.existing_run(
        kaggle, Pushes(ours), relay.build(ours, relay.TRAIN, "rehearsal"), show=shown.append
    ) == (run, "COMPLETE")


# A version that is called saved only right after its push


def test_a_version_that_is_said_to_be_saved_only_is_waited_for(start, ours, push, shown):
    """The TPU ran on, and nobody watched it; a second push is refused meanwhile, or finds it."""
    _, kaggle = start(new_script_seconds=1.0)
    run = push(kaggle, ours)

    assert status.now(kaggle, ours)["runs"] == {str(run): "QUEUED"}
    assert push(kaggle, ours) == run
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")
    with pytest.raises(NoQuota, match=f"active: {run}"):
        push(kaggle, ours)
    assert relay.watch(kaggle, ours, run, show=shown.append) == "COMPLETE"
    assert any(line.endswith("NEW_SCRIPT") for line in shown)


def test_a_chain_that_is_given_again_meanwhile_pushes_nothing(start, ours, shown):
    """It took the version for one that had ended and saved nothing."""
    local, kaggle = start(new_script_seconds=0.5)
    relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert (done.run.version, sent(local)) == (3, 3)


def test_a_version_that_never_starts_ends_the_watch(start, ours, push, shown):
    """After ten minutes, here a moment; it can be pushed again then."""
    _, kaggle = start(new_script_seconds=3600)
    kaggle.pace = replace(PACE, patience=0.2)
    run = push(kaggle, ours)

    with pytest.raises(RunFailed, match=r"was saved and not run.*(.|\n)*invoke push-train"):
        relay.watch(kaggle, ours, run, show=shown.append)


def test_a_run_that_failed_is_pushed_again(start, ours, push):
    local, kaggle = start(Script(v1="fails"))
    run = push(kaggle, ours)
    with pytest.raises(RunFailed):
        relay.watch(kaggle, ours, run, show=lambda line: None)

    assert push(kaggle, ours).version == sent(local) == 2


def test_a_push_says_that_it_wants_a_run(start, ours, push, shown):
    """A site was seen that saves where nothing is said."""
    _, kaggle = start(default_execution="saved")

    assert relay.watch(kaggle, ours, push(kaggle, ours), show=shown.append) == "COMPLETE"


# Addresses


def test_a_new_address_that_begins_with_a_digit_is_refused_before_it_is_sent(start, ours, push):
    """Kaggle would say that the notebook was not found; the edit helps."""
    local, kaggle = start(leading_digit=False)
    ours = replace(ours, slug="2026-digits")

    with pytest.raises(UsageError, match=r'\[slugs\]\ndigits = "k-digits"') as caught:
        push(kaggle, ours)

    assert caught.value.exit_code == 2 and sent(local) == 0
    assert push(kaggle, replace(ours, slug="k-2026-digits")).version == 1


def test_an_address_that_begins_with_a_digit_and_is_there_stays(start, ours, push, shown):
    """Who has pushed to it already loses nothing."""
    local, kaggle = start()
    run = push(kaggle, replace(ours, slug="k-digits"))
    relay.watch(kaggle, ours, run, show=shown.append)
    kernel = local.kernels.kernels.pop(run.handle)
    kernel.slug = "2026-digits-train-tpu"
    local.kernels.kernels[f"rehearsal/{kernel.slug}"] = kernel

    assert push(kaggle, replace(ours, slug="2026-digits"), again=True).version == 2


def test_a_notebook_at_another_address_is_followed_there(start, ours, shown):
    """All sessions of a training, and what each finds of the one before."""
    local, kaggle = start(script := Script(), other_slug="-9")

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert (done.folder / "artifact" / "weights.npz").read_bytes() == unbroken()
    assert str(done.run) == f"{HANDLE}-9/3" and list(local.kernels.kernels) == [f"{HANDLE}-9"]
    assert script.sources[3] == [f"notebooks/{HANDLE}-9"]
    assert sum("another address" in line for line in shown) == 1
    infer = replace(ours, handoff="kernel")
    built = relay.build(infer, relay.INFER, "rehearsal", artifact=done.folder / "artifact")
    assert built.metadata["kernel_sources"] == [f"{HANDLE}-9"]


def test_the_same_push_finds_its_run_at_the_other_address(start, ours, push):
    """The address is no part of what a bundle is."""
    local, kaggle = start(other_slug="-9")

    run = push(kaggle, ours)

    assert str(run) == f"{HANDLE}-9/1" == str(Pushes(ours).last_run(relay.TRAIN))
    assert push(kaggle, ours) == run and sent(local) == 1


@pytest.mark.parametrize("prefixes", [True, False])
def test_a_push_is_found_whatever_kaggle_calls_its_sources(start, ours, push, prefixes):
    """From another machine, too, which has no journal of it."""
    local, kaggle = start(prefixes=prefixes)
    first = push(kaggle, ours)

    assert push(kaggle, replace(ours, runs=ours.root / "other runs")) == first
    assert sent(local) == 1


# The week's quota


@pytest.mark.parametrize(("left", "asked"), [(3 * 3600, 3 * 3600), (12 * 3600, 9 * 3600 - 60)])
def test_no_more_time_is_asked_for_than_is_left(start, ours, push, left, asked):
    """A site may reserve all of it; and that is said before the push."""
    local, kaggle = start(reserves=True)
    local.kernels.used_seconds["TPU"] = WEEK - left
    previews = []

    run = push(kaggle, ours, agree=previews.append)

    version = local.kernels.version(run.handle, run.version)
    assert version is not None and version.request.session_timeout_seconds == asked
    short = asked < 9 * 3600 - 60
    assert ("asks for no more" in previews[0].lines()[1]) == short
    assert (f'\\"session_seconds\\": {asked}' in version.request.text) == short


def test_without_a_word_about_the_quota_a_whole_session_is_asked_for(start, ours, push):
    """Kaggle decides then."""
    local, kaggle = start()
    local.faults.plan({})
    local.faults.say("GetAcceleratorQuotaStatistics", [instead(200, {})])

    run = push(kaggle, ours)

    version = local.kernels.version(run.handle, run.version)
    assert version is not None and version.request.session_timeout_seconds == 9 * 3600 - 60


# What comes late, and what is lost


def test_a_version_that_calls_do_not_know_yet_is_found_after_a_lost_answer(
    start, ours, push, shown
):
    """Within two minutes, here four seconds; it was given up after three looks."""
    local, kaggle = start(versions_seconds=1.0)
    local.faults.plan({})
    local.faults.say("SaveKernel", ["reset after"])

    run = push(kaggle, ours)

    assert (run.version, sent(local)) == (1, 1)
    assert relay.watch(kaggle, ours, run, show=shown.append) == "COMPLETE"


def test_what_a_killed_session_lost_is_said_and_the_one_before_it_counts(start, ours, shown):
    """Kaggle kept nothing of the second: the third goes on from the first, by the other route."""
    _, kaggle = start(script := Script(v2="killed"), killed_output=False)

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert (done.folder / "artifact" / "weights.npz").read_bytes() == unbroken()
    said = f"{HANDLE}/2 ended as ERROR and left no output: what it did until step 8 of 12 is lost"
    assert said in shown
    assert script.sources[3] == ["datasets/rehearsal/digits-checkpoint"]
    assert any(line.startswith(f"{HANDLE}/1 is partial, step 5 of 12. Resum") for line in shown[5:])

"""A training that is longer than a session resumes in the next one, whatever ended the last, and
wastes no quota.
"""

import json
import time
from dataclasses import replace

import pytest

from deploy import output, sessions, status
from deploy.errors import NoQuota, RunFailed, UsageError
from deploy.journal import PUSH
from deploy.project import INFER
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, ended, push
from tests.deploy.trainer import Script, unbroken

OWN, DATASET = [f"notebooks/{HANDLE}"], ["datasets/rehearsal/digits-checkpoint"]
FOLLOWING = "invoke push-train --until-done --config digits"


@pytest.fixture
def start(host):
    """Return what starts a Kaggle whose sessions do what a script says, and signs in."""

    def begin(script=None, **options):
        return host(session=script or Script(), **options), connect()

    return begin


@pytest.fixture
def train(ours, shown):
    """Return what trains until it is done."""
    return lambda kaggle, project=ours, **more: steps.trained(
        kaggle, project, **{"show": shown.append, **more}
    )


@pytest.fixture
def one(ours, shown):
    """Return what pushes one session, waits for its end, and returns its run."""

    def pushed(kaggle, project=ours, **options):
        run = push(kaggle, project, **options)
        try:
            steps.watched(kaggle, project, run, show=shown.append)
        except RunFailed as error:
            shown.append(str(error))
        return run

    return pushed


@pytest.fixture
def on_the_pair(ours):
    """Return the project with its training on the pair of T4."""
    return replace(ours, runtime="gpu-t4x2")


def is_whole(done):
    return (done.folder / "artifact" / "weights.npz").read_bytes() == unbroken()


def statuses(local):
    return [version.status for version in local.kernels.kernels[HANDLE].versions]


def machines(local):
    return [version.shape for version in local.kernels.kernels[HANDLE].versions]


def test_three_sessions_end_with_what_one_long_session_gives(start, ours, train, shown):
    """Each finds the output of the one before it, and what was asked is agreed to once."""
    local, kaggle = start(script := Script())
    asked = []

    done = train(kaggle, agree=asked.append)

    assert is_whole(done) and (done.run.version, done.sessions) == (3, 3)
    assert statuses(local) == ["COMPLETE"] * 3 and len(asked) == 1
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    resumed = f"{HANDLE}/1 is partial, step 5 of 12. Resuming from it, through its own output"
    assert any(line.startswith(resumed) and line.endswith("--fresh") for line in shown)
    left = [row.left for row in Records(ours).journal.requests(PUSH)]
    assert left == ["complete", "partial, step 10 of 12", "partial, step 5 of 12"]


def test_a_training_that_began_on_the_tpu_resumes_on_the_pair(start, ours, one, train, on_the_pair):
    """The same notebook, whose own output has the checkpoint; the quota is another."""
    local, kaggle = start(script := Script())
    one(kaggle)
    local.kernels.used_seconds["TPU"] = 20 * 3600
    with pytest.raises(NoQuota, match=r"invoke push-train --config digits --for gpu-t4x2$"):
        push(kaggle, ours)

    done = train(kaggle, on_the_pair)

    assert is_whole(done) and done.run.version == 3
    assert machines(local) == ["TpuV5E8", "NvidiaTeslaT4", "NvidiaTeslaT4"]
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    kept = [row.machine_shape for row in Records(ours).journal.requests(PUSH)]
    assert kept[-1:] + kept[:2] == machines(local)


def test_a_training_on_the_other_machine_is_not_begun_again(start, ours, on_the_pair):
    """Only --again trains twice."""
    local, kaggle = start(Script(v1="complete"))
    first = push(kaggle, ours)
    ended(local)

    assert push(kaggle, on_the_pair) == first
    assert machines(local) == ["TpuV5E8"]
    assert push(kaggle, on_the_pair, again=True).version == 2
    assert machines(local)[-1] == "NvidiaTeslaT4"


def test_what_follows_a_training_on_the_pair_is_on_the_pair(on_the_pair):
    """The commands that a user types next."""
    assert on_the_pair.command("push-train --until-done") == f"{FOLLOWING} --for gpu-t4x2"
    assert on_the_pair.command("watch") == "invoke watch --config digits"


def test_a_training_that_is_complete_is_not_trained_again(start, ours, train, shown):
    """The same command, the push alone, and the steps after it find what there is: whatever Kaggle
    says once of a session, and whichever output is gone here; that is pulled again.
    """
    local, kaggle = start()
    first = train(kaggle)

    assert train(kaggle).run == push(kaggle, ours) == first.run
    assert steps.published(kaggle, ours, first.folder, show=shown.append).version == 1
    local.faults.say("GetKernelSessionStatus", ["404"])
    assert push(kaggle, ours) == first.run
    for stays in (first.folder, None):
        for path in sorted(ours.runs.glob("digits-train-tpu-v*")):
            if path != stays:
                path.rename(path.with_name(f"without-{stays and stays.name}-{path.name}"))
        assert is_whole(train(kaggle))
    assert len(statuses(local)) == 3


BAD, GOOD = "ERROR", "COMPLETE"


@pytest.mark.parametrize(
    ("does", "options", "ends", "sources"),
    [
        # A killed one has no list of its files, and Kaggle mounts an older output: its checkpoints
        # go by a dataset, and only those.
        ({"v1": "killed", "v3": "killed"}, {}, [BAD, GOOD, BAD, GOOD], [[], DATASET, OWN, DATASET]),
        # One that saved nothing new is bypassed: the one before it is resumed from by that route.
        ({"v2": "fails"}, {}, [GOOD, BAD, GOOD, GOOD], [[], OWN, DATASET, DATASET]),
        # A Kaggle that refuses a notebook as its own source is not asked for that again.
        ({}, {"own_output": False}, [GOOD, BAD, GOOD, GOOD], [[], [], DATASET, DATASET]),
    ],
    ids=["killed", "fails", "not its own source"],
)
def test_a_session_that_is_lost_loses_no_more_than_its_own_steps(
    start, train, shown, does, options, ends, sources
):
    local, kaggle = start(script := Script(**does), **options)

    assert is_whole(train(kaggle))

    assert statuses(local) == ends and list(script.sources.values()) == sources
    through = "step 11 of 12. Resuming from it, through a dataset"
    assert any(through in line for line in shown) == ("v1" in does)


def test_two_sessions_that_get_no_further_are_the_last(start, train):
    """Exit code 1, and no quota is spent on a third; once something was fixed, the same command
    tries again.
    """
    local, kaggle = start(script := Script(v2="fails", v3="fails"))

    with pytest.raises(RunFailed, match="no further than the checkpoint of version 1") as caught:
        train(kaggle)

    assert caught.value.exit_code == 1 and len(statuses(local)) == 3
    assert "the batch does not fit" in str(caught.value)
    assert is_whole(train(kaggle)) and script.sources[4] == DATASET


def test_sessions_too_short_for_a_step_do_not_repeat_for_ever(start, train):
    """They end well, and the run stands still."""
    local, kaggle = start(Script(v2="no step", v3="no step"))

    with pytest.raises(RunFailed, match="session_hours is too short"):
        train(kaggle)

    assert statuses(local) == ["COMPLETE"] * 3


def test_a_command_that_was_killed_resumes_and_makes_no_version_twice(start, ours, train, shown):
    """In the second session; tests/faults kills processes."""
    local, kaggle = start(Script(v2="killed"))

    class Killed(BaseException):
        pass

    def show(line):
        shown.append(line)
        if len(shown) == 13:
            raise Killed

    with pytest.raises(Killed):
        train(kaggle, show=show)
    for kernel in local.kernels.kernels.values():
        assert all(version.done.wait(60) for version in kernel.versions)
    steps.resolved(kaggle, ours, show=shown.append)

    assert is_whole(train(kaggle)) and statuses(local) == ["COMPLETE", "ERROR", "COMPLETE"]


def test_an_active_run_is_followed_whatever_was_edited(start, ours, train, shown):
    """A chain that is given again does not push beside itself; for the sessions that follow it
    asks.
    """
    local, kaggle = start(script := Script(v1="waits"))
    first, asked = push(kaggle, ours), []
    while statuses(local) == ["QUEUED"]:
        time.sleep(0.01)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")

    def show(line):
        shown.append(line)
        if line.endswith("following it."):
            script.released.set()

    assert is_whole(train(kaggle, show=show, agree=asked.append))
    assert (len(statuses(local)), len(asked)) == (3, 1)
    assert f"{first} is RUNNING; following it." in shown


# By hand


@pytest.fixture
def by_hand(one, ours, shown):
    def pulled(kaggle, project=ours):
        run = one(kaggle, project)
        return run, steps.pulled(kaggle, project, run, show=shown.append)

    return pulled


def test_the_same_commands_by_hand_resume_too(start, ours, by_hand, on_the_pair, shown):
    """Push, watch, pull, and push again; each says how far the run is, and where it goes on."""
    _, kaggle = start()
    run, folder = by_hand(kaggle, on_the_pair)
    following = f"{FOLLOWING} --for gpu-t4x2"

    assert steps.done(sessions.progress_of(kaggle, run)) == "partial, step 5 of 12"
    assert steps.following(ours, run, folder) == following
    with pytest.raises(UsageError, match=rf"1 is partial, step 5 of 12(.|\n)*{following}"):
        steps.published(kaggle, ours, folder, show=shown.append)
    with pytest.raises(UsageError, match=following):
        push(kaggle, ours, INFER, artifact=folder / output.ARTIFACT)
    found = status.now(kaggle, Records(ours))
    assert found["runs"] == {str(run): "COMPLETE, partial, step 5 of 12"}
    assert status.state_lines(found)[-1] == f"Next: {following}"
    assert "partial, step 5 of 12" in steps.journal_lines(ours)[2]

    by_hand(kaggle)
    run, folder = by_hand(kaggle)

    assert run.version == 3
    assert steps.following(ours, run, folder) == "invoke publish --config digits"
    assert "pushed, resuming from version 2; COMPLETE" in steps.journal_lines(ours)[2]


def test_fresh_begins_again(start, ours, one, by_hand, shown):
    """And what follows resumes from that."""
    _, kaggle = start(script := Script(v2="killed"))
    by_hand(kaggle)
    one(kaggle, fresh=True)

    base = steps.done(sessions.training_state(kaggle, Records(ours))).base

    assert script.sources[2] == []
    assert (base.run.version, str(base.progress)) == (2, "partial, step 3 of 12")


def test_curves_that_were_changed_here_keep_no_training_from_going_on(start, ours, by_hand):
    """The session is told to take the other files alone; it would refuse these."""
    _, kaggle = start()
    _, folder = by_hand(kaggle)
    (folder / "progress.jsonl").write_text('{"step": 5, "steps": 99}\n')

    run = push(kaggle, ours)

    cells = json.loads(kaggle.get_kernel(run.handle).text)["cells"]
    texts = ("".join(cell["source"]) for cell in cells)
    (text,) = (text for text in texts if text.startswith("%%writefile bundle.json"))
    names = {
        name.rpartition("/")[2] for name in json.loads(text.partition("\n")[2])["expect"]["files"]
    }
    assert run.version == 2 and "state.npz" in names and "progress.jsonl" not in names

"""A training that is longer than a session resumes in the next one, whatever ended the last, and
wastes no quota.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import NoQuota, RunFailed, UsageError
from deploy.kernel import output, push_and_watch
from deploy.project import Project
from deploy.relay import chained_sessions, continuation, reconcile, relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.server import LocalKaggle
from tests.deploy.trainer import Script, unbroken
from tests.faults.world import competition

HANDLE = "rehearsal/digits-train-tpu"
OWN, DATASET = ["notebooks/rehearsal/digits-train-tpu"], ["datasets/rehearsal/digits-checkpoint"]
PACE = Pace(first=0.02, most=0.05, patience=5)
Start = Callable[..., tuple[LocalKaggle, Kaggle]]


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=60
    )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a Kaggle whose sessions do what a script says, and signs in."""
    with ExitStack() as stack:

        def begin(script: Script, **options: object) -> tuple[LocalKaggle, Kaggle]:
            options = {
                "queue_seconds": 0.01,
                "ready_seconds": 0.05,
                "competitions": [competition()],
                **options,
            }
            local = stack.enter_context(
                LocalKaggle(tmp_path / "kaggle", offline=True, session=script, **options)
            )  # type: ignore[arg-type]
            for name, value in local.environment.items():
                monkeypatch.setenv(name, value)
            return local, Kaggle.connect(pace=PACE)

        yield begin


def weights(done: chained_sessions.CompleteTraining) -> bytes:
    return (done.folder / "artifact" / "weights.npz").read_bytes()


def versions(local: LocalKaggle) -> list[str]:
    return [version.status for version in local.kernels.kernels[HANDLE].versions]


def test_three_sessions_end_with_what_one_long_session_gives(start, ours, shown):
    """Each finds the output of the one before it, and what was asked is agreed to once."""
    local, kaggle = start(script := Script())
    asked = []

    done = chained_sessions.train(kaggle, ours, show=shown.append, agree=asked.append)

    assert weights(done) == unbroken() and (done.run.version, done.sessions) == (3, 3)
    assert versions(local) == ["COMPLETE"] * 3 and len(asked) == 1
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    assert (
        f"{HANDLE}/1 is partial, step 5 of 12. Resuming from it, through its own"
        " output; to start over: --fresh" in shown
    )
    assert [row["left"] for row in ours.journal().recent("pushes", 9)] == [
        "complete",
        "partial, step 10 of 12",
        "partial, step 5 of 12",
    ]


def on_the_pair(ours: Project) -> Project:
    """Return the project with its training on the pair of T4."""
    return replace(ours, runtime="gpu-t4x2")


def machines(local: LocalKaggle) -> list[str]:
    return [version.shape for version in local.kernels.kernels[HANDLE].versions]


def test_a_training_that_began_on_the_tpu_resumes_on_the_pair(start, ours, shown):
    """The same notebook, whose own output has the checkpoint; the quota is another."""
    local, kaggle = start(script := Script())
    first = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    relay.watch(kaggle, ours, first, show=shown.append)
    local.kernels.used_seconds["TPU"] = 20 * 3600
    with pytest.raises(NoQuota, match=r"invoke push-train --config digits --for gpu-t4x2$"):
        relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    done = chained_sessions.train(kaggle, on_the_pair(ours), show=shown.append)

    assert weights(done) == unbroken() and done.run.version == 3
    assert machines(local) == ["TpuV5E8", "NvidiaTeslaT4", "NvidiaTeslaT4"]
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    kept = [row["machine_shape"] for row in ours.journal().recent("pushes", 9)]
    assert kept[-1:] + kept[:2] == machines(local)


@pytest.mark.parametrize("does", ["", "waits"])
def test_a_training_on_the_other_machine_is_not_begun_again(start, ours, shown, does):
    """Whether it is complete or runs; only --again trains twice."""
    local, kaggle = start(script := Script(v1=does))
    first = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    if not does:
        first = chained_sessions.train(kaggle, ours, show=shown.append).run
    while kaggle.kernel_status(first.handle, first.version).name in ("NEW_SCRIPT", "QUEUED"):
        time.sleep(0.01)  # one that waits would be another run

    assert relay.push(kaggle, on_the_pair(ours), relay.TRAIN, show=shown.append) == first
    script.released.set()
    assert set(machines(local)) == {"TpuV5E8"}
    again = relay.push(kaggle, on_the_pair(ours), relay.TRAIN, show=shown.append, again=True)
    assert (again.version, machines(local)[-1]) == (first.version + 1, "NvidiaTeslaT4")


def test_what_follows_a_training_on_the_pair_is_on_the_pair(ours):
    """The commands that a user types next."""
    pair = on_the_pair(ours)

    assert pair.command("push-train --until-done").endswith("--config digits --for gpu-t4x2")
    assert pair.command("watch") == "invoke watch --config digits"


def test_a_runtime_that_is_none_is_refused(ours):
    with pytest.raises(UsageError, match="--for gpu-p100: expected one of tpu-v5e-8, gpu-t4x2"):
        replace(ours, runtime="gpu-p100")


def test_an_active_session_is_no_answer_for_those_that_follow(start, ours, shown):
    """What was agreed to then was one session."""
    _, kaggle = start(Script())
    relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    asked = []

    done = chained_sessions.train(kaggle, ours, show=shown.append, agree=asked.append)

    assert (done.run.version, len(asked)) == (3, 1)


def test_a_chain_that_is_complete_is_not_trained_again(start, ours, shown):
    """The same command, the push alone, and the steps after it find what there is."""
    local, kaggle = start(Script())
    first = chained_sessions.train(kaggle, ours, show=shown.append)

    assert chained_sessions.train(kaggle, ours, show=shown.append).run == first.run
    assert relay.push(kaggle, ours, relay.TRAIN, show=shown.append) == first.run
    assert relay.publish(kaggle, ours, first.run, first.folder, show=shown.append).version == 1
    assert len(versions(local)) == 3


@pytest.mark.parametrize("pulled", [True, False])
def test_a_chain_whose_first_output_is_gone_here_is_not_trained_again(start, ours, shown, pulled):
    """It is pulled again, to build the same bundle."""
    local, kaggle = start(Script())
    first = chained_sessions.train(kaggle, ours, show=shown.append)
    for path in sorted(ours.runs.glob("digits-train-tpu-v*")):
        if pulled or path != first.folder:
            path.rename(path.with_name(f"elsewhere-{path.name}"))

    assert weights(chained_sessions.train(kaggle, ours, show=shown.append)) == unbroken()
    assert len(versions(local)) == 3


@pytest.mark.parametrize("fault", ["404", "403", "500"])
def test_one_answer_that_a_session_is_not_there_begins_no_training_again(start, ours, shown, fault):
    """Of the first run, which holds the bundle that a beginning has, it was said that it is the
    one.
    """
    local, kaggle = start(Script())
    first = chained_sessions.train(kaggle, ours, show=shown.append)
    local.faults.plan({})
    local.faults.say("GetKernelSessionStatus", [fault])

    assert relay.push(kaggle, ours, relay.TRAIN, show=shown.append) == first.run
    assert len(versions(local)) == 3


def test_a_session_that_was_killed_counts_by_what_it_had_saved(start, ours, shown):
    """It has no list of its files, and Kaggle mounts an older output: its checkpoints go by a
    dataset, and only those.
    """
    local, kaggle = start(script := Script(v1="killed", v3="killed"))

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert weights(done) == unbroken() and versions(local) == [
        "ERROR",
        "COMPLETE",
        "ERROR",
        "COMPLETE",
    ]
    assert script.sources == {1: [], 2: DATASET, 3: OWN, 4: DATASET}
    assert any("step 11 of 12. Resuming from it, through a dataset" in line for line in shown)


@pytest.mark.parametrize("how", ["killed at once", "lost", "fails"])
def test_a_session_that_saved_nothing_new_is_bypassed(start, ours, shown, how):
    """The one before it is resumed from once more, by the other route."""
    local, kaggle = start(script := Script(v2=how))

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert weights(done) == unbroken() and versions(local) == [
        "COMPLETE",
        "ERROR",
        "COMPLETE",
        "COMPLETE",
    ]
    assert script.sources == {1: [], 2: OWN, 3: DATASET, 4: DATASET}


def test_a_corrupt_checkpoint_of_a_killed_session_is_not_resumed_from(start, ours, shown):
    """The one before it is."""
    local, kaggle = start(Script(v2="killed"))
    relay.watch(
        kaggle, ours, relay.push(kaggle, ours, relay.TRAIN, show=shown.append), show=shown.append
    )
    second = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    with pytest.raises(RunFailed):
        relay.watch(kaggle, ours, second, show=shown.append)
    version = local.kernels.version(HANDLE, 2)
    assert version is not None
    corrupt = version.working / "checkpoints" / "step-00000008" / "state.npz"
    corrupt.write_bytes(corrupt.read_bytes()[:-9])

    state = continuation.find(kaggle, Pushes(ours), show=shown.append)

    assert state.base is not None and (state.base.run.version, state.base.progress.step) == (
        2,
        7,
    )


def test_a_kaggle_that_refuses_a_notebook_as_its_own_source_gets_a_dataset(start, ours, shown):
    """The refused version is waited for, and no later session tries that again."""
    local, kaggle = start(script := Script(), own_output=False)

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert weights(done) == unbroken() and versions(local) == [
        "COMPLETE",
        "ERROR",
        "COMPLETE",
        "COMPLETE",
    ]
    assert script.sources == {1: [], 2: [], 3: DATASET, 4: DATASET}


def test_two_sessions_that_get_no_further_are_the_last(start, ours, shown):
    """Exit code 1, and no quota is spent on a third; once something was fixed, the same command
    tries again.
    """
    local, kaggle = start(script := Script(v2="fails", v3="fails"))

    with pytest.raises(
        RunFailed, match="2 sessions in a row got no further than the checkpoint of version 1"
    ) as caught:
        chained_sessions.train(kaggle, ours, show=shown.append)

    assert caught.value.exit_code == 1 and len(versions(local)) == 3
    assert "the batch does not fit" in str(caught.value)
    assert weights(chained_sessions.train(kaggle, ours, show=shown.append)) == unbroken()
    assert script.sources[4] == DATASET


def test_sessions_too_short_for_a_step_do_not_repeat_for_ever(start, ours, shown):
    """They end well, and the run stands still."""
    local, kaggle = start(Script(v2="no step", v3="no step"))

    with pytest.raises(RunFailed, match="session_hours is too short"):
        chained_sessions.train(kaggle, ours, show=shown.append)

    assert versions(local) == ["COMPLETE"] * 3


def test_a_week_without_quota_ends_with_the_time_of_the_next(start, ours, shown):
    """Exit code 7, and the command that resumes then."""
    local, kaggle = start(Script())
    local.kernels.used_seconds["TPU"] = 20 * 3600 - 90.0  # one session and a half

    with pytest.raises(NoQuota, match="returns at 2030-01-05 00:00 UTC") as caught:
        chained_sessions.train(kaggle, ours, show=shown.append)

    assert caught.value.exit_code == 7 and len(versions(local)) == 2
    assert "To resume then:\ninvoke push-train --until-done --config digits" in str(caught.value)
    local.kernels.used_seconds["TPU"] = 0.0
    assert (
        weights(chained_sessions.train(kaggle, ours, show=shown.append)) == unbroken()
        and len(versions(local)) == 3
    )


CHILD = """import sys
from pathlib import Path
from deploy.relay import chained_sessions, reconcile
from deploy.relay.last_runs import Pushes
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.project import Project
root = Path(sys.argv[1])
paths = root / "runs", root / "build"
ours = Project(root, "digits", "digits", "dataset", *paths, deadline_seconds=60)
kaggle = Kaggle.connect(pace=Pace(first=0.02, most=0.05, patience=5))
reconcile.resolve(kaggle, Pushes(ours), show=print)
chained_sessions.train(kaggle, ours, show=lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("after", range(4))
def test_a_command_that_was_killed_resumes_and_makes_no_version_twice(start, ours, shown, after):
    """By kill -9 at another line of what it shows each time, until nothing stops it."""
    local, kaggle = start(Script(v2="killed"))
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, ours.root], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(1 + 4 * after):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    for version in (
        local.kernels.kernels[HANDLE].versions if HANDLE in local.kernels.kernels else ()
    ):
        version.done.wait(10)
    reconcile.resolve(kaggle, Pushes(ours), show=shown.append)

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert weights(done) == unbroken() and versions(local) == ["COMPLETE", "ERROR", "COMPLETE"]


def test_an_active_run_is_followed_whatever_was_edited(start, ours, shown):
    """A chain that is given again does not push beside itself."""
    local, kaggle = start(script := Script(v1="waits"))
    first = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    while versions(local) == ["QUEUED"]:
        time.sleep(0.01)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")

    def show(line: str) -> None:
        shown.append(line)
        if line.endswith("following it."):
            script.released.set()

    done = chained_sessions.train(kaggle, ours, show=show)

    assert f"{first} is RUNNING; following it." in shown
    assert weights(done) == unbroken() and len(versions(local)) == 3


# By hand


def by_hand(
    kaggle: Kaggle, ours: Project, shown: list[str], **options: bool
) -> tuple[push_and_watch.Run, Path]:
    run = relay.push(kaggle, ours, relay.TRAIN, show=shown.append, **options)
    relay.watch(kaggle, ours, run, show=shown.append)
    return run, relay.pull(kaggle, ours, run, show=shown.append)


@pytest.mark.parametrize("machine", ["", " --for gpu-t4x2"])
def test_the_same_commands_by_hand_resume_too(start, ours, shown, machine):
    """Push, watch, pull, and push again; each says how far the run is, and where it goes on."""
    _, kaggle = start(Script())
    run, folder = by_hand(kaggle, on_the_pair(ours) if machine else ours, shown)
    following = f"invoke push-train --until-done --config digits{machine}"

    assert continuation.progress_of(kaggle, run) == "partial, step 5 of 12"
    assert relay.next_command(ours, run, folder) == following
    with pytest.raises(UsageError, match=f"{following}$"):
        continuation.require_complete(ours, folder)
    found = status.now(kaggle, ours)
    assert found["runs"] == {str(run): "COMPLETE, partial, step 5 of 12"}
    assert status.state_lines(found)[-1] == f"Next: {following}"
    assert "partial, step 5 of 12" in status.journal_lines(ours)[2]

    by_hand(kaggle, ours, shown)
    run, folder = by_hand(kaggle, ours, shown)

    assert (run.version, relay.next_command(ours, run, folder)) == (
        3,
        "invoke publish --config digits",
    )
    assert "pushed, resuming from version 2; COMPLETE" in status.journal_lines(ours)[2]


def test_what_is_partial_is_neither_published_nor_inferred_with(start, ours, shown):
    """The advice is the command that resumes."""
    _, kaggle = start(Script())
    run, folder = by_hand(kaggle, ours, shown)

    with pytest.raises(
        UsageError, match=r"v?1 is partial, step 5 of 12(.|\n)*invoke push-train --until-done"
    ):
        relay.publish(kaggle, ours, run, folder, show=shown.append)
    with pytest.raises(UsageError, match="invoke push-train --until-done"):
        relay.push(kaggle, ours, relay.INFER, artifact=folder / output.ARTIFACT, show=shown.append)


def test_a_run_that_nobody_pulled_is_resumed_too(start, ours, shown):
    """The push finds out that it is partial."""
    _, kaggle = start(script := Script())
    relay.watch(
        kaggle, ours, relay.push(kaggle, ours, relay.TRAIN, show=shown.append), show=shown.append
    )

    by_hand(kaggle, ours, shown)

    assert script.sources[2] == OWN


def test_fresh_begins_again(start, ours, shown):
    """And what follows resumes from that."""
    _, kaggle = start(script := Script(v2="killed"))
    by_hand(kaggle, ours, shown)
    run = relay.push(kaggle, ours, relay.TRAIN, fresh=True, show=shown.append)
    with pytest.raises(RunFailed):
        relay.watch(kaggle, ours, run, show=shown.append)

    state = continuation.find(kaggle, Pushes(ours), show=shown.append)

    assert script.sources[2] == [] and state.base is not None
    assert (state.base.run.version, str(state.base.progress)) == (2, "partial, step 3 of 12")


def test_a_pulled_output_that_was_changed_here_is_not_resumed_from(start, ours, shown):
    """The session would refuse it, after a minute of quota."""
    local, kaggle = start(Script())
    _, folder = by_hand(kaggle, ours, shown)
    (folder / "progress.jsonl").write_text('{"step": 5, "steps": 99}\n')

    with pytest.raises(
        RunFailed, match=r"progress\.jsonl is not what the run wrote(.|\n)*invoke pull --run"
    ):
        relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    assert len(versions(local)) == 1


def test_again_and_until_done_contradict_each_other():
    """One makes a version of what there is, and the other makes none of it."""
    with pytest.raises(UsageError, match="--fresh --until-done"):
        chained_sessions.refuse_both(True, True)

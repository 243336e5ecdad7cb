"""A training that is longer than a session resumes in the next one, however the last one ended,
without wasting quota.
"""

import json
import time
from dataclasses import replace

import pytest

from deploy import output, sessions, status
from deploy.errors import NoQuota, NoSlot, RunFailed, UsageError
from deploy.journal import PUSH
from deploy.project import INFER
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, push
from tests.deploy.trainer import Script, unbroken

OWN, DATASET = [f"notebooks/{HANDLE}"], ["datasets/rehearsal/digits-checkpoint"]
FOLLOWING = "invoke push-train --until-done --config digits"
BAD, GOOD = "ERROR", "COMPLETE"


@pytest.fixture
def start(host):
    """Return what starts a Kaggle whose sessions do what a script says, and signs in."""

    def begin(script=None, **options):
        return host(session=script or Script(), **options), connect()

    return begin


@pytest.fixture
def train(ours, shown):
    """Return what trains until it is done, and proves that nothing was lost."""

    def done(kaggle, project=ours, **more):
        made = steps.trained(kaggle, project, **{"show": shown.append, **more})
        assert (made.folder / "artifact" / "weights.npz").read_bytes() == unbroken()
        return made

    return done


@pytest.fixture
def one(ours, shown):
    """Return what pushes one session, waits for its end, and pulls it."""

    def pushed(kaggle, project=ours, **options):
        run = push(kaggle, project, **options)
        try:
            steps.watched(kaggle, project, run, show=shown.append)
        except RunFailed as error:
            shown.append(str(error))
        return run, steps.pulled(kaggle, project, run, show=shown.append)

    return pushed


@pytest.fixture
def on_the_pair(ours):
    """Return the project with its training on the pair of T4."""
    return replace(ours, runtime="gpu-t4x2")


def statuses(local):
    return [version.status for version in local.kernels.kernels[HANDLE].versions]


def test_three_sessions_give_the_same_weights_as_one(start, ours, train, shown):
    """Each mounts the output of the one before it, and the user is asked once."""
    local, kaggle = start(script := Script())
    asked = []

    done = train(kaggle, agree=asked.append)

    assert (done.run.version, done.sessions) == (3, 3)
    assert statuses(local) == [GOOD] * 3 and len(asked) == 1
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    resumed = f"{HANDLE}/1 is partial, step 5 of 12. Resuming from its output"
    assert any(line.startswith(resumed) and line.endswith("--fresh") for line in shown)
    left = [row.left for row in Records(ours).journal.requests(PUSH)]
    assert left == ["complete", "partial, step 10 of 12", "partial, step 5 of 12"]


def test_a_training_that_began_on_the_tpu_resumes_on_the_pair(start, ours, one, train, on_the_pair):
    """It is the same notebook, whose output has the checkpoint, with another quota. Once it is
    complete, only --again trains again.
    """
    local, kaggle = start(script := Script())
    one(kaggle)
    local.kernels.used_seconds["TPU"] = 20 * 3600
    with pytest.raises(NoQuota, match=r"invoke push-train --config digits --for gpu-t4x2$"):
        push(kaggle, ours)

    done = train(kaggle, on_the_pair)

    machines = [version.shape for version in local.kernels.kernels[HANDLE].versions]
    assert machines == ["TpuV5E8", "NvidiaTeslaT4", "NvidiaTeslaT4"]
    assert script.sources == {1: [], 2: OWN, 3: OWN}
    local.kernels.used_seconds["TPU"] = 0
    assert push(kaggle, ours) == done.run
    assert push(kaggle, ours, again=True).version == 4


def test_a_session_on_another_machine_runs_beside_one_in_the_queue(
    start, ours, one, on_the_pair, shown
):
    """It resumes from the checkpoint of the session in the TPU's queue, which keeps its place, as
    the preview shows.
    """
    local, kaggle = start(script := Script(v2="waits"))
    one(kaggle)
    waiting = push(kaggle, ours)
    while statuses(local)[1] == "QUEUED":
        time.sleep(0.01)
    local.kernels.version(HANDLE, 2).status = "QUEUED"

    run, _ = one(kaggle, on_the_pair, show=shown.append, agreed=True)

    script.released.set()
    assert f"beside      {waiting}: it stays active and uses quota, too" in shown
    assert (waiting.version, run.version, script.sources[3]) == (2, 3, OWN)


def test_a_training_that_is_complete_is_not_trained_again(start, ours, train, shown):
    """Any command finds it, despite a single 404, and even if its output is gone here: then it is
    pulled again.
    """
    local, kaggle = start()
    first = train(kaggle)

    def late():
        time.sleep(2 * max(kaggle.pace.most, kaggle.pace.unseen))  # a slow answer is one answer
        yield "404"

    assert train(kaggle).run == push(kaggle, ours) == first.run
    assert steps.published(kaggle, ours, first.folder, show=shown.append).version == 1
    local.faults.say("GetKernelSessionStatus", late())
    assert push(kaggle, ours) == first.run
    for path in ours.runs.glob("digits-train-tpu-v*"):
        path.rename(path.with_name(f"without-{path.name}"))
    assert train(kaggle).run == first.run and len(statuses(local)) == 3


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
    start, train, does, options, ends, sources
):
    local, kaggle = start(script := Script(**does), **options)

    train(kaggle)

    assert statuses(local) == ends and list(script.sources.values()) == sources


@pytest.mark.parametrize("ends", ["fails", "no step"])
def test_two_sessions_without_progress_end_the_training(start, train, shown, ends):
    """Exit code 1, and no quota is spent on a third. After a fix, the same command tries again."""
    local, kaggle = start(script := Script(v2=ends, v3=ends))

    with pytest.raises(RunFailed, match="no progress since the checkpoint of version 1") as caught:
        train(kaggle)

    assert caught.value.exit_code == 1 and len(statuses(local)) == 3
    assert any("the batch does not fit" in line for line in shown) == (ends == "fails")
    train(kaggle)
    assert script.sources[4] == DATASET


def test_a_first_session_that_saves_nothing_ends_the_training(start, train):
    local, kaggle = start(Script(v1="no step"))

    with pytest.raises(RunFailed, match=r"saved neither(.|\n)*invoke push-train --again"):
        train(kaggle)

    assert len(statuses(local)) == 1


def test_what_was_pulled_before_the_notebook_was_deleted_is_not_the_new_run_s(start, train, ours):
    """Its versions start with 1 again, and the same code is the same bundle. Our messages advise to
    delete a notebook without versions, and a local Kaggle may be restarted.
    """
    _, kaggle = start(script := Script(v1="fails"))
    with pytest.raises(RunFailed, match="the batch does not fit"):
        train(kaggle)
    (note,) = ours.runs.glob("*/.pulled.json")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"at": "2025-01-01T00:00:00+00:00"}))
    kaggle.delete_kernel(HANDLE)
    script.does.clear()

    run = push(kaggle, ours)
    with pytest.raises(UsageError, match=r"(?s)was pulled before .* was pushed.*invoke pull"):
        Records(ours).pulled_folder(run)
    assert (run.version, train(kaggle).run.version) == (1, 3)


def test_an_active_run_is_followed_and_only_later_sessions_ask(start, ours, train, shown):
    """Edits made meanwhile wait for its end."""
    local, kaggle = start(script := Script(v1="waits"))
    first, asked, model = push(kaggle, ours), [], ours.root / "pipeline" / "model.py"
    while statuses(local) == ["QUEUED"]:
        time.sleep(0.01)
    text = model.read_text()
    model.write_text(f"{text}\nchanged = True\n")
    with pytest.raises(NoSlot, match=rf"invoke watch --run {first}(.|\n)*\n{FOLLOWING}$"):
        train(kaggle)
    model.write_text(text)

    def show(line):
        shown.append(line)
        if line == f"Watch {first}":
            script.released.set()

    train(kaggle, show=show, agree=asked.append)

    assert (len(statuses(local)), len(asked)) == (3, 1)


def test_the_same_commands_by_hand_resume_too(start, ours, one, on_the_pair, shown):
    """Push, watch, pull, and push again; each shows the progress and the next command."""
    _, kaggle = start()
    run, folder = one(kaggle, on_the_pair)
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

    one(kaggle)
    run, folder = one(kaggle)

    assert run.version == 3
    assert steps.following(ours, run, folder) == "invoke publish --config digits"
    assert "pushed, resuming from version 2; COMPLETE" in steps.journal_lines(ours)[2]


def test_the_training_of_another_config_is_not_resumed(start, ours, one, train):
    """They share the notebook, whose newest output is what Kaggle mounts."""
    _, kaggle = start(script := Script(v2="complete"))
    other = replace(ours, config="other")
    configs = ours.root / "pipeline" / "configs"
    (configs / "other.py").write_bytes((configs / "digits.py").read_bytes())
    one(kaggle)
    one(kaggle, other)

    train(kaggle)

    assert script.sources == {1: [], 2: [], 3: DATASET, 4: OWN}


def test_fresh_starts_over(start, ours, one):
    """Later sessions resume from that."""
    _, kaggle = start(script := Script(v2="killed"))
    one(kaggle)
    one(kaggle, fresh=True)

    base = steps.done(sessions.training_state(kaggle, Records(ours))).base

    assert script.sources[2] == []
    assert (base.run.version, str(base.progress)) == (2, "partial, step 3 of 12")

"""Single steps of the chain: each refuses unusable inputs, and finds what was started."""

import dataclasses
import itertools
import shlex

import pytest

from deploy import status
from deploy.errors import Ambiguous, Refused, Unreachable, UsageError
from deploy.project import INFER, TRAIN
from deploy.records import Records
from deploy.runs import Run
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, push

STAGE = "rehearsal/digits-artifact"


def versions(local):
    return sum(len(dataset.versions) for dataset in local.datasets.datasets.values())


@pytest.fixture
def publish(live, ours, trained, shown):
    """Return what publishes a training, which it makes, and returns that version and the folder."""

    def published(version=1, weights=b"weights", project=ours):
        _, folder = trained(version, weights)
        return steps.published(live, project, folder, show=shown.append), folder

    return published


def test_the_command_after_a_pull_fits_its_output(live, ours, trained):
    """A training that failed has nothing to publish, and one that is not the last is not used."""
    run, (_, whole) = push(live, ours), trained()
    (empty := ours.runs / "empty").mkdir()
    infer = Run("rehearsal/digits-infer-gpu", 2, "", "")
    by_kernel = dataclasses.replace(ours, handoff="kernel")

    told = [
        steps.following(by_kernel, run, whole),
        steps.following(ours, run, empty),
        steps.following(ours, infer, empty),
        steps.following(ours, Run(HANDLE, 9, "", ""), whole),
        steps.following(ours, Run("bob/other", 1, "", ""), whole),
    ]

    words = [f"invoke {word} --config digits" for word in ("push-infer", "push-train")]
    assert told == [*words, words[0], "", ""]


def test_a_failed_call_does_not_hide_the_rest_of_the_status(live, ours, local):
    """Only a Kaggle that does not answer at all ends the command."""
    run = push(live, ours)
    for call in ("GetKernelSessionStatus", "GetAcceleratorQuotaStatistics"):
        local.faults.say(call, itertools.repeat("reset"))

    found = status.now(live, Records(ours))

    assert found["runs"][str(run)].startswith("unknown: ")
    assert found["hours_left"] == {"TPU": None, "GPU": None}
    with pytest.raises(Unreachable):
        status.now(connect(pace=live.pace), Records(ours))


def test_the_next_command_can_be_pasted_whatever_the_config_is_called(ours):
    """A path may hold blanks and quotes."""
    ours = dataclasses.replace(ours, config="/my kaggle/ann's.py")

    words = shlex.split(ours.command("pull --run ann/digits-train-tpu/3"))

    assert words[-2:] == ["--config", ours.config] and len(words) == 6


def test_an_unclear_push_is_not_skipped(live, ours, local, shown):
    """The user does not mean the run before it; its result is looked up."""
    push(live, ours)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")
    ended = local.kernels.version(HANDLE, 1)
    ended.status = "COMPLETE"
    ended.done.set()  # frees the one TPU session
    local.faults.say("SaveKernel", ["reset after"])
    local.faults.say("GetKernel", itertools.chain([None], itertools.repeat("403")))
    with pytest.raises(Ambiguous):
        push(live, ours)
    local.faults.clear()  # from now on it tells
    with pytest.raises(UsageError, match="no known version"):
        Records(ours).last_run(TRAIN)

    steps.resolved(live, ours, show=shown.append)

    run = Records(ours).last_run(TRAIN)
    assert not Records(ours).unclear() and (run.version, run.url) == (2, "")
    assert push(live, ours).version == len(local.kernels.kernels[HANDLE].versions) == 2


def test_an_inference_is_not_pushed_while_its_dataset_is_at_another_version(
    live, local, ours, publish
):
    """Somebody added one in a browser; Kaggle would mount that."""
    _, folder = publish()
    (dataset,) = local.datasets.datasets.values()
    dataset.versions *= 2

    with pytest.raises(UsageError, match="is at version 2"):
        push(live, ours, INFER, artifact=folder / "artifact")


def test_a_publish_that_sent_nothing_does_not_hide_the_one_before_it(live, local, ours, publish):
    """It only looked, and the earlier version still exists. (A listed manifest that could not be
    downloaded once made a second version.)
    """
    _, folder = publish()
    local.faults.say("DownloadDataset", itertools.repeat("404"))
    with pytest.raises(Refused):
        publish()
    local.faults.clear()

    assert push(live, ours, INFER, artifact=folder / "artifact").version == 1
    assert versions(local) == 1


def test_an_unclear_publish_hides_the_one_before_it(live, ours, local, publish):
    """Its version may become the current one at any time."""
    _, folder = publish()
    local.faults.say("CreateDatasetVersion", ["reset"])
    with pytest.raises(Ambiguous):
        publish(2, b"other")

    with pytest.raises(UsageError, match="invoke publish"):
        push(live, ours, INFER, artifact=folder / "artifact")


@pytest.mark.parametrize("field", ["init_from", "pseudo_labels.teacher"])
@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("rehearsal/missing", "no access to the dataset rehearsal/missing"),
        ("ann/theirs/1", "no access to the dataset ann/theirs"),
        (f"{STAGE}/3", rf'has no version 3\..*\n.*FIELD="{STAGE}/2"'),
        (STAGE, rf'does not specify a version, (.|\n)*to the config.*FIELD="{STAGE}/2"'),
    ],
)
def test_a_second_stage_is_not_pushed_without_its_first(
    live, local, ours, publish, stage, said, field
):
    """Nor if its own publish would replace it: no session is spent on a worthless run."""
    for version in (1, 2):
        publish(version, b"%d" % version)

    with pytest.raises(UsageError, match=said.replace("FIELD", field)) as caught:
        push(live, dataclasses.replace(ours, earlier={field: stage}))

    assert (caught.value.exit_code, not local.kernels.kernels) == (2, True)


def test_a_second_stage_that_names_a_version_is_pushed_and_published(live, local, ours, publish):
    """Its publish adds a version, and the one that it started from does not change. Without a
    version, the next run would start from its weights.
    """
    publish()
    second = dataclasses.replace(ours, earlier={"init_from": f"{STAGE}/1"})

    run = push(live, second)

    assert live.get_kernel(run.handle).asks["dataset_sources"] == (f"{STAGE}/1",)
    with pytest.raises(UsageError, match=rf'to the config.*teacher="{STAGE}/1"'):
        publish(2, b"second", dataclasses.replace(ours, earlier={"pseudo_labels.teacher": STAGE}))
    assert versions(local) == 1
    assert publish(2, b"second", second)[0].version == 2

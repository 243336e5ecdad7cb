"""Single steps of the chain against the local Kaggle, interrupted at the worst moment.

The same step again finds what there is.
"""

import dataclasses
import hashlib
import itertools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import Ambiguous, DeadlinePassed, Denied, Refused, Unreachable, UsageError
from deploy.journal import Outcome
from deploy.kernel import artifact_manifest
from deploy.kernel.push_and_watch import Run
from deploy.relay import reconcile, relay
from deploy.relay.last_runs import Pushes
from deploy.relay.relay import Project
from deploy.trace import status
from localkaggle.server import LocalKaggle
from tests.deploy.between import RESET, RESET_AFTER, THROUGH, Between
from tests.faults.world import competition

FOR_EVER = 3600.0


@pytest.fixture
def local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[LocalKaggle]:
    """A Kaggle that starts no session while a test lasts, and needs some time for a dataset: a
    little, or what is asked for.
    """
    seconds = getattr(request, "param", 0.05)
    given = {"competitions": [competition()], "queue_seconds": FOR_EVER, "ready_seconds": seconds}
    with LocalKaggle(tmp_path / "kaggle", **given) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


@pytest.fixture
def wire(local: LocalKaggle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    with Between(local.environment["http_proxy"]) as wire:
        monkeypatch.setenv("http_proxy", wire.address)
        yield wire


@pytest.fixture
def live(wire: Between) -> Kaggle:
    return Kaggle.connect(pace=Pace(first=0.02, most=0.06, patience=0.4))


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=30
    )


def impatient(ours: Project) -> Project:
    return dataclasses.replace(ours, deadline_seconds=0.1)


def trained(ours: Project, run: Run, weights: bytes = b"weights") -> Path:
    """Write what a pull of this run would have left."""
    folder = ours.runs / f"{run.handle.partition('/')[2]}-v{run.version}"
    (folder / "artifact").mkdir(parents=True)
    (folder / "artifact" / "weights.npz").write_bytes(weights)
    digest = hashlib.sha256(weights).hexdigest()
    manifest = {
        "run_id": digest[:12],
        "weights_sha256": digest,
        "bundle_sha256": run.bundle_sha256,
        "files": {"weights.npz": {"sha256": digest, "size": len(weights)}},
    }
    (folder / "artifact" / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))
    (folder / "bundle.json").write_text(json.dumps({"bundle_sha256": run.bundle_sha256}))
    return folder


def versions(local: LocalKaggle) -> int:
    return sum(len(dataset.versions) for dataset in local.datasets.datasets.values())


@pytest.mark.parametrize("local", [FOR_EVER], indirect=True, ids=["never ready"])
def test_a_publish_that_was_interrupted_is_resumed(live, local, ours, shown):
    """Patience ended while Kaggle processed the version; the same step again waits for that one."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    with pytest.raises(DeadlinePassed):
        relay.publish(live, impatient(ours), run, folder, show=shown.append)
    (dataset,) = local.datasets.datasets.values()
    dataset.versions[0].ready_seconds = 0.0

    made = relay.publish(live, ours, run, folder, show=shown.append)

    assert (made.version, versions(local)) == (1, 1)


def test_nothing_is_pushed_for_a_competition_that_is_not_there(live, ours, local, shown):
    """Nobody is asked, the journal knows no push, and no hour is spent on a run that is worth
    nothing.
    """
    elsewhere = dataclasses.replace(ours, competition="no-such-competition")

    def agree(seen: object) -> None:
        pytest.fail("asked before it was looked at")

    with pytest.raises((UsageError, Denied), match="no-such-competition"):
        relay.push(live, elsewhere, relay.TRAIN, show=shown.append, agree=agree)

    assert not local.kernels.kernels and ours.journal().last("pushes") is None


def test_nothing_is_pushed_before_the_rules_are_accepted(live, ours, wire, local, shown):
    """Kaggle lists the files to everybody, and gives them only to who accepted."""
    wire.say("DownloadDataFile", [(403, {"code": 403, "message": "Permission denied"})])

    with pytest.raises(Denied, match="its rules are not accepted") as caught:
        relay.push(live, ours, relay.TRAIN, show=shown.append)

    assert (caught.value.exit_code, not local.kernels.kernels) == (3, True)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_push_that_takes_a_running_version_says_so_once(live, ours, local, shown, forgotten):
    """Nothing is asked then, also where the journal is gone, and the steps that follow know the
    run.
    """
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    if forgotten:
        ours.journal().path.unlink()
    shown.clear()

    def agree(seen: object) -> None:
        pytest.fail("there is nothing to agree to")

    again = relay.push(live, ours, relay.TRAIN, show=shown.append, agree=agree)

    assert again == run == Pushes(ours).last_run(relay.TRAIN)
    assert shown == [
        f"{run} holds this bundle already, QUEUED on TpuV5E8; nothing was sent. To run it once"
        " more: `push-train --again`"
    ]
    assert len(local.kernels.kernels[run.handle].versions) == 1


def test_a_kaggle_on_this_machine_has_no_pages_to_look_at(live, ours, shown):
    """An address on kaggle.com would lead to nothing."""
    assert relay.push(live, ours, relay.TRAIN, show=shown.append).url == ""


def test_the_command_after_a_pull_is_what_its_output_can_be_used_for(live, ours, shown):
    """A training that failed has nothing to publish."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    folder = trained(ours, run)
    inferred = ours.runs / "inferred"
    inferred.mkdir()
    infer = Run("rehearsal/digits-infer-gpu", 2, "", "")

    assert relay.next_command(ours, run, folder) == "invoke publish --config digits"
    assert relay.next_command(dataclasses.replace(ours, handoff="kernel"), run, folder) == (
        "invoke push-infer --config digits"
    )
    assert relay.next_command(ours, run, inferred) == "invoke push-train --config digits"
    assert relay.next_command(ours, infer, inferred) == "invoke push-infer --config digits"
    (inferred / "submission.csv").write_text("id,label\n")
    assert (
        relay.next_command(ours, infer, inferred) == f"invoke submit --run {infer} --config digits"
    )
    assert relay.next_command(ours, Run(run.handle, 9, "", ""), folder) == ""
    assert relay.next_command(ours, Run("bob/other", 1, "", ""), folder) == ""


def test_the_next_command_can_be_pasted_whatever_the_config_is_called(ours):
    """A path may hold blanks and quotes."""
    ours = dataclasses.replace(ours, config="/my kaggle/ann's.py")

    words = shlex.split(ours.command("pull --run ann/digits-train-tpu/3"))

    assert words[-2:] == ["--config", ours.config] and len(words) == 6


def test_what_is_noted_is_in_the_journal_and_in_what_was_read(live, ours, shown):
    """One state of the journal serves a whole step, with what the step itself finds out."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    pushes = Pushes(ours)
    (row,) = pushes.matching(handle=run.handle, version=1)

    pushes.note(row, outcome=Outcome.NO_ANSWER)

    assert (
        pushes.unclear() == Pushes(ours).unclear() == [row] and row["outcome"] == Outcome.NO_ANSWER
    )
    assert pushes.last(handle=run.handle, outcome="done") is None


def test_another_kernel_is_refused_with_the_names_of_all(ours):
    """Not that there was no push of it."""
    with pytest.raises(UsageError, match="expected prepare-cpu, train-tpu, infer-gpu"):
        Pushes(ours).find_run("", "foo")


def test_the_artifact_of_another_run_is_not_published(live, local, ours, shown):
    """A folder of that name may be left over from a rehearsal, or from another account."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, Run(run.handle, 1, "", "b2"))

    with pytest.raises(UsageError, match="another run's"):
        relay.publish(live, ours, run, folder, show=shown.append)
    with pytest.raises(UsageError, match="another run's"):
        Pushes(ours).pulled_folder(run)

    assert versions(local) == 0


def test_a_push_that_nobody_knows_the_end_of_is_not_stepped_over(live, ours, wire, local, shown):
    """The run before it is not what the user means; what became of it is looked up."""
    first = relay.push(live, ours, relay.TRAIN, show=shown.append)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")
    ended = local.kernels.kernels[first.handle].versions[0]
    ended.status = "COMPLETE"
    ended.done.set()  # frees the one TPU session
    wire.say("SaveKernel", [RESET_AFTER])
    denied = itertools.repeat((403, {"code": 403, "message": "not yet"}))
    wire.say("GetKernel", itertools.chain([THROUGH] * 3, denied))
    with pytest.raises(Ambiguous):
        relay.push(live, ours, relay.TRAIN, show=shown.append)
    wire.say("GetKernel", [])  # from now on it tells
    with pytest.raises(UsageError, match="no version that we know of"):
        Pushes(ours).last_run(relay.TRAIN)

    reconcile.resolve(live, Pushes(ours), show=shown.append)

    assert not Pushes(ours).unclear()
    assert (Pushes(ours).last_run(relay.TRAIN).version, Pushes(ours).last_run(relay.TRAIN).url) == (
        2,
        "",
    )
    assert relay.push(live, ours, relay.TRAIN, show=shown.append).version == 2
    assert len(local.kernels.kernels[first.handle].versions) == 2


def test_a_push_that_never_arrived_is_resolved_too(live, ours, wire, shown):
    """Then there is nothing to follow, and the next push is the first."""
    wire.say("SaveKernel", [RESET])
    with pytest.raises(Ambiguous):
        relay.push(live, ours, relay.TRAIN, show=shown.append)

    reconcile.resolve(live, Pushes(ours), show=shown.append)

    assert not Pushes(ours).unclear()
    assert relay.push(live, ours, relay.TRAIN, show=shown.append).version == 1


def test_an_inference_is_pushed_for_what_was_published_last_to_its_dataset(live, ours, shown):
    """Equal weights of another run, or another config's artifact in the same dataset, would be
    refused on the GPU.
    """
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    relay.publish(live, ours, run, folder, show=shown.append)
    other = Run("rehearsal/digits-train-tpu", 2, "", "b2")
    relay.publish(live, ours, other, trained(ours, other, b"other"), show=shown.append)

    with pytest.raises(UsageError, match="invoke publish"):
        relay.push(live, ours, relay.INFER, artifact=folder / "artifact", show=shown.append)


def test_an_inference_is_not_pushed_while_its_dataset_is_at_another_version(
    live, local, ours, shown
):
    """Somebody added one in a browser; Kaggle would mount that."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    relay.publish(live, ours, run, folder, show=shown.append)
    (dataset,) = local.datasets.datasets.values()
    dataset.versions *= 2

    with pytest.raises(UsageError, match="is at version 2"):
        relay.push(live, ours, relay.INFER, artifact=folder / "artifact", show=shown.append)


@pytest.mark.parametrize("trouble", [(404, {"code": 404, "message": "Not found"}), RESET])
def test_a_publish_that_sent_nothing_does_not_hide_the_one_before_it(
    live, local, ours, wire, shown, trouble
):
    """It only looked again, and what was published is still there. (A manifest that is listed and
    not given made a second version.)
    """
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    relay.publish(live, ours, run, folder, show=shown.append)
    with pytest.raises((Refused, Unreachable)):
        wire.say("DownloadDataset", [trouble] * 50)
        relay.publish(live, ours, run, folder, show=shown.append)
    wire.say("DownloadDataset", [])

    pushed = relay.push(live, ours, relay.INFER, artifact=folder / "artifact", show=shown.append)

    assert (pushed.version, versions(local)) == (1, 1)


def test_a_publish_that_nobody_knows_the_end_of_hides_the_one_before_it(live, ours, wire, shown):
    """Its version may become the current one at any time."""
    run, other = (
        Run("rehearsal/digits-train-tpu", 1, "", "b1"),
        Run("rehearsal/digits-train-tpu", 2, "", "b2"),
    )
    folder = trained(ours, run)
    relay.publish(live, ours, run, folder, show=shown.append)
    wire.say("CreateDatasetVersion", [RESET])
    with pytest.raises(Ambiguous):
        relay.publish(live, ours, other, trained(ours, other, b"other"), show=shown.append)

    with pytest.raises(UsageError, match="invoke publish"):
        relay.push(live, ours, relay.INFER, artifact=folder / "artifact", show=shown.append)


def test_the_journal_is_shown_though_nobody_answers(live, ours, wire, shown):
    """That is when it is needed."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    wire.say("GetKernelSessionStatus", [RESET] * 50)
    wire.say("GetAcceleratorQuotaStatistics", [RESET] * 50)

    found = status.now(live, ours)

    assert status.journal(ours)["pushes"][0]["version"] == 1
    assert found["runs"][str(run)].startswith("not known: ")
    assert found["hours_left"] == {"TPU": None, "GPU": None}


STAGE = "rehearsal/digits-artifact"


def begins_with(ours: Project, first_stage: str) -> Project:
    """Return the second stage, whose config names this dataset."""
    return dataclasses.replace(ours, first_stage=first_stage)


@pytest.mark.parametrize(
    ("first_stage", "said"),
    [
        ("rehearsal/missing", r"Kaggle shows rehearsal no dataset rehearsal/missing"),
        ("ann/theirs/1", r"Kaggle shows rehearsal no dataset ann/theirs"),
        (f"{STAGE}/3", rf'has no version 3; .*\n.*init_from="{STAGE}/2"'),
        (STAGE, rf'names no version, (.|\n)*init_from="{STAGE}/2" into the config digits'),
    ],
)
def test_a_second_stage_is_not_pushed_without_its_first(
    live, local, ours, shown, first_stage, said
):
    """Or where its own publish would replace that: no session is spent on what is worth nothing."""
    for number in (1, 2):
        run = Run("rehearsal/digits-train-tpu", number, "", "b1")
        relay.publish(live, ours, run, trained(ours, run, b"%d" % number), show=shown.append)

    with pytest.raises(UsageError, match=said) as caught:
        relay.push(live, begins_with(ours, first_stage), relay.TRAIN, show=shown.append)

    assert (caught.value.exit_code, not local.kernels.kernels) == (2, True)


def test_a_second_stage_that_names_a_version_goes_the_whole_way(live, local, ours, shown):
    """Its publish makes the next version, and the one that it began with stays what it was."""
    first = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    relay.publish(live, ours, first, trained(ours, first), show=shown.append)
    second = begins_with(ours, f"{STAGE}/1")

    run = relay.push(live, second, relay.TRAIN, show=shown.append)
    folder = trained(ours, dataclasses.replace(run, version=2), b"second")
    made = relay.publish(live, second, run, folder, show=shown.append)

    source = live.get_kernel(run.handle)
    assert source is not None and source.asks["dataset_sources"] == (f"{STAGE}/1",)
    assert made.version == 2


def test_a_publish_does_not_replace_what_its_run_began_with(live, local, ours, shown):
    """Whoever pushed the training without a version: the next one would begin with its weights."""
    first = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    relay.publish(live, ours, first, trained(ours, first), show=shown.append)
    second = Run("rehearsal/digits-train-tpu", 2, "", "b2")
    folder = trained(ours, second, b"second")

    with pytest.raises(UsageError, match=rf'init_from="{STAGE}/1" into the config digits'):
        relay.publish(live, begins_with(ours, STAGE), second, folder, show=shown.append)

    assert versions(local) == 1

"""Single steps of the chain against the local Kaggle, interrupted where it hurts: the same step again finds what there is."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from between import RESET, RESET_AFTER, Between

from deploy import relay, settlement
from deploy.client import Kaggle
from deploy.errors import Ambiguous, DeadlinePassed, UsageError
from deploy.exchange import Pace
from deploy.kernels import Run
from deploy.relay import Project
from localkaggle.server import LocalKaggle

FOR_EVER = 3600.0


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A Kaggle that starts no session while a test lasts, and needs some time for a dataset."""
    with LocalKaggle(tmp_path / "kaggle", queue_seconds=FOR_EVER, ready_seconds=1.5) as local:
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
    return Kaggle.connect(pace=Pace(first=0.1, most=0.3, patience=1))


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=30)


def impatient(ours: Project) -> Project:
    return Project(ours.root, ours.config, ours.competition, ours.handoff, ours.runs, ours.builds, deadline_seconds=0.5)


def trained(ours: Project, run: Run, weights: bytes = b"weights") -> Path:
    """Write what a pull of this run would have left."""
    folder = ours.runs / f"{run.handle.partition('/')[2]}-v{run.version}"
    (folder / "artifact").mkdir(parents=True)
    (folder / "artifact" / "weights.npz").write_bytes(weights)
    digest = hashlib.sha256(weights).hexdigest()
    told = {
        "run_id": digest[:12],
        "weights_sha256": digest,
        "bundle_sha256": run.bundle_sha256,
        "files": {"weights.npz": {"sha256": digest, "size": len(weights)}},
    }
    (folder / "artifact" / "manifest.json").write_text(json.dumps(told))
    (folder / "bundle.json").write_text(json.dumps({"bundle_sha256": run.bundle_sha256}))
    return folder


def versions(local: LocalKaggle) -> int:
    return sum(len(dataset.versions) for dataset in local.datasets.datasets.values())


def test_a_publish_that_was_left_is_gone_on_with(live, local, ours, shown):
    """Patience ended while Kaggle processed the version; the same step again waits for that one."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    with pytest.raises(DeadlinePassed):
        relay.publish(live, impatient(ours), run, folder, show=shown.append)

    made = relay.publish(live, ours, run, folder, show=shown.append)

    assert (made.version, versions(local)) == (1, 1)


@pytest.mark.parametrize("how", [RESET_AFTER, RESET])
def test_a_publish_whose_answer_was_lost_makes_one_version(live, local, ours, wire, shown, how):
    """Whether it happened or not: what is there decides."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    wire.say("CreateDataset", [how])
    try:
        relay.publish(live, ours, run, folder, show=shown.append)
    except Ambiguous:
        assert how == RESET

    assert relay.publish(live, ours, run, folder, show=shown.append).version == 1
    assert versions(local) == 1


def test_the_artifact_of_another_run_is_not_published(live, local, ours, shown):
    """A folder of that name may be left over from a rehearsal, or from another account."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, Run(run.handle, 1, "", "b2"))

    with pytest.raises(UsageError, match="another run's"):
        relay.publish(live, ours, run, folder, show=shown.append)
    with pytest.raises(UsageError, match="another run's"):
        relay.pulled(ours, run)

    assert versions(local) == 0


def test_a_push_that_nobody_knows_the_end_of_is_not_stepped_over(live, ours, wire, local, shown):
    """The run before it is not what the user means; what became of it is looked up."""
    first = relay.push(live, ours, relay.TRAIN, show=shown.append)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")
    ended = local.kernels.kernels[first.handle].versions[0]
    ended.status = "COMPLETE"
    ended.done.set()  # frees the one TPU session
    wire.say("SaveKernel", [RESET_AFTER])
    wire.say("GetKernel", [(403, {"code": 403, "message": "not yet"})] * 5)
    with pytest.raises(Ambiguous):
        relay.push(live, ours, relay.TRAIN, show=shown.append)
    with pytest.raises(UsageError, match="no version that we know of"):
        relay.last_run(ours, relay.TRAIN)

    settlement.settle(live, ours, show=shown.append)

    assert not settlement.unclear(ours)
    assert relay.last_run(ours, relay.TRAIN).version == 2
    assert relay.push(live, ours, relay.TRAIN, show=shown.append).version == 2
    assert len(local.kernels.kernels[first.handle].versions) == 2


def test_a_push_that_never_arrived_is_settled_too(live, ours, wire, shown):
    """Then there is nothing to follow, and the next push is the first."""
    wire.say("SaveKernel", [RESET])
    with pytest.raises(Ambiguous):
        relay.push(live, ours, relay.TRAIN, show=shown.append)

    settlement.settle(live, ours, show=shown.append)

    assert not settlement.unclear(ours)
    assert relay.push(live, ours, relay.TRAIN, show=shown.append).version == 1


def test_an_inference_is_pushed_for_what_was_published_last_to_its_dataset(live, ours, shown):
    """Equal weights of another run, or another config's artifact in the same dataset, would be refused on the GPU."""
    run = Run("rehearsal/digits-train-tpu", 1, "", "b1")
    folder = trained(ours, run)
    relay.publish(live, ours, run, folder, show=shown.append)
    other = Run("rehearsal/digits-train-tpu", 2, "", "b2")
    relay.publish(live, ours, other, trained(ours, other, b"other"), show=shown.append)

    with pytest.raises(UsageError, match="invoke publish"):
        relay.push(live, ours, relay.INFER, artifact=folder / "artifact", show=shown.append)


def test_the_journal_is_shown_though_nobody_answers(live, ours, wire, shown):
    """That is when it is needed."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    wire.say("GetKernelSessionStatus", [RESET] * 50)
    wire.say("GetAcceleratorQuotaStatistics", [RESET] * 50)

    told = relay.status(live, ours)

    assert relay.standing(ours)["pushes"][0]["version"] == 1
    assert told["runs"][str(run)].startswith("not known: ")
    assert told["hours_left"] == {"TPU": None, "GPU": None}

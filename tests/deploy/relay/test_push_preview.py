"""Before anything is spent it is shown what would be, and what cannot work is refused."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.bundle import bundle, rehearsed
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import NoQuota, Refused
from deploy.kernel import artifact_manifest, push_and_watch
from deploy.relay import push_preview, relay
from deploy.relay.last_runs import Pushes
from deploy.relay.relay import Project
from localkaggle.server import LocalKaggle
from tests.deploy.between import RESET, Between
from tests.faults.world import competition

FOR_EVER = 3600.0
GONE = (404, {"code": 404, "message": "Not found"})


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    given = {"competitions": [competition()], "queue_seconds": FOR_EVER}
    with LocalKaggle(tmp_path / "kaggle", **given) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


@pytest.fixture
def live(local: LocalKaggle) -> Kaggle:
    return Kaggle.connect(pace=Pace(first=0.05, most=0.2, patience=1))


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=30
    )


def built(ours: Project) -> bundle.Bundle:
    return relay.build(ours, relay.TRAIN, "rehearsal")


def test_a_first_push_is_shown_with_the_hours_that_are_left(live, ours):
    """There is nothing to compare with yet."""
    seen = push_preview.look(live, built(ours), Pushes(ours))

    assert (seen.version, dict(seen.changes), seen.active) == (0, {}, ())
    assert seen.lines() == [
        "push        rehearsal/digits-train-tpu, version 1",
        "TPU quota   20.0 hours are left this week",
        "rehearsed   never as it stands; to do so: invoke dry-run --config digits --input DIR",
    ]


def test_what_was_rehearsed_is_the_code_that_was_pushed_then(live, ours):
    """A file that is edited during a rehearsal was not rehearsed."""
    module = ours.root / "pipeline" / "model.py"
    before, first = module.read_text(), push_preview.look(live, built(ours), Pushes(ours))
    module.write_text("changed = True\n")
    ours.runs.mkdir(exist_ok=True)

    rehearsed.remember(ours.runs, first.code_sha256, "yesterday: whole")

    edited = push_preview.look(live, built(ours), Pushes(ours))
    module.write_text(before)
    again = push_preview.look(live, built(ours), Pushes(ours))
    assert edited.rehearsed.startswith("never as it stands")
    assert again.rehearsed == "yesterday: whole"


def test_what_changed_since_the_last_version_is_shown_by_module(live, ours, local, shown):
    """And not the hash and the commit, which always differ."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    local.kernels.version(run.handle, 1).done.set()
    local.kernels.version(run.handle, 1).status = "COMPLETE"
    package = ours.root / "pipeline"
    (package / "model.py").write_text(
        (package / "model.py").read_text() + "\n\nimport pipeline.new\n"
    )
    (package / "new.py").write_text("new = True\n")
    with (ours.root / "kernels" / "train-tpu" / "notebook.py").open("a") as file:
        file.write("\n# %%\nprint('more')\n")

    seen = push_preview.look(live, built(ours), Pushes(ours))

    assert (seen.version, set(seen.changes)) == (
        1,
        {"pipeline/model.py", "pipeline/new.py", "notebook"},
    )
    assert (seen.changes["pipeline/new.py"], seen.changes["pipeline/model.py"]) == (
        "new",
        "+3 -0",
    )
    assert "changes     pipeline/new.py  new" in seen.lines()


def test_another_artifact_is_a_change(live, ours, local):
    """The code of the inference is the same, and what it would load is not."""
    folder = ours.runs / "artifact"
    for version, weights in enumerate((b"first", b"second"), start=1):
        digest = hashlib.sha256(weights).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.npz").write_bytes(weights)
        manifest = {"run_id": f"run-{version}", "weights_sha256": digest, "bundle_sha256": "b"}
        files = {"weights.npz": {"sha256": digest, "size": len(weights)}}
        (folder / "manifest.json").write_bytes(
            artifact_manifest.sealed({**manifest, "files": files})
        )
        with ours.journal().recording(
            "publishes", handle="rehearsal/digits-artifact", run_id=f"run-{version}"
        ) as made:
            made.update(version=version)
        infer = relay.build(ours, relay.INFER, "rehearsal", artifact=folder)
        seen = push_preview.look(live, infer, Pushes(ours))
        with suppress(Refused):  # there is no such dataset here; the version is made all the same
            push_and_watch.push(live, infer, timeout_seconds=60)

    was, now = (hashlib.sha256(weights).hexdigest()[:12] for weights in (b"first", b"second"))
    assert seen.changes["artifact"] == (
        f"run-2, weights {now} in rehearsal/digits-artifact version 2;"
        f" was run-1, weights {was} in rehearsal/digits-artifact version 1"
    )
    assert not any("none since" in line for line in seen.lines())


def test_another_setting_is_a_change(live, ours, local, shown):
    """The machine is not in the code."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    local.kernels.version(run.handle, 1).request.machine_shape = "TpuV6E8"
    local.kernels.version(run.handle, 1).status = "COMPLETE"

    seen = push_preview.look(live, built(ours), Pushes(ours))

    assert dict(seen.changes) == {"machine_shape": "TpuV5E8; was TpuV6E8"}
    assert "changes     machine_shape  TpuV5E8; was TpuV6E8" in seen.lines()


def test_nothing_is_pushed_where_the_user_says_no(live, ours, local, shown):
    """The journal has no push then, either."""

    def refuse(seen: push_preview.Preview) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relay.push(live, ours, relay.TRAIN, show=shown.append, agree=refuse)

    assert not local.kernels.kernels and ours.journal().last("pushes") is None


def test_a_second_session_on_the_tpu_is_refused(live, ours, local, shown):
    """Kaggle would queue or refuse it, and there is no call to stop one."""
    run = relay.push(live, ours, relay.TRAIN, show=shown.append)
    (ours.root / "pipeline" / "model.py").write_text("changed = True\n")

    with pytest.raises(NoQuota, match=f"invoke watch --run {run}") as caught:
        relay.push(live, ours, relay.TRAIN, show=shown.append)

    assert caught.value.exit_code == 7
    assert len(local.kernels.kernels[run.handle].versions) == 1


def test_a_training_on_the_pair_takes_a_session_of_the_gpus_and_none_of_the_tpu(
    live, ours, local, shown
):
    """Kaggle allows two of the one and one of the other."""
    on_pair = replace(ours, runtime="gpu-t4x2")
    run = relay.push(live, on_pair, relay.TRAIN, show=shown.append)

    seen = push_preview.look(live, built(ours), Pushes(ours))
    pair = push_preview.look(live, relay.build(on_pair, relay.TRAIN, "rehearsal"), Pushes(ours))

    assert (seen.accelerator, seen.active) == ("TPU", ())
    assert (pair.accelerator, pair.hours_left, pair.active) == ("GPU", 30.0, (str(run),))


def test_without_quota_nothing_is_pushed(live, ours, local, shown):
    """The run would wait, or be refused after the bundle was sent."""
    local.kernels.used_seconds["TPU"] = 20 * FOR_EVER

    with pytest.raises(NoQuota, match="No TPU time is left"):
        relay.push(live, ours, relay.TRAIN, show=shown.append)

    assert not local.kernels.kernels


def test_a_quota_that_kaggle_does_not_say_is_unknown(kaggle, between: Between, ours):
    """Kaggle may take the question away; the push itself would tell."""
    between.say("GetAcceleratorQuotaStatistics", [{}])
    between.say("GetKernel", itertools.repeat(GONE))
    between.always("ListKernels", {"kernels": []})

    assert (
        "TPU quota   unknown"
        in push_preview.look(kaggle, relay.build(ours, relay.TRAIN, "ann"), Pushes(ours)).lines()
    )


def test_a_run_that_cannot_be_asked_about_is_not_counted(kaggle, between: Between, ours):
    """It belongs to another account by now, or is gone."""
    with ours.journal().recording(
        "pushes", kernel="train-tpu", config="digits", handle="bob/x"
    ) as outcome:
        outcome.update(version=1)
    between.say("GetAcceleratorQuotaStatistics", [{}])
    between.say("GetKernel", itertools.repeat(GONE))
    between.always("ListKernels", {"kernels": []})
    between.say("GetKernelSessionStatus", [GONE, RESET])

    assert (
        push_preview.look(kaggle, relay.build(ours, relay.TRAIN, "ann"), Pushes(ours)).active == ()
    )

"""The whole chain through the local Kaggle, which really runs the notebooks: the official client,
no stand-in of ours.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import RunFailed
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from deploy.relay.relay import Project
from deploy.trace import status
from tests.deploy.between import RESET_AFTER, Between
from tests.deploy.small import FAIL, write_kernel
from tests.faults.world import competition


@pytest.fixture
def wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """A local Kaggle, behind a wire that passes everything through unless a test says otherwise."""
    from localkaggle.server import LocalKaggle

    with LocalKaggle(
        tmp_path / "kaggle",
        competitions=[competition()],
        offline=True,
        queue_seconds=0.01,
        ready_seconds=0.05,
    ) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        with Between(local.environment["http_proxy"]) as wire:
            monkeypatch.setenv("http_proxy", wire.address)
            yield wire


@pytest.fixture
def live(wire: Between) -> Kaggle:
    return Kaggle.connect(pace=Pace(first=0.02, most=0.1, patience=60))


def project(root: Path, handoff: str = "dataset") -> Project:
    return Project(
        root, "digits", "digits", handoff, root / "runs", root / "build", deadline_seconds=120
    )


def test_the_chain_trains_publishes_infers_and_is_scored(live, wire, root, shown):
    """Every link by version and hash; afterwards each single step finds what the chain made, and
    repeats nothing.
    """
    ours = project(root)
    judged: list[Path] = []

    result = relay.run(
        live, ours, show=shown.append, check=lambda given, sample: judged.append(given)
    )

    assert (result.train.version, result.infer.version) == (1, 1)
    assert result.dataset is not None and result.dataset.version == 1
    weights = (result.trained / "artifact" / "weights.npz").read_bytes()
    assert weights == b"digits" * 999
    identity = json.loads((result.inferred / "bundle.json").read_text())
    assert identity["expect"]["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    end = result.values()
    assert judged == [Path(end["submission"])] and end["rows"] > 0
    assert [Path(name).name for name in end["pictures"]] == ["curve.png"]

    assert Pushes(ours).last_run("infer-gpu") == result.infer
    assert relay.pull(live, ours, result.train) == result.trained
    assert relay.publish(live, ours, result.train, result.trained, show=shown.append).version == 1
    again = relay.submit(
        live, ours, result.infer, result.inferred, check=lambda *_: None, show=shown.append
    )
    assert again == result.submission
    assert wire.count("CreateDataset") == 1 and wire.count("CreateCodeSubmission") == 1
    assert status.now(live, ours)["runs"] == {
        str(result.train): "COMPLETE",
        str(result.infer): "COMPLETE",
    }


def test_the_chain_hands_over_through_the_train_kernels_output(live, wire, root, shown):
    """No upload: the output of the training is mounted. And answers that get lost on the way change
    nothing.
    """
    wire.say("SaveKernel", [RESET_AFTER])
    wire.say("CreateCodeSubmission", [RESET_AFTER])

    result = relay.run(live, project(root, "kernel"), show=shown.append, check=lambda *_: None)

    assert result.dataset is None and (result.train.version, result.infer.version) == (1, 1)
    assert (
        wire.count("SaveKernel"),
        wire.count("CreateCodeSubmission"),
        wire.count("CreateDataset"),
    ) == (2, 1, 0)


def test_a_failing_notebook_stops_the_chain_with_the_error_of_its_cell(live, root, shown):
    """What it wrote until then is pulled."""
    write_kernel(root, "train-tpu", FAIL)
    ours = project(root)

    with pytest.raises(RunFailed, match="the batch does not fit") as caught:
        relay.run(live, ours, show=shown.append, check=lambda *_: None)

    assert "\x1b" not in str(caught.value)
    pushes = Pushes(ours)
    assert pushes.last_run("train-tpu").version == 1
    assert (pushes.pulled_folder(pushes.last_run("train-tpu")) / "bundle.json").is_file()

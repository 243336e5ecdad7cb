"""Two configs of one name: each is known by its competition as well."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import UsageError
from deploy.kernel import artifact_manifest
from deploy.kernel.push_and_watch import Run
from deploy.project import Project
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from localkaggle.server import LocalKaggle
from tests.faults.world import competition


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A Kaggle with two competitions, whose runs wait for ever."""
    two = [competition(), dataclasses.replace(competition(), slug="letters", title="Letters")]
    with LocalKaggle(
        tmp_path / "kaggle", competitions=two, offline=True, queue_seconds=3600.0
    ) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


@pytest.fixture
def kaggle(local: LocalKaggle) -> Kaggle:
    return Kaggle.connect(pace=Pace(first=0.01, most=0.05, patience=60))


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(root, "digits", "digits", "dataset", root / "runs", root / "build")


def test_the_last_run_is_of_the_same_competition(kaggle, ours, shown):
    """Whether the file is in another folder, or `competition` was edited in it."""
    run = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    others = dataclasses.replace(ours, competition="letters")

    assert Pushes(ours).last_run(relay.TRAIN).handle == run.handle
    with pytest.raises(UsageError, match="with the config digits for the competition letters"):
        Pushes(others).last_run(relay.TRAIN)


def test_a_model_of_another_competition_is_neither_published_nor_inferred_with(
    local, kaggle, ours, artifact, shown
):
    """Its manifest has the config that it was trained with; exit code 2, and nothing is sent."""
    manifest = json.loads((artifact / "manifest.json").read_text())
    manifest["config"] = {"competition": "digits"}
    (artifact / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))
    others = dataclasses.replace(ours, competition="letters", handoff="kernel")
    run = Run("rehearsal/letters-train-tpu", 1, "", "")

    for step in (
        lambda: relay.publish(kaggle, others, run, artifact.parent, show=shown.append),
        lambda: relay.push(kaggle, others, relay.INFER, artifact=artifact, show=shown.append),
    ):
        with pytest.raises(UsageError, match="trained for the competition digits; the") as raised:
            step()
        assert str(raised.value).endswith("invoke push-train --config digits")
    assert not local.kernels.kernels and not local.datasets.datasets

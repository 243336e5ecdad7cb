"""Two configs of one name: each is known by its competition as well."""

import dataclasses
import json

import pytest

from deploy.errors import UsageError
from deploy.kernel import artifact_manifest
from deploy.kernel.push_and_watch import Run
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from tests.deploy.small import connect, push
from tests.faults.world import competition


@pytest.fixture
def local(host):
    """A Kaggle with two competitions, whose runs wait for ever."""
    two = [competition(), dataclasses.replace(competition(), slug="letters", title="Letters")]
    return host(competitions=two, queue_seconds=3600.0)


def test_the_last_run_is_of_the_same_competition(local, ours):
    """Whether the file is in another folder, or `competition` was edited in it."""
    run = push(connect(), ours)
    others = dataclasses.replace(ours, competition="letters")

    assert Pushes(ours).last_run(relay.TRAIN).handle == run.handle
    with pytest.raises(UsageError, match="with the config digits for the competition letters"):
        Pushes(others).last_run(relay.TRAIN)


def test_a_model_of_another_competition_is_neither_published_nor_inferred_with(
    local, ours, artifact, shown
):
    """Its manifest has the config that it was trained with; exit code 2, and nothing is sent."""
    kaggle, path = connect(), artifact / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"] = {"competition": "digits"}
    path.write_bytes(artifact_manifest.sealed(manifest))
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

"""Datasets of a publish: they stay private, and hold what the training wrote. What helps where a
name is taken, or a version is still processed.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import publish as datasets
from deploy import relay
from deploy.client import Kaggle
from deploy.errors import Denied, Refused, Unverified, UsageError
from deploy.last_runs import Pushes
from deploy.project import Project
from deploy.push_and_watch import Run
from formats import checksums
from localkaggle.fault_kinds import instead
from tests.deploy import small
from tests.faults.recorded_session import write_artifact
from tests.faults.world import competition

DATASET = "rehearsal/digits-artifact"


@pytest.fixture
def local(host):
    """A Kaggle with two competitions, whose runs wait for ever."""
    two = [competition(), replace(competition(), slug="letters", title="Letters")]
    return host(competitions=two, queue_seconds=3600.0)


@pytest.fixture
def kaggle(local):
    return small.connect()


def publish(kaggle: Kaggle, ours: Project, artifact: Path, **more: Any) -> Any:
    run = Run(small.HANDLE, 1, "", "")
    return relay.publish(kaggle, ours, run, artifact.parent, **{"show": lambda line: None, **more})


def test_what_a_desktop_leaves_in_a_folder_is_not_published(local, kaggle, ours, artifact):
    """A file of the user's own has to be moved out; no training has to be run again for it."""
    (artifact / "notes.txt").write_text("mine")
    with pytest.raises(Unverified, match=r"not in its manifest: notes\.txt\.") as one:
        publish(kaggle, ours, artifact)
    assert "Move it out" in str(one.value) and "train again" not in str(one.value)
    assert not local.datasets.datasets
    (artifact / "notes.txt").unlink()
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (artifact / name).write_bytes(b"icons")

    publish(kaggle, ours, artifact)

    (version,) = local.datasets.datasets[DATASET].versions
    assert {path.name for path in version.folder.iterdir()} == {"manifest.json", "weights.npz"}


def test_a_secret_in_a_text_of_an_artifact_is_not_published(local, kaggle, ours, artifact):
    files = {"weights.npz": b"weights", "notes.txt": b"KGAT_" + b"1f" * 16}
    write_artifact(artifact, "b1", files, "r1")

    with pytest.raises(UsageError, match=r"(?s)notes\.txt.*a Kaggle token"):
        publish(kaggle, ours, artifact)

    assert not local.datasets.datasets


def test_nothing_is_published_in_a_dataset_that_is_public(local, kaggle, ours, artifact):
    """Exit code 2, before the upload."""
    publish(kaggle, ours, artifact)
    dataset = local.datasets.datasets[DATASET]
    dataset.is_private = False

    with pytest.raises(UsageError, match=f"{DATASET} is public"):
        publish(kaggle, ours, artifact)

    assert len(dataset.versions) == 1


def test_a_dataset_that_somebody_made_for_something_else_is_not_replaced(
    local, kaggle, ours, artifact, tmp_path
):
    """A person made it on the site."""
    (tmp_path / "my_features.csv").write_text("a,b\n")
    token = kaggle.upload(tmp_path / "my_features.csv")
    kaggle.create_dataset(DATASET, title="By Hand", description="", tokens=[token])

    with pytest.raises(UsageError, match=r"my_features\.csv, and no manifest\.json"):
        publish(kaggle, ours, artifact)

    assert len(local.datasets.datasets[DATASET].versions) == 1


# Two configs of one name: each is known by its competition as well


def test_the_last_run_is_of_the_same_competition(kaggle, ours):
    """Whether the file is in another folder, or `competition` was edited in it."""
    run = small.push(kaggle, ours)
    others = replace(ours, competition="letters")

    assert Pushes(ours).last_run(relay.TRAIN).handle == run.handle
    with pytest.raises(UsageError, match="with the config digits for the competition letters"):
        Pushes(others).last_run(relay.TRAIN)


def test_a_model_of_another_competition_is_neither_published_nor_inferred_with(
    local, kaggle, ours, artifact, shown
):
    """Its manifest has the config that it was trained with; exit code 2, and nothing is sent."""
    path = artifact / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"] = {"competition": "digits"}
    path.write_bytes(checksums.sealed(manifest))
    others = replace(ours, competition="letters", handoff="kernel")
    run = Run("rehearsal/letters-train-tpu", 1, "", "")

    for step in (
        lambda: relay.publish(kaggle, others, run, artifact.parent, show=shown.append),
        lambda: relay.push(kaggle, others, relay.INFER, artifact=artifact, show=shown.append),
    ):
        with pytest.raises(UsageError, match="trained for the competition digits; the") as raised:
            step()
        assert str(raised.value).endswith("invoke push-train --config digits")
    assert not local.kernels.kernels and not local.datasets.datasets


# What Kaggle refuses, or does not show


def test_a_notebook_whose_title_is_taken_may_get_another_address(local, kaggle, ours):
    """Kaggle says so with 409, or with 200."""
    taken = 'The requested title "Digits Train Tpu" is already in use by a notebook.'
    for answer in (instead(409, {"code": 409, "message": taken}), instead(200, {"error": taken})):
        local.faults.say("SaveKernel", [answer])

        with pytest.raises(Refused, match=r"notebook\.\n(.|\n)*relay.toml:\n\[slugs\]"):
            small.push(kaggle, ours)


def test_a_dataset_that_never_comes_says_where_to_look(local, kaggle, ours, artifact, shown):
    """Kaggle took the call, and answers 404 from then on."""
    local.faults.say("GetDataset", ["404"] * (datasets.LOST + 3))

    publish(kaggle, ours, artifact, show=shown.append)

    (line,) = [line for line in shown if "still not there" in line]
    assert f"https://www.kaggle.com/datasets/{DATASET}\n" in line and "no room" in line


def test_a_version_is_refused_while_the_one_before_is_processed(local, kaggle, ours, artifact):
    """By a 403 that is about no rules of a competition."""
    publish(kaggle, ours, artifact)
    write_artifact(artifact, "b" * 64)
    denied = {"code": 403, "message": "Permission 'datasets.update' was denied"}
    local.faults.say("CreateDatasetVersion", [instead(403, denied)])

    with pytest.raises(Denied, match=r"still processes(.|\n)*in some minutes") as caught:
        publish(kaggle, ours, artifact)

    assert "rules" not in str(caught.value)

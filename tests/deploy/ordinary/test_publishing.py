"""Datasets of a publish: they stay private, and hold what the training wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import Unverified, UsageError
from deploy.kernel import artifact_manifest
from deploy.kernel.push_and_watch import Run
from deploy.project import Project
from deploy.relay import publish as datasets
from deploy.relay import relay
from localkaggle.server import LocalKaggle

HANDLE = "rehearsal/digits-artifact"
FILES = ["manifest.json", "weights.npz"]
CHECKPOINT = "rehearsal/digits-checkpoint"


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    with LocalKaggle(tmp_path / "kaggle", offline=True, ready_seconds=0.01) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


@pytest.fixture
def kaggle(local: LocalKaggle) -> Kaggle:
    return Kaggle.connect(pace=Pace(first=0.01, most=0.05, patience=60))


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=60
    )


def made_by_hand(local: LocalKaggle, kaggle: Kaggle, handle: str, *paths: Path) -> Any:
    """Make a dataset as a person does on the site, and return what the server has of it."""
    tokens = [kaggle.upload(path) for path in paths]
    kaggle.create_dataset(handle, title="By Hand", description="", tokens=tokens)
    return local.datasets.datasets[handle]


def publish(kaggle: Kaggle, ours: Project, artifact: Path) -> Any:
    run = Run("rehearsal/digits-train-tpu", 1, "", "")
    return relay.publish(kaggle, ours, run, artifact.parent, show=lambda line: None)


def test_what_a_desktop_leaves_in_a_folder_is_not_published(local, kaggle, ours, artifact):
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (artifact / name).write_bytes(b"icons")

    publish(kaggle, ours, artifact)

    (version,) = local.datasets.datasets[HANDLE].versions
    assert sorted(path.name for path in version.folder.iterdir()) == FILES


def test_a_file_of_a_user_s_own_in_the_artifact_has_to_be_moved_out(local, kaggle, ours, artifact):
    """No training has to be run again for it."""
    (artifact / "notes.txt").write_text("mine")

    with pytest.raises(Unverified, match=r"not in its manifest: notes\.txt\.") as raised:
        publish(kaggle, ours, artifact)

    said = str(raised.value)
    assert "Move it out of that folder, and run the same command again." in said
    assert "train again" not in said and not local.datasets.datasets


@pytest.mark.parametrize("whose", ["ours", "made by hand"])
def test_nothing_is_published_in_a_dataset_that_is_public(
    local, kaggle, ours, artifact, tmp_path, whose
):
    """Exit code 2, before the upload; whether it was ours before or not."""
    if whose == "ours":
        publish(kaggle, ours, artifact)
        dataset = local.datasets.datasets[HANDLE]
    else:
        features = tmp_path / "my_features.csv"
        features.write_text("a,b\n")
        dataset = made_by_hand(local, kaggle, HANDLE, features)
    dataset.is_private = False

    with pytest.raises(UsageError) as raised:
        publish(kaggle, ours, artifact)

    said = str(raised.value)
    assert f"The dataset {HANDLE} is public" in said and 'handoff="kernel"' in said
    assert f"Make it private at https://www.kaggle.com/datasets/{HANDLE}" in said
    assert len(dataset.versions) == 1


def test_a_dataset_that_somebody_made_for_something_else_is_not_replaced(
    local, kaggle, ours, artifact, tmp_path
):
    features = tmp_path / "my_features.csv"
    features.write_text("a,b\n")
    dataset = made_by_hand(local, kaggle, HANDLE, features)

    with pytest.raises(
        UsageError, match=r"holds my_features\.csv, and no manifest\.json"
    ) as raised:
        publish(kaggle, ours, artifact)

    assert f"delete this one at https://www.kaggle.com/datasets/{HANDLE}" in str(raised.value)
    assert len(dataset.versions) == 1


def test_a_checkpoint_is_for_its_owner_alone_too(local, kaggle, ours, artifact):
    """A session that resumes takes it from a dataset; that one is refused if it is public."""
    wanted = {"weights.npz": artifact_manifest.sha256(artifact / "weights.npz")}
    details = {"run_id": "r1", "step": 4, "weights_sha256": wanted["weights.npz"]}

    def save() -> None:
        datasets.saved_files(
            kaggle, ours, artifact, wanted, CHECKPOINT, details, show=lambda line: None
        )

    save()
    local.datasets.datasets[CHECKPOINT].is_private = False
    with pytest.raises(UsageError, match=f"The dataset {CHECKPOINT} is public"):
        save()

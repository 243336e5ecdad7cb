"""Fixtures: a small project to deploy, and a real client whose server says what a test says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy import bundle
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.project import Project
from localkaggle.server import LocalKaggle
from tests.deploy.between import Between
from tests.deploy.small import write_project
from tests.faults.recorded_session import write_artifact
from tests.faults.world import competition


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a small project with things in it that must stay at home."""
    return write_project(tmp_path)


@pytest.fixture
def ours(root: Path) -> Project:
    """Return that project as the tasks have it; it has pushed nothing."""
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=60
    )


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LocalKaggle]]:
    """Return what starts a local Kaggle with these options; the environment leads to the newest."""
    with ExitStack() as stack:

        def start(**options: Any) -> LocalKaggle:
            usual = {"competitions": [competition()], "offline": True}
            waits = {"queue_seconds": 0.01, "ready_seconds": 0.01}
            options = {**usual, **waits, **options}
            local = stack.enter_context(LocalKaggle(tmp_path / "kaggle", **options))
            for name, value in local.environment.items():
                monkeypatch.setenv(name, value)
            local.faults.clear()
            return local

        yield start


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """Give the server that answers the real client; it says only what a test says."""
    with Between() as between:
        monkeypatch.setenv("http_proxy", between.address)
        monkeypatch.setenv("KAGGLE_USERNAME", "ann")
        monkeypatch.setenv("KAGGLE_KEY", "not-a-key")
        yield between


@pytest.fixture
def kaggle(between: Between) -> Kaggle:
    """Return a real client of that server that retries quickly, and waits for slow machines."""
    return Kaggle.connect(pace=Pace(first=0.01, most=0.2, patience=60), timeouts=(60, 60))


@pytest.fixture
def shown() -> list[str]:
    """Return the list of shown lines; pass `shown.append`."""
    return []


@pytest.fixture
def built(ours: Project) -> bundle.Bundle:
    """Return the bundle of the small project's training."""
    return bundle.build(ours, bundle.read(ours, "train-tpu"), bundle.Inputs(), "ann")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Return a whole artifact: weights, and the manifest that seals them."""
    folder = tmp_path / "artifact"
    write_artifact(folder, "b1", {"weights.npz": b"weights"}, "r1")
    return folder

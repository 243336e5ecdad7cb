"""Fixtures: a Kaggle that starts no session, a client of it, and trainings without one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import output
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.project import Project
from deploy.runs import Run
from localkaggle.server import LocalKaggle
from tests.deploy.small import HANDLE, connect, metadata, write_kernel
from tests.faults.recorded_session import write_artifact

FOR_EVER = 3600.0
Trained = Callable[..., tuple[Run, Path]]


def with_kernel(project: Project, kernel: str) -> Project:
    """Write a notebook that needs no accelerator; return the project."""
    write_kernel(project.root, kernel, "# %%\nimport pipeline.model\n")
    described = {**metadata(kernel), "machine_shape": "", "enable_gpu": False}
    path = project.root / "kernels" / kernel / "kernel-metadata.json"
    path.write_text(json.dumps(described))
    return project


@pytest.fixture
def local(host: Callable[..., LocalKaggle]) -> LocalKaggle:
    """Start a Kaggle whose sessions wait for a machine while a test lasts."""
    return host(queue_seconds=FOR_EVER)


@pytest.fixture
def live(local: LocalKaggle) -> Kaggle:
    """Return a client of it that gives up soon."""
    return connect(pace=Pace(first=0.02, most=0.06, patience=0.4))


@pytest.fixture
def trained(ours: Project) -> Trained:
    """Return what makes the run of a training, and writes what a pull of it would have left."""

    def made(version: int = 1, weights: bytes = b"weights", by: str = "") -> tuple[Run, Path]:
        run = Run(HANDLE, version, "", f"b{version}")
        folder = ours.runs / output.folder_name(run)
        write_artifact(folder / "artifact", by or run.bundle_sha256, {"weights.npz": weights})
        (folder / "bundle.json").write_text(json.dumps({"bundle_sha256": by or f"b{version}"}))
        return run, folder

    return made

"""Fixtures: a Kaggle that starts no session, a client of it, and trainings without one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.project import Project
from deploy.runs import Run
from localkaggle.server import LocalKaggle
from tests.deploy import small
from tests.deploy.small import connect, metadata, write_kernel

FOR_EVER = 3600.0


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
def trained(ours: Project) -> Callable[..., tuple[Run, Path]]:
    """Return what makes the run of a training, and writes what a pull of it would have left."""
    return partial(small.trained, ours)

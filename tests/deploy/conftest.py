"""A small project to deploy: a package of two modules and two plain-Python notebooks that run in
seconds.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.kernel import artifact_manifest
from tests.deploy.between import Between
from tests.deploy.small import INFER, TRAIN, write_kernel


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a small project, with things in it that must stay at home."""
    root = tmp_path / "project"
    package = root / "pipeline"
    (package / "configs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(
        'def weights(name: str) -> bytes:\n    return name.encode() * 999  # "€"\n'
    )
    (package / "configs" / "__init__.py").write_text('"""Configs."""\n')
    (package / "configs" / "digits.py").write_text("CONFIG = 1\n")
    (package / "configs" / "other.py").write_text("CONFIG = 'stays at home'\n")
    (package / ".hidden.py").write_text("stays = 'at home'\n")
    (package / "notes.txt").write_text("stays at home")
    (package / "unused.py").write_text("stays = 'at home'\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "model.py").write_text("stays = 'at home'\n")
    (root / ".env").write_text("KAGGLE_KEY=stays at home")
    write_kernel(root, "train-tpu", TRAIN)
    write_kernel(root, "infer-gpu", INFER)
    return root


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """What answers the real client here: only what a test says."""
    with Between("http://127.0.0.1:9") as between:
        for name, value in {
            "http_proxy": between.address,
            "KAGGLE_USERNAME": "ann",
            "KAGGLE_KEY": "not-a-key",
        }.items():
            monkeypatch.setenv(name, value)
        yield between


@pytest.fixture
def kaggle(between: Between) -> Kaggle:
    """A real client on that wire, in a hurry."""
    return Kaggle.connect(pace=Pace(first=0.01, most=0.2, patience=5), timeouts=(2, 5))


@pytest.fixture
def shown() -> list[str]:
    """The lines that were shown; pass `shown.append`."""
    return []


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Return an artifact that is whole: weights and the manifest that seals them."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "weights.npz").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    files = {"weights.npz": {"sha256": digest, "size": 7}}
    told = {"run_id": "r1", "weights_sha256": digest, "bundle_sha256": "b1", "files": files}
    (folder / "manifest.json").write_bytes(artifact_manifest.sealed(told))
    return folder

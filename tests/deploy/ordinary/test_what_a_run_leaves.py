"""What a run leaves on Kaggle: what it made, and not what it was made with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.project import Project
from deploy.relay import relay
from localkaggle.server import LocalKaggle
from tests.faults.world import competition


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A local Kaggle that really runs notebooks."""
    with LocalKaggle(
        tmp_path / "kaggle", competitions=[competition()], offline=True, queue_seconds=0.01
    ) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


def test_the_package_in_a_notebook_is_no_output_of_it(root, local, shown):
    kaggle = Kaggle.connect(pace=Pace(first=0.02, most=0.1, patience=60))
    ours = Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=120
    )
    run = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)
    relay.watch(kaggle, ours, run, show=shown.append)

    pulled = relay.pull(kaggle, ours, run)

    files = [path.relative_to(pulled).as_posix() for path in pulled.rglob("*") if path.is_file()]
    assert sorted(files) == [
        ".pulled.json",
        "__notebook__.ipynb",
        "artifact/manifest.json",
        "artifact/weights.npz",
        "bundle.json",
        "curve.png",
        "digits-train-tpu.log",
        "outputs.json",
    ]
    text = (pulled / "__notebook__.ipynb").read_text()
    assert "%%writefile pipeline/model.py" in text  # there to be read

"""Fixtures: a competition's folder, with a config beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.shipped import shipped, written
from tests.small_competition import write_competition


@pytest.fixture
def leaves(tmp_path: Path) -> Path:
    """Return a folder of 96 labelled images; its config compiles fast and trains for long."""
    network = {"model": "mlp", "model_options": {"width": 1024, "depth": 2, "dropout": 0.0}}
    names = {"name": "kinds", "competition": "four-kinds", "num_classes": 4}
    config = replace(shipped("digits"), epochs=1000, **names, **network)
    written(tmp_path, config)
    return write_competition(tmp_path / "leaves")

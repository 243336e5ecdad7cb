"""A client that another package's pins have broken is refused before anything else is done."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.client import credentials
from deploy.errors import UsageError
from deploy.setup import doctor
from tests.deploy.invoked import ROOT


def installed(folder: Path, name: str, version: str, *needs: str) -> None:
    """Make a package look installed in a folder."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    (place / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """Return a folder in which keras-hub has an old kagglesdk installed."""
    installed(tmp_path, "kagglesdk", "0.1.28")
    installed(tmp_path, "keras-hub", "0.31.1", "keras>=3.15", "kagglesdk==0.1.28")
    return tmp_path


def test_a_client_that_keras_hub_broke_is_named_first_with_the_command(pinned):
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "dry-run"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(pinned)},
        capture_output=True,
        text=True,
    )

    said = done.stdout + done.stderr
    assert done.returncode == 2
    assert "The Kaggle client cannot be imported: it needs kagglesdk" in said
    assert "0.1.28 is installed, as keras-hub 0.31.1 pins it" in said
    assert credentials.INSTALL in said and "Started a local Kaggle" not in said


def test_a_client_that_is_not_installed_is_named_with_the_command(monkeypatch):
    def requires(name: str) -> list[str]:
        raise credentials.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(credentials.importlib.metadata, "requires", requires)

    with pytest.raises(UsageError, match=r"not installed\.\n.*\npip install 'kaggle"):
        credentials.require_client()


def test_a_client_without_what_is_used_of_it_is_named_with_the_command():
    with pytest.raises(UsageError, match=r"kagglesdk [\d.]+ .*: object has no _gone") as one:
        credentials.require_parts(object(), ("__class__", "_gone"))

    assert str(one.value).endswith(credentials.INSTALL)


def test_the_range_of_the_client_is_the_same_everywhere():
    """As pip installs it, as the message says it, and as `doctor` has it tested."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needs = tomllib.loads(text)["project"]["dependencies"]

    for name, tested in doctor.TESTED.items():
        need = next(need for need in needs if Requirement(need).name == name)
        assert f"'{need}'" in credentials.INSTALL
        there = importlib.metadata.version(name)
        assert all(version in Requirement(need).specifier for version in (*tested, there))

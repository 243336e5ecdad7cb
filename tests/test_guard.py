"""The guard keeps the tests off the network."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirect the notes of this test, which would fail the run."""
    notes = tmp_path / "notes.txt"
    monkeypatch.setenv("RELAY_NETWORK_VIOLATIONS", str(notes))
    return notes


def test_this_process_cannot_reach_a_public_address(own_notes):
    """A connection to a public address is refused before a packet leaves."""
    with socket.socket() as plug, pytest.raises(PermissionError, match=r"only 127\.0\.0\.1"):
        plug.connect(("192.0.2.1", 80))

    assert "192.0.2.1" in own_notes.read_text()


def test_this_process_cannot_ask_for_a_name(own_notes):
    """A lookup would contact a name server."""
    with pytest.raises(PermissionError):
        socket.getaddrinfo("kaggle.com", 443)

    assert "kaggle.com" in own_notes.read_text()


def test_a_child_process_is_watched_too(own_notes):
    """A Python that a test starts inherits the guard."""
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"

    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )

    assert child.returncode == 1
    assert "PermissionError" in child.stderr
    assert "192.0.2.1" in own_notes.read_text()


def test_a_python_with_a_sitecustomize_of_its_own_is_guarded(tmp_path):
    """Debian and Ubuntu have one, which is imported first."""
    (tmp_path / "sitecustomize.py").write_text("")
    name = "tests/test_guard.py::test_this_process_cannot_ask_for_a_name"

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", name],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr

"""A Mac and Windows, simulated on Linux by removing what they lack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.invoked import ROOT

NEEDS = "kaggle-relay needs Linux or macOS; on Windows run it in WSL: "

# What Python starts with there. A Mac has no prctl and no CPU affinity.
MAC = """
import ctypes, os

class WithoutPrctl(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError("dlsym(RTLD_DEFAULT, prctl): symbol not found")
        return super().__getattr__(name)

ctypes.CDLL = WithoutPrctl
del os.sched_getaffinity
"""
# invoke itself knows Windows, and would import its modules.
WINDOWS = """
import invoke.main, signal, sys
sys.platform = "win32"
sys.modules.update(dict.fromkeys(("fcntl", "pwd", "grp", "resource")))
del signal.SIGALRM
"""
KAGGLE = """
import sys
from pathlib import Path
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import finished, push

with LocalKaggle(Path(sys.argv[1]), competitions=(), queue_seconds=0) as kaggle:
    push(kaggle, "open('written', 'w').close()", slug="rehearsal/plain")
    version = finished(kaggle, "plain", 1)
    print(version.status, version.files(), version.log.text())
"""


def python(start: Path, text: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that starts with `text`."""
    start.mkdir()
    (start / "sitecustomize.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(start), str(ROOT)])} | more
    words = (sys.executable, *words)
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_session_on_a_mac_runs_and_reports_what_is_missing(tmp_path):
    path = str(Path(sys.executable).parent)  # without `unshare`
    done = python(tmp_path / "mac", MAC, "-c", KAGGLE, str(tmp_path / "kaggle"), PATH=path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("COMPLETE ['__notebook__.ipynb', 'written'] "), done.stdout
    assert "Linux namespaces are not available, so sessions have internet access" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "invoke", "doctor"),
        ("-m", "pipeline", "describe", "--config", "digits"),
        ("-m", "localkaggle", "serve"),
        ("setup.py", "--version"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_every_command_names_wsl_on_windows(tmp_path, words):
    done = python(tmp_path / "windows", WINDOWS, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(NEEDS) and done.stderr.count("\n") == 1

"""A copy of the project, a way to run commands in it, and configs that train in seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.client import Kaggle
from deploy.connection import Pace
from localkaggle.server import LocalKaggle
from tests import shipped

ROOT = Path(__file__).resolve().parents[2]
PACE = Pace(first=0.05, most=0.4, patience=30)
LEAST = 0.97  # the score of a first network on the digits


def copied(folder: Path) -> Path:
    """Copy the project without the developer's runs, and with fewer epochs of the digits."""
    project = shipped.copied(folder / "project")
    config = project / "pipeline/configs/digits.py"
    config.write_text(config.read_text().replace("epochs=40", "epochs=16"))
    return project


def by_jax(project: Path) -> Path:
    """Let a copy infer with JAX: TensorFlow takes seconds longer to start."""
    notebook = project / "kernels/infer-gpu/notebook.py"
    notebook.write_text(notebook.read_text().replace('= "tensorflow"', '= "jax"', 1))
    return project


def variables(project: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command in a copy of the project."""
    kept = {name: text for name, text in os.environ.items() if "XLA" not in name}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    python = os.pathsep.join([str(project), os.environ["PYTHONPATH"]])
    return {**kept, "PATH": path, "PYTHONPATH": python, **more}


def given(project: Path, *words: object, **more: str) -> dict[str, Any]:
    """Run `python -m … --json` in a copy of the project, and return the object of the last line."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words), "--json"],
        cwd=project,
        env=variables(project, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def written(folder: Path, name: str, **values: Any) -> Path:
    """Write the config of the digits with another name and other values."""
    return shipped.written(folder, replace(shipped.shipped("digits"), name=name, **values))


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[tuple[LocalKaggle, Kaggle]]:
    """Yield a local Kaggle in a folder, and its client, which the environment leads there."""
    usual = {"competitions": ["digits"], "queue_seconds": 0.05, "ready_seconds": 0.05}
    with (
        LocalKaggle(folder, **{"offline": True, **usual, **options}) as local,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in local.environment.items():
            patch.setenv(name, value)
        yield local, Kaggle.connect(pace=PACE)


def quiet(line: str) -> None:
    """Drop a line that a user would see."""


def runner(project: Path, local: LocalKaggle) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `given` for this Kaggle, and a function that pushes, watches and pulls a run. It
    returns the run's folder, and the options that name it.
    """
    run = partial(given, project, **local.environment)

    def ran(command, config, *more):
        pushed = run("invoke", command, *config, *more, "--yes")["run"]
        which = (*config, "--run", pushed)
        run("invoke", "watch", *which)
        return Path(run("invoke", "pull", *which)["folder"]), which

    return run, ran

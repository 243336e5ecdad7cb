"""A copy of the project, and a local Kaggle for its commands."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localkaggle.server import LocalKaggle
from tests.deploy.invoked import Prompt
from tests.doors.given import copy_project


@dataclass
class World:
    """A project with a local Kaggle; each task finds what the last one did."""

    local: LocalKaggle
    prompt: Prompt
    project: Path

    def __call__(self, *words: str, config: str = "tiny") -> tuple[int, str, Counter[str]]:
        """Run a task, and return its exit code, its output and its calls."""
        before = len(self.local.journal)
        code, shown, said = self.prompt(*words, "--config", config)
        calls = Counter(name for name, *_ in self.local.journal[before:])
        return code, shown + said, calls

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of kernel versions, dataset versions and submissions."""
        return (
            sum(len(kernel.versions) for kernel in self.local.kernels.kernels.values()),
            sum(len(dataset.versions) for dataset in self.local.datasets.datasets.values()),
            len(self.local.submissions.submissions),
        )

    def ended(self) -> None:
        """Wait until no session runs."""
        for kernel in self.local.kernels.kernels.values():
            assert all(version.done.wait(100) for version in kernel.versions)


@contextmanager
def opened(folder: Path, project: Path | None = None, **hosting: Any) -> Iterator[World]:
    """Yield a new world, whose Kaggle the environment of this process names meanwhile.

    Args:
        folder: to keep it in.
        project: whose commands it runs; by default a copy in the folder.
        hosting: of `LocalKaggle`.
    """
    project = project or copy_project(folder)
    usual = {"offline": True, "queue_seconds": 0.01, "ready_seconds": 0.05}
    with (
        LocalKaggle(folder / "kaggle", **{**usual, **hosting}) as local,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in local.environment.items():
            patch.setenv(name, value)
        with Prompt(project) as prompt:
            yield World(local, prompt, project)

"""Everything that README.md shows works as it stands there."""

import os
import pty
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tasks
from localkaggle.competitions import EMBEDDED
from localkaggle.server import LocalKaggle
from tests.e2e.project import ROOT, by_jax, copied, variables
from tests.localkaggle.archived import archived

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
SLUG, FOLDER = "leaf-diseases", "data/leaves"  # its examples
PROGRAMS = ("invoke", "kaggle", "pip", "pytest", "python", "uv")
INTERNET = "downloads packages, and no test may reach the internet"
# The commands that this test cannot run, and why.
SKIPPED = {
    "pip install -e .": INTERNET,
    "pip install -e '.[test]'": INTERNET,
    'pip install "jax[cuda12]"': INTERNET,
    "uv venv": "uv is not a dependency of this project",
    "uv pip install -e .": INTERNET,
    "pytest": "would run this test",
    "kaggle auth login": "opens a page of kaggle.com",
}
HANGS_AFTER = 900.0  # seconds: no measure of speed


def commands() -> list[tuple[str, bool]]:
    """Return each command of the page, in order, and whether its comment calls it an alternative
    ("# or …").
    """
    found = []
    for block, span in re.findall(r"```bash\n(.*?)```|(?<!`)`([^`\n]+)`(?!`)", PAGE, re.DOTALL):
        for line in block.splitlines() or [span]:
            typed, _, comment = line.partition(" #")
            for command in typed.strip().split(" && "):
                if block or command.split()[0] in (*PROGRAMS, *tasks.namespace.task_names):
                    found.append((command, comment.strip().startswith("or ")))
    return found


def run(command: str, project: Path, **more: str) -> None:
    """Type a command at a terminal, answer yes to each question, and expect success."""
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n" * 9)
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=project,
            env=variables(project, **more),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


@pytest.mark.slow
def test_each_command_of_the_readme_works_as_it_stands_there(tmp_path):
    """In order, on a local Kaggle; an alternative runs in a copy of its own."""
    table = replace(EMBEDDED["breast-cancer"](), slug=SLUG)  # a table trains in seconds
    projects = [by_jax(copied(tmp_path / name)) for name in ("one", "other")]
    for project in projects:
        table.write(project / FOLDER)

    with LocalKaggle(tmp_path / "kaggle", competitions=[archived(table)], offline=True) as local:
        for command, alternative in commands():
            if command not in SKIPPED:
                run(command, projects[alternative], **local.environment)

    assert len(local.submissions.submissions) == 1


def test_each_skipped_command_stands_in_the_readme():
    assert set(SKIPPED) <= {command for command, _ in commands()}


def test_the_config_of_the_readme_is_valid():
    (config,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    exec(f"from pipeline.config import Config, Data, Optimizer\n{config}", {})  # noqa: S102

"""What the README says exists, and CI does what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
TASKS = sorted(set(re.findall(r"`invoke ([a-z-]+)", README)))
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def listed() -> str:
    """Return what `invoke --list` prints."""
    return subprocess.run(
        [sys.executable, "-m", "invoke", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("task", TASKS)
def test_every_task_that_the_readme_names_exists(task, listed):
    """A reader can type what is written."""
    assert re.search(rf"^\s+{task}\b", listed, re.MULTILINE)


def test_every_task_that_exists_is_in_the_readme(listed):
    """A task that nobody reads about is not used."""
    existing = set(re.findall(r"^  ([a-z][a-z-]*)", listed, re.MULTILINE))

    assert existing == set(TASKS)


def test_the_set_up_is_two_commands():
    """One that shows the main job, one that runs the tests."""
    assert [block.strip() for block in BLOCKS[:2]] == [
        "pip install -e . && invoke dry-run",
        "pip install -e '.[test]' && pytest",
    ]


def test_ci_calls_the_readme_s_test_command():
    """What CI proves is what a newcomer types."""
    assert BLOCKS[1].strip() in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize(
    "line", [line for block in BLOCKS for line in block.splitlines() if "python -m" in line]
)
def test_every_module_command_of_the_readme_parses(line):
    """The words of the command are known to its own parser."""
    words = shlex.split(line)

    shown = subprocess.run(
        [sys.executable, *words[1:4], "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    for option in (word for word in words if word.startswith("--")):
        assert option in shown


@pytest.mark.parametrize("path", re.findall(r"^([a-z]+/|tasks\.py)\s", README, re.MULTILINE))
def test_every_entry_of_the_tree_exists(path):
    """The tree is the one on the disk."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_every_link_and_picture_exists(target):
    """Nothing that the README points at is missing."""
    assert (ROOT / target).is_file()

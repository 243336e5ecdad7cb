"""A competitor's copy takes changes of the template by the commands of docs/updating.md."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shipped import ROOT

PAGE = (ROOT / "docs/updating.md").read_text(encoding="utf-8")
CLONE, JOIN, UPDATE = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
MERGE, _ = UPDATE.splitlines()  # the tests of a copy are those of this one
NAMES = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
MINE = {"pipeline/configs/leaves.py": "CONFIG = 1\n", "relay.toml": 'config = "leaves"\n'}
CHANGED = ["README.md", *MINE]
IGNORED = ("data/train.csv", "runs/journal.sqlite", "build/leaves/x.ipynb", "out/submission.csv")
CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "leaves.py"}
# Files of a developer at the root, which may be large.
OWN = {".git", ".venv", *MINE, *(name.split("/")[0] for name in IGNORED)}


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are not part of the template."""
    return {name for name in names if (Path(folder) == ROOT and name in OWN) or name in CACHES}


def bash(folder: Path, script: str) -> str:
    """Run a script like a person who has never configured git, and return its output."""
    for name in ("UPSTREAM", "MINE"):
        script = script.replace(name, str(folder.parent / name.lower()))
    environment = {**os.environ, **dict.fromkeys(NAMES, "ann@example.com")}
    done = subprocess.run(
        ["/bin/bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the present template, without a competitor's files."""
    folder = tmp_path_factory.mktemp("git") / "upstream"
    shutil.copytree(ROOT, folder, ignore=left_out)
    bash(folder, "git init -qb main && git add . && git commit -qm Template")
    return folder


@pytest.mark.parametrize("way", ["a clone", "GitHub's button"])
def test_a_copy_with_a_config_takes_all_changes_of_the_template(upstream, way):
    copy = upstream.parent / "leaves"
    shutil.rmtree(copy, ignore_errors=True)
    if way == "a clone":
        bash(upstream, f"cd .. && {CLONE}")
    else:
        bash(upstream, "mkdir ../leaves && git archive main | tar x -C ../leaves")
        bash(copy, "git init -qb main && git add . && git commit -qm 'Initial commit'")
    for name, text in [*MINE.items(), *dict.fromkeys(IGNORED, "x").items()]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    _, *rest = (copy / "README.md").read_text().splitlines(keepends=True)
    (copy / "README.md").write_text("".join(["# Leaves\n", *rest]))  # no update changes that line
    assert bash(copy, "git add . && git diff --cached --name-only").split() == CHANGED
    bash(copy, "git commit -qm 'Describe the leaves'")
    changes = "git ls-files -z | while read -rd '' f; do echo '# changed' >> \"$f\"; done"
    bash(upstream, f"{changes}; git commit -qam 'Change every file'")

    bash(copy, f"{JOIN if way != 'a clone' else ''}\n{MERGE}")

    assert bash(copy, "git diff --name-only upstream/main").split() == CHANGED
    assert {name: (copy / name).read_text() for name in MINE} == MINE
    assert all((copy / name).is_file() for name in IGNORED)

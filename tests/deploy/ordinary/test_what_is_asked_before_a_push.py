"""What a push needs is asked for before Kaggle is, and before anything is computed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localkaggle.server import LocalKaggle
from proofs.kaggle.world import competition

ROOT = Path(__file__).resolve().parents[3]
PUSHES = [
    "push-train",
    "push-train --until-done",
    "push-train --for gpu-t4x2",
    "push-infer",
    "push-prepare -c {large}",
    "relay",
]
GIVEN = """
import contextlib, io, json, sys
from invoke.main import program

told = []
for words in json.loads(sys.argv[1]):
    shown, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        try:
            program.run(["invoke", *words.split()])
        except SystemExit as end:
            told.append([end.code, shown.getvalue(), said.getvalue()])
print(json.dumps(told))
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A local Kaggle with two rows of digits; the environment leads there."""
    with LocalKaggle(tmp_path / "kaggle", competitions=[competition()], offline=True) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


@pytest.fixture
def pushes(tmp_path: Path) -> list[str]:
    """Return all commands that push, with a config whose images can be prepared where it needs
    them.
    """
    text = (ROOT / "pipeline" / "configs" / "digits.py").read_text().replace('"digits"', '"large"')
    (tmp_path / "large.py").write_text(text.replace("height=8, width=8", "height=96, width=96"))
    return [words.format(large=tmp_path / "large.py") for words in PUSHES]


def ended(given: list[str]) -> list[tuple[int, str, str]]:
    """Return exit code, stdout and stderr of each command, by one process without a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", GIVEN, json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(each) for each in json.loads(done.stdout.splitlines()[-1])]


def test_a_push_without_credentials_ends_with_3_before_all_else(pushes):
    for words, (code, shown, said) in zip(PUSHES, ended(pushes), strict=True):
        assert (code, shown) == (3, ""), words
        assert said.startswith("No Kaggle credentials were found."), words


def test_a_push_where_nobody_can_be_asked_ends_with_2_before_the_first_call(pushes, local):
    """A script has to say that it means it, and hears so at once."""
    for words, (code, shown, said) in zip(PUSHES, ended(pushes), strict=True):
        assert (code, shown) == (2, ""), words
        assert said.startswith("There is no terminal to ask") and "Add --yes." in said, words
    assert local.journal == []

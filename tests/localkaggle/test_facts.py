"""A local Kaggle reads how to behave from a file of `invoke doctor --live`."""

import json
import subprocess
import sys

import pytest

from localkaggle import facts
from localkaggle.facts import Facts


def written(path, **values):
    path.write_text(json.dumps({"facts": values, "assumed": {}, "notes": [], "answers": []}))
    return path


def test_the_facts_of_a_file_are_what_a_server_is_made_with(tmp_path):
    """What the file does not say stays as it is assumed."""
    path = written(
        tmp_path / "seen.json", layout="flat", gpus=1, rewritten=["a.csv"], prefixes=True
    )

    assert facts.read(path) == {
        "layout": "flat",
        "facts": Facts(gpus=1, rewritten=("a.csv",), prefixes=True),
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": "red"}, "unknown fact 'colour'; expected some of: token_seconds, "),
        ({"gpus": "two"}, "gpus='two'; expected a whole number, 0 or more"),
        ({"mount_seconds": -1}, "mount_seconds=-1; expected seconds, 0 or more"),
        ({"internet": 1}, "internet=1; expected true or false"),
        ({"rewritten": "a.csv"}, "rewritten='a.csv'; expected a list of names"),
        ({"refused_push": "all"}, "refused_push='all'; expected one of nothing, shell, source"),
        ({"other_slug": None}, "other_slug=None; expected a text"),
    ],
)
def test_a_fact_that_cannot_be_is_refused_with_what_was_expected(values, said, tmp_path):
    """The message names the file, too."""
    path = written(tmp_path / "seen.json", **values)

    with pytest.raises(ValueError, match="seen") as refused:
        facts.read(path)

    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"facts": [1]}', "\x00"])
def test_another_file_is_refused(text, tmp_path):
    """Whatever it holds."""
    (tmp_path / "other").write_text(text)

    with pytest.raises(ValueError, match="not what `invoke doctor --live` writes"):
        facts.read(tmp_path / "other")


def test_serve_refuses_a_file_of_facts_before_it_serves(tmp_path):
    """Exit code 2, and one message."""
    done = subprocess.run(
        [sys.executable, "-m", "localkaggle", "serve", "--facts", str(tmp_path / "none")],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "none cannot be read: No such file or directory" in done.stderr

"""Every example in a docstring runs."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


SIDES = ("formats", "pipeline", "workbench", "deploy", "localkaggle", "commands")


@pytest.mark.parametrize("side", SIDES)
def test_the_examples_of_docstrings_give_their_results(side):
    """A failure shows its file and line."""
    texts = {path: path.read_text() for path in (ROOT / side).rglob("*.py")}
    gone = not (ROOT / "pipeline/configs/digits.py").exists()  # some examples load it
    paths = [
        path
        for path, text in texts.items()
        if ">>> " in text and not (gone and 'load("digits")' in text)
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]

    found = [doctest.testmod(importlib.import_module(name)) for name in names]

    assert sum(each.attempted for each in found) >= len(paths) > 0
    assert sum(each.failed for each in found) == 0

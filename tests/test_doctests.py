"""Every example in a docstring runs."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WITH_EXAMPLES = sorted(
    path
    for side in ("pipeline", "deploy", "localkaggle")
    for path in (ROOT / side).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_module_are_true(path):
    """What a reader copies gives what is written below it."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))

    found = doctest.testmod(module)

    assert found.attempted > 0
    assert found.failed == 0

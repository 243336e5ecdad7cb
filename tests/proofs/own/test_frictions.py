"""What stopped a newcomer does so no more; tests/commands has the frictions that are not here."""

import shutil
from pathlib import Path

import pytest

from proofs.own import frictions
from proofs.shared.environment import Checkout, current

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a copy of the project: the developer's own runs are left alone."""
    copy = tmp_path / "kaggle-relay"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "tests", "docs")
    )
    return Checkout(copy, current(ROOT).programs)


def test_ctrl_c_in_a_rehearsal_says_that_it_cannot_be_resumed(checkout, tmp_path):
    """A training can, so a newcomer would wait for it."""
    friction = frictions.interrupted(checkout, tmp_path)

    assert friction.held, friction


def test_a_row_of_doctor_that_is_skipped_names_the_row_that_it_needs(checkout, tmp_path):
    """In words that stand alone."""
    friction = frictions.skipped_row(checkout, tmp_path)

    assert friction.held, friction


def test_a_mistyped_command_is_answered_with_those_that_there_are(checkout, tmp_path):
    """And with none that is hidden."""
    friction = frictions.unknown_command(checkout, tmp_path)

    assert friction.held, friction

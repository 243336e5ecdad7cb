"""The short form of the proof about an unseen competition holds, and a proposal that is off would be seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import config as configs
from proofs import inspected

ROOT = Path(__file__).resolve().parent.parent


def test_what_is_proposed_for_a_competition_that_was_never_seen_runs_unedited(tmp_path):
    """Fewer labelled rows than the full proof, and no notebooks."""
    rows = list(inspected.rows(ROOT, tmp_path, short=True, show=lambda line: None))

    assert [row for row in rows if not row.passed] == [] and len(rows) == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "small_cnn"}, ["model"]),
        ({"metric": "mae"}, ["metric"]),
        ({"metric": ""}, []),
        ({"epochs": 7}, []),
    ],
)
def test_a_proposal_that_differs_from_what_was_written_by_hand_is_named(change, named):
    """Where the data say it; epochs are a matter of taste."""
    by_hand = configs.load("diabetes")

    assert inspected._differing(replace(by_hand, **change), by_hand) == named

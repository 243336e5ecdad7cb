"""The short form of the proof about an unseen competition holds, and a proposal that is off would
be seen.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import config as configs
from proofs.competitions import inspected

ROOT = Path(__file__).resolve().parents[3]


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

"""Checkpoints are written as often as their cost allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.checkpoint import SHARE, Saver


def costing(*seconds: float) -> Saver:
    """Return a saver that has measured these costs."""
    saver = Saver(None, 0)
    saver.costs += seconds
    return saver


@given(st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_expensive_checkpoints_are_rarer_and_take_their_share_of_the_time_at_most(one, other):
    low, high = sorted((one, other))

    assert costing(low).interval() <= costing(high).interval() + 1
    assert high / costing(high).interval() <= SHARE
    # What is kept for the end is twice the dearest.
    assert costing(low, high, low).reserve() == pytest.approx(2 * high)


def test_the_cost_of_a_checkpoint_is_measured():
    saver = Saver(0, 0)
    assert saver.due()
    with saver.saving():
        pass
    assert len(saver.costs) == 1 and not Saver(60, 0).due()

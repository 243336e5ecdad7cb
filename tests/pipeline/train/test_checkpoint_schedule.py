"""Checkpoints are written beside the run, one at a time, as often as their cost allows; what goes
wrong is not lost.
"""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import DiskError
from pipeline.train.checkpoint import SHARE, Saver


def costing(*seconds: float) -> Saver:
    """Return a saver that has written checkpoints at these costs."""
    saver = Saver(None, 0)
    for cost in seconds:
        saver.save(cost, lambda: None)
        saver.wait()
    return saver


@given(st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_dearer_checkpoints_are_rarer_and_take_their_share_of_the_time_at_most(one, other):
    low, high = sorted((one, other))

    assert costing(low).interval() <= costing(high).interval() + 1
    assert high / costing(high).interval() <= SHARE
    # What is kept for the end is three of the dearest.
    assert costing(low, high, low).reserve() == pytest.approx(3 * high, rel=0.01, abs=0.01)


def test_the_run_goes_on_while_one_is_written_and_no_other_is_begun():
    free = threading.Event()
    with Saver(0, 0) as saver:
        saver.save(0.0, lambda: bool(free.wait(30)))

        assert not free.is_set() and not saver.due()
        free.set()
        saver.wait()
        assert saver.due()


def test_a_write_that_fails_is_told_before_the_next_one():
    """An error in another thread is easily lost (orbax issue 605)."""

    def fail() -> None:
        raise DiskError("full")

    with Saver(0, 0) as saver:
        saver.save(0.0, fail)
        with pytest.raises(DiskError, match="full"):
            while not saver.due():
                time.sleep(0.01)
            saver.save(0.0, lambda: None)

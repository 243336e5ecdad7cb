"""Checkpoints are written beside the run, one at a time, as often as their cost allows; what goes
wrong is not lost.
"""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DiskError
from pipeline.session.checkpoint_schedule import FIRST_SECONDS, SHARE, Saver


def costing(*seconds: float) -> Saver:
    """Return a saver that has written checkpoints at these costs."""
    saver = Saver(None, 0)
    for cost in seconds:
        saver.save(cost, lambda: None)
        saver.wait()
    return saver


@given(st.floats(1e-3, 1e3))
def test_writing_takes_its_share_of_the_time_at_most(cost):
    assert cost / costing(cost).interval() <= SHARE


@given(st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_dearer_checkpoints_are_rarer(one, other):
    low, high = sorted((one, other))

    assert costing(low).interval() <= costing(high).interval() + 1


def test_the_first_comes_soon_since_its_cost_is_not_known():
    assert Saver(None, 10**12).interval() == FIRST_SECONDS


def test_what_the_config_says_is_taken_as_it_is():
    saver = Saver(0, 0)
    saver.save(1000.0, lambda: None)
    saver.wait()

    assert saver.due()


def test_the_run_goes_on_while_one_is_written_and_no_other_is_begun():
    free = threading.Event()
    with Saver(0, 0) as saver:
        begun = time.monotonic()
        saver.save(0.0, lambda: bool(free.wait(30)))

        assert time.monotonic() - begun < 5
        assert not saver.due()
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


def test_what_is_kept_for_the_end_is_three_of_the_dearest():
    assert costing(1.0, 3.0, 2.0).reserve() == pytest.approx(9.0, rel=0.01)

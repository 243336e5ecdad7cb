"""If time is short, views are left out, then rows."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.infer import forward_pass, inference
from pipeline.infer.inference import Pace


class Work:
    """A test set whose blocks take `decoding` seconds, and `each` for every view."""

    def __init__(self, views, blocks, decoding, each, end):
        self.now, self.used = 0.0, []
        self.blocks, self.decoding, self.each = blocks, decoding, each
        self.pace = partial(Pace, views, blocks, end)

    def run(self) -> None:
        """Go through the blocks, as long as there is time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inference, "clock", lambda: self.now)
            pace = self.pace()
            while len(self.used) < self.blocks and not pace.over():
                self.used.append(pace.views)
                self.now += self.decoding + self.each * pace.views
                pace.block_ended(1)


times, few = st.floats(0.01, 10), st.integers(1, 5)


@given(few, st.integers(1, 60), times, times, st.floats(0, 2))
def test_the_end_is_kept_but_for_the_first_block_and_as_much_is_done_as_fits(
    views, blocks, decoding, each, share
):
    """For any cost of a block. The first one is always computed; others only if they can end in
    time.
    """
    first = decoding + each * views
    end = share * blocks * first
    work = Work(views, blocks, decoding, each, end)

    work.run()

    assert work.now <= max(end, first) + 1e-6
    assert len(work.used) == blocks or end - work.now < 2 * first
    if end > (blocks + 1) * first:
        assert work.used == [views] * blocks


@pytest.mark.parametrize(("side", "rows", "batch"), [(8, 20, 32), (8, 10**6, 1024), (512, 999, 32)])
def test_a_batch_is_as_large_as_a_block_may_be(side, rows, batch):
    assert forward_pass.batch_size(np.zeros((1, side, side, 3), np.uint8), rows) == batch

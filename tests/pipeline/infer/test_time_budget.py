"""What there is no time for is left out: views, then folds, then rows; and the batch grows while
that pays.
"""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.infer.forward_pass import FIRST, GROWTH, Batch
from pipeline.infer.time_budget import Limit, Pace


class Work:
    """A test set whose blocks take `decoding` seconds, and `each` for every view and fold, after a
    first one that compiles.
    """

    def __init__(
        self, views, folds, blocks, decoding, each, compiling, end, share=None, whole=False
    ):
        self.now, self.done, self.used = 0.0, 0, []
        self.blocks, self.decoding, self.each, self.compiling = blocks, decoding, each, compiling
        self.pace = Pace(views, folds, blocks, Limit(end, share, whole), lambda: self.now)

    def run(self) -> None:
        """Go through the blocks, as long as there is time."""
        for block in range(self.blocks):
            if self.pace.over(0) or self.pace.hopeless:
                return
            used, compiling = self.pace.used, 0.0 if block else self.compiling
            self.now += self.decoding + self.each * used[0] * used[1] + compiling
            self.pace.ended(1, used, compiling)
            self.used.append(used)
            self.done += 1


times = st.floats(0.01, 10)


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 60), times, times, times, st.floats(0, 2)
)
def test_the_end_is_kept_but_for_the_first_block_and_as_much_is_done_as_fits(
    views, folds, blocks, decoding, each, compiling, share
):
    """Whatever a block costs. Of the first nothing is known; every other one is begun only if it
    can end in time.
    """
    end = share * blocks * (decoding + each * views * folds)
    work = Work(views, folds, blocks, decoding, each, compiling, end)

    work.run()

    first = decoding + each * views * folds + compiling
    assert work.now <= max(end, first) + 1e-6
    assert work.done == blocks or end - work.now < 2 * first
    # No fold is left out while there are two views.
    assert all(used[0] == 1 or used[1] == folds for used in work.used)
    if end > first + blocks * (decoding + each * views * folds):
        assert work.done == blocks and set(work.used) == {(views, folds)}


@given(st.lists(st.floats(0.5, 3), min_size=8, max_size=8), st.integers(5, 12))
def test_the_batch_doubles_while_that_pays_and_the_best_one_stays(growths, power):
    """A block is the most; nothing smaller than the first one is ever tried."""
    batch, rate, rates = Batch(None, 2**power), 1000.0, {}
    for growth in growths:
        if not batch.growing:
            break
        rates[batch.size] = rate
        batch.measured(rate=rate, compiling=0.0, remaining=1000.0)
        rate *= growth

    assert FIRST <= batch.size <= 2**power
    if rates and not batch.growing:
        assert rates[batch.size] * GROWTH > max(rates.values()) / GROWTH


def test_out_of_memory_goes_back_a_step_for_good():
    """Down to one row, below which there is nothing."""
    batch = Batch(None, 128)
    batch.measured(rate=1000.0, compiling=0.0, remaining=100.0)

    assert batch.failed() and (batch.size, batch.growing) == (32, False)
    assert [batch.failed() for _ in range(6)] == [True] * 5 + [False]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(2, 60), times, times, st.floats(0.5, 3))
def test_a_model_that_others_can_replace_is_computed_as_a_whole_or_given_up_at_once(
    views, folds, blocks, decoding, each, share
):
    """It never goes on with fewer folds. It is whole wherever one view takes half of the time."""
    one_view = blocks * (decoding + each * folds)
    end, first = share * one_view, decoding + each * views * folds
    work = Work(views, folds, blocks, decoding, each, 0.0, end, end / 2, whole=True)

    work.run()

    assert {used[1] for used in work.used} == {folds}
    assert work.now <= max(end, first) * (1 + 1e-9)
    if end >= 2 * one_view + 3 * first:
        assert work.done == blocks
    if work.done < blocks and work.pace.hopeless:
        # What was left could not be computed by one view at the speed of the last block.
        assert work.now + (blocks - work.done) * (decoding + each * folds) > end * (1 - 1e-9) or (
            work.used[-1][0] > 1
        )

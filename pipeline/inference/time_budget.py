"""Pace: how much of the work there is time for, from what the blocks before have taken.

Views are left out first, then folds; what is left after that is one model and the image as it is.
After it nothing can be left out but rows.
"""

from collections.abc import Callable

TO_SPARE = 1.5


class Pace:
    """What each block gets: so many views of each row, through so many folds.

    Args:
        views, folds: that there are. rows: of all blocks. end: by `clock`, when predicting has to
            be over; None: whenever it is.
        clock: in seconds.

    Attributes:
        used: (views, folds) of the next block.
    """

    def __init__(
        self, views: int, folds: int, rows: int, end: float | None, clock: Callable[[], float]
    ) -> None:
        self._levels = [(number, folds) for number in range(views, 1, -1)]
        self._levels += [(1, number) for number in range(folds, 0, -1)]
        self._rows, self._done, self._end, self._clock = rows, 0, end, clock
        self._last, self._slowest = clock(), 0.0
        self.used = self._levels[0]

    def over(self, waiting: int) -> bool:
        """Return whether there is no time for another block, after so many that are computed now."""
        return self._end is not None and self._clock() + self._slowest * (waiting + 1) >= self._end

    def left(self, rate: float) -> float:
        """Return the seconds that what is left takes at so many rows a second of one view through
        one fold.

        Where there is an end, at most a tenth of the time until then: what is spent on hope must
        not cost rows.
        """
        seconds = (self._rows - self._done) * self.used[0] * self.used[1] / max(rate, 1e-9)
        return (
            seconds
            if self._end is None
            else max(min(seconds, (self._end - self._clock()) / 10), 0.0)
        )

    def ended(self, rows: int, used: tuple[int, int], compiling: float = 0.0) -> bool:
        """Take note of a block, choose what the next one gets, and return whether that is another
        amount.

        Its time counts whole, with decoding, as if all of it grew with views and folds: to leave
        something out brings less than is thought, which the next block shows; to take something
        back costs less.

        Args:
            rows: of the block. used: views and folds that it got. compiling: seconds of it that no
                later block will take.
        """
        now = self._clock()
        taken, self._last = max(now - self._last - compiling, 0.0), now
        self._done += rows
        left, before = self._rows - self._done, self.used
        if self._end is None or not left:
            return False
        # Half of it is forgotten with each block: a slow one may come again.
        slowest = max(self._slowest / 2, taken)
        for level in self._levels:
            share = level[0] * level[1] / (used[0] * used[1])
            self.used = level
            # To take something back needs half as much to spare, or else it comes and goes; and the
            # next block has to fit with it.
            more = level > before
            fits = (
                now + taken / max(rows, 1) * left * share * (TO_SPARE if more else 1) <= self._end
            )
            if fits and (not more or now + slowest * share < self._end):
                break
        # What is left out may bring nothing, if it is decoding that takes the time: the next block
        # shows.
        self._slowest = slowest * max(self.used[0] * self.used[1] / (used[0] * used[1]), 1)
        return self.used != before

"""Time budget: how much of the work there is time for, from what earlier blocks have taken.

Views are skipped first, then folds, down to one model and the image as it is. After that only rows
can be skipped.
"""

from collections.abc import Callable

TO_SPARE = 1.5


class Pace:
    """How many views of each row the next block gets, through how many folds.

    Args:
        views, folds: how many there are.
        rows: of all blocks.
        end: by `clock`, when predicting has to be over; None: no limit.
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
        """Return whether there is no time for another block after the `waiting` ones."""
        return self._end is not None and self._clock() + self._slowest * (waiting + 1) >= self._end

    def remaining(self, rate: float) -> float:
        """Return the seconds that the remaining rows take.

        With an end, it is at most a tenth of the time until then: compiling for a larger batch must
        not cost rows.

        Args:
            rate: rows a second, of one view through one fold.
        """
        seconds = (self._rows - self._done) * self.used[0] * self.used[1] / max(rate, 1e-9)
        if self._end is None:
            return seconds
        return max(min(seconds, (self._end - self._clock()) / 10), 0.0)

    def ended(self, rows: int, used: tuple[int, int], compiling: float = 0.0) -> bool:
        """Choose what the next block gets after one has ended, and return whether that changes.

        All of the block's time, with decoding, counts as if it grew with views and folds. So
        skipping saves less than expected, which the next block shows; adding back costs less.

        Args:
            rows: of the block.
            used: views and folds that it got.
            compiling: seconds of it that no later block will take.
        """
        now = self._clock()
        taken, self._last = max(now - self._last - compiling, 0.0), now
        self._done += rows
        rest, before = self._rows - self._done, self.used
        if self._end is None or not rest:
            return False
        # Halved with each block: a slow one may come again.
        slowest = max(self._slowest / 2, taken)
        for level in self._levels:
            share = level[0] * level[1] / (used[0] * used[1])
            self.used = level
            # Adding back needs half as much time to spare, or else it comes and goes; and the next
            # block has to fit with it.
            more = level > before
            needed = taken / max(rows, 1) * rest * share * (TO_SPARE if more else 1)
            if now + needed <= self._end and (not more or now + slowest * share < self._end):
                break
        # Skipping may save nothing, if decoding takes the time: the next block shows.
        self._slowest = slowest * max(self.used[0] * self.used[1] / (used[0] * used[1]), 1)
        return self.used != before

"""Time budget: how much of the work there is time for, from what earlier blocks have taken.

Views are skipped first, then folds, down to one model and the image as it is. After that only rows
can be skipped. A member of an ensemble that others could replace is skipped as a whole instead.
"""

from collections.abc import Callable
from dataclasses import dataclass

TO_SPARE = 1.5


@dataclass(frozen=True)
class Limit:
    """When predicting has to be over.

    Attributes:
        end: by the clock; None: no limit.
        share: until then there is time for several views of a row; None: until the end.
        whole: all rows, by all folds, or none: a model that does not get there is given up.
    """

    end: float | None = None
    share: float | None = None
    whole: bool = False


NONE = Limit()


class Pace:
    """How many views of each row the next block gets, through how many folds.

    Args:
        views, folds: how many there are.
        rows: of all blocks.
        limit: when predicting has to be over.
        clock: in seconds.

    Attributes:
        used: (views, folds) of the next block.
        hopeless: whether the limit asks for all rows, and at the last block's speed there is no
            time for them.
    """

    def __init__(
        self, views: int, folds: int, rows: int, limit: Limit, clock: Callable[[], float]
    ) -> None:
        least = folds if limit.whole else 1
        self._levels = [(number, folds) for number in range(views, 1, -1)]
        self._levels += [(1, number) for number in range(folds, least - 1, -1)]
        self._rows, self._done, self._end, self._clock = rows, 0, limit.end, clock
        self._share = limit.end if limit.share is None else limit.share
        self._whole, self.hopeless = limit.whole, False
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
        if self._end is None or self._share is None or not rest:
            return False
        # Halved with each block: a slow one may come again.
        slowest, self.hopeless = max(self._slowest / 2, taken), False
        for level in self._levels:
            share = level[0] * level[1] / (used[0] * used[1])
            self.used = level
            # Adding back needs half as much time to spare, or else it comes and goes; and the next
            # block has to fit with it.
            more = level > before
            needed = taken / max(rows, 1) * rest * share * (TO_SPARE if more else 1)
            end = self._share if level[0] > 1 else self._end
            # `over` asks for the time of a slow block; for want of it a whole model would be lost.
            end -= slowest if level[0] > 1 and self._whole else 0
            if now + needed <= end and (not more or now + slowest * share < end):
                break
        else:
            self.hopeless = self._whole
        # Skipping may save nothing, if decoding takes the time: the next block shows.
        self._slowest = slowest * max(self.used[0] * self.used[1] / (used[0] * used[1]), 1)
        return self.used != before

"""Loss curves: how one arm of `workbench.scale_check` compares with its base arm.

An arm's curves are its training losses, float (seeds, epochs). It holds if, after the warm-up,

    gap     the largest distance between the arms' mean losses is at most 2 seed s.d.
    ratio   it takes at most 1.15 times the base arm's epochs to the target
    spread  its own s.d. is at most 3 times the base arm's: else one bad seed would widen the
            measure that it is judged by

    seed s.d.  the root of the mean, over both arms and these epochs, of the variance between seeds
               (n - 1): one number. At a single epoch three seeds say little of it.
    target     the base arm's mean loss at 3/4 of the epochs, between two epochs on a line
    epochs to  where an arm's mean loss first reaches the target, between two epochs on a line
"""

import math
from dataclasses import dataclass

import numpy as np

MOST_GAP, MOST_RATIO, MOST_SPREAD, TARGET_AT = 2.0, 1.15, 3.0, 0.75


@dataclass(frozen=True)
class Compared:
    """An arm beside the base arm; the words are those of the module.

    Attributes:
        gap: in seed s.d., above 0 where the arm's loss is higher.
        epoch: where the gap is largest.
        ratio: infinite if the arm does not reach the target.
        spread: s.d. between the arm's seeds over that of the base arm's.
    """

    gap: float
    epoch: int
    ratio: float
    spread: float

    @property
    def holds(self) -> bool:
        """Whether all three are within their limits."""
        return abs(self.gap) <= MOST_GAP and self.ratio <= MOST_RATIO and self.spread <= MOST_SPREAD


def compare(base: np.ndarray, other: np.ndarray, warmup: int) -> Compared:
    """Return how `other` compares with `base`, without the first `warmup` epochs.

    Raises:
        ValueError: if there are fewer than two seeds of either, or no epoch after the warm-up.

    >>> base = np.array([[4.0, 2.0, 1.0, 0.50], [4.0, 2.2, 1.2, 0.52]])
    >>> compare(base, base + [[0.0, 0.0, 0.5, 0.0]], warmup=1).holds
    False
    """
    (seeds, epochs), (others, others_epochs) = base.shape, other.shape
    if epochs != others_epochs or min(seeds, others) < 2 or not 0 <= warmup < epochs:
        raise ValueError(
            f"{base.shape} and {other.shape} losses, warm-up {warmup}:"
            " expected two seeds and an epoch after it"
        )
    ours, theirs = base[:, warmup:], other[:, warmup:]
    if not np.isfinite(theirs).all() or not np.isfinite(ours).all():
        first = int(np.argmin(np.isfinite(theirs).all(axis=0))) + warmup + 1
        return Compared(math.inf, first, math.inf, math.inf)
    of_base, of_other = (float(losses.var(axis=0, ddof=1).mean()) for losses in (ours, theirs))
    apart = theirs.mean(axis=0) - ours.mean(axis=0)
    place = int(np.abs(apart).argmax())
    target = target_of(base)
    return Compared(
        gap=_over(float(apart[place]), math.sqrt((of_base + of_other) / 2)),
        epoch=place + warmup + 1,
        ratio=epochs_to(target, other) / epochs_to(target, base),
        spread=_over(math.sqrt(of_other), math.sqrt(of_base)),
    )


def target_of(base: np.ndarray) -> float:
    """Return the base arm's mean loss at 3/4 of its epochs."""
    epochs = np.arange(1, base.shape[1] + 1)
    return float(np.interp(TARGET_AT * base.shape[1], epochs, base.mean(axis=0)))


def epochs_to(target: float, losses: np.ndarray) -> float:
    """Return the epoch in which the mean loss first reaches the target; infinite if it does not.

    >>> epochs_to(1.5, np.array([[4.0, 2.0, 1.0], [4.0, 2.0, 1.0]]))
    2.5
    """
    mean = losses.mean(axis=0)
    reached = np.flatnonzero(mean <= target)
    if not len(reached):
        return math.inf
    place = int(reached[0])
    if place == 0:
        return 1.0
    return place + float((mean[place - 1] - target) / (mean[place - 1] - mean[place]))


def _over(number: float, unit: float) -> float:
    if number == 0:
        return 0.0
    return number / unit if unit > 0 else math.copysign(math.inf, number)

"""Loss curves: compares a variant of `workbench.scale_check` with its base variant.

A variant's curves are its training losses, float (seeds, epochs). It holds if, after the warm-up,

    gap     the largest distance between the mean losses is at most 2 seed s.d.
    ratio   it takes at most 1.15 times the epochs of the base variant to reach the target
    spread  its own s.d. is at most 3 times that of the base variant: otherwise one bad seed would
            widen the measure that it is judged by

    seed s.d.  the root of the mean, over both variants and these epochs, of the variance between
               seeds (n - 1): one number, because three seeds say little about a single epoch
    target     the base variant's mean loss at 3/4 of the epochs, interpolated between epochs
    epochs to  where the mean loss first reaches the target, interpolated between epochs
"""

import math
from dataclasses import dataclass

import numpy as np

MOST_GAP, MOST_RATIO, MOST_SPREAD, TARGET_AT = 2.0, 1.15, 3.0, 0.75


@dataclass(frozen=True)
class Compared:
    """A variant compared with the base variant, in the terms of this module.

    Attributes:
        gap: in seed s.d., positive if the variant's loss is higher.
        epoch: where the gap is largest.
        ratio: infinite if the variant does not reach the target.
        spread: the variant's s.d. between seeds over that of the base variant.
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
    """Return how `other` compares with `base`, without the first `warmup` epochs. Each needs two
    seeds, and an epoch after the warm-up.

    >>> base = np.array([[4.0, 2.0, 1.0, 0.50], [4.0, 2.2, 1.2, 0.52]])
    >>> compare(base, base + [[0.0, 0.0, 0.5, 0.0]], warmup=1).holds
    False
    """
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
    """Return the base variant's mean loss at 3/4 of its epochs."""
    epochs = np.arange(1, base.shape[1] + 1)
    return float(np.interp(TARGET_AT * base.shape[1], epochs, base.mean(axis=0)))


def epochs_to(target: float, losses: np.ndarray) -> float:
    """Return the epoch in which the mean loss first reaches the target; infinite if it never does.

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

"""Compare the loss curves of a variant and of the base variant in `workbench.scale_check`.

The curves are training losses, float (seeds, epochs). A variant holds if it meets three conditions
after the warm-up:

    gap     The largest difference between the mean losses is at most 2 seed s.d.
    ratio   It reaches the target within 1.15 times as many epochs as the base variant.
    spread  Its s.d. is at most 3 times the base variant's s.d. Without this condition, one bad seed
            could increase the seed s.d. so much that the variant meets the first condition.

    seed s.d.  The square root of the variance between seeds (n - 1), averaged over both variants
               and all epochs, because three seeds are too few to estimate it for each epoch.
    target     The base variant's mean loss at 3/4 of the epochs, interpolated between epochs.
    epochs to  The first epoch at which the mean loss reaches the target, interpolated.
"""

import math
from dataclasses import dataclass

import numpy as np

MOST_GAP, MOST_RATIO, MOST_SPREAD, TARGET_AT = 2.0, 1.15, 3.0, 0.75


@dataclass(frozen=True)
class Compared:
    """The comparison of a variant with the base variant (see the module docstring).

    Attributes:
        gap: gap in units of the seed s.d., positive if the variant's loss is higher.
        epoch: epoch with the largest gap.
        ratio: ratio of the epochs to the target, infinite if the variant does not reach it.
        spread: ratio of the standard deviations between seeds.
    """

    gap: float
    epoch: int
    ratio: float
    spread: float

    @property
    def holds(self) -> bool:
        return abs(self.gap) <= MOST_GAP and self.ratio <= MOST_RATIO and self.spread <= MOST_SPREAD


def compare(base: np.ndarray, other: np.ndarray, warmup: int) -> Compared:
    """Compare the losses of a variant and of the base variant after the warm-up epochs.

    Both arrays must contain at least two seeds, and at least one epoch after the warm-up.

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
    epochs = np.arange(1, base.shape[1] + 1)
    return float(np.interp(TARGET_AT * base.shape[1], epochs, base.mean(axis=0)))


def epochs_to(target: float, losses: np.ndarray) -> float:
    """Return the epoch at which the mean loss first reaches the target, or infinity.

    The epoch can be a fraction, because it is interpolated.
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

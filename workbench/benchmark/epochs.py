"""Epochs: what one of them took and did, alike for both ways."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TOTAL = 20  # epochs of the benchmark's totals


@dataclass(frozen=True)
class Epoch:
    """One pass.

    Attributes:
        seconds: of it, with its validation.
        images: that were really trained on, as the devices counted them.
        validated: images that were validated on.
        accuracy: on the training images meanwhile, 0 to 1.
        validation_accuracy: afterwards; None without validation.
        compiling: seconds of it in which programs were compiled.
        compiled: names of the steps and evaluations among these.
    """

    seconds: float
    images: int
    validated: int
    accuracy: float
    validation_accuracy: float | None
    compiling: float
    compiled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Times:
    """A training, in the benchmark's columns.

    Attributes:
        before: seconds until the first epoch begins: build the network, read the images.
        epochs: in order.
    """

    before: float
    epochs: tuple[Epoch, ...]

    @property
    def first(self) -> float:
        """Seconds of epoch 1."""
        return self.epochs[0].seconds

    @property
    def later(self) -> list[float]:
        """Seconds of each epoch from the second one on, compilation apart."""
        return [epoch.seconds - epoch.compiling for epoch in self.epochs[1:]]

    @property
    def late(self) -> float:
        """Seconds of compilation after epoch 1, as of a ragged batch that comes only then."""
        return sum(epoch.compiling for epoch in self.epochs[1:])

    @property
    def mean(self) -> float:
        """Mean seconds of an epoch from the second one on, compilation apart."""
        return statistics.fmean(self.later)

    @property
    def deviation(self) -> float:
        """Standard deviation of these; NaN of a single one."""
        return statistics.stdev(self.later) if len(self.later) > 1 else math.nan

    def total(self, epochs: int = TOTAL) -> float:
        """Seconds of so many epochs, by the benchmark's own rule, and its late compilation."""
        return total(self.before, self.first + self.late, self.mean, epochs)

    @property
    def images(self) -> float:
        """Mean number of images in an epoch from the second one on."""
        return statistics.fmean(epoch.images for epoch in self.epochs[1:])

    @property
    def rate(self) -> float:
        """Images a second from the second epoch on, compilation apart."""
        return sum(epoch.images for epoch in self.epochs[1:]) / sum(self.later)

    @property
    def compiling(self) -> float:
        """Seconds of compilation, in all epochs."""
        return sum(epoch.compiling for epoch in self.epochs)

    def until(self, accuracy: float) -> tuple[int, float] | None:
        """Return how many epochs it took to this training accuracy, and the seconds; None: more
        than there are.
        """
        seconds = self.before
        for number, epoch in enumerate(self.epochs, start=1):
            seconds += epoch.seconds
            if epoch.accuracy >= accuracy:
                return number, seconds
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `of_json` takes them."""
        return {"before": self.before, "epochs": [vars(epoch) for epoch in self.epochs]}


def of_json(found: dict[str, Any]) -> Times:
    """Return what `Times.to_json` gave."""
    return Times(
        found["before"],
        tuple(Epoch(**{**one, "compiled": tuple(one["compiled"])}) for one in found["epochs"]),
    )


def total(before: float, first: float, mean: float, epochs: int) -> float:
    """Return the seconds of a training of so many epochs.

    >>> total(0.7, 145.5, 45.6, 20)
    1012.6
    """
    return round(before + first + mean * (epochs - 1), 6)


def speed_up(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Return how many times as long the mean of one takes as that of the other."""
    return statistics.fmean(slow) / statistics.fmean(fast)

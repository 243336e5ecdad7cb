"""How long a step and an epoch take: by two measured batches, or by the limits of a core.

A step takes a fixed time and a time for each image, `AffineLaw`. Two measured batches give both.
For a machine that nothing ran on, `roofline` gives the least time that a core's speed allows, and
`EFFICIENCY` says which share of that speed networks were seen to reach.
"""

import math
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.plan.accelerators import Accelerator

# The share of a core's limit that training reaches: least, usual and most. Read: 0.19 to 0.25 for
# ResNet-50 on A100 and V100 and 0.2 on TPU v3, 0.27 for a ViT on TPU v3, 0.51 for a wide
# convolutional network on TPU v2, 0.46 to 0.67 for language models on TPU v5e (NVIDIA
# DeepLearningExamples; arXiv:1811.06992; google-research/big_vision; koshian2/TPU-Benchmark;
# AI-Hypercomputer/maxtext: read 2026-11-21). A run that was seen refines it (`speed_records`).
EFFICIENCY = (0.15, 0.35, 0.67)
CALL = 2e-3  # seconds of a step, at least; measured 0.5 to 1 ms on a CPU, and assumed twice that
VALIDATES = 0.4  # time of an image without gradients, beside one with them
WHOLE, TRUNCATED = "whole", "truncated"


@dataclass(frozen=True)
class AffineLaw:
    """Seconds of a step: `fixed` + `image` x batch."""

    fixed: float
    image: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> "AffineLaw":
        """Return the law of two measured steps.

        Args:
            first, second: batch, and seconds of a step.

        Raises:
            ConfigError: if the batches are equal.

        >>> AffineLaw.through((100, 0.3), (200, 0.4))
        AffineLaw(fixed=0.2, image=0.001)
        """
        if first[0] == second[0]:
            raise ConfigError(
                f"Two probes of a batch of {first[0]:g} give no law.\nProbe two batches."
            )
        image = (second[1] - first[1]) / (second[0] - first[0])
        return cls(round(first[1] - image * first[0], 12), round(image, 15))

    def step(self, batch: int) -> float:
        """Return the seconds of a step.

        >>> AffineLaw(0.2, 0.001).step(1000)
        1.2
        """
        return self.fixed + self.image * batch

    def epoch(self, images: int, batch: int, *, steps: str = WHOLE) -> float:
        """Return the seconds of an epoch, in whole steps.

        Args:
            steps: "whole": the last one is smaller, where `batch` does not divide `images`;
                "truncated": what does not fill a batch is left out.

        >>> law = AffineLaw(0.2, 0.001)
        >>> round(law.epoch(2500, 1000), 6), round(law.epoch(2500, 1000, steps="truncated"), 6)
        (3.1, 2.4)
        """
        if steps == TRUNCATED:
            return images // batch * self.step(batch)
        return math.ceil(images / batch) * self.fixed + self.image * images


@dataclass(frozen=True)
class Interval:
    """A figure that is not known exactly."""

    least: float
    usual: float
    most: float

    def times(self, factor: float) -> "Interval":
        """Return the interval of a multiple.

        >>> Interval(1, 2, 4).times(0.5)
        Interval(least=0.5, usual=1.0, most=2.0)
        """
        return Interval(factor * self.least, factor * self.usual, factor * self.most)

    def at_least(self, seconds: float) -> "Interval":
        """Return the interval, none of whose figures is below so much."""
        return Interval(*(max(one, seconds) for one in (self.least, self.usual, self.most)))

    def plus(self, seconds: float) -> "Interval":
        """Return the interval, later by so much."""
        return Interval(self.least + seconds, self.usual + seconds, self.most + seconds)


def roofline(
    core: Accelerator, operations: float, traffic: float = 0.0, *, half: bool = True
) -> float:
    """Return the least seconds that a core takes.

    Args:
        operations: floating-point operations of a core.
        traffic: bytes between the core and its memory; 0: not known.
        half: whether it computes in bfloat16 or float16.

    >>> roofline(Accelerator(1, 2e12, 1e12, 1e9), 4e12, 3e9)
    3.0
    """
    return max(operations / (core.operations if half else core.float32), traffic / core.bandwidth)


def expected(least: float, efficiency: tuple[float, float, float] = EFFICIENCY) -> Interval:
    """Return the seconds that a step takes which the core's limits give `least` seconds.

    >>> expected(0.25, (0.25, 0.5, 1.0))
    Interval(least=0.25, usual=0.5, most=1.0)
    """
    low, usual, high = efficiency
    return Interval(least / high, least / usual, least / low)

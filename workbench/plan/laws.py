"""The laws of a step: a fixed part and a part for each image, and the limits of a core.

Two batches that were measured, or compiled, give the affine law. For a machine that nothing ran on,
`roofline` gives the least time that a core's speed allows, and `EFFICIENCY` says which share of
that speed networks were seen to reach.
"""

from dataclasses import dataclass

from pipeline.errors import ConfigError
from workbench.plan.accelerators import Accelerator

# The share of a core's limit that training reaches: least, usual and most. Read: 0.19 to 0.25 for
# ResNet-50 on A100 and V100 and 0.2 on TPU v3, 0.27 for a ViT on TPU v3, 0.51 for a wide
# convolutional network on TPU v2, 0.46 to 0.67 for language models on TPU v5e (NVIDIA
# DeepLearningExamples; arXiv:1811.06992; google-research/big_vision; koshian2/TPU-Benchmark;
# AI-Hypercomputer/maxtext: read 2026-11-21). A run that was seen refines it (`speed_records`).
EFFICIENCY = (0.15, 0.35, 0.67)
CALL = 2e-3  # seconds of a step, at least; measured 0.5 to 1 ms on a CPU, and assumed twice that
VALIDATES = 0.4  # time of an image without gradients, beside one with them


@dataclass(frozen=True)
class AffineLaw:
    """`fixed` + `image` x images: seconds, or bytes."""

    fixed: float
    image: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> "AffineLaw":
        """Return the law of two steps.

        Args:
            first, second: images of a step, and what it takes.

        Raises:
            ConfigError: if both have as many images.

        >>> AffineLaw.through((100, 0.3), (200, 0.4))
        AffineLaw(fixed=0.2, image=0.001)
        """
        if first[0] == second[0]:
            raise ConfigError(
                f"Two steps of {first[0]:g} images give no law.\nGive two batches that differ."
            )
        image = (second[1] - first[1]) / (second[0] - first[0])
        return cls(round(first[1] - image * first[0], 12), round(image, 15))

    def of(self, images: float) -> float:
        """Return what a step of so many images takes.

        >>> AffineLaw(0.2, 0.001).of(1000)
        1.2
        """
        return self.fixed + self.image * images

    def most(self, room: float) -> int:
        """Return the most images of a step that takes no more than `room`; 0: not even one.

        >>> AffineLaw(100.0, 10.0).most(199)
        9
        """
        return max(int((room - self.fixed) / self.image), 0)


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

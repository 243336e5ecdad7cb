"""Models of a step: a fixed part and a part per image, the limits of a core, and whether the host
keeps up.

For a machine that nothing ran on, `roofline` is the least time that a core's speed allows, and
`EFFICIENCY` the share of that speed that networks were seen to reach.
"""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.train.progress_log import INPUT_BOUND
from workbench.plan.accelerators import Accelerator, Runtime
from workbench.plan.operation_counts import image_bytes

# The share of a core's limit that trainings reach: least, usual and most. Read: 0.19 to 0.25 for
# ResNet-50 on A100 and V100 and 0.2 on TPU v3, 0.27 for a ViT on TPU v3, 0.51 for a wide
# convolutional network on TPU v2, 0.46 to 0.67 for language models on TPU v5e (NVIDIA
# DeepLearningExamples; arXiv:1811.06992; google-research/big_vision; koshian2/TPU-Benchmark;
# AI-Hypercomputer/maxtext: read 2026-11-21).
EFFICIENCY = (0.15, 0.35, 0.67)
CALL = 2e-3  # the least seconds of a step; measured on a CPU 0.5 to 1 ms, assumed twice that
VALIDATES = 0.4  # time of an image without gradients, relative to one with them
# Per second and CPU. Decoded JPEGs of 500x375 pixels: measured 450 to 860 with several libraries.
# Gathered bytes: measured 3e9 on one core of a laptop-class CPU; a third of it is assumed.
DECODES, GATHERS = 600.0, 1e9
IN_MEMORY = 0.5  # share of the host's memory that decoded images may take


@dataclass(frozen=True)
class AffineLaw:
    """`fixed` + `image` x images: seconds, or bytes."""

    fixed: float
    image: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> "AffineLaw":
        """Return the law through two points.

        Args:
            first, second: images of a step, and what it takes; the numbers of images differ.

        >>> AffineLaw.through((100, 0.3), (200, 0.4))
        AffineLaw(fixed=0.2, image=0.001)
        """
        image = (second[1] - first[1]) / (second[0] - first[0])
        return cls(round(first[1] - image * first[0], 12), round(image, 15))

    def of(self, images: float) -> float:
        """Return what a step with that many images takes.

        >>> AffineLaw(0.2, 0.001).of(1000)
        1.2
        """
        return self.fixed + self.image * images

    def most(self, room: float) -> int:
        """Return the most images whose step takes at most `room`; 0 if not even one fits.

        >>> AffineLaw(100.0, 10.0).most(199)
        9
        """
        return max(int((room - self.fixed) / self.image), 0)


@dataclass(frozen=True)
class Interval:
    """A number that is only known within a range."""

    least: float
    usual: float
    most: float

    @classmethod
    def around(cls, number: float, share: float = 0.0) -> "Interval":
        """Return a number that may be off by a share of it."""
        return cls(number * (1 - share), number, number * (1 + share))

    def times(self, factor: float) -> "Interval":
        """Return the interval times a factor.

        >>> Interval(1, 2, 4).times(0.5)
        Interval(least=0.5, usual=1.0, most=2.0)
        """
        return Interval(factor * self.least, factor * self.usual, factor * self.most)

    def at_least(self, seconds: float) -> "Interval":
        """Return the interval with no number below `seconds`."""
        return Interval(*(max(one, seconds) for one in (self.least, self.usual, self.most)))

    def plus(self, seconds: float) -> "Interval":
        """Return the interval plus a constant."""
        return Interval(self.least + seconds, self.usual + seconds, self.most + seconds)


def roofline(
    core: Accelerator, operations: float, traffic: float = 0.0, *, half: bool = True
) -> float:
    """Return the least seconds that a core takes.

    Args:
        operations: floating-point operations per core.
        traffic: bytes between the core and its memory; 0 if not known.
        half: whether it computes in bfloat16 or float16.

    >>> roofline(Accelerator("", 1, 2e12, 1e12, 1e9), 4e12, 3e9)
    3.0
    """
    return max(operations / (core.operations if half else core.float32), traffic / core.bandwidth)


def expected(least: float) -> Interval:
    """Return the seconds of a step whose least time, by the core's limits, is `least`.

    >>> expected(0.35).usual
    1.0
    """
    low, usual, high = EFFICIENCY
    return Interval(least / high, least / usual, least / low)


@dataclass(frozen=True)
class Verdict:
    """Whether a training is input-bound.

    All CPUs of the host read the images of a step while the step before computes, so the slower of
    the two decides.

    Attributes:
        need: images per second that the accelerator can train on.
        have: images per second that it gets.
        waits: share of the time that it waits for images.
    """

    need: float
    have: float
    waits: float

    @property
    def bound(self) -> bool:
        """Whether the accelerator waits so long that a run would warn about it."""
        return self.waits >= INPUT_BOUND


def decodes_each_epoch(config: Config, images: int, memory: float) -> bool:
    """Return whether every epoch decodes its images again, since the host's memory (bytes) is too
    small for them.
    """
    if config.data.kind not in ("images", "tfrecords") or config.feed in ("host", "device"):
        return False
    return config.feed == "files" or images * image_bytes(config) > IN_MEMORY * memory


def verdict(
    config: Config, runtime: Runtime, images: int, need: float, decodes: float = DECODES
) -> Verdict | None:
    """Return whether a runtime's host keeps up; None if the host is not known.

    Args:
        need: images per second that the accelerator can train on.
        decodes: images per second that one CPU decodes.
    """
    if runtime.cpus is None or runtime.ram is None:
        return None
    again = decodes_each_epoch(config, images, runtime.ram)
    have = runtime.cpus * (decodes if again else GATHERS / image_bytes(config))
    return Verdict(need, have, max(1 - have / need, 0.0))

"""Performance models for a training step: memory and time by batch size, and limits of a machine.

Times are estimated if a machine has not been measured. `roofline` returns the minimum time that the
machine's speed allows. `EFFICIENCY` is the fraction of this speed that networks typically reach.
"""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.train.progress_log import INPUT_BOUND
from workbench.plan.accelerators import Accelerator, Runtime
from workbench.plan.operation_counts import image_bytes

# Fraction of a core's limit that training reaches: minimum, usual and maximum. Published values are
# 0.19 to 0.25 for ResNet-50 on A100 and V100, 0.2 on TPU v3, 0.27 for a ViT on TPU v3, 0.51 for a
# wide convolutional network on TPU v2, and 0.46 to 0.67 for language models on TPU v5e (NVIDIA
# DeepLearningExamples, arXiv:1811.06992, google-research/big_vision, koshian2/TPU-Benchmark and
# AI-Hypercomputer/maxtext, read 2026-11-21).
EFFICIENCY = (0.15, 0.35, 0.67)
CALL = 2e-3  # minimum seconds per step; twice the 0.5 to 1 ms that were measured on a CPU
VALIDATES = 0.4  # time per image without gradients, relative to the time with gradients
# Throughput per second and CPU. Depending on the library, a CPU decoded 450 to 860 JPEGs of 500x375
# pixels. One core of a laptop-class CPU gathered 3e9 bytes, and a third of that is assumed.
DECODES, GATHERS = 600.0, 1e9
IN_MEMORY = 0.5  # maximum fraction of host memory for decoded images


@dataclass(frozen=True)
class AffineLaw:
    """Computes the seconds or bytes of a step with n images as `fixed` + `image` * n."""

    fixed: float
    image: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> "AffineLaw":
        """Return the law that passes through two points.

        >>> AffineLaw.through((100, 0.3), (200, 0.4))
        AffineLaw(fixed=0.2, image=0.001)
        """
        image = (second[1] - first[1]) / (second[0] - first[0])
        return cls(round(first[1] - image * first[0], 12), round(image, 15))

    def of(self, images: float) -> float:
        """Return the seconds or bytes of a step.

        >>> AffineLaw(0.2, 0.001).of(1000)
        1.2
        """
        return self.fixed + self.image * images

    def most(self, room: float) -> int:
        """Return how many images fit in `room`, which is given in seconds or bytes.

        >>> AffineLaw(100.0, 10.0).most(199)
        9
        """
        return max(int((room - self.fixed) / self.image), 0)


@dataclass(frozen=True)
class Interval:
    """An estimate with a lower and an upper bound."""

    least: float
    usual: float
    most: float

    @classmethod
    def around(cls, number: float, share: float = 0.0) -> "Interval":
        """Return an interval around a number with a relative error of `share`."""
        return cls(number * (1 - share), number, number * (1 + share))

    def times(self, factor: float) -> "Interval":
        """Multiply the interval by a factor.

        >>> Interval(1, 2, 4).times(0.5)
        Interval(least=0.5, usual=1.0, most=2.0)
        """
        return Interval(factor * self.least, factor * self.usual, factor * self.most)

    def at_least(self, seconds: float) -> "Interval":
        return Interval(*(max(one, seconds) for one in (self.least, self.usual, self.most)))

    def plus(self, seconds: float) -> "Interval":
        return Interval(self.least + seconds, self.usual + seconds, self.most + seconds)


def roofline(
    core: Accelerator, operations: float, traffic: float = 0.0, *, half: bool = True
) -> float:
    """Return the minimum number of seconds that a core needs, given its speed and bandwidth.

    Args:
        operations: floating-point operations per core.
        traffic: bytes read from and written to memory, or 0 if unknown.
        half: whether computations use bfloat16 or float16.

    >>> roofline(Accelerator("", 1, 2e12, 1e12, 1e9), 4e12, 3e9)
    3.0
    """
    return max(operations / (core.operations if half else core.float32), traffic / core.bandwidth)


def expected(least: float) -> Interval:
    """Estimate the seconds per step from the minimum that `roofline` returns.

    >>> expected(0.35).usual
    1.0
    """
    low, usual, high = EFFICIENCY
    return Interval(least / high, least / usual, least / low)


@dataclass(frozen=True)
class Verdict:
    """Whether training is input-bound.

    While the accelerator computes a step, the host's CPUs load the images for the next step, so the
    slower of the two determines the speed.

    Attributes:
        need: images per second that the accelerator can process.
        have: images per second that the host can supply.
        waits: fraction of time that the accelerator spends waiting for images.
    """

    need: float
    have: float
    waits: float

    @property
    def bound(self) -> bool:
        """Whether the accelerator waits so long that a run would print a warning."""
        return self.waits >= INPUT_BOUND


def decodes_each_epoch(config: Config, images: int, memory: float) -> bool:
    """Return whether a run decodes its images again in every epoch.

    This is the case if `feed` is "files", or if `feed` is "auto" and the decoded images do not fit
    in the host's `memory` (in bytes).
    """
    if config.data.kind not in ("images", "tfrecords") or config.feed in ("host", "device"):
        return False
    return config.feed == "files" or images * image_bytes(config) > IN_MEMORY * memory


def verdict(
    config: Config, runtime: Runtime, images: int, need: float, decodes: float = DECODES
) -> Verdict | None:
    """Return whether a runtime's host can supply images fast enough, or None if it is unknown.

    Args:
        need: images per second that the accelerator can process.
        decodes: images per second that one CPU decodes.
    """
    if runtime.cpus is None or runtime.ram is None:
        return None
    again = decodes_each_epoch(config, images, runtime.ram)
    have = runtime.cpus * (decodes if again else GATHERS / image_bytes(config))
    return Verdict(need, have, max(1 - have / need, 0.0))

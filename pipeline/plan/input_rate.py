"""Whether a training waits for its images: what the accelerator takes, beside what CPUs give.

Reading and augmenting images is done by every CPU of the host; the images of a step are then on
their way while the step before computes. So a step takes whichever of the two is longer.
"""

from dataclasses import dataclass

# A share above what is needed: below it, the accelerator waits at times.
ROOM = 1.25


@dataclass(frozen=True)
class Verdict:
    """Whether a training is input-bound.

    Attributes:
        need: images a second that the accelerator takes.
        have: images a second that the CPUs give.
    """

    need: float
    have: float

    @property
    def bound(self) -> bool:
        """Whether the accelerator waits for its images."""
        return self.have < self.need

    @property
    def times(self) -> float:
        """How many times as long as computing an epoch takes; 1 where nothing waits."""
        return max(self.need / self.have, 1.0)


def verdict(need: float, a_cpu: float, cpus: int) -> Verdict:
    """Return the verdict of a host.

    Args:
        need: images a second that the accelerator takes.
        a_cpu: images a second that one CPU gives.
        cpus: of the host.

    >>> verdict(1000, 200, 4).times, verdict(1000, 200, 8).bound
    (1.25, False)
    """
    return Verdict(need, a_cpu * cpus)


def with_more_cpus(seconds: float, share: float, times: float) -> float:
    """Return how long a run takes when its host gets more CPUs.

    Args:
        seconds: of the run before.
        share: of that time in which the loader alone decides, from 0 to 1.
        times: as many CPUs.

    >>> round(with_more_cpus(881, 0.725, 4))
    402
    """
    return seconds * (1 - share + share / times)


def loader_share(faster: float, times: float) -> float:
    """Return the share of a run in which its loader decided, from how much more CPUs helped.

    Args:
        faster: times as fast with them.
        times: as many CPUs.

    >>> round(loader_share(2.19, 4), 2)
    0.72
    """
    return (1 - 1 / faster) / (1 - 1 / times)

"""Whether a training waits for its images: what the accelerator takes, beside what CPUs give.

Reading and augmenting images is done by every CPU of the host; the images of a step are then on
their way while the step before computes. So a step takes whichever of the two is longer.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config import Config
from pipeline.plan.accelerators import Runtime

# Of one CPU. Decoded JPEGs of 500x375 pixels: measured 450 to 860 a second by several libraries.
# Gathered bytes: measured 3e9 on one core of a laptop-class CPU; a third of it is assumed.
DECODES, GATHERS = 600.0, 1e9
IN_MEMORY = 0.5  # of the host's memory, which decoded images may take


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


def of(config: Config, runtime: Runtime, images: int, need: float) -> Verdict | None:
    """Return the verdict of a config on a runtime, by assumed rates; None where its host is not
    known.

    Images that fit into the host's memory are decoded once; else they are in each epoch.

    Args:
        need: images a second that the accelerator takes.
    """
    if runtime.cpus is None or runtime.ram is None:
        return None
    image = float(np.prod(config.data.shape)) * np.dtype(config.data.dtype).itemsize
    files = config.data.kind in ("images", "tfrecords") and config.feed not in ("host", "device")
    again = files and (config.feed == "files" or images * image > IN_MEMORY * runtime.ram)
    return verdict(need, DECODES if again else GATHERS / image, runtime.cpus)

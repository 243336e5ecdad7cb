"""Whether a training waits for its images: what the accelerator takes, beside what CPUs give.

Reading images is done by every CPU of the host; those of a step are on their way while the step
before computes. So an accelerator takes whichever of the two is longer. Of a CPU that does both
itself `probe` says how long it waits.
"""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.train.progress_log import INPUT_BOUND
from workbench.plan.accelerators import Runtime
from workbench.plan.run_files import image_bytes

# Of one CPU. Decoded JPEGs of 500x375 pixels: measured 450 to 860 a second by several libraries.
# Gathered bytes: measured 3e9 on one core of a laptop-class CPU; a third of it is assumed.
DECODES, GATHERS = 600.0, 1e9
IN_MEMORY = 0.5  # of the host's memory, which decoded images may take


@dataclass(frozen=True)
class Verdict:
    """Whether a training is input-bound.

    Attributes:
        need: images a second that the accelerator takes.
        have: images a second that it gets.
        waits: share of the time that it waits for them.
    """

    need: float
    have: float
    waits: float

    @property
    def bound(self) -> bool:
        """Whether the accelerator waits for its images as often as a run would complain of."""
        return self.waits >= INPUT_BOUND


def verdict(need: float, have: float) -> Verdict:
    """Return the verdict of an accelerator whose host does nothing else.

    >>> verdict(1000, 2000).waits, verdict(1000, 500).waits
    (0.0, 0.5)
    """
    return Verdict(need, have, max(1 - have / need, 0.0))


def each_epoch(config: Config, images: int, memory: float) -> bool:
    """Return whether every epoch decodes its images again, on a host with so many bytes of memory.

    Images that fit into the host's memory are decoded once.
    """
    if config.data.kind not in ("images", "tfrecords") or config.feed in ("host", "device"):
        return False
    return config.feed == "files" or images * image_bytes(config) > IN_MEMORY * memory


def of(
    config: Config, runtime: Runtime, images: int, need: float, decodes: float = DECODES
) -> Verdict | None:
    """Return the verdict of a config on a runtime; None where its host is not known.

    Args:
        need: images a second that the accelerator takes.
        decodes: images a second that one CPU decodes.
    """
    if runtime.cpus is None or runtime.ram is None:
        return None
    again = each_epoch(config, images, runtime.ram)
    rate = decodes if again else GATHERS / image_bytes(config)
    return verdict(need, rate * runtime.cpus)

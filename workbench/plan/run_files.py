"""What a run writes to its disk, and what its host's memory holds."""

from dataclasses import dataclass

import numpy as np

from pipeline.config import Config
from pipeline.train.checkpoint import SLOWEST_BYTES_PER_SECOND, interval
from workbench.plan.operation_counts import Counts

CHECKPOINTS = 3  # two are kept while the next one is written


@dataclass(frozen=True)
class Files:
    """What a run keeps, in bytes.

    Attributes:
        checkpoint: one of them.
        every: seconds from one to the next, on a disk as slow as we allow for.
        decoded: images in memory, or in a file that is mapped; 0 where each epoch decodes them.
        disk: of checkpoints, at most.
    """

    checkpoint: float
    every: float
    decoded: float
    disk: float


def image_bytes(config: Config) -> float:
    """Return the bytes of one example as batches have it."""
    return float(np.prod(config.data.shape)) * np.dtype(config.data.dtype).itemsize


def of(config: Config, counts: Counts, images: int) -> Files:
    """Return what a run of so many labelled images keeps."""
    checkpoint = counts.state + 4.0 * counts.parameters * (
        config.optimizer.ema_momentum is not None
    )
    cost = checkpoint / SLOWEST_BYTES_PER_SECOND
    every = config.checkpoint_seconds
    decoded = 0.0 if config.feed == "files" else images * image_bytes(config)
    return Files(
        checkpoint,
        interval(cost) if every is None else every,
        decoded,
        CHECKPOINTS * checkpoint,
    )

"""Gradient accumulation: the micro-batches in which a replica computes its share of a batch.

They decide only how a step fits into memory, never its result.
"""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.errors import ConfigError


@dataclass(frozen=True)
class Accumulation:
    """How a replica computes its share of a batch.

    Attributes:
        micro_batches: that are added up, one after the other.
        remat: compute activations again for the gradient, in place of keeping them.
    """

    micro_batches: int
    remat: bool = False


def choices(config: Config, replicas: int, group: int | None) -> list[Accumulation]:
    """Return what a run tries, from the most memory to the least.

    It begins with `config.micro_batch`, or with the whole share. After out of memory it takes
    micro-batches of half the size (or less, where they do not split into halves), and at last the
    smallest of these with rematerialization.

    Args:
        group: images that are computed together, by BatchNorm or by a loss that compares rows;
            None: each image is computed by itself.

    Raises:
        ConfigError: if `config.micro_batch` does not divide a replica's share, or divides a group.
    """
    share = config.batch // replicas
    asked = share if config.micro_batch is None else min(config.micro_batch, share)
    sizes = [share] + [
        size for size in range(share - 1, 0, -1) if share % size == 0 and size % (group or 1) == 0
    ]
    if asked not in sizes:
        groups = f" and groups of {group} that are computed together" if group else ""
        raise ConfigError(
            f"micro_batch={asked} cannot work with batch={config.batch} on {replicas}"
            f" replica(s){groups}: expected one of {', '.join(map(str, sizes))}.\n"
            f"Set micro_batch in pipeline/configs/{config.name}.py to one of these, or to None,"
            " which finds one that fits."
        )
    tried = [asked]
    for size in sizes:
        if 2 * size <= tried[-1]:
            tried.append(size)
    ways = [Accumulation(share // size) for size in tried]
    return [*ways, Accumulation(ways[-1].micro_batches, remat=True)]

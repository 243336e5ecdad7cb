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
    share, asked = config.batch // replicas, config.micro_batch
    numbers = [
        number
        for number in range(1, share + 1)
        if share % number == 0 and (number == 1 or group is None or (share // number) % group == 0)
    ]
    first = 1 if asked is None else max(share // asked, 1)
    if first not in numbers or (asked is not None and asked < share and share % asked):
        sizes = ", ".join(str(share // number) for number in numbers)
        groups = (
            f" and groups of {group} {config.data.noun} that are computed together" if group else ""
        )
        raise ConfigError(
            f"micro_batch={asked} cannot work with batch={config.batch} on {replicas}"
            f" replica{'s' * (replicas > 1)}{groups}: expected one of {sizes}.\n"
            f"Set micro_batch in pipeline/configs/{config.name}.py to one of these, or to None,"
            " which finds one that fits."
        )
    tried = [first]
    for number in numbers:
        if number >= 2 * tried[-1]:
            tried.append(number)
    return [*map(Accumulation, tried), Accumulation(tried[-1], remat=True)]

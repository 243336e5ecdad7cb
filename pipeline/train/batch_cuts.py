"""Batch cuts: the ways to compute a replica's share of a batch, for models of any size."""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.errors import ConfigError


@dataclass(frozen=True)
class Cut:
    """How a replica's share of a batch is computed.

    Attributes:
        accumulation: micro-batches that are added up, one after the other.
        remat: compute again for the gradient what can be computed again.
        passes: 2 where a micro-batch is smaller than what BatchNorm normalizes together, else 1.
    """

    accumulation: int
    remat: bool = False
    passes: int = 1


# Numbers of a channel that a part's own statistics need at least. Those of one number are 0.
LEAST_NUMBERS = 16


def possible(share: int, group: int | None, pixels: int = 1) -> list[Cut]:
    """Return what is tried after out of memory, each cut with less memory than the one before.

    First come micro-batches that are halved (or divided by more, where they do not split into
    halves) and change nothing, then the smallest of these with rematerialization, and at last those
    that are smaller than a group of BatchNorm.

    Args:
        share: images of a replica.
        group: that is computed together, by BatchNorm or by a loss that compares rows; None: each
            image is computed by itself.
        pixels: of an image, where the fewest are normalized; 0: a group stays whole.

    >>> [cut.accumulation for cut in possible(6, None)]
    [1, 2, 6, 6]
    >>> [(cut.accumulation, cut.passes) for cut in possible(16, 8, pixels=16)]
    [(1, 1), (2, 1), (2, 1), (4, 2), (8, 2), (16, 2)]
    >>> [(cut.accumulation, cut.passes) for cut in possible(16, 8)]
    [(1, 1), (2, 1), (2, 1)]
    """
    exact, smaller = [1], list[int]()
    for number in (divisor for divisor in range(2, share + 1) if share % divisor == 0):
        size = share // number
        if group is None or size % group == 0:
            exact += [number] * (number >= 2 * exact[-1])
        elif (
            group % size == 0
            and size * pixels >= LEAST_NUMBERS
            and number >= 2 * [*exact, *smaller][-1]
        ):
            smaller.append(number)
    return [
        *map(Cut, exact),
        Cut(exact[-1], remat=True),
        *(Cut(number, remat=True, passes=2) for number in smaller),
    ]


def tried(config: Config, replicas: int, group: int | None, pixels: int | None) -> list[Cut]:
    """Return the cuts of a run: the one to begin with, which `config.micro_batch` may name, and
    those of `possible` that need less memory.

    Raises:
        ConfigError: if such micro-batches are none of equal size, or would change results.
    """
    share, wanted = config.batch // replicas, config.micro_batch
    cuts = possible(share, group, pixels or 0)
    if wanted is None or wanted >= share:
        return cuts
    sizes = [
        size
        for size in range(share, 0, -1)
        if share % size == 0 and (group is None or size % group == 0 or size == share)
    ]
    if wanted in sizes:
        begun = Cut(share // wanted)
        return [begun, *(cut for cut in cuts if cut.accumulation > begun.accumulation or cut.remat)]
    groups = ""
    if group is not None:
        groups = f" and groups of {group} {config.data.noun} that are computed together"
    raise ConfigError(
        f"micro_batch={wanted} cannot work with batch={config.batch} on {replicas}"
        f" replica{'s' * (replicas > 1)}"
        f"{groups}: expected one of {', '.join(map(str, sizes))}.\n"
        f"Set micro_batch in pipeline/configs/{config.name}.py to one of these, or to None, which"
        " finds one that fits."
    )

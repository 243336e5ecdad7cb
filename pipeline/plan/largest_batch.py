"""The largest batch that a TPU's compiler takes, by three compilations at most.

Near its limit the compiler computes again what it would else keep, so memory grows there by another
law than far below. It says what a batch needs that it refuses: that is a point of this law, from
which the limit follows, and a third compilation confirms it (docs/LOG.md, 2026-11-23).
"""

from collections.abc import Callable
from dataclasses import dataclass

BEYOND = 1.5  # times the batch at which all memory of the first one, were it for images, is used up
BELOW = 0.99  # of the predicted limit, which is compiled to confirm it


@dataclass(frozen=True)
class Tried:
    """A compilation.

    Attributes:
        batch: that was compiled.
        memory: bytes that it takes of a core; of one that is refused, those that it needs.
        taken: whether the compiler took it.
    """

    batch: int
    memory: float
    taken: bool


def search(
    compiled: Callable[[int], Tried], first: int, unit: int, room: float, fixed: float
) -> list[Tried]:
    """Return up to three compilations; the largest batch is that of the largest one taken.

    Args:
        compiled: compiles a batch.
        first: the batch to begin with.
        unit: what a batch is a multiple of.
        room: bytes of a core.
        fixed: bytes of a core that do not grow with the batch: weights, and what the optimizer
            keeps.
    """
    tried = [compiled(first)]
    if tried[0].taken:
        # At least a thousandth, lest the next batch be absurd where almost nothing grows.
        growing = max(tried[0].memory - fixed, tried[0].memory / 1000)
        beyond = int(BEYOND * first * (room - fixed) / growing) // unit * unit
        tried.append(compiled(max(beyond, first + unit)))
    last = tried[-1]
    grown = last.memory if not last.taken else last.memory - fixed
    limit = int(BELOW * last.batch * (room - fixed) / grown) // unit * unit
    if limit > 0 and limit not in {one.batch for one in tried}:
        tried.append(compiled(limit))
    return tried


def largest(tried: list[Tried]) -> int:
    """Return the largest batch that was taken; 0: none was."""
    return max((one.batch for one in tried if one.taken), default=0)

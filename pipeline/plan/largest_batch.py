"""The largest batch that a TPU's compiler takes, by three compilations at most.

Memory grows with the batch by a law (`step_memory`), so two compilations tell where it ends, and a
third one confirms it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.plan.step_memory import MemoryLaw

HALF = 0.5  # of the room, in which the second compilation is meant to end
COMPILATIONS = 3


@dataclass(frozen=True)
class Largest:
    """What was found.

    Attributes:
        batch: the largest that a compilation took; 0: none did.
        predicted: where the law says that the room ends.
        compiled: (batch, bytes of a core, or None where the compiler refused), in their order.
    """

    batch: int
    predicted: int
    compiled: tuple[tuple[int, float | None], ...]


def search(compiled: Callable[[int], float | None], first: int, unit: int, room: float) -> Largest:
    """Return the largest batch.

    Args:
        compiled: returns the bytes that a batch takes of a core, or None where it is refused.
        first: the batch to begin with.
        unit: what a batch is a multiple of.
        room: bytes of a core.
    """
    tried = [(first, compiled(first))]
    memory = tried[0][1]
    # Half of the room, if all of the first one's memory grew with the batch; else a tenth of it.
    second = first // 10 if memory is None else int(HALF * room / memory * first)
    second = max(second // unit * unit, unit)
    if second == first:
        second += unit
    tried.append((second, compiled(second)))
    known = [(batch, bytes_) for batch, bytes_ in tried if bytes_ is not None]
    if len(known) < len(tried):  # one was refused: there is no law
        return Largest(max((batch for batch, _ in known), default=0), 0, tuple(tried))
    law = MemoryLaw.through(*sorted(known))
    predicted = law.fits(room) // unit * unit
    if predicted > max(batch for batch, _ in known):
        tried.append((predicted, compiled(predicted)))
    taken = [batch for batch, bytes_ in tried if bytes_ is not None]
    return Largest(max(taken), predicted, tuple(tried))

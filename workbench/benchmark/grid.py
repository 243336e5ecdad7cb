"""The grid: which trainings a benchmark times, and in which order.

The eight patterns and three feeds are those of koshian2/TPU-Benchmark (2018). Each pattern is
measured with Keras' fit, as there, and with this project's training.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

FIT, OURS = WAYS = "fit", "ours"
# How fit gets its images: all of them, the last batch being smaller; whole batches only; or batch
# by batch from ImageDataGenerator, for images // batch steps. Ours has one feed.
WHOLE, TRUNCATED, GENERATOR = "whole", "truncated", "generator"
OWN = "own"
# Parts of a pattern: each epoch validates on the test images; images are shifted by up to an eighth
# and mirrored; they are PNG files, in a folder per class; four threads load them.
VALIDATION, AUGMENTATION, FILES = "validation", "augmentation", "PNG files"
WORKERS = "4 workers"
PATTERNS: dict[int, tuple[str, ...]] = {
    1: (),
    2: (VALIDATION,),
    3: (VALIDATION, AUGMENTATION),
    4: (FILES,),
    5: (VALIDATION, FILES),
    6: (VALIDATION, AUGMENTATION, FILES),
    7: (FILES, WORKERS),
    8: (VALIDATION, AUGMENTATION, FILES, WORKERS),
}
# The most informative first: the time of a step, what most people run, files, then the rest.
ORDER = (1, 3, 6, 4, 2, 8, 7, 5)


@dataclass(frozen=True)
class Cell:
    """One training that is timed.

    Attributes:
        way: `FIT` or `OURS`.
        pattern: a number of `PATTERNS`.
        feed: how fit gets its images; `OWN` of ours.
        batch: images per step.
    """

    way: str
    pattern: int
    feed: str
    batch: int

    def __str__(self) -> str:
        """Return its name, which is also that of its file."""
        return f"{self.way}-{self.pattern}-{self.feed}-{self.batch}"


def feeds(pattern: int) -> tuple[str, ...]:
    """Return the feeds that fit can use, that of 2018 first: files and augmentation need a loader.

    >>> feeds(2), feeds(3)
    (('whole', 'truncated', 'generator'), ('generator',))
    """
    loads = {AUGMENTATION, FILES} & {*PATTERNS[pattern]}
    return (GENERATOR,) if loads else (WHOLE, TRUNCATED, GENERATOR)


def cells(patterns: Iterable[int], batches: Iterable[int]) -> list[Cell]:
    """Return every training of a grid, the most informative first.

    The smallest and the largest batch come first, and both ways of a training one after the other,
    so that an interrupted grid compares them. Ours decodes on every core, so it skips the patterns
    with workers.

    >>> [str(cell) for cell in cells([3], [64, 128, 256])][:3]
    ['fit-3-generator-64', 'ours-3-own-64', 'fit-3-generator-256']
    """
    sizes = sorted(set(batches))
    found = []
    for number, size in product(set(patterns), sizes):
        found += [Cell(FIT, number, feed, size) for feed in feeds(number)]
        if WORKERS not in PATTERNS[number]:
            found.append(Cell(OURS, number, OWN, size))

    def place(cell: Cell) -> tuple[int, ...]:
        """Return a sort key: other feeds last, batches in between before them."""
        other = cell.feed not in (OWN, feeds(cell.pattern)[0])
        between = cell.batch not in (sizes[0], sizes[-1])
        return other, between, ORDER.index(cell.pattern), cell.batch, WAYS.index(cell.way)

    return sorted(found, key=place)

"""Define which training runs a benchmark times, and the order in which it times them.

A feed is a way to supply images. The eight patterns and the three feeds are from
koshian2/TPU-Benchmark (2018). Each pattern is measured with Keras' fit, as in 2018, and with this
project's training.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

FIT, OURS = WAYS = "fit", "ours"
# How Keras' fit reads its images. WHOLE reads all images, so the last batch can be smaller.
# TRUNCATED omits such a batch. GENERATOR uses ImageDataGenerator for `images // batch` steps. Our
# training has a single feed, OWN.
WHOLE, TRUNCATED, GENERATOR = "whole", "truncated", "generator"
OWN = "own"
# Parts of a pattern. VALIDATION uses the test images after each epoch. AUGMENTATION flips images
# and shifts them by up to an eighth. FILES reads PNG files from a folder per class. WORKERS loads
# images with four threads.
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
# The most informative patterns come first. They measure the step time, the most common setup and
# PNG files.
ORDER = (1, 3, 6, 4, 2, 8, 7, 5)


@dataclass(frozen=True)
class Cell:
    """A training run to time.

    Attributes:
        pattern: key of `PATTERNS`.
        feed: how Keras' fit reads its images, or `OWN` for our training.
    """

    way: str
    pattern: int
    feed: str
    batch: int

    def __str__(self) -> str:
        return f"{self.way}-{self.pattern}-{self.feed}-{self.batch}"


def feeds(pattern: int) -> tuple[str, ...]:
    """Return the feeds that Keras' fit supports for a pattern, starting with the feed of 2018.

    >>> feeds(2), feeds(3)
    (('whole', 'truncated', 'generator'), ('generator',))
    """
    loads = {AUGMENTATION, FILES} & {*PATTERNS[pattern]}
    return (GENERATOR,) if loads else (WHOLE, TRUNCATED, GENERATOR)


def cells(patterns: Iterable[int], batches: Iterable[int]) -> list[Cell]:
    """Return all cells of a grid, starting with the most informative ones.

    The smallest and the largest batch size come first, followed by the sizes in between. Additional
    feeds come last. Keras' fit is directly followed by this project's training, so that even an
    interrupted benchmark can compare them. Patterns with workers only include Keras' fit, because
    this project's training always decodes images on all cores.

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
        other = cell.feed not in (OWN, feeds(cell.pattern)[0])
        between = cell.batch not in (sizes[0], sizes[-1])
        return other, between, ORDER.index(cell.pattern), cell.batch, WAYS.index(cell.way)

    return sorted(found, key=place)

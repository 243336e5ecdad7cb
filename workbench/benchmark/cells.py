"""Cells: what a benchmark measures, one training each, and in which order.

The eight patterns and the three feeds are those of koshian2/TPU-Benchmark. Each pattern is measured
in that benchmark's way (`fit`) and in ours; one of them also in ours with an unscaled rate.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError

FIT, OURS = "fit", "ours"  # Keras' fit with that benchmark's loaders, and this project's training
UNSCALED = "unscaled"  # ours, with the rate of the base batch at any batch
WAYS = (FIT, OURS, UNSCALED)
WHOLE, TRUNCATED, GENERATOR = "whole", "truncated", "generator"
# How `fit` gets its images: all of them, the last batch ragged; a multiple of the batch; or batch
# by batch from ImageDataGenerator, for images // batch steps. Ours is one way.
FEEDS = (WHOLE, TRUNCATED, GENERATOR)
OWN_FEED = "own"


@dataclass(frozen=True)
class Pattern:
    """What surrounds the steps.

    Attributes:
        validation: whether each epoch ends with the test images.
        augmentation: whether images are shifted by up to an eighth and mirrored.
        files: whether images are PNG files, in a folder a class.
        workers: processes that load them.
    """

    number: int
    validation: bool
    augmentation: bool
    files: bool
    workers: int = 1

    @property
    def feeds(self) -> tuple[str, ...]:
        """The feeds that its loaders allow: arrays have no augmentation, and files no arrays."""
        return (GENERATOR,) if self.augmentation or self.files else FEEDS

    @property
    def feed(self) -> str:
        """The feed that the benchmark took."""
        return self.feeds[0]

    def __str__(self) -> str:
        parts = {
            "validation": self.validation,
            "augmentation": self.augmentation,
            "PNG files": self.files,
            f"{self.workers} workers": self.workers > 1,
        }
        return ", ".join(name for name, there in parts.items() if there) or "training alone"


PATTERNS = {
    one.number: one
    for one in (
        Pattern(1, validation=False, augmentation=False, files=False),
        Pattern(2, validation=True, augmentation=False, files=False),
        Pattern(3, validation=True, augmentation=True, files=False),
        Pattern(4, validation=False, augmentation=False, files=True),
        Pattern(5, validation=True, augmentation=False, files=True),
        Pattern(6, validation=True, augmentation=True, files=True),
        Pattern(7, validation=False, augmentation=False, files=True, workers=4),
        Pattern(8, validation=True, augmentation=True, files=True, workers=4),
    )
}
# The most informative first: the time of a step, what most people run, files, then the rest.
ORDER = (1, 3, 6, 4, 2, 8, 7, 5)


@dataclass(frozen=True)
class Cell:
    """One training that is timed.

    Attributes:
        way: one of `WAYS`.
        pattern: a number of `PATTERNS`.
        feed: one of `FEEDS`; `OWN_FEED` of ours.
        batch: images a step.
    """

    way: str
    pattern: int
    feed: str
    batch: int

    def __str__(self) -> str:
        """Return its name, which is also that of its file."""
        return f"{self.way}-{self.pattern}-{self.feed}-{self.batch}"


def possible(cell: Cell) -> bool:
    """Return whether such a cell can be measured: ours decodes by every core, with no workers.

    >>> possible(Cell("fit", 3, "truncated", 64)), possible(Cell("fit", 3, "generator", 64))
    (False, True)
    """
    pattern = PATTERNS[cell.pattern]
    if cell.way != FIT:
        return cell.feed == OWN_FEED and pattern.workers == 1
    return cell.feed in pattern.feeds


def grid(patterns: Iterable[int], batches: Iterable[int], ways: Sequence[str] = WAYS) -> list[Cell]:
    """Return every possible cell, the most informative first.

    At the smallest and the largest batch first, since the law of a step lies between them; the
    ways of a cell come after each other, so that a grid that is cut compares them. The unscaled
    rate is for the first pattern alone: what it costs is accuracy, not time.
    """
    sizes = sorted(set(batches))
    ends = [size for size in sizes if size in (sizes[0], sizes[-1])]
    chosen = [number for number in ORDER if number in set(patterns)]
    main, others = [], []
    for places in (ends, [size for size in sizes if size not in ends]):
        for number in chosen:
            for size in places:
                cells = [cell for cell in _of(number, size) if cell.way in ways]
                main += [one for one in cells if one.way != UNSCALED or number == chosen[0]]
                others += [
                    Cell(FIT, number, feed, size)
                    for feed in PATTERNS[number].feeds[1:]
                    if FIT in ways
                ]
    return main + others


def _of(number: int, size: int) -> Iterator[Cell]:
    pattern = PATTERNS[number]
    own = (Cell(way, number, OWN_FEED, size) for way in (OURS, UNSCALED))
    return filter(possible, (Cell(FIT, number, pattern.feed, size), *own))


def read_patterns(text: str) -> list[int]:
    """Return the patterns that an option names, as "1,3" or "1..8".

    Raises:
        ConfigError: if one is none.

    >>> read_patterns("1..3,8")
    [1, 2, 3, 8]
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("..")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise _no_pattern(part)
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or not {numbers[0], numbers[-1]} <= PATTERNS.keys():
            raise _no_pattern(part)
        found += numbers
    return sorted(set(found))


def read_batches(text: str) -> list[int]:
    """Return the batches that an option names, as "64,128".

    Raises:
        ConfigError: if one is none.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(
            f"--batch {text[:40]}: expected images a step, with commas between.\n"
            "Correct it: --batch 64,128,256"
        )
    return sorted({int(part) for part in parts})


def _no_pattern(part: str) -> ConfigError:
    return ConfigError(
        f"--pattern {part[:40]}: expected numbers from 1 to {len(PATTERNS)}, the smaller first.\n"
        "Correct it: --pattern 1,3 or --pattern 1..8"
    )

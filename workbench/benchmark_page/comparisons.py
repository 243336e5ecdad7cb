"""Comparisons: which is faster, each labelled with what it compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from workbench.benchmark.cells import OWN_FEED, PATTERNS
from workbench.benchmark.epochs import TOTAL
from workbench.benchmark_page.timings import Timing


@dataclass(frozen=True)
class Comparison:
    """A ratio of two rows.

    Attributes:
        what: is compared, in words.
        slow, fast: the rows.
        ratio: how many times as long the slow one takes.
        caution: why it is no measure of the devices; "": nothing is known.
    """

    what: str
    slow: Timing
    fast: Timing
    ratio: float
    caution: str = ""


def of(rows: Sequence[Timing], pattern: int, epochs: int = TOTAL) -> list[Comparison]:
    """Return how devices and ways compare in one pattern, where their epochs compute the same.

    An image of each at its best batch; at each batch that both have; and whole trainings.
    """
    series: dict[tuple[str, ...], list[Timing]] = {}
    for row in rows:
        if row.pattern == pattern and row.feed in (PATTERNS[pattern].feed, OWN_FEED):
            series.setdefault((row.work, row.config, row.device, row.way), []).append(row)
    found = []
    for (one, its), (other, theirs) in combinations(series.items(), 2):
        if one[0] != other[0]:
            continue
        best = [min(each, key=lambda row: row.an_image) for each in (its, theirs)]
        found.append(_compared("an image, each at its best batch", best[0], best[1]))
        sizes = {row.batch: row for row in theirs}
        for row in sorted(its, key=lambda row: row.batch):
            if row.batch in sizes:
                found.append(_compared(f"an image, at batch {row.batch}", row, sizes[row.batch]))
        slow, fast = sorted(best, key=lambda row: -row.total(epochs))
        ratio, what = slow.total(epochs) / fast.total(epochs), f"{epochs} epochs from the start"
        found.append(Comparison(what, slow, fast, ratio, _caution(slow, fast)))
    return found


def to_accuracy(rows: Sequence[Timing], accuracy: float) -> list[tuple[Timing, int, float]]:
    """Return the rows that reached this training accuracy, with epochs and seconds, the fastest
    first. Of 2018 it is not known.
    """
    found = []
    for row in rows:
        times = row.measured.times if row.measured else None
        reached = times.until(accuracy) if times else None
        if reached is not None:
            found.append((row, *reached))
    return sorted(found, key=lambda each: each[2])


def by_accuracy(reached: Sequence[tuple[Timing, int, float]], accuracy: float) -> list[Comparison]:
    """Return how the fastest training to an accuracy compares with that of each other device and
    way.

    Args:
        reached: as `to_accuracy` returns them.
    """
    best: dict[tuple[str, str], tuple[Timing, float]] = {}
    for row, _, seconds in reached:
        best.setdefault((row.device, row.way), (row, seconds))
    found = []
    for slow, seconds in list(best.values())[1:]:
        fast, least = next(iter(best.values()))
        if slow.work == fast.work:
            what = f"to a training accuracy of {accuracy:g}, each at its best"
            found.append(Comparison(what, slow, fast, seconds / least))
    return found


def _compared(what: str, one: Timing, other: Timing) -> Comparison:
    slow, fast = sorted((one, other), key=lambda row: -row.an_image)
    return Comparison(what, slow, fast, slow.an_image / fast.an_image, _caution(slow, fast))


def _caution(slow: Timing, fast: Timing) -> str:
    known = []
    if slow.batch != fast.batch:
        known.append("another batch learns otherwise in as many epochs")
    if None in (slow.measured, fast.measured):
        known.append("in 2018 nobody counted the images, and batch 4096 learned nothing")
    elif len({row.measured.about["precision"] for row in (slow, fast) if row.measured}) > 1:
        known.append("their precision differs")
    if None not in (slow.measured, fast.measured) and slow.validated != fast.validated:
        known.append(f"they validate {slow.validated:,} and {fast.validated:,} images")
    return "; ".join(known)

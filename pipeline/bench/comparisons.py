"""Comparisons: which is faster, each labelled with what it compares."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.bench.timings import Timing


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


def of(rows: Sequence[Timing], pattern: int, epochs: int = 20) -> list[Comparison]:
    """Return how the devices and ways compare in one pattern.

    An epoch of each at its best batch, by images; at each batch that two of them share; and whole
    trainings. Batches that differ do not do equal work, and what was not counted is not known.
    """
    ours = [row for row in rows if row.pattern == pattern]
    best: dict[tuple[str, str], Timing] = {}
    for row in ours:
        key = row.device, row.way
        if key not in best or row.an_image < best[key].an_image:
            best[key] = row
    found = []
    keys = list(best)
    for place, one in enumerate(keys):
        for other in keys[place + 1 :]:
            pair = best[one], best[other]
            found.append(_compared("an image, each at its best batch", *pair))
            for left, right in _shared(ours, one, other):
                found.append(_compared(f"an image, at batch {left.batch}", left, right))
            slow, fast = sorted(pair, key=lambda row: -row.total(epochs))
            ratio = slow.total(epochs) / fast.total(epochs)
            what = f"{epochs} epochs from the start, each at its best batch"
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


def _shared(
    rows: Sequence[Timing], one: tuple[str, str], other: tuple[str, str]
) -> list[tuple[Timing, Timing]]:
    sizes = {row.batch: row for row in rows if (row.device, row.way) == other}
    return [
        (row, sizes[row.batch])
        for row in sorted(rows, key=lambda row: row.batch)
        if (row.device, row.way) == one and row.batch in sizes
    ]


def _compared(what: str, one: Timing, other: Timing) -> Comparison:
    slow, fast = sorted((one, other), key=lambda row: -row.an_image)
    return Comparison(what, slow, fast, slow.an_image / fast.an_image, _caution(slow, fast))


def _caution(slow: Timing, fast: Timing) -> str:
    known = []
    if slow.batch != fast.batch:
        known.append("another batch learns otherwise in as many epochs")
    if None in (slow.measured, fast.measured):
        known.append("in 2018 nobody counted the images, and batch 4096 learned nothing")
    elif slow.measured and fast.measured:
        about = slow.measured.about, fast.measured.about
        for name, words in (
            ("config", "networks"),
            ("images", "images"),
            ("precision", "precision"),
        ):
            if about[0].get(name) != about[1].get(name):
                known.append(f"their {words} differ")
    return "; ".join(known)

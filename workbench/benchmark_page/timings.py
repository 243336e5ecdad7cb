"""Timings: rows of any runs and of the benchmark of 2018 side by side, and how they compare."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ConfigError
from workbench.benchmark import measurement
from workbench.benchmark.cells import FEEDS, FIT, PATTERNS
from workbench.benchmark.epochs import total
from workbench.benchmark.measurement import FOLDER, Measured
from workbench.benchmark_page import published_grid

TPU, GPU = "TPU v2-8, 2018", "GPU of Colab, 2018"
FED = f"{TPU}, its feeds"
SIZES = {"k": 7, "kernel_size": 7, "n": 4}
WORK = measurement.work("wide_resnet", SIZES, (published_grid.IMAGES, 32, 32, 3))
NAMES = {"tpu": TPU, "gpu": GPU}
# What is done more in one pattern than in the other.
MORE = {
    "validation": ((2, 1), (5, 4)),
    "augmentation": ((3, 2), (6, 5)),
    "PNG files": ((4, 1), (5, 2), (6, 3)),
    "4 workers": ((7, 4), (8, 6)),
}


@dataclass(frozen=True)
class Timing:
    """A row: one training, in seconds.

    Attributes:
        device: what computed, in words.
        way, pattern, feed, batch: of its cell.
        before, first, mean, deviation: as `workbench.benchmark.epochs.Times` has them; of 2018
            it is not known what was compiled.
        images: that an epoch from the second on really had; of 2018, that it was meant to have.
        work: what an epoch computes, as `workbench.benchmark.measurement.work` says.
        measured: the cell itself; None of 2018.
    """

    device: str
    way: str
    pattern: int
    feed: str
    batch: int
    before: float
    first: float
    mean: float
    deviation: float
    images: float
    work: str
    measured: Measured | None = None

    @property
    def config(self) -> str:
        """Name of the config; "" of 2018."""
        return str(self.measured.about["config"]) if self.measured else ""

    @property
    def made(self) -> str:
        """ ", made images" of images from a seed, which say nothing of an accuracy; else ""."""
        return ", made images" if self.measured and not self.measured.about["real"] else ""

    @property
    def validated(self) -> int:
        """Images that an epoch is validated on; 0 of 2018, where nobody counted them."""
        times = self.measured.times if self.measured else None
        return times.epochs[-1].validated if times else 0

    @property
    def an_image(self) -> float:
        """Seconds an image, from the second epoch on: what differs in its images compares so."""
        return self.mean / self.images

    def total(self, epochs: int) -> float:
        """Seconds of so many epochs."""
        times = self.measured.times if self.measured else None
        if times is not None:
            return times.total(epochs)
        return total(self.before, self.first, self.mean, epochs)


def published() -> list[Timing]:
    """Return the rows of 2018: the grid, and the three feeds, which another session measured."""
    rows = [(NAMES[one.device], one) for one in published_grid.rows()]
    rows += [(FED, one) for one in published_grid.fed()]
    return [
        Timing(
            *(device, FIT, one.pattern, one.feed, one.batch),
            *(one.before, one.first, one.mean, one.deviation, float(one.images)),
            WORK,
        )
        for device, one in rows
    ]


def read(folders: Sequence[Path]) -> list[Measured]:
    """Return the cells of any runs, in the order of their names; of two trainings of a cell that
    differ in their epochs alone, the longer one.

    Raises:
        ConfigError: if a folder has none, a file is corrupt, or two runs of one device disagree
            about a cell.
    """
    found: list[tuple[Measured, Path]] = []
    for folder in folders:
        paths = sorted((folder / FOLDER).glob("*/*.json"))
        if not paths:
            raise ConfigError(
                f"{folder} holds no {FOLDER}/DEVICES/*.json; expected the output of a bench.\n"
                "Correct the path, or measure: python -m workbench bench --config C --output DIR"
            )
        found += [(measurement.read(path), path) for path in paths]
    seen: dict[tuple[str, ...], tuple[Measured, Path]] = {}
    for one, path in found:
        of_run = (str(one.about[name]) for name in ("config", "work"))
        key = str(one.about["devices"]), str(one.cell), *of_run
        known, place = seen.setdefault(key, (one, path))
        if _epochs(known) == _epochs(one) and known != one:
            raise ConfigError(
                f"{key[1]} was measured twice on {key[0]}, with other results; expected one:\n"
                f"{place}\n{path}\nGive one of the two folders."
            )
        if _epochs(known) < _epochs(one):
            seen[key] = one, path
    return [one for one, _ in seen.values()]


def _epochs(measured: Measured) -> int:
    return len(measured.times.epochs) if measured.times else 0


def of(measured: Measured) -> Timing:
    """Return the row of a cell that was trained."""
    times, cell = measured.times, measured.cell
    if times is None:
        raise ValueError(f"{cell} was not trained: {measured.reason}")
    return Timing(
        *(str(measured.about["devices"]), cell.way, cell.pattern, cell.feed, cell.batch),
        *(times.before, times.first, times.mean, times.deviation, times.images),
        *(str(measured.about["work"]), measured),
    )


def costs_of_more(rows: Sequence[Timing]) -> Iterator[tuple[str, Timing, Timing, float]]:
    """Yield what is done more, the row with and the row without it, and how many times as long an
    image then takes: of one device, way and batch.
    """
    for what, pairs in MORE.items():
        for more, less in pairs:
            yield from ((what, *each) for each in _pairs(rows, (more, None), (less, None)))
    for feed in FEEDS[1:]:
        for each in _pairs(rows, (1, feed), (1, FEEDS[0])):
            yield (feed, *each)


def _pairs(
    rows: Sequence[Timing], one: tuple[int, str | None], other: tuple[int, str | None]
) -> Iterator[tuple[Timing, Timing, float]]:
    """Yield the rows of two patterns that else are alike, by (pattern, feed; None: its own)."""

    def like(row: Timing, wanted: tuple[int, str | None]) -> bool:
        pattern, feed = wanted
        own = PATTERNS[pattern].feed if row.way == FIT else row.feed
        return (row.pattern, row.feed) == (pattern, feed or own)

    def key(row: Timing) -> tuple[object, ...]:
        return row.work, row.config, row.device, row.way, row.batch

    chosen = {key(row): row for row in rows if like(row, other)}
    for row in rows:
        less = chosen.get(key(row))
        if like(row, one) and less is not None:
            yield row, less, row.an_image / less.an_image

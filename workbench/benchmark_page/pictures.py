"""Pictures of a benchmark, as PNG files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from PIL import Image

from pipeline.figures import drawing
from workbench.benchmark.cells import PATTERNS
from workbench.benchmark_page import timings
from workbench.benchmark_page.timings import MORE, Timing

EPOCHS = (10, 20, 50, 100, 200, 500, 1000, 2000)
COLORS = tuple(f"C{number}" for number in range(10))


def draw(
    rows: Sequence[Timing], pattern: int, folder: Path, show: Callable[[str], None]
) -> list[Path]:
    """Draw all that these rows have something for, and return their paths.

    Args:
        pattern: of the pictures of epochs and totals.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [row for row in rows if row.pattern == pattern]
    pictures = {
        folder / "epoch.png": partial(_epochs, chosen, "linear"),
        folder / "epoch-log.png": partial(_epochs, chosen, "log"),
        folder / "totals.png": partial(_totals, chosen),
    }
    if costs := list(timings.costs_of_more(rows)):
        pictures[folder / "more.png"] = partial(_more, costs)
    return drawing.draw_each(pictures, show)


def pixels(path: Path) -> np.ndarray:
    """Return a picture as uint8 (height, width, 3)."""
    with Image.open(path) as drawn:
        return np.asarray(drawn.convert("RGB"))


def _series(rows: Sequence[Timing]) -> dict[str, list[Timing]]:
    """Return the rows by what a legend calls them, each by batch."""
    found: dict[str, list[Timing]] = {}
    for row in sorted(rows, key=lambda row: row.batch):
        found.setdefault(f"{row.device}: {row.way}, {row.feed}{row.made}", []).append(row)
    return found


def _epochs(rows: Sequence[Timing], scale: str, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for color, (name, series) in zip(COLORS, _series(rows).items(), strict=False):
        points = [row.batch for row in series], [row.mean for row in series]
        axis.plot(*points, marker="o", color=color, label=drawing.escape(name))
    axis.set(
        title=f"An epoch from the second one on: {PATTERNS[rows[0].pattern]} ({scale})",
        xlabel="images a step",
        ylabel="seconds",
        xscale="log",
        yscale=scale,
    )
    axis.set_xticks(sizes := sorted({row.batch for row in rows}), map(str, sizes), minor=False)
    axis.minorticks_off()
    if scale == "linear":
        axis.set_ylim(bottom=0)
    else:
        least, most = axis.get_ylim()
        # Within a decade there may be none of 1, 2 and 5.
        several = ticker.LogLocator(subs=(1, 2, 5)) if most > 10 * least else ticker.MaxNLocator(6)
        axis.yaxis.set_major_locator(several)
        axis.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.legend(frameon=False, fontsize=8)
    drawing.save(figure, path)


def _more(costs: Sequence[tuple[str, Timing, Timing, float]], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    names = [*MORE, "truncated", "generator"]
    by_series: dict[str, list[tuple[int, float]]] = {}
    for what, more, _, share in costs:
        by_series.setdefault(f"{more.device}: {more.way}{more.made}", []).append(
            (names.index(what), share)
        )
    width = 0.6 / max(len(by_series), 1)
    for place, (color, (name, points)) in enumerate(zip(COLORS, by_series.items(), strict=False)):
        shift = (place - (len(by_series) - 1) / 2) * width
        axis.scatter(
            [at + shift for at, _ in points],
            [share for _, share in points],
            s=18, color=color, alpha=0.7, label=drawing.escape(name),
        )  # fmt: skip
    axis.axhline(1, color=drawing.GREY, lw=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set(title="An image with what is named below, beside one without", ylabel="times as long")
    axis.legend(frameon=False, fontsize=8)
    drawing.save(figure, path)


def _totals(rows: Sequence[Timing], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for color, (name, series) in zip(COLORS, _series(rows).items(), strict=False):
        fastest = min(series, key=lambda row: row.an_image)
        hours = [fastest.total(epochs) / 3600 for epochs in EPOCHS]
        label = f"{name}, batch {fastest.batch}"
        axis.plot(EPOCHS, hours, marker="o", color=color, label=drawing.escape(label))
    axis.set(
        title="A whole training, as these epochs tell it",
        xlabel="epochs",
        ylabel="hours",
        xscale="log",
        yscale="log",
    )
    axis.set_xticks(EPOCHS, map(str, EPOCHS))
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=8)
    drawing.save(figure, path)

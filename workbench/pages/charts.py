"""Draw SVG charts that use the colours and fonts of the page that embeds them.

Charts do not contain text that comes from the run. Labels are shown in tables instead.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from workbench.pages.statistics import Calibration, wilson

POINTS = 1500  # maximum number of points in a scatter plot; more would only enlarge the file
# Sizes in inches for three or two charts per row. The page scales them to the column width.
SMALL, WIDE, LARGE = (3.7, 2.6), (4.8, 2.8), (4.8, 4.4)
# Placeholders for the page's colours, which depend on the light or dark theme.
INK, RULE, TRAIN, HELD = "#010101", "#020202", "#030303", "#040404"
PAGE = {INK: "var(--soft)", RULE: "var(--rule)", TRAIN: "var(--train)", HELD: "var(--held)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # keep text searchable and in the browser's font
    "font.size": 9,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.linewidth": 0.6,
    "lines.markersize": 4,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), RULE),
}


class Chart:
    """A chart that is drawn on `axis`. The result is in `svg`."""

    axis: Axes
    svg: Markup


@contextmanager
def _drawn(label: str, below: str, size: tuple[float, float] = SMALL) -> Iterator[Chart]:
    chart = Chart()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        chart.axis = figure.subplots()
        yield chart
        _format(chart.axis, below)
        chart.svg = _inline(figure, label)


def curves(histories: Sequence[pd.DataFrame], name: str) -> Markup:
    """Plot a metric in training and validation against the epoch.

    If there are several folds, each fold has a thin line, and their mean has a thick line.

    Args:
        histories: tables with the columns `epoch`, `name` and `validation_<name>`.
    """
    columns, folds = [name, f"validation_{name}"], len(histories) > 1
    with _drawn(f"{name} by epoch, in training and validation", "epoch") as chart:
        for column, color, style in zip(columns, (TRAIN, HELD), ("--", "-"), strict=True):
            look: dict[str, Any] = {"lw": 0.8, "alpha": 0.6} if folds else {"lw": 1.7}
            each = [history.set_index("epoch")[column] for history in histories]
            for values in each:
                _line(chart.axis, values.index, values, color=color, ls=style, **look)
            if folds:
                mean = pd.concat(each, axis=1).dropna().mean(axis=1)
                _line(chart.axis, mean.index, mean, color=color, ls=style, lw=1.9)
        shown = pd.concat([history[columns] for history in histories]).stack()
        if len(shown) and shown.min() > 0 and shown.max() > 30 * shown.min():
            chart.axis.set_yscale("log")
            ticks = (1.0, 3.0) if shown.max() < 3e4 * shown.min() else (1.0,)
            chart.axis.yaxis.set_major_locator(LogLocator(subs=ticks))
            chart.axis.yaxis.set_minor_locator(NullLocator())
        chart.axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return chart.svg


def rate(histories: Sequence[pd.DataFrame]) -> Markup:
    with _drawn("learning rate by epoch", "epoch") as chart:
        for history in histories:
            _line(chart.axis, history["epoch"], history["learning_rate"], color=INK, lw=1.5)
        chart.axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        chart.axis.set_ylim(bottom=0)
    return chart.svg


def throughput(lines: Sequence[Sequence[Mapping[str, float]]], noun: str) -> Markup:
    with _drawn(f"{noun} per second by step", "step", WIDE) as chart:
        most = max(line["images_per_second"] for fold in lines for line in fold)
        for fold in lines:
            table = pd.DataFrame(fold)
            _line(chart.axis, table["step"], table["images_per_second"], color=TRAIN, lw=1.5)
        chart.axis.set_ylim(0, 1.08 * most or 1)
    return chart.svg


def intervals(
    rows: Sequence[tuple[str, float, float, float, float | None]],
    ticks: Sequence[float],
    words: Callable[[float], str],
    below: str,
) -> Markup:
    """Plot an interval for each row on a log scale.

    A mark shows the usual value, and a ring shows the measured value.

    Args:
        rows: for each row, its name, its lowest, usual and highest value (all above 0), and its
            measured value or None.
        ticks: candidate ticks of the x axis.
    """
    ends = [value for _, *values in rows for value in values if value is not None]
    low, high = 0.8 * min(ends), 1.25 * max(ends)
    within = [tick for tick in ticks if low <= tick <= high]
    within = within if len(within) > 1 else [min(ends), *within, max(ends)]
    with mpl.rc_context(STYLE):
        size = 1.9 * WIDE[0], 0.9 + 0.32 * len(rows)
        figure = Figure(figsize=size, layout="constrained")
        axis = figure.subplots()
        for place, (_, least, usual, most, was) in enumerate(rows):
            axis.plot([least, most], [place, place], color=TRAIN, lw=5, solid_capstyle="butt")
            axis.plot([usual], [place], "|", color=INK, markersize=11, markeredgewidth=1.8)
            if was is not None:
                axis.plot([was], [place], "o", color=HELD, markersize=8, mfc="none", mew=1.8)
        axis.set(xscale="log", xlabel=below, xlim=(low, high), ylim=(len(rows) - 0.5, -0.5))
        axis.set_xticks(within, [words(tick) for tick in within])
        axis.set_xticks([], minor=True)
        axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axis.grid(axis="x")
        return _inline(figure, f"{below}, from least to most")


def reliability(found: Calibration) -> Markup:
    bins = found.bins
    right = (bins["accuracy"] * bins["rows"]).round().astype(int)
    ends = np.array([wilson(*pair) for pair in zip(right, bins["rows"], strict=True)])
    errors = np.abs(ends.T - bins["accuracy"].to_numpy())
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=LARGE, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 1], [0, 1], color=RULE, lw=1.2)
        look: dict[str, Any] = {"color": HELD, "fmt": "o-", "lw": 1.4, "elinewidth": 0.9}
        upper.errorbar(bins["confidence"], bins["accuracy"], errors, **look)
        width = 0.94 * (bins["high"] - bins["low"])
        lower.bar(bins["low"], bins["rows"], width, align="edge", color=TRAIN)
        upper.set(ylabel="accuracy", ylim=(-0.03, 1.03), xlim=(-0.02, 1.02))
        lower.set_ylabel("rows")
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        _format(upper, "")
        _format(lower, "confidence")
        return _inline(figure, "accuracy by confidence, compared with the diagonal")


def scatter(labels: np.ndarray, predictions: np.ndarray) -> Markup:
    with _drawn("predicted against true values", "true", LARGE) as chart:
        rows = sample(len(labels))
        ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
        look: dict[str, Any] = {"markersize": 2.6, "alpha": 0.6, "markeredgewidth": 0}
        chart.axis.plot(ends, ends, color=RULE, lw=1.2)
        chart.axis.plot(labels[rows], predictions[rows], "o", color=HELD, **look)
        chart.axis.set_ylabel("predicted")
    return chart.svg


def score_line(
    numbers: np.ndarray, marks: Sequence[str], line: tuple[float, float], name: str
) -> Markup:
    """Plot given scores against local scores with error bars, and draw the fitted line.

    Args:
        numbers: the local scores, the given scores, and the standard errors of both, float (4, n).
        marks: label of each run that is off the line, and "" for other runs.
        line: slope and intercept.
    """
    ends = np.array([numbers[0].min(), numbers[0].max()])
    with _drawn(f"{name} against local score, with a line", "local score", LARGE) as chart:
        for mark, (x, y, x_error, y_error) in zip(marks, numbers.T, strict=True):
            look: dict[str, Any] = {"color": HELD if mark else TRAIN, "elinewidth": 0.8}
            chart.axis.errorbar(x, y, y_error, x_error, "o", **look)
            chart.axis.annotate(mark, (x, y), (6, 6), textcoords="offset points", weight="bold")
        chart.axis.plot(ends, line[0] * ends + line[1], color=RULE, lw=1.4)
        chart.axis.set_ylabel(f"{name} score")
    return chart.svg


def histogram(values: np.ndarray, below: str = "value", *, zero: bool = False) -> Markup:
    with _drawn(f"number of rows by {below}", below, LARGE) as chart:
        counts, edges = np.histogram(values, bins=min(max(int(len(values) ** 0.5), 5), 40))
        chart.axis.bar(edges[:-1], counts, 0.94 * np.diff(edges), align="edge", color=TRAIN)
        if zero:
            chart.axis.axvline(0, color=INK, lw=0.8)
        chart.axis.set_ylabel("rows")
    return chart.svg


def sample(rows: int) -> np.ndarray:
    """Return the indices of at most `POINTS` evenly spaced rows.

    >>> len(sample(10)), len(sample(10**6))
    (10, 1500)
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, POINTS)).astype(int))


def _line(axis: Axes, places: Any, values: Any, **look: Any) -> None:
    # Draw a dot if there is only one point, because a line would be invisible.
    axis.plot(places, values, marker="o" if len(values) == 1 else None, **look)


def _format(axis: Axes, below: str) -> None:
    axis.set_xlabel(below)
    axis.margins(x=0.02)
    for one in (axis.xaxis, axis.yaxis):
        # Avoid an offset such as "1e-3" in the corner, and math text, which uses embedded fonts.
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _inline(figure: Figure, label: str) -> Markup:
    """Return a figure as an <svg> element that uses the colours of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    _, _, svg = buffer.getvalue().partition("<svg ")
    svg = re.sub(r"(?s)<style.*?</style>|<metadata>.*?</metadata>", "", svg)  # the page has styles
    for stand_in, color in PAGE.items():
        svg = svg.replace(stand_in, color)
    start = Markup('<svg class="chart" role="img" aria-label="{}" ').format(label)
    return start + Markup(svg)  # noqa: S704 - matplotlib wrote it

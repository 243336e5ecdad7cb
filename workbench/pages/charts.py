"""Charts, drawn by matplotlib as SVG inside a page, with the page's colours and fonts.

Equal numbers give equal bytes: there is no date, and names are made from a fixed salt. No chart
shows a text of the run: labels belong to tables.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from workbench.pages.statistics import Calibration, wilson

POINTS = 1500  # of a scatter plot: more make the page large and the plot no clearer
# Inches, for three and for two charts in a row; the page makes each as wide as its column.
SMALL, WIDE, LARGE = (3.7, 2.6), (4.8, 2.8), (4.8, 4.4)
# Stand-ins for the page's colours, which differ by day and by night.
INK, RULE, TRAIN, HELD = "#010101", "#020202", "#030303", "#040404"
PAGE = {INK: "var(--soft)", RULE: "var(--rule)", TRAIN: "var(--train)", HELD: "var(--held)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and the browser chooses a font
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "lines.markersize": 4,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


def curves(histories: Sequence[pd.DataFrame], name: str) -> Markup:
    """Draw a measure of training and validation by epoch: of one run, or a thin line for each fold
    and a thick one for their mean.

    Args:
        histories: with the columns `epoch`, `name` and `validation_<name>`.
        name: of the measure.
    """
    columns = [name, f"validation_{name}"]
    styles: list[Any] = [(0, (4, 1.5)), "-"]
    folds = len(histories) > 1
    look: dict[str, Any] = {"lw": 0.8, "alpha": 0.6} if folds else {"lw": 1.7}

    def draw(axis: Axes) -> None:
        for column, color, style in zip(columns, (TRAIN, HELD), styles, strict=True):
            for history in histories:
                values = history["epoch"], history[column]
                axis.plot(*values, color=color, ls=style, marker=_marker(history), **look)
            if folds:
                each = [history.set_index("epoch")[column] for history in histories]
                mean = pd.concat(each, axis=1).dropna().mean(axis=1)
                axis.plot(mean.index, mean, color=color, ls=style, lw=1.9)
        shown = np.concatenate([history[columns].to_numpy().ravel() for history in histories])
        shown = shown[np.isfinite(shown)]
        if len(shown) and shown.min() > 0 and shown.max() > 30 * shown.min():
            axis.set_yscale("log")
            ticks = (1.0, 3.0) if shown.max() < 3e4 * shown.min() else (1.0,)
            axis.yaxis.set_major_locator(LogLocator(subs=ticks))
            axis.yaxis.set_minor_locator(LogLocator(subs=()))
        _format(axis, "epoch")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return _chart(draw, f"curve-{name}", f"{name} by epoch, in training and validation")


def rate(histories: Sequence[pd.DataFrame]) -> Markup:
    """Draw the learning rate as applied, by epoch."""

    def draw(axis: Axes) -> None:
        for history in histories:
            values = history["epoch"], history["learning_rate"]
            axis.plot(*values, color=INK, lw=1.5, marker=_marker(history))
        _format(axis, "epoch")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_ylim(bottom=0)

    return _chart(draw, "rate", "learning rate by epoch")


def throughput(lines: Sequence[Sequence[Mapping[str, float]]], noun: str) -> Markup:
    """Draw images, or what examples are called, per second by step, a line for each fold."""

    def draw(axis: Axes) -> None:
        most = 0.0
        for fold in lines:
            speeds = [line["images_per_second"] for line in fold]
            steps = [line["step"] for line in fold]
            axis.plot(steps, speeds, color=TRAIN, lw=1.5, marker=_marker(fold))
            most = max(most, *speeds)
        _format(axis, "step")
        axis.set_ylim(0, 1.08 * most or 1)

    return _chart(draw, "throughput", f"{noun} per second by step", WIDE)


def intervals(
    rows: Sequence[tuple[str, float, float, float, float | None]],
    ticks: Sequence[float],
    words: Callable[[float], str],
    below: str,
) -> Markup:
    """Draw a bar from least to most for each row, a mark at the usual value, on a log scale, and a
    ring where it came out.

    Args:
        rows: name, least, usual, most, all above 0, and what it was; None: not known.
        ticks: where the axis has a mark, if that is within. words: for them.
        below: the name of the axis.
    """
    ends = [value for _, *values in rows for value in values if value is not None]
    low, high = 0.8 * min(ends), 1.25 * max(ends)

    def draw(axis: Axes) -> None:
        for place, (_, least, usual, most, was) in enumerate(rows):
            axis.plot([least, most], [place, place], color=TRAIN, lw=5, solid_capstyle="butt")
            axis.plot([usual], [place], "|", color=INK, markersize=11, markeredgewidth=1.8)
            if was is not None:
                axis.plot([was], [place], "o", color=HELD, markersize=8, mfc="none", mew=1.8)
        axis.set_xscale("log")
        within = [tick for tick in ticks if low <= tick <= high]
        within = within if len(within) > 1 else [min(ends), *within, max(ends)]
        axis.set(xlabel=below, xlim=(low, high))
        axis.set_xticks(within, [words(tick) for tick in within])
        axis.set_xticks([], minor=True)
        axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(axis="x")

    size = 1.9 * WIDE[0], 0.9 + 0.32 * len(rows)
    return _chart(draw, "intervals", f"{below}, from least to most", size)


def reliability(found: Calibration) -> Markup:
    """Draw the share of right predictions by confidence, with 95 % intervals, and the rows of each
    bin below.
    """
    bins = found.bins
    right = (bins["accuracy"] * bins["rows"]).round().astype(int)
    ends = np.array([wilson(*pair) for pair in zip(right, bins["rows"], strict=True)])
    with mpl.rc_context({**STYLE, "svg.hashsalt": "reliability"}):
        figure = Figure(figsize=LARGE, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 1], [0, 1], color=RULE, lw=1.2)
        upper.errorbar(
            bins["confidence"],
            bins["accuracy"],
            np.abs(ends.T - bins["accuracy"].to_numpy()),
            color=HELD,
            fmt="o-",
            lw=1.4,
            elinewidth=0.9,
        )
        width = 0.94 * (bins["high"] - bins["low"])
        lower.bar(bins["low"], bins["rows"], width, align="edge", color=TRAIN)
        upper.set(ylabel="share that is right", ylim=(-0.03, 1.03), xlim=(-0.02, 1.02))
        _format(upper)
        _format(lower, "confidence")
        lower.set_ylabel("rows")
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        label = "share of right predictions by confidence, beside the diagonal"
        return _inline(figure, label)


def scatter(labels: np.ndarray, predictions: np.ndarray) -> Markup:
    """Draw predicted against true values, of at most `POINTS` rows."""

    def draw(axis: Axes) -> None:
        rows = sample(len(labels))
        ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
        look: dict[str, Any] = {"markersize": 2.6, "alpha": 0.6, "markeredgewidth": 0}
        axis.plot(ends, ends, color=RULE, lw=1.2)
        axis.plot(labels[rows], predictions[rows], "o", color=HELD, **look)
        _format(axis, "true")
        axis.set_ylabel("predicted")

    return _chart(draw, "against", "predicted against true values", LARGE)


def histogram(
    values: np.ndarray,
    name: str = "histogram",
    label: str = "number of rows by value",
    below: str = "value",
    *,
    zero: bool = False,
) -> Markup:
    """Draw how many rows have about which value.

    Args:
        values: float (n,).
        name: of the chart, another one for each on a page.
        label: for a reader who does not see the chart.
        below: the name of the axis.
        zero: mark where 0 is.
    """

    def draw(axis: Axes) -> None:
        counts, edges = np.histogram(values, bins=min(max(int(len(values) ** 0.5), 5), 40))
        axis.bar(edges[:-1], counts, 0.94 * np.diff(edges), align="edge", color=TRAIN)
        if zero:
            axis.axvline(0, color=INK, lw=0.8)
        _format(axis, below)
        axis.set_ylabel("rows")

    return _chart(draw, name, label, LARGE)


def sample(rows: int) -> np.ndarray:
    """Return the rows that a scatter plot shows: all, or `POINTS` at equal distances.

    >>> len(sample(10)), len(sample(10**6))
    (10, 1500)
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, POINTS)).astype(int))


def _marker(points: Sequence[object] | pd.DataFrame) -> str | None:
    return "o" if len(points) == 1 else None  # a line through one point is not visible


def _chart(
    draw: Callable[[Axes], None], name: str, label: str, size: tuple[float, float] = SMALL
) -> Markup:
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        return _inline(figure, label)


def _format(axis: Axes, below: str = "") -> None:
    axis.set_xlabel(below)
    axis.margins(x=0.02)
    for one in (axis.xaxis, axis.yaxis):
        # No "1e-3" in a corner, and no mathematics, for which matplotlib brings its own fonts.
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _inline(figure: Figure, label: str) -> Markup:
    """Return a figure as an <svg> of the page: without styles, fonts and addresses of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 - matplotlib just wrote it
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', buffer.getvalue()))
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        for child in list(element):
            if child.tag.rpartition("}")[2] in ("metadata", "style", "title"):
                element.remove(child)
        given = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        # The page forbids styles inside elements; attributes can hold the same.
        styles = given.pop("style", "").split(";")
        given |= dict(part.strip().split(": ", 1) for part in styles if part.strip())
        if "font" in given:
            given["font-size"] = re.findall(r"[\d.]+px", given.pop("font"))[0]
        if given.get("id") not in used:
            given.pop("id", None)
        element.attrib = {key: PAGE.get(value, value) for key, value in given.items()}
        element.tail = None
    view = root.attrib["viewBox"]
    root.attrib = {"class": "chart", "role": "img", "aria-label": label, "viewBox": view}
    svg = ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
    return Markup(svg)  # noqa: S704 - matplotlib wrote it, as above

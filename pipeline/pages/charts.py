"""Charts: curves and clouds of points as SVG inside a page, which takes their colours and letters
from the page's style.

Drawn by matplotlib without its global state. Equal numbers give equal bytes: no date, and names
made from a fixed salt. Nothing that is drawn here is a text of the run's: labels stand in tables.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from pipeline.pages.html import Html
from pipeline.pages.statistics import Calibration, wilson

POINTS = 1500  # of a cloud; more make the page large and the cloud no clearer
SMALL, LARGE = (
    (3.7, 2.6),
    (4.8, 4.4),
)  # inches, of three and of two charts in a row; the page makes each as wide as its column
# Colours that stand for one of the page's, in either light.
INK, RULE, TRAIN, HELD = "#010101", "#020202", "#030303", "#040404"
PAGE = {INK: "var(--soft)", RULE: "var(--rule)", TRAIN: "var(--train)", HELD: "var(--held)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # letters stay letters: they can be searched, and the browser has a font for each
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
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


def curves(histories: Sequence[pd.DataFrame], name: str) -> Html:
    """Draw a measure of training and validation by epoch; with folds a thin line for each, and a
    thick one for their mean.

    Args:
        histories: with the columns `epoch`, `name` and `validation_<name>`.
    """

    def draw(axis: Axes) -> None:
        for column, color, style in (
            (name, TRAIN, (0, (4, 1.5))),
            (f"validation_{name}", HELD, "-"),
        ):
            for history in histories:
                many = len(histories) > 1
                axis.plot(
                    history["epoch"], history[column], color=color, ls=style, lw=0.8 if many else 1.7,
                    alpha=0.6 if many else 1, marker="o" if len(history) == 1 else None, markersize=4,
                )  # fmt: skip
            if len(histories) > 1:
                mean = pd.concat(
                    [history.set_index("epoch")[column] for history in histories], axis=1
                ).dropna()
                axis.plot(mean.index, mean.mean(axis=1), color=color, ls=style, lw=1.9)
        shown = np.concatenate(
            [history[[name, f"validation_{name}"]].to_numpy().ravel() for history in histories]
        )
        shown = shown[np.isfinite(shown)]
        if len(shown) and shown.min() > 0 and shown.max() > 30 * shown.min():
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(
                LogLocator(subs=(1.0, 3.0) if shown.max() < 3e4 * shown.min() else (1.0,))
            )
            axis.yaxis.set_minor_locator(LogLocator(subs=()))
        _axes(axis, "epoch")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return _chart(draw, f"curve-{name}", f"{name} by epoch, of training and validation")


def rate(histories: Sequence[pd.DataFrame]) -> Html:
    """Draw the learning rate as applied, by epoch."""

    def draw(axis: Axes) -> None:
        for history in histories:
            marker = "o" if len(history) == 1 else None
            axis.plot(
                history["epoch"],
                history["learning_rate"],
                color=INK,
                lw=1.5,
                marker=marker,
                markersize=4,
            )
        _axes(axis, "epoch")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_ylim(bottom=0)

    return _chart(draw, "rate", "learning rate by epoch")


def throughput(lines: Sequence[Sequence[Mapping[str, float]]]) -> Html:
    """Draw images a second by step, a line for each fold."""

    def draw(axis: Axes) -> None:
        for fold in lines:
            steps, speeds = (
                [line[name] for line in fold] for name in ("step", "images_per_second")
            )
            axis.plot(
                steps,
                speeds,
                color=TRAIN,
                lw=1.5,
                marker="o" if len(fold) == 1 else None,
                markersize=4,
            )
        _axes(axis, "step")
        axis.set_ylim(
            0, 1.08 * max(line["images_per_second"] for fold in lines for line in fold) or 1
        )

    return _chart(draw, "throughput", "images a second by step", (4.8, 2.8))


def reliability(found: Calibration) -> Html:
    """Draw how often rows are right by the confidence, with 95 % intervals, and how many rows have
    that confidence.
    """
    with mpl.rc_context({**STYLE, "svg.hashsalt": "reliability"}):
        figure = Figure(figsize=LARGE, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        bins = found.bins
        ends = np.array(
            [
                wilson(round(share * rows), rows)
                for share, rows in zip(bins["accuracy"], bins["rows"], strict=True)
            ]
        )
        reach = np.abs(ends.T - bins["accuracy"].to_numpy())
        upper.plot([0, 1], [0, 1], color=RULE, lw=1.2)
        upper.errorbar(
            bins["confidence"],
            bins["accuracy"],
            reach,
            color=HELD,
            fmt="o-",
            lw=1.4,
            elinewidth=0.9,
            markersize=4,
        )
        lower.bar(
            bins["low"],
            bins["rows"],
            0.94 * (bins["high"] - bins["low"]),
            align="edge",
            color=TRAIN,
        )
        upper.set(ylabel="share that is right", ylim=(-0.03, 1.03), xlim=(-0.02, 1.02))
        _axes(upper)
        _axes(lower, "confidence")
        lower.set_ylabel("rows")
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        return _inline(
            figure,
            "reliability",
            "share of right predictions by their confidence, beside the diagonal",
        )


def against(labels: np.ndarray, predictions: np.ndarray) -> Html:
    """Draw predicted against true values, of more than `POINTS` rows every so many."""

    def draw(axis: Axes) -> None:
        rows = sample(len(labels))
        ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
        axis.plot(ends, ends, color=RULE, lw=1.2)
        axis.plot(
            labels[rows],
            predictions[rows],
            "o",
            color=HELD,
            markersize=2.6,
            alpha=0.6,
            markeredgewidth=0,
        )
        _axes(axis, "true")
        axis.set_ylabel("predicted")

    return _chart(draw, "against", "predicted values against the true ones", LARGE)


def residuals(errors: np.ndarray) -> Html:
    """Draw how many rows are wrong by how much: predicted less true."""
    return histogram(
        errors,
        "residuals",
        "number of rows by the error of the prediction",
        "predicted less true",
        zero=True,
    )


def histogram(
    values: np.ndarray,
    name: str = "histogram",
    label: str = "number of rows by value",
    below: str = "value",
    *,
    zero: bool = False,
) -> Html:
    """Draw how many rows have about which value. `label`: for who does not see it. `below`: the
    axis' name. `zero`: mark where 0 is.
    """

    def draw(axis: Axes) -> None:
        counts, edges = np.histogram(values, bins=min(max(int(len(values) ** 0.5), 5), 40))
        axis.bar(edges[:-1], counts, 0.94 * np.diff(edges), align="edge", color=TRAIN)
        if zero:
            axis.axvline(0, color=INK, lw=0.8)
        _axes(axis, below)
        axis.set_ylabel("rows")

    return _chart(draw, name, label, LARGE)


def sample(rows: int) -> np.ndarray:
    """Return which rows a cloud shows: all, or `POINTS` from all over.

    >>> len(sample(10)), len(sample(10**6))
    (10, 1500)
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, POINTS)).astype(int))


def _chart(
    draw: Callable[[Axes], None], name: str, label: str, size: tuple[float, float] = SMALL
) -> Html:
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        return _inline(figure, name, label)


def _axes(axis: Axes, below: str = "") -> None:
    axis.set_xlabel(below)
    axis.margins(x=0.02)
    for one in (axis.xaxis, axis.yaxis):
        # No "1e-3" in a corner, and no mathematics, which matplotlib would set in fonts of its own.
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _inline(figure: Figure, name: str, label: str) -> Html:
    """Return a figure as an <svg> of this page: without styles, fonts and addresses of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 - matplotlib wrote it, just now
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', buffer.getvalue()))
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        for child in [
            child
            for child in element
            if child.tag.rpartition("}")[2] in ("metadata", "style", "title")
        ]:
            element.remove(child)
        given = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        # The page forbids styles inside of elements; what they say can be said by attributes, too.
        said = dict(
            part.strip().split(": ", 1)
            for part in given.pop("style", "").split(";")
            if part.strip()
        )
        if "font" in said:
            said["font-size"] = re.findall(r"[\d.]+px", said.pop("font"))[0]
        if given.get("id") not in used:
            given.pop("id", None)
        element.attrib = {key: PAGE.get(value, value) for key, value in {**given, **said}.items()}
        element.tail = None
    root.attrib = {
        "class": "chart",
        "role": "img",
        "aria-label": label,
        "viewBox": root.attrib["viewBox"],
    }
    return Html(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False))

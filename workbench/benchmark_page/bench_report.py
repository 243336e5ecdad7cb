"""Report: the trainings of any runs on one page, with those of 2018 beside them."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing
from pipeline.errors import ConfigError
from workbench.benchmark.cells import FIT, PATTERNS
from workbench.benchmark.epochs import TOTAL
from workbench.benchmark.measurement import Measured
from workbench.benchmark_page import comparisons, pictures, predictions, timings
from workbench.benchmark_page.timings import Timing
from workbench.pages import html
from workbench.pages.html import quoted
from workbench.plan import accelerators, cost
from workbench.plan.laws import Interval

FILE, DEFAULT_PATTERN, ACCURACY = "bench.html", 3, 0.5
HEAD = (
    *("training", "batch", "before, s", "epoch 1, s", "later, s", "s.d.", f"{TOTAL} epochs, min"),
    *("images", "images/s", "MFU, %", "compiling, s", "peak, GB", "accuracy", "quota, h", "price"),
)
MISSING = "—"
COLAB = {"gpu-t4x2": "colab-t4", "gpu-a100": "colab-a100", "tpu-v2-8": "colab-tpu"}


def write(
    folders: Sequence[Path],
    output: Path,
    show: Callable[[str], None],
    *,
    pattern: int = 0,
    accuracy: float = ACCURACY,
) -> dict[str, Any]:
    """Write the page and its pictures, and return their paths and what was compared.

    Args:
        folders: with the cells of runs, of any devices; none: the benchmark of 2018 alone.
        output: gets bench.html and the pictures.
        pattern: that is compared; 0: the benchmark's headline, or the first that was measured.
        accuracy: on the training images, to which the times are compared.

    Raises:
        ConfigError: if a folder has no cells, two disagree, no run has the pattern, or the accuracy
            is none.
        DiskError: if nothing can be written.
    """
    if not 0 < accuracy < 1:
        raise ConfigError(f"--accuracy {accuracy:g}: expected a share, as 0.9.\nCorrect it.")
    measured = timings.read(folders) if folders else []
    trained = [timings.of(one) for one in measured if one.times]
    rows = [*trained, *timings.published()]
    there = sorted({row.pattern for row in trained})
    chosen = pattern or (there[0] if there and DEFAULT_PATTERN not in there else DEFAULT_PATTERN)
    if there and chosen not in there:
        raise ConfigError(
            f"--pattern {chosen}: these runs measured {', '.join(map(str, there))} alone.\n"
            "Give one of them, or leave the option out."
        )
    compared = comparisons.of(rows, chosen)
    work = next((row.work for row in trained if row.pattern == chosen), timings.WORK)
    alike = [row for row in trained if row.work == work]
    reached = comparisons.to_accuracy([row for row in alike if not row.made], accuracy)
    compared += comparisons.by_accuracy(reached, accuracy)
    told = [*predictions.by_law(rows), *predictions.by_plan(trained, show)]
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    drawn = pictures.draw([row for row in rows if row.work == work], chosen, output, show)
    advice = _advice(alike, reached, accuracy)
    page = html.render(
        "benchmark_page/bench.html.j2",
        "Trainings, timed",
        advice=[quoted(line, 400) for line in advice],
        compared_head=("compared", "times", "slower", "faster", "note"),
        compared_rows=[
            [quoted(text, 200) for text in (
                each.what, f"{each.ratio:.2f}", _name(each.slow), _name(each.fast), each.caution,
            )]
            for each in compared
        ],
        pictures=[html.picture(pictures.pixels(one), one.stem) for one in drawn],
        target=f"{accuracy:g}",
        reached_head=("training", "epochs", "seconds", "quota, h", "price"),
        reached_rows=[
            [quoted(_name(row), 200), epochs, f"{seconds:,.1f}", *_costs(row, seconds)]
            for row, epochs, seconds in reached
        ],
        told_head=("training", "figure", "predicted", "actual", "predicted by"),
        told_rows=[
            [quoted(text, 200) for text in (
                _name(one.row), one.what, _interval(one.predicted),
                MISSING if one.actual is None else f"{one.actual:.3g}", one.basis,
            )]
            for one in told
        ],
        about=[quoted(line, 400) for line in _about(measured)],
        row_head=HEAD,
        row_rows=[[quoted(cell, 120) for cell in _cells(row)] for row in rows],
    )  # fmt: skip
    path = atomic_file.write(output / FILE, page)
    show(f"{len(trained)} trainings beside {len(rows) - len(trained)} of 2018: {path}")
    return {
        "page": str(path),
        "pictures": [str(one) for one in drawn],
        "pattern": chosen,
        "compared": [
            {"what": one.what, "ratio": one.ratio, "slow": _name(one.slow), "fast": _name(one.fast)}
            for one in compared
        ],
        "reached": [
            {"training": _name(row), "epochs": epochs, "seconds": seconds}
            for row, epochs, seconds in reached
        ],
        "predicted": [
            {
                "training": _name(one.row),
                "figure": one.what,
                "usual": one.predicted.usual,
                "actual": one.actual,
                "basis": one.basis,
            }
            for one in told
        ],
        "advice": advice,
    }


def _name(row: Timing) -> str:
    """Return what a reader calls a row."""
    way = f"{row.way}, {row.feed}" if row.way == FIT else row.way
    place = f"{row.device}, {row.config}" if row.config else row.device
    return f"{place}: {way}, batch {row.batch}, {PATTERNS[row.pattern]}{row.made}"


def _cells(row: Timing) -> list[str]:
    """Return the cells of a row of the table of all."""
    found, times = [_name(row), str(row.batch)], row.measured.times if row.measured else None
    for value in (row.before, row.first, row.mean, row.deviation):
        found.append(MISSING if math.isnan(value) else f"{value:,.2f}")
    seconds = row.total(TOTAL)
    found += [f"{seconds / 60:,.1f}", f"{row.images:,.0f}", f"{1 / row.an_image:,.0f}"]
    found.append(predictions.in_percent(row))
    peak = row.measured.about.get("peak_bytes") if row.measured else None
    found.append(f"{times.compiling:,.1f}" if times else MISSING)
    found.append(f"{peak / 1e9:.2f}" if peak else MISSING)
    found.append(f"{times.epochs[-1].accuracy:.3f}" if times and not row.made else MISSING)
    return [*found, *_costs(row, seconds)]


def _costs(row: Timing, seconds: float) -> list[str]:
    """Return the hours of quota, and the price, of so many seconds on the row's device.

    The price is that of Colab's runtime with the same processors, where it sells one.
    """
    share, name = _quota(row, seconds), COLAB.get(accelerators.like(row.device), "")
    hours = MISSING if share is None else f"{seconds / 3600:.3f} ({share:.2%} of a week)"
    if not name:
        return [hours, MISSING]
    count = accelerators.counted(row.device) // accelerators.RUNTIMES[name].cores
    spent = cost.of(accelerators.RUNTIMES[name], count * seconds)
    return [hours, f"{spent.units:.3f} CU, {spent.yen:,.1f} yen on {count} x {name}"]


def _interval(told: Interval) -> str:
    if told.least == told.most:
        return f"{told.usual:.3g}"
    return f"{told.usual:.3g} ({told.least:.3g} to {told.most:.3g})"


def _about(measured: Sequence[Measured]) -> list[str]:
    """Return what the figures depend on, a line a run, and which cells cannot be trained."""
    found: dict[str, None] = {}
    for one in measured:
        about = one.about
        versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
        found[
            f"{about['devices']}, {about['cpus']} CPU cores, {about['precision']}:"
            f" {about['config']}, {about['count']:,} images, {about['images']}; {versions}"
        ] = None
    not_there = [f"n/a: {one.cell}: {one.reason}" for one in measured if not one.times]
    return [*found, *not_there]


def _advice(
    trained: Sequence[Timing], reached: Sequence[tuple[Timing, int, float]], accuracy: float
) -> list[str]:
    """Return which runtime to choose, and why, as far as these rows say."""
    if reached:
        row, epochs, seconds = reached[0]
        chosen = f"Choose {row.device} for {row.work}."
        if len({one.device for one in trained}) == 1:
            chosen = f"Only {row.device} was measured for {row.work}: nothing is known of others."
        found = [
            f"{chosen} The fastest to an accuracy of {accuracy:g} was {_name(row)}:"
            f" {seconds:,.1f} s with all compilation, in epoch {epochs}."
        ]
        shares = [(_quota(one, took), one, took) for one, _, took in reached]
        priced = [each for each in shares if each[0] is not None]
        if priced:
            share, cheapest, took = min(priced, key=lambda each: each[0] or 0.0)
            found.append(
                f"Of those with a quota, the cheapest was {_name(cheapest)}: {share:.2%} of a"
                f" week's quota, {took:,.1f} s."
            )
        return found
    if trained:
        row = min(trained, key=lambda one: one.an_image)
        return [
            f"The most images a second were those of {_name(row)}: {1 / row.an_image:,.0f}."
            f" How long a training takes to an accuracy of {accuracy:g} is not known from these"
            " runs."
        ]
    return ["Nothing was measured; these are the figures of 2018."]


def _quota(row: Timing, seconds: float) -> float | None:
    """Return the share of a week's quota that so many seconds take; None where there is none."""
    runtime = accelerators.RUNTIMES.get(accelerators.named(row.device))
    weekly = runtime.weekly_hours if runtime else None
    return seconds / 3600 / weekly if weekly else None

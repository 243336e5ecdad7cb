"""Write an HTML page that compares benchmark runs with the 2018 benchmark."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image

from formats import atomic_file
from formats.errors import writing
from pipeline.errors import ConfigError
from pipeline.figures import drawing
from workbench.benchmark import measurement
from workbench.benchmark.grid import FIT, OWN, PATTERNS, WHOLE, feeds
from workbench.benchmark.measurement import FOLDER, Measured
from workbench.pages import html

FILE, PATTERN, ACCURACY = "bench.html", 3, 0.5
# Seconds from result.md and result_appendix.md in koshian2/TPU-Benchmark, for a TPU v2-8 and an
# unnamed GPU on Colab. The feeds of pattern 1 were measured in different sessions.
PUBLISHED = Path(__file__).with_name("published.csv")
WORK = "wide_resnet(k=7, kernel_size=7, n=4) on 50,000 images of 32x32x3"
IMAGES = 50_000
TOTAL = 20  # epochs, as in 2018
EPOCHS = (10, 20, 50, 100, 200, 500, 1000, 2000)  # in the second plot
# Titles and formats of table columns. Other columns are ratios, and their name is the title.
COLUMNS = {
    "label": ("device and method", "{}"),
    "precision": ("precision", "{}"),
    "batch": ("best batch", "{:.0f}"),
    "name": ("run", "{}"),
    "before": ("before, s", "{:,.1f}"),
    "first": ("epoch 1, s", "{:,.1f}"),
    "mean": ("later, s", "{:,.2f}"),
    "deviation": ("s.d.", "{:,.2f}"),
    "total": (f"{TOTAL} epochs, s", "{:,.0f}"),
    "images": ("images", "{:,.0f}"),
    "rate": ("images/s", "{:,.0f}"),
    "validated": ("validated", "{:,.0f}"),
    "compiling": ("compiling, s", "{:,.1f}"),
    "accuracy": ("accuracy", "{:.3f}"),
    "reached": ("epochs", "{:.0f}"),
    "seconds": ("seconds", "{:,.1f}"),
}
EVERY = ("name", *[*COLUMNS][4:14])
RATIO = "{:.2f}"


def write(
    folders: Sequence[Path],
    output: Path,
    show: Callable[[str], None],
    *,
    pattern: int = 0,
    accuracy: float = ACCURACY,
) -> dict[str, Any]:
    """Write bench.html and bench.png to `output`, and return their paths and the comparison.

    Args:
        folders: output folders of benchmark runs on any devices. Without folders, the page only
            shows the 2018 benchmark.
        pattern: the pattern to compare. 0 selects the benchmark's main pattern if it was measured,
            or else the first pattern that was measured.
        accuracy: training accuracy. The page compares how long runs took to reach it.
    """
    if not 0 < accuracy < 1:
        raise ConfigError(
            f"--accuracy {accuracy:g}: expected a number between 0 and 1.\n"
            "For example: --accuracy 0.9"
        )
    measured = read(folders)
    rows = table(measured, accuracy)
    there = sorted({*rows["pattern"][~rows["old"]]})
    chosen = pattern or (PATTERN if PATTERN in there or not there else there[0])
    if there and chosen not in there:
        raise ConfigError(
            f"--pattern {chosen}: these runs only measured {', '.join(map(str, there))}.\n"
            "Pass one of these patterns, or omit the option."
        )
    work = rows[rows["pattern"] == chosen]["work"].iloc[0]
    alike = rows[rows["work"] == work]
    main = alike[(alike["pattern"] == chosen) & alike["feed"].isin([feeds(chosen)[0], OWN])]
    compared = compare(main, accuracy)
    reached = alike.dropna(subset="seconds").sort_values("seconds")
    advice = _advice(alike[~alike["old"]], reached, accuracy)
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    draw = partial(_draw, main)
    drawn = drawing.draw_each({output / "bench.png": draw}, show)
    pixels = [np.asarray(Image.open(path).convert("RGB")) for path in drawn]
    page = html.render(
        "benchmark/page.html.j2",
        "Training benchmark",
        advice=advice,
        what=f"{work}; {_named(chosen)}",
        pictures=[html.picture(picture, "time by batch size and by epochs") for picture in pixels],
        accuracy=f"{accuracy:g}",
        about=dict.fromkeys(_about(one) for one in measured),
        compared=_shown(compared, *compared),
        reached=_shown(reached, "name", "reached", "seconds"),
        rows=_shown(rows, *EVERY),
    )
    path = atomic_file.write(output / FILE, page)
    show(f"{(~rows['old']).sum()} runs compared with {rows['old'].sum()} from 2018: {path}")
    return {
        "page": str(path),
        "pictures": [str(one) for one in drawn],
        "pattern": chosen,
        "compared": json.loads(compared.to_json(orient="records")),
        "reached": json.loads(reached[["name", "reached", "seconds"]].to_json(orient="records")),
        "advice": advice,
    }


def read(folders: Sequence[Path]) -> list[Measured]:
    """Return the newest measurement of each cell."""
    found: list[Measured] = []
    for folder in folders:
        paths = sorted((folder / FOLDER).glob("*/*.json"))
        if not paths:
            raise ConfigError(
                f"{folder} has no {FOLDER}/DEVICES/*.json. It must be the output of a benchmark.\n"
                "Correct the path, or run python -m workbench bench --config C --output DIR"
            )
        found += map(measurement.read, paths)
    found.sort(key=lambda one: (bool(one.epochs), one.date))
    of_run = "devices", "config", "work"
    return [*{(one.cell, *(one.about[name] for name in of_run)): one for one in found}.values()]


def table(measured: Sequence[Measured], accuracy: float) -> pd.DataFrame:
    """Return a table of the measured cells and the runs from 2018.

    It has the columns of `about`, `Cell`, `Measured.summary` and `Measured.until`. In addition,
    `image` is the time per image in seconds after the first epoch, and `old` marks runs from 2018.
    For these runs, the number of images is the nominal epoch size.
    """
    records = [
        one.about | asdict(one.cell) | one.summary() | one.until(accuracy) | {"old": False}
        for one in measured
        if one.epochs
    ]
    published = pd.read_csv(PUBLISHED, dtype={"config": str}).assign(
        old=True, work=WORK, precision="", real=True, way=FIT, late=0.0, reached=None, seconds=None
    )
    whole = IMAGES // published["batch"] * published["batch"]
    published["images"] = np.where(published["feed"] == WHOLE, IMAGES, whole)
    rows = pd.DataFrame([*records, *published.to_dict("records")])
    rows["seconds"] = rows["seconds"].astype(float)
    rows["image"] = rows["mean"] / rows["images"]
    rows["rate"] = 1 / rows["image"]
    rows["total"] = rows[["before", "first", "late"]].sum(axis=1) + rows["mean"] * (TOTAL - 1)
    made = np.where(rows["real"], "", ", random images")
    rows["label"] = rows["devices"] + ", " + rows["config"] + ": " + rows["way"] + made
    feed = np.where(rows["way"] == FIT, ", " + rows["feed"], "")
    batch = ", batch " + rows["batch"].astype(str)
    rows["name"] = rows["label"] + feed + batch + ", " + rows["pattern"].map(_named)
    return rows


def compare(rows: pd.DataFrame, accuracy: float) -> pd.DataFrame:
    """Return the durations for each device and training method, relative to the fastest one.

    Args:
        rows: rows of `table` with the same work and pattern, and the pattern's main feed.
    """
    best = rows.sort_values("image").groupby("label", sort=False).head(1).set_index("label")
    columns = {"image at best batch": best["image"]}
    for size, alike in rows.groupby("batch"):
        columns[f"at {size}"] = alike.set_index("label")["image"]
    columns[f"{TOTAL} epochs"] = best["total"]
    columns[f"to accuracy {accuracy:g}"] = rows.groupby("label")["seconds"].min()
    found = pd.DataFrame(columns).reindex(best.index)
    found = found.dropna(axis="columns", thresh=min(2, len(found)))
    ratios = found / found.min()
    return pd.concat([best[["batch", "precision"]], ratios], axis="columns").reset_index()


def _named(pattern: int) -> str:
    return ", ".join(PATTERNS[pattern]) or "training only"


def _shown(rows: pd.DataFrame, *columns: str) -> dict[str, Any]:
    forms = {name: COLUMNS.get(name, (name, RATIO)) for name in columns}
    cells = [
        ["—" if pd.isna(row[name]) else forms[name][1].format(row[name]) for name in columns]
        for row in rows.reindex(columns=columns).to_dict("records")
    ]
    return {"head": [title for title, _ in forms.values()], "rows": cells}


def _draw(rows: pd.DataFrame, path: Path) -> None:
    figure, (later, totals) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    sizes = sorted({*rows["batch"]})
    for label, series in rows.sort_values("batch").groupby("label"):
        later.plot(series["batch"], series["mean"], marker="o", label=drawing.escape(f"{label}"))
        best = series.nsmallest(1, "image").iloc[0]
        seconds = [best["total"] + (epochs - TOTAL) * best["mean"] for epochs in EPOCHS]
        totals.plot(EPOCHS, [each / 3600 for each in seconds], marker="o")
    later.set(title="Epoch after the first", xlabel="images per step", ylabel="seconds")
    totals.set(title="Whole run with the best batch size", xlabel="epochs", ylabel="hours")
    for axis, ticks in ((later, sizes), (totals, EPOCHS)):
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(ticks, map(str, ticks), rotation=45)
        axis.xaxis.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2)
    drawing.save(figure, path)


def _about(one: Measured) -> str:
    about = one.about
    if not one.epochs:
        return f"n/a: {one.cell}: {one.reason}"
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"{about['devices']}, {about['cpus']} CPU cores, {about['precision']}: {about['config']},"
        f" {about['images']}; {versions}"
    )


def _advice(rows: pd.DataFrame, reached: pd.DataFrame, accuracy: float) -> str:
    """Describe the fastest run.

    Args:
        rows: measured rows with the same work.
        reached: rows that reached the accuracy, starting with the fastest.
    """
    if rows.empty:
        return "No runs were measured, so this page only shows the results from 2018."
    if reached.empty:
        row = rows.nsmallest(1, "image").iloc[0]
        return (
            f"{row['name']} had the highest throughput, {row['rate']:,.0f} images per second. None"
            f" of these runs reached an accuracy of {accuracy:g}."
        )
    row, devices = reached.iloc[0], ", ".join(sorted({*rows["devices"]}))
    return (
        f"The fastest run to reach an accuracy of {accuracy:g} on {devices} was {row['name']}. It"
        f" did so in epoch {row['reached']:.0f}, after {row['seconds']:,.1f} s including"
        " compilation."
    )

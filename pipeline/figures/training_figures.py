"""Training figures: what a person looks at in a training, as PNG files made from the files that it
wrote.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data import labels as targets
from pipeline.figures import drawing

REST = "all else"  # most of it: building the model and its first state


def of_training(
    output: Path, *, status: str = "complete", show: Callable[[str], None] = print
) -> list[Path]:
    """Draw what `training.train` left in `output` as curves.png, confusion.png (of numbers
    predicted.png) and time.png; return those paths.

    `status`: of a run that is "partial" there are the curves alone, once an epoch has ended. Of a
    run with folds the curves are those of each fold, and the confusion is over the predictions out
    of fold.
    """

    def manifest() -> dict[str, Any]:
        return dict(json.loads((output / "artifact" / "manifest.json").read_text(encoding="utf-8")))

    def confusion(path: Path) -> None:
        validation = pd.read_csv(output / "validation.csv", dtype=str, keep_default_na=False)
        _confusion(validation, manifest()["classes"], path)

    def scatter(path: Path) -> None:
        _scatter(
            pd.read_csv(output / "validation.csv", dtype={"id": str}), manifest()["classes"], path
        )

    curves = {output / "curves.png": lambda path: _curves(_histories(output), path)}
    if status == "partial":
        return drawing.draw_each(
            curves if any(path.is_file() for path in _history_files(output)) else {}, show
        )
    try:
        kind = manifest()["target"]["kind"]
    except Exception:  # whatever it is: the pictures that need it tell it
        kind = "classes"
    beside = {output / "confusion.png": confusion} if kind in ("classes", "ordinal") else {}
    if kind == "regression":
        beside = {output / "predicted.png": scatter}
    return drawing.draw_each(
        {
            **curves,
            **beside,
            output / "time.png": lambda path: _time(manifest()["seconds"], path),
        },
        show,
    )


def of_scaling(output: Path, *, show: Callable[[str], None] = print) -> list[Path]:
    """Draw scaling.png from the scaling.json that `scaling.check` left in `output`: each arm's mean
    loss, and the range of its seeds.
    """

    def draw(path: Path) -> None:
        _arms(json.loads((output / "scaling.json").read_text(encoding="utf-8")), path)

    return drawing.draw_each({output / "scaling.png": draw}, show)


def training_sample(
    examples: dataset.Examples,
    config: Config,
    output: Path,
    *,
    rows: int = 3,
    show: Callable[[str], None] = print,
) -> list[Path]:
    """Draw images.png: the first images of the first training batch, augmented as in training, with
    their labels; nothing of a table.
    """
    if config.data.kind == "table":
        return []

    def draw(path: Path) -> None:
        batches = dataset.Batches.of(examples, config, batch=rows * drawing.COLUMNS)
        pixels, labels = batches.at(0)
        captions = targets.labels_of(examples.target, labels, np.arange(len(labels)))
        drawing.grid(
            pixels,
            captions,
            path,
            f"{len(pixels)} of {len(examples)} training images as the model sees them, and their labels",
        )

    return drawing.draw_each({output / "images.png": draw}, show)


def _histories(output: Path) -> list[pd.DataFrame]:
    return [pd.read_csv(path) for path in _history_files(output)]


def _history_files(output: Path) -> list[Path]:
    """Return the path of history.csv of each fold that has one, in order, or of the one run."""
    folds = sorted(
        output.glob("fold-*/history.csv"), key=lambda path: (len(path.parent.name), path)
    )
    return folds or [output / "history.csv"]


def _scatter(validation: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.6 * len(names), 4.4), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes.flat, names, strict=True):
        end = f"_{name}" if len(names) > 1 else ""
        true, predicted = (
            validation[f"label{end}"].astype(float),
            validation[f"prediction{end}"].astype(float),
        )
        axis.scatter(true, predicted, s=9, color=drawing.BLUE, alpha=0.6, lw=0)
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        axis.plot(ends, ends, color=drawing.GREY, lw=0.8)
        axis.set(title=drawing.plain(name), xlabel="true", ylabel="predicted", aspect="equal")
    drawing.save(figure, path)


def _curves(histories: Sequence[pd.DataFrame], path: Path) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    many = len(histories) > 1
    second = next(
        name
        for name in histories[0].columns
        if name.startswith("validation_") and name != "validation_loss"
    )
    for axis, name in ((left, "loss"), (middle, second.removeprefix("validation_"))):
        for column, color, label in (
            (name, drawing.BLUE, "training"),
            (f"validation_{name}", drawing.ORANGE, "validation"),
        ):
            for history in histories:
                axis.plot(
                    history["epoch"],
                    history[column],
                    color=color,
                    label=label,
                    lw=1 if many else None,
                )
                label = "_"  # matplotlib leaves it out of the legend
        axis.set(
            title=name.replace("_", " ").capitalize()
            + (f", {len(histories)} folds" if many else ""),
            xlabel="epoch",
        )
        axis.legend(frameon=False)
    for history in histories:
        right.plot(history["epoch"], history["learning_rate"], color=drawing.GREY)
    right.set(title="Learning rate as applied", xlabel="epoch", ylim=(0, None))
    drawing.save(figure, path)


def _arms(checked: Mapping[str, Any], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    colors = {"base": drawing.BLUE, "scaled": drawing.ORANGE, "unscaled": drawing.GREY}
    for name, arm in checked["arms"].items():
        losses = np.array(
            arm["losses"], float
        )  # a run that diverged has None from there on, and no line
        epochs = np.arange(1, losses.shape[1] + 1)
        verdict = (
            "" if name == "base" else ": holds" if checked[name]["holds"] else ": does not hold"
        )
        axis.plot(
            epochs,
            losses.mean(axis=0),
            color=colors[name],
            label=f"{name}, batch {arm['batch']}{verdict}",
        )
        axis.fill_between(
            epochs, losses.min(axis=0), losses.max(axis=0), color=colors[name], alpha=0.2, lw=0
        )
    axis.axvspan(
        0,
        checked["warmup_epochs"],
        color=drawing.GREY,
        alpha=0.1,
        lw=0,
        label="warm-up, not counted",
    )
    if checked["target"] is not None:
        axis.axhline(checked["target"], color=drawing.BLUE, lw=0.8, ls=":", label="target")
    config = checked["config"]
    axis.set(
        title=f"{config['name']}, {config['optimizer']['name']}: mean and range of {len(losses)} seeds",
        xlabel="epoch", ylabel="training loss", yscale="log", xlim=(0, None),
    )  # fmt: skip
    axis.legend(frameon=False)
    drawing.save(figure, path)


def _confusion(validation: pd.DataFrame, classes: Sequence[str], path: Path) -> None:
    place = {name: index for index, name in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), int)
    np.add.at(
        counts,
        (validation["label"].map(place).to_numpy(), validation["prediction"].map(place).to_numpy()),
        1,
    )
    size = min(max(len(classes) * 0.42, 4), 14)
    figure, axis = plt.subplots(figsize=(size, size), layout="constrained")
    axis.imshow(counts, cmap="Blues")
    if len(classes) <= 30:
        places, shown = range(len(classes)), [drawing.plain(name) for name in classes]
        axis.set(xticks=places, yticks=places, xticklabels=shown, yticklabels=shown)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                axis.text(
                    column,
                    row,
                    count,
                    ha="center",
                    va="center",
                    color="white" if count > counts.max() / 2 else "black",
                    fontsize=8,
                )
    right, what = int(np.trace(counts)), "Out of fold" if "fold" in validation else "Validation"
    axis.set(
        xlabel="predicted",
        ylabel="true",
        title=f"{what}: {right} of {len(validation)} right",
    )
    drawing.save(figure, path)


def _time(seconds: dict[str, float], path: Path) -> None:
    each = phases(seconds)
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(each) + 1), layout="constrained")
    bars = axis.barh(list(each), list(each.values()), color=drawing.BLUE)
    axis.bar_label(bars, fmt="%.1f s", padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(title=f"Where the {sum(each.values()):.1f} seconds of training went", xlabel="seconds")
    drawing.save(figure, path)


def phases(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return what took how long, the longest first, each second counted once: together they are the
    total.

    >>> phases({"train": 9.0, "validate": 2.0, "compile": 1.0, "read": 0.01, "total": 13.0})
    {'train': 7.0, 'all else': 2.99, 'validate': 2.0, 'compile': 1.0}
    """
    each = {name: value for name, value in seconds.items() if name != "total"}
    # Validation and checkpoints happen inside the training loop.
    each["train"] = max(
        each.get("train", 0.0) - each.get("validate", 0.0) - each.get("checkpoints", 0.0), 0.0
    )
    each[REST] = max(seconds.get("total", 0.0) - sum(each.values()), 0.0)
    told = {
        name: round(value, 3) for name, value in each.items() if value >= 0.05
    }  # less is shown as 0.0
    return dict(sorted(told.items(), key=lambda phase: -phase[1]))

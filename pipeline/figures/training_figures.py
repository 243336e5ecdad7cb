"""Plot a training run from its output files."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config, custom_code
from pipeline.data import dataset
from pipeline.data import labels as targets
from pipeline.figures import drawing
from pipeline.train.progress_log import Log

REST = "all else"  # mainly the time to build the model and its initial state


def of_training(
    output: Path, config: Config, *, status: str = "complete", show: Callable[[str], None] = print
) -> list[Path]:
    """Plot curves.png, time.png, and either confusion.png or, for a regression, predicted.png.

    Return the paths of all plots that succeeded. The config's custom `log` function receives
    {"status", "pictures"}. With the status "partial", only curves are plotted, and only after the
    first epoch.
    """
    kind = "classes"
    with suppress(Exception):  # plots that require the manifest report what is wrong with it
        kind = _manifest(output)["target"]["kind"]
    confusion = {"confusion": _confusion}
    judged = {"classes": confusion, "ordinal": confusion, "regression": {"predicted": _scatter}}
    curves = {"curves": _curves} if not config.fit else {}  # `fit` does not train in epochs
    pictures = {**curves, **judged.get(kind, {}), "time": _time}
    if status == "partial":
        pictures = {"curves": _curves} if _histories(output)[0].is_file() else {}
    drawn = {output / f"{name}.png": partial(draw, output) for name, draw in pictures.items()}
    paths = drawing.draw_each(drawn, show)
    Log(config, show)({"status": status, "pictures": list(map(str, paths))})
    return paths


def training_sample(
    examples: dataset.Examples, config: Config, output: Path, *, show: Callable[[str], None] = print
) -> list[Path]:
    """Plot the first images of the first training batch, with their labels, to images.png.

    Images are augmented unless `config.fit` is set. Nothing is plotted if there are no images, or
    if labels are custom.
    """
    if not config.data.images or config.target == "custom":
        return []

    def draw(path: Path) -> None:
        size, given = drawing.IMAGES, (examples.inputs, examples.labels)
        pixels, labels = dataset.Batches(*given, batch=size, seed=config.seed).at(0)
        custom = custom_code.function(config, "augment")
        changes = Augmentation(config.data, config.seed, size, custom)
        captions = targets.labels_of(examples.target, labels, np.arange(size))
        if not config.fit:
            pixels, shares = map(np.asarray, jax.jit(changes.applied)(pixels, changes.draws(0)))
        if not config.fit and changes.mixes:  # show the label with the larger weight
            captions = [
                f"{captions[place if share >= 0.5 else place ^ 1]} {max(share, 1 - share):.0%}"
                for place, share in enumerate(shares)
            ]
        title = f"{len(pixels)} of {len(examples)} training images as seen by the model"
        drawing.grid(pixels, captions, path, f"{title}, and their labels")

    return drawing.draw_each({output / "images.png": draw}, show)


def _histories(output: Path) -> list[Path]:
    return sorted(output.glob("fold-*/history.csv")) or [output / "history.csv"]


def _manifest(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "artifact" / "manifest.json").read_text(encoding="utf-8")))


def _scatter(output: Path, path: Path) -> None:
    names = _manifest(output)["classes"]
    validation = pd.read_csv(output / "validation.csv", dtype={"id": str})
    size = (4.6 * len(names), 4.4)
    figure, axes = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for axis, name in zip(axes.flat, names, strict=True):
        end = f"_{name}" if len(names) > 1 else ""
        truth, predicted = validation[f"label{end}"], validation[f"prediction{end}"]
        axis.scatter(truth, predicted, s=9, color=drawing.BLUE, alpha=0.6, lw=0)
        axis.axline((truth.mean(), truth.mean()), slope=1, color=drawing.GREY, lw=0.8)
        axis.set(title=drawing.escape(name), xlabel="true", ylabel="predicted", aspect="equal")
    drawing.save(figure, path)


def _curves(output: Path, path: Path) -> None:
    histories = [*map(pd.read_csv, _histories(output))]
    figure, (*axes, right) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    columns = [str(name).partition("validation_")[2] for name in histories[0]]
    metric = next(name for name in columns if name not in ("", "loss"))
    folds = f", {len(histories)} folds" if len(histories) > 1 else ""
    for history in histories:
        for axis, name in zip(axes, ("loss", metric), strict=True):
            both, colors = [name, f"validation_{name}"], [drawing.BLUE, drawing.ORANGE]
            history.plot(x="epoch", y=both, ax=axis, color=colors, lw=1 if folds else None)
            axis.set(title=name.replace("_", " ").capitalize() + folds)
            axis.legend(axis.lines[:2], ["training", "validation"], frameon=False)
        right.plot(history["epoch"], history["learning_rate"], color=drawing.GREY)
    right.set(title="Learning rate used", xlabel="epoch", ylim=(0, None))
    drawing.save(figure, path)


def _confusion(output: Path, path: Path) -> None:
    classes = _manifest(output)["classes"]
    validation = pd.read_csv(output / "validation.csv", dtype=str, keep_default_na=False)
    counts = confusion_matrix(validation["label"], validation["prediction"], labels=classes)
    size = min(max(len(classes) * 0.42, 4), 14)
    figure, axis = plt.subplots(figsize=(size, size), layout="constrained")
    if len(classes) > 30:  # too many to display names and numbers
        axis.imshow(counts, cmap="Blues")
    else:
        shown = ConfusionMatrixDisplay(counts, display_labels=list(map(drawing.escape, classes)))
        shown.plot(ax=axis, cmap="Blues", colorbar=False, text_kw={"fontsize": 8})
        for text in shown.text_[counts == 0]:
            text.remove()
    right, what = int(np.trace(counts)), "Out of fold" if "fold" in validation else "Validation"
    title = f"{what}: {right} of {len(validation)} correct"
    axis.set(xlabel="predicted", ylabel="true", title=title)
    drawing.save(figure, path)


def _time(output: Path, path: Path) -> None:
    each = phases(_manifest(output)["seconds"])
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(each) + 1), layout="constrained")
    bars = axis.barh(list(each), list(each.values()), color=drawing.BLUE)
    axis.bar_label(bars, fmt="%.1f s", padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(title=f"Training time of {sum(each.values()):.1f} seconds by phase", xlabel="seconds")
    drawing.save(figure, path)


def phases(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds that each phase took, longest first. They add up to the total.

    >>> phases({"train": 9.0, "validate": 2.0, "compile": 1.0, "read": 0.01, "total": 13.0})
    {'train': 7.0, 'all else': 2.99, 'validate': 2.0, 'compile': 1.0}
    """
    each = {name: value for name, value in seconds.items() if name != "total"}
    inside = each.get("validate", 0.0) + each.get("checkpoints", 0.0)  # part of the training loop
    each["train"] = max(each.get("train", 0.0) - inside, 0.0)
    each[REST] = max(seconds.get("total", 0.0) - sum(each.values()), 0.0)
    shown = {name: round(value, 3) for name, value in each.items() if value >= 0.05}
    return dict(sorted(shown.items(), key=lambda phase: -phase[1]))

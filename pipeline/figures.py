"""Figures: what a person looks at in a run, as PNG files made from the files that the run wrote."""

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline import data
from pipeline.config import Config

COLUMNS = 10
BLUE, ORANGE, GREY = "#1f5fa8", "#d9741a", "#8a8a8a"


def of_training(output: Path) -> list[Path]:
    """Draw curves.png, confusion.png and time.png from what `training.train` left in `output`; return their paths."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    history = pd.read_csv(output / "history.csv")
    validation = pd.read_csv(output / "validation.csv", dtype=str, keep_default_na=False)
    return [
        _curves(history, output / "curves.png"),
        _confusion(validation, manifest["classes"], output / "confusion.png"),
        _time(manifest["seconds"], output / "time.png"),
    ]


def training_sample(folder: Path, config: Config, output: Path, rows: int = 3) -> Path:
    """Draw images.png: the first images of the first training batch, augmented as in training, with their labels."""
    images = data.read_training(folder, config)
    batches = data.Batches(
        images.pixels,
        images.labels,
        batch=rows * COLUMNS,
        seed=config.seed,
        crop_padding=config.data.crop_padding,
        flip=config.data.flip,
    )
    pixels, labels = batches.at(0)
    captions = [images.classes[label] for label in labels]
    return _grid(pixels, captions, output / "images.png", f"Training images, augmented ({len(images)} in all)")


def test_sample(
    folder: Path, config: Config, labels: Sequence[str], probabilities: np.ndarray, output: Path, rows: int = 3
) -> Path:
    """Draw predictions.png: the test images that the model was least sure of, with prediction and confidence."""
    pixels = data.read_test(folder, config).pixels
    confidence = probabilities.max(axis=1)
    chosen = np.argsort(confidence, kind="stable")[: rows * COLUMNS]
    captions = [f"{labels[index]}  {confidence[index]:.0%}" for index in chosen]
    return _grid(
        pixels[chosen], captions, output / "predictions.png", f"The least certain of {len(pixels)} test images"
    )


def _grid(pixels: np.ndarray, captions: Sequence[str], path: Path, title: str) -> Path:
    """Draw uint8 images (n, height, width, channels) with a caption each."""
    rows = -(-len(pixels) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(COLUMNS * 0.95, rows * 1.2 + 0.5), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, image, caption in zip(axes.flat, pixels, captions, strict=False):
        axis.imshow(image.squeeze(), cmap="gray" if image.shape[-1] == 1 else None, vmin=0, vmax=255)
        axis.set_title(caption, fontsize=8, pad=2)
    figure.suptitle(title, fontsize=11)
    return _save(figure, path)


def _curves(history: pd.DataFrame, path: Path) -> Path:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4))
    for axis, name in ((left, "loss"), (middle, "accuracy")):
        axis.plot(history["epoch"], history[name], color=BLUE, label="training")
        axis.plot(history["epoch"], history[f"validation_{name}"], color=ORANGE, label="validation")
        axis.set(title=name.capitalize(), xlabel="epoch")
        axis.legend(frameon=False)
    right.plot(history["epoch"], history["learning_rate"], color=GREY)
    right.set(title="Learning rate as applied", xlabel="epoch", ylim=(0, None))
    return _save(figure, path)


def _confusion(validation: pd.DataFrame, classes: Sequence[str], path: Path) -> Path:
    place = {name: index for index, name in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), int)
    np.add.at(counts, (validation["label"].map(place).to_numpy(), validation["prediction"].map(place).to_numpy()), 1)
    size = min(max(len(classes) * 0.42, 4), 14)
    figure, axis = plt.subplots(figsize=(size + 0.8, size))
    axis.imshow(counts, cmap="Blues")
    if len(classes) <= 30:
        axis.set(xticks=range(len(classes)), yticks=range(len(classes)), xticklabels=classes, yticklabels=classes)
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
    right = int(np.trace(counts))
    axis.set(xlabel="predicted", ylabel="true", title=f"Validation: {right} of {len(validation)} right")
    return _save(figure, path)


def _time(seconds: dict[str, float], path: Path) -> Path:
    phases = {name: value for name, value in seconds.items() if name != "total"}
    # Validation and checkpoints happen inside the training loop; shown apart, each second is counted once.
    phases["train"] = max(phases.get("train", 0.0) - phases.get("validate", 0.0) - phases.get("checkpoints", 0.0), 0.0)
    phases = dict(sorted(phases.items(), key=lambda phase: -phase[1]))
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(phases) + 1))
    bars = axis.barh(list(phases), list(phases.values()), color=BLUE)
    axis.bar_label(bars, fmt="%.1f s", padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(title="Where time went", xlabel="seconds")
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path

"""Utilities for all plots. If a plot fails, a warning is shown and the run continues."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

COLUMNS, IMAGES = 10, 30
BLUE, ORANGE, GREY = "#1f5fa8", "#d9741a", "#8a8a8a"


def draw_each(
    pictures: Mapping[Path, Callable[[Path], None]], show: Callable[[str], None]
) -> list[Path]:
    paths = []
    for path, draw in pictures.items():
        try:
            draw(path)
        except Exception as error:  # can be anything, depending on the data in the run's files
            plt.close("all")
            show(f"Warning: could not draw {path}: {type(error).__name__}: {error}")
        else:
            paths.append(path)
    return paths


def grid(pixels: np.ndarray, captions: Sequence[str], path: Path, title: str) -> None:
    """Plot captioned images, uint8 (n, height, width, channels), in rows of `COLUMNS` images."""
    rows = -(-len(pixels) // COLUMNS)
    height = 0.95 * pixels.shape[1] / pixels.shape[2] + 0.18  # height of a row with captions
    size = (COLUMNS * 0.95, rows * height + 0.4)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=size, squeeze=False, layout="constrained")
    colors = "gray" if pixels.shape[-1] == 1 else None
    for axis in axes.flat:
        axis.axis("off")
    for axis, image, caption in zip(axes.flat, pixels, captions, strict=False):
        axis.imshow(image.squeeze(), cmap=colors, vmin=0, vmax=255)
        axis.set_title(escape(caption), fontsize=8, pad=2)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def escape(text: str) -> str:
    """Escape dollar signs, which matplotlib would interpret as mathematical notation."""
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)

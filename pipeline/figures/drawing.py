"""Tools for all figures. One that cannot be drawn is reported, and never ends a run."""

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
    """Draw each picture at its path, and return the paths of those that succeeded."""
    paths = []
    for path, draw in pictures.items():
        try:
            draw(path)
        except Exception as error:  # any, since the data are in the run's files
            plt.close("all")
            show(f"Warning: {path} was not drawn: {type(error).__name__}: {error}")
        else:
            paths.append(path)
    return paths


def grid(pixels: np.ndarray, captions: Sequence[str], path: Path, title: str) -> None:
    """Draw images, uint8 (n, height, width, channels), and their captions in rows of `COLUMNS`."""
    rows = -(-len(pixels) // COLUMNS)
    height = 0.95 * pixels.shape[1] / pixels.shape[2] + 0.18  # of a row with its captions
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
    """Return a text with escaped dollars, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Save a figure as a PNG file, without the upper and right frame, and close it."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)

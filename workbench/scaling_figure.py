"""Plot the losses that `python -m workbench scale-check` measured, by epoch or by learning rate."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from pipeline.figures import drawing

SIZE = (7.5, 4.2)  # inches


def draw(result: Path, show: Callable[[str], None] = print) -> list[Path]:
    """Plot a check's scaling.json or a sweep's rates.json, as a PNG file next to it."""
    found = json.loads(result.read_text(encoding="utf-8"))
    picture = partial(_rates if "tried" in found else _curves, found)
    return drawing.draw_each({result.with_suffix(".png"): picture}, show)


def _rates(swept: dict[str, Any], path: Path) -> None:
    rates = [one["base_rate"] for one in swept["tried"]]
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    for name, color in (("loss", drawing.BLUE), ("validation_loss", drawing.ORANGE)):
        losses = np.array([one[name] for one in swept["tried"]], float)  # NaN if the run diverged
        axis.plot(rates, losses, "o-", color=color, label=name.replace("_", " "))
    title = f"{swept['config']['name']}: final losses of short runs by learning rate"
    axis.set(title=title, xlabel="base_rate", ylabel="loss", xscale="log")
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axis.set_xticks([], minor=True)
    axis.legend(frameon=False)
    drawing.save(figure, path)


def _curves(checked: dict[str, Any], path: Path) -> None:
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    colors = {"base": drawing.BLUE, "scaled": drawing.ORANGE, "unscaled": drawing.GREY}
    for name, color in colors.items():
        losses = np.array(checked["losses"][name], float)  # NaN after the run diverged
        epochs = np.arange(1, losses.shape[1] + 1)
        label = f"{name}, batch {checked['batches'][name]}"
        axis.plot(epochs, losses.mean(axis=0), color=color, label=label)
        ends = losses.min(axis=0), losses.max(axis=0)
        axis.fill_between(epochs, *ends, color=color, alpha=0.2, lw=0)
    axis.axvspan(0, checked["warmup_epochs"], color="k", alpha=0.05, lw=0, label="warm-up")
    if checked["target"] is not None:
        axis.axhline(checked["target"], color=drawing.BLUE, lw=0.8, ls=":", label="target")
    title = f"{checked['config']['name']}: mean and range of {len(losses)} seeds"
    axis.set(title=title, xlabel="epoch", ylabel="training loss", yscale="log", xlim=(0, None))
    axis.legend(frameon=False)
    drawing.save(figure, path)

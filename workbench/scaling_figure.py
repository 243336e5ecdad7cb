"""The figure of `python -m workbench scale-check`: training losses at two batch sizes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from pipeline.figures import drawing


def draw(output: Path, *, show: Callable[[str], None] = print) -> list[Path]:
    """Draw scaling.png from scaling.json: the mean and the range of each variant's losses."""

    def curves(path: Path) -> None:
        _curves(json.loads((output / "scaling.json").read_text(encoding="utf-8")), path)

    return drawing.draw_each({output / "scaling.png": curves}, show)


def _curves(checked: Mapping[str, Any], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    colors = {"base": drawing.BLUE, "scaled": drawing.ORANGE, "unscaled": drawing.GREY}
    for name, variant in checked["arms"].items():
        # None, after a run diverged, becomes NaN: no line.
        losses = np.array(variant["losses"], float)
        epochs = np.arange(1, losses.shape[1] + 1)
        label, color = f"{name}, batch {variant['batch']}", colors[name]
        if name != "base":
            label += ": holds" if checked[name]["holds"] else ": does not hold"
        axis.plot(epochs, losses.mean(axis=0), color=color, label=label)
        ends = losses.min(axis=0), losses.max(axis=0)
        axis.fill_between(epochs, *ends, color=color, alpha=0.2, lw=0)
    warmup = axis.axvspan(0, checked["warmup_epochs"], color=drawing.GREY, alpha=0.1, lw=0)
    warmup.set_label("warm-up, not counted")
    if checked["target"] is not None:
        axis.axhline(checked["target"], color=drawing.BLUE, lw=0.8, ls=":", label="target")
    config = checked["config"]
    what = f"{config['name']}, {config['optimizer']['name']}"
    axis.set(
        title=f"{what}: mean and range of {len(losses)} seeds",
        xlabel="epoch",
        ylabel="training loss",
        yscale="log",
        xlim=(0, None),
    )
    axis.legend(frameon=False)
    drawing.save(figure, path)

"""Plot the test images with the least confident predictions of an inference run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.figures import drawing
from pipeline.infer.inference import Predictions


def least_sure(
    predictions: Predictions, output: Path, *, show: Callable[[str], None] = print
) -> list[Path]:
    """Plot the test images with the lowest confidence to `output`/predictions.png.

    The image with the lowest confidence comes first. Nothing is plotted if there are no images or
    confidences.
    """
    values = predictions.values
    sums_to_1 = (
        values.ndim == 2 and values.shape[1] > 1 and np.allclose(values.sum(1), 1, atol=1e-3)
    )
    if not (sums_to_1 and predictions.test.images):
        return []

    def draw(path: Path) -> None:
        confidence = values.max(axis=1)
        chosen = np.argsort(confidence, kind="stable")[: drawing.IMAGES]
        captions = [f"{predictions.labels[index]}  {confidence[index]:.0%}" for index in chosen]
        title = f"The {len(chosen)} of {len(values)} test images with the lowest confidence"
        drawing.grid(predictions.test.inputs(chosen), captions, path, title)

    return drawing.draw_each({output / "predictions.png": draw}, show)

"""Prediction figures: the test images that a model was least sure of."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.figures import drawing
from pipeline.inference.inference import Predictions


def least_sure(
    predictions: Predictions, output: Path, *, rows: int = 3, show: Callable[[str], None] = print
) -> list[Path]:
    """Draw predictions.png: the test images that the model was least sure of, the least first;
    nothing where there is no confidence.
    """
    values = predictions.values

    def draw(path: Path) -> None:
        confidence = values.max(axis=1)
        chosen = np.argsort(confidence, kind="stable")[: rows * drawing.COLUMNS]
        captions = [f"{predictions.labels[index]}  {confidence[index]:.0%}" for index in chosen]
        drawing.grid(
            predictions.test.inputs(chosen), captions, path, _title(len(chosen), len(values))
        )

    shares = values.shape[1] > 1 and np.allclose(values.sum(axis=1), 1, atol=1e-3)
    return (
        drawing.draw_each({output / "predictions.png": draw}, show)
        if shares and predictions.test.images
        else []
    )


def _title(shown: int, there: int) -> str:
    which = "that the model is least sure of" if shown < there else "with the least certain first"
    return f"{shown} of {there} test images {which}: prediction and confidence"

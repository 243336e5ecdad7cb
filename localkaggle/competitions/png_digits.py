"""Digits as files: scikit-learn's 1,797 handwritten digits (8x8, UCI) as PNG files and labels."""

import hashlib
import io
from functools import cache
from typing import TYPE_CHECKING

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import accuracy
from localkaggle.competitions.tables import split, table

if TYPE_CHECKING:
    import numpy as np


def pixels_and_labels() -> "tuple[np.ndarray, np.ndarray]":
    """Return the images, uint8 (1797, 8, 8) from 0 to 255, and their digits, int (1797,)."""
    import numpy as np
    from sklearn.datasets import load_digits

    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target


@cache
def digits() -> Competition:
    """Return the competition: 1,197 digits to train, 100 visible and 500 hidden ones to test."""
    from PIL import Image

    pixels, labels = pixels_and_labels()
    train, visible, hidden = split(len(pixels), visible=100, hidden=500, labels=labels)

    def png(index: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels[index]).save(buffer, "PNG")
        return buffer.getvalue()

    # An id tells neither the label nor the place in scikit-learn's order.
    names = {
        index: hashlib.sha256(f"digits {index}".encode()).hexdigest()[:8]
        for index in range(len(pixels))
    }

    def rows(indices: "np.ndarray", *, labelled: bool) -> bytes:
        ordered = sorted(indices, key=names.__getitem__)
        return table(
            ["id", "label"], [[names[index], labels[index] if labelled else 0] for index in ordered]
        )

    def test(indices: "np.ndarray") -> dict[str, bytes]:
        images = {f"test/{names[index]}.png": png(index) for index in indices}
        return {"sample_submission.csv": rows(indices, labelled=False), **images}

    return Competition(
        slug="digits",
        title="Digits",
        training={
            "train.csv": rows(train, labelled=True),
            **{f"train/{names[i]}.png": png(i) for i in train},
        },
        visible_test=test(visible),
        hidden_test=test(hidden),
        solution={"label": {names[index]: str(labels[index]) for index in hidden}},
        score=accuracy,
    )

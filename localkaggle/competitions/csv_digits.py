"""Digits as a table: pixels in CSV files, as in Kaggle's Digit Recognizer. test.csv has no ids."""

from functools import cache
from typing import TYPE_CHECKING

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import accuracy
from localkaggle.competitions.png_digits import pixels_and_labels
from localkaggle.competitions.tables import split, table

if TYPE_CHECKING:
    import numpy as np


@cache
def digits_csv() -> Competition:
    """Return the competition: 1,197 rows to train, 100 visible and 500 hidden ones to test.

    An id is the row's place in test.csv, from 1.
    """
    images, labels = pixels_and_labels()
    pixels = images.reshape(len(images), -1)
    names = [f"pixel{number}" for number in range(pixels.shape[1])]
    # Another split than that of `digits`: with the same one this would prove nothing new.
    train, visible, hidden = split(len(pixels), visible=100, hidden=500, labels=labels, seed=1)

    def test(indices: "np.ndarray") -> dict[str, bytes]:
        return {
            "test.csv": table(names, pixels[indices].tolist()),
            "sample_submission.csv": table(
                ["ImageId", "Label"], [[place + 1, 0] for place in range(len(indices))]
            ),
        }

    return Competition(
        slug="digits-csv",
        title="Digits in a Table",
        training={
            "train.csv": table(
                ["label", *names], [[labels[row], *pixels[row].tolist()] for row in train]
            )
        },
        visible_test=test(visible),
        hidden_test=test(hidden),
        solution={"Label": {str(place + 1): str(labels[row]) for place, row in enumerate(hidden)}},
        score=accuracy,
    )

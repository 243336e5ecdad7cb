"""Digits as a table: pixels in CSV files, as in Kaggle's Digit Recognizer. test.csv has no ids.

As there, a submission is a file, and everybody sees the test set that is scored.
"""

from functools import cache

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import accuracy
from localkaggle.competitions.png_digits import pixels_and_labels
from localkaggle.competitions.tables import split, table


@cache
def digits_csv() -> Competition:
    """Return the competition: 1,197 rows to train and 600 to test.

    An id is the row's place in test.csv, from 1.
    """
    import numpy as np

    images, labels = pixels_and_labels()
    pixels = images.reshape(len(images), -1)
    names = [f"pixel{number}" for number in range(pixels.shape[1])]
    # Another split than that of `digits`: with the same one this would prove nothing new.
    train, *parts = split(len(pixels), visible=100, hidden=500, labels=labels, seed=1)
    asked = np.concatenate(parts)
    test = {
        "test.csv": table(names, pixels[asked].tolist()),
        "sample_submission.csv": table(
            ["ImageId", "Label"], [[place + 1, 0] for place in range(len(asked))]
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
        visible_test=test,
        hidden_test=test,
        solution={"Label": {str(place + 1): str(labels[row]) for place, row in enumerate(asked)}},
        score=accuracy,
        takes_files=True,
    )

"""Competitions made from the 1,797 handwritten digits (8x8 pixels, UCI) in scikit-learn.

The images are files, columns of a table, or files that are combined with a table.
"""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.examples import Examples, split, table
from localkaggle.competitions.metrics import accuracy

LARGE = 20.0  # orders above this amount are large


@cache
def digits() -> Competition:
    """Return a competition whose images are PNG files.

    It has 1,197 training rows, 100 visible test rows and 500 hidden test rows.
    """
    pixels, labels = _pixels_and_labels()
    parts = split(len(pixels), visible=100, hidden=500, labels=labels)
    examples = Examples("label", list(map(str, labels)), images=pixels)
    return examples.competition("digits", "Digits", parts, placeholder="0", score=accuracy)


@cache
def digits_csv() -> Competition:
    """Return a competition whose pixels are in CSV files, as in Kaggle's Digit Recognizer.

    It has 1,197 training rows and 600 test rows. The ids are row numbers starting from 1, so
    test.csv has no id column. As in Digit Recognizer, submissions are files that are scored on the
    public test set.
    """
    images, labels = _pixels_and_labels()
    pixels = images.reshape(len(images), -1)
    names = [f"pixel{number}" for number in range(pixels.shape[1])]
    # Use a different split from `digits`, so that the results differ.
    train, *parts = split(len(pixels), visible=100, hidden=500, labels=labels, seed=1)
    asked = np.concatenate(parts)
    sample = [[place, 0] for place in range(1, len(asked) + 1)]
    test = {
        "test.csv": table(names, pixels[asked].tolist()),
        "sample_submission.csv": table(["ImageId", "Label"], sample),
    }
    trained = np.column_stack([labels, pixels])[train].tolist()
    return Competition(
        slug="digits-csv",
        title="Digits in a Table",
        training={"train.csv": table(["label", *names], trained)},
        visible_test=test,
        hidden_test=test,
        solution={"Label": {str(n): str(labels[row]) for n, row in enumerate(asked, 1)}},
        score=accuracy,
        takes_files=True,
    )


@cache
def orders() -> Competition:
    """Return a competition that combines images with a table.

    Predicting whether an order is large requires both inputs: the quantity is only in the image,
    and the price and the discount are only in the table. There are 1,197 training rows, 100 visible
    test rows and 500 hidden test rows.
    """
    pixels, quantities = _pixels_and_labels()
    # Each order has a unique pair of price and discount, so that orders cannot be memorized.
    hundredths = np.random.RandomState(0).choice(800 * 50, len(pixels), replace=False)
    price, discount = 1 + hundredths % 800 / 100, hundredths // 800 / 100
    size = np.where(quantities * price * (1 - discount) > LARGE, "large", "small")
    columns = {"price": price.tolist(), "discount": discount.tolist()}
    return Examples("size", size.tolist(), columns, pixels).competition(
        "orders",
        "Handwritten Orders",
        split(len(pixels), visible=100, hidden=500, labels=size, seed=2),
        placeholder="small",
        score=accuracy,
    )


def _pixels_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Return images of shape (1797, 8, 8) and dtype uint8 (0 to 255), and integer labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target

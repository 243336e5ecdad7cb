"""Handwritten digits: scikit-learn's 1,797 (8x8, UCI) as files, in a table, and with a table."""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.examples import Examples, split, table
from localkaggle.competitions.metrics import accuracy

LARGE = 20.0  # money


@cache
def digits() -> Competition:
    """PNG files and labels: 1,197 training rows, 100 visible and 500 hidden test rows."""
    pixels, labels = _pixels_and_labels()
    parts = split(len(pixels), visible=100, hidden=500, labels=labels)
    examples = Examples("label", list(map(str, labels)), images=pixels)
    return examples.competition("digits", "Digits", parts, placeholder="0", score=accuracy)


@cache
def digits_csv() -> Competition:
    """Pixels in CSV files, as in Kaggle's Digit Recognizer: 1,197 training and 600 test rows.

    test.csv has no ids: an id is the number of the row, from 1. As there, a submission is a file,
    and the scored test set is public.
    """
    images, labels = _pixels_and_labels()
    pixels = images.reshape(len(images), -1)
    names = [f"pixel{number}" for number in range(pixels.shape[1])]
    # A different split from `digits`, so that this one shows something new.
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
    """A handwritten quantity, with price and discount in a table.

    Whether an order is large depends on both: the quantity is only in the picture, and price and
    discount are only in the table. 1,197 training rows, 100 visible and 500 hidden test rows.
    """
    pixels, quantities = _pixels_and_labels()
    # No two orders have the same numbers, so none can be memorized.
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
    """Return the images, uint8 (1797, 8, 8) from 0 to 255, and their digits, int (1797,)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target

"""Orders: a handwritten quantity (scikit-learn's digits) and the numbers of its line in a table.

Whether an order is large follows from both: the quantity is in the picture alone, and price and
discount are in the table alone.
"""

import hashlib
import io
from functools import cache
from typing import TYPE_CHECKING

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import accuracy
from localkaggle.competitions.png_digits import pixels_and_labels
from localkaggle.competitions.tables import split, table

if TYPE_CHECKING:
    import numpy as np

LARGE = 20.0  # money


@cache
def orders() -> Competition:
    """Return the competition: 1,197 orders to train, 100 visible and 500 hidden ones to test."""
    import numpy as np
    from PIL import Image

    pixels, quantities = pixels_and_labels()
    count = len(pixels)
    random = np.random.RandomState(0)
    # No two orders have the same numbers: none can be learned by heart.
    hundredths = random.choice(800 * 50, count, replace=False)
    price, discount = 1 + hundredths % 800 / 100, hundredths // 800 / 100
    size = np.where(quantities * price * (1 - discount) > LARGE, "large", "small")
    train, visible, hidden = split(count, visible=100, hidden=500, labels=size, seed=2)
    names = [hashlib.sha256(f"orders {n}".encode()).hexdigest()[:8] for n in range(count)]

    def png(index: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels[index]).save(buffer, "PNG")
        return buffer.getvalue()

    def lines(indices: "np.ndarray") -> list[int]:
        return sorted(indices, key=names.__getitem__)

    def test(indices: "np.ndarray") -> dict[str, bytes]:
        return {
            "test.csv": table(
                ["id", "price", "discount"],
                [[names[row], price[row], discount[row]] for row in lines(indices)],
            ),
            "sample_submission.csv": table(
                ["id", "size"], [[names[row], "small"] for row in lines(indices)]
            ),
            **{f"test/{names[row]}.png": png(row) for row in indices},
        }

    return Competition(
        slug="orders",
        title="Handwritten Orders",
        training={
            "train.csv": table(
                ["id", "price", "discount", "size"],
                [[names[row], price[row], discount[row], size[row]] for row in lines(train)],
            ),
            **{f"train/{names[row]}.png": png(row) for row in train},
        },
        visible_test=test(visible),
        hidden_test=test(hidden),
        solution={"size": {names[row]: str(size[row]) for row in hidden}},
        score=accuracy,
    )

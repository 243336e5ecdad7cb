"""Tables: CSV files as bytes, seeded splits into three, and a whole competition made of one table."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from localkaggle.competitions.competition import Columns, Competition

if TYPE_CHECKING:
    import numpy as np


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    r"""Return a CSV file.

    >>> table(["id", "label"], [["a", 3], ["b", ""]])
    b'id,label\na,3\nb,\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def split(
    count: int, *, visible: int, hidden: int, labels: "np.ndarray | None" = None, seed: int = 0
) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
    """Return which of `count` rows train, which are the visible test set, and which the hidden one,
    each in an order that tells nothing.

    labels: shape (count,); each part then has the same share of each.
    """
    import numpy as np
    from sklearn.model_selection import train_test_split

    def apart(indices: "np.ndarray", size: int) -> "tuple[np.ndarray, np.ndarray]":
        stratify = None if labels is None else labels[indices]
        rest, taken = train_test_split(
            indices, test_size=size, stratify=stratify, random_state=seed
        )
        return rest, taken

    rest, out_of_sight = apart(np.arange(count), hidden)
    train, in_sight = apart(rest, visible)
    return train, in_sight, out_of_sight


def of_table(
    slug: str,
    title: str,
    *,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    target: str,
    values: Sequence[str],
    placeholder: str,
    parts: "tuple[np.ndarray, np.ndarray, np.ndarray]",
    score: Callable[[Columns, Columns], float],
    **more: Any,
) -> Competition:
    """Return a competition of one table: train.csv (id, columns, target), test.csv without the
    target, and a sample of ids.

    Args:
        names, rows: of the columns. target, values: what is predicted, and its value for each row.
        placeholder: stands in the sample for every value.
        parts: as `split` returns them. Ids are numbers from 0 in this order; the two test sets
            share none.
        more: of `Competition`.
    """
    ids = {
        int(row): str(number) for number, row in enumerate(row for part in parts for row in part)
    }
    train, visible, hidden = parts

    def test(indices: "np.ndarray") -> dict[str, bytes]:
        return {
            "test.csv": table(["id", *names], [[ids[row], *rows[row]] for row in indices]),
            "sample_submission.csv": table(
                ["id", target], [[ids[row], placeholder] for row in indices]
            ),
        }

    return Competition(
        slug=slug,
        title=title,
        training={
            "train.csv": table(
                ["id", *names, target], [[ids[row], *rows[row], values[row]] for row in train]
            ),
        },
        visible_test=test(visible),
        hidden_test=test(hidden),
        solution={target: {ids[row]: values[row] for row in hidden}},
        score=score,
        **more,
    )

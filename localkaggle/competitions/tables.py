"""Tables: CSV files as bytes, seeded splits into three, and a competition made of one table."""

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
    """Split rows into a training set and two test sets, each in random order.

    Args:
        count: how many rows there are.
        visible: how many are in the visible test set.
        hidden: how many are in the hidden test set.
        labels: shape (count,); each part then has the same share of each label.
        seed: of the random order.

    Returns:
        The indices of the training, the visible and the hidden rows.
    """
    import numpy as np
    from sklearn.model_selection import train_test_split

    def apart(indices: "np.ndarray", size: int) -> "tuple[np.ndarray, np.ndarray]":
        stratify = None if labels is None else labels[indices]
        rest, test = train_test_split(indices, test_size=size, stratify=stratify, random_state=seed)
        return rest, test

    rest, hidden_rows = apart(np.arange(count), hidden)
    train, visible_rows = apart(rest, visible)
    return train, visible_rows, hidden_rows


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
    """Return a competition of one table.

    Its train.csv has ids, columns and the target, its test.csv no target.

    Args:
        slug: of the competition.
        title: of the competition.
        names: of the columns.
        rows: the values of the columns, row by row.
        target: the column that is predicted.
        values: the target of each row.
        placeholder: every value in the sample submission.
        parts: as `split` returns them. Ids are numbers from 0 in this order, so no two parts share
            one.
        score: as in `Competition`.
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

"""Turn labelled rows and images into a competition's files."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from localkaggle.competitions.competition import Columns, Competition

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The indices of the training rows, the visible test rows and the hidden test rows."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    r"""Return the bytes of a CSV file with this header and these rows.

    >>> table(["id", "label"], [["a", 3], ["b", ""]])
    b'id,label\na,3\nb,\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def split(
    count: int, *, visible: int, hidden: int, labels: np.ndarray | None = None, seed: int = 0
) -> Parts:
    """Split rows randomly into a training set and two test sets.

    The split is stratified by `labels`, which has the shape (count,). If `labels` is None, the
    split is not stratified.
    """
    from sklearn.model_selection import train_test_split

    rest, found = np.arange(count), []
    for size in (hidden, visible):
        stratify = None if labels is None else labels[rest]
        rest, test = train_test_split(rest, test_size=size, stratify=stratify, random_state=seed)
        found.append(test)
    return rest, found[1], found[0]


@dataclass(frozen=True)
class Examples:
    """Labelled rows that can be turned into a competition.

    `values` are the values of the `target` column as strings. `columns` are the others. `images`
    have shape (n, height, width) and dtype uint8.
    """

    target: str
    values: Sequence[str]
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    images: np.ndarray | None = None

    def competition(
        self,
        slug: str,
        title: str,
        parts: Parts,
        *,
        placeholder: str,
        score: Callable[[Columns, Columns], float],
        **more: Any,
    ) -> Competition:
        """Return a competition made from the examples.

        train.csv contains the ids, the columns and the target. test.csv has no target, and is
        omitted if there are no columns. Images are in train/ and test/. `placeholder` is the target
        value of all rows in the sample submission.
        """
        # Ids are unique across the training and test sets. For images, they are hashes, which do
        # not reveal the label or the position in the original data.
        ids: dict[int, Any] = {row: n for n, row in enumerate(np.concatenate(parts).tolist())}
        if self.images is not None:
            ids = {row: hashlib.sha256(f"{slug} {row}".encode()).hexdigest()[:8] for row in ids}

        def csv_file(rows: np.ndarray, columns: Mapping[str, Sequence[object]]) -> bytes:
            lines = [
                [ids[row], *(values[row] for values in columns.values())]
                for row in sorted(rows.tolist(), key=ids.__getitem__)
            ]
            return table(["id", *columns], lines)

        def pictures(folder: str, rows: np.ndarray) -> dict[str, bytes]:
            if self.images is None:
                return {}
            return {f"{folder}/{ids[row]}.png": png(self.images[row]) for row in rows.tolist()}

        def test(rows: np.ndarray) -> dict[str, bytes]:
            sample = {self.target: [placeholder] * len(self.values)}
            return {
                **({"test.csv": csv_file(rows, self.columns)} if self.columns else {}),
                "sample_submission.csv": csv_file(rows, sample),
                **pictures("test", rows),
            }

        train, visible, hidden = parts
        labelled = {**self.columns, self.target: self.values}
        return Competition(
            slug=slug,
            title=title,
            training={"train.csv": csv_file(train, labelled), **pictures("train", train)},
            visible_test=test(visible),
            hidden_test=test(hidden),
            solution={self.target: {str(ids[row]): self.values[row] for row in hidden.tolist()}},
            score=score,
            **more,
        )


def png(pixels: np.ndarray) -> bytes:
    """Return a PNG file with a grayscale image of shape (height, width) and dtype uint8."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

"""Competitions: what the local Kaggle hosts. Each has files that everybody sees, a hidden test set, and labels that only the server has.

Gives  `digits`: scikit-learn's 1,797 handwritten digits (8x8, from the UCI repository), as PNG files and tables
"""

import csv
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

Files = Mapping[str, bytes]


class ScoringError(Exception):
    """A submission that cannot be scored; the text is what Kaggle would say."""


@dataclass(frozen=True)
class Competition:
    """One competition.

    Attributes:
        slug, title: as on Kaggle.
        training: {path: bytes} of the files that both test sets share.
        visible_test, hidden_test: {path: bytes} of the test set and its sample_submission.csv.
        solution: {id: label} of the hidden test set. Never written to the disk.
        score: takes the submission's {id: label} and the solution.
        code_only: takes notebooks alone; their scored rerun may use neither internet nor TPU.
        daily_submissions: how many are allowed a day.
    """

    slug: str
    title: str
    training: Files = field(repr=False)
    visible_test: Files = field(repr=False)
    hidden_test: Files = field(repr=False)
    solution: Mapping[str, str] = field(repr=False)
    score: Callable[[Mapping[str, str], Mapping[str, str]], float]
    code_only: bool = True
    daily_submissions: int = 5

    def write(self, folder: Path, *, hidden: bool = False) -> None:
        """Write the competition's folder as a session finds it mounted; `hidden`: as the scored rerun does."""
        for name, content in {**self.training, **(self.hidden_test if hidden else self.visible_test)}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def judge(self, submission: Path) -> float:
        """Return the score of a submission for the hidden test set.

        Raises:
            ScoringError: if its columns, rows, ids or values are not what the sample asks for.
        """
        sample = next(csv.reader(io.StringIO(self.hidden_test["sample_submission.csv"].decode())))
        try:
            with submission.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.reader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ScoringError(f"The file is not a CSV: {error}") from error
        if not rows or rows[0] != sample:
            raise ScoringError(f"Submission must have the columns {', '.join(sample)}")
        body = [row for row in rows[1:] if row]
        if len(body) != len(self.solution):
            raise ScoringError(f"Submission has {len(body)} rows but {len(self.solution)} were expected")
        if any(len(row) != 2 for row in body):
            raise ScoringError("A row has another number of values than the header")
        given = {row[0]: row[1] for row in body}
        if given.keys() != self.solution.keys():
            raise ScoringError("Submission ids do not match those of the test set")
        if any(not value.strip() for value in given.values()):
            raise ScoringError("Submission contains null values")
        return self.score(given, self.solution)


def accuracy(given: Mapping[str, str], solution: Mapping[str, str]) -> float:
    """Return the share of ids whose label is right.

    >>> accuracy({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    0.5
    """
    for value in given.values():
        try:
            int(value)
        except ValueError:
            raise ScoringError(f"Column label must be a whole number, found {value!r}") from None
    return sum(int(given[name]) == int(label) for name, label in solution.items()) / len(solution)


@cache
def digits() -> Competition:
    """Return the embedded competition: 1,197 digits to train, 100 to test in sight, 500 hidden ones with other ids."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    pixels = np.round(data.images * (255 / 16)).astype(np.uint8)
    rest, hidden = train_test_split(np.arange(len(pixels)), test_size=500, stratify=data.target, random_state=0)
    train, visible = train_test_split(rest, test_size=100, stratify=data.target[rest], random_state=0)

    def png(index: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels[index]).save(buffer, "PNG")
        return buffer.getvalue()

    # Ids tell nothing: neither the label, nor the place in scikit-learn's order.
    names = {index: hashlib.sha256(f"digits {index}".encode()).hexdigest()[:8] for index in range(len(pixels))}

    def table(indices: "np.ndarray", *, labels: bool) -> bytes:
        lines = [
            f"{names[index]},{data.target[index] if labels else 0}" for index in sorted(indices, key=names.__getitem__)
        ]
        return ("id,label\n" + "\n".join(lines) + "\n").encode()

    def test(indices: "np.ndarray") -> dict[str, bytes]:
        images = {f"test/{names[index]}.png": png(index) for index in indices}
        return {"sample_submission.csv": table(indices, labels=False), **images}

    return Competition(
        slug="digits",
        title="Digits",
        training={"train.csv": table(train, labels=True), **{f"train/{names[i]}.png": png(i) for i in train}},
        visible_test=test(visible),
        hidden_test=test(hidden),
        solution={names[index]: str(data.target[index]) for index in hidden},
        score=accuracy,
    )


EMBEDDED: Mapping[str, Callable[[], Competition]] = {"digits": digits}
NAMES = tuple(EMBEDDED)

"""Competition: public files, a hidden test set, and the score of a submission."""

import csv
import io
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Files = Mapping[str, bytes]
Columns = Mapping[str, Mapping[str, str]]
"""A table as {column: {id: value}}; values are text, as in the file."""
RESAMPLES = 100


class ScoringError(Exception):
    """A submission that cannot be scored, with Kaggle's text."""


@dataclass(frozen=True)
class Competition:
    """One competition.

    Attributes:
        slug: as on Kaggle.
        title: as on Kaggle.
        training: {path: bytes} of the files beside both test sets.
        visible_test: {path: bytes} of the visible test set and its sample submission.
        hidden_test: the same of the hidden test set.
        solution: {column: {id: value}} of the hidden test set, with the sample's columns. It is
            never written to the disk.
        score: takes the columns of the submission and of the solution; raises `ScoringError` for
            values that it cannot read.
        sample: path of the sample submission, whose first column has the ids.
        daily_submissions: the number of submissions allowed per day.
        takes_files: whether a submission is an uploaded file, not a notebook. Then nothing is
            rerun: the visible test set is scored, and `hidden_test` is equal to it.
        gpu_seconds: the time limit of a notebook with a GPU; None: that of a session.
        closed: whether it takes no submissions.
        writer: replaces `write` for a folder of the user.
    """

    slug: str
    title: str
    training: Files = field(repr=False)
    visible_test: Files = field(repr=False)
    hidden_test: Files = field(repr=False)
    solution: Columns = field(repr=False)
    score: Callable[[Columns, Columns], float]
    sample: str = "sample_submission.csv"
    daily_submissions: int = 5
    takes_files: bool = False
    gpu_seconds: float | None = None
    closed: bool = False
    writer: Callable[..., None] | None = field(default=None, repr=False)

    def write(self, folder: Path, *, hidden: bool = False) -> None:
        """Write the folder that a session mounts; with `hidden`, for a scored rerun."""
        if self.writer is not None:
            self.writer(folder, hidden=hidden)
            return
        test = self.hidden_test if hidden else self.visible_test
        for name, content in {**self.training, **test}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def judge(self, submission: Path) -> float:
        """Return the score of a submission on the hidden test set.

        Rows may be in any order; columns have to be in the order of the sample.

        Raises:
            ScoringError: if its columns, ids or values do not fit the sample.
        """
        return self.score(self._read(submission), self.solution)

    def standard_error(self, submission: Path) -> float:
        """Return the bootstrap standard error of a submission's score over the hidden rows.

        Raises:
            ScoringError: as `judge` does.
        """
        tables, random = (self._read(submission), self.solution), np.random.default_rng(0)
        ids, scores = list(next(iter(self.solution.values()))), list[float]()
        for _ in range(RESAMPLES):
            drawn = random.integers(len(ids), size=len(ids)).tolist()
            given, solution = (
                {
                    column: {str(row): values[ids[place]] for row, place in enumerate(drawn)}
                    for column, values in table.items()
                }
                for table in tables
            )
            with suppress(ScoringError):  # such as the AUC of a single class
                scores.append(self.score(given, solution))
        return float(np.nanstd(scores))

    def _read(self, submission: Path) -> Columns:
        """Return the columns of a submission; raise `ScoringError` as `judge` does."""
        header = next(csv.reader(io.StringIO(self.hidden_test[self.sample].decode())))
        csv.field_size_limit(sys.maxsize)  # masks exceed the default
        try:
            with submission.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.reader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ScoringError(f"The file is not a CSV: {error}") from error
        if not rows or rows[0] != header:
            raise ScoringError(f"Submission must have the columns {', '.join(header)}")
        body = [row for row in rows[1:] if row]
        expected = self.solution[header[1]].keys()
        if len(body) != len(expected):
            raise ScoringError(f"Submission has {len(body)} rows but {len(expected)} were expected")
        if any(len(row) != len(header) for row in body):
            raise ScoringError("A row has a different number of values from the header")
        given = {
            column: {row[0]: row[place] for row in body}
            for place, column in enumerate(header)
            if place
        }
        found = given[header[1]].keys()
        if len(found) != len(body):
            raise ScoringError("Submission has duplicate ids")
        if found != expected:
            raise ScoringError("Submission ids do not match those of the test set")
        for column, values in given.items():
            # A competition whose solution has empty texts (no mask) accepts them.
            takes_none = any(not value.strip() for value in self.solution[column].values())
            if not takes_none and any(not value.strip() for value in values.values()):
                raise ScoringError("Submission contains null values")
        return given

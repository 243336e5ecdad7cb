"""Competitions with public files, a hidden test set and a metric."""

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
"""A table as {column: {id: value}}, where values are strings as in the CSV file."""
RESAMPLES = 100


class ScoringError(Exception):
    """Raised if a submission cannot be scored. The message is the same as on Kaggle."""


@dataclass(frozen=True)
class Competition:
    """A competition.

    Attributes:
        training: files that are not part of a test set, as {path: bytes}.
        visible_test: files of the visible test set and its sample submission, as {path: bytes}.
        solution: labels of the hidden test set as {column: {id: value}}, with the columns of the
            sample submission. The labels are never written to disk.
        score: returns the score for the columns of a submission and of the solution, or raises
            `ScoringError` if a value is invalid.
        sample: path of the sample submission, whose first column contains the ids.
        takes_files: whether submissions are uploaded files instead of notebooks. Files are scored
            on the visible test set without a rerun. In this case, `hidden_test` is the same as
            `visible_test`.
        gpu_seconds: time limit for GPU notebooks, or None for the session's limit.
        closed: whether the competition no longer accepts submissions.
        writer: for a competition made from the user's folder, function that replaces `write`.
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
        """Write the folder that a session mounts. `hidden` is set for a scored rerun."""
        if self.writer is not None:
            self.writer(folder, hidden=hidden)
            return
        test = self.hidden_test if hidden else self.visible_test
        for name, content in {**self.training, **test}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def judge(self, submission: Path) -> float:
        """Return a submission's score on the hidden test set, or raise `ScoringError`.

        The rows of a submission can be in any order, but its columns must be in the same order as
        in the sample submission.
        """
        return self.score(self._read(submission), self.solution)

    def standard_error(self, submission: Path) -> float:
        """Return the standard error of a submission's score, estimated by bootstrap."""
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
            with suppress(ScoringError):  # for example, AUC is undefined for one class
                scores.append(self.score(given, solution))
        return float(np.std(scores))

    def _read(self, submission: Path) -> Columns:
        header = next(csv.reader(io.StringIO(self.hidden_test[self.sample].decode())))
        csv.field_size_limit(sys.maxsize)  # masks exceed the default limit
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
            raise ScoringError("A row has a different number of values than the header")
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
            # Empty values are only allowed if the solution has some, such as empty masks.
            takes_none = any(not value.strip() for value in self.solution[column].values())
            if not takes_none and any(not value.strip() for value in values.values()):
                raise ScoringError("Submission contains null values")
        return given

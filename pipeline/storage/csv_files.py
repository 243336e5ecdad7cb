"""A CSV as texts, exactly as written: "001" stays "001", and "NA" stays "NA".

Read with Python's csv module. Where rows are longer than the header, pandas silently takes their
first field for an index and moves all others one column to the left.
"""

import csv
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pandas as pd

from pipeline.errors import PipelineError, reading


def read(
    path: Path, kind: type[PipelineError], advice: str, keep: Collection[str] | None = None
) -> pd.DataFrame:
    """Return the table: a column of texts for each name in the header; it may have no rows.

    Args:
        path: UTF-8, with or without a byte order mark; commas; blank lines are skipped.
        kind: class of the error to raise.
        advice: the edit that fixes it; ends the message.
        keep: the columns to return, if they are there; None: all.

    Raises:
        kind: if the file cannot be read, is empty, holds a NUL, names a column twice, or has a row
            with more or fewer fields than the header.
    """
    found = rows(path, kind, advice)
    names = next(found)
    kept = [place for place, name in enumerate(names) if keep is None or name in keep]
    return pd.DataFrame(
        [[row[place] for place in kept] for row in found],
        columns=[names[place] for place in kept],
        dtype=object,
    )


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; the arguments and errors are those of `read`."""
    return next(rows(path, kind, advice))


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header, and then each row that is not blank."""
    # A mask as run lengths has more characters than Python takes by itself.
    csv.field_size_limit(sys.maxsize)
    with reading(path, kind, advice):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = csv.reader(_without_nul(file), strict=True)
                names = next((row for row in lines if row), None)
                if not names:
                    raise ValueError("it is empty")
                yield names
                shown = ", ".join(names)
                if len(set(names)) < len(names):
                    raise ValueError(f"its header names a column twice: {shown}")
                for row in lines:
                    if row and len(row) != len(names):
                        raise ValueError(
                            f"line {lines.line_num} has {len(row)} fields "
                            f"and the header {len(names)} ({shown})"
                        )
                    if row:
                        yield row
        except (ValueError, csv.Error) as error:  # UnicodeDecodeError is a ValueError
            raise kind(
                f"{path} could not be read as a CSV: {error}.\nExpected UTF-8 and commas. {advice}"
            ) from error


def _without_nul(file: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text; other programs end a line at a NUL, or refuse it."""
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise ValueError(f"line {number} holds a NUL, which no text does")
        yield line

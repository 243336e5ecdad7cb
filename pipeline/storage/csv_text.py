"""Table: a CSV as texts, exactly as written ("001" stays "001", "NA" stays "NA"), or a refusal that
names the line.

Read with Python's csv module: where rows are longer than the header, pandas takes their first field
for an index and moves every other one column to the left, without a word.
"""

import csv
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pandas as pd

from pipeline.errors import PipelineError, reading


def read(
    path: Path, kind: type[PipelineError], advice: str, keep: Collection[str] | None = None
) -> pd.DataFrame:
    """Return the table: one column of texts for each name in the header; it may have no rows.

    Args:
        path: UTF-8, with or without a byte order mark; commas; blank lines mean nothing.
        keep: the columns to return, those of them that are there; None: all.
        kind: of the error. advice: the edit that mends it.

    Raises:
        kind: if the file cannot be read, is empty, holds a NUL, names a column twice, or has a row
            with more or fewer fields than the header.
    """
    with reading(path, kind, advice):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = csv.reader(_text(file), strict=True)
                header = next((row for row in lines if row), None)
                if not header:
                    raise ValueError("it is empty")
                if len(set(header)) < len(header):
                    raise ValueError(f"its header names a column twice: {', '.join(header)}")
                kept = [place for place, name in enumerate(header) if keep is None or name in keep]
                rows = []
                for row in lines:
                    if row and len(row) != len(header):
                        raise ValueError(
                            f"line {lines.line_num} has {len(row)} fields and the header {len(header)} ({', '.join(header)})"
                        )
                    if row:
                        rows.append([row[place] for place in kept])
        except (ValueError, csv.Error) as error:  # UnicodeDecodeError is a ValueError
            raise kind(
                f"{path} could not be read as a CSV: {error}.\nExpected UTF-8 and commas. {advice}"
            ) from error
    return pd.DataFrame(rows, columns=[header[place] for place in kept], dtype=object)


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; the arguments and errors are those of `read`."""
    with reading(path, kind, advice):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                found = next((row for row in csv.reader(_text(file), strict=True) if row), None)
        except (ValueError, csv.Error) as error:
            raise kind(
                f"{path} could not be read as a CSV: {error}.\nExpected UTF-8 and commas. {advice}"
            ) from error
    if not found:
        raise kind(
            f"{path} could not be read as a CSV: it is empty.\nExpected UTF-8 and commas. {advice}"
        )
    return found


def _text(file: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a file that is a text: where one holds a NUL, other programs end it there,
    or refuse it.
    """
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise ValueError(f"line {number} holds a NUL, which no text does")
        yield line

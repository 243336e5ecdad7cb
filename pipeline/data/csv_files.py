"""Tables: CSV, and parquet (`pipeline.data.parquet_files`). A text is what the file has: "001"
stays "001", and "NA" stays "NA".

Each row of a CSV is checked first, by Python's csv module where it has quotes. pandas, which reads
it then, would fill rows that are shorter than the header, and takes the first field of longer ones
for an index.
"""

import csv
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype, union_categoricals

from pipeline.data import parquet_files
from pipeline.errors import PipelineError, reading

# Texts of a missing number; spaces around them do not count.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
ROWS = 1 << 17  # parsed at a time: pandas takes several times the memory of what it makes


def read(
    path: Path,
    kind: type[PipelineError],
    advice: str,
    keep: Collection[str] | None = None,
    *,
    numbers: Collection[str] = (),
    categories: Collection[str] | None = (),
) -> pd.DataFrame:
    """Return the table: a column of texts (object) for each name in the header, or as the arguments
    say; it may have no rows.

    Args:
        path: of a .parquet file, or of a CSV: UTF-8, with or without a byte order mark; commas;
            blank lines are skipped.
        kind: class of the error to raise.
        advice: the edit that fixes it; ends the message.
        keep: the columns to return, if they are there; None: all.
        numbers: columns to return as float64, NaN where a text is one of `MISSING`. A column in
            which a text is neither that nor a finite number is returned as texts.
        categories: columns to return as pandas' categoricals of texts, which take the memory of
            the distinct ones; None: all that are not in `numbers`.

    Raises:
        kind: if the file cannot be read, is empty, holds a NUL, names a column twice, or has a row
            with more or fewer fields than the header.
    """
    if parquet_files.is_one(path):
        return parquet_files.read(path, kind, advice, keep, numbers, categories)
    with _told(path, kind, advice) as lines:
        names = _different(_header(lines))
        kept = [name for name in names if keep is None or name in keep]
        if len(names) == 1:  # a row of blanks is a row, which pandas skips
            found = [row for line in lines if (row := _row(line, lines, names))]
            return pd.DataFrame(found, columns=names, dtype=object)[kept]
        count = 0
        for line in lines:
            plain = line.count(",") == len(names) - 1 and '"' not in line
            count += plain or bool(_row(line, lines, names))
        asked = set(numbers)
        table = _parsed(path, names, kept, asked, kept if categories is None else categories)
        if odd := [name for name in kept if name in asked and table[name] is None]:
            table |= _parsed(path, names, odd, set(), ())
    return pd.DataFrame({name: table[name] for name in kept}, range(count), copy=False)


def _parsed(
    path: Path,
    names: list[str],
    kept: Sequence[str],
    numbers: Collection[str],
    categories: Collection[str],
) -> dict[str, pd.Series | None]:
    """Return the columns `kept` of a CSV that was checked; None for one of `numbers` that has a
    text which is no number.
    """
    parts: dict[str, list[Any]] = {name: [] for name in kept}
    encoded = set(categories) - set(numbers)
    for part in pd.read_csv(
        path,
        header=0,
        names=names,
        index_col=False,
        usecols=[place for place, name in enumerate(names) if name in parts],
        dtype={name: object for name in kept if name not in numbers},
        na_values={name: list(MISSING) for name in numbers},
        keep_default_na=False,
        encoding="utf-8-sig",
        engine="c",
        low_memory=False,
        chunksize=ROWS,
    ):
        for name in kept:
            # Not by the parser: pandas 3.1 makes numbers of categories.
            own = pd.Categorical(part[name]) if name in encoded else part[name]
            parts[name].append(own)

    def whole(name: str) -> pd.Series | None:
        own = parts[name]
        if name in numbers:
            if not all(is_numeric_dtype(part) and not is_bool_dtype(part) for part in own):
                return None
            values = np.concatenate([part.to_numpy(np.float64) for part in own] or [np.empty(0)])
            return None if np.isinf(values).any() else pd.Series(values)
        if name in encoded:
            return pd.Series(union_categoricals(own) if own else pd.Categorical([]))
        return pd.Series(np.concatenate(own) if own else [], dtype=object)

    return {name: whole(name) for name in kept}


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; the arguments and errors are those of `read`."""
    if parquet_files.is_one(path):
        return parquet_files.header(path, kind, advice)
    with _told(path, kind, advice) as lines:
        return _header(lines)


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header, and then each row that is not blank, as texts."""
    if parquet_files.is_one(path):
        table = parquet_files.read(path, kind, advice, None, (), ())
        yield list(table.columns)
        yield from map(list, zip(*(table[name] for name in table), strict=True))
        return
    with _told(path, kind, advice) as lines:
        yield (names := _header(lines))
        _different(names)
        for line in lines:
            if row := _row(line, lines, names):
                yield row


class _Lines(Iterator[str]):
    """The lines of a text, and how many were read. Other programs end a line at a NUL, or refuse
    it.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self.number = file, 0

    def __next__(self) -> str:
        line = next(self._file)
        self.number += 1
        if "\0" in line:
            raise ValueError(f"line {self.number} holds a NUL, which no text does")
        return line


@contextmanager
def _told(path: Path, kind: type[PipelineError], advice: str) -> Iterator[_Lines]:
    """Open a CSV, and raise its errors as `kind`."""
    # A mask as run lengths has more characters than Python takes by itself.
    csv.field_size_limit(sys.maxsize)
    with reading(path, kind, advice):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                yield _Lines(file)
        except UnicodeDecodeError as error:
            raise kind(
                f"{path} could not be read as a CSV: {error}; expected UTF-8.\n"
                f"If it is Latin-1: iconv -f latin1 -t utf8 {shlex.quote(str(path))} > utf8.csv, "
                f"and put it in its place. {advice}"
            ) from error
        except (ValueError, csv.Error) as error:
            raise kind(
                f"{path} could not be read as a CSV: {error}.\nExpected UTF-8 and commas. {advice}"
            ) from error


def _fields(line: str, lines: _Lines) -> list[str]:
    """Return the fields of the row that begins with a line; [] for a blank one."""
    return next(csv.reader(chain([line], lines), strict=True))


def _header(lines: _Lines) -> list[str]:
    names = next((row for line in lines if (row := _fields(line, lines))), None)
    if not names:
        raise ValueError("it is empty")
    if len(names) == 1 and ";" in names[0]:
        raise ValueError(
            "semicolons stand between the fields; write it again with commas (and decimal points)"
        )
    return names


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError(f"its header names a column twice: {', '.join(names)}")
    return names


def _row(line: str, lines: _Lines, names: list[str]) -> list[str]:
    row = _fields(line, lines)
    if row and len(row) != len(names):
        raise ValueError(
            f"line {lines.number} has {len(row)} fields and the header {len(names)} "
            f"({', '.join(names)})"
        )
    return row

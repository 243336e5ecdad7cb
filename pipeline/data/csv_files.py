"""Read tables from CSV files, and from parquet files if pyarrow is installed.

Text is not changed, so "001" stays "001" and "NA" stays "NA". Numbers use a decimal point, because
"3,5" could be two labels. Python's csv module checks every row before pandas reads it, because
pandas would pad short rows and truncate long ones.
"""

import csv
import io
import re
import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.runtime import mounts

# Texts that represent a missing number, after stripping spaces.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
PARQUET = ".parquet"
SEPARATORS = ",;\t|"  # the most frequent one in the header is used, or the first one if tied


def as_numbers(column: pd.Series) -> pd.Series:
    """Convert a column to numbers. Any text that is not a number becomes NaN.

    >>> as_numbers(pd.Series(["2", "two"])).tolist(), as_numbers(pd.Series([10**400])).tolist()
    ([2.0, nan], [inf])
    """
    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # raised for an integer beyond float64, despite `errors`
        return pd.to_numeric(column.map(str), errors="coerce")


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == PARQUET


def read(
    path: Path,
    kind: type[PipelineError],
    advice: str,
    keep: Collection[str] | None = None,
    *,
    required: Collection[str] = (),
    numbers: Collection[str] = (),
) -> pd.DataFrame:
    """Read a table. Its columns contain strings (object) unless they are listed in `numbers`.

    In a parquet table, missing values become "", and integers are read without a decimal point.

    Args:
        path: .parquet file, or CSV in UTF-8, with or without a byte order mark.
        kind: class of the exception to raise.
        advice: how to fix the problem, appended to the message.
        keep: columns to return if they exist. None returns all.
        required: columns that must exist and are also returned. The table must have rows.
        numbers: columns that pandas parses as float or int, with NaN for texts in `MISSING`. If any
            other text is not a number, the column contains strings.

    Raises:
        ConfigError: if a `required` column is missing, or the table has no rows and `required` is
            not empty.
        kind: if the file cannot be read, is empty, contains a NUL, has duplicate column names, or
            has a row with more or fewer fields than the header.
    """
    keep = None if keep is None else {*keep, *required}
    with _reading(path, kind, advice), _opened(path, keep) as file:
        between = _separator(file)
        rows = _rows(file)
        names = next(rows)
        for _ in rows:  # checks every row
            pass
        file.seek(0)
        kept = [name for name in names if keep is None or name in keep]
        table: pd.DataFrame = pd.read_csv(
            file,
            sep=between,
            header=0,
            names=names,
            index_col=False,
            usecols=kept or names[:1],  # pandas would not count rows without any column
            dtype={name: object for name in kept if name not in numbers},
            keep_default_na=False,
            na_values={name: list(MISSING) for name in kept if name in numbers},
        )
    missing = [name for name in required if name not in kept]
    if missing or (required and not len(table)):
        there = ", ".join(header(path, kind, advice)[:20])
        lacks = (
            f", but not the expected {', '.join(missing)[:1000]}"
            if missing
            else "; expected at least one row"
        )
        raise ConfigError(
            f"{path} has {len(table):,} rows and the columns {there[:1000]}{lacks}.\nComplete the "
            "download, or set id_column, label_column and the other columns in the config to names "
            "in the table."
        )
    return table[kept]


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    with _reading(path, kind, advice):
        if is_parquet(path):
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        with _opened(path) as file:
            return next(_rows(file))


def separator(path: Path) -> str:
    with _opened(path) as file:
        return _separator(file)


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header and then each row as strings, skipping blank rows."""
    with _reading(path, kind, advice), _opened(path) as file:
        yield from _rows(file)


def check_column(path: Path, column: pd.Series, wrong: Any, expected: str, edit: str) -> None:
    """Raise a `DataError` with examples if a column has invalid rows.

    Args:
        column: column whose index contains row numbers of the table, starting at 0.
        wrong: bool (n,), True for invalid rows.
        edit: how to fix the problem, appended to the message.
    """
    found = column[wrong]
    if len(found):
        examples = ", ".join(map(repr, found.map(str).unique()[:3]))
        where = f"{len(found):,} rows, starting with row" if len(found) > 1 else "row"
        raise DataError(
            f"{path} has {examples} in {column.name!r} ({where} {found.index[0] + 1}); "
            f"expected {expected}.\n{edit}"
        )


def _opened(path: Path, keep: Collection[str] | None = None) -> TextIO:
    if not is_parquet(path):
        return path.open(newline="", encoding="utf-8-sig")
    from pyarrow import parquet

    names = parquet.read_schema(path).names
    kept = [name for name in names if keep is None or name in keep] or names[:1]
    table = parquet.read_table(path, columns=kept)
    # numpy's types would add a decimal point to integers in a column with missing values.
    columns = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    return io.StringIO(columns.to_csv(index=False), newline="")


@contextmanager
def _reading(path: Path, kind: type[PipelineError], advice: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise kind(
            f"{path} is missing; {mounts.listing(path.parent)}.\nExpected a table. {advice}"
        ) from error
    except (OSError, ImportError, ValueError, csv.Error) as error:  # also from pandas and pyarrow
        raise kind(
            f"{path} could not be read as a table: {str(error)[:300]}.\nExpected a CSV file "
            "in UTF-8, or a parquet file, which requires pyarrow (pip install -e '.[parquet]'). To "
            f"convert a Latin-1 file, run `iconv -f latin1 -t utf8 {shlex.quote(str(path))} > "
            f"utf8.csv`. {advice}"
        ) from error


def _separator(file: TextIO) -> str:
    if isinstance(file, io.StringIO):  # converted from a parquet table
        return ","
    file.seek(0)
    header = next(filter(str.strip, file), "")
    file.seek(0)
    # Ignore quoted text, because a column may be called "length, in mm".
    plain = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=plain.count)


def _rows(file: TextIO) -> Iterator[list[str]]:
    # A run-length encoded mask can be longer than Python's default limit.
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(file, strict=True, delimiter=_separator(file))
    names = next(filter(None, reader), None)
    if not names:
        raise ValueError("it is empty")
    yield names  # before the check, so that error messages can show any header
    if len(set(names)) < len(names):
        raise ValueError(f"its header contains a column twice: {', '.join(names)}")
    for row in filter(None, reader):
        if len(row) != len(names) or any("\0" in field for field in row):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} fields, or contains a NUL; expected "
                f"{len(names)} ({', '.join(names)})"
            )
        yield row

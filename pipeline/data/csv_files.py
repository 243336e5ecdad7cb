"""Tables: CSV, and parquet by pyarrow. Texts stay as they are: "001" stays "001", and "NA" stays
"NA". Fields are separated by commas, semicolons, tabs or bars, as the header shows. Numbers have a
decimal point, since "3,5" may be two labels.

Python's csv module checks each row before pandas reads the table: pandas would pad short rows and
truncate long ones. A parquet table is converted to CSV first.
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

# Texts that stand for a missing number, without surrounding spaces.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
PARQUET = ".parquet"
SEPARATORS = ",;\t|"  # of fields; of two that are equally frequent in the header, the first


def as_numbers(column: pd.Series) -> pd.Series:
    """Return the numbers of a column, NaN for other texts.

    >>> as_numbers(pd.Series(["2", "two"])).tolist(), as_numbers(pd.Series([10**400])).tolist()
    ([2.0, nan], [inf])
    """
    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # an integer beyond float64, despite `errors`
        return pd.to_numeric(column.map(str), errors="coerce")


def is_parquet(path: Path) -> bool:
    """Return whether a file name is that of a parquet table."""
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
    """Return a table with a column of texts (object) for each name in the header.

    In a parquet table a missing value becomes "", and an integer has no decimal point.

    Args:
        path: a .parquet file, or a CSV in UTF-8, with or without a byte order mark, with one of
            `SEPARATORS`; blank lines are skipped.
        kind: class of the error to raise.
        advice: the edit that fixes it; ends the message.
        keep: the columns to return if they exist; None: all.
        required: columns that must exist, in a table with rows; they are also returned.
        numbers: columns in which pandas looks for numbers: float or int, NaN for texts in
            `MISSING`; still texts if one of them is not a number.

    Raises:
        ConfigError: if the table lacks one of `required`, or then has no rows.
        kind: if the file cannot be read, is empty, contains a NUL, has two columns of one name, or
            a row with more or fewer fields than the header.
    """
    keep = None if keep is None else {*keep, *required}
    with _reading(path, kind, advice), _opened(path, keep) as file:
        between = _separator(file)
        rows = _rows(file)
        names = next(rows)
        for _ in rows:  # checks each
            pass
        file.seek(0)
        kept = [name for name in names if keep is None or name in keep]
        table: pd.DataFrame = pd.read_csv(
            file,
            sep=between,
            header=0,
            names=names,
            index_col=False,
            usecols=kept or names[:1],  # without any column pandas would count no rows
            dtype={name: object for name in kept if name not in numbers},
            keep_default_na=False,
            na_values={name: list(MISSING) for name in kept if name in numbers},
        )
    missing = [name for name in required if name not in kept]
    if missing or (required and not len(table)):
        there = ", ".join(header(path, kind, advice)[:20])
        raise ConfigError(
            f"{path} has {len(table):,} rows and the columns {there[:1000]}; "
            f"expected also {', '.join(missing)[:1000] or 'rows'}.\nComplete the download, or set "
            "id_column, label_column and the other columns in the config to names in the table."
        )
    return table[kept]


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; arguments and errors as for `read`."""
    with _reading(path, kind, advice):
        if is_parquet(path):
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        with _opened(path) as file:
            return next(_rows(file))


def separator(path: Path) -> str:
    """Return the one of `SEPARATORS` that a CSV uses."""
    with _opened(path) as file:
        return _separator(file)


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header and then each row, without blank ones, as texts."""
    with _reading(path, kind, advice), _opened(path) as file:
        yield from _rows(file)


def check_column(path: Path, column: pd.Series, wrong: Any, expected: str, edit: str) -> None:
    """Raise `DataError` with examples if some rows of a column are wrong.

    Args:
        path: source of the column.
        column: its index counts the rows of the table from 0.
        wrong: bool (n,).
        expected: the values that were expected, in words.
        edit: the edit that fixes it; ends the message.
    """
    found = column[wrong]
    if len(found):
        examples = ", ".join(map(repr, found.map(str).unique()[:3]))
        raise DataError(
            f"{path} has {examples} in {column.name!r} (rows: {len(found):,}, the first: "
            f"{found.index[0] + 1}); expected {expected}.\n{edit}"
        )


def _opened(path: Path, keep: Collection[str] | None = None) -> TextIO:
    """Open a table as a CSV; of a parquet table only the columns in `keep`."""
    if not is_parquet(path):
        return path.open(newline="", encoding="utf-8-sig")
    from pyarrow import parquet

    names = parquet.read_schema(path).names
    kept = [name for name in names if keep is None or name in keep] or names[:1]
    table = parquet.read_table(path, columns=kept)
    # With numpy's types an integer in a column with gaps would get a decimal point.
    columns = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    return io.StringIO(columns.to_csv(index=False), newline="")


@contextmanager
def _reading(path: Path, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Turn errors in a table into `kind`."""
    try:
        yield
    except FileNotFoundError as error:
        raise kind(
            f"{path} is missing; {mounts.listing(path.parent)}.\nExpected a table. {advice}"
        ) from error
    except (OSError, ImportError, ValueError, csv.Error) as error:  # of pandas and pyarrow, too
        raise kind(
            f"{path} could not be read as a table: {str(error)[:300]}.\nExpected a CSV in UTF-8 "
            f"(from Latin-1: iconv -f latin1 -t utf8 {shlex.quote(str(path))} > utf8.csv)"
            f", or parquet, which needs pyarrow (pip install -e '.[parquet]'). {advice}"
        ) from error


def _separator(file: TextIO) -> str:
    """Return the separator of an open CSV, by its header, and go back to its start."""
    if isinstance(file, io.StringIO):  # made from a parquet table
        return ","
    file.seek(0)
    header = next(filter(str.strip, file), "")
    file.seek(0)
    # Only outside quotes: a column may be called "length, in mm".
    plain = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=plain.count)


def _rows(file: TextIO) -> Iterator[list[str]]:
    """Yield the header of a CSV and then each row with that many fields, without blank ones.

    Raises:
        ValueError, csv.Error: with the line.
    """
    # A mask as run lengths may be longer than Python's default limit.
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(file, strict=True, delimiter=_separator(file))
    names = next(filter(None, reader), None)
    if not names:
        raise ValueError("it is empty")
    yield names  # before the check: for an error message, the first row of data will do
    if len(set(names)) < len(names):
        raise ValueError(f"its header names a column twice: {', '.join(names)}")
    for row in filter(None, reader):
        if len(row) != len(names) or any("\0" in field for field in row):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} fields, or contains a NUL; expected "
                f"{len(names)} ({', '.join(names)})"
            )
        yield row

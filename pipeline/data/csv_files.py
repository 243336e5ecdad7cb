"""Tables: CSV, and parquet by pyarrow. A text stays as the file has it: "001" stays "001", and "NA"
stays "NA". Commas, semicolons, tabs or bars separate the fields, as the header shows. A number has
a decimal point: "3,5" may be two labels.

Python's csv module checks each row before pandas reads the table: pandas would fill rows that are
shorter than the header, and cut longer ones. A parquet table is read as the CSV that pandas makes
of it.
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

# Texts of a missing number; spaces around them do not count.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
PARQUET = ".parquet"
SEPARATORS = ",;\t|"  # of fields; where a header holds two of them equally often, the earlier one


def as_numbers(column: pd.Series) -> pd.Series:
    """Return the numbers of a column, NaN where a text is none.

    >>> as_numbers(pd.Series(["2", "two"])).tolist(), as_numbers(pd.Series([10**400])).tolist()
    ([2.0, nan], [inf])
    """
    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # of a whole number beyond float64, whatever `errors` says
        return pd.to_numeric(column.map(str), errors="coerce")


def is_parquet(path: Path) -> bool:
    """Return whether a file is a parquet table, by its name."""
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
    """Return the table: a column of texts (object) for each name in the header.

    In a parquet table a missing value is the text "", and a whole number has no point.

    Args:
        path: of a .parquet file, or of a CSV: UTF-8, with or without a byte order mark; fields
            between any one of `SEPARATORS`; blank lines are skipped.
        kind: class of the error to raise.
        advice: the edit that fixes it; ends the message.
        keep: the columns to return, if they are there; None: all.
        required: columns that must be there, and are returned, too; there must be rows then.
        numbers: columns in which pandas looks for numbers: they are numbers, NaN where a text is
            one of `MISSING`, or texts as far as they are none.

    Raises:
        ConfigError: if the table lacks one of `required`, or has no rows then.
        kind: if the file cannot be read, is empty, holds a NUL, names a column twice, or has a row
            with more or fewer fields than the header.
    """
    keep = None if keep is None else {*keep, *required}
    with _reading(path, kind, advice), _opened(path, keep) as file:
        between = _separator(file)
        rows = _rows(file)
        names = next(rows)
        for _ in rows:  # this checks each
            pass
        file.seek(0)
        kept = [name for name in names if keep is None or name in keep]
        table: pd.DataFrame = pd.read_csv(
            file,
            sep=between,
            header=0,
            names=names,
            index_col=False,
            usecols=kept or names[:1],  # without a column pandas would count no rows
            dtype={name: object for name in kept if name not in numbers},
            keep_default_na=False,
            na_values={name: list(MISSING) for name in kept if name in numbers},
        )
    missing = [name for name in required if name not in kept]
    if missing or (required and not len(table)):
        there = ", ".join(header(path, kind, advice)[:20])
        raise ConfigError(
            f"{path} has {len(table):,} rows, and the columns {there[:1000]}; expected also "
            f"{', '.join(missing)[:1000] or 'rows'}.\nComplete the download, or set id_column, "
            "label_column and the other columns in the config to the table's own."
        )
    return table[kept]


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; the arguments and errors are those of `read`."""
    with _reading(path, kind, advice):
        if is_parquet(path):
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        with _opened(path) as file:
            return next(_rows(file))


def separator(path: Path) -> str:
    """Return what separates the fields of a CSV: one of `SEPARATORS`."""
    with _opened(path) as file:
        return _separator(file)


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header, and then each row that is not blank, as texts."""
    with _reading(path, kind, advice), _opened(path) as file:
        yield from _rows(file)


def check_column(path: Path, column: pd.Series, wrong: Any, expected: str, edit: str) -> None:
    """Raise `DataError` if some rows of a column are wrong: how many, and the first ones.

    Args:
        path: of the table, or what else the column comes from.
        column: of the table, whose index counts its rows from 0.
        wrong: bool (n,).
        expected: in each row.
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
    """Return a table as the text of a CSV, a parquet table without columns that are not kept."""
    if not is_parquet(path):
        return path.open(newline="", encoding="utf-8-sig")
    from pyarrow import parquet

    names = parquet.read_schema(path).names
    kept = [name for name in names if keep is None or name in keep] or names[:1]
    table = parquet.read_table(path, columns=kept)
    # With numpy's types a whole number would get a point where its column has gaps.
    columns = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    return io.StringIO(columns.to_csv(index=False), newline="")


@contextmanager
def _reading(path: Path, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Raise the errors of a table as `kind`."""
    try:
        yield
    except FileNotFoundError as error:
        raise kind(
            f"{path} is missing; {mounts.listing(path.parent)}.\nExpected a table. {advice}"
        ) from error
    except (OSError, ImportError, ValueError, csv.Error) as error:  # of pandas and pyarrow, too
        raise kind(
            f"{path} could not be read as a table: {str(error)[:300]}.\nExpected a CSV in UTF-8 "
            f"(of Latin-1: iconv -f latin1 -t utf8 {shlex.quote(str(path))} > utf8.csv)"
            f", or parquet, which needs pyarrow (pip install -e '.[parquet]'). {advice}"
        ) from error


def _separator(file: TextIO) -> str:
    """Return what separates the fields of an open CSV, by its header; it is at its start after."""
    if isinstance(file, io.StringIO):  # of a parquet table
        return ","
    file.seek(0)
    header = next(filter(str.strip, file), "")
    file.seek(0)
    # Outside quotes: a column may be called "length, in mm".
    plain = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=plain.count)


def _rows(file: TextIO) -> Iterator[list[str]]:
    """Yield the header of a CSV, and then each row that is not blank, which has as many fields.

    Raises:
        ValueError, csv.Error: with the line.
    """
    # A mask as run lengths has more characters than Python takes by itself.
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(file, strict=True, delimiter=_separator(file))
    names = next(filter(None, reader), None)
    if not names:
        raise ValueError("it is empty")
    yield names  # where only these are read, they may be a row of data
    if len(set(names)) < len(names):
        raise ValueError(f"its header names a column twice: {', '.join(names)}")
    for row in filter(None, reader):
        if len(row) != len(names) or any("\0" in field for field in row):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} fields, or holds a NUL; expected "
                f"{len(names)} ({', '.join(names)})"
            )
        yield row

"""Tables: CSV, and parquet by pyarrow. A text is what the file has: "001" stays "001", and "NA"
stays "NA".

Each row of a CSV is checked first, by Python's csv module. pandas, which reads it then, would fill
rows that are shorter than the header, and takes the first field of longer ones for an index.
"""

import csv
import shlex
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from pipeline.errors import PipelineError, reading

# Texts of a missing number; spaces around them do not count.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
PARQUET = ".parquet"


def is_parquet(path: Path) -> bool:
    """Return whether a file is a parquet table, by its name."""
    return path.suffix.lower() == PARQUET


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

    In a parquet table a missing value is the text "", a whole number has no point, and a number is
    written in as few digits as tell it from others.

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
    names = header(path, kind, advice)
    kept = [name for name in names if keep is None or name in keep]
    table_of = _parquet_table if is_parquet(path) else _csv_table
    with _reading(path, kind, advice):
        table = table_of(path, names, kept, numbers)
    encoded = [
        name for name in kept if name not in numbers and (categories is None or name in categories)
    ]
    return table.astype(dict.fromkeys(encoded, "category"))


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns; the arguments and errors are those of `read`."""
    with _reading(path, kind, advice):
        if not is_parquet(path):
            return next(_csv_rows(path))
        from pyarrow import parquet

        names: list[str] = parquet.read_schema(path).names
        _refuse_repeated(names)
        return names


def rows(path: Path, kind: type[PipelineError], advice: str) -> Iterator[list[str]]:
    """Yield the header, and then each row that is not blank, as texts."""
    if is_parquet(path):
        table = read(path, kind, advice)
        yield list(table.columns)
        yield from map(list, zip(*(table[name] for name in table), strict=True))
        return
    with _reading(path, kind, advice):
        yield from _csv_rows(path)


@contextmanager
def _reading(path: Path, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Raise the errors of a table as `kind`."""
    form = "parquet table" if is_parquet(path) else "CSV"
    with reading(path, kind, advice):
        try:
            yield
        except ImportError as error:  # an extra here (170 MB)
            raise kind(
                f"{path} is a parquet table, and pyarrow is not installed; expected it, as Kaggle's"
                " images have it.\npip install -e '.[parquet]'"
            ) from error
        except UnicodeDecodeError as error:
            raise kind(
                f"{path} could not be read as a {form}: {error}; expected UTF-8.\n"
                f"If it is Latin-1: iconv -f latin1 -t utf8 {shlex.quote(str(path))} > utf8.csv, "
                f"and put it in its place. {advice}"
            ) from error
        except (ValueError, csv.Error) as error:  # pyarrow's errors are ValueErrors
            expected = "" if is_parquet(path) else "Expected UTF-8 and commas. "
            raise kind(
                f"{path} could not be read as a {form}: {str(error)[:300]}.\n{expected}{advice}"
            ) from error


def _refuse_repeated(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"its header names a column twice: {', '.join(names)}")


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """Yield the header of a CSV, and then each row that is not blank, which has as many fields.

    Raises:
        ValueError, csv.Error: with the line.
    """
    # A mask as run lengths has more characters than Python takes by itself.
    csv.field_size_limit(sys.maxsize)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(_lines(file), strict=True)
        names = next(filter(None, reader), None)
        if not names:
            raise ValueError("it is empty")
        if len(names) == 1 and ";" in names[0]:
            raise ValueError(
                "semicolons stand between the fields; write it again with commas (and decimal "
                "points)"
            )
        yield names  # where only these are read, they may be a row of data
        _refuse_repeated(names)
        for row in filter(None, reader):
            if len(row) != len(names):
                raise ValueError(
                    f"line {reader.line_num} has {len(row)} fields and the header {len(names)} "
                    f"({', '.join(names)})"
                )
            yield row


def _lines(file: TextIO) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if "\0" in line:  # other programs end a line there, or refuse it
            raise ValueError(f"line {number} holds a NUL, which no text does")
        yield line


def _csv_table(
    path: Path, names: list[str], kept: list[str], numbers: Collection[str]
) -> pd.DataFrame:
    """Return the columns `kept` of a CSV, those of `numbers` as float64 where all texts are."""
    rows = _csv_rows(path)
    if len(names) == 1:  # a row of blanks is a row, which pandas skips
        return pd.DataFrame(list(rows)[1:], columns=names, dtype=object)[kept]
    count = sum(1 for _ in rows) - 1  # this checks each
    if not kept:  # pandas would count no rows
        return pd.DataFrame(index=range(count))

    def parsed(columns: Collection[str], **options: Any) -> pd.DataFrame:
        places = [place for place, name in enumerate(names) if name in columns]
        common: dict[str, Any] = {"encoding": "utf-8-sig", "keep_default_na": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # those are read again
            table: pd.DataFrame = pd.read_csv(
                path, header=0, names=names, index_col=False, usecols=places, **common, **options
            )
            return table

    asked = [name for name in kept if name in numbers]
    texts = {name: object for name in kept if name not in numbers}
    table = parsed(kept, dtype=texts, na_values={name: list(MISSING) for name in asked})
    not_numbers = [name for name in asked if not _are_numbers(table[name])]
    if not_numbers:
        table[not_numbers] = parsed(not_numbers, dtype=object)
    return table.astype({name: np.float64 for name in asked if name not in not_numbers})


def _parquet_table(
    path: Path, names: list[str], kept: list[str], numbers: Collection[str]
) -> pd.DataFrame:
    """Return the columns `kept` of a parquet table, as `_csv_table` does."""
    import pyarrow as pa
    from pyarrow import parquet

    stored = parquet.read_table(path, columns=kept)
    table: pd.DataFrame = stored.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    for name in kept:
        column = table[name]
        if name in numbers and _are_numbers(column):
            table[name] = column.to_numpy(np.float64, na_value=np.nan)
            continue
        try:
            texts = column.where(column == column).astype(pd.ArrowDtype(pa.string()))
        except (pa.ArrowException, TypeError) as error:
            raise ValueError(
                f"its column {name!r} holds {stored[name].type}; expected numbers, texts or truths"
            ) from error
        table[name] = texts.fillna("").astype(object)
    return table


def _are_numbers(column: pd.Series) -> bool:
    """Return whether a column has numbers alone, all of them finite or missing."""
    if not is_numeric_dtype(column) or is_bool_dtype(column):
        return False
    return not np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any()

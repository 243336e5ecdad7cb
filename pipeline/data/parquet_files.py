"""Parquet tables, by pyarrow, which both of Kaggle's images have. It is an extra here (170 MB)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import PipelineError, reading

ENDING = ".parquet"


def is_one(path: Path) -> bool:
    """Return whether a file is a parquet table, by its name."""
    return path.suffix.lower() == ENDING


def read(
    path: Path,
    kind: type[PipelineError],
    advice: str,
    keep: Collection[str] | None,
    numbers: Collection[str],
    categories: Collection[str] | None,
) -> pd.DataFrame:
    """Return the table as `pipeline.data.csv_files.read` does. A missing value is the text "",
    a whole number has no point, and a number is written in as few digits as tell it from others.
    """
    with _opened(path, kind, advice) as file:
        kept = [name for name in _names(file) if keep is None or name in keep]
        table, found = file.read(columns=kept), {}
        for name in kept:
            column = table.column(name)
            try:
                found[name] = _number(column) if name in numbers else None
                if found[name] is None:
                    texts = name not in numbers and (categories is None or name in categories)
                    found[name] = _texts(column, encoded=texts)
            except Exception as error:  # pyarrow has several for a type that no text can be
                raise ValueError(
                    f"its column {name!r} holds {column.type}; expected numbers, texts or truths"
                ) from error
        return pd.DataFrame(found, copy=False)


def write(path: Path, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table of texts."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    parquet.write_table(pa.table([pa.array(c, pa.string()) for c in columns], list(names)), path)


def header(path: Path, kind: type[PipelineError], advice: str) -> list[str]:
    """Return the names of the table's columns."""
    with _opened(path, kind, advice) as file:
        return _names(file)


@contextmanager
def _opened(path: Path, kind: type[PipelineError], advice: str) -> Iterator[Any]:
    """Open a parquet file, and raise its errors as `kind`."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise kind(
            f"{path} is a parquet table, and pyarrow is not installed; expected it, as Kaggle's "
            "images have it.\npip install -e '.[parquet]'"
        ) from error
    with reading(path, kind, advice):
        try:
            with path.open("rb") as opened, parquet.ParquetFile(opened) as file:
                yield file
        except ValueError as error:  # ArrowInvalid is one
            raise kind(
                f"{path} could not be read as a parquet table: {str(error)[:300]}.\n{advice}"
            ) from error


def _names(file: Any) -> list[str]:
    names = list(map(str, file.schema_arrow.names))
    if not names or len(set(names)) < len(names):
        raise ValueError(f"it has no columns, or two of one name: {', '.join(names)}")
    return names


def _number(column: Any) -> pd.Series | None:
    """Return a column of finite numbers, float64, NaN where there is none; None for another."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if not any(kind(column.type) for kind in kinds):
        return None
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    return None if np.isinf(values).any() else pd.Series(values)


def _texts(column: Any, *, encoded: bool) -> pd.Series:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = compute.if_else(compute.is_nan(column), None, column)
    column = compute.fill_null(column.cast(pa.string()), "")
    if encoded:
        return pd.Series(column.dictionary_encode().combine_chunks().to_pandas())
    return pd.Series(column.to_numpy(), dtype=object)

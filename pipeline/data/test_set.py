"""The test set of a competition folder, read in blocks, in the order of the sample submission."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from pipeline.config import Config
from pipeline.data import csv_files, image_files, own_rows, parallel_decoding, table_features
from pipeline.data.own_rows import Block, Blocks, State
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError, reading


@dataclass(frozen=True)
class TestSet:
    """A test set. Image files are decoded only when a block asks for them.

    Attributes:
        ids: n texts.
        blocks: yields the inputs in blocks of a size (`pipeline.data.own_rows.Blocks`).
        images: whether the inputs are images.
    """

    __test__ = False  # pytest collects classes of this name

    ids: tuple[str, ...]
    blocks: Blocks
    images: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def inputs(self, rows: np.ndarray) -> np.ndarray:
        """Return the inputs of some rows, read again; zeros where one cannot be decoded."""
        return np.stack(
            [next(iter(self.blocks(1, int(row), int(row) + 1)))[1][0] for row in np.asarray(rows)]
        )


def read_test(folder: Path, config: Config, encoding: Encoding | State | None = None) -> TestSet:
    """Return the test set. No row is ever dropped.

    Args:
        encoding: of a table, or the state of a custom reader, as training found it.

    Raises:
        DataError: if an id has no example, an example has no id, or a table or array is not what
            the config says.
    """
    data = config.data
    sample, advice = folder / data.sample_submission, "Set data.sample_submission in the config."
    # Ids are the first column, which may have another name than in the tables.
    first = data.id_column
    with reading(sample, DataError, advice):
        if sample.is_file():
            first = csv_files.header(sample, DataError, advice)[0]
    table = table_features.read_table(sample, (first,), advice)
    ids = table_features.unique_ids(table[first], sample)
    if data.kind in ("images", "tfrecords"):
        return TestSet(ids, _image_blocks(image_files.find_test(folder, ids, data), config))
    if isinstance(encoding, State):
        blocks = own_rows.test_blocks(folder, config, ids, encoding)
        return TestSet(ids, blocks, images=data.images)

    path, broken = folder / data.test_csv, dict[int, str]()
    id_columns = (data.id_column, first)
    if data.kind == "arrays":
        advice = "Set data.test_array in the config."
        if path.is_file():
            table = csv_files.read(path, DataError, advice, id_columns)
        else:
            table = pd.DataFrame()
        inputs = table_features.array(folder / data.test_array, data, len(ids), advice)
    else:
        inputs, table, broken = _table_inputs(path, config, id_columns, encoding)
    rows = _rows_of_ids(table, id_columns, ids, path, sample)
    if rows is not None:
        broken = {place: broken[row] for place, row in enumerate(rows) if row in broken}
    elif len(inputs) != len(ids):
        raise DataError(
            f"{path} has {len(inputs)} rows and no column {data.id_column!r} or {first!r}, and "
            f"{sample.name} has {len(ids)} rows; expected as many.\n"
            "Take both from the same download, or correct id_column in the config."
        )
    return TestSet(ids, in_blocks(inputs, rows, broken), images=data.kind != "table")


def _image_blocks(paths: Sequence[parallel_decoding.Source | None], config: Config) -> Blocks:
    """Return `TestSet.blocks` of image files; None is a missing one, which counts as broken."""
    shape = image_files.shape(config.data)

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        # A missing image is read as an empty file, so that its row keeps its place.
        part = [path or image_files.MISSING for path in paths[first:last]]
        for start, block, broken in parallel_decoding.blocks(part, shape, size):
            reasons = {
                first + row: reason if paths[first + row] else "it is missing"
                for row, reason in broken.items()
            }
            yield first + start, block, reasons

    return blocks


def in_blocks(
    inputs: np.ndarray,
    rows: np.ndarray | None = None,
    broken: Mapping[int, str] = MappingProxyType({}),
) -> Blocks:
    """Return `TestSet.blocks` of inputs in memory.

    Args:
        rows: int64 (n,), the order of the inputs; None: as they are.
        broken: the reason for each row of the test set that cannot be used.
    """

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        end = len(inputs) if last is None else last
        for start in range(first, end, size):
            part = slice(start, min(start + size, end))
            reasons = {row: broken[row] for row in range(part.start, part.stop) if row in broken}
            yield start, inputs[part] if rows is None else inputs[rows[part]], reasons

    return blocks


def _table_inputs(
    path: Path, config: Config, id_columns: tuple[str, str], encoding: Encoding | State | None
) -> tuple[np.ndarray, pd.DataFrame, dict[int, str]]:
    """Return the inputs of a test table, the table, and the reason for each broken row. In the
    scored rerun a row that cannot be read is broken, since nobody is there to fix the table.
    """
    data, advice = config.data, "Set data.test_csv in the config."
    others = (*id_columns, *data.row_columns, *data.labels)
    names = (*data.numeric_columns, *data.categorical_columns)
    table = table_features.read_table(path, names, advice, optional=others, data=data)
    rerun, broken = bool(os.environ.get(image_files.RERUN)), dict[int, str]()
    if data.kind == "pixels":
        inputs = table_features.pixels(path, data, others, advice, broken if rerun else None)
    elif isinstance(encoding, Encoding):
        inputs = table_features.encode(table, encoding, path, lenient=rerun)
    else:
        raise DataError(
            "The artifact has no encoding of the table; expected one.\n"
            "Train again with this config."
        )
    return inputs, table, broken


def _rows_of_ids(
    table: pd.DataFrame, columns: tuple[str, str], ids: tuple[str, ...], path: Path, sample: Path
) -> np.ndarray | None:
    """Return the row of each id in a table, int64 (n,); None if the table has no ids."""
    column = next((name for name in columns if name in table.columns), None)
    if column is None:
        return None
    rows = {name: row for row, name in enumerate(table_features.unique_ids(table[column], path))}
    if different := [*sorted(set(ids) - set(rows)), *sorted(set(rows) - set(ids))]:
        raise DataError(
            f"{path} and {sample.name} differ in {len(different)} ids, for example "
            f"{', '.join(name[:80] for name in different[:5])}.\n"
            "Expected one row per id in both. Take them from the same download."
        )
    return np.array([rows[name] for name in ids])

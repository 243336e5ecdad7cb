"""The test set of a competition folder, read in blocks, in the order of the sample submission."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.config import Config
from pipeline.data import csv_files, image_files, own_rows, parallel_decoding, table_features
from pipeline.data.csv_files import check_column
from pipeline.data.own_rows import Block, Blocks, State
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError


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
    first = csv_files.header(sample, DataError, advice)[0]
    names = csv_files.read(sample, DataError, advice, (), required=(first,))[first]
    ids = table_features.unique_ids(names, sample)
    if data.kind in ("images", "tfrecords"):
        return TestSet(ids, _image_blocks(image_files.find_test(folder, ids, data), config))
    if isinstance(encoding, State):
        blocks = own_rows.test_blocks(folder, config, ids, encoding)
        return TestSet(ids, blocks, images=data.images)

    keys, path = (data.id_column, first), folder / data.test_csv
    inputs, table, broken = _table_inputs(folder, config, keys, encoding, len(ids))
    rows = np.arange(len(inputs))
    key = next((name for name in keys if name in table.columns), None)
    if key is not None:
        given = pd.Index(table_features.unique_ids(table[key], path))
        edit = "Take both from the same download."
        check_column(path, table[key], ~table[key].isin(ids), f"ids of {sample.name}", edit)
        check_column(sample, names, ~names.isin(given), f"ids of {path.name}", edit)
        rows = given.get_indexer(pd.Index(ids))
    elif len(inputs) != len(ids):
        raise DataError(
            f"{path} has {len(inputs)} rows and no column {data.id_column!r} or {first!r}, and "
            f"{sample.name} has {len(ids)} rows; expected as many.\n"
            "Take both from the same download, or correct id_column in the config."
        )
    return TestSet(ids, _blocks_of(inputs, rows, broken), images=data.kind != "table")


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


def _blocks_of(inputs: np.ndarray, rows: np.ndarray, broken: Mapping[int, str]) -> Blocks:
    """Return `TestSet.blocks` of inputs in memory.

    Args:
        rows: int64 (n,), the row of the inputs of each id.
        broken: the reason for each row of the inputs that cannot be used.
    """

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        end = len(rows) if last is None else last
        for start in range(first, end, size):
            part = rows[start : min(start + size, end)]
            reasons = {
                start + place: broken[row] for place, row in enumerate(part) if row in broken
            }
            yield start, inputs[part], reasons

    return blocks


def _table_inputs(
    folder: Path,
    config: Config,
    keys: tuple[str, str],
    encoding: Encoding | State | None,
    number: int,
) -> tuple[np.ndarray, pd.DataFrame, dict[int, str]]:
    """Return the inputs of a test table or array, the table, and the reason for each broken row. In
    the scored rerun a row that cannot be read is broken, since nobody is there to fix the table.

    Args:
        keys: what the column of ids may be called.
        number: of images that are expected in an array.
    """
    data, path, broken = config.data, folder / config.data.test_csv, dict[int, str]()
    if data.kind == "arrays":
        advice = "Set data.test_array in the config."
        table = csv_files.read(path, DataError, advice, keys) if path.is_file() else pd.DataFrame()
        return table_features.array(folder / data.test_array, data, number, advice), table, broken
    advice, rerun = "Set data.test_csv in the config.", bool(os.environ.get(image_files.RERUN))
    others = (*keys, *data.row_columns, *data.labels)
    names = (*data.numeric_columns, *data.categorical_columns)
    table = csv_files.read(
        path, DataError, advice, others, required=names, numbers=data.numeric_columns
    )
    if data.kind == "pixels":
        pixels = table_features.pixels(path, data, others, advice, broken if rerun else None)
        return pixels, table, broken
    assert isinstance(encoding, Encoding)  # noqa: S101 - each training on a table has one
    return table_features.encode(table, encoding, path, lenient=rerun), table, broken

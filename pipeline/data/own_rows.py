"""Custom rows: what a config's own readers return, checked, as the arrays that all else works with.

`read_training(folder, config)` returns `Rows`. `read_test(folder, config, ids, state)` returns the
inputs of the ids that it is given, in their order: a block of the sample submission's at a time.
"""

import json
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from pipeline.config import Config, custom_code
from pipeline.config.data_layout import Data, Form, sizes
from pipeline.data import csv_files, packed_inputs
from pipeline.data.csv_files import check_column
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError, PipelineError, place

CHECKED = 8  # ids whose inputs are read in two orders before a training

Inputs = np.ndarray | Mapping[str, np.ndarray]
Block = tuple[int, np.ndarray, Mapping[int, str]]


class Blocks(Protocol):
    """Yields a test set in blocks: (first row, inputs, reason for each broken row)."""

    def __call__(self, size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        """Yield blocks of `size` rows, from row `first` to before `last`; None: to the end."""


class NotFinite(DataError):
    """An input is infinite or NaN; of a test set such a row alone gets the mean prediction."""


@dataclass(frozen=True)
class Rows:
    """What a custom `read_training` returns.

    Attributes:
        ids: n texts, each once, as the sample submission writes them.
        inputs: an array (n, …), or several by name, as `data.own_inputs` says.
        labels: an array as `data.own_labels` says; for any other target what stands in a table: a
            text or number each, or (n, k) for several label columns.
        groups: n texts, with any `data.group_column`: rows of one group stay on one side of each
            split.
        weights: n numbers, with any `data.weight_column`: how much the loss of each row counts.
        state: what `read_test` needs of the training set, as a vocabulary or means: numbers, texts,
            lists and dicts, which travel in the artifact as JSON.
    """

    ids: Sequence[str]
    inputs: Inputs
    labels: Any
    groups: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    state: Any = None


@dataclass(frozen=True)
class State:
    """The `state` of a custom reader, as an artifact carries it."""

    value: Any

    def to_json(self) -> str:
        """Return it as a text, in which dicts keep their order: manifests sort keys."""
        return json.dumps(self.value)


def encoding_of(value: Any, data: Data) -> Encoding | State | None:
    """Return what `to_json` of a table's encoding, or of a custom reader's state, wrote.

    Raises:
        DataError, KeyError, TypeError, ValueError: if it did not.
    """
    if data.kind == "own":
        return State(json.loads(value))
    return Encoding.from_json(value, data) if data.kind == "table" else None


class Checked(NamedTuple):
    """The rows of a custom reader, checked.

    Attributes:
        table: of texts: ids, groups, weights, and the labels of any target but "own".
        inputs: packed.
        labels: of target="own"; None for any other.
        state: of the reader.
    """

    table: pd.DataFrame
    inputs: np.ndarray
    labels: np.ndarray | None
    state: State


def read_training(folder: Path, config: Config) -> Checked:
    """Return what the config's `read_training` returns, checked.

    Raises:
        ConfigError: if the reader breaks, with its file and line.
        DataError: if it returns something else than the config says.
    """
    read: Any = custom_code.function(config, "read_training")
    reader = custom_code.described(config, "read_training")
    with custom_code.telling(config, "read_training"):
        rows = read(folder, config)
    if not isinstance(rows, Rows):
        raise DataError(
            f"{reader} returns a {type(rows).__name__}; expected Rows.\n"
            "Return pipeline.data.own_rows.Rows(ids=…, inputs=…, labels=…)."
        )
    inputs = _packed(rows.inputs, config, len(rows.ids), reader)
    labels = None
    if config.target == "own":
        form, what = config.data.own_labels, f"{reader}: labels"
        labels = _checked_array(rows.labels, form, len(rows.ids), what)
    try:
        state = json.loads(json.dumps(rows.state, allow_nan=False))
        if state != rows.state:  # a key that is a number becomes a text, a tuple becomes a list
            raise TypeError("it comes back different")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{reader} returns a state that JSON cannot hold: {error}; expected numbers, texts, "
            "lists, and dicts whose keys are texts.\n"
            "Convert it: array.tolist(), list(tuple), float(number), str(key)."
        ) from error
    return Checked(_table(rows, config, reader), inputs, labels, State(state))


def _table(rows: Rows, config: Config, reader: str) -> pd.DataFrame:
    """Return ids, labels, groups and weights as a table of texts would hold them."""
    data, columns = config.data, dict[str, Any]({config.data.id_column: list(rows.ids)})
    for field in ("group", "weight"):
        name, values = getattr(data, f"{field}_column"), getattr(rows, f"{field}s")
        if name is not None:
            columns[name] = values
        elif values is not None:
            raise DataError(
                f"{reader} returns {field}s, and data.{field}_column is None; expected any text "
                f"there.\nSet data.{field}_column in the config, or leave {field}s out of Rows."
            )
    try:
        if config.target != "own":
            labels = np.asarray(rows.labels).reshape(len(rows.ids), -1)
            columns |= dict(zip(data.labels, labels.T, strict=True))
        table = pd.DataFrame(columns)
    except ValueError as error:
        raise DataError(
            f"{reader} returns {len(rows.ids)} ids, labels of the shape {np.shape(rows.labels)}, "
            f"groups and weights, which are no table together: {error}; expected per id a group, a "
            f"weight, and {len(data.labels)} labels.\nReturn as many."
        ) from error
    edit = "Leave such rows out, or fill them in."
    for _, column in table.items():
        check_column(Path(reader), column, column.isna(), "a value in each", edit)
    # pandas makes 1.0 of a 1 in a column with gaps, and here 1 of it again.
    return table.convert_dtypes().astype(str).astype(object)


def test_blocks(folder: Path, config: Config, ids: Sequence[str], state: State) -> Blocks:
    """Return `TestSet.blocks` of a custom reader.

    Where a block cannot be read, its rows are read one by one: only those that cannot be read get
    the mean prediction.
    """

    def read(first: int, last: int) -> tuple[np.ndarray, dict[int, str]]:
        try:
            return _read(folder, config, ids[first:last], state), {}
        except Exception as error:  # a competitor's reader may raise any
            if isinstance(error, PipelineError) and not isinstance(error, NotFinite):
                raise
            if last - first == 1:
                line, kind = place(error, custom_code.file(config)), type(error).__name__
                reason = f"{config.read_test} ended with {kind}{line}: {str(error)[:200]}"
                return np.zeros((1, *config.data.shape), config.data.dtype), {first: reason}
        inputs, reasons = zip(*(read(row, row + 1) for row in range(first, last)), strict=True)
        return np.concatenate(inputs), dict(ChainMap(*reasons))

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        end = len(ids) if last is None else last
        for start in range(first, end, size):
            yield start, *read(start, min(start + size, end))

    return blocks


def check_test(folder: Path, config: Config, state: State, show: Callable[[str], None]) -> None:
    """Read a few rows of the test set twice, the second time in reverse, before a training.

    Args:
        show: takes a warning where a file of the test set is missing.

    Raises:
        ConfigError: if the reader breaks, with its file and line.
        DataError: if it returns something else than the config says, or rows of other ids.
    """
    sample = folder / config.data.sample_submission
    if not sample.is_file():
        return
    ids = tuple(csv_files.read(sample, DataError, "Correct it.").iloc[:CHECKED, 0])
    reader = custom_code.described(config, "read_test")
    with custom_code.telling(config, "read_test"):
        try:
            inputs, reverse = (_read(folder, config, each, state) for each in (ids, ids[::-1]))
        except FileNotFoundError as error:  # some test sets come in the scored rerun alone
            show(f"Warning: {reader} could not be tried: {error.filename} is missing")
            return
    if not np.array_equal(inputs, reverse[::-1]):
        raise DataError(
            f"{reader} returns rows of other ids: for {len(ids)} ids in reverse it does not return "
            "the same rows in reverse.\nReturn a row for each of the ids, in their order."
        )


def _read(folder: Path, config: Config, ids: Sequence[str], state: State) -> np.ndarray:
    read: Any = custom_code.function(config, "read_test")
    inputs = read(folder, config, tuple(ids), state.value)
    return _packed(inputs, config, len(ids), custom_code.described(config, "read_test"))


def _packed(inputs: Any, config: Config, rows: int, reader: str) -> np.ndarray:
    """Return inputs packed, if they are what `data.own_inputs` says."""
    forms = config.data.own_inputs
    if not isinstance(inputs, Mapping):
        inputs = dict.fromkeys(forms, inputs)
    arrays = {
        name: _checked_array(inputs.get(name), form, rows, f"{reader}: the input {name!r}")
        for name, form in forms.items()
    }
    return packed_inputs.pack(arrays)


def _checked_array(array: Any, form: Form, rows: int, what: str) -> np.ndarray:
    """Return an array, if it has this form, from `data.own_inputs` or `data.own_labels`."""
    wanted = (rows, *sizes(form))
    if not isinstance(array, np.ndarray) or array.shape != wanted or array.dtype != form[0]:
        kind = f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
        raise DataError(
            f"{what} is {kind.strip()}; expected {form[0]} {wanted}.\n"
            f"Convert it: np.asarray(array, {form[0]!r}).reshape{wanted}, or correct own_inputs or "
            "own_labels in the config."
        )
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise NotFinite(
            f"{what} is not finite in row {row} (from 0).\n"
            "Fill gaps in the reader, with the mean of the training set, for example."
        )
    return array

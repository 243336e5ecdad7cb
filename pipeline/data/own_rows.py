"""Custom rows: what a config's own readers return, checked, as the arrays that all else works with.

`read_training(folder, config)` returns `Rows`. `read_test(folder, config, ids, state)` returns the
inputs of the ids that it is given, in their order: a block of the sample submission's at a time.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from pipeline.config import Config, custom_code
from pipeline.config.data_layout import Data, Form, sizes
from pipeline.data import csv_files, packed_inputs
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
        ids: n texts, each once.
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
        ids: n texts.
        inputs: packed.
        labels: of target="own"; None for any other.
        columns: texts, as in a table: groups, weights, and the labels of any other target.
        state: of the reader.
    """

    ids: tuple[str, ...]
    inputs: np.ndarray
    labels: np.ndarray | None
    columns: pd.DataFrame
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
    ids = _ids(rows.ids, reader)
    inputs = _packed(rows.inputs, config, len(ids), reader)
    labels, columns = None, pd.DataFrame(index=range(len(ids)))
    if config.target == "own":
        what = f"{reader}: labels"
        labels = _array(rows.labels, config.data.own_labels, len(ids), what, "own_labels")
    else:
        columns = _labels(rows.labels, config, len(ids), reader)
    for field in ("group", "weight"):
        values, name = getattr(rows, f"{field}s"), getattr(config.data, f"{field}_column")
        shape = None if values is None else np.shape(values)
        missing = values is not None and pd.isna(np.array(values)).any()
        if missing or shape != (None if name is None else (len(ids),)):
            has = "none" if shape is None else f"the shape {shape}, or some are missing"
            raise DataError(
                f"{reader} returns {field}s ({has}) for {len(ids)} ids, with"
                f" data.{field}_column={name!r}; expected one per row with a name there, and none"
                f" without.\nReturn Rows({field}s=…) and set data.{field}_column to any text, or"
                " leave out both."
            )
        if values is not None:
            columns[name] = [str(value) for value in values]
    return Checked(ids, inputs, labels, columns, State(_as_json(rows.state, reader)))


def _ids(names: Sequence[str], reader: str) -> tuple[str, ...]:
    ids = tuple(names)
    if kinds := {type(name).__name__ for name in ids if not isinstance(name, str)}:
        raise DataError(
            f"{reader} returns ids that are {', '.join(sorted(kinds))}; expected texts, as in the"
            ' sample submission.\nRead them as texts: pd.read_csv(…, dtype={"id": str}).'
        )
    if not ids or "" in ids or len(set(ids)) < len(ids):
        repeated = [name for name, times in Counter(ids).items() if times > 1 or not name]
        raise DataError(
            f"{reader} returns {len(ids)} ids, {len(set(ids))} of them different, as"
            f" {', '.join(map(repr, repeated[:3])) or 'none'}; expected texts, each once.\n"
            "Return another id for each row."
        )
    return ids


def _as_json(state: Any, reader: str) -> Any:
    """Return a state as JSON gives it back."""
    try:
        _refuse_other_keys(state)
        return json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{reader} returns a state that JSON cannot hold: {error}.\n"
            "Return numbers, texts, lists and dicts: array.tolist(), float(number)."
        ) from error


def _refuse_other_keys(value: Any) -> None:
    """Raise `TypeError` for a key that is no text: JSON would make one of it."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
    if isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            _refuse_other_keys(part)


def test_blocks(folder: Path, config: Config, ids: Sequence[str], state: State) -> Blocks:
    """Return `TestSet.blocks` of a custom reader.

    Where a block cannot be read, its rows are read one by one: only those that cannot be read get
    the mean prediction.
    """

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[Block]:
        end = len(ids) if last is None else last
        for start in range(first, end, size):
            chosen = ids[start : min(start + size, end)]
            try:
                yield start, _read(folder, config, chosen, state), {}
                continue
            except Exception as error:  # a competitor's reader may raise any
                if isinstance(error, PipelineError) and not isinstance(error, NotFinite):
                    raise
                if len(chosen) == 1:
                    zeros = np.zeros((1, *config.data.shape), config.data.dtype)
                    yield start, zeros, {start: _why(config, error)}
                    continue
            singly = list(blocks(1, start, start + len(chosen)))
            broken = {row: why for _, _, reasons in singly for row, why in reasons.items()}
            yield start, np.concatenate([inputs for _, inputs, _ in singly]), broken

    return blocks


def _why(config: Config, error: Exception) -> str:
    if isinstance(error, NotFinite):
        return str(error).splitlines()[0]
    line = place(error, custom_code.file(config))
    return f"{config.read_test} ended with {type(error).__name__}{line}: {str(error)[:200]}"


def check_test(folder: Path, config: Config, state: State, show: Callable[[str], None]) -> None:
    """Read a few rows of the test set twice, the second time in reverse, before a training.

    Args:
        show: takes a warning where a file of the test set is missing.

    Raises:
        ConfigError: if the reader breaks, with its file and line.
        DataError: if it returns something else than the config says, or rows of other ids.
    """
    sample = folder / config.data.sample_submission
    ids = tuple(csv_files.read(sample, DataError, "Correct it.").iloc[:CHECKED, 0])
    reader = custom_code.described(config, "read_test")
    with custom_code.telling(config, "read_test"):
        try:
            inputs = _read(folder, config, ids, state)
            in_reverse = _read(folder, config, ids[::-1], state)
        except FileNotFoundError as error:  # some test sets come in the scored rerun alone
            show(f"Warning: {reader} could not be tried: {error.filename} is missing")
            return
    if not np.array_equal(inputs, in_reverse[::-1]):
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
    if not isinstance(inputs, Mapping) and len(forms) == 1:
        inputs = {next(iter(forms)): inputs}
    if not isinstance(inputs, Mapping) or set(inputs) != set(forms):
        known = isinstance(inputs, Mapping)
        names = ", ".join(map(str, inputs)) if known else type(inputs).__name__
        raise DataError(
            f"{reader} returns the inputs {names}; expected {', '.join(forms)}, as data.own_inputs."
            "\nReturn these by name, or correct data.own_inputs."
        )
    return packed_inputs.pack(
        {
            name: _array(inputs[name], form, rows, f"{reader}: the input {name!r}", "own_inputs")
            for name, form in forms.items()
        }
    )


def _labels(labels: Any, config: Config, rows: int, reader: str) -> pd.DataFrame:
    names = list(config.data.labels)
    array, wanted = np.asarray(labels), (rows, len(names)) if len(names) > 1 else (rows,)
    if array.shape not in (wanted, (rows, len(names))):
        raise DataError(
            f"{reader} returns labels of the shape {array.shape}; expected {wanted}.\n"
            "Return what stands in each label column, one row per id."
        )
    if missing := int(pd.isna(array).sum()):
        raise DataError(
            f"{reader} returns {missing} labels that are missing (None or NaN); expected one per "
            "row.\nLeave such rows out, or fill them in."
        )
    if array.dtype.kind == "f" and (array == array.round()).all():
        array = array.astype(np.int64)  # pandas makes 1.0 of a 1 in a column with gaps
    return pd.DataFrame(array.reshape(rows, -1).astype(str), columns=names)


def _array(array: Any, form: Form, rows: int, what: str, field: str) -> np.ndarray:
    wanted = (rows, *sizes(form))
    if not isinstance(array, np.ndarray) or array.shape != wanted or array.dtype != form[0]:
        same = getattr(array, "dtype", None) == form[0]
        edit = "Reshape it" if same else f"Convert it: np.asarray(array, {form[0]!r})"
        kind = f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
        raise DataError(
            f"{what} is {kind.strip()}; expected {form[0]} {wanted}.\n"
            f"{edit}, or correct data.{field}."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array.reshape(rows, -1)).all(axis=1))[0])
        raise NotFinite(
            f"{what} is not finite in row {row} (from 0).\n"
            "Fill gaps in the reader, with the mean of the training set, for example."
        )
    return array

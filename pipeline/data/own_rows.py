"""Own rows: what a config's own readers return, checked, as the arrays that all else works with.

`read_training(folder, config)` returns `Rows`. `read_test(folder, config, ids, state)` returns the
inputs of the ids that it is given, in their order: a block of the sample submission's at a time.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.config import Config, own_code
from pipeline.config.data_layout import Data, Form, sizes
from pipeline.data import csv_files, image_files, packed_inputs
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError, PipelineError, place

CHECKED = 8  # ids whose inputs are read in two orders before a training

Inputs = np.ndarray | Mapping[str, np.ndarray]


class NotFinite(DataError):
    """An input is infinite or NaN; of a test set such a row alone gets the mean prediction."""


@dataclass(frozen=True)
class Rows:
    """What an own `read_training` returns.

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
    """The `state` of an own reader, as an artifact carries it."""

    value: Any

    def to_json(self) -> str:
        """Return it as a text, in which dicts keep their order: manifests sort keys."""
        return json.dumps(self.value)


def encoding_of(value: Any, data: Data) -> Encoding | State | None:
    """Return what `to_json` of a table's encoding, or of an own reader's state, wrote.

    Raises:
        DataError, KeyError, TypeError, ValueError: if it did not.
    """
    if data.kind == "own":
        return State(json.loads(value))
    return Encoding.from_json(value, data) if data.kind == "table" else None


def read_training(
    folder: Path, config: Config
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None, pd.DataFrame, State]:
    """Return ids, packed inputs, labels, columns and state, checked.

    The labels are those of target="own". The columns are texts, as in a table: groups, weights, and
    for any other target the labels.

    Raises:
        ConfigError: if the reader breaks, with its file and line.
        DataError: if it returns something else than the config says.
    """
    read: Any = own_code.function(config, "read_training")
    told = own_code.described(config, "read_training")
    with own_code.telling(config, "read_training"):
        rows = read(folder, config)
    if not isinstance(rows, Rows):
        raise DataError(
            f"{told} returns a {type(rows).__name__}; expected Rows.\n"
            "Return pipeline.data.own_rows.Rows(ids=…, inputs=…, labels=…)."
        )
    ids = tuple(rows.ids)
    if kinds := {type(name).__name__ for name in ids if not isinstance(name, str)}:
        raise DataError(
            f"{told} returns ids that are {', '.join(sorted(kinds))}; expected texts, as in the"
            ' sample submission.\nRead them as texts: pd.read_csv(…, dtype={"id": str}).'
        )
    wrong = [name for name, times in Counter(ids).items() if times > 1 or not name]
    if wrong or not ids:
        raise DataError(
            f"{told} returns {len(ids)} ids, {len(set(ids))} of them different, as"
            f" {', '.join(map(repr, wrong[:3])) or 'none'}; expected texts, each once.\n"
            "Return an id of its own for each row."
        )
    inputs = _checked(rows.inputs, config, len(ids), told)
    labels, columns = None, pd.DataFrame(index=range(len(ids)))
    if config.target == "own":
        what = f"{told}: labels"
        labels = _array(rows.labels, config.data.own_labels, len(ids), what, "own_labels")
    else:
        columns = _labels(rows.labels, config, len(ids), told)
    for field, given in (("group", rows.groups), ("weight", rows.weights)):
        name = getattr(config.data, f"{field}_column")
        shape = None if given is None else np.shape(given)
        if shape != (None if name is None else (len(ids),)) or (
            pd.isna(np.array(given)).any() and (given is not None)
        ):
            has = "none" if shape is None else f"the shape {shape}, or some are missing"
            raise DataError(
                f"{told} returns {field}s ({has}) for {len(ids)} ids, with"
                f" data.{field}_column={name!r}; expected one a row with a name there, and none"
                f" without.\nReturn Rows({field}s=…) and set data.{field}_column to any text, or"
                " leave out both."
            )
        if given is not None:
            columns[name] = [str(value) for value in given]
    try:
        _refuse_other_keys(rows.state)
        state = json.loads(json.dumps(rows.state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{told} returns a state that JSON cannot hold: {error}.\nReturn numbers, texts, lists"
            " and dicts: array.tolist(), float(number)."
        ) from error
    return ids, inputs, labels, columns, State(state)


def _refuse_other_keys(value: Any) -> None:
    """Raise `TypeError` for a key that is no text: JSON would make one of it."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        for part in parts:
            _refuse_other_keys(part)


def test_blocks(
    folder: Path, config: Config, ids: Sequence[str], state: State
) -> image_files.Blocks:
    """Return `TestSet.blocks` of an own reader.

    Where a block cannot be read, its rows are read one by one: only those that cannot be read get
    the mean prediction.
    """

    def blocks(size: int, first: int = 0, last: int | None = None) -> Iterator[image_files.Block]:
        end = len(ids) if last is None else last
        for start in range(first, end, size):
            some = ids[start : min(start + size, end)]
            try:
                yield start, _read(folder, config, some, state), {}
                continue
            except Exception as error:  # a competitor's reader may raise any
                if isinstance(error, PipelineError) and not isinstance(error, NotFinite):
                    raise
                if len(some) == 1:
                    yield start, _zeros(config), {start: _why(config, error)}
                    continue
            inputs = []
            broken: dict[int, str] = {}
            for number, _ in enumerate(some, start):
                for _, found, reasons in blocks(1, number, number + 1):
                    inputs.append(found)
                    broken |= reasons
            yield start, np.concatenate(inputs), broken

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
    ids = tuple(csv_files.read(sample, DataError, "Correct it.").iloc[:CHECKED, 0])
    told = own_code.described(config, "read_test")
    with own_code.telling(config, "read_test"):
        try:
            found = _read(folder, config, ids, state)
            reverse = _read(folder, config, ids[::-1], state)
        except FileNotFoundError as error:  # some test sets come in the scored rerun alone
            show(f"Warning: {told} could not be tried: {error.filename} is missing")
            return
    if not np.array_equal(found, reverse[::-1]):
        raise DataError(
            f"{told} returns rows of other ids: for {len(ids)} ids in reverse it does not return"
            " the same rows in reverse.\nReturn a row for each of the ids that it is given, in"
            " their order."
        )


def _read(folder: Path, config: Config, ids: Sequence[str], state: State) -> np.ndarray:
    read: Any = own_code.function(config, "read_test")
    found = read(folder, config, tuple(ids), state.value)
    return _checked(found, config, len(ids), own_code.described(config, "read_test"))


def _zeros(config: Config) -> np.ndarray:
    return np.zeros((1, *config.data.shape), config.data.dtype)


def _why(config: Config, error: Exception) -> str:
    if isinstance(error, NotFinite):
        return str(error).splitlines()[0]
    line = place(error, own_code.file(config))
    return f"{config.read_test} ended with {type(error).__name__}{line}: {str(error)[:200]}"


def _checked(inputs: Any, config: Config, rows: int, told: str) -> np.ndarray:
    """Return inputs packed, if they are what `data.own_inputs` says."""
    forms = config.data.own_inputs
    if not isinstance(inputs, Mapping) and len(forms) == 1:
        inputs = {next(iter(forms)): inputs}
    names = ", ".join(map(str, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
    if not isinstance(inputs, Mapping) or set(inputs) != set(forms):
        raise DataError(
            f"{told} returns the inputs {names}; expected"
            f" {', '.join(forms)}, as data.own_inputs.\nReturn these by name, or correct"
            " data.own_inputs."
        )
    return packed_inputs.pack(
        {
            name: _array(inputs[name], form, rows, f"{told}: the input {name!r}", "own_inputs")
            for name, form in forms.items()
        }
    )


def _labels(labels: Any, config: Config, rows: int, told: str) -> pd.DataFrame:
    names = list(config.data.labels)
    array = np.asarray(labels)
    if array.shape != (rows, len(names)) and (array.shape != (rows,) or len(names) > 1):
        wanted = (rows, len(names)) if len(names) > 1 else (rows,)
        raise DataError(
            f"{told} returns labels of the shape {array.shape}; expected {wanted}.\n"
            "Return what stands in each label column, a row an id."
        )
    if missing := int(pd.isna(array).sum()):
        raise DataError(
            f"{told} returns {missing} labels that are missing (None or NaN); expected one in each"
            " row.\nLeave such rows out, or fill them in."
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

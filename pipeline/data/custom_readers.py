"""Call custom readers, check what they return, and pack it into arrays.

`read_test(folder, config, ids, state)` is called for each block of the sample submission in turn.
If an example has several inputs, their bytes are packed into one array, which the model unpacks.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.config import Config, custom_code
from pipeline.config.data_layout import Form, bytes_of, sizes
from pipeline.data import csv_files, samples
from pipeline.errors import DataError, PipelineError, place

CHECKED = 8  # number of ids whose inputs are read twice, in different orders, before training

Inputs = np.ndarray | Mapping[str, np.ndarray]


class NotFinite(DataError):
    """An input is infinite or NaN. For a row of a test set, the mean prediction is used."""


@dataclass(frozen=True)
class Rows:
    """The return value of a custom `read_training` function.

    Attributes:
        ids: n unique strings, as in the sample submission.
        inputs: an array (n, …), or several arrays by name, as declared in `data.custom_inputs`.
        labels: for target="custom", an array as declared in `data.custom_labels`. Otherwise, one
            string or number per example or, for several label columns, an array (n, k).
        groups: n strings if `data.group_column` is set. Rows of a group are never split between
            training and validation.
        weights: n numbers, the weight of each row in the loss, if `data.weight_column` is set.
        state: anything from the training set that `read_test` requires, such as a vocabulary. It
            must consist of numbers, strings, lists and dicts, and is stored in the artifact.
    """

    ids: Sequence[str]
    inputs: Inputs
    labels: Any
    groups: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    state: Any = None


class Checked(NamedTuple):
    """Rows from a custom reader that passed all checks.

    Attributes:
        table: ids, groups, weights and, unless target="custom", labels, as strings.
        inputs: packed inputs.
        labels: array for target="custom", otherwise None.
        state: the reader's state as a JSON string, because manifests sort the keys of dicts.
    """

    table: pd.DataFrame
    inputs: np.ndarray
    labels: np.ndarray | None
    state: str


def read_training(folder: Path, config: Config) -> Checked:
    """Call the config's `read_training` function, and check its return value.

    Raises:
        ConfigError: if the reader fails. The message includes the file and line.
        DataError: if the return value does not match the config.
    """
    read: Any = custom_code.function(config, "read_training")
    reader = custom_code.described(config, "read_training")
    with custom_code.telling(config, "read_training"):
        rows = read(folder, config)
    if not isinstance(rows, Rows):
        raise DataError(
            f"{reader} returned a {type(rows).__name__}; expected Rows.\n"
            "Return pipeline.data.custom_readers.Rows(ids=…, inputs=…, labels=…)."
        )
    inputs = _packed(rows.inputs, config, len(rows.ids), reader)
    labels = None
    if config.target == "custom":
        form, what = config.data.custom_labels, f"{reader}: labels"
        labels = _checked_array(rows.labels, form, len(rows.ids), what)
    try:
        state = json.dumps(rows.state, allow_nan=False)
        # This fails for tuples, which become lists, and for numeric keys, which become strings.
        if json.loads(state) != rows.state:
            raise TypeError("it changes when converted to JSON and back")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{reader} returned a state that JSON cannot represent: {error}; expected numbers, "
            "strings, lists, and dicts with string keys.\nConvert it: array.tolist(), "
            "list(tuple), float(number), str(key)."
        ) from error
    return Checked(_table(rows, config, reader), inputs, labels, state)


def _table(rows: Rows, config: Config, reader: str) -> pd.DataFrame:
    data, columns = config.data, dict[str, Any]({config.data.id_column: list(rows.ids)})
    try:
        for field in ("group", "weight"):
            name, values = getattr(data, f"{field}_column"), getattr(rows, f"{field}s")
            if name is not None:
                columns[name] = values
            elif values is not None:
                raise ValueError(f"data.{field}_column is None")
        if config.target != "custom":
            labels = np.asarray(rows.labels).reshape(len(rows.ids), -1)
            columns |= dict(zip(data.labels, labels.T, strict=True))
        table = pd.DataFrame(columns)
    except ValueError as error:
        raise DataError(
            f"{reader} returned {len(rows.ids)} ids, labels of shape {np.shape(rows.labels)}, "
            f"groups and weights, which do not match each other or the config: {error}.\nExpected "
            f"{len(data.labels)} labels for each id, a group if data.group_column is set, and a "
            "weight if "
            "data.weight_column is set. Return these, or correct the fields in the config."
        ) from error
    edit = "Omit these rows, or fill in the values."
    for _, column in table.items():
        csv_files.check_column(Path(reader), column, column.isna(), "a value in every row", edit)
    # convert_dtypes restores 1 from 1.0, which pandas uses in columns with missing values.
    return table.convert_dtypes().astype(str).astype(object)


class TestInputs:
    """The inputs of a test set. They are read when indexed.

    Args:
        state: state of the training set, as JSON.

    Attributes:
        broken: {row: reason} for rows that could not be read. Their inputs are zeros.
    """

    __test__ = False  # not a pytest class, despite its name

    def __init__(self, folder: Path, config: Config, ids: Sequence[str], state: str) -> None:
        self._folder, self._config, self._ids, self._state = folder, config, ids, state
        self.shape, self.dtype = (len(ids), *config.data.shape), config.data.dtype
        self.broken = dict[int, str]()

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        config = self._config
        try:
            return _read(self._folder, config, [self._ids[row] for row in rows], self._state)
        except Exception as error:  # a custom reader can raise anything
            if isinstance(error, PipelineError) and not isinstance(error, NotFinite):
                raise
            if len(rows) == 1:
                line, kind = place(error, custom_code.file(config)), type(error).__name__
                reason = f"{config.read_test} raised {kind}{line}: {str(error)[:200]}"
                self.broken[int(rows[0])] = reason
                return np.zeros((1, *self.shape[1:]), self.dtype)
        return np.concatenate([self[rows[at : at + 1]] for at in range(len(rows))])

    def begin(self, _: Any, rows: np.ndarray, into: np.ndarray) -> Sequence[Any]:
        into[:] = self[rows]  # in this thread, because a reader may not be thread-safe
        return ()


def check_test(folder: Path, config: Config, state: str, show: Callable[[str], None]) -> None:
    """Read a few rows of the test set twice, in different orders, before training starts.

    Raises the same errors as `read_training`.
    """
    if not samples.is_there(folder, config.data):
        return
    ids = tuple(samples.ids(folder, config.data).table.iloc[:CHECKED, 0])
    reader = custom_code.described(config, "read_test")
    with custom_code.telling(config, "read_test"):
        try:
            inputs, reverse = (_read(folder, config, each, state) for each in (ids, ids[::-1]))
        except FileNotFoundError as error:  # some test sets are only available in the scored rerun
            show(f"Warning: {reader} could not be tested because {error.filename} is missing")
            return
    if not np.array_equal(inputs, reverse[::-1]):
        raise DataError(
            f"{reader} ignores the order of the ids: given {len(ids)} ids in reverse order, it did "
            "not return the rows in reverse order.\nReturn a row for each id, in the given order."
        )


def _read(folder: Path, config: Config, ids: Sequence[str], state: str) -> np.ndarray:
    read: Any = custom_code.function(config, "read_test")
    inputs = read(folder, config, tuple(ids), json.loads(state))
    return _packed(inputs, config, len(ids), custom_code.described(config, "read_test"))


def _packed(inputs: Any, config: Config, rows: int, reader: str) -> np.ndarray:
    forms = config.data.forms
    given = inputs if isinstance(inputs, Mapping) else dict.fromkeys(forms, inputs)
    arrays = {
        name: _checked_array(given.get(name), form, rows, f"{reader}: the input {name!r}")
        for name, form in forms.items()
    }
    return pack(arrays)


def _checked_array(array: Any, form: Form, rows: int, what: str) -> np.ndarray:
    wanted = (rows, *sizes(form))
    found = f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
    problem: type[DataError] = DataError
    if isinstance(array, np.ndarray) and array.shape == wanted and array.dtype == form[0]:
        gaps = np.argwhere(~np.isfinite(array))
        if not len(gaps):
            return np.ascontiguousarray(array)
        found, problem = f"{found}, not finite in row {gaps[0][0]} (counted from 0)", NotFinite
    raise problem(
        f"{what} is {found.strip()}; expected finite values, {form[0]} {wanted}.\n"
        f"Convert it with np.asarray(array, {form[0]!r}).reshape{wanted}. Fill in missing values, "
        "for example with the training mean, or correct custom_inputs or custom_labels in the "
        "config."
    )


def pack(inputs: Mapping[str, Any], concatenate: Any = np.concatenate) -> np.ndarray:
    """Return a single input unchanged, or pack several inputs as bytes, uint8 (n, bytes).

    Args:
        inputs: contiguous numpy arrays (n, …), or JAX arrays with concatenate=jnp.concatenate.

    >>> pack({"a": np.zeros((2, 3), np.uint8), "b": np.ones((2, 1), np.float32)}).shape
    (2, 7)
    """
    packed: np.ndarray = next(iter(inputs.values()))
    if len(inputs) > 1:
        flat = [each.reshape(len(each), -1).view(np.uint8) for each in inputs.values()]
        packed = concatenate(flat, axis=1)
    return packed


def unpacked(inputs: Any, forms: Mapping[str, Form]) -> dict[str, Any]:
    """Unpack a tensor (n, …) by name, using Keras operations. This is the inverse of `pack`."""
    import keras

    if len(forms) == 1:
        return dict.fromkeys(forms, inputs)
    tensors, start = {}, 0
    for name, form in forms.items():
        part, start = inputs[:, start : start + bytes_of(form)], start + bytes_of(form)
        if form[0] != "uint8":
            numbers = math.prod(sizes(form))
            part = keras.ops.reshape(part, (-1, numbers, bytes_of(form) // numbers))
            part = keras.ops.view(part, dtype=form[0])
        tensors[name] = keras.ops.reshape(part, (-1, *sizes(form)))
    return tensors

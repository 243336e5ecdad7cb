"""Convert a table's numbers and categories to model inputs, and arrays to images.

A row becomes float32 (features,). Each number, including those derived from dates, is standardized.
A missing number becomes 0, and an additional feature is set to 1. Each category becomes its index
in the training table, or 0 if it is unknown.

Numbers are first clipped. The range extends beyond the 1st and the 99th percentiles by at most the
distance between them. Within these limits, it ends at the smallest and the largest value. A typo
therefore barely affects the mean and standard deviation. A value that most rows share does not
affect the percentiles, so a column of mostly zeros keeps its range.
"""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.config.data_layout import Data
from pipeline.data import csv_files, dates
from pipeline.data.csv_files import MISSING, check_column
from pipeline.errors import DataError

ADVICE = "Set data.train_csv and data.test_csv in the config."
MOST = 1e150  # maximum absolute value of a number, so that its square is finite
# Maximum distance of an input from 0. A column with rare values, which would be many deviations
# away, is divided by a larger number.
FARTHEST = 10.0
TAIL = 0.01  # fraction of rows on each side that do not affect the range
WHOLE = re.compile(r"(-?\d+)\.0+")  # integers as pandas writes them if some are missing


def unique_ids(column: pd.Series, path: Path) -> tuple[str, ...]:
    check_column(path, column, column.duplicated(), "each id once", "Remove the repeated rows.")
    return tuple(column)


class Scale(NamedTuple):
    """The scaling of a numeric column, in the column's units.

    Attributes:
        mean: mean of the known values after clipping.
        unit: their standard deviation, or a larger value so that no input exceeds `FARTHEST`.
        low, high: range to which values are clipped.
    """

    mean: float
    unit: float
    low: float
    high: float


@dataclass(frozen=True)
class Encoding:
    """The encoding of a table, computed from the training table.

    Attributes:
        numbers: scale of each number in `Data.number_names`.
        categories: categories of each categorical column, starting with the most frequent.
        dates: format of each date column.
    """

    numbers: dict[str, Scale]
    categories: dict[str, tuple[str, ...]]
    dates: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        numbers = {name: scale._asdict() for name, scale in self.numbers.items()}
        return {"numbers": numbers, "categories": self.categories, "dates": self.dates}

    @staticmethod
    def from_json(value: Any, data: Data) -> "Encoding":
        """Restore the encoding from `to_json`.

        Columns are in the order of `data`, because a manifest does not preserve their order.

        Raises:
            KeyError: if a column is missing.
        """
        return Encoding(
            {name: Scale(**value["numbers"][name]) for name in data.number_names},
            {name: tuple(value["categories"][name]) for name in data.categorical_columns},
            {name: str(value["dates"][name]) for name in data.date_columns},
        )


def fit(table: pd.DataFrame, data: Data, path: Path) -> Encoding:
    """Return the encoding of a training table. Numeric columns can contain numbers or strings.

    Raises:
        DataError: if a numeric column contains no numbers, or contains text that is not a number.
    """
    numbers = {}
    for name in data.numeric_columns:
        values = _numbers(table[name], path)
        known = values[np.isfinite(values)]
        edit = "Correct the table, or remove the column from numeric_columns in the config."
        wrong = (np.abs(values) > MOST) | (not len(known))
        check_column(path, table[name], wrong, f"numbers up to {MOST:g}", edit)
        numbers[name] = scale_of(known)
    forms = {name: dates.form(table[name], day_first=data.day_first) for name in data.date_columns}
    derived = data.number_names[len(numbers) :]
    for name, values in zip(derived, dates.numbers(table, forms, path), strict=True):
        known = values[np.isfinite(values)]
        numbers[name] = scale_of(known if len(known) else np.zeros(1))  # if no row has both dates
    categories = {}
    for name in data.categorical_columns:
        counts = _texts(table[name]).value_counts().sort_index()
        common = counts.sort_values(ascending=False, kind="stable").index
        categories[name] = tuple(common[: data.most_categories - 1])
    return Encoding(numbers, categories, forms)


def scale_of(values: np.ndarray) -> Scale:
    """Return the scale of a column's known values, float64 (n,).

    There must be at least one value, and all of them must be finite.

    >>> typo = scale_of(np.array([*np.linspace(5, 6, 500), 318.0]))
    >>> typo.low, round(typo.high, 2)
    (5.0, 6.0)
    >>> mostly_zero = scale_of(np.array([0.0] * 5000 + [2.0, 3.0, 4.0]))
    >>> mostly_zero.low, mostly_zero.high
    (0.0, 4.0)
    """
    values = np.sort(values)
    least, most = float(values[0]), float(values[-1])
    if least == most:  # rounding could change the mean of equal numbers
        return Scale(least, 1.0, least, most)
    median = values[len(values) // 2]
    others, ends = values[values != median], [median]
    if 2 * len(others) >= len(values):
        others, ends = values, []
    # Rounded inwards. With fewer than 100 rows, this ignores the outermost row on each side.
    ends += [
        np.quantile(others, TAIL, method="higher"),
        np.quantile(others, 1 - TAIL, method="lower"),
    ]
    width = (max(ends) - min(ends)) or most - least  # the ends coincide for two or three rows
    low = float(values[values >= min(ends) - width][0])
    high = float(values[values <= max(ends) + width][-1])
    limited = values.clip(low, high)
    mean = float(limited.mean())
    unit = max(float(limited.std()), (high - mean) / FARTHEST, (mean - low) / FARTHEST)
    return Scale(mean, unit, low, high)


def encode(
    table: pd.DataFrame, encoding: Encoding, path: Path, *, lenient: bool = False
) -> np.ndarray:
    """Return the model's inputs: float32 (n, 2 x numbers + categorical columns).

    Args:
        lenient: whether to treat invalid numbers and dates as missing, as in the scored rerun,
            where the table cannot be corrected.

    Raises:
        DataError: if a numeric column contains text that is not a number, or a date column
            contains text that is not a date.
    """
    numbers, categories = encoding.numbers, encoding.categories
    inputs = np.empty((len(table), 2 * len(numbers) + len(categories)), np.float32)
    derived = dates.numbers(table, encoding.dates, path, lenient=lenient)
    plain = list(numbers)[: len(numbers) - len(derived)]
    read = [*(_numbers(table[name], path, lenient=lenient) for name in plain), *derived]
    for column, (values, scale) in enumerate(zip(read, numbers.values(), strict=True)):
        missing = ~np.isfinite(values)
        scaled = (values.clip(scale.low, scale.high) - scale.mean) / scale.unit
        inputs[:, column] = np.where(missing, 0.0, scaled)
        inputs[:, len(numbers) + column] = missing
    for column, (name, texts) in enumerate(categories.items(), start=2 * len(numbers)):
        places = pd.Index(texts, dtype=object).get_indexer(pd.Index(_texts(table[name])))
        inputs[:, column] = places + 1  # unknown categories have index -1
    return inputs


def pixels(path: Path, data: Data, others: Collection[str]) -> tuple[np.ndarray, dict[int, str]]:
    """Return the images in a table as uint8 (n, height, width, channels), and {broken row: reason}.

    If a row contains anything but integers from 0 to 255, its pixels become zeros. All columns
    except `others` contain pixels.

    Raises:
        DataError: if the number of pixel columns is not height x width x channels.
    """
    header = csv_files.header(path, DataError, ADVICE)
    names = [name for name in header if name not in others]
    if len(names) != math.prod(data.shape):
        raise DataError(
            f"{path} has {len(names)} pixel columns ({', '.join(names[:3])} …); expected "
            f"{' x '.join(map(str, data.shape))} = {math.prod(data.shape)}.\nCorrect the "
            "fields height, width and channels, or id_column and label_column, in the config."
        )
    table = csv_files.read(path, DataError, ADVICE, names, numbers=names)
    values: np.ndarray = table.apply(csv_files.as_numbers).to_numpy(np.float64, copy=True)
    wrong, broken = ~np.isin(values, np.arange(256)), dict[int, str]()
    for row in np.flatnonzero(wrong.any(axis=1)).tolist():
        place = int(wrong[row].argmax())
        text = str(table.iat[row, place])
        broken[row] = f"{text!r} in {names[place]!r}, but pixels must be integers from 0 to 255"
        values[row] = 0
    return values.astype(np.uint8).reshape(-1, *data.shape), broken


def array(path: Path, data: Data, rows: int | None) -> np.ndarray:
    """Load images, uint8 (n, height, width, channels), from a .npy or .npz file with one array.

    A .npy file is memory-mapped. If `rows` is not None, it is the expected number of images.

    Raises:
        DataError: if the file is not an array, or its shape or type is wrong.
    """
    wanted: tuple[int | None, ...] = (rows, *data.shape)
    try:
        images: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(images, np.ndarray):  # a .npz file
            with images:
                [images] = images.values()
        images = images[..., None] if images.ndim == 3 else images
        wanted = (len(images) if rows is None else rows, *data.shape)
        if images.dtype == np.uint8 and images.shape == wanted:
            return np.asanyarray(images)
        found = f"{images.dtype} {images.shape}"
    except Exception as error:  # numpy and zipfile raise many types for other formats
        found = f"no array: {type(error).__name__}: {str(error)[:200]}"
    raise DataError(
        f"{path} contains {found}; expected uint8 {wanted} in one array, with one image per row of "
        "the table.\nCorrect the fields train_array, test_array, height, width and channels in the "
        "config, or save the array as uint8 with values from 0 to 255. Other types require "
        "data.kind='custom' and two readers (docs/custom-code.md)."
    )


def _texts(column: pd.Series) -> pd.Series:
    clean = column.astype("category").map(lambda text: WHOLE.sub(r"\1", text.strip()))
    return clean.astype(object)


def _numbers(column: pd.Series, path: Path, *, lenient: bool = False) -> np.ndarray:
    """Convert numbers or strings to float64 (n,), with NaN for missing numbers."""
    values = csv_files.as_numbers(column).to_numpy(np.float64)
    finite = np.isfinite(values)
    if not lenient:
        others = column[~finite].dropna()
        wrong = ~others.astype(str).str.strip().isin(MISSING)
        edit = "Move it to categorical_columns in the config, or correct the table."
        check_column(path, others, wrong, "finite numbers", edit)
    return np.where(finite, values, np.nan)

"""A table's numbers and categories as a model reads them, and images in columns or in one array.

A row becomes float32 (features,): each number, and each that dates become (`pipeline.data.dates`),
in standard deviations from its mean, 0 where it is missing; a 1 for each missing number; and the
place of each category in the list that training has seen, 0 for any other. Numbers, list and forms
of dates travel in the artifact, so that inference cannot differ.

Numbers are limited first, to a range that a few wrong rows cannot move: the least and the greatest
value of the table that are no farther from its 1st and 99th percentile than these from each other.
So a typo becomes a value that the model has seen. A value that most rows have does not count for
the percentiles, so a column of mostly zeros keeps its range. One typo far out would otherwise be
the mean, the deviation and, behind a logarithm, the whole score.
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
MOST = 1e150  # of a number, so that its square is finite
FARTHEST = 10.0  # from 0, of an input. A value in one row of 10,000 is 100 deviations away, and
# would weigh as much as that; its column is divided by more.
TAIL = 0.01  # of the rows on each side, which do not decide the range
WHOLE = re.compile(r"(-?\d+)\.0+")  # pandas writes whole numbers so in a column with gaps


def unique_ids(column: pd.Series, path: Path) -> tuple[str, ...]:
    """Return the ids in a column of the table at `path`. Raises `DataError` for a repeated one."""
    check_column(path, column, column.duplicated(), "each id once", "Remove the repeated rows.")
    return tuple(column)


class Scale(NamedTuple):
    """How the numbers of a column become inputs; all are in the column's own units.

    Attributes:
        mean: of the known values, limited to the range.
        unit: their standard deviation, or more, so that no input is beyond `FARTHEST`.
        low, high: the range that values are limited to.
    """

    mean: float
    unit: float
    low: float
    high: float


@dataclass(frozen=True)
class Encoding:
    """What training has seen in its table.

    Attributes:
        numbers: the scale of each of `Data.number_names`.
        categories: the texts of each categorical column, the most frequent first.
        dates: the form of each date column.
    """

    numbers: dict[str, Scale]
    categories: dict[str, tuple[str, ...]]
    dates: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the encoding for `json.dumps`."""
        numbers = {name: scale._asdict() for name, scale in self.numbers.items()}
        return {"numbers": numbers, "categories": self.categories, "dates": self.dates}

    @staticmethod
    def from_json(value: Any, data: Data) -> "Encoding":
        """Return the encoding that `to_json` wrote, its columns in the order of `data`: JSON keeps
        none. Raises `KeyError` where it lacks one.
        """
        return Encoding(
            {name: Scale(**value["numbers"][name]) for name in data.number_names},
            {name: tuple(value["categories"][name]) for name in data.categorical_columns},
            {name: str(value["dates"][name]) for name in data.date_columns},
        )


def fit(table: pd.DataFrame, data: Data, path: Path) -> Encoding:
    """Return the encoding of a training table, whose numeric columns may be numbers or texts.

    Raises:
        DataError: if a numeric column has a text that is not a number, or no number at all.
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
        numbers[name] = scale_of(known if len(known) else np.zeros(1))  # two that never meet
    categories = {}
    for name in data.categorical_columns:
        counts = _texts(table[name]).value_counts().sort_index()
        common = counts.sort_values(ascending=False, kind="stable").index
        categories[name] = tuple(common[: data.most_categories - 1])
    return Encoding(numbers, categories, forms)


def scale_of(values: np.ndarray) -> Scale:
    """Return the scale of a column.

    Args:
        values: the known ones, finite, float64 (n,), 1 or more.

    >>> typo = scale_of(np.array([*np.linspace(5, 6, 500), 318.0]))
    >>> typo.low, round(typo.high, 2)
    (5.0, 6.0)
    >>> mostly_zero = scale_of(np.array([0.0] * 5000 + [2.0, 3.0, 4.0]))
    >>> mostly_zero.low, mostly_zero.high
    (0.0, 4.0)
    """
    values = np.sort(values)
    least, most = float(values[0]), float(values[-1])
    if least == most:  # the mean of equal numbers may be rounded
        return Scale(least, 1.0, least, most)
    median = values[len(values) // 2]
    others, ends = values[values != median], [median]
    if 2 * len(others) >= len(values):
        others, ends = values, []
    # Towards the middle: of fewer than 100 rows the outermost one on each side does not count.
    ends += [
        np.quantile(others, TAIL, method="higher"),
        np.quantile(others, 1 - TAIL, method="lower"),
    ]
    width = (max(ends) - min(ends)) or most - least  # of two or three rows there is no middle
    low = float(values[values >= min(ends) - width][0])
    high = float(values[values <= max(ends) + width][-1])
    limited = values.clip(low, high)
    mean = float(limited.mean())
    unit = max(float(limited.std()), (high - mean) / FARTHEST, (mean - low) / FARTHEST)
    return Scale(mean, unit, low, high)


def encode(
    table: pd.DataFrame, encoding: Encoding, path: Path, *, lenient: bool = False
) -> np.ndarray:
    """Return what a model reads: float32 (n, 2 x numbers + categorical columns).

    Args:
        lenient: take a text that is not a number for a missing one, as in the scored rerun, where
            nobody can fix it.

    Raises:
        DataError: if a numeric column has a text that is not a number, or a date column one that
            is no date of its form.
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
        inputs[:, column] = places + 1  # -1 is none of them
    return inputs


def pixels(path: Path, data: Data, others: Collection[str]) -> tuple[np.ndarray, dict[int, str]]:
    """Return the images in the columns of a table: uint8 (n, height, width, channels); and the
    reason for each row with other values than whole numbers from 0 to 255, which becomes zeros.

    Args:
        others: columns that are not pixels, if they exist.

    Raises:
        DataError: if there are not height x width x channels columns of pixels.
    """
    header = csv_files.header(path, DataError, ADVICE)
    names = [name for name in header if name not in others]
    if len(names) != math.prod(data.shape):
        raise DataError(
            f"{path} has {len(names)} columns of pixels ({', '.join(names[:3])} …); expected "
            f"{' x '.join(map(str, data.shape))} = {math.prod(data.shape)}.\nCorrect height, width "
            "and channels in the config, or id_column and label_column."
        )
    table = csv_files.read(path, DataError, ADVICE, names, numbers=names)
    values: np.ndarray = table.apply(csv_files.as_numbers).to_numpy(np.float64, copy=True)
    wrong, broken = ~np.isin(values, np.arange(256)), dict[int, str]()
    for row in np.flatnonzero(wrong.any(axis=1)).tolist():
        place = int(wrong[row].argmax())
        text = str(table.iat[row, place])
        broken[row] = f"{text!r} in {names[place]!r}, where pixels are whole numbers from 0 to 255"
        values[row] = 0
    return values.astype(np.uint8).reshape(-1, *data.shape), broken


def array(path: Path, data: Data, rows: int | None) -> np.ndarray:
    """Return the images in a .npy file, or in a .npz file that holds one array.

    Args:
        rows: how many images are expected; None: any number.

    Returns:
        uint8 (n, height, width, channels), a memory map of a .npy file.

    Raises:
        DataError: if the file is not an array, or not of these images.
    """
    wanted: tuple[int | None, ...] = (rows, *data.shape)
    try:
        images: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(images, np.ndarray):  # of a .npz file
            with images:
                [images] = images.values()
        images = images[..., None] if images.ndim == 3 else images
        wanted = (len(images) if rows is None else rows, *data.shape)
        if images.dtype == np.uint8 and images.shape == wanted:
            return np.asanyarray(images)
        found = f"{images.dtype} {images.shape}"
    except Exception as error:  # of a foreign file numpy and zipfile raise a dozen kinds
        found = f"no array: {type(error).__name__}: {str(error)[:200]}"
    raise DataError(
        f"{path} holds {found}; expected uint8 {wanted} in one array, an image per row of the "
        "table.\nCorrect train_array, test_array, height, width and channels in the config, or "
        "save it as uint8, from 0 to 255. Other numbers need data.kind='custom' and two readers "
        "(docs/custom-code.md)."
    )


def _texts(column: pd.Series) -> pd.Series:
    """Return categories as they are compared: no blanks around them, and "3" for "3.0"."""
    clean = column.astype("category").map(lambda text: WHOLE.sub(r"\1", text.strip()))
    return clean.astype(object)


def _numbers(column: pd.Series, path: Path, *, lenient: bool = False) -> np.ndarray:
    """Return float64 (n,), NaN where the number is missing.

    Args:
        column: of numbers or of texts.
        lenient: take a text that is no number for a missing one.
    """
    values = csv_files.as_numbers(column).to_numpy(np.float64)
    finite = np.isfinite(values)
    if not lenient:
        others = column[~finite].dropna()
        wrong = ~others.astype(str).str.strip().isin(MISSING)
        edit = "Move it to categorical_columns in the config, or correct the table."
        check_column(path, others, wrong, "finite numbers", edit)
    return np.where(finite, values, np.nan)

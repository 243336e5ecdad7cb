"""A table's numbers and categories as a model reads them, and images in columns or in one array.

A row becomes float32 (features,): each number in standard deviations from its mean, 0 where it is
missing; a 1 for each missing number; and the place of each category in the list that training has
seen, 0 for any other. Numbers and list travel in the artifact, so that inference cannot differ.

Numbers are limited first, to a range that a few wrong rows cannot move: the least and the greatest
value of the table that are no farther from its 1st and 99th percentile than these from each other.
So a typo becomes a value that the model has seen. A value that most rows have does not count for
the percentiles, so a column of mostly zeros keeps its range. One typo far out would otherwise be
the mean, the deviation and, behind a logarithm, the whole score.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from pipeline.config.data_layout import Data
from pipeline.data import csv_files
from pipeline.data.csv_files import MISSING
from pipeline.errors import ConfigError, DataError, reading

MOST = 1e150  # of a number, so that its square is finite
FARTHEST = 10.0  # from 0, of an input. A value in one row of 10,000 is 100 deviations away, and
# would weigh as much as that; its column is divided by more.
TAIL = 0.01  # of the rows on each side, which do not decide the range
WHOLE = re.compile(r"(-?\d+)\.0+")  # pandas writes whole numbers so in a column with gaps


def read_table(
    path: Path,
    names: Sequence[str],
    advice: str,
    *,
    optional: Collection[str] = (),
    data: Data | None = None,
) -> pd.DataFrame:
    """Return columns of a table as texts, as written ("001" stays "001", "NA" stays "NA").

    Args:
        names: the columns that must exist.
        advice: the edit that fixes a wrong path.
        optional: columns that are returned if they exist.
        data: whose numeric columns are numbers, as far as their texts are, and whose categorical
            ones are pandas' categoricals (`pipeline.data.csv_files.read`); None: all are texts.

    Raises:
        ConfigError: if the table lacks one of `names`.
        DataError: if the file is missing, cannot be parsed or has no rows.
    """
    with reading(path, DataError, advice):
        if not path.is_file():
            folder = path.parent
            siblings = sorted(p.name for p in folder.iterdir())[:10] if folder.is_dir() else []
            raise DataError(
                f"{path} is missing; its folder holds: {', '.join(siblings) or 'nothing'}.\n"
                f"Expected a table with the columns {', '.join(names)}. {advice}"
            )
    numbers = data.numeric_columns if data else ()
    categories = data.categorical_columns if data else ()
    table = csv_files.read(
        path, DataError, advice, {*names, *optional}, numbers=numbers, categories=categories
    )
    if missing := [name for name in names if name not in table.columns]:
        header = ", ".join(csv_files.header(path, DataError, advice)[:20])
        raise ConfigError(
            f"{path} has the columns {header[:1000]}; expected also {', '.join(missing)[:1000]}.\n"
            "Set id_column, label_column and the other columns in the config to the table's own."
        )
    if not len(table):
        raise DataError(
            f"{path} has a header and no rows; expected one row per example.\n"
            f"Complete the download. {advice}"
        )
    return table


def unique_ids(column: pd.Series, path: Path) -> tuple[str, ...]:
    """Return the ids in a column of the table at `path`. Raises `DataError` for a repeated one."""
    repeated = column[column.duplicated()]
    if len(repeated):
        raise DataError(
            f"{path} repeats {len(repeated)} ids, for example"
            f" {', '.join(repr(name[:80]) for name in repeated[:5])}; expected each once.\n"
            "Remove the repeated rows."
        )
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
        numbers: the scale of each numeric column.
        categories: the texts of each categorical column, the most frequent first.
    """

    numbers: dict[str, Scale]
    categories: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the encoding for `json.dumps`."""
        return {
            "numbers": {name: scale._asdict() for name, scale in self.numbers.items()},
            "categories": {name: list(texts) for name, texts in self.categories.items()},
        }

    @staticmethod
    def from_json(value: Any, data: Data) -> "Encoding":
        """Return the encoding that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: if it did not, or for other columns than in `data`.
        """
        # In the order of the config: JSON keeps none.
        numbers = {
            name: Scale(*(float(value["numbers"][name][part]) for part in Scale._fields))
            for name in data.numeric_columns
        }
        texts = {name: value["categories"][name] for name in data.categorical_columns}
        if len(numbers) != len(value["numbers"]) or len(texts) != len(value["categories"]):
            raise ValueError(f"no encoding of these columns: {value!r}"[:200])
        return Encoding(numbers, {name: tuple(map(str, each)) for name, each in texts.items()})


def fit(table: pd.DataFrame, data: Data, path: Path) -> Encoding:
    """Return the encoding of a training table, as `read_table` returns it.

    Raises:
        DataError: if a numeric column has a text that is not a number, or no number at all.
    """
    numbers = {}
    for name in data.numeric_columns:
        values = _numbers(table[name], path)
        known = values[np.isfinite(values)]
        if not len(known):
            raise DataError(
                f"{path} has no number in {name!r}; expected some.\n"
                "Remove the column from numeric_columns in the config."
            )
        if np.abs(known).max() > MOST:
            raise DataError(
                f"{path} has {known[np.abs(known).argmax()]:g} in {name!r}; expected numbers up to "
                f"{MOST:g}, whose squares are finite.\n"
                "Correct the table, or remove the column from numeric_columns in the config."
            )
        numbers[name] = scale_of(known)
    categories = {}
    for name in data.categorical_columns:
        counts = _texts(table[name]).value_counts()
        order = sorted((-count, str(text)) for text, count in counts.items() if count)
        categories[name] = tuple(text for _, text in order[: data.most_categories - 1])
    return Encoding(numbers, categories)


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
    others, ends = values, list[float]()
    least, most = float(values[0]), float(values[-1])
    if least == most:  # the mean of equal numbers may be rounded
        return Scale(least, 1.0, least, most)
    common = values[len(values) // 2]
    first, end = np.searchsorted(values, common), np.searchsorted(values, common, "right")
    if (end - first) * 2 > len(values):
        others, ends = np.delete(values, slice(first, end)), [common]
    # Towards the middle: of fewer than 100 rows the outermost one on each side does not count.
    last = len(others) - 1
    ends += [others[math.ceil(TAIL * last)], others[math.floor((1 - TAIL) * last)]]
    width = (max(ends) - min(ends)) or most - least  # of two or three rows there is no middle
    low = float(values[np.searchsorted(values, min(ends) - width)])
    high = float(values[np.searchsorted(values, max(ends) + width, "right") - 1])
    limited = values.clip(low, high)
    mean = float(limited.mean())
    unit = max(float(limited.std()), (high - mean) / FARTHEST, (mean - low) / FARTHEST)
    return Scale(mean, unit, low, high)


def encode(
    table: pd.DataFrame, encoding: Encoding, path: Path, *, lenient: bool = False
) -> np.ndarray:
    """Return what a model reads: float32 (n, 2 x numeric columns + categorical columns).

    Args:
        lenient: take a text that is not a number for a missing one, as in the scored rerun, where
            nobody can fix it.

    Raises:
        DataError: if a numeric column has a text that is not a number.
    """
    numbers, categories = encoding.numbers, encoding.categories
    inputs = np.empty((len(table), 2 * len(numbers) + len(categories)), np.float32)
    for column, (name, scale) in enumerate(numbers.items()):
        values = _numbers(table[name], path, lenient=lenient)
        missing = ~np.isfinite(values)
        scaled = (values.clip(scale.low, scale.high) - scale.mean) / scale.unit
        inputs[:, column] = np.where(missing, 0.0, scaled)
        inputs[:, len(numbers) + column] = missing
    for column, (name, texts) in enumerate(categories.items(), start=2 * len(numbers)):
        places = pd.Index(texts, dtype=object).get_indexer(pd.Index(_texts(table[name])))
        inputs[:, column] = places + 1  # -1 is none of them
    return inputs


def deviations(table: pd.DataFrame, encoding: Encoding, path: Path) -> dict[str, np.ndarray]:
    """Return how far each number is from its column's mean, in units of its scale, without limits:
    float64 (n,) for each numeric column, not a number where it is missing.

    Raises:
        DataError: as `encode` does.
    """
    return {
        name: (_numbers(table[name], path) - scale.mean) / scale.unit
        for name, scale in encoding.numbers.items()
    }


def pixels(
    path: Path,
    data: Data,
    others: tuple[str, ...],
    advice: str,
    broken: dict[int, str] | None = None,
) -> np.ndarray:
    """Return the images in the columns of a table: uint8 (n, height, width, channels).

    Args:
        others: columns that are not pixels, if they exist.
        advice: the edit that fixes a wrong table.
        broken: gets the reason for each row with other values, which becomes zeros; None: such a
            row is refused.

    Raises:
        DataError: if there are not height x width x channels columns of pixels, or they hold
            anything but whole numbers from 0 to 255.
    """
    size = data.height * data.width * data.channels
    header = csv_files.header(path, DataError, advice)
    names = [name for name in header if name not in others]
    if len(names) != size:
        raise DataError(
            f"{path} has {len(names)} columns of pixels ({', '.join(names[:3])} …); expected "
            f"{data.height} x {data.width} x {data.channels} = {size}.\nCorrect height, width and "
            "channels in the config, or id_column and label_column."
        )
    table = csv_files.read(path, DataError, advice, names, numbers=names)
    values: np.ndarray = table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    wrong = ~((values >= 0) & (values <= 255) & (values == np.floor(values)))
    if broken is None and wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{path} has {int(wrong.sum())} pixels that are not whole numbers from 0 to 255, the "
            f"first in row {row + 1}, {names[column]!r}: {table.iat[row, column]!s}.\n"
            "Correct the table, or name that column in the config if it is not a pixel."
        )
    if broken is not None:
        for row in np.flatnonzero(wrong.any(axis=1)).tolist():
            broken[row] = f"{int(wrong[row].sum())} of its pixels are no levels"
    levels = np.where(wrong.any(axis=1, keepdims=True), 0, values).astype(np.uint8)
    return levels.reshape(-1, data.height, data.width, data.channels)


def array(path: Path, data: Data, rows: int, advice: str) -> np.ndarray:
    """Return the images in a .npy file, or in a .npz file that holds one array.

    Args:
        rows: how many images are expected.
        advice: the edit that fixes a wrong path.

    Returns:
        uint8 (n, height, width, channels), a memory map of a .npy file.

    Raises:
        DataError: if the file is not an array, or not of these images.
    """
    with reading(path, DataError, advice):
        try:
            images: Any = np.load(path, mmap_mode="r", allow_pickle=False)
            if not isinstance(images, np.ndarray):  # of a .npz file
                names = list(images)
                if len(names) != 1:
                    raise ValueError(
                        f"it holds {len(names)} arrays ({', '.join(names[:5])}), not 1"
                    )
                images = images[names[0]]
            images = images[..., None] if images.ndim == 3 else images
        except FileNotFoundError:
            raise
        except Exception as error:  # of a foreign file numpy and zipfile raise a dozen kinds
            raise DataError(
                f"{path} is no array: {type(error).__name__}: {str(error)[:300]}.\n{advice}"
            ) from error
    shape = (rows, data.height, data.width, data.channels)
    if images.dtype != np.uint8 or images.shape != shape:
        edit = "Correct height, width and channels in the config, or convert the array."
        if images.shape == shape:
            edit = (
                "Save it as uint8, from 0 to 255, since its size is right. For numbers that are no"
                " pixels set data.kind='own', data.own_inputs={'image': ('float32',"
                f" {str(shape[1:])[1:]}}} and write the two readers (docs/own-code.md)."
            )
        raise DataError(
            f"{path} holds {images.dtype} {images.shape}; expected uint8 {shape}, one image per "
            f"row of the table.\n{edit}"
        )
    return np.asanyarray(images)


def _texts(texts: pd.Series) -> pd.Series:
    """Return categories as they are compared: no blanks around them, and "3" for "3.0"."""
    return texts.map(lambda text: WHOLE.sub(r"\1", text.strip()))


def _numbers(texts: pd.Series, path: Path, *, lenient: bool = False) -> np.ndarray:
    """Return float64 (n,), not a number where the text means a missing one.

    Args:
        texts: or the numbers themselves.
    """
    if is_numeric_dtype(texts):
        return texts.to_numpy(np.float64)
    texts = texts.str.strip()
    missing = texts.isin(MISSING)
    values = pd.to_numeric(texts.where(~missing), errors="coerce").to_numpy(np.float64, copy=True)
    infinite = ~np.isfinite(values)
    values[infinite] = np.nan
    wrong = texts[infinite & ~missing.to_numpy()]
    if len(wrong) and not lenient:
        raise DataError(
            f"{path} has {len(wrong)} texts in {texts.name!r} that are not finite numbers, for "
            f"example {', '.join(map(repr, wrong[:3]))}.\n"
            "Move it to categorical_columns in the config, or correct the table."
        )
    return values

"""Columns: a table's numbers and categories → what a model reads, and pixels that are columns →
images.

A table becomes float32 (n, features): each number in standard deviations from its mean, 0 where it
is missing; for each a 1 where it is missing; and of each category the place in the list of those
that training has seen, 0 for any other. The list and the numbers travel in the artifact, so that
inference cannot differ.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.config.data_layout import Data
from pipeline.errors import DataError, reading

MISSING = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "?", "-"}
ROWS = 2048  # that are numbers before they are pixels, which take a quarter of the memory
MOST = 1e150
FARTHEST = 1e4  # standard deviations: farther away there is nothing that a model has learned, and no float16
WHOLE = re.compile(r"(-?\d+)\.0+")  # how pandas writes a whole number in a column with gaps


@dataclass(frozen=True)
class Encoding:
    """What was seen in the training table.

    Attributes:
        numbers: mean and standard deviation of each numeric column, of the values that are there.
        categories: of each categorical column the texts, the most frequent first.
    """

    numbers: dict[str, tuple[float, float]]
    categories: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        return {
            "numbers": {k: list(v) for k, v in self.numbers.items()},
            "categories": {k: list(v) for k, v in self.categories.items()},
        }

    @staticmethod
    def from_json(value: Any, data: Data) -> "Encoding":
        """Return what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: if it did not, or for other columns than those of
                `data`.
        """
        given, texts = dict(value["numbers"]), dict(value["categories"])
        if set(given) != set(data.numeric_columns) or set(texts) != set(data.categorical_columns):
            raise ValueError(f"no encoding of these columns: {json.dumps(value)[:200]}")
        # In the order of the config: JSON keeps none.
        numbers = {
            name: (float(given[name][0]), float(given[name][1])) for name in data.numeric_columns
        }
        categories = {name: tuple(map(str, texts[name])) for name in data.categorical_columns}
        good = all(np.isfinite(pair).all() and pair[1] > 0 for pair in numbers.values())
        if not good or any(
            not len(set(own)) == len(own) < data.most_categories for own in categories.values()
        ):
            raise ValueError(f"no encoding of a table: {json.dumps(value)[:200]}")
        return Encoding(numbers, categories)


def fit(table: pd.DataFrame, data: Data, path: Path) -> Encoding:
    """Return the encoding of a training table of texts.

    Raises:
        DataError: if a numeric column has a text that is no number, or no number at all.
    """
    numbers = {}
    for name in data.numeric_columns:
        values = _numbers(table[name], path)
        there = values[np.isfinite(values)]
        if not len(there):
            raise DataError(
                f"{path} has no number in {name!r}; expected some.\nLeave it out of numeric_columns."
            )
        if (
            np.abs(there).max() > MOST
        ):  # its deviation is infinite, and the artifact could not be read
            raise DataError(
                f"{path} has {there[np.abs(there).argmax()]:g} in {name!r}; expected numbers up to {MOST:g}, whose squares are finite.\n"
                "Correct the table, or leave the column out of numeric_columns in the config."
            )
        # Of equal numbers the mean may be off by a rounding, and then their deviation is tiny, but
        # not 0.
        same = there.min() == there.max()
        numbers[name] = (
            (float(there[0]), 1.0) if same else (float(there.mean()), float(there.std()))
        )
    categories = {}
    for name in data.categorical_columns:
        counted = _texts(table[name]).value_counts()
        order = sorted(counted.index, key=lambda text: (-counted[text], text))
        categories[name] = tuple(order[: data.most_categories - 1])
    return Encoding(numbers, categories)


def encode(
    table: pd.DataFrame, encoding: Encoding, path: Path, *, lenient: bool = False
) -> np.ndarray:
    """Return what a model reads: float32 (n, 2 x numeric columns + categorical columns).

    Args:
        lenient: take a text that is no number for a missing one, as in the scored rerun, where
            nobody is there to correct it.

    Raises:
        DataError: if a numeric column has a text that is no number.
    """
    parts, missing = [], []
    for name, (mean, spread) in encoding.numbers.items():
        values = _numbers(table[name], path, lenient=lenient)
        missing.append(~np.isfinite(values))
        parts.append(
            np.where(missing[-1], 0.0, ((values - mean) / spread).clip(-FARTHEST, FARTHEST))
        )
    for name, texts in encoding.categories.items():
        place = {text: index for index, text in enumerate(texts, start=1)}
        missing.append(np.array([place.get(text, 0) for text in _texts(table[name])], float))
    return np.asarray(np.stack(parts + missing, axis=1), np.float32)


def pixels(
    path: Path,
    data: Data,
    others: tuple[str, ...],
    advice: str,
    broken: dict[int, str] | None = None,
) -> np.ndarray:
    """Return the images in the columns of a table: uint8 (n, height, width, channels).

    Args:
        others: columns that are no pixels, those that are there.
        broken: gets why, by its number, for each row with other values, which becomes zeros; None:
            such a row is refused.

    Raises:
        DataError: if there are not height x width x channels other columns, or they hold anything
            but whole numbers from 0 to 255.
    """
    size = data.height * data.width * data.channels
    with reading(path, DataError, advice):
        header = pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns
        names = [name for name in header if name not in others]
        if len(names) != size:
            raise DataError(
                f"{path} has {len(names)} columns of pixels ({', '.join(names[:3])} …); expected {data.height} x {data.width} x "
                f"{data.channels} = {size}.\nCorrect height, width and channels in the config, or id_column and label_column."
            )

        def levels(kind: type) -> list[np.ndarray]:
            # Blank lines mean nothing to pandas, and nothing to `pipeline.storage.csv_text`, which
            # has counted the fields of each row.
            parts = pd.read_csv(
                path, usecols=names, dtype=kind, encoding="utf-8-sig", engine="c", chunksize=ROWS
            )
            return [
                _levels(_table(part), number * ROWS, names, path, broken)
                for number, part in enumerate(parts)
            ]

        try:
            found = levels(np.float32)
        except ValueError as error:
            if broken is None:
                raise DataError(
                    f"{path} has pixels that are no numbers: {error}.\n{advice}"
                ) from error
            found = levels(str)  # slower, and tells which they are
    return np.concatenate(found).reshape(-1, data.height, data.width, data.channels)


def _table(part: pd.DataFrame) -> np.ndarray:
    """Return float32 (n, k), not a number for a text that is none."""
    if all(kind.kind == "f" for kind in part.dtypes):
        return part.to_numpy()
    return np.stack(
        [pd.to_numeric(part[name], errors="coerce").to_numpy(np.float32) for name in part], axis=1
    )


def _levels(
    values: np.ndarray, first: int, names: list[str], path: Path, broken: dict[int, str] | None
) -> np.ndarray:
    wrong = ~((values >= 0) & (values <= 255) & (values == np.floor(values)))
    if wrong.any() and broken is not None:
        rows = wrong.any(axis=1)
        broken.update(
            {
                first + int(row): f"{int(wrong[row].sum())} of its pixels are no levels"
                for row in np.flatnonzero(rows)
            }
        )
        values = np.where(rows[:, None], 0, values)
    elif wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{path} has {int(wrong.sum())} pixels that are no whole numbers from 0 to 255, the first in row {first + row + 1}, {names[column]!r}: "
            f"{values[row, column]}.\nCorrect the table, or name that column in the config if it is none of the pixels."
        )
    return values.astype(np.uint8)


def array(path: Path, data: Data, rows: int, advice: str) -> np.ndarray:
    """Return the images in a .npy file, or in a .npz file that holds one array: uint8 (n, height,
    width, channels), on the disk if .npy.

    Raises:
        DataError: if it is no such file, or holds another number of images than `rows`, or others.
    """
    with reading(path, DataError, advice):
        try:
            found: Any = np.load(
                path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False
            )
            if not isinstance(found, np.ndarray):
                names = list(found)
                if len(names) != 1:
                    raise ValueError(
                        f"it holds {len(names)} arrays ({', '.join(names[:5])}); expected one"
                    )
                found = found[names[0]]
                if not isinstance(
                    found, np.ndarray
                ):  # numpy gives the bytes of a member that is none
                    raise ValueError(f"{names[0]!r} in it is no array")
        except FileNotFoundError:
            raise
        except Exception as error:  # what is not ours makes numpy and zipfile raise a dozen kinds
            raise DataError(
                f"{path} is no array: {type(error).__name__}: {str(error)[:300]}.\n{advice}"
            ) from error
    shape = (rows, data.height, data.width, data.channels)
    if found.ndim == 3:
        found = found[..., None]
    if found.dtype != np.uint8 or found.shape != shape:
        raise DataError(
            f"{path} holds {found.dtype} {found.shape}; expected uint8 {shape}, an image for each row of the table.\n"
            "Correct height, width and channels in the config, or convert the array."
        )
    return np.asarray(found) if not isinstance(found, np.memmap) else found


def _texts(texts: pd.Series) -> pd.Series:
    """Return categories as they are compared: without blanks around them, and a whole number
    without the ".0" that gaps in its column add.
    """
    return texts.str.strip().str.replace(WHOLE, r"\1", regex=True)


def _numbers(texts: pd.Series, path: Path, *, lenient: bool = False) -> np.ndarray:
    """Return float64 (n,), not a number where the text says that it is missing."""
    texts = texts.str.strip()
    values = pd.to_numeric(texts.where(~texts.isin(MISSING)), errors="coerce").to_numpy(
        np.float64, copy=True
    )
    wrong = ~np.isfinite(values) & ~texts.isin(MISSING).to_numpy()
    values[~np.isfinite(values)] = np.nan
    if wrong.any() and not lenient:
        shown = ", ".join(map(repr, texts[wrong][:3]))
        raise DataError(
            f"{path} has {int(wrong.sum())} texts in {texts.name!r} that are no finite numbers, for example {shown}.\n"
            "Move it to categorical_columns in the config, or correct the table."
        )
    return values

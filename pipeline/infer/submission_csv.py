"""Predictions by id become submission.csv, with the ids, order, columns and types of the sample.

Only pandas is used, so that the Kaggle side's tasks can check a file before they spend a
submission, without starting Keras.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from formats import atomic_file
from pipeline.data import csv_files
from pipeline.errors import DataError, PipelineError, SubmissionError, reading

# int() and float() accept more than a CSV reader does: 1_0, other scripts' digits, blanks.
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MANY = 20  # rows that chance cannot make all equal
# The texts that pandas (2.2 to 3.1) and Kaggle's metrics read as missing values, and "" too.
MISSING = {
    "",
    *[
        "NA",
        "N/A",
        "n/a",
        "#NA",
        "#N/A",
        "<NA>",
        "NULL",
        "null",
        "None",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
        "1.#IND",
        "-1.#IND",
    ],
}
MISSING |= {"1.#QNAN", "-1.#QNAN", "#N/A N/A"}


def write(
    path: Path,
    sample: Path,
    ids: Sequence[str],
    labels: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    numbers: bool = False,
) -> int:
    """Write the submission in one rename and return its number of rows.

    Nothing is written if Kaggle would refuse it.

    Args:
        sample: the competition's sample_submission.csv, with ids in its first column.
        ids: of the predictions, in any order.
        labels: the prediction of each id, as text; of several columns by their names.
        numbers: whether any finite number is accepted where the sample's values are whole.

    Raises:
        SubmissionError: if the ids are not the sample's, each once, or the types differ; with all
            problems at once.
    """
    wanted = _read_sample(sample)
    key, *others = wanted.columns
    columns = dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(others[:1], labels)
    if others != [*columns]:
        raise SubmissionError(
            f"{sample} has the columns {', '.join(wanted.columns)}; expected an id and "
            f"{', '.join(columns) or 'a label'}.\nCorrect label_column or target in the config, or "
            "write this competition's format in pipeline/infer/prediction_format.py."
        )
    given = pd.DataFrame(
        {key: list(ids), **{name: list(texts) for name, texts in columns.items()}}, dtype=str
    )
    order = {name: row for row, name in enumerate(wanted[key])}
    given = given.sort_values(
        key, key=lambda column: column.map(order), kind="stable", ignore_index=True
    )
    _refuse(_problems(given, wanted, numbers), path, sample)
    # Python does not quote a carriage return, and every reader ends the line there.
    returns = any("\r" in text for name in given for text in (name, *given[name]))
    text = given.to_csv(
        index=False, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    )
    atomic_file.write(path, text.encode())
    return len(given)


def check(
    path: Path,
    sample: Path,
    *,
    numbers: bool = False,
    within: tuple[float, float] | None = None,
    constant: bool = False,
) -> int:
    """Return the number of rows of a submission that Kaggle would score.

    Args:
        numbers: as for `write`.
        within: least and largest number, as 0 and 1 for probabilities; None: any.
        constant: whether many rows may all have the same prediction.

    Raises:
        SubmissionError: if columns, ids, order or types differ from the sample's, a value is empty,
            not finite or out of range, or all predictions are equal; with all problems at once.
    """
    given, wanted = _read(path, SubmissionError), _read_sample(sample)
    problems = _problems(given, wanted, numbers)
    if list(given.columns) == list(wanted.columns):
        problems += _out_of_range(given, *within) if within else []
        rows = given.iloc[:, 1:].drop_duplicates()
        if len(given) >= MANY and len(rows) == 1 and not constant:
            shown = ", ".join(f"{name} {text!r}" for name, text in list(rows.iloc[0].items())[:5])
            problems.append(
                f"all {len(given)} rows have the same prediction, {shown}; if that is intended, "
                "submit with --constant"
            )
    _refuse(problems, path, sample)
    return len(given)


def unsubmittable(sample: Path, column: str, texts: Sequence[str]) -> tuple[list[str], str]:
    """Return the texts that a column of a submission may not hold, and the kind that it holds."""
    values = _read_sample(sample)[column]
    kind = _kind(values)
    return _unfit(texts, values, kind), kind


def _out_of_range(given: pd.DataFrame, low: float, high: float) -> list[str]:
    """Return the problems of finite numbers that are out of range."""
    problems = []
    for name in given.columns[1:]:
        numbers = [text for text in given[name] if _fits(text, "finite numbers")]
        bad = [text for text in numbers if not low <= float(text) <= high]
        if bad:
            problems.append(
                f"{len(bad)} values of {name!r} are not from {low:g} to {high:g}, for example "
                f"{_some(bad)}"
            )
    return problems


def _some(texts: Sequence[str], number: int = 3) -> str:
    return ", ".join(repr(text[:80]) for text in texts[:number])


def _read(path: Path, kind: type[PipelineError]) -> pd.DataFrame:
    with reading(path, kind, "Correct the path."):
        if not path.is_file():
            raise DataError(
                f"{path} is missing; expected a CSV.\n"
                "Correct the path, or run the step that writes it."
            )
    return csv_files.read(path, kind, "Write it again.")


def _read_sample(path: Path) -> pd.DataFrame:
    table = _read(path, DataError)
    if not len(table):
        raise DataError(
            f"{path} has a header and no rows; expected one row for each id to predict.\n"
            "Complete the download."
        )
    return table


def _problems(given: pd.DataFrame, wanted: pd.DataFrame, numbers: bool) -> list[str]:
    if list(given.columns) != list(wanted.columns):
        return [
            f"the columns are {', '.join(map(str, given.columns))}; expected "
            f"{', '.join(wanted.columns)}"
        ]
    have, want = given.iloc[:, 0], wanted.iloc[:, 0]
    problems = [
        f"{len(ids)} ids are {what}, for example {_some(sorted(ids), 5)}"
        for what, ids in (
            ("missing", set(want) - set(have)),
            ("unknown", set(have) - set(want)),
            ("repeated", set(have[have.duplicated()])),
        )
        if ids
    ]
    if not problems and list(have) != list(want):
        problems.append("the ids are in another order than the sample's")
    for column in wanted.columns[1:]:
        kind = _kind(wanted[column])
        kind = "finite numbers" if numbers and kind == "whole numbers" else kind
        bad = _unfit(given[column], wanted[column], kind)
        if bad:
            problems.append(
                f"{len(bad)} values of {column!r} are not {kind}, for example {_some(bad)}"
            )
    return problems


def _unfit(texts: Sequence[str] | pd.Series, sample: pd.Series, kind: str) -> list[str]:
    # If the sample itself has such a text, the metric keeps it.
    allowed = MISSING & set(sample)
    return [text for text in texts if not (_fits(text, kind) or text in allowed)]


def _kind(sample: pd.Series) -> str:
    """Return the narrowest kind that fits all of the sample's values, which are placeholders."""
    for kind in ("whole numbers", "finite numbers"):
        if all(_fits(text, kind) for text in sample):
            return kind
    return "filled in"


def _fits(text: str, kind: str) -> bool:
    if kind == "filled in":
        return text.strip() not in MISSING
    if kind == "whole numbers":
        return bool(WHOLE.fullmatch(text))
    return bool(NUMBER.fullmatch(text)) and math.isfinite(float(text))


def _refuse(problems: Sequence[str], path: Path, sample: Path) -> None:
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise SubmissionError(
            f"{path} would be refused by Kaggle:\n{listed}\n"
            f"Expected the ids, order, columns and types of {sample}. Nothing was submitted.\n"
            "Correct the predictions and write it again."
        )

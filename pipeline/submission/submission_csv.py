"""Submission: predictions by id → submission.csv, equal to sample_submission.csv in ids, order,
columns and types.

Uses pandas alone, so that the Kaggle side's tasks can check a file before a submission is spent,
without starting Keras.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from pipeline.errors import DataError, PipelineError, SubmissionError, reading
from pipeline.storage import atomic_file, csv_text

# int() and float() take more than a CSV reader does: 1_0, other scripts' digits, blanks around
# them.
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MANY = 20  # rows, of which not all can be alike by chance
# What pandas takes for a missing value (2.2 to 3.1), and Kaggle's metrics with it.
MISSING = {
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
} | {*("NULL", "NaN", "None", "n/a", "nan", "null")}


def write(
    path: Path,
    sample: Path,
    ids: Sequence[str],
    labels: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    numbers: bool = False,
) -> int:
    """Write the submission in one rename and return its number of rows; nothing is written if it
    would be refused.

    Args:
        path: submission.csv. sample: the competition's sample_submission.csv: ids in its first
            column.
        ids: of the predictions, in any order. labels: the prediction of each id, as text; of
            several columns by their names.
        numbers: whether any finite number will do where the sample's placeholders are whole ones.

    Raises:
        SubmissionError: if the ids are not the sample's, each once, or the types differ. All
            problems are named at once.
    """
    wanted = _sample(sample)
    columns = (
        dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(wanted.columns[1:2], labels)
    )
    if [*wanted.columns[1:]] != [*columns]:
        raise SubmissionError(
            f"{sample} has the columns {', '.join(wanted.columns)}; expected an id and {', '.join(columns) or 'a label'}.\n"
            "Correct label_column or target in the config, or write this competition's form in pipeline/submission/prediction_format.py."
        )
    given = pd.DataFrame(
        {wanted.columns[0]: list(ids), **{name: list(texts) for name, texts in columns.items()}},
        dtype=str,
    )
    order = {name: place for place, name in enumerate(wanted[wanted.columns[0]])}
    given = given.sort_values(
        wanted.columns[0], key=lambda column: column.map(order), kind="stable", ignore_index=True
    )
    _refuse(_problems(given, wanted, numbers), path, sample)
    # Python puts no quotes around a carriage return, and every reader takes it for the end of a
    # line.
    returns = any("\r" in text for name in given for text in (name, *given[name]))
    quoting: Literal[0, 1] = csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    atomic_file.write(
        path, given.to_csv(index=False, lineterminator="\n", quoting=quoting).encode()
    )
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
        numbers: as for `write`. within: least and largest value of a number, as 0 and 1 of a
            probability; None: any.
        constant: whether many rows may all have the same prediction, which is worth a submission
            only to who asks for it.

    Raises:
        SubmissionError: if columns, ids, order or types differ from the sample's, or a value is
            empty, not finite or out of range, or all rows are predicted alike. All problems are
            named at once.
    """
    given, wanted = _read(path, SubmissionError), _sample(sample)
    problems = _problems(given, wanted, numbers)
    if list(given.columns) == list(wanted.columns):
        problems += _beyond(given, within) if within else []
        same = given.iloc[:, 1:].drop_duplicates()
        if len(given) >= MANY and len(same) == 1 and not constant:
            told = ", ".join(f"{name} {text!r}" for name, text in list(same.iloc[0].items())[:5])
            problems.append(
                f"all {len(given)} rows have the same prediction, {told}; if it is meant so, submit it with --constant"
            )
    _refuse(problems, path, sample)
    return len(given)


def _beyond(given: pd.DataFrame, within: tuple[float, float]) -> list[str]:
    """Return what is said of numbers out of range; what is no number is said elsewhere."""
    problems, (low, high) = [], within
    for name in given.columns[1:]:
        bad = [
            text
            for text in given[name]
            if _fits(text, "finite numbers") and not low <= float(text) <= high
        ]
        if bad:
            shown = ", ".join(map(repr, bad[:3]))
            problems.append(
                f"{len(bad)} values of {name!r} are not from {low:g} to {high:g}, for example {shown}"
            )
    return problems


def _read(path: Path, kind: type[PipelineError]) -> pd.DataFrame:
    with reading(path, kind, "Correct the path."):
        if not path.is_file():
            raise DataError(
                f"{path} is missing; expected a CSV.\nCorrect the path, or run the step that writes it."
            )
    return csv_text.read(path, kind, "Write it again.")


def _sample(path: Path) -> pd.DataFrame:
    found = _read(path, DataError)
    if not len(found):
        raise DataError(
            f"{path} has a header and no rows; expected one row for each id that is to be predicted.\nComplete the download."
        )
    return found


def _problems(given: pd.DataFrame, wanted: pd.DataFrame, numbers: bool) -> list[str]:
    if list(given.columns) != list(wanted.columns):
        return [
            f"the columns are {', '.join(map(str, given.columns))}; expected {', '.join(wanted.columns)}"
        ]
    problems = []
    have, want = given.iloc[:, 0], wanted.iloc[:, 0]
    for what, ids in (
        ("missing", sorted(set(want) - set(have))),
        ("unknown", sorted(set(have) - set(want))),
        ("repeated", sorted(set(have[have.duplicated()]))),
    ):
        if ids:
            problems.append(
                f"{len(ids)} ids are {what}, for example {', '.join(map(repr, ids[:5]))}"
            )
    if not problems and list(have) != list(want):
        problems.append("the ids are in another order than the sample's")
    for column in wanted.columns[1:]:
        values, kind = given[column], _kind(wanted[column])
        kind = "finite numbers" if numbers and kind == "whole numbers" else kind
        # A sample that has such a text itself is read by a metric that keeps it.
        allowed = MISSING & set(wanted[column])
        bad = values[[not (_fits(text, kind) or text in allowed) for text in values]]
        if len(bad):
            shown = ", ".join(map(repr, list(bad[:3])))
            problems.append(f"{len(bad)} values of {column!r} are not {kind}, for example {shown}")
    return problems


def strange(sample: Path, column: str, texts: Sequence[str]) -> tuple[list[str], str]:
    """Return those of these texts that a submission may not hold in that column, and what it holds
    instead, in words.
    """
    wanted = _sample(sample)[column]
    kind, allowed = _kind(wanted), MISSING & set(wanted)
    return [text for text in texts if not (_fits(text, kind) or text in allowed)], kind


def _kind(sample: pd.Series) -> str:
    """Return what the sample's values are; they are placeholders, so only the narrowest kind that
    fits all of them is known.
    """
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
            f"Expected the ids, order, columns and types of {sample}. Nothing was submitted; correct the predictions and write it again."
        )

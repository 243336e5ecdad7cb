"""Submission: predictions in the columns of the sample submission, and whether Kaggle would score
the file.

columns             metric     what is written
one label column    labels     the likeliest label; of several labels those above 1/2, separated as
                               in the sample, or else the likeliest
one label column    scores     the probability of the class that names the column, or of the second
                               of two; or the number
one label column    rankings   the k likeliest labels, the likeliest first, with blanks between
one for each class             its probability or number; 1 or 0 of several labels for a metric of
or target                      labels

The tasks of the Kaggle side check a file by this module before they spend a submission. So nothing
here imports Keras.
"""

import csv
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import atomic_file
from pipeline.config import Config, custom_code
from pipeline.data import csv_files
from pipeline.data.labels import Target
from pipeline.errors import DataError, PipelineError, SubmissionError, reading
from pipeline.evaluate import competition_metric, metrics
from pipeline.evaluate.metrics import Metric

# Of ids, predictions (n, …) and the sample's columns beside the id (None: any): texts by column.
Writer = Callable[[Sequence[str], np.ndarray, Sequence[str] | None], dict[str, list[str]]]

ROUNDING = 1e-6  # by which a mean of probabilities may be outside 0 to 1
ADVICE = "Set data.sample_submission in the config."
SEPARATORS = ("|", ", ", ",", "; ", ";", " ")  # between several labels in one text
# int() and float() accept more than a CSV reader does: 1_0, other scripts' digits, blanks.
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MANY = 20  # rows that chance cannot make all equal
# The texts that pandas (2.2 to 3.1) and Kaggle's metrics read as missing values.
MISSING = {
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
}
WHOLE_NUMBERS, NUMBERS, TEXTS = "whole numbers", "finite numbers", "filled in"  # kinds of values


class Form:
    """The format of a submission to one competition.

    Args:
        target: of the run.
        metric: the competition's, or its name.
        sample: its sample_submission.csv.
        positive: the config's `data.positive_label`.
        writer: the config's own `write_submission`, as `writer_of` returns it.

    Raises:
        SubmissionError: if its columns are none of the above, or `positive` is no label.
    """

    def __init__(
        self,
        target: Target,
        metric: Metric | str,
        sample: Path,
        positive: str | None = None,
        writer: Writer | None = None,
    ) -> None:
        metric = metrics.find(metric, target.kind) if isinstance(metric, str) else metric
        self._target, self._metric, self._sample = target, metric, sample
        self._columns = csv_files.header(sample, SubmissionError, ADVICE)[1:]
        self._positive, self._writer = positive, writer
        self._regression = target.kind == "regression"
        if writer:
            return
        if positive is not None and positive not in target.names:
            raise SubmissionError(
                f"data.positive_label={positive!r} is no label of the training table; expected one"
                f" of {', '.join(map(repr, target.names[:12]))}.\nCorrect it in the config."
            )
        if not self._fits():
            raise SubmissionError(
                f"{sample} has the columns {', '.join(self._columns[:12])} beside the id; expected"
                f" one, or one for each of {', '.join(target.names[:12])} (target={target.kind!r}, "
                f"metric={metric.name!r}).\nCorrect target, metric or label_column in the config,"
                " or write this format in pipeline/infer/submission.py."
            )

    def _fits(self) -> bool:
        """Return whether the sample's columns are one for each name, or one for all."""
        names, columns = self._target.names, self._columns
        if len(columns) == 1 and not (self._regression and len(names) > 1):
            two = len(names) == 2 and self._target.kind != "multilabel"
            return self._metric.takes != "scores" or self._regression or two
        # Numbers may have other names than in the sample, but not some of its names.
        named = set(columns) == set(names) or (self._regression and not set(columns) & set(names))
        return named and len(columns) == len(names)

    def check_labels(self) -> None:
        """Raise `SubmissionError` for labels that a submission may not hold.

        This runs before a training, not when such a label is first predicted.
        """
        takes, names = self._metric.takes, self._target.names
        if self._writer:
            return
        blank = [name for name in names if len(name.split()) != 1]
        if takes == "ranking" and blank:
            raise SubmissionError(
                f"The training table has {len(blank)} labels with blanks in them, for example "
                f"{_some(blank)}; metric={self._metric.name!r} puts blanks between labels, and"
                " expected none within.\nRename them in the training table, or write this format"
                " in pipeline/infer/submission.py."
            )
        if len(self._columns) != 1 or takes != "classes" or self._regression:
            return
        values = _read_sample(self._sample)[self._columns[0]]
        if wrong := _unfit(names, values, _kind(values)):
            raise SubmissionError(
                f"The training table has {len(wrong)} labels that cannot be submitted, for example "
                f"{_some(wrong)}; expected values that are {_kind(values)}, as those of "
                f"{self._columns[0]!r} in {self._sample}.\nRename them in the training table, or "
                "correct label_column, target or metric in the config."
            )

    def write(self, path: Path, ids: Sequence[str], values: np.ndarray) -> int:
        """Write the submission in one rename and return its number of rows.

        Nothing is written if Kaggle would refuse it.

        Args:
            values: float32 (n, k), as `Target.predictions` returns them, in the order of `ids`; of
                target="own" (n, …).

        Raises:
            SubmissionError: if a value is not finite, or not a probability where one is expected;
                and as `write` says.
        """
        custom = self._target.kind == "own"
        shape = (len(ids), *(values.shape[1:] if custom else (len(self._target.names),)))
        any_number, good = self._regression or custom, np.isfinite(values)
        if not any_number:
            good &= (values >= -ROUNDING) & (values <= 1 + ROUNDING)
        if values.shape != shape or not good.all():
            # `argmax` would make a label of NaNs.
            expected = "finite numbers" if any_number else "probabilities, from 0 to 1"
            raise SubmissionError(
                f"{path} would hold {values.shape} predictions, {int((~good).sum())} of them not "
                f"finite or out of range; expected {shape} {expected}.\nNothing was written. "
                "Infer again with --precision float32; if that does not help, train again."
            )
        values = values if any_number else values.clip(0, 1)
        if self._writer:
            texts = self._writer(ids, values, self._columns)
            return write(path, self._sample, ids, texts, numbers=True)
        numbers = self._regression or len(self._columns) > 1 or self._metric.takes == "scores"
        return write(path, self._sample, ids, self.texts(values), numbers=numbers)

    def texts(self, values: np.ndarray) -> dict[str, list[str]]:
        """Return the texts of each column, by its name."""
        names, columns, takes = self._target.names, self._columns, self._metric.takes
        multilabel = self._target.kind == "multilabel"
        if len(columns) > 1:
            if multilabel and takes == "classes":
                values = (values > 0.5).astype(np.float32)
            by_name = set(columns) == set(names)
            return {
                column: _shown(values[:, names.index(column) if by_name else place])
                for place, column in enumerate(columns)
            }
        if self._regression:
            texts = _shown(values[:, 0])
        elif takes == "ranking":
            k = int(self._metric.name.partition("@")[2])
            order = np.argsort(-values, axis=1, kind="stable")[:, :k]
            texts = [" ".join(names[place] for place in row) for row in order]
        elif takes == "scores" and not multilabel:
            texts = _shown(values[:, positive_code(names, columns[0], self._positive)])
        elif multilabel:  # Kaggle accepts no empty text: the likeliest label replaces it
            shown = csv_files.read(self._sample, SubmissionError, ADVICE)[columns[0]]
            between = separator(self._target, set(shown))
            texts = replace(self._target, separator=between).best(values)
            likeliest = (names[place] for place in values.argmax(axis=1))
            texts = [text or name for text, name in zip(texts, likeliest, strict=True)]
        else:
            texts = self._target.best(values)
        return {columns[0]: texts}


def writer_of(config: Config) -> Writer | None:
    """Return the config's own `write_submission`, with its result checked; None without one."""
    custom: Any = custom_code.function(config, "write_submission")
    if custom is None:
        return None

    def texts(
        ids: Sequence[str], values: np.ndarray, columns: Sequence[str] | None
    ) -> dict[str, list[str]]:
        with custom_code.telling(config, "write_submission"):
            return _checked_texts(config, custom(tuple(ids), values), ids, columns)

    return texts


def _checked_texts(
    config: Config, given: Any, ids: Sequence[str], columns: Sequence[str] | None
) -> dict[str, list[str]]:
    """Return what a custom `write_submission` returned, as texts, in the order of the columns.

    Raises:
        SubmissionError: if it is something else.
    """
    name = custom_code.described(config, "write_submission")
    given_columns = dict(given) if isinstance(given, Mapping) else {}
    wanted = list(given_columns) if columns is None else list(columns)
    lengths = {column: len(values) for column, values in given_columns.items()}
    if not lengths or lengths != dict.fromkeys(wanted, len(ids)):
        has = ", ".join(f"{column} ({length})" for column, length in lengths.items())
        raise SubmissionError(
            f"{name} returns {has or type(given).__name__}; expected a dict with"
            f" {', '.join(wanted) or 'column: texts'}, as the sample submission beside the id, and"
            f" {len(ids)} texts or numbers in each.\nReturn {{column: [one for each of the ids]}}."
        )
    for column in wanted:
        for key, value in zip(ids, given_columns[column], strict=True):
            if not isinstance(value, str | Real) or value != value:
                raise SubmissionError(
                    f"{name} returns {str(value)[:60]!r} for {key!r} in {column!r}; expected a text"
                    " or a number in each row.\nReturn one, and no missing value."
                )
    return {column: list(map(str, given_columns[column])) for column in wanted}


def positive_code(names: Sequence[str], column: str, chosen: str | None) -> int:
    """Return which of two labels a single column of probabilities is about.

    >>> positive_code(("dead", "recovered"), "has_died", "dead")
    0
    >>> positive_code(("cat", "dog"), "cat", None), positive_code(("no", "yes"), "sold", None)
    (0, 1)
    """
    named = chosen if chosen is not None else column
    return names.index(named) if named in names else 1


def separator(target: Target, shown: Collection[str]) -> str:
    """Return what a sample has between known labels; where it shows none, the training table's
    separator.

    Args:
        target: of several labels.
        shown: texts of the sample's column.

    >>> separator(Target("multilabel", ("big cat", "dog")), ["big cat|dog"])
    '|'
    """
    names = set(target.names)
    for between in (target.separator, *SEPARATORS):
        if any(between in text and names.issuperset(text.split(between)) for text in shown):
            return between
    return target.separator


def limits(config: Config) -> dict[str, Any]:
    """Return `numbers` and `within`, as `check` takes them, for a submission of this config."""
    if config.target in ("regression", "own") or config.write_submission:
        return {"numbers": True, "within": None}
    scores = competition_metric.of(config).takes == "scores"
    return {"numbers": scores, "within": (0.0, 1.0) if scores else None}


def write(
    path: Path,
    sample: Path,
    ids: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    *,
    numbers: bool = False,
) -> int:
    """Write the submission in one rename and return its number of rows.

    Nothing is written if Kaggle would refuse it.

    Args:
        sample: the competition's sample_submission.csv, with ids in its first column.
        ids: of the predictions, in any order.
        columns: the texts of each column, in the order of `ids`.
        numbers: whether any finite number is accepted where the sample's values are whole.

    Raises:
        SubmissionError: if columns, ids or types differ from the sample's; with all problems at
            once.
    """
    wanted = _read_sample(sample)
    key = wanted.columns[0]
    table = pd.DataFrame(
        {key: list(ids)} | {name: list(columns[name]) for name in columns}, dtype=str
    )
    order = {name: row for row, name in enumerate(wanted[key])}
    table = table.sort_values(
        key, key=lambda column: column.map(order), kind="stable", ignore_index=True
    )
    _refuse(_problems(table, wanted, numbers), path, sample)
    # Python does not quote a carriage return, and every reader ends the line there.
    returns = any("\r" in text for name in table for text in (name, *table[name]))
    content = table.to_csv(
        index=False, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    )
    atomic_file.write(path, content.encode())
    return len(table)


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
    table, wanted = _read(path, SubmissionError), _read_sample(sample)
    problems = _problems(table, wanted, numbers)
    if list(table.columns) == list(wanted.columns):
        low, high = within or (-math.inf, math.inf)
        for name in table.columns[1:]:
            values = [text for text in table[name] if _is_a(text, NUMBERS)]
            if outside := [text for text in values if not low <= float(text) <= high]:
                problems.append(
                    f"{len(outside)} values of {name!r} are not from {low:g} to {high:g}, for"
                    f" example {_some(outside)}"
                )
        rows = table.iloc[:, 1:].drop_duplicates()
        if len(table) >= MANY and len(rows) == 1 and not constant:
            shown = ", ".join(f"{name} {text!r}" for name, text in list(rows.iloc[0].items())[:5])
            problems.append(
                f"all {len(table)} rows have the same prediction, {shown}; if that is intended, "
                "submit with --constant"
            )
    _refuse(problems, path, sample)
    return len(table)


def _problems(table: pd.DataFrame, wanted: pd.DataFrame, numbers: bool) -> list[str]:
    """Return how a submission differs from the sample."""
    if list(table.columns) != list(wanted.columns):
        return [
            f"the columns are {', '.join(map(str, table.columns))}; expected "
            f"{', '.join(wanted.columns)}"
        ]
    ids, expected = table.iloc[:, 0], wanted.iloc[:, 0]
    problems = [
        f"{len(different)} ids are {what}, for example {_some(sorted(different), 5)}"
        for what, different in (
            ("missing", set(expected) - set(ids)),
            ("unknown", set(ids) - set(expected)),
            ("repeated", set(ids[ids.duplicated()])),
        )
        if different
    ]
    if not problems and list(ids) != list(expected):
        problems.append("the ids are in another order than the sample's")
    for column in wanted.columns[1:]:
        kind = _kind(wanted[column])
        kind = NUMBERS if numbers and kind == WHOLE_NUMBERS else kind
        if wrong := _unfit(table[column], wanted[column], kind):
            problems.append(
                f"{len(wrong)} values of {column!r} are not {kind}, for example {_some(wrong)}"
            )
    return problems


def _refuse(problems: Sequence[str], path: Path, sample: Path) -> None:
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise SubmissionError(
            f"{path} would be refused by Kaggle:\n{listed}\n"
            f"Expected the ids, order, columns and types of {sample}. Nothing was submitted.\n"
            "Correct the predictions and write it again."
        )


def _unfit(texts: Sequence[str] | pd.Series, sample: pd.Series, kind: str) -> list[str]:
    # If the sample itself has such a text, the metric keeps it.
    allowed = MISSING & set(sample)
    return [text for text in texts if not (_is_a(text, kind) or text in allowed)]


def _kind(sample: pd.Series) -> str:
    """Return the narrowest kind that fits all of the sample's values, which are placeholders."""
    kinds = (WHOLE_NUMBERS, NUMBERS)
    return next((kind for kind in kinds if all(_is_a(text, kind) for text in sample)), TEXTS)


def _is_a(text: str, kind: str) -> bool:
    if kind == TEXTS:
        return text.strip() not in MISSING
    if kind == WHOLE_NUMBERS:
        return bool(WHOLE.fullmatch(text))
    return bool(NUMBER.fullmatch(text)) and math.isfinite(float(text))


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


def _some(texts: Sequence[str], number: int = 3) -> str:
    return ", ".join(repr(text[:80]) for text in texts[:number])


def _shown(values: np.ndarray) -> list[str]:
    return [f"{value:.9g}" for value in values]

"""Submission: predictions in the columns of the sample submission, and whether Kaggle would score
the file.

layout    columns                metric     what is written
LABELS    one                    labels     the likeliest label; of several labels those above 1/2,
                                            separated as in the sample, or else the likeliest
SCORES    one                    scores     the probability of the class that names the column, or
                                            of the second of two
RANKING   one                    rankings   the k likeliest labels, the likeliest first, with blanks
                                            between
COLUMNS   one for each class     any        its probability or number; 1 or 0 of several labels for
          or target                         a metric of labels
CUSTOM    those of               any        what the config's `write_submission` returns
          `write_submission`

The tasks of the Kaggle side check a file by this module before they spend a submission. So nothing
here imports Keras.
"""

import csv
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import atomic_file
from pipeline.config import Config, custom_code
from pipeline.data import samples
from pipeline.data.labels import Target
from pipeline.data.samples import Sample
from pipeline.errors import SubmissionError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric

Texts = Mapping[str, Sequence[str]]  # of each column beside the id, by its name
# Of ids, predictions (n, …) and the sample's columns beside the id (None: any).
Writer = Callable[[Sequence[str], np.ndarray, Sequence[str] | None], Texts]

Range = tuple[float, float] | tuple[()]

LABELS, SCORES, RANKING, COLUMNS, CUSTOM = "labels", "scores", "ranking", "columns", "custom"
AGAIN = "Correct the path, or write it again."
SEPARATORS = ("|", ", ", ",", "; ", ";", " ")  # between several labels in one text
ANY_NUMBER, ANY_TEXT = (-math.inf, math.inf), ()
MANY = 20  # rows that chance cannot make all equal
# Kinds of values. int() and float() accept more than a CSV reader does: 1_0, other scripts' digits,
# blanks.
WHOLE, FINITE, FILLED = "whole numbers", "finite numbers", "filled in"
WHOLE_NUMBER = "[+-]?[0-9]+"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# The texts that pandas (2.2 to 3.1) and Kaggle's metrics read as missing values.
MISSING = {
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
}


@dataclass
class Form:
    """The format of a submission to one competition.

    Attributes:
        target: of the run.
        metric: the competition's.
        sample: the competition's; one that was made gets its columns here, by target and metric.
        positive: the config's `data.positive_label`.
        writer: the config's own `write_submission`, as `writer_of` returns it.
        labels: the config's label columns, after which those of a made sample are called.
        columns: of the sample beside the id; None: those that `writer` returns.

    Raises:
        SubmissionError: if its columns are none of the above, or `positive` is not a label.
    """

    target: Target
    metric: Metric
    sample: Sample
    positive: str | None = None
    writer: Writer | None = None
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = self.target.names
        if self.sample.made and not self.writer:
            made = columns_of(self.target, self.metric, self.labels)
            self.sample = self.sample.with_columns(made)
        self.columns = self.sample.columns or None
        self._layout = CUSTOM if self.writer else self._fitting()
        if not self.writer and self.positive not in (None, *names):
            raise SubmissionError(
                f"data.positive_label={self.positive!r} is no label of the training table; expected"
                f" one of {', '.join(map(repr, names[:12]))}.\nCorrect it in the config."
            )
        if not self._layout:
            shown = ", ".join(self.sample.columns[:12])
            raise SubmissionError(
                f"{self.sample} has the columns {shown} beside the id; expected one, or one for"
                f" each of {', '.join(names[:12])}"
                f" (target={self.target.kind!r}, metric={self.metric.name!r}).\nCorrect target,"
                " metric or label_column in the config, or write this format in"
                " pipeline/infer/submission.py."
            )

    def _fitting(self) -> str:
        """Return the layout that fits the sample's columns; "" if none does."""
        names, columns, takes = self.target.names, self.sample.columns, self.metric.takes
        regression = self.target.kind == "regression"
        if len(columns) != 1 or regression:
            # Numbers may have other names than in the sample, but not some of its names.
            renamed = regression and not set(columns) & set(names)
            named = len(columns) == len(names) and (renamed or set(columns) == set(names))
            return COLUMNS if named else ""
        if takes == "scores":
            return SCORES if len(names) == 2 and self.target.kind != "multilabel" else ""
        return RANKING if takes == "ranking" else LABELS

    def check_labels(self) -> None:
        """Raise `SubmissionError` for labels that a submission may not hold.

        This runs before a training, not when such a label is first predicted.
        """
        names, wrong, expected = pd.Series(self.target.names, dtype=object), list[str](), ""
        if self._layout == RANKING:
            wrong = [name for name in names if len(name.split()) != 1]
            expected = f"labels without blanks, which metric={self.metric.name!r} puts between"
        elif self._layout == LABELS:
            values = self.sample.table.iloc[:, 1]
            wrong, kind = _unfit(names, values, _kind(values)), _kind(values)
            expected = f"values that are {kind}, as those of {values.name!r} in {self.sample}"
        if wrong:
            raise SubmissionError(
                f"The training table has {len(wrong)} labels that cannot be submitted, for example "
                f"{_some(wrong)}; expected {expected}.\nRename them in the training table, or "
                "correct label_column, target or metric in the config."
            )

    def write(self, path: Path, ids: Sequence[str], values: np.ndarray) -> int:
        """Write the submission in one rename and return its number of rows.

        Nothing is written if Kaggle would refuse it.

        Args:
            values: float32 (n, k), as `Target.predictions` returns them, in the order of `ids`; of
                target="custom" (n, …).

        Raises:
            SubmissionError: if a value is not finite; and as `write` says.
        """
        if not (finite := np.isfinite(values)).all():
            # `argmax` would make a label of NaNs.
            raise SubmissionError(
                f"{path} would hold {(~finite).sum()} predictions that are not finite; expected"
                " finite numbers.\nNothing was written. Infer again with --precision float32; if"
                " that does not help, train again."
            )
        if self.target.kind not in ("regression", "custom"):
            values = values.clip(0, 1)  # a mean of probabilities may be outside by a rounding
        texts = self.writer(ids, values, self.columns) if self.writer else self.texts(values)
        sample = self.sample if self.columns else self.sample.with_columns(texts)
        within: Range | None = None if self._layout in (LABELS, RANKING) else ANY_NUMBER
        within = ANY_TEXT if self.target.kind == "custom" else within
        return write(path, sample, ids, texts, within=within)

    def texts(self, values: np.ndarray) -> Texts:
        """Return the texts of each column."""
        target, columns = self.target, self.sample.columns
        names, layout, several = target.names, self._layout, target.kind == "multilabel"
        if layout == COLUMNS:
            if several and self.metric.takes == "classes":
                values = (values > 0.5).astype(np.float32)
            by_name = set(columns) == set(names)
            return {
                column: _shown(values[:, names.index(column) if by_name else place])
                for place, column in enumerate(columns)
            }
        if layout == SCORES:
            texts = _shown(values[:, positive_code(names, columns[0], self.positive)])
        elif layout == RANKING:
            k = int(self.metric.name.partition("@")[2])
            order = np.argsort(-values, axis=1, kind="stable")[:, :k]
            texts = [" ".join(names[place] for place in row) for row in order]
        elif several:  # Kaggle accepts no empty text: the likeliest label replaces it
            shown = set(self.sample.table.iloc[:, 1])
            texts = replace(target, separator=separator(target, shown)).best(values)
            likeliest = (names[place] for place in values.argmax(axis=1))
            texts = [text or name for text, name in zip(texts, likeliest, strict=True)]
        else:
            texts = target.best(values)
        return {columns[0]: texts}


def form_of(config: Config, target: Target, metric: Metric, folder: Path) -> Form:
    """Return the format of a config's submission, by the sample in the competition's folder."""
    data, sample = config.data, samples.of(folder, config.data, SubmissionError)
    writer = writer_of(config, folder)
    return Form(target, metric, sample, data.positive_label, writer, data.labels)


def columns_of(target: Target, metric: Metric, labels: Sequence[str]) -> Sequence[str]:
    """Return the columns beside the id where no sample names them: the label columns, or one for
    each label where a metric takes probabilities of several.

    >>> columns_of(Target("classes", ("a", "b", "c")), metrics.find("accuracy", "classes"), ["y"])
    ['y']
    """
    several = len(target.names) > 2 or target.kind == "multilabel"
    if several and target.kind != "regression" and metric.takes == "scores":
        return target.names
    return labels


def writer_of(config: Config, folder: Path) -> Writer | None:
    """Return the config's own `write_submission`, with its result checked; None without one.

    Where it has a third parameter, it gets the competition's folder: the pictures' sizes are there.

    It raises `SubmissionError` unless that returns a dict of the sample's columns with a text or a
    number for each id.
    """
    custom: Any = custom_code.function(config, "write_submission")
    return partial(_written, config, folder) if custom else None


def _written(
    config: Config,
    folder: Path,
    ids: Sequence[str],
    values: np.ndarray,
    columns: Sequence[str] | None,
) -> Texts:
    custom: Any = custom_code.function(config, "write_submission")
    place = (folder,) if len(inspect.signature(custom).parameters) > 2 else ()
    with custom_code.telling(config, "write_submission"):
        table = pd.DataFrame(custom(tuple(ids), values, *place), dtype=object)
    wanted = list(map(str, table)) if columns is None else list(columns)
    odd = table[~table.map(_is_cell).all(axis=1)]
    if not wanted or set(table) != set(wanted) or len(table) != len(ids) or len(odd):
        example = (odd if len(odd) else table).head(1).to_dict("records")
        raise SubmissionError(
            f"{custom_code.described(config, 'write_submission')} returns {len(table)} rows, for"
            f" example {str(example)[:200]}; expected a dict with"
            f" {', '.join(wanted) or 'column: texts'}, as the sample submission beside the id,"
            f" and {len(ids)} texts or numbers in each.\nReturn {{column: [one for each id]}}."
        )
    return {column: table[column].map(str).tolist() for column in wanted}


def _is_cell(value: object) -> bool:
    return isinstance(value, str | Real) and value == value


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


def limits(config: Config) -> Range | None:
    """Return `within`, as `check` takes it, for a submission of this config."""
    if config.target == "custom":
        return ANY_TEXT
    if config.target == "regression" or config.write_submission:
        return ANY_NUMBER
    return (0.0, 1.0) if metrics.of(config).takes == "scores" else None


def write(
    path: Path, sample: Sample, ids: Sequence[str], columns: Texts, *, within: Range | None = None
) -> int:
    """Write the submission in one rename and return its number of rows.

    Nothing is written if Kaggle would refuse it.

    Args:
        sample: the competition's, with different ids in its first column.
        ids: of the predictions, in any order.
        columns: the texts of each column, in the order of `ids`.
        within: as for `check`.

    Raises:
        SubmissionError: if columns, ids or types differ from the sample's; with all problems at
            once.
    """
    wanted = sample.table
    key = wanted.columns[0]
    order = np.argsort(pd.Index(wanted[key]).get_indexer(list(ids)), kind="stable")
    table = pd.DataFrame({key: list(ids), **columns}, dtype=object).iloc[order]
    _refuse(_problems(table, wanted, within), path, str(sample))
    # Python does not quote a carriage return, and every reader ends the line there.
    returns = any("\r" in text for name in table for text in (name, *table[name]))
    content = table.to_csv(
        sep=sample.separator,
        index=False,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL,
    )
    atomic_file.write(path, content.encode())
    return len(table)


def check(
    path: Path, sample: Path | None, *, within: Range | None = None, constant: bool = False
) -> int:
    """Return the number of rows of a submission that Kaggle would score.

    Args:
        sample: the competition's file; None: it has none, so ids and columns are not compared.
        within: least and largest of any finite numbers, as 0 and 1 for probabilities; None: numbers
            are whole where those of the sample are; (): any texts, empty ones as well: the run
            lengths of an empty mask.
        constant: whether many rows may all have the same prediction.

    Raises:
        SubmissionError: if columns, ids, order or types differ from the sample's, a value is empty,
            not finite or out of range, or all predictions are equal; with all problems at once.
    """
    given = samples.read(path, SubmissionError, AGAIN)
    table, expected = given.table, given.with_columns(given.columns)
    if sample is not None:
        expected = samples.read(sample, SubmissionError, AGAIN)
    problems = _problems(table, expected.table, within)
    if given.separator != expected.separator:
        between = f"{given.separator!r} separates its fields; expected {expected.separator!r}"
        problems = [between]
    rows = table.iloc[:, 1:].drop_duplicates()
    if not problems and len(table) >= MANY and len(rows) == 1 and not constant:
        shown = ", ".join(f"{name} {text!r}" for name, text in list(rows.iloc[0].items())[:5])
        problems = [f"all {len(table)} rows have the same prediction, {shown}; --constant takes it"]
    _refuse(problems, path, str(sample or "the test set"))
    return len(table)


def _problems(table: pd.DataFrame, wanted: pd.DataFrame, within: Range | None) -> list[str]:
    """Return how a submission differs from the sample."""
    if list(table) != list(wanted):
        found, expected = (", ".join(map(str, each)) for each in (table, wanted))
        return [f"the columns are {found}; expected {expected}"]
    ids, asked = table.iloc[:, 0], wanted.iloc[:, 0]
    different = {
        "missing": set(asked) - set(ids),
        "unknown": set(ids) - set(asked),
        "repeated": set(ids[ids.duplicated()]),
    }
    problems = [
        f"{len(names)} ids are {what}, for example {_some(sorted(names), 5)}"
        for what, names in different.items()
        if names
    ]
    if not problems and list(ids) != list(asked):
        problems.append("the ids are in another order than the sample's")
    for column in wanted.columns[1:] if within != ANY_TEXT else ():
        kind = _kind(wanted[column])
        kind = FINITE if within and kind == WHOLE else kind
        wrong = {f"not {kind}": _unfit(table[column], wanted[column], kind)}
        if within:
            values, (low, high) = _numbers(table[column]), within
            outside = table[column][(values < low) | (values > high)].tolist()
            wrong[f"not from {low:g} to {high:g}"] = outside
        problems += [
            f"{len(texts)} values of {column!r} are {what}, for example {_some(texts)}"
            for what, texts in wrong.items()
            if texts
        ]
    return problems


def _refuse(problems: Sequence[str], path: Path, sample: str) -> None:
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise SubmissionError(
            f"{path} would be refused by Kaggle:\n{listed}\n"
            f"Expected the ids, order, columns and types of {sample}. Nothing was submitted.\n"
            "Correct the predictions and write it again."
        )


def _unfit(texts: pd.Series, sample: pd.Series, kind: str) -> list[str]:
    """Return the texts that are not of this kind."""
    # If the sample itself has a missing value, the metric keeps it.
    return texts[~_is_a(texts, kind) & ~texts.isin(MISSING & set(sample))].tolist()


def _kind(sample: pd.Series) -> str:
    """Return the narrowest kind that fits all of the sample's values, which are placeholders."""
    return next((kind for kind in (WHOLE, FINITE) if _is_a(sample, kind).all()), FILLED)


def _is_a(texts: pd.Series, kind: str) -> pd.Series:
    if kind == FILLED:
        return ~texts.str.strip().isin(MISSING)
    if kind == WHOLE:
        return texts.str.fullmatch(WHOLE_NUMBER).astype(bool)
    return _numbers(texts).abs() < np.inf


def _numbers(texts: pd.Series) -> pd.Series:
    """Return the texts as float64, NaN where one is not a number."""
    return texts.where(texts.str.fullmatch(NUMBER).astype(bool)).astype(float)


def _some(texts: Sequence[str], number: int = 3) -> str:
    return ", ".join(repr(text[:80]) for text in texts[:number])


def _shown(values: np.ndarray) -> list[str]:
    return [f"{value:.9g}" for value in values]

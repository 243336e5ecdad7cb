"""Write predictions in the columns of the sample, and check that Kaggle will score them.

layout    columns                metric     contents
LABELS    one                    labels     the most probable label. For "multilabel", all labels
                                            above 1/2 (separated as in the sample), or else the most
                                            probable one
SCORES    one                    scores     the probability of the class that the column is named
                                            after, or of the second of two classes
RANKING   one                    rankings   the k most probable labels in order, separated by spaces
COLUMNS   one per class or       any        its probability or number; 0 or 1 for "multilabel" with
          target                            a metric of labels
CUSTOM    any                    any        the return value of the config's `write_submission`

This module does not import Keras, so that tasks that communicate with Kaggle can check files
before submitting.
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

Texts = Mapping[str, Sequence[str]]  # values of each column after the id, keyed by name
# Accepts ids, predictions (n, …) and the sample's columns after the id (None for any columns).
Writer = Callable[[Sequence[str], np.ndarray, Sequence[str] | None], Texts]

Range = tuple[float, float] | tuple[()]

LABELS, SCORES, RANKING, COLUMNS, CUSTOM = "labels", "scores", "ranking", "columns", "custom"
AGAIN = "Correct the path, or write the file again."
SEPARATORS = ("|", ", ", ",", "; ", ";", " ")  # separators between labels in a single text
ANY_NUMBER, ANY_TEXT = (-math.inf, math.inf), ()
MANY = 20  # number of rows that cannot all have the same prediction by chance
# Kinds of values. Python's int() and float() accept more than CSV readers, e.g. 1_0 and spaces.
WHOLE, FINITE, FILLED = "whole numbers", "finite numbers", "filled in"
WHOLE_NUMBER = "[+-]?[0-9]+"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# Texts that pandas (2.2 to 3.1) and Kaggle's metrics treat as missing values.
MISSING = {
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
}


@dataclass
class Form:
    """Format of a competition's submission.

    Attributes:
        sample: the sample submission. If it is generated, its columns depend on target and metric.
        positive: `data.positive_label` of the config.
        writer: the config's `write_submission`, wrapped by `writer_of`.
        labels: the config's label columns, which become the columns of a generated sample.
        table: the training table, for messages.
        columns: the sample's columns after the id, or None for any columns that `writer` returns.

    Raises:
        SubmissionError: if no layout matches the columns, or `positive` is not a label.
    """

    target: Target
    metric: Metric
    sample: Sample
    positive: str | None = None
    writer: Writer | None = None
    labels: Sequence[str] = ()
    table: str = "The training table"

    def __post_init__(self) -> None:
        names = self.target.names
        if self.sample.made and not self.writer:
            made = columns_of(self.target, self.metric, self.labels)
            self.sample = self.sample.with_columns(made)
        self.columns = self.sample.columns or None
        self._layout = CUSTOM if self.writer else self._fitting()
        if not self.writer and self.positive not in (None, *names):
            raise SubmissionError(
                f"data.positive_label={self.positive!r} is not a label in the training table;"
                f" expected one of {', '.join(map(repr, names[:12]))}.\nCorrect it in the config."
            )
        if not self._layout:
            shown = ", ".join(self.sample.columns[:12])
            raise SubmissionError(
                f"{self.sample} has columns {shown} after the id. With"
                f" target={self.target.kind!r} and metric={self.metric.name!r}, it must have a"
                f" single column or one for each of {', '.join(names[:12])}.\nCorrect target,"
                " metric or label_column in the config, or write a custom write_submission"
                " (docs/custom-code.md)."
            )

    def _fitting(self) -> str:
        """Return the layout that matches the sample's columns, or "" if there is none."""
        names, columns, takes = self.target.names, self.sample.columns, self.metric.takes
        regression = self.target.kind == "regression"
        if len(columns) != 1 or regression:
            # For a regression, the sample can use other names for all columns, but not for some of
            # them.
            renamed = regression and not set(columns) & set(names)
            named = len(columns) == len(names) and (renamed or set(columns) == set(names))
            return COLUMNS if named else ""
        if takes == "scores":
            return SCORES if len(names) == 2 and self.target.kind != "multilabel" else ""
        return RANKING if takes == "ranking" else LABELS

    def check_labels(self) -> None:
        """Raise `SubmissionError` before training if some labels cannot be submitted."""
        names, wrong, expected = pd.Series(self.target.names, dtype=object), list[str](), ""
        if self._layout == RANKING:
            wrong = [name for name in names if len(name.split()) != 1]
            expected = f"labels without spaces, which are the separators for {self.metric.name}"
        elif self._layout == LABELS:
            values = self.sample.table.iloc[:, 1]
            wrong, kind = _unfit(names, values, _kind(values)), _kind(values)
            expected = f"values that are {kind}, as in {values.name!r} of {self.sample}"
        if wrong:
            raise SubmissionError(
                f"{self.table} has {len(wrong)} labels that cannot be submitted, for example"
                f" {_some(wrong)}; expected {expected}.\nRename them in the training table, or "
                "correct label_column, target or metric in the config."
            )

    def write(self, path: Path, ids: Sequence[str], values: np.ndarray) -> int:
        """Write the submission atomically, unless Kaggle would reject it, and return the row count.

        Args:
            values: float32 (n, k) from `Target.predictions`, in the order of `ids`, or (n, …) for
                target="custom".
        """
        if not (finite := np.isfinite(values)).all():
            # `argmax` would convert NaN to a label.
            raise SubmissionError(
                f"{path} would contain {(~finite).sum()} predictions that are NaN or"
                " infinite.\nNothing was written. Run inference again with --precision"
                " float32. If it fails again, train again."
            )
        if self.target.kind not in ("regression", "custom"):
            values = values.clip(0, 1)  # rounding can move a mean of probabilities out of range
        texts = self.writer(ids, values, self.columns) if self.writer else self.texts(values)
        sample = self.sample if self.columns else self.sample.with_columns(texts)
        within: Range | None = None if self._layout in (LABELS, RANKING) else ANY_NUMBER
        within = ANY_TEXT if self.target.kind == "custom" else within
        return write(path, sample, ids, texts, within=within)

    def texts(self, values: np.ndarray) -> Texts:
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
        elif several:  # Kaggle does not accept an empty text
            shown = set(self.sample.table.iloc[:, 1])
            texts = replace(target, separator=separator(target, shown)).best(values)
            likeliest = (names[place] for place in values.argmax(axis=1))
            texts = [text or name for text, name in zip(texts, likeliest, strict=True)]
        else:
            texts = target.best(values)
        return {columns[0]: texts}


def form_of(config: Config, target: Target, metric: Metric, folder: Path) -> Form:
    data, sample = config.data, samples.of(folder, config.data, SubmissionError)
    writer = writer_of(config, folder)
    form = Form(target, metric, sample, data.positive_label, writer, data.labels)
    if data.train_csv and data.kind not in ("tfrecords", "custom"):
        form.table = str(folder / data.train_csv)
    return form


def columns_of(target: Target, metric: Metric, labels: Sequence[str]) -> Sequence[str]:
    """Return the columns that follow the id in a generated sample: the label columns, or one column
    per label if the metric uses the probabilities of several labels.

    >>> columns_of(Target("classes", ("a", "b", "c")), metrics.find("accuracy", "classes"), ["y"])
    ['y']
    """
    several = len(target.names) > 2 or target.kind == "multilabel"
    if several and target.kind != "regression" and metric.takes == "scores":
        return target.names
    return labels


def writer_of(config: Config, folder: Path) -> Writer | None:
    """Return the config's `write_submission` function with checks, or None if it is not defined.

    If the function has a third parameter, it receives the competition folder, for example to read
    image sizes. `SubmissionError` is raised unless the function returns a dict with the sample's
    columns, each with a string or a number for each id.
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
            f"{custom_code.described(config, 'write_submission')} returned {len(table)} rows, for"
            f" example {str(example)[:200]}. It must return a dict with the sample submission's"
            f" columns after the id ({', '.join(wanted) or 'any names'}). Each column must contain"
            f" {len(ids)} strings or numbers.\nReturn {{column: [one per id]}}."
        )
    return {column: table[column].map(str).tolist() for column in wanted}


def _is_cell(value: object) -> bool:
    return isinstance(value, str | Real) and value == value


def positive_code(names: Sequence[str], column: str, chosen: str | None) -> int:
    """Return the index of the label whose probability is written to a single column.

    >>> positive_code(("dead", "recovered"), "has_died", "dead")
    0
    >>> positive_code(("cat", "dog"), "cat", None), positive_code(("no", "yes"), "sold", None)
    (0, 1)
    """
    named = chosen if chosen is not None else column
    return names.index(named) if named in names else 1


def separator(target: Target, shown: Collection[str]) -> str:
    """Return the sample's separator between labels or, without one, the training table's separator.

    >>> separator(Target("multilabel", ("big cat", "dog")), ["big cat|dog"])
    '|'
    """
    names = set(target.names)
    for between in (target.separator, *SEPARATORS):
        if any(between in text and names.issuperset(text.split(between)) for text in shown):
            return between
    return target.separator


def limits(config: Config) -> Range | None:
    """Return the value to pass to `check` as `within` for submissions made with this config."""
    if config.target == "custom":
        return ANY_TEXT
    if config.target == "regression" or config.write_submission:
        return ANY_NUMBER
    return (0.0, 1.0) if metrics.of(config).takes == "scores" else None


def write(
    path: Path, sample: Sample, ids: Sequence[str], columns: Texts, *, within: Range | None = None
) -> int:
    """Write the submission atomically, unless Kaggle would reject it, and return the row count.

    The sample must have unique ids in its first column. The values in `columns` have the same order
    as `ids`, which can differ from the order of the sample. For `within`, see `check`.
    """
    wanted = sample.table
    key = wanted.columns[0]
    order = np.argsort(pd.Index(wanted[key]).get_indexer(list(ids)), kind="stable")
    table = pd.DataFrame({key: list(ids), **columns}, dtype=object).iloc[order]
    _refuse(_problems(table, wanted, within), path, str(sample))
    content = table.to_csv(sep=sample.separator, index=False, lineterminator="\n")
    if "\r" in content:  # it ends a line unless it is quoted
        content = table.to_csv(
            sep=sample.separator, index=False, lineterminator="\n", quoting=csv.QUOTE_ALL
        )
    atomic_file.write(path, content.encode())
    return len(table)


def check(
    path: Path, sample: Path | None, *, within: Range | None = None, constant: bool = False
) -> int:
    """Check that Kaggle would score a submission, and return the number of rows.

    `SubmissionError` lists all problems: wrong columns, ids, order or types, values that are empty,
    not finite or out of range, or a single prediction for all rows.

    Args:
        sample: sample submission; None to not compare ids and columns.
        within: range of finite numbers, such as (0, 1) for probabilities. If None, integers are
            required where the sample contains integers. If it is an empty tuple, any text is
            allowed, including an empty string for an empty mask.
        constant: whether to accept a submission with the same prediction for all rows.
    """
    given = samples.read(path, SubmissionError, AGAIN)
    table, expected = given.table, given.with_columns(given.columns)
    if sample is not None:
        expected = samples.read(sample, SubmissionError, AGAIN)
    problems = _problems(table, expected.table, within)
    if given.separator != expected.separator:
        problems = [f"{given.separator!r} separates fields; expected {expected.separator!r}"]
    rows = table.iloc[:, 1:].drop_duplicates()
    if not problems and len(table) >= MANY and len(rows) == 1 and not constant:
        shown = ", ".join(f"{name} {text!r}" for name, text in list(rows.iloc[0].items())[:5])
        problems = [
            f"all {len(table)} rows have the same prediction: {shown}; use --constant to allow it"
        ]
    _refuse(problems, path, str(sample or "the test set"))
    return len(table)


def _problems(table: pd.DataFrame, wanted: pd.DataFrame, within: Range | None) -> list[str]:
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
        problems.append("the ids are in a different order than in the sample")
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
            f"Kaggle would reject {path}:\n{listed}\n"
            f"The ids, their order, the columns and the types must match {sample}. Nothing was"
            " submitted.\n"
            "Correct the predictions and write the file again."
        )


def _unfit(texts: pd.Series, sample: pd.Series, kind: str) -> list[str]:
    # If the sample uses a text for missing values, the metric accepts it.
    return texts[~_is_a(texts, kind) & ~texts.isin(MISSING & set(sample))].tolist()


def _kind(sample: pd.Series) -> str:
    """Return the most specific kind that matches all placeholder values in the sample."""
    return next((kind for kind in (WHOLE, FINITE) if _is_a(sample, kind).all()), FILLED)


def _is_a(texts: pd.Series, kind: str) -> pd.Series:
    if kind == FILLED:
        return ~texts.str.strip().isin(MISSING)
    if kind == WHOLE:
        return texts.str.fullmatch(WHOLE_NUMBER).astype(bool)
    return _numbers(texts).abs() < np.inf


def _numbers(texts: pd.Series) -> pd.Series:
    return texts.where(texts.str.fullmatch(NUMBER).astype(bool)).astype(float)  # else NaN


def _some(texts: Sequence[str], number: int = 3) -> str:
    return ", ".join(repr(text[:80]) for text in texts[:number])


def _shown(values: np.ndarray) -> list[str]:
    return [f"{value:.9g}" for value in values]

"""Goal: what a competition wants predicted: the kind of target, its classes, and what the sample
submission says of the metric.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.errors import DataError
from pipeline.inspection import column_types
from pipeline.inspection.column_types import numbers
from pipeline.inspection.tables import CHOSEN, FOUND, UNKNOWN, WARNING, Contents, Finding

SOME = 50  # different whole numbers, up to which they are classes
RARE = 10  # rows of a class, below which it is named
EDIT = "Correct the table, or name another column: --label COLUMN."


@dataclass(frozen=True)
class Goal:
    """What is predicted.

    Attributes:
        target: a kind of `pipeline.data.labels`. classes: (label, rows), the most frequent first;
            () of a regression.
        metric: a name of `pipeline.metrics`. findings: why.
    """

    target: str
    classes: tuple[tuple[str, int], ...]
    metric: str
    findings: tuple[Finding, ...]

    @property
    def majority(self) -> float:
        """The share of the rows that the most frequent label has; 0 of a regression."""
        return self.classes[0][1] / sum(count for _, count in self.classes) if self.classes else 0.0


def read(held: Contents) -> Goal:
    """Return what is predicted.

    Raises:
        DataError: if rows have no label, or there is only one, or several label columns are neither
            0 and 1 nor numbers.
    """
    table = held.labelled[list(held.labels)]
    path = held.folder / held.train
    lacking = {str(name): int((table[name].str.strip() == "").sum()) for name in table}
    if any(lacking.values()):
        name = max(lacking, key=lambda name: lacking[name])
        if lacking[name] < len(table) and len(held.labels) == 1 and not _tags(table[name]):
            raise DataError(
                f"{path} has {lacking[name]:,} rows without a label in {name!r}; expected one in each.\n"
                f"Fill them in, or leave those rows out. {EDIT}"
            )
        if lacking[name] == len(table):
            raise DataError(
                f"{path} has no label in {name!r} in any row; expected one in each.\n{EDIT}"
            )
    return _several(held, table) if len(held.labels) > 1 else _one(held, table[held.labels[0]])


def _several(held: Contents, table: pd.DataFrame) -> Goal:
    every = {str(name): numbers(table[name]) for name in table}
    bad = [name for name, values in every.items() if not np.isfinite(values).all()]
    if bad:
        raise DataError(
            f"{held.folder / held.train} has texts that are no numbers in {bad[0]!r}, one of {len(every)} label columns; expected 0 or 1, or "
            f"numbers.\n{EDIT}"
        )
    if all(np.isin(values, (0, 1)).all() for values in every.values()):
        counts = tuple(
            sorted(
                ((name, int(values.sum())) for name, values in every.items()),
                key=lambda pair: -pair[1],
            )
        )
        sums = np.sum(list(every.values()), axis=0)
        note = (
            "; each row has exactly one, so it may be one choice of many"
            if (sums == 1).all()
            else ""
        )
        told = f"multilabel: {len(every)} columns of 0 and 1, {sums.mean():.2g} labels a row on average{note}"
        return Goal(
            "multilabel",
            counts,
            "auc",
            (Finding(CHOSEN, "target", told), *_metric("multilabel", "auc", "")),
        )
    told = f"regression: {len(every)} columns of numbers"
    return Goal(
        "regression",
        (),
        "rmse",
        (Finding(CHOSEN, "target", told), *_metric("regression", "rmse", "")),
    )


def _one(held: Contents, column: pd.Series) -> Goal:
    counts = Counter(column)
    if len(counts) < 2:
        raise DataError(
            f"{held.folder / held.train} has one and the same label in {column.name!r} in all {len(column):,} rows: {column.iloc[0]!r}; "
            f"expected something to learn.\n{EDIT}"
        )
    asked = held.wanted.iloc[:, 1:]
    # Texts of as many words each, of which the sample says one, are names, such as those of
    # species.
    names = (
        len({len(text.split()) for text in counts}) == 1
        and min(counts.values()) > 1
        and asked.iloc[0, 0] in counts
    )
    if _tags(column) and not names:
        tags = Counter(tag for text in column for tag in text.split())
        told = (
            f"multilabel: {len(tags)} labels with blanks between, in {len(counts):,} combinations"
        )
        either = f'if each text is one label, set target="classes" and num_classes={len(counts)}, and metric="accuracy"'
        findings = (
            Finding(CHOSEN, "target", told),
            Finding(UNKNOWN, "labels", either),
            *_metric("multilabel", "f1", "; the sample has one column of labels"),
        )
        return Goal("multilabel", tuple(tags.most_common()), "f1", findings)
    values = numbers(column)
    number = bool(np.isfinite(values).all())
    whole = number and bool((values == np.floor(values)).all())
    dotted = (
        asked.shape[1] == 1
        and not any("." in text for text in counts)
        and asked.iloc[:, 0].str.contains(".", regex=False).all()
    )
    # Of amounts many come once, of names few.
    once = sum(count < 2 for count in counts.values())
    alone = len(counts) > 2 and once > 1 and once * 5 >= len(counts)
    if number and (not whole or len(counts) > SOME or (dotted and len(counts) > 2) or alone):
        low, middle, high = (float(f(values)) for f in (np.min, np.median, np.max))
        why = (
            f"{len(counts):,} different numbers"
            if not whole or len(counts) > SOME
            else "whole numbers, and the sample has decimals"
            if dotted
            else "whole numbers, some of them in one row alone, which is no class to learn"
        )
        told = f"regression: {why}, {low:.4g} to {high:.4g}, median {middle:.4g}"
        notes = [Finding(CHOSEN, "target", told)]
        if whole and not dotted and len(counts) * 2 <= len(column):
            text = f'if each of the {len(counts):,} numbers is the name of a class, set target="classes", num_classes={len(counts)} and metric'
            notes.append(Finding(UNKNOWN, "labels", text))
        return Goal("regression", (), "rmse", (*notes, *_metric("regression", "rmse", "")))
    if not number and column_types.commas(column):
        raise DataError(
            f"{held.folder / held.train} has {column_types.WITH_COMMAS} in {column.name!r}, as {next(text for text in counts if ',' in text)!r}; "
            f"expected labels that are numbers.\nIn a copy, {column_types.WITHOUT_COMMAS}. {EDIT}"
        )
    return _classes(held, counts, whole, asked)


def _classes(held: Contents, counts: Counter[str], whole: bool, asked: pd.DataFrame) -> Goal:
    classes = tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    rows = sum(counts.values())
    told = f"classes: {len(classes)} different labels in {rows:,} rows"
    findings = [Finding(CHOSEN, "target", told)]
    if whole and len(classes) > 2:
        text = 'the labels are whole numbers. If their order counts, set target="ordinal"; if they are amounts, target="regression"'
        findings.append(Finding(UNKNOWN, "order", text))
    most, least = classes[0], classes[-1]
    balance = f"{most[0]!r} has {most[1] / rows:.1%} of the rows, {least[0]!r} {least[1] / rows:.1%}; to say {most[0]!r} always is right that often"
    findings.append(Finding(FOUND, "balance", balance))
    single = [name for name, count in classes if count < 2]
    if single:
        shown = ", ".join(map(repr, single[:3]))
        if len(single) * 2 > len(classes):
            raise DataError(
                f"{held.folder / held.train} has {len(single)} labels in one row alone, for example {shown}, of {len(classes)} in {rows:,} rows; "
                f"expected most of them in two rows or more, to train and to validate on.\nDrop these rows, or merge labels. {EDIT}"
            )
        text = f"{len(single)} labels are in one row alone, which trains and never validates, for example {shown}"
        findings.append(Finding(WARNING, "single", text))
    rare = [name for name, count in classes if 2 <= count < RARE]
    if rare:
        text = f"{len(rare)} labels have fewer than {RARE} rows, for example {', '.join(map(repr, rare[:3]))}"
        findings.append(Finding(WARNING, "rare", text))
    metric, sign = _of_classes(dict(classes), asked)
    return Goal("classes", classes, metric, (*findings, *_metric("classes", metric, sign)))


def _of_classes(classes: dict[str, int], asked: pd.DataFrame) -> tuple[str, str]:
    """Return the metric that the sample's form hints at, and the hint."""
    if asked.shape[1] > 1:
        return (
            "log_loss",
            "; the sample has a column for each label, so probabilities are asked for",
        )
    texts = asked.iloc[:, 0]
    if texts.iloc[0] not in classes:
        ranked = texts.iloc[0].split()
        if len(ranked) > 1 and set(ranked) <= set(classes):
            return (
                f"map@{len(ranked)}",
                f"; the sample names {len(ranked)} labels a row, the likeliest first",
            )
        if (
            len(classes) == 2
            and np.isfinite(numbers(texts)).all()
            and any(not _whole(text) for text in texts)
        ):
            return "auc", f"; the sample says {texts.iloc[0]}, so a probability is asked for"
    return "accuracy", ""


def _whole(text: str) -> bool:
    return math.isfinite(float(text)) and "." not in text


def _tags(column: pd.Series) -> bool:
    """Return whether these are several labels a row, with blanks between: they combine fewer words
    than there are texts.
    """
    texts = set(column)
    words = {word for text in texts for word in text.split()}
    return any(len(text.split()) > 1 for text in texts) and len(words) < len(texts)


def _metric(target: str, taken: str, sign: str) -> tuple[Finding, ...]:
    text = f"what is scored stands on the competition's page alone; {taken} is taken for {target}{sign}. Correct metric in the config"
    return (Finding(UNKNOWN, "metric", text),)

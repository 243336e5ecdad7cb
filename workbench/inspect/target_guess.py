"""What a competition predicts: the kind of target, its classes, and the likely metric."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pipeline.data import labels
from pipeline.errors import DataError
from pipeline.evaluate import metrics
from workbench.inspect import column_types, unsupported
from workbench.inspect.column_types import numbers
from workbench.inspect.tables import CHOSEN, FOUND, UNKNOWN, WARNING, Contents, Finding

SOME = 50  # distinct whole numbers: up to so many are classes
RARE = 10  # rows: a class with fewer is named
SHOWN = 40  # characters of a label in a message
# Between several labels of a row; labels may hold those that come later.
SEPARATORS = ("|", ";", ",", " ")
FIX = "Correct the table, or name another column: --label COLUMN"

# Pairs of labels of which the second in alphabetical order is the positive one to everybody.
OBVIOUS = ({"0", "1"}, {"no", "yes"}, {"false", "true"}, {"f", "t"}, {"n", "y"})


@dataclass(frozen=True)
class TargetGuess:
    """What to predict.

    Attributes:
        kind: of `pipeline.data.labels`.
        classes: (label, rows), the most frequent first; () for a regression.
        metric: a name of `pipeline.evaluate.metrics`.
        findings: with the reasons.
        separator: between several labels in one text.
        sure: whether somebody gave the metric.
    """

    kind: str
    classes: tuple[tuple[str, int], ...]
    metric: str
    findings: tuple[Finding, ...]
    separator: str = " "
    sure: bool = False

    @property
    def majority(self) -> float:
        """The share of the rows with the most frequent label; 0 for a regression."""
        return self.classes[0][1] / sum(count for _, count in self.classes) if self.classes else 0.0


def read(contents: Contents) -> TargetGuess:
    """Return what to predict.

    Raises:
        DataError: if rows have no label, if all have the same one, or if several label columns are
            neither 0 and 1 nor numbers.
    """
    table = contents.train_table[list(contents.labels)]
    path = contents.folder / contents.train
    empty = (table.apply(lambda column: column.str.strip()) == "").sum()
    name, count = str(empty.idxmax()), int(empty.max())
    if count == len(table):
        raise DataError(f"{path} has no label in {name!r} in any row; expected one in each.\n{FIX}")
    if count and len(contents.labels) == 1 and not _separator(table[name]):
        unsupported.refuse_masks(path, table, [name], called=True)
        raise DataError(
            f"{path} has {count:,} rows without a label in {name!r}; expected one in each.\n"
            f"Fill them in, or remove those rows. {FIX}"
        )
    if len(contents.labels) > 1:
        return _several(contents, table)
    return _one(contents, table[contents.labels[0]])


def scored_by(target: TargetGuess, metric: str) -> TargetGuess:
    """Return a target with the metric that somebody gave.

    Raises:
        ConfigError: if that cannot score it.
    """
    name = metrics.find(metric, target.kind).name
    others = (finding for finding in target.findings if finding.about != "metric")
    given = Finding(CHOSEN, "metric", f"{name}, as --metric says")
    return replace(target, metric=name, findings=(*others, given), sure=True)


def _several(contents: Contents, table: pd.DataFrame) -> TargetGuess:
    every = {str(name): numbers(table[name]) for name in table}
    bad = [name for name, values in every.items() if not np.isfinite(values).all()]
    if bad:
        raise DataError(
            f"{contents.folder / contents.train} has texts that are no numbers in {bad[0]!r}, one "
            f"of {len(every)} label columns; expected 0 or 1, or numbers.\n{FIX}"
        )
    if not all(np.isin(values, (0, 1)).all() for values in every.values()):
        return _guess("regression", (), "rmse", f"{len(every)} columns of numbers")
    counts = {name: int(values.sum()) for name, values in every.items()}
    sums = np.sum(list(every.values()), axis=0)
    text = f"{len(every)} columns of 0 and 1, {sums.mean():.2g} labels per row on average"
    if (sums == 1).all():
        text += "; each row has exactly one, so this may be one choice of many"
    return _guess("multilabel", tuple(Counter(counts).most_common()), "auc", text)


def _one(contents: Contents, column: pd.Series) -> TargetGuess:
    counts = Counter(column)
    path = contents.folder / contents.train
    if len(counts) < 2:
        raise DataError(
            f"{path} has the same label in {column.name!r} in all {len(column):,} rows: "
            f"{column.iloc[0]!r}; expected at least two.\n{FIX}"
        )
    asked = contents.sample_table.iloc[:, 1:]
    separator = _separator(counts)
    # Texts with equally many words, one of which the sample has, are names, as of species.
    lengths = {len(labels.parts(text, separator or " ")) for text in counts}
    names = len(lengths) == 1 and min(counts.values()) > 1 and asked.iloc[0, 0] in counts
    if separator and not names:
        tags = Counter(tag for text in column for tag in labels.parts(text, separator))
        between = "spaces" if separator == " " else f"label_separator={separator!r}"
        either = (
            f'if each text is one label, set target="classes", num_classes={len(counts)} and '
            'metric="accuracy"'
        )
        return _guess(
            "multilabel",
            tuple(tags.most_common()),
            "f1",
            f"{len(tags)} labels with {between} between, in {len(counts):,} combinations",
            Finding(UNKNOWN, "labels", either),
            reason="the sample submission has one column of labels",
            separator=separator,
        )
    values = numbers(column)
    number = bool(np.isfinite(values).all())
    whole = number and bool((values == np.floor(values)).all())
    decimals = (
        asked.shape[1] == 1
        and not any("." in text for text in counts)
        and asked.iloc[:, 0].str.contains(".", regex=False).all()
    )
    # Many amounts occur once, few names do.
    once = sum(count < 2 for count in counts.values())
    why = ""
    if number and (not whole or len(counts) > SOME):
        why = f"{len(counts):,} distinct numbers"
    elif number and len(counts) > 2 and decimals:
        why = "whole numbers, and the sample submission has decimals"
    elif number and len(counts) > 2 and once > 1 and once * 5 >= len(counts):
        why = "whole numbers, some in only one row: no model learns a class from one row"
    if why:
        low, middle, high = np.quantile(values, (0, 0.5, 1))
        text = f"{why}, {low:.4g} to {high:.4g}, median {middle:.4g}"
        either = (
            f"if each of the {len(counts):,} numbers is the name of a class, set "
            f'target="classes", num_classes={len(counts)} and metric'
        )
        repeated = whole and not decimals and len(counts) * 2 <= len(column)
        more = [Finding(UNKNOWN, "labels", either)] if repeated else []
        return _guess("regression", (), "rmse", text, *more)
    if not number and column_types.commas(column):
        raise DataError(
            f"{path} has {column_types.WITH_COMMAS} in {column.name!r}, such as "
            f"{next(text for text in counts if ',' in text)!r}; expected labels that are numbers.\n"
            f"In a copy, {column_types.WITHOUT_COMMAS}. {FIX}"
        )
    if words := unsupported.prose(column):
        what = f"{path} has texts of about {words} words to predict in {column.name!r}"
        raise unsupported.text(what)
    return _classes(contents, counts, whole, asked)


def _classes(
    contents: Contents, counts: Counter[str], whole: bool, asked: pd.DataFrame
) -> TargetGuess:
    classes = tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    rows = counts.total()
    findings = []
    if whole and len(classes) > 2:
        text = (
            'the labels are whole numbers. If their order counts, set target="ordinal"; if they '
            'are amounts, target="regression"'
        )
        findings.append(Finding(UNKNOWN, "order", text))
    (most, most_rows), (least, least_rows) = classes[0], classes[-1]
    text = (
        f"{_shown(most)} has {most_rows / rows:.1%} of the rows, {_shown(least)} "
        f"{least_rows / rows:.1%}; "
        f"majority-class baseline: {most_rows / rows:.1%}"
    )
    findings.append(Finding(FOUND, "balance", text))
    single = [name for name, count in classes if count < 2]
    examples = ", ".join(map(_shown, single[:3]))
    if len(single) * 2 > len(classes):
        raise DataError(
            f"{contents.folder / contents.train} has {len(single)} labels in only one row, for "
            f"example {examples}, of {len(classes)} labels in {rows:,} rows; expected most of them "
            "in two rows or more, to train and to validate.\n"
            f"Drop these rows, or merge labels. {FIX}"
        )
    if single:
        text = f"{len(single)} labels have only one row, which cannot validate, for example "
        findings.append(Finding(WARNING, "single", text + examples))
    rare = [name for name, count in classes if 2 <= count < RARE]
    if rare:
        shown = ", ".join(map(_shown, rare[:3]))
        text = f"{len(rare)} labels have fewer than {RARE} rows, for example {shown}"
        findings.append(Finding(WARNING, "rare", text))
    metric, reason = _metric(dict(classes), asked)
    names, (column, *_) = sorted(name for name, _ in classes), asked.columns
    if metric == "auc" and column not in names and {*map(str.lower, names)} not in OBVIOUS:
        text = (
            f"{column!r} will hold the probability of {names[1]!r}, the second of two labels; if it"
            f" is about the other, set data.positive_label={names[0]!r}"
        )
        findings.append(Finding(UNKNOWN, "positive", text))
    text = f"{len(classes)} labels in {rows:,} rows"
    return _guess("classes", classes, metric, text, *findings, reason=reason)


def _shown(label: str) -> str:
    """Return a label for a message, in quotes: the beginning of a long one.

    >>> _shown("cat"), _shown("1 2 " * 9_000)
    ("'cat'", "'1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 …'")
    """
    return repr(label if len(label) <= SHOWN else f"{label[:SHOWN].rstrip()} …")


def _metric(classes: dict[str, int], asked: pd.DataFrame) -> tuple[str, str]:
    """Return the metric that the form of the sample submission suggests, and the reason."""
    if asked.shape[1] > 1:
        return "log_loss", "the sample submission has a column of probabilities for each label"
    texts = asked.iloc[:, 0]
    first = texts.iloc[0]
    ranked = first.split()
    if first in classes:
        return "accuracy", ""
    if len(ranked) > 1 and set(ranked) <= set(classes):
        reason = f"the sample submission ranks {len(ranked)} labels per row"
        return f"map@{len(ranked)}", reason
    decimals = any("." in text for text in texts)
    if len(classes) == 2 and decimals and np.isfinite(numbers(texts)).all():
        return "auc", f"the sample submission has a probability, {first}"
    return "accuracy", ""


def _separator(column: Collection[str]) -> str:
    """Return what stands between several labels in a text, "" where each text is one label.

    Several labels are fewer distinct parts than distinct texts. Numbers with commas are numbers.

    >>> [_separator(texts) for texts in (["a b", "b", "c a"], ["a| b c", "b c", "a", "b c| a"])]
    ['', '| ']
    >>> _separator(["a b", "b", "a", "b a"]), _separator(["1,5", "2,5", "1,2", "5"])
    (' ', '')
    """
    texts = set(column)
    for separator in SEPARATORS:
        several = [text for text in texts if len(labels.parts(text, separator)) > 1]
        words = {word for text in texts for word in labels.parts(text, separator)}
        if several and len(words) < len(texts):
            if separator == "," and column_types.commas(pd.Series(several)):
                continue
            # With the spaces beside it, as a submission should write it.
            beside = re.escape(separator)
            found = Counter(hit for text in several for hit in re.findall(rf" *{beside} *", text))
            return separator if separator == " " else found.most_common(1)[0][0]
    return ""


def _guess(
    kind: str,
    classes: tuple[tuple[str, int], ...],
    metric: str,
    text: str,
    *more: Finding,
    reason: str = "",
    separator: str = " ",
) -> TargetGuess:
    """Return a target with its findings. `reason`: for the metric."""
    default = (
        f"the metric is only on the competition page; defaulting to {metric} for {kind}"
        f"{': ' + reason if reason else ''}. Give it, and the baseline is measured in it: "
        "--metric NAME"
    )
    findings = (
        Finding(CHOSEN, "target", f"{kind}: {text}"),
        *more,
        Finding(UNKNOWN, "metric", default),
    )
    return TargetGuess(kind, classes, metric, findings, separator)

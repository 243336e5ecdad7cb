"""What to predict: the kind of target, its classes, and the likely metric."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pipeline.data import csv_files, labels
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics
from workbench.inspect import columns, refusals
from workbench.inspect.columns import numbers
from workbench.inspect.folder import Findings, counted
from workbench.inspect.tables import Contents

SOME = 50  # distinct whole numbers: up to this many are classes
RARE = 10  # rows: a class with fewer is reported
MASKED = "dice"  # the metric of masks, a function in the proposed config
SHOWN = 40  # characters of a label in a message
# Separators of several labels in a row; labels may contain those that come later.
SEPARATORS = ("|", ";", ",", " ")
FIX = "Correct the table, or name another column: --label COLUMN"

# Pairs of labels whose second one, in alphabetical order, everybody takes for the positive one.
OBVIOUS = ({"0", "1"}, {"no", "yes"}, {"false", "true"}, {"f", "t"}, {"n", "y"})


@dataclass(frozen=True)
class TargetGuess:
    """What to predict.

    Attributes:
        kind: of `pipeline.data.labels`.
        metric: a name of `pipeline.evaluate.metrics`.
        classes: {label: rows}, the most frequent first; {} for a regression.
        separator: between several labels in one text.
        reason: for the metric; "" if it is only the usual one.
        sure: whether the user named the metric.
    """

    kind: str
    metric: str
    classes: dict[str, int]
    separator: str = " "
    reason: str = ""
    sure: bool = False


def read(contents: Contents, metric: str, findings: Findings) -> TargetGuess:
    """Return what to predict, and add findings on it.

    Args:
        metric: that the user named; "": the likely one.

    Raises:
        DataError: if rows have no label, if all have the same one, or if one of several label
            columns has texts.
        ConfigError: if the metric cannot score such labels.
    """
    if contents.masks:
        return _of_masks(contents, metric, findings)
    table = contents.table[list(contents.labels)]
    path = contents.folder / contents.train
    empty = (table.apply(lambda column: column.str.strip()) == "").sum()
    name, count = str(empty.idxmax()), int(empty.max())
    if count == len(table):
        what = f"{counted(count, 'row')}, none with a label in {name!r}"
        raise DataError(f"{path} has {what}; expected one in each.\n{FIX}")
    several = len(contents.labels) > 1
    if count and not several and not separator_of(table[name]):
        raise DataError(
            f"{path} has {counted(count, 'row')} without a label in {name!r}; expected one in "
            f"each.\nFill them in, or remove these rows. {FIX}"
        )
    made = _of_columns(table, contents, findings) if several else _of_one(table, contents, findings)
    if metric:
        known = metrics.find(metric, made.kind).name
        findings.chosen("metric", f"{known}, by --metric")
        return replace(made, metric=known, sure=True)
    why = f": {made.reason}" if made.reason else ""
    text = f"the metric is only on the competition page; defaulting to {made.metric} for "
    text += f"{made.kind}{why}. To measure the baseline in another one: --metric NAME"
    findings.unknown("metric", text)
    return made


def _of_masks(contents: Contents, metric: str, findings: Findings) -> TargetGuess:
    """Return the target for masks in run lengths."""
    if metric not in ("", MASKED):
        raise ConfigError(
            f"--metric {metric}: masks are scored by {MASKED}.\nLeave it out, and change the "
            "function in the proposed config (docs/segmentation.md)."
        )
    texts = contents.table[contents.labels[0]].str.strip()
    empty = int(texts.isin(("-1", *csv_files.MISSING)).sum())
    text = f"a mask for each of {len(texts):,} pictures, {empty:,} of them empty"
    findings.chosen("target", text)
    text = f"{MASKED}, at the size that pictures are read in. If the competition page has another "
    findings.unknown("metric", f"{text}metric, write it into the config")
    return TargetGuess("custom", MASKED, {}, sure=bool(metric))


def _of_columns(table: pd.DataFrame, contents: Contents, findings: Findings) -> TargetGuess:
    """Return the target for several columns of labels."""
    values = table.apply(numbers)
    bad = [name for name in values if not np.isfinite(values[name]).all()]
    if bad:
        raise DataError(
            f"{contents.folder / contents.train} has texts in {bad[0]!r}, one of "
            f"{len(table.columns)} label columns; expected numbers.\n{FIX}"
        )
    if not values.isin((0, 1)).all(axis=None):
        text = f"regression: {len(table.columns)} columns of numbers"
        findings.chosen("target", text)
        return TargetGuess("regression", "rmse", {})
    sums = values.sum(axis=1)
    text = f"{len(table.columns)} columns of 0 and 1, {sums.mean():.2g} labels per row on average"
    if (sums == 1).all():
        text += "; each row has exactly one, so these may be classes"
    findings.chosen("target", f"multilabel: {text}")
    counts = {str(name): int(values[name].sum()) for name in values}
    return TargetGuess("multilabel", "auc", dict(Counter(counts).most_common()))


def _of_one(table: pd.DataFrame, contents: Contents, findings: Findings) -> TargetGuess:
    """Return the target for one column of labels."""
    column, path = table.iloc[:, 0], contents.folder / contents.train
    counts, asked = Counter(column), contents.sample_table.iloc[:, 1:]
    if len(counts) < 2:
        raise DataError(
            f"{path} has the same label in {column.name!r} in all {len(column):,} rows: "
            f"{column.iloc[0]!r}; expected at least two.\n{FIX}"
        )
    separator = separator_of(counts)
    # Texts with equally many words, one of them in the sample, are names, such as species.
    lengths = {len(labels.parts(text, separator or " ")) for text in counts}
    names = len(lengths) == 1 and min(counts.values()) > 1 and asked.iloc[0, 0] in counts
    if separator and not names:
        tags = Counter(tag for text in column for tag in labels.parts(text, separator))
        between = "spaces" if separator == " " else f"label_separator={separator!r}"
        text = f"{len(tags)} labels, separated by {between}, in {len(counts):,} combinations"
        findings.chosen("target", f"multilabel: {text}")
        text = f'if each text is one label, set target="classes", num_classes={len(counts)} and '
        findings.unknown("labels", text + 'metric="accuracy"')
        reason = "the sample submission has one column of labels"
        return TargetGuess("multilabel", "f1", dict(tags.most_common()), separator, reason)
    values = numbers(column)
    number = bool(np.isfinite(values).all())
    whole = number and bool((values == np.floor(values)).all())
    decimals = (
        asked.shape[1] == 1
        and not any("." in text for text in counts)
        and asked.iloc[:, 0].str.contains(".", regex=False).all()
    )
    # Many amounts occur only once, few names do.
    once, why = sum(count < 2 for count in counts.values()), ""
    if number and (not whole or len(counts) > SOME):
        why = f"{len(counts):,} distinct numbers"
    elif number and len(counts) > 2 and decimals:
        why = "whole numbers, and the sample submission has decimals"
    elif number and len(counts) > 2 and once > 1 and once * 5 >= len(counts):
        why = "whole numbers, some in only one row: no model learns a class from one row"
    if why:
        low, middle, high = np.quantile(values, (0, 0.5, 1))
        text = f"regression: {why}, {low:.4g} to {high:.4g}, median {middle:.4g}"
        findings.chosen("target", text)
        if whole and not decimals and len(counts) * 2 <= len(column):
            text = f"if each of the {len(counts):,} numbers is the name of a class, set "
            text += f'target="classes", num_classes={len(counts)} and metric'
            findings.unknown("labels", text)
        return TargetGuess("regression", "rmse", {})
    if not number and columns.commas(column):
        raise DataError(
            f"{path} has numbers with commas in {column.name!r}, such as "
            f"{next(text for text in counts if ',' in text)!r}; expected labels that are numbers.\n"
            f"In a copy, {columns.PLAIN}. {FIX}"
        )
    if words := refusals.prose(column):
        raise DataError(
            f"{path} has texts of about {words} words to predict in {column.name!r}; expected "
            f"labels or numbers.\nWrite the config by hand, as docs/text.md shows. {FIX}"
        )
    classes = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    _describe_classes(classes, str(path), findings, whole=whole)
    return _scored(classes, asked, findings)


def _describe_classes(
    classes: dict[str, int], table: str, findings: Findings, *, whole: bool
) -> None:
    """Add findings on classes. Raises `DataError` if most of them have only one row.

    Args:
        classes: {label: rows}, the most frequent first.
        table: with the labels, for the message.
        whole: whether all labels are whole numbers.
    """
    rows, single = sum(classes.values()), [name for name in classes if classes[name] < 2]
    findings.chosen("target", f"classes: {len(classes)} labels in {rows:,} rows")
    if whole and len(classes) > 2:
        text = 'labels are whole numbers. If their order counts, set target="ordinal"; if they are '
        findings.unknown("order", text + 'amounts, target="regression"')
    (most, *_, least), share = classes, max(classes.values()) / rows
    text = f"{_shown(most)} has {share:.1%} of the rows (the majority-class baseline), "
    findings.found("balance", f"{text}{_shown(least)} {classes[least] / rows:.1%}")
    examples = ", ".join(map(_shown, single[:3]))
    if len(single) * 2 > len(classes):
        raise DataError(
            f"{table} has {counted(len(single), 'label')} in only one row, for example {examples}, "
            f"of {len(classes)} labels in {rows:,} rows; expected most of them in two rows or more."
            f"\nDrop these rows, or merge labels. {FIX}"
        )
    if single:
        text = f"{counted(len(single), 'label')} with only one row, which cannot validate"
        findings.warning("single", f"{text}, for example {examples}")
    if rare := [name for name in classes if 2 <= classes[name] < RARE]:
        text = f"{counted(len(rare), 'label')} with fewer than {RARE} rows, for example "
        findings.warning("rare", text + ", ".join(map(_shown, rare[:3])))


def _scored(classes: dict[str, int], asked: pd.DataFrame, findings: Findings) -> TargetGuess:
    """Return the target for classes, with the metric that the sample submission suggests.

    Args:
        asked: the sample submission without its ids.
    """
    texts, names = asked.iloc[:, 0], sorted(classes)
    first, ranked = texts.iloc[0], texts.iloc[0].split()
    metric, reason = "accuracy", ""
    if asked.shape[1] > 1:
        reason = "the sample submission has a column of probabilities for each label"
        metric = "log_loss"
    elif first in classes:
        pass
    elif len(ranked) > 1 and set(ranked) <= set(classes):
        reason = f"the sample submission ranks {len(ranked)} labels per row"
        metric = f"map@{len(ranked)}"
    elif len(classes) == 2 and "." in "".join(texts) and np.isfinite(numbers(texts)).all():
        metric, reason = "auc", f"the sample submission has a probability, {first}"
    column = asked.columns[0]
    if metric == "auc" and column not in names and {*map(str.lower, names)} not in OBVIOUS:
        text = f"{column!r} will hold the probability of {names[1]!r}. If it is about the other "
        findings.unknown("positive", f"{text}label, set data.positive_label={names[0]!r}")
    return TargetGuess("classes", metric, classes, reason=reason)


def _shown(label: str) -> str:
    """Return a label in quotes for a message, shortened if long.

    >>> _shown("cat"), _shown("1 2 " * 9_000)
    ("'cat'", "'1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 …'")
    """
    return repr(label if len(label) <= SHOWN else f"{label[:SHOWN].rstrip()} …")


def separator_of(column: Collection[str]) -> str:
    """Return the separator of several labels in a text, or "" if each text is one label.

    Texts hold several labels if they have fewer distinct parts than there are distinct texts.
    Numbers with commas are numbers.

    >>> [separator_of(each) for each in (["a b", "b", "c a"], ["a| b c", "b c", "a", "b c| a"])]
    ['', '| ']
    >>> separator_of(["a b", "b", "a", "b a"]), separator_of(["1,5", "2,5", "1,2", "5"])
    (' ', '')
    """
    texts = set(column)
    for separator in SEPARATORS:
        several = [text for text in texts if len(labels.parts(text, separator)) > 1]
        words = {word for text in texts for word in labels.parts(text, separator)}
        if several and len(words) < len(texts):
            if separator == "," and columns.commas(pd.Series(several)):
                continue
            # With the spaces around it, as a submission should have them.
            beside = re.escape(separator)
            found = Counter(hit for text in several for hit in re.findall(rf" *{beside} *", text))
            return separator if separator == " " else found.most_common(1)[0][0]
    return ""

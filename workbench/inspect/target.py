"""Determine the kind of target, the classes and a likely metric."""

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

SOME = 50  # up to this many distinct whole numbers are read as classes
NEAR = 0.01  # the sum of a row's rounded probabilities can differ from 1 by this much
RARE = 10  # classes with fewer rows are reported
MASKED = "dice"  # the metric for masks, defined in the proposed config
SHOWN = 40  # maximum length of a label in a message, in characters
# Label separators. Labels can contain the separators that come later in this list.
SEPARATORS = ("|", ";", ",", " ")
FIX = "Correct the table, or select another column: --label COLUMN"

# Pairs of labels of which one is obviously positive. It comes second in alphabetical order.
OBVIOUS = ({"0", "1"}, {"no", "yes"}, {"false", "true"}, {"f", "t"}, {"n", "y"})


@dataclass(frozen=True)
class TargetGuess:
    """The target that inspect proposes.

    Attributes:
        kind: kind of target, as defined in `pipeline.data.labels`.
        metric: name of a metric in `pipeline.evaluate.metrics`.
        classes: number of rows for each label, in descending order, or {} for regression.
        separator: separator between several labels in one text.
        reason: why the metric was chosen, or "" if it is the default for this kind of target.
        sure: whether the user specified the metric.
    """

    kind: str
    metric: str
    classes: dict[str, int]
    separator: str = " "
    reason: str = ""
    sure: bool = False


def read(contents: Contents, metric: str, findings: Findings) -> TargetGuess:
    """Determine the target. `metric` is "" unless the user specified one.

    Raises:
        DataError: if rows have no label, if all rows have the same label, or if there are several
            label columns and one contains texts.
        ConfigError: if the metric cannot score these labels.
    """
    if contents.masks:
        return _of_masks(contents, metric, findings)
    table = contents.table[list(contents.labels)]
    path = contents.folder / contents.train
    empty = (table.apply(lambda column: column.str.strip()) == "").sum()
    name, count = str(empty.idxmax()), int(empty.max())
    if count == len(table):
        what = f"no label in {name!r} in any of its {counted(count, 'row')}"
        raise DataError(f"{path} has {what}. Every row must have a label.\n{FIX}")
    several = len(contents.labels) > 1
    if count and not several and not separator_of(table[name]):
        raise DataError(
            f"{path} has {counted(count, 'row')} without a label in {name!r}. Every row must have "
            f"one.\nAdd the missing labels, or remove the rows without a label. {FIX}"
        )
    if several:
        made = _of_columns(table, contents, metric, findings)
    else:
        made = _of_one(table, contents, findings)
    if metric:
        known = metrics.find(metric, made.kind).name
        findings.chosen("metric", f"{known}, set by --metric")
        return replace(made, metric=known, sure=True)
    why = f", because {made.reason}" if made.reason else ""
    text = f"using {made.metric} as the default for {made.kind}{why}. If the competition page "
    text += "specifies another metric, pass --metric NAME"
    findings.unknown("metric", text)
    return made


def _of_masks(contents: Contents, metric: str, findings: Findings) -> TargetGuess:
    if metric not in ("", MASKED):
        raise ConfigError(
            f"Invalid --metric {metric}: masks are always scored by {MASKED}.\nOmit the option, "
            f"and edit the function {MASKED} in the proposed config (docs/segmentation.md)."
        )
    texts = contents.table[contents.labels[0]].str.strip()
    empty = int(texts.isin(("-1", *csv_files.MISSING)).sum())
    text = f"a mask for each of {len(texts):,} images, of which {empty:,} are empty"
    findings.chosen("target", text)
    text = f"using {MASKED}, computed at the network's input size. If the competition page "
    findings.unknown("metric", f"{text}specifies another metric, define it in the config")
    return TargetGuess("custom", MASKED, {}, sure=bool(metric))


def shares_of_classes(values: pd.DataFrame, contents: Contents, metric: str) -> str:
    """Return the evidence that label columns contain votes or class probabilities, or "".

    Args:
        values: the label columns as finite numbers.
        metric: the metric that the user specified, or "".
    """
    sums, asked = values.sum(axis=1), contents.sample_table.iloc[:, 1:]
    if metric:
        try:
            if metrics.find(metric, "classes").takes != "scores":
                return ""
        except ConfigError:  # it scores numbers
            return ""
    if (values < 0).any(axis=None) or (sums == 0).any():
        return ""
    of_sample = np.abs(asked.apply(numbers).sum(axis=1) - 1).max()
    one_label, binary = np.abs(sums - 1).max() < NEAR, values.isin((0, 1)).all(axis=None)
    probabilities = contents.sample is not None and asked.shape[1] > 1 and of_sample < NEAR
    if one_label and (probabilities or not binary):
        return f"each row sums to 1{' in the sample submission, too' if probabilities else ''}"
    whole = (values == np.floor(values)).all(axis=None) and not binary
    if whole and metric == "kl_divergence":
        return "they are whole numbers, scored by kl_divergence"
    if whole and probabilities:
        return "they are whole numbers, and each row of the sample submission sums to 1"
    return ""


def _of_shares(values: pd.DataFrame, why: str, findings: Findings) -> TargetGuess:
    hard = values.isin((0, 1)).all(axis=None)
    text = f"classes, with votes or probabilities (soft labels) in {len(values.columns)} columns, "
    text += f"because {why}. If a row can belong to several classes, set "
    findings.chosen("target", text + f'target="{"multilabel" if hard else "regression"}"')
    counts = dict.fromkeys(map(str, values), 0) | Counter(values.idxmax(axis=1).map(str))
    classes = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
    most, *_ = classes
    text = f"{_shown(most)} has the most votes in {classes[most] / len(values):.1%} of the rows"
    findings.found("balance", text)
    reason = "each class has a column"
    return TargetGuess("classes", "log_loss" if hard else "kl_divergence", classes, reason=reason)


def _of_columns(
    table: pd.DataFrame, contents: Contents, metric: str, findings: Findings
) -> TargetGuess:
    values = table.apply(numbers)
    bad = [name for name in values if not np.isfinite(values[name]).all()]
    if bad:
        raise DataError(
            f"{contents.folder / contents.train} has texts in {bad[0]!r}, but all "
            f"{len(table.columns)} label columns must contain numbers.\n{FIX}"
        )
    if why := shares_of_classes(values, contents, metric):
        return _of_shares(values, why, findings)
    if not values.isin((0, 1)).all(axis=None):
        text = f"regression with {len(table.columns)} numeric columns"
        findings.chosen("target", text)
        return TargetGuess("regression", "rmse", {})
    sums = values.sum(axis=1)
    text = f"{len(table.columns)} columns of 0 and 1, with {sums.mean():.2g} labels per row on "
    text += "average"
    if (sums == 1).all():
        text += ". Every row has exactly one label, so the columns may be classes"
    findings.chosen("target", f"multilabel: {text}")
    counts = {str(name): int(values[name].sum()) for name in values}
    return TargetGuess("multilabel", "auc", dict(Counter(counts).most_common()))


def _of_one(table: pd.DataFrame, contents: Contents, findings: Findings) -> TargetGuess:
    column, path = table.iloc[:, 0], contents.folder / contents.train
    counts, asked = Counter(column), contents.sample_table.iloc[:, 1:]
    if len(counts) < 2:
        raise DataError(
            f"{path} has only one label in {column.name!r} for all {len(column):,} rows: "
            f"{column.iloc[0]!r}. There must be at least two different labels.\n{FIX}"
        )
    separator = separator_of(counts)
    # If all texts have the same number of words and one is in the sample, they are names, such as
    # species names.
    lengths = {len(labels.parts(text, separator or " ")) for text in counts}
    names = len(lengths) == 1 and min(counts.values()) > 1 and asked.iloc[0, 0] in counts
    if separator and not names:
        tags = Counter(tag for text in column for tag in labels.parts(text, separator))
        between = "spaces" if separator == " " else f"label_separator={separator!r}"
        text = f"{len(tags)} labels in {len(counts):,} combinations, separated by {between}"
        findings.chosen("target", f"multilabel: {text}")
        text = 'if each text is a single label, set target="classes", '
        text += f'num_classes={len(counts)} and metric="accuracy"'
        findings.unknown("labels", text)
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
    # Amounts often occur only once, but names rarely do.
    once, why = sum(count < 2 for count in counts.values()), ""
    if number and (not whole or len(counts) > SOME):
        why = f"there are {len(counts):,} distinct numbers"
    elif number and len(counts) > 2 and decimals:
        why = "the sample submission has decimals, although labels are whole numbers"
    elif number and len(counts) > 2 and once > 1 and once * 5 >= len(counts):
        why = "some of the whole numbers occur in only one row, which is too few to learn a class"
    if why:
        low, middle, high = np.quantile(values, (0, 0.5, 1))
        text = f"regression, because {why} (range {low:.4g} to {high:.4g}, median {middle:.4g})"
        findings.chosen("target", text)
        if whole and not decimals and len(counts) * 2 <= len(column):
            text = f"if the {len(counts):,} numbers are class names rather than amounts, set "
            text += f'target="classes", num_classes={len(counts)} and metric'
            findings.unknown("labels", text)
        return TargetGuess("regression", "rmse", {})
    if not number and columns.commas(column):
        raise DataError(
            f"{path} has numbers with commas in {column.name!r}, such as "
            f"{next(text for text in counts if ',' in text)!r}. Labels must be plain numbers.\n"
            f"In a copy of the table, {columns.PLAIN}. {FIX}"
        )
    if words := refusals.prose(column):
        raise DataError(
            f"{path} has texts of about {words} words in the label column {column.name!r}, but "
            "inspect supports only class labels and numbers.\n"
            f"Write the config yourself, as described in docs/text.md. {FIX}"
        )
    classes = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    _describe_classes(classes, str(path), findings, whole=whole)
    return _scored(classes, asked, findings)


def _describe_classes(
    classes: dict[str, int], table: str, findings: Findings, *, whole: bool
) -> None:
    rows, single = sum(classes.values()), [name for name in classes if classes[name] < 2]
    findings.chosen("target", f"classes, with {len(classes)} labels in {rows:,} rows")
    if whole and len(classes) > 2:
        text = 'labels are whole numbers. If their order matters, set target="ordinal"; if they '
        findings.unknown("order", text + 'are amounts, set target="regression"')
    (most, *_, least), share = classes, max(classes.values()) / rows
    text = f"{_shown(most)} is the label of {share:.1%} of the rows (the majority-class baseline), "
    text += f"and {_shown(least)} is the label of {classes[least] / rows:.1%}"
    findings.found("balance", text)
    examples = ", ".join(map(_shown, single[:3]))
    if len(single) * 2 > len(classes):
        raise DataError(
            f"{len(single)} of the {len(classes)} labels in {table} occur in only one row, for "
            f"example {examples}. Most labels must occur in at least two of the {rows:,} rows.\n"
            f"Remove these rows, or merge labels. {FIX}"
        )
    if single:
        text = f"{counted(len(single), 'label')} with only one row, which is too few for validation"
        findings.warning("single", f"{text}, for example {examples}")
    if rare := [name for name in classes if 2 <= classes[name] < RARE]:
        text = f"{counted(len(rare), 'label')} with fewer than {RARE} rows, for example "
        findings.warning("rare", text + ", ".join(map(_shown, rare[:3])))


def _scored(classes: dict[str, int], asked: pd.DataFrame, findings: Findings) -> TargetGuess:
    """Choose a metric for classes that suits the values in the sample submission."""
    texts, names = asked.iloc[:, 0], sorted(classes)
    first, ranked = texts.iloc[0], texts.iloc[0].split()
    metric, reason = "accuracy", ""
    if asked.shape[1] > 1:
        reason = "the sample submission has a probability column for each label"
        metric = "log_loss"
    elif first in classes:
        pass
    elif len(ranked) > 1 and set(ranked) <= set(classes):
        reason = f"the sample submission ranks {len(ranked)} labels per row"
        metric = f"map@{len(ranked)}"
    elif len(classes) == 2 and "." in "".join(texts) and np.isfinite(numbers(texts)).all():
        metric, reason = "auc", f"the sample submission has probabilities, such as {first}"
    column = asked.columns[0]
    if metric == "auc" and column not in names and {*map(str.lower, names)} not in OBVIOUS:
        text = f"{column!r} will be the probability of {names[1]!r}. If the other label is "
        text += f"the positive one, set data.positive_label={names[0]!r}"
        findings.unknown("positive", text)
    return TargetGuess("classes", metric, classes, reason=reason)


def _shown(label: str) -> str:
    """Quote a label, and shorten it if it is long.

    >>> _shown("cat"), _shown("1 2 " * 9_000)
    ("'cat'", "'1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 …'")
    """
    return repr(label if len(label) <= SHOWN else f"{label[:SHOWN].rstrip()} …")


def separator_of(column: Collection[str]) -> str:
    """Return the separator if texts contain several labels, or "" if each text is a single label.

    A separator is accepted if the split texts have fewer distinct parts than there are distinct
    texts. Commas within numbers are not separators.

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
            # Include the surrounding spaces, because a submission should have them too.
            beside = re.escape(separator)
            found = Counter(hit for text in several for hit in re.findall(rf" *{beside} *", text))
            return separator if separator == " " else found.most_common(1)[0][0]
    return ""

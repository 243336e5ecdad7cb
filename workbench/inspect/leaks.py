"""Causes of scores that are too good: duplicates, columns and ids that reveal the label, and rows
that may belong together.

No model reads ids, but they show how the data were made. Only a person knows whether rows with an
equal value belong to one patient or one scene.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from pipeline.data import duplicates as copies
from workbench.inspect.columns import CATEGORY, FEW, LEAST, NUMBER, REPEATS, Column, known, numbers
from workbench.inspect.folder import Findings, counted
from workbench.inspect.inputs import Inputs
from workbench.inspect.tables import Contents

MOST_NEAR = 5_000  # images of each set that are compared
MOST_PAIRS = 500_000  # similar pairs to compare: ten seconds. Frames of one camera are all similar
SIGMAS, SHUFFLES = 4.0, 20
CONTRADICT = ("classes", "multilabel")  # targets where two different labels contradict each other
GROUPS = re.compile(
    "patient|subject|person|user|customer|client|author|group|site|scene|session|series|study|"
    "location|record|video|family|house|camera",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Duplicate:
    """Two examples with the same content, or nearly the same.

    Attributes:
        one: position in `Inputs.train`.
        other: position in `Inputs.train`, or in `Inputs.test` if `test` is set.
        near: whether they are only nearly the same.
        conflicting: whether both have a label, and the labels differ.
    """

    one: int
    other: int
    test: bool
    near: bool
    conflicting: bool


class Duplicates(NamedTuple):
    """Duplicates, and whether all examples that were read were also compared."""

    pairs: tuple[Duplicate, ...]
    whole: bool


def duplicates(inputs: Inputs, labels: Sequence[str], kind: str, findings: Findings) -> Duplicates:
    """Return the duplicates, without those among test examples, and add findings on them.

    Args:
        labels: of all labelled rows.
        kind: of the target; different numbers are no conflict.
    """
    train, test = inputs.train, inputs.test
    count, whole = len(train.rows), True
    groups = copies.equal([*train.keys, *test.keys])
    pairs = [(group[0], other, False) for group in groups for other in group[1:]]
    if train.pixels is not None and test.pixels is not None:
        first = {place: group[0] for group in groups for place in group}
        pixels = train.pixels[:MOST_NEAR]
        every = np.concatenate([pixels, test.pixels[:MOST_NEAR]])
        among = copies.comparable(every, MOST_PAIRS)
        if len(among) < len(every):
            whole = False
            text = f"so many pictures are similar that only {len(among):,} of {len(every):,} were "
            text += "compared, and group_duplicates stays False. Set data.group_column"
            findings.warning("similar", text)
        for pair in copies.near(every, among):
            one, other = (p if p < len(pixels) else p - len(pixels) + count for p in pair)
            if first.get(one, one) != first.get(other, other):
                pairs.append((one, other, True))
    found = []
    for one, other, near in pairs:
        if other < count:
            differ = labels[train.rows[one]] != labels[train.rows[other]]
            found.append(Duplicate(one, other, False, near, differ and kind in CONTRADICT))
        elif one < count:
            found.append(Duplicate(one, other - count, True, near, False))
    _describe(found, inputs, findings)
    _describe_split(found, inputs, findings)
    return Duplicates(tuple(found), whole)


def _describe_split(found: Sequence[Duplicate], inputs: Inputs, findings: Findings) -> None:
    """Add a finding if training examples have copies among themselves far more often than test
    examples have among them: the two sets were not split at random.
    """
    train, test = len(inputs.train.rows), max(len(inputs.test.rows), 1)
    ours = {place for pair in found if not pair.test for place in (pair.one, pair.other)}
    within, across = len(ours) / train, len({pair.other for pair in found if pair.test}) / test
    error = (within * (1 - within) * (1 / train + 1 / test)) ** 0.5
    if within - across > SIGMAS * error:
        text = f"{within:.1%} of the training examples have a copy among them, and {across:.1%} of "
        text += "the test examples: it seems that each object, person or place lies on one side. "
        text += "Validation scores may be too good: if a column tells them apart, set "
        findings.warning("split", text + "data.group_column")


def _describe(found: Sequence[Duplicate], inputs: Inputs, findings: Findings) -> None:
    """Add findings on duplicates."""
    table = inputs.train.pixels is None
    what = "values in the columns that are used" if table else "content"
    if not found:
        text = f"none: no two examples have the same {what}"
        findings.found("duplicates", text + ("" if table else " or nearly the same picture"))
    for test, near in ((True, False), (False, False), (True, True), (False, True)):
        some = [pair for pair in found if (pair.test, pair.near) == (test, near)]
        other, number = inputs.test if test else inputs.train, len({pair.other for pair in some})
        ids = ", ".join(f"{inputs.train.id(p.one)} and {other.id(p.other)}" for p in some[:3])
        how = "nearly the same picture" if near else f"the same {what}"
        if some and test:
            text = f"{counted(number, 'test example')} with {how} as a training example: {ids}. A "
            findings.warning("leak", f"{text}score on such shows memory, not skill")
        elif some:
            text = f"{counted(number, 'training example')} with {how} as another one: {ids}; a "
            text += "split between them makes validation scores too good"
            if conflicting := sum(pair.conflicting for pair in some):
                text += f". {counted(conflicting, 'pair')} with different labels"
            findings.warning("duplicates", text)


def describe(
    contents: Contents, kind: str, inputs: Inputs, labels: Sequence[str], findings: Findings
) -> None:
    """Add findings on ids and columns that reveal the label, and on rows that may be related."""
    table, codes = contents.table, None
    if kind == "classes":
        # Sorted, since numbers in order of appearance rise with the ids.
        codes = pd.factorize(np.array(labels, object), sort=True)[0]
    elif kind == "regression" and len(contents.labels) == 1:
        codes = numbers(table[contents.labels[0]])
    if codes is not None and len(table) >= LEAST:
        if contents.ids is not None and not contents.source.class_folders:
            _describe_ids(inputs.train.ids, codes, findings)
        for column in inputs.columns:
            if _reveals(table[column.name], column, codes):
                text = f"{column.name!r} alone reveals the label of every row. If it is only known "
                findings.warning("leak", f"{text}after the label, remove it from the config")
    for name in map(
        str, table.drop(columns=[*contents.labels, contents.ids or ""], errors="ignore")
    ):
        sign = _sign_of_groups(name, table[name], contents.source.tested)
        if sign:
            text = f"{name!r}: {sign}. If rows with the same value are related (one patient, one "
            text += f"scene), set data.group_column={name!r}{_removal(name, inputs)}"
            findings.unknown("groups", text)


def _removal(name: str, inputs: Inputs) -> str:
    """Return where the config lists a column that is to become the groups, for a message."""
    for field in ("numeric_columns", "categorical_columns", "date_columns"):
        if name in getattr(inputs.data, field):
            return f", and remove it from {field}"
    values = inputs.reader.values if inputs.reader else {}
    if name in values.get("categories", ()):  # of a template
        width = len(values["categories"][name])
        return f", remove it from CATEGORIES, and {width} columns from custom_inputs"
    if name in values.get("numbers", ()):
        return ", remove it from NUMBERS, and 2 columns from custom_inputs"
    return ""


def _reveals(texts: pd.Series, column: Column, labels: np.ndarray) -> bool:
    """Return whether a column alone predicts every label.

    Args:
        texts: of the column.
        column: how it is read.
        labels: class numbers, int (n,), or numbers, float (n,).
    """
    classes = labels.dtype.kind in "iu"
    category = column.use == CATEGORY and classes and len(texts) >= 5 * column.distinct
    if column.distinct < 2 or not (category or column.use == NUMBER):
        return False
    values = texts.str.strip() if category else numbers(texts)
    table = pd.DataFrame({"value": values, "label": labels}).dropna()
    if len(table) < LEAST or table["label"].nunique() < 2:
        return False
    if not classes:
        return abs(table["value"].corr(table["label"], method="spearman")) > 0.9999
    once = (table.groupby("value")["label"].nunique() == 1).all()
    changes = (table.sort_values("value")["label"].diff() != 0).sum()
    return bool(once and (category or changes == table["label"].nunique()))


def _sign_of_groups(name: str, column: pd.Series, test: pd.DataFrame | None) -> str:
    """Return the sign that equal values of a column belong together, as of one patient; or ""."""
    tested = None if test is None else test.get(name)
    if tested is None and not GROUPS.search(name):
        return ""
    texts = known(column)
    values = texts.drop_duplicates()
    if not 2 < len(values) <= len(texts) / REPEATS:
        return ""
    if tested is not None and values.isin(known(tested)).all():  # the competition split them, too
        return ""
    apart = False
    if tested is not None and len(values) > FEW:
        fractions = (numbers(values) % 1 > 0).any()
        apart = not fractions and not values.isin(known(tested)).any()
    if not apart and not GROUPS.search(name):
        return ""
    sign = "none of them is in the test set" if apart else "its name"
    return f"{len(values):,} distinct texts in {len(texts):,} rows, and {sign}"


def _describe_ids(ids: Sequence[str], labels: np.ndarray, findings: Findings) -> None:
    """Add findings on ids that reveal the label.

    Args:
        labels: class numbers, int (n,), or numbers, float (n,).
    """
    last = [re.findall(r"\d+", text)[-1:] for text in ids]
    if all(last):
        order = np.argsort([int(each[0][-15:]) for each in last], kind="stable")
        ranks = pd.Series(labels[order]).rank().to_numpy()
        ranks = ranks - ranks.mean()
        strength = (ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum() * len(ids) ** 0.5
        if strength > SIGMAS:
            text = "sorted by the numbers in their ids, neighbours have similar labels "
            text += f"({strength:.0f} standard deviations more than by chance)"
            findings.warning("ids", text)
    stems = pd.Series([re.split(r"\d", text)[0] for text in ids])
    if labels.dtype.kind in "iu" and 1 < stems.nunique() <= len(ids) / 2:
        random, baseline = np.random.default_rng(0), np.bincount(labels).max() / len(ids)
        orders = [labels, *(random.permutation(labels) for _ in range(SHUFFLES))]
        right, *chance = (pd.crosstab(stems, each).max(axis=1).sum() / len(ids) for each in orders)
        if right > np.mean(chance) + SIGMAS * np.std(chance) + 0.05:
            text = f"the beginning of the id predicts the label of {right:.0%} of the rows "
            findings.warning("ids", f"{text}(majority-class baseline: {baseline:.0%})")

"""Detect data leaks, which make validation scores misleadingly good.

Leaks are caused by duplicates, by columns and ids that reveal the label, and by related rows.
Models do not use ids, but ids can show how the data was created.
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

MOST_NEAR = 5_000  # maximum number of images per set to compare
MOST_PAIRS = 500_000  # similar pairs to compare, which takes 10 s; video frames are all similar
SIGMAS, SHUFFLES = 4.0, 20
CONTRADICT = ("classes", "multilabel")  # targets whose labels can contradict each other
GROUPS = re.compile(
    "patient|subject|person|user|customer|client|author|group|site|scene|session|series|study|"
    "location|record|video|family|house|camera",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Duplicate:
    """Two examples with identical or almost identical content.

    Attributes:
        one: position in `Inputs.train`.
        other: position in `Inputs.train`, or in `Inputs.test` if `test` is set.
        near: whether they are only almost identical.
        conflicting: whether they have different labels.
    """

    one: int
    other: int
    test: bool
    near: bool
    conflicting: bool


class Duplicates(NamedTuple):
    """The pairs of duplicates, and whether all examples were compared."""

    pairs: tuple[Duplicate, ...]
    whole: bool


def duplicates(inputs: Inputs, labels: Sequence[str], kind: str, findings: Findings) -> Duplicates:
    """Find pairs of duplicates that include a training example, and add findings about them.

    For regression, duplicates with different labels do not conflict.
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
            text = f"only {len(among):,} of {len(every):,} images were compared, because too many "
            text += "are similar, so group_duplicates stays False. Set data.group_column instead"
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
    """Add a finding if the training and test sets do not seem to be split at random.

    Without a random split, duplicates are much more common within the training set than between
    the two sets.
    """
    train, test = len(inputs.train.rows), max(len(inputs.test.rows), 1)
    ours = {place for pair in found if not pair.test for place in (pair.one, pair.other)}
    within, across = len(ours) / train, len({pair.other for pair in found if pair.test}) / test
    error = (within * (1 - within) * (1 / train + 1 / test)) ** 0.5
    if within - across > SIGMAS * error:
        text = f"{within:.1%} of the training examples and {across:.1%} of the test examples have "
        text += "a duplicate in the training set. The test set seems to show different objects, "
        text += "people or places, so validation scores may be too good. If a column identifies "
        findings.warning("split", text + "them, set data.group_column")


def _describe(found: Sequence[Duplicate], inputs: Inputs, findings: Findings) -> None:
    table = inputs.train.pixels is None
    what = "values in all columns that are read" if table else "content"
    if not found:
        text = f"none; no two examples have the same {what}"
        findings.found("duplicates", text + ("" if table else " or almost identical images"))
    for test, near in ((True, False), (False, False), (True, True), (False, True)):
        some = [pair for pair in found if (pair.test, pair.near) == (test, near)]
        other, number = inputs.test if test else inputs.train, len({pair.other for pair in some})
        ids = ", ".join(f"{inputs.train.id(p.one)} and {other.id(p.other)}" for p in some[:3])
        how = "almost the same image" if near else f"the same {what}"
        if some and test:
            text = f"{counted(number, 'test example')} with {how} as a training example: {ids}. "
            findings.warning("leak", f"{text}A model can score well on these by memorizing labels")
        elif some:
            text = f"{counted(number, 'training example')} with {how} as another: {ids}. If "
            text += "a split separates them, validation scores are too good"
            if conflicting := sum(pair.conflicting for pair in some):
                text += f". Labels differ in {counted(conflicting, 'pair')}"
            findings.warning("duplicates", text)


def describe(
    contents: Contents, kind: str, inputs: Inputs, labels: Sequence[str], findings: Findings
) -> None:
    table, codes = contents.table, None
    if kind == "classes":
        # Sort labels first, because codes in order of appearance would increase with the ids.
        codes = pd.factorize(np.array(labels, object), sort=True)[0]
    elif kind == "regression" and len(contents.labels) == 1:
        codes = numbers(table[contents.labels[0]])
    if codes is not None and len(table) >= LEAST and len(set(labels)) > 1:
        if contents.ids is not None and not contents.source.class_folders:
            _describe_ids(inputs.train.ids, codes, findings)
        for column in inputs.columns:
            if _reveals(table[column.name], column, codes):
                text = f"{column.name!r} alone determines the label of every row. If its value is "
                text += "only available after the label, remove it from the config"
                findings.warning("leak", text)
    for name in map(
        str, table.drop(columns=[*contents.labels, contents.ids or ""], errors="ignore")
    ):
        sign = _sign_of_groups(name, table[name], contents.source.tested)
        if sign:
            text = f"{name!r} has {sign}. If rows with the same value are related (same patient or "
            text += f"scene), set data.group_column={name!r}{_removal(name, inputs)}"
            findings.unknown("groups", text)


def _removal(name: str, inputs: Inputs) -> str:
    for field in ("numeric_columns", "categorical_columns", "date_columns"):
        if name in getattr(inputs.data, field):
            return f", and remove it from {field}"
    values = inputs.reader.values if inputs.reader else {}
    if name in values.get("categories", ()):  # the config has a custom reader
        width = len(values["categories"][name])
        return f", remove it from CATEGORIES, and subtract {width} columns in custom_inputs"
    if name in values.get("numbers", ()):
        return ", remove it from NUMBERS, and subtract 2 columns in custom_inputs"
    return ""


def _reveals(texts: pd.Series, column: Column, labels: np.ndarray) -> bool:
    """Return whether one column determines the labels, which are class indices or numbers (n,)."""
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
    """Return why rows with the same value may be related, or ""."""
    tested = None if test is None else test.get(name)
    if tested is None and not GROUPS.search(name):
        return ""
    texts = known(column)
    values = texts.drop_duplicates()
    if not 2 < len(values) <= len(texts) / REPEATS:
        return ""
    if tested is not None and values.isin(known(tested)).all():  # all values are in both sets
        return ""
    apart = False
    if tested is not None and len(values) > FEW:
        fractions = (numbers(values) % 1 > 0).any()
        apart = not fractions and not values.isin(known(tested)).any()
    if not apart and not GROUPS.search(name):
        return ""
    sign = "none of them occurs in the test set" if apart else "its name suggests groups"
    return f"{len(values):,} distinct texts in {len(texts):,} rows, and {sign}"


def _describe_ids(ids: Sequence[str], labels: np.ndarray, findings: Findings) -> None:
    last = [re.findall(r"\d+", text)[-1:] for text in ids]
    if all(last):
        order = np.argsort([int(each[0][-15:]) for each in last], kind="stable")
        ranks = pd.Series(labels[order]).rank().to_numpy()
        ranks = ranks - ranks.mean()
        strength = (ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum() * len(ids) ** 0.5
        if strength > SIGMAS:
            text = "rows with consecutive numbers in their ids have similar labels "
            text += f"({strength:.0f} standard deviations above chance)"
            findings.warning("ids", text)
    stems = pd.Series([re.split(r"\d", text)[0] for text in ids])
    if labels.dtype.kind in "iu" and 1 < stems.nunique() <= len(ids) / 2:
        random, baseline = np.random.default_rng(0), np.bincount(labels).max() / len(ids)
        orders = [labels, *(random.permutation(labels) for _ in range(SHUFFLES))]
        right, *chance = (pd.crosstab(stems, each).max(axis=1).sum() / len(ids) for each in orders)
        if right > np.mean(chance) + SIGMAS * np.std(chance) + 0.05:
            text = f"the id's prefix predicts the label of {right:.0%} of the rows "
            findings.warning("ids", f"{text}(majority-class baseline: {baseline:.0%})")

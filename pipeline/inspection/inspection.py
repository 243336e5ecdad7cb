"""Inspection: a competition folder that nobody has described yet → what is in it, and what is wrong
with it.

Each choice is a line of `findings` with its reason; what cannot be known from a folder (the metric,
whether an order counts) is said, too. `pipeline.inspection.config_proposal` makes a config of it,
`pipeline.inspection.inspection_page` a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.errors import DataError
from pipeline.inspection import (
    column_types,
    duplicates_and_leaks,
    image_folders,
    input_kinds,
    tables,
    target_guess,
)
from pipeline.inspection.input_kinds import Inputs
from pipeline.inspection.tables import FOUND, UNKNOWN, WARNING, Contents, Finding, Given
from pipeline.inspection.target_guess import Goal
from pipeline.runtime import mounts


@dataclass(frozen=True)
class Twin:
    """Two examples with the same content, or (`near`) nearly the same.

    Attributes:
        one: its place in `Inputs.rows`. other: the same, or, with `test`, in `Inputs.test_rows`.
        unlike: whether both have labels, and other ones.
    """

    one: int
    other: int
    test: bool
    near: bool
    unlike: bool


@dataclass(frozen=True)
class Inspection:
    """What a folder holds.

    Attributes:
        contents: the parts of the folder. goal: what is predicted. inputs: what examples are.
        ids, test_ids: of the training and of the test set. labels: as texts, one a row.
        twins: examples that are alike; of two test examples nothing is said.
        findings: all of it in words.
    """

    contents: Contents
    goal: Goal
    inputs: Inputs
    ids: tuple[str, ...] = field(repr=False)
    test_ids: tuple[str, ...] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    twins: tuple[Twin, ...] = field(repr=False)
    findings: tuple[Finding, ...] = field(repr=False)


def inspect(folder: Path, given: Given | None = None) -> Inspection:
    """Return what is in a competition folder.

    Raises:
        DataError: if there is no sample submission, no table with labels or nothing that a model
            could read, if more than one thing could be meant, or if the labels cannot be learned.
            ConfigError: if a file or column has a name that no config can hold.
    """
    held = tables.read(folder, given or Given())
    aim = target_guess.read(held)
    found = image_folders.find(held) or input_kinds.find(held)
    if found is None:
        places = sorted(held.images, key=lambda place: not input_kinds.TRAINS.search(place))
        names = [min(held.images[place]) for place in places]
        known = None if held.ids is None else held.labelled[held.ids].iloc[0]
        # Only who sees both can tell why they differ.
        shown = (
            f" An image file is called {names[0]!r}, an id {known!r}."
            if names and known is not None
            else ""
        )
        raise DataError(
            f"{mounts.listing(folder)}; {held.train} has {len(held.labelled):,} rows, and nothing to learn from was found for them.{shown} Expected "
            "image files named by its ids (whole names, or what is before .png, .jpg, .jpeg or .webp; with folders or without), columns of "
            "pixels, an array of as many images, or columns that the test set has, too.\n"
            "Complete the download, unpack what is packed, rename files or ids, or name other tables: --train FILE, --test FILE."
        )
    ids = (
        tuple(held.labelled[held.ids])
        if held.ids is not None
        else tuple(map(str, range(len(held.labelled))))
    )
    test_ids = tuple(held.wanted.iloc[:, 0])
    labels = tuple(map(" ".join, zip(*(held.labelled[name] for name in held.labels), strict=True)))
    twins = _twins(found, labels, classes=aim.target != "regression")
    findings = (
        *held.findings,
        *found.findings,
        *aim.findings,
        *_alike(twins, found, ids, test_ids),
    )
    return Inspection(
        held,
        aim,
        found,
        ids,
        test_ids,
        labels,
        twins,
        (*findings, *_signs(held, aim, found, ids, labels)),
    )


def _twins(found: Inputs, labels: Sequence[str], *, classes: bool) -> tuple[Twin, ...]:
    count = len(found.rows)
    keys = [*found.keys, *found.test_keys]
    equal = [(group[0], other) for group in duplicates_and_leaks.same(keys) for other in group[1:]]
    pairs = [(one, other, False) for one, other in equal if one < count]
    if found.pixels is not None and found.test_pixels is not None:
        known = {place: group[0] for group in duplicates_and_leaks.same(keys) for place in group}
        first = min(count, duplicates_and_leaks.MOST_NEAR)
        every = np.concatenate(
            [found.pixels[:first], found.test_pixels[: duplicates_and_leaks.MOST_NEAR]]
        )
        for one, other in duplicates_and_leaks.near(every):
            one, other = (
                place if place < first else place - first + count for place in (one, other)
            )
            if one < count and known.get(one, one) != known.get(other, other):
                pairs.append((one, other, True))

    def unlike(one: int, other: int) -> bool:
        return classes and other < count and labels[found.rows[one]] != labels[found.rows[other]]

    return tuple(
        Twin(
            one,
            other - count if other >= count else other,
            other >= count,
            near,
            unlike(one, other),
        )
        for one, other, near in pairs
    )


def _alike(
    twins: Sequence[Twin], found: Inputs, ids: Sequence[str], test_ids: Sequence[str]
) -> list[Finding]:
    """Return what is said of examples that are alike."""
    told = []
    what = "columns that are read" if found.pixels is None else "content"
    for test, near in ((True, False), (False, False), (True, True), (False, True)):
        some = [twin for twin in twins if (twin.test, twin.near) == (test, near)]
        if not some:
            continue
        shown = ", ".join(
            f"{ids[found.rows[twin.one]]} = {test_ids[found.test_rows[twin.other]] if test else ids[found.rows[twin.other]]}"
            for twin in some[:3]
        )
        how = "nearly the same picture as" if near else f"the same {what} as"
        if test:
            number = len({twin.other for twin in some})
            text = f"{number:,} test examples have {how} a training example: {shown}. A score on them shows memory, not skill"
            told.append(Finding(WARNING, "leak", text))
            continue
        number, unlike = len({twin.other for twin in some}), sum(twin.unlike for twin in some)
        text = f"{number:,} training examples have {how} another one: {shown}; validation may look better than it is"
        text += f". {unlike:,} of these pairs have different labels" if unlike else ""
        told.append(Finding(WARNING, "duplicates", text))
    if not told:
        near_too = " or nearly the same picture" if found.pixels is not None else ""
        told.append(
            Finding(
                FOUND,
                "duplicates",
                f"none: no two examples have the same {what}{near_too}, in training and test set",
            )
        )
    return told


def _signs(
    held: Contents, aim: Goal, found: Inputs, ids: Sequence[str], labels: Sequence[str]
) -> list[Finding]:
    """Return what a person should look at: labels that something else tells, and rows that may
    belong together.
    """
    told = []
    numbers = None
    if aim.target == "classes":
        numbers = np.unique(np.array(labels, str), return_inverse=True)[1].astype(np.int64)
    elif aim.target == "regression" and len(held.labels) == 1:
        numbers = column_types.numbers(held.labelled[held.labels[0]])
    if numbers is not None:
        if held.ids is not None:
            told += [
                Finding(WARNING, "ids", text)
                for text in duplicates_and_leaks.told_by_ids(ids, numbers)
            ]
        for name in column_types.tellers(held.labelled, found.columns, numbers):
            text = f"{name!r} alone tells the label of every row. If it is known only after the label, take it out of the config"
            told.append(Finding(WARNING, "leak", text))
    for name, sign in column_types.groups(
        held.labelled, held.tested, (*held.labels, held.ids or "")
    ):
        text = f"{name!r}: {sign}. If its rows belong together (one patient, one scene), set data.group_column={name!r}"
        told.append(Finding(UNKNOWN, "groups", text))
    return told

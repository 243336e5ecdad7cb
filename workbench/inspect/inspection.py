"""A competition folder that nobody has described: what is in it, and what is wrong with it.

Each choice is a line of `findings` with its reason. What the data cannot reveal (the metric,
whether an order counts) is a line, too. `workbench.inspect.config_proposal` makes a config of the
result, `workbench.inspect.inspection_page` a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Data
from pipeline.config.data_layout import PIXELS
from pipeline.data import duplicates as copies
from pipeline.data import image_arrays, image_files
from pipeline.errors import DataError
from pipeline.runtime import mounts
from workbench.inspect import (
    column_types,
    image_inputs,
    input_kinds,
    table_roles,
    tables,
    target_guess,
    unsupported,
)
from workbench.inspect.folder_files import TRAINS
from workbench.inspect.input_kinds import Inputs
from workbench.inspect.tables import FOUND, UNKNOWN, WARNING, Contents, Finding, Given
from workbench.inspect.target_guess import TargetGuess

MOST_NEAR = 5_000  # images of a set that are compared with each other


@dataclass(frozen=True)
class Duplicate:
    """Two examples with the same content, or (`near`) nearly the same.

    Attributes:
        one: place in `Inputs.rows`.
        other: the same, or, with `test`, in `Inputs.test_rows`.
        conflicting: whether both have labels, and different ones.
    """

    one: int
    other: int
    test: bool
    near: bool
    conflicting: bool


@dataclass(frozen=True)
class Inspection:
    """What a folder holds.

    Attributes:
        contents: the parts of the folder.
        target: what to predict.
        inputs: what the examples are.
        ids, test_ids: of the training and of the test set.
        labels: as texts, one a row.
        duplicates: without those among test examples.
        findings: all of this in words.
    """

    contents: Contents
    target: TargetGuess
    inputs: Inputs
    ids: tuple[str, ...] = field(repr=False)
    test_ids: tuple[str, ...] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    duplicates: tuple[Duplicate, ...] = field(repr=False)
    findings: tuple[Finding, ...] = field(repr=False)
    _groups: dict[tuple[Any, ...], np.ndarray] = field(default_factory=dict, repr=False)

    def groups(self, data: Data) -> np.ndarray:
        """Return a number for each training example, equal for duplicates of each other, as a
        training with this data finds them: int32 (n,). What was not read, or cannot be decoded, is
        alone.

        Args:
            data: of a config; in another size than `inputs.data` the images are decoded again.
        """
        decoded_by = attrgetter(*PIXELS)
        inputs, form = self.inputs, decoded_by(data)
        if form not in self._groups:
            pixels: Any = inputs.pixels
            if form != decoded_by(inputs.data):
                pixels, _ = image_arrays.read(inputs.sources, data, cache=None, show=None)
            rows = inputs.rows
            kept = np.array([self.ids[row] not in inputs.broken for row in rows], bool)
            found = np.arange(len(self.ids), dtype=np.int32) + len(rows)
            found[rows[kept]] = copies.groups(image_arrays.some(pixels, np.flatnonzero(kept)))
            self._groups[form] = found
        return self._groups[form]


def inspect(folder: Path, given: Given | None = None) -> Inspection:
    """Return what is in a competition folder.

    Raises:
        DataError: if there is no sample submission, no table with labels or nothing that a model
            could read, if a part is ambiguous, or if the labels cannot be learned.
        ConfigError: if a file or column has a name that no config can hold, or the metric that is
            given cannot score the labels.
    """
    given = given or Given()
    contents = tables.read(folder, given)
    target = target_guess.read(contents)
    if given.metric:
        target = target_guess.scored_by(target, given.metric)
    inputs = image_inputs.find(contents) or input_kinds.find(contents)
    if inputs is None:
        unsupported.refuse_kind(folder)
        raise DataError(_nothing_found(contents))
    table = contents.train_table
    ids = tuple(map(str, range(len(table)) if contents.ids is None else table[contents.ids]))
    test_ids = tuple(contents.sample_ids)
    labels = tuple(map(" ".join, table[list(contents.labels)].to_numpy()))
    duplicates = _duplicates(inputs, labels, classes=target.kind != "regression")
    related = inputs.pixels is not None and not all(pair.test for pair in duplicates)
    described = replace(inputs.data, label_separator=target.separator, group_duplicates=related)
    inputs = replace(inputs, data=described)
    findings = (
        *contents.findings,
        *inputs.findings,
        *target.findings,
        *_duplicate_findings(duplicates, inputs, ids, test_ids),
        *_leak_findings(contents, target, inputs, ids, labels),
    )
    return Inspection(contents, target, inputs, ids, test_ids, labels, duplicates, findings)


def _nothing_found(contents: Contents) -> str:
    places = sorted(contents.images, key=lambda place: not TRAINS.search(place))
    example = ""
    if places and contents.ids is not None:  # the user sees how the two differ
        name, known = min(contents.images[places[0]]), contents.train_table[contents.ids].iloc[0]
        example = f" An image file is called {name!r}, an id {known!r}."
    if contents.ids is not None:
        folders = [contents.folder / place for place in contents.others]
        endings = image_files.other_endings(list(contents.train_table[contents.ids]), folders)
        if endings:
            found = f"{sum(endings.values()):,} ids have a {' or '.join(endings)}"
            example += f" {found}, which is not read as an image."
    short = table_roles.short_test(contents.folder, contents.sample_table)
    if contents.test is None and short:
        return f"{contents.folder} has no whole test table: {short}"
    return (
        f"{mounts.listing(contents.folder)}; {contents.train} has "
        f"{len(contents.train_table):,} rows, and nothing to learn from was found for them."
        f"{example} Expected image files named by its ids (whole names, or what is before .png, "
        ".jpg, .webp, .bmp, .gif or .tif; with folders or without), columns of pixels, an array of "
        "as many images, or columns that the test set has, too.\n"
        "Complete the download, unpack archives, rename files or ids, or name other tables: "
        "--train FILE, --test FILE"
    )


def _duplicates(inputs: Inputs, labels: Sequence[str], *, classes: bool) -> tuple[Duplicate, ...]:
    count = len(inputs.rows)
    groups = copies.equal([*inputs.keys, *inputs.test_keys])
    pairs = [(group[0], other, False) for group in groups for other in group[1:]]
    if inputs.pixels is not None and inputs.test_pixels is not None:
        group_of = {place: group[0] for group in groups for place in group}
        pixels = inputs.pixels[:MOST_NEAR]
        for pair in copies.near(np.concatenate([pixels, inputs.test_pixels[:MOST_NEAR]])):
            one, other = (p if p < len(pixels) else p - len(pixels) + count for p in pair)
            if group_of.get(one, one) != group_of.get(other, other):
                pairs.append((one, other, True))

    def conflicting(one: int, other: int) -> bool:
        return classes and other < count and labels[inputs.rows[one]] != labels[inputs.rows[other]]

    found = []
    for one, other, near in pairs:
        if one < count:  # else both are test examples
            test = other >= count
            place = other - count if test else other
            found.append(Duplicate(one, place, test, near, conflicting(one, other)))
    return tuple(found)


def _duplicate_findings(
    duplicates: Sequence[Duplicate], inputs: Inputs, ids: Sequence[str], test_ids: Sequence[str]
) -> list[Finding]:
    findings = []
    what = "values in the columns that are used" if inputs.pixels is None else "content"
    for test, near in ((True, False), (False, False), (True, True), (False, True)):
        some = [pair for pair in duplicates if (pair.test, pair.near) == (test, near)]
        if not some:
            continue
        others = test_ids if test else ids
        rows = inputs.test_rows if test else inputs.rows
        shown = ", ".join(
            f"{ids[inputs.rows[pair.one]]} and {others[rows[pair.other]]}" for pair in some[:3]
        )
        number = len({pair.other for pair in some})
        how = "nearly the same picture as" if near else f"the same {what} as"
        if test:
            text = f"{number:,} test examples have {how} a training example: {shown}. A score on "
            findings.append(Finding(WARNING, "leak", text + "them shows memory, not skill"))
            continue
        text = f"{number:,} training examples have {how} another one: {shown}; "
        text += (
            "validation scores may be too good"
            if inputs.pixels is None
            else "a split that divides them makes validation scores too good"
        )
        if conflicting := sum(pair.conflicting for pair in some):
            text += f". {conflicting:,} of these pairs have different labels"
        findings.append(Finding(WARNING, "duplicates", text))
    if not findings:
        near_too = "" if inputs.pixels is None else " or nearly the same picture"
        text = f"none: no two examples of training and test set have the same {what}{near_too}"
        findings.append(Finding(FOUND, "duplicates", text))
    return findings


def _leak_findings(
    contents: Contents,
    target: TargetGuess,
    inputs: Inputs,
    ids: Sequence[str],
    labels: Sequence[str],
) -> list[Finding]:
    """Return findings on labels that something else reveals, and on rows that may be related."""
    findings = []
    table, numbers = contents.train_table, None
    if target.kind == "classes":
        numbers = np.unique(np.array(labels, str), return_inverse=True)[1].astype(np.int64)
    elif target.kind == "regression" and len(contents.labels) == 1:
        numbers = column_types.numbers(table[contents.labels[0]])
    if numbers is not None:
        if contents.ids is not None and not contents.class_folders:
            for text in column_types.leaks_of_ids(ids, numbers):
                findings.append(Finding(WARNING, "ids", text))
        for name in column_types.leaking(table, inputs.columns, numbers):
            text = f"{name!r} alone reveals the label of every row. If it is known only after the "
            findings.append(Finding(WARNING, "leak", text + "label, remove it from the config"))
    skip = (*contents.labels, contents.ids or "")
    for name, sign in column_types.groups(table, contents.test_table, skip):
        text = f"{name!r}: {sign}. If rows with the same value are related (one patient, one "
        text += f"scene), set data.group_column={name!r}"
        for kind in ("numeric_columns", "categorical_columns"):
            if name in getattr(inputs.data, kind):
                text += f", and take it out of {kind}"
        findings.append(Finding(UNKNOWN, "groups", text))
    return findings

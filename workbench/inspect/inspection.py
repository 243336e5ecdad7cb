"""Determine the contents of a competition folder, and find problems in it.

The findings explain every choice, and list questions that the data cannot answer, such as which
metric is used or whether the labels are ordered.
"""

from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Data
from pipeline.config.data_layout import PIXELS
from pipeline.data import duplicates as copies
from pipeline.data import image_arrays, image_files
from pipeline.errors import ConfigError, DataError
from pipeline.runtime import mounts
from workbench.inspect import columns, images, inputs, leaks, readers, refusals, tables, target
from workbench.inspect.folder import TRAINS, Findings
from workbench.inspect.inputs import Inputs
from workbench.inspect.leaks import Duplicate
from workbench.inspect.tables import Contents, Given
from workbench.inspect.target import TargetGuess

# Kinds of inputs in the order in which they are tried. Each function accepts contents and findings,
# and returns `Inputs`, or None if the folder has no such inputs.
KINDS = (
    *(readers.of_masks, readers.of_pictures_and_columns, readers.of_texts),
    *(images.of_records, images.of_files, inputs.of_pixels, inputs.of_arrays, inputs.of_table),
)
ALONE = {"pictures": (images.of_records, images.of_files), "columns": (inputs.of_table,)}


@dataclass(frozen=True)
class Inspection:
    """The result of inspecting a competition folder.

    Attributes:
        labels: the label of each labelled row, as text.
        duplicates: pairs of duplicates with at least one training example.
    """

    contents: Contents
    target: TargetGuess
    inputs: Inputs
    labels: tuple[str, ...] = field(repr=False)
    duplicates: tuple[Duplicate, ...] = field(repr=False)
    findings: Findings = field(repr=False)
    _groups: dict[Any, np.ndarray] = field(default_factory=dict, repr=False)

    def groups(self, data: Data) -> np.ndarray:
        """Return the duplicate group of each training example, int32 (n,), computed as in training.

        An example that was not read or could not be decoded is the only member of its group. Images
        are decoded again if `data` and `inputs.data` specify different decoding.
        """
        decoded_by, seen = attrgetter(*PIXELS), self.inputs.train
        form = decoded_by(data)
        if form not in self._groups:
            pixels: Any = seen.pixels
            if form != decoded_by(self.inputs.data):
                pixels, _ = image_arrays.read(seen.sources, data)
            kept = np.array([seen.ids[row] not in seen.broken for row in seen.rows], bool)
            found = np.arange(len(seen.ids), dtype=np.int32) + len(seen.rows)
            found[seen.rows[kept]] = copies.groups(image_arrays.some(pixels, np.flatnonzero(kept)))
            self._groups[form] = found
        return self._groups[form]


def inspect(folder: Path, given: Given | None = None) -> Inspection:
    """Inspect a competition folder.

    Raises:
        DataError: if there are no labels or no inputs that a model could use, if the role of a
            table or column is ambiguous, or if the labels cannot be learned.
        ConfigError: if the name of a file or column cannot be used in a config, or if
            `given.metric` cannot score the labels.
    """
    given, findings = given or Given(), Findings()
    contents = tables.read(folder, given, findings)
    aim = Findings()
    predicted = target.read(contents, given.metric, aim)
    if given.alone not in ("", *ALONE):
        known = " or ".join(ALONE)
        raise ConfigError(f"Invalid --alone {given.alone}: expected {known}.\nCorrect the option.")
    made = (kind(contents, findings) for kind in ALONE.get(given.alone, KINDS))
    found = next((one for one in made if one), None)
    if found is None:
        refusals.refuse_kind(contents.files)
        raise DataError(_nothing_found(contents))
    found = readers.worth(found, contents, predicted, findings)
    findings += aim
    labels = tuple(map(" ".join, contents.table[list(contents.labels)].to_numpy()))
    if predicted.kind == "classes" and len(contents.labels) > 1:
        shares = contents.table[list(contents.labels)].apply(columns.numbers)
        labels = tuple(map(str, shares.idxmax(axis=1)))  # the class with the most votes
    if contents.masks:  # the run lengths are thousands of numbers long
        labels = tuple("a mask" if " " in text.strip() else "no mask" for text in labels)
    duplicates = leaks.duplicates(found, labels, predicted.kind, findings)
    leaks.describe(contents, predicted.kind, found, labels, findings)
    grouped = found.train.pixels is not None and found.reader is None  # custom readers do not group
    related = grouped and duplicates.whole and not all(pair.test for pair in duplicates.pairs)
    data = replace(
        found.data,
        label_separator=predicted.separator,
        group_duplicates=related,
        labelled=len(labels),
    )
    found = replace(found, data=data)
    return Inspection(contents, predicted, found, labels, duplicates.pairs, findings)


def _nothing_found(contents: Contents) -> str:
    every, example = contents.files.images, ""
    if contents.ids is not None:
        known = contents.table[contents.ids]
        if every:  # an example shows how names and ids differ
            name = min(every[min(every, key=lambda place: (not TRAINS.search(place), place))])
            example = f" For example, one file is named {name!r}, and one id is {known.iloc[0]!r}."
        folders = [contents.folder / Path(path).parent for path in contents.files.unread]
        if endings := image_files.other_endings(list(known), sorted(set(folders))):
            found = f"{sum(endings.values()):,} ids have a {' or '.join(endings)}"
            example += f" {found} file, which is not a supported image format."
    tested = contents.source.tested
    if tested is not None and not every:
        shared = [name for name in tested if name in contents.table and name != contents.ids]
        judged = [columns.judge(contents.table[name], tested[name]) for name in shared[:12]]
        reasons = "; ".join(f"{column.name}: {column.why}" for column in judged)
        example += f" None of the columns can be used: {reasons}." if reasons else ""
    lacking = "" if contents.test else tables.lacking_ids(contents)
    if lacking:
        return f"{contents.folder} has no complete test table: {lacking}"
    return (
        f"{mounts.listing(contents.folder)}. No inputs were found for the "
        f"{len(contents.table):,} rows of {contents.train}.{example} "
        "There must be image files named after its ids (with or without extension), pixel columns, "
        "an image array, or columns that are also in the test set.\n"
        "Finish the download, unpack archives, rename files or ids, or select other tables: "
        "--train FILE, --test FILE"
    )

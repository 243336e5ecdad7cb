"""Split the examples into training and held-out rows, using the config's seed.

Each fold contains the same fraction of each label, to within one row, and groups are never divided
between folds. One row of each group of duplicates is assigned to a fold, and the other rows follow
it. Groups from `data.group_column` can be large, so their split takes all rows into account.
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from itertools import islice

import numpy as np

from pipeline.augment.streams import Stream
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
# Advice for smaller groups.
LOOSEN = "or change data.group_column, or set data.group_duplicates=False"


def splits(
    examples: Examples, config: Config, show: Callable[[str], None] = lambda line: None
) -> list[Pair]:
    """Return each fold's training rows and held-out rows, as sorted int64 arrays.

    Every row is held out in exactly one fold. Without `config.folds`, there is a single pair.

    Raises:
        DataError: if there are fewer examples or groups than folds, or if the groups leave a fold
            without training rows for some label.
    """
    rows, untrained = np.arange(len(examples)), set[int]()
    if config.data.group_column is None:
        parts = _by_rows(examples, config, show)
    else:  # these groups include the duplicates
        parts = _by_group_column(examples, config)
    pairs = [(np.setdiff1d(rows, held), np.sort(held)) for held in parts]
    if config.data.group_column and examples.target.single:
        codes = examples.codes  # uneven groups can leave a fold without some label
        untrained = {code for trained, _ in pairs for code in set(codes) - set(codes[trained])}
    if untrained or not parts or not all(map(len, parts)):
        number = len(rows if examples.groups is None else np.unique(examples.groups))
        names = [repr(examples.classes[code]) for code in sorted(untrained)[:12]]
        raise DataError(
            f"{len(rows):,} rows in {number:,} groups (by data.group_column, duplicates, or single "
            f"rows) are too few or too uneven for folds={config.folds} and "
            f"data.validation_fraction={config.data.validation_fraction:g}. Each label is "
            "expected to occur in several groups. Labels without training rows in some fold: "
            f"{', '.join(names) or 'none'}.\n"
            f"Complete {config.data.train_csv or 'the training data'}, decrease folds or increase "
            f"data.validation_fraction in the config, merge labels, {LOOSEN}."
        )
    if text := few_held_out(examples, config, pairs):
        show(f"Warning: {text}")
    return pairs


def few_held_out(examples: Examples, config: Config, pairs: list[Pair]) -> str:
    number, share = len(pairs[0][1]), config.data.validation_fraction
    wanted = round(len(examples) * share)
    if config.folds is not None or 2 * number >= wanted:
        return ""
    return (
        f"{number:,} of {len(examples):,} rows are held out, but "
        f"data.validation_fraction={share:g} requires {wanted:,}. A score on a few rows is "
        "unreliable. A label with a single row or group is never held out, and groups may be "
        f"uneven. Merge labels, set folds, {LOOSEN}"
    )


def _by_rows(examples: Examples, config: Config, show: Callable[[str], None]) -> list[np.ndarray]:
    groups = np.arange(len(examples)) if examples.groups is None else examples.groups
    strata = examples.target.strata(examples.labels)
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    # Each group is represented by the row with the rarest label, so that no label is lost.
    rare_first = np.argsort(counts[codes], kind="stable")
    names, first, sizes = np.unique(groups[rare_first], return_index=True, return_counts=True)
    chosen = rare_first[first]
    codes = codes[chosen]
    random = np.random.default_rng((config.seed, Stream.FOLDS))
    # Sort rows by class and group size. Classes, and rows with the same size, are shuffled.
    rows = random.permutation(len(chosen))
    places = random.permutation(int(codes.max(initial=-1)) + 1)
    rows = rows[np.lexsort((sizes[rows], places[codes[rows]]))]
    if config.folds is None:
        parts = [_stratified(codes, rows, config.data.validation_fraction, random)]
    else:
        # Neighbours go to different folds, so each class differs by at most one row between folds.
        parts = [rows[number :: config.folds] for number in range(config.folds)]
        if examples.target.single:
            _warn(examples, chosen, config.folds, show)
    return [np.flatnonzero(np.isin(groups, names[part])) for part in parts]


def _stratified(
    codes: np.ndarray, rows: np.ndarray, share: float, random: np.random.Generator
) -> np.ndarray:
    """Hold out a fraction `share` of all rows, and of each class, to within one row.

    A small class may not have a held-out row, but each class keeps at least one row for training.
    StratifiedShuffleSplit is not used, because it cannot hold out fewer rows than classes.

    Args:
        codes: int (n,), class of each row.
        rows: rows in random order, grouped by class.
    """
    counts = np.bincount(codes)
    # Train on single rows, because a model cannot predict a label that it has never seen.
    rows = rows[counts[codes[rows]] > 1]
    if not len(rows):
        return rows
    wanted = min(max(round(len(codes) * share), 1), len(rows))
    held = rows[(np.arange(wanted) * len(rows) + random.integers(len(rows))) // wanted]
    # If all rows of a class were chosen, keep the first one for training.
    spent = np.bincount(codes[held], minlength=len(counts)) == counts
    first = np.unique(codes[held], return_index=True)[1]
    return np.delete(held, first[spent[codes[held[first]]]])


def _by_group_column(examples: Examples, config: Config) -> list[np.ndarray]:
    from sklearn.model_selection import StratifiedGroupKFold

    groups, labels = np.asarray(examples.groups), examples.labels
    strata, number = examples.target.strata(labels), len(np.unique(groups))
    count = config.folds or max(round(1 / config.data.validation_fraction), 2)
    if np.unique(strata, return_counts=True)[1].max() < count:
        strata = np.zeros(len(examples), int)
    if number < count:
        return []
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=config.seed)
    # Ignore the warning that a label has fewer examples than folds, which is fine with groups.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        pairs = splitter.split(np.zeros(len(examples)), strata, groups)
        return [held for _, held in islice(pairs, config.folds or 1)]


def fingerprint(examples: Examples, pair: Pair) -> str:
    """Return the SHA-256 of the examples and the split.

    The split may depend on the versions of this project and of scikit-learn.
    """
    digest = hashlib.sha256(examples.fingerprint.encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def held_out(examples: Examples, pair: Pair) -> str:
    ids = sorted(examples.ids[row] for row in pair[1])
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _warn(examples: Examples, rows: np.ndarray, count: int, show: Callable[[str], None]) -> None:
    members = np.bincount(examples.codes[rows])
    rare = [code for code in np.argsort(members, kind="stable") if members[code] < count]
    named = ", ".join(f"{examples.classes[code]!r} ({members[code]})" for code in rare[:12])
    if rare:
        show(
            f"Warning: {len(rare):,} of {len(members):,} labels have fewer rows than "
            f"folds={count}, such as {named}. These labels are missing from the held-out rows of "
            "some folds. If a label has a single row, one fold does not train on that label."
        )

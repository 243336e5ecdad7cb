"""Folds: which labelled images a run trains on and which it validates on, fixed by the seed.

Every fold has its share of each label, and a group of images lies in one fold as a whole. Without
folds there is one pair, by `data.validation_fraction`.
"""

import hashlib
import warnings
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
# An independent stream of random numbers from the seed, as those of `pipeline.data.dataset`.
STREAM = 3


def splits(examples: Examples, config: Config) -> list[Pair]:
    """Return (training rows, validation rows) of each fold, int64 and sorted; every row validates
    in one fold.

    Without `config.folds` there is one pair, and what validates is a share of the rows.

    Raises:
        DataError: if there are fewer groups than folds, or fewer images of a label, or a fold would
            train without some label.
    """
    if config.folds is None and config.data.group_column is None:
        return [split(examples, config)]
    count = config.folds or max(round(1 / config.data.validation_fraction), 2)
    _check(examples, config, count)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of a label with fewer images than folds, which groups permit
        strata = examples.target.strata(examples.labels)
        if not _single(examples) and np.unique(strata, return_counts=True)[1].max() < count:
            strata = np.zeros(
                len(examples), int
            )  # too few of each for every fold to have its share
        cut = list(_cut(count, config).split(np.zeros(len(examples)), strata, examples.groups))
    pairs = [(np.sort(rows), np.sort(held)) for rows, held in cut[: config.folds or 1]]
    for rows, held in pairs:
        # Only groups make this: what they hold may be too uneven to be shared out.
        absent = (
            np.setdiff1d(np.arange(len(examples.classes)), examples.labels[rows])
            if _single(examples)
            else rows[:0]
        )
        if len(absent) or not len(held):
            what = (
                f"without the label {examples.classes[absent[0]]!r}"
                if len(absent)
                else "with nothing to validate on"
            )
            raise DataError(
                f"The groups of data.group_column={config.data.group_column!r} leave one of {count} folds {what}.\n"
                f"Expected each label in groups of several folds. {_less(config)}, merge labels, or take another group_column."
            )
    return pairs


def split(examples: Examples, config: Config) -> Pair:
    """Return the indices of the training and of the validation examples, both sorted; stratified by
    label, fixed by `config.seed`.

    Each class gives `validation_fraction` of its examples, rounded, at least one, and keeps at
    least one: a single one trains and never validates. What else is kept in proportion says
    `pipeline.data.labels.Target.strata`, of which a single one trains.

    Raises:
        DataError: if a class has no example, or there is nothing to hold back.
    """
    random = np.random.default_rng((config.seed, STREAM))
    strata = examples.target.strata(examples.labels)
    single = examples.target.kind in ("classes", "ordinal")
    held: list[np.ndarray] = []
    for stratum in range(len(examples.classes)) if single else np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        if not len(members) and single:
            raise DataError(
                f"The label {examples.classes[stratum]!r} has no row in {_where(config)}; expected at least one to train on.\n"
                "Add one, or drop the label."
            )
        # A single row trains: what was never seen cannot be told.
        number = min(
            max(round(len(members) * config.data.validation_fraction), 1), len(members) - 1
        )
        held.append(random.permutation(members)[:number])
    validation = np.sort(np.concatenate(held))
    if not len(validation):
        raise DataError(
            f"{len(examples)} examples are too few to hold any back; expected more.\nComplete the table."
        )
    return np.setdiff1d(np.arange(len(examples)), validation), validation


def fingerprint(examples: Examples, config: Config, pair: Pair) -> str:
    """Return a sha256 over the examples, and over which of them validate: another version of
    scikit-learn may choose others.
    """
    if config.folds is None and config.data.group_column is None:
        return examples.fingerprint()
    digest = hashlib.sha256(examples.fingerprint().encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def _cut(count: int, config: Config) -> Any:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if config.data.group_column is None else StratifiedGroupKFold
    return kind(count, shuffle=True, random_state=config.seed)


def _check(examples: Examples, config: Config, count: int) -> None:
    """Refuse what cannot be cut into `count` folds."""
    column = config.data.group_column
    if column is not None and examples.groups is None:
        raise DataError(
            f"The images have no groups; expected those of data.group_column={column!r}.\nRead them with this config."
        )
    there = len(examples) if column is None else len(np.unique(np.asarray(examples.groups)))
    if there < count:
        what = (
            f"data.group_column={column!r} has {there} groups"
            if column
            else f"There are {there} examples"
        )
        raise DataError(
            f"{what}; expected at least {count}, one for each fold.\n{_less(config)}, or take another group_column."
        )
    if not _single(examples):
        return
    members = np.bincount(examples.labels, minlength=len(examples.classes))
    # With groups a rare label may be missing where a fold validates.
    label = int(members.argmin() if column is None else members.argmax())
    if members[label] < count:
        raise DataError(
            f"The label {examples.classes[label]!r} has {members[label]} rows in {_where(config)}; expected at least {count}, one for each "
            f"fold.\n"
            f"{_less(config)}, add images, or drop the label."
        )


def _single(examples: Examples) -> bool:
    return examples.target.kind in ("classes", "ordinal")


def _where(config: Config) -> str:
    """Return what the labels are read from, for a message."""
    return str(
        config.data.train_records if config.data.kind == "tfrecords" else config.data.train_csv
    )


def _less(config: Config) -> str:
    return (
        "Raise data.validation_fraction in the config"
        if config.folds is None
        else "Lower folds in the config"
    )

"""Which labelled examples a run trains on and which are held out, fixed by the seed.

Every fold has its share of each label, and a group of examples is never split between folds.
Without folds there is one pair, by `data.validation_fraction`.

Duplicates (`data.group_duplicates`) count as one example: one of them is split, the others follow.
So a few of them change neither the number of held-out images nor the share of any label.
"""

import hashlib
import json
import warnings
from dataclasses import replace

import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
STREAM = 3  # of random numbers (`pipeline.data.dataset.ORDER`)


def splits(examples: Examples, config: Config) -> list[Pair]:
    """Return (training rows, held-out rows) of each fold, int64 and sorted.

    Each row is held out in one fold. Without `config.folds` there is one pair.

    Raises:
        DataError: if there are fewer groups than folds, or fewer examples of a label, or a fold
            would train without some label.
    """
    if not config.data.group_duplicates or config.data.group_column is not None:
        return _splits(examples, config)  # a column's groups hold the duplicates, too
    groups = _groups(examples, config)
    first = _one_of_each(examples, groups)
    ids, labels = tuple(examples.ids[row] for row in first), examples.labels[first]
    # No split looks at the inputs.
    alone = replace(examples, ids=ids, inputs=first, labels=labels, groups=None)
    own = groups[first]
    return [
        (np.flatnonzero(np.isin(groups, own[rows])), np.flatnonzero(np.isin(groups, own[held])))
        for rows, held in _splits(alone, config)
    ]


def _one_of_each(examples: Examples, groups: np.ndarray) -> np.ndarray:
    """Return a row of each group, int64, in the order of the groups: one of the rarest label, so
    that copies with another label hide none.
    """
    strata = examples.target.strata(examples.labels)
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    rare_first = np.argsort(counts[codes], kind="stable")
    return np.asarray(rare_first[np.unique(groups[rare_first], return_index=True)[1]])


def _splits(examples: Examples, config: Config) -> list[Pair]:
    column = config.data.group_column
    if config.folds is None and column is None:
        return [split(examples, config)]
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    count = config.folds or max(round(1 / config.data.validation_fraction), 2)
    _check(examples, config, count)
    single = examples.target.single
    strata = examples.target.strata(examples.labels)
    if not single and np.unique(strata, return_counts=True)[1].max() < count:
        strata = np.zeros(len(examples), int)  # too few of each for every fold
    kind = StratifiedKFold if column is None else StratifiedGroupKFold
    splitter = kind(count, shuffle=True, random_state=config.seed)
    with warnings.catch_warnings():
        # With groups a label may have fewer examples than folds.
        warnings.simplefilter("ignore", UserWarning)
        parts = list(splitter.split(np.zeros(len(examples)), strata, examples.groups))
    pairs = [(np.sort(rows), np.sort(held)) for rows, held in parts[: config.folds or 1]]
    for rows, held in pairs:
        # Groups may be too uneven to be shared out.
        present = set(examples.labels[rows].tolist()) if single else range(len(examples.classes))
        absent = [name for code, name in enumerate(examples.classes) if code not in present]
        if absent or not len(held):
            what = f"without the label {absent[0]!r}" if absent else "with nothing to validate on"
            raise DataError(
                f"The groups of data.group_column={column!r} leave one of {count} folds {what}.\n"
                f"Expected each label in groups of several folds. {_fewer(config)}, merge labels, "
                "or choose another group_column."
            )
    return pairs


def split(examples: Examples, config: Config) -> Pair:
    """Return the training rows and the held-out rows, sorted and stratified by label.

    Each class holds out `validation_fraction` of its examples, rounded, at least one. At least one
    example of it trains. For other targets the classes are those of
    `pipeline.data.labels.Target.strata`.

    Raises:
        DataError: if a class has no example, or nothing can be held out.
    """
    random = np.random.default_rng((config.seed, STREAM))
    strata = examples.target.strata(examples.labels)
    single = examples.target.single
    held: list[np.ndarray] = []
    for stratum in range(len(examples.classes)) if single else np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        if not len(members) and single:
            raise DataError(
                f"The label {examples.classes[stratum]!r} has no row in {_source(config)}; "
                "expected at least one to train on.\nAdd one, or drop the label."
            )
        # A single row trains: a model cannot predict a label that it has never seen.
        share = round(len(members) * config.data.validation_fraction)
        held.append(random.permutation(members)[: min(max(share, 1), len(members) - 1)])
    validation = np.sort(np.concatenate(held))
    if not len(validation):
        raise DataError(
            f"{len(examples)} examples are too few to hold any out; expected more.\n"
            "Complete the table."
        )
    return np.setdiff1d(np.arange(len(examples)), validation), validation


def fingerprint(examples: Examples, config: Config, pair: Pair) -> str:
    """Return a sha256 over the examples and the split.

    Another version of scikit-learn may split otherwise.
    """
    if config.folds is None and config.data.group_column is None:
        return examples.fingerprint
    digest = hashlib.sha256(examples.fingerprint.encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def held_out(examples: Examples, pair: Pair) -> str:
    """Return a sha256 over the ids of the held-out rows: equal if two runs hold out the same."""
    ids = sorted(examples.ids[row] for row in pair[1])
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _check(examples: Examples, config: Config, count: int) -> None:
    """Raise `DataError` if there are too few examples, groups or labels for `count` folds."""
    column = config.data.group_column
    if column is None:
        number, what = len(examples), f"There are {len(examples)} examples"
    else:
        number = len(np.unique(_groups(examples, config)))
        what = f"data.group_column={column!r} has {number} groups"
    if number < count:
        raise DataError(
            f"{what}; expected at least {count}, one for each fold.\n"
            f"{_fewer(config)}, or choose another group_column."
        )
    if not examples.target.single:
        return
    members = np.bincount(examples.labels, minlength=len(examples.classes))
    # With groups a fold may hold out none of a rare label.
    label = int(members.argmin() if column is None else members.argmax())
    if members[label] < count:
        raise DataError(
            f"The label {examples.classes[label]!r} has {members[label]} rows in "
            f"{_source(config)}; expected at least {count}, one for each fold.\n"
            f"{_fewer(config)}, add images, or drop the label."
        )


def _groups(examples: Examples, config: Config) -> np.ndarray:
    """Return the groups of the examples. Raises `DataError` if they were read without."""
    if examples.groups is None:
        column = config.data.group_column
        by = "group_duplicates=True" if column is None else f"group_column={column!r}"
        raise DataError(
            f"The images have no groups; expected those of data.{by}.\nRead them with this config."
        )
    return examples.groups


def _source(config: Config) -> str:
    """Return where the labels are read from."""
    data = config.data
    if data.kind == "tfrecords":
        return str(data.train_records)
    return str(data.train_images if data.train_csv is None else data.train_csv)


def _fewer(config: Config) -> str:
    if config.folds is None:
        return "Raise data.validation_fraction in the config"
    return "Lower folds in the config"

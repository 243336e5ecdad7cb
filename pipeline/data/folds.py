"""Which labelled examples a run trains on and which are held out, fixed by the seed.

Every fold has its share of each label, to within one row, and a group of examples is never split
between folds. Without folds there is one pair, by `data.validation_fraction`.

Duplicates (`data.group_duplicates`) stay together. Without folds whole groups are held out until
about `data.validation_fraction` of the rows is reached; with folds one of each group is split and
the others follow.
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
STREAM = 3  # of random numbers (`pipeline.data.dataset.ORDER`)


def splits(
    examples: Examples, config: Config, show: Callable[[str], None] | None = None
) -> list[Pair]:
    """Return (training rows, held-out rows) of each fold, int64 and sorted.

    Each row is held out in one fold. Without `config.folds` there is one pair.

    Args:
        show: takes a line that names the labels with fewer rows than folds, and one that says that
            far fewer rows are held out than were asked for.

    Raises:
        DataError: if a label has no row, if there are fewer examples or groups than folds, or if
            a group column leaves a fold without some label.
    """
    pairs = _pairs(examples, config, show)
    if show is not None and (text := few_held_out(examples, config, pairs)):
        show(f"Warning: {text}")
    return pairs


def few_held_out(examples: Examples, config: Config, pairs: list[Pair]) -> str:
    """Return how many rows are held out, why, and what to edit, where these are less than half of
    what `data.validation_fraction` asks for; else "".
    """
    data, held = config.data, len(pairs[0][1])
    wanted = round(len(examples) * data.validation_fraction)
    if config.folds is not None or 2 * held >= wanted:
        return ""
    why = "a label with one row only trains. Merge labels, or set folds"
    if data.group_column is not None:
        why = f"the groups of data.group_column={data.group_column!r} are too uneven. Set folds, so"
        why += " that each row validates once, or choose another group_column"
    elif data.group_duplicates:
        number = len(np.unique(_groups(examples, config)))
        why = f"the rows lie in {number:,} groups of duplicates, and a label with one group only "
        why += "trains. Set group_duplicates=False, or folds if each label has several groups"
    return (
        f"{held:,} of {len(examples):,} rows are held out, where data.validation_fraction="
        f"{data.validation_fraction:g} asks for {wanted:,}. A score on so few says little: {why}"
    )


def _pairs(examples: Examples, config: Config, show: Callable[[str], None] | None) -> list[Pair]:
    if not config.data.group_duplicates or config.data.group_column is not None:
        return _splits(examples, config, show)  # a column's groups hold the duplicates, too
    groups = _groups(examples, config)
    number = len(np.unique(groups))
    if config.folds is None:
        _check(examples, config)
        of_rows = whole_groups(
            examples.target.strata(examples.labels),
            groups,
            config.data.validation_fraction,
            config.seed,
        )
        if of_rows.any():
            return [(np.flatnonzero(~of_rows), np.flatnonzero(of_rows))]
        what = "too few to hold any out, since one of each label trains; expected more"
    else:
        what = f"too few for folds={config.folds}; expected at least as many"
    if config.folds is None or number < config.folds:
        raise DataError(
            f"The {len(examples):,} rows lie in {number:,} groups of duplicates, {what}.\n"
            "Set data.group_duplicates=False in the config (copies may then be on both sides of a "
            "split), or complete the table."
        )
    first = _one_of_each(examples, groups)
    ids, labels = tuple(examples.ids[row] for row in first), examples.labels[first]
    # No split looks at the inputs.
    alone = replace(examples, ids=ids, inputs=first, labels=labels, groups=None)
    own = groups[first]
    return [
        (np.flatnonzero(np.isin(groups, own[rows])), np.flatnonzero(np.isin(groups, own[held])))
        for rows, held in _splits(alone, config, show)
    ]


def whole_groups(strata: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return which rows are held out, bool (n,), if groups stay whole.

    About `share` of all rows is, and of each stratum, as far as whole groups allow. At least one
    group of each stratum trains, so a stratum in a single group has none in the held-out set, and
    others stand in for it.

    Args:
        strata: (n,), what is kept in proportion.
        groups: int (n,), equal for rows that stay together.
        share: of the rows.
        seed: of the choice.

    >>> whole_groups(np.zeros(6), np.array([0, 0, 1, 1, 2, 2]), 0.3, seed=0).sum()
    np.int64(2)
    >>> whole_groups(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), 0.5, seed=0).any()
    np.False_
    """
    random = np.random.default_rng((seed, STREAM))
    _, codes, left = np.unique(strata, return_inverse=True, return_counts=True)
    _, groups, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    cells, rows = np.unique(groups * len(left) + codes, return_counts=True)
    of_group, of_code = cells // len(left), cells % len(left)
    starts = np.searchsorted(of_group, np.arange(len(sizes) + 1))
    # One that alone holds a stratum trains.
    free = np.minimum.reduceat(np.bincount(of_code)[of_code], starts[:-1]) > 1
    most = int(sizes[free].sum())
    rate = min(max(round(len(groups) * share), 1) / max(most, 1), 1)
    # Of each stratum the small groups come last: they make up for what the large ones left.
    rarest = np.minimum.reduceat(left[of_code] * len(left) + of_code, starts[:-1]) % len(left)
    order = random.permutation(np.flatnonzero(free))
    places = random.permutation(len(left))[rarest[order]]
    order = order[np.lexsort((-sizes[order], places))]
    held, debt = np.zeros(len(sizes), bool), random.random() - 0.5
    for group in order:
        debt += rate * sizes[group]
        if 2 * debt >= sizes[group]:
            part = slice(starts[group], starts[group + 1])
            if (left[of_code[part]] > rows[part]).all():
                left[of_code[part]] -= rows[part]
                held[group], debt = True, debt - sizes[group]
    if len(order) and not held.any():
        held[order[sizes[order].argmin()]] = True
    return np.asarray(held[groups])


def _one_of_each(examples: Examples, groups: np.ndarray) -> np.ndarray:
    """Return a row of each group, int64, in the order of the groups: one of the rarest label, so
    that copies with another label hide none.
    """
    strata = examples.target.strata(examples.labels)
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    rare_first = np.argsort(counts[codes], kind="stable")
    return np.asarray(rare_first[np.unique(groups[rare_first], return_index=True)[1]])


def _splits(
    examples: Examples, config: Config, show: Callable[[str], None] | None = None
) -> list[Pair]:
    column = config.data.group_column
    _check(examples, config)
    if column is not None:
        return _by_groups(examples, config, column)
    if config.folds is None:
        return [split(examples, config)]
    if show is not None:
        _warn(examples, config.folds, show)
    strata = examples.target.strata(examples.labels)
    rows = _class_by_class(strata, np.random.default_rng((config.seed, STREAM)))
    # Neighbours are in different folds: of each class two folds get the same, but for one row.
    fold = np.empty(len(rows), np.int64)
    fold[rows] = np.arange(len(rows)) % config.folds
    return [
        (np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(config.folds)
    ]


def _by_groups(examples: Examples, config: Config, column: str) -> list[Pair]:
    """Return the pairs of `splits` by scikit-learn's StratifiedGroupKFold."""
    from sklearn.model_selection import StratifiedGroupKFold

    count, single = _parts(config), examples.target.single
    strata = examples.target.strata(examples.labels)
    if not single and np.unique(strata, return_counts=True)[1].max() < count:
        strata = np.zeros(len(examples), int)  # too few of each for every fold
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=config.seed)
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

    `validation_fraction` of all rows is held out, to within one row, and the same share of each
    class, to within one row: a class with few rows may have none. At least one row of each class
    trains, so a class with one row has none in the held-out set, and others stand in for it. For
    other targets the classes are those of `pipeline.data.labels.Target.strata`.

    Raises:
        DataError: if nothing can be held out.
    """
    random = np.random.default_rng((config.seed, STREAM))
    _, codes, counts = np.unique(
        examples.target.strata(examples.labels), return_inverse=True, return_counts=True
    )
    rows = _class_by_class(codes, random)
    # A single row trains: a model cannot predict a label that it has never seen.
    rows = rows[counts[codes[rows]] > 1]
    if not len(rows):
        raise DataError(
            f"{len(examples)} examples are too few to hold any out; expected more.\n"
            "Complete the table."
        )
    wanted = max(round(len(examples) * config.data.validation_fraction), 1)
    wanted = min(wanted, len(rows))
    # Equal distances, in whole numbers: scikit-learn's StratifiedShuffleSplit refuses to hold out
    # fewer rows than there are classes.
    held = rows[(np.arange(wanted) * len(rows) + random.integers(len(rows))) // wanted]
    spent = np.bincount(codes[held], minlength=len(counts)) == counts
    first = np.unique(codes[held], return_index=True)[1]
    held = np.sort(np.delete(held, first[spent[codes[held[first]]]]))
    return np.setdiff1d(np.arange(len(examples)), held), held


def _class_by_class(strata: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return all rows, int64 (n,): the rows of a class lie together, classes and the rows of each
    in a random order.
    """
    _, codes = np.unique(strata, return_inverse=True)
    rows = random.permutation(len(strata))
    places = random.permutation(int(codes.max(initial=-1)) + 1)
    return np.asarray(rows[np.argsort(places[codes[rows]], kind="stable")])


def _warn(examples: Examples, count: int, show: Callable[[str], None]) -> None:
    """Name the labels that have fewer rows than there are folds."""
    if not examples.target.single:
        return
    members = np.bincount(examples.labels, minlength=len(examples.classes))
    rare = [code for code in np.argsort(members, kind="stable") if members[code] < count]
    if not rare:
        return
    named = ", ".join(f"{examples.classes[code]!r} ({members[code]})" for code in rare[:12])
    alone = " The fold that holds out a label's only row trains without it."
    show(
        f"Warning: {len(rare):,} of {len(members):,} labels have fewer rows than folds={count}: "
        f"{named}{' …' if len(rare) > 12 else ''}. Some folds hold out none of them."
        f"{alone if members[rare[0]] == 1 else ''}"
    )


def fingerprint(examples: Examples, pair: Pair) -> str:
    """Return a sha256 over the examples and the split, which another version of this project or of
    scikit-learn may make otherwise.
    """
    digest = hashlib.sha256(examples.fingerprint.encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def held_out(examples: Examples, pair: Pair) -> str:
    """Return a sha256 over the ids of the held-out rows: equal if two runs hold out the same."""
    ids = sorted(examples.ids[row] for row in pair[1])
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _parts(config: Config) -> int:
    """Return into how many parts groups are shared out."""
    return config.folds or max(round(1 / config.data.validation_fraction), 2)


def _check(examples: Examples, config: Config) -> None:
    """Raise `DataError` if there are too few examples, groups or labels for the folds."""
    column, count = config.data.group_column, _parts(config)
    if column is None:
        number, what, count = (
            len(examples),
            f"There are {len(examples)} examples",
            config.folds or 1,
        )
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
    if not members.all():
        raise DataError(
            f"The label {examples.classes[int(members.argmin())]!r} has no row in "
            f"{_source(config)}; expected at least one to train on.\nAdd one, or drop the label."
        )
    label = int(members.argmax())  # a fold may hold out none of a rare label
    if column is not None and members[label] < count:
        raise DataError(
            f"The label {examples.classes[label]!r} has {members[label]} rows in "
            f"{_source(config)}; expected at least {count}, one for each fold.\n"
            f"{_fewer(config)}, add {config.data.noun}, or drop the label."
        )


def _groups(examples: Examples, config: Config) -> np.ndarray:
    """Return the groups of the examples. Raises `DataError` if they were read without."""
    if examples.groups is None:
        column = config.data.group_column
        by = "group_duplicates=True" if column is None else f"group_column={column!r}"
        raise DataError(
            f"The {config.data.noun} have no groups; expected those of data.{by}.\n"
            "Read them with this config."
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

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

from pipeline.augment.streams import Stream
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]
STREAM = Stream.FOLDS


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
    show = show or (lambda line: None)
    if config.data.group_column is not None:  # its groups hold the duplicates, too
        validation_rows = _by_group_column(examples, config)
    elif config.data.group_duplicates:
        validation_rows = _by_duplicates(examples, config, show)
    else:
        validation_rows = _by_rows(examples, config, show)
    rows = np.arange(len(examples))
    pairs = [
        (np.setdiff1d(rows, validation), np.sort(validation)) for validation in validation_rows
    ]
    if text := few_held_out(examples, config, pairs):
        show(f"Warning: {text}")
    return pairs


def few_held_out(examples: Examples, config: Config, pairs: list[Pair]) -> str:
    """Return how many rows are held out, why, and what to edit, where these are less than half of
    what `data.validation_fraction` asks for; else "".
    """
    data, number = config.data, len(pairs[0][1])
    wanted = round(len(examples) * data.validation_fraction)
    if config.folds is not None or 2 * number >= wanted:
        return ""
    why = "a label with one row only trains. Merge labels, or set folds"
    if data.group_column is not None:
        why = (
            f"the groups of data.group_column={data.group_column!r} are too uneven. Set folds, so "
            "that each row validates once, or choose another group_column"
        )
    elif data.group_duplicates:
        groups = len(np.unique(_groups(examples, config)))
        why = (
            f"the rows lie in {groups:,} groups of duplicates, and a label with one group only "
            "trains. Set group_duplicates=False, or folds if each label has several groups"
        )
    return (
        f"{number:,} of {len(examples):,} rows are held out, where data.validation_fraction="
        f"{data.validation_fraction:g} asks for {wanted:,}. A score on so few says little: {why}"
    )


def _by_rows(examples: Examples, config: Config, show: Callable[[str], None]) -> list[np.ndarray]:
    """Return the held-out rows of each fold, int64, where each row stands for itself."""
    _check(
        examples, config, len(examples), config.folds or 1, f"There are {len(examples)} examples"
    )
    strata = examples.target.strata(examples.labels)
    if config.folds is None:
        return [_stratified(strata, config)]
    _warn(examples, config.folds, show)
    # Neighbours are in different folds: of each class two folds get the same, but for one row.
    rows = _class_by_class(strata, np.random.default_rng((config.seed, STREAM)))
    return [rows[number :: config.folds] for number in range(config.folds)]


def _stratified(strata: np.ndarray, config: Config) -> np.ndarray:
    """Return the held-out rows, stratified by label.

    `validation_fraction` of all rows is held out, to within one row, and the same share of each
    class, to within one row: a class with few rows may have none. At least one row of each class
    trains, so a class with one row has none in the held-out set, and others stand in for it. For
    other targets the classes are those of `pipeline.data.labels.Target.strata`.

    scikit-learn's StratifiedShuffleSplit refuses to hold out fewer rows than there are classes.

    Raises:
        DataError: if nothing can be held out.
    """
    random = np.random.default_rng((config.seed, STREAM))
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    rows = _class_by_class(codes, random)
    # A single row trains: a model cannot predict a label that it has never seen.
    rows = rows[counts[codes[rows]] > 1]
    if not len(rows):
        raise DataError(
            f"{len(strata)} examples are too few to hold any out; expected more.\n"
            "Complete the table."
        )
    wanted = min(max(round(len(strata) * config.data.validation_fraction), 1), len(rows))
    validation = rows[(np.arange(wanted) * len(rows) + random.integers(len(rows))) // wanted]
    # Of a class that is held out as a whole the first row trains.
    spent = np.bincount(codes[validation], minlength=len(counts)) == counts
    first = np.unique(codes[validation], return_index=True)[1]
    return np.delete(validation, first[spent[codes[validation[first]]]])


def _class_by_class(strata: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return all rows, int64 (n,): the rows of a class lie together, classes and the rows of each
    in a random order.
    """
    _, codes = np.unique(strata, return_inverse=True)
    rows = random.permutation(len(strata))
    places = random.permutation(int(codes.max(initial=-1)) + 1)
    return np.asarray(rows[np.argsort(places[codes[rows]], kind="stable")])


def _by_group_column(examples: Examples, config: Config) -> list[np.ndarray]:
    """Return the held-out rows of each fold by scikit-learn's StratifiedGroupKFold."""
    from sklearn.model_selection import StratifiedGroupKFold

    column, single = config.data.group_column, examples.target.single
    groups = _groups(examples, config)
    count = config.folds or max(round(1 / config.data.validation_fraction), 2)
    number = len(np.unique(groups))
    _check(examples, config, number, count, f"data.group_column={column!r} has {number} groups")
    strata = examples.target.strata(examples.labels)
    most = np.unique(strata, return_counts=True)[1].max()
    if single and most < count:  # a fold may hold out none of a rare label
        raise DataError(
            f"The most frequent label has {most} rows in {_source(config)}; expected at least "
            f"{count}, one for each fold.\n"
            f"{_fewer(config)}, add {config.data.noun}, or drop the label."
        )
    if most < count:
        strata = np.zeros(len(examples), int)
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=config.seed)
    with warnings.catch_warnings():
        # With groups a label may have fewer examples than folds.
        warnings.simplefilter("ignore", UserWarning)
        parts = list(splitter.split(np.zeros(len(examples)), strata, groups))
    for rows, validation in parts[: config.folds or 1]:
        # Groups may be too uneven to be shared out.
        present = set(examples.labels[rows].tolist()) if single else range(len(examples.classes))
        absent = [name for code, name in enumerate(examples.classes) if code not in present]
        if absent or not len(validation):
            what = f"without the label {absent[0]!r}" if absent else "with nothing to validate on"
            raise DataError(
                f"The groups of data.group_column={column!r} leave one of {count} folds {what}.\n"
                f"Expected each label in groups of several folds. {_fewer(config)}, merge labels, "
                "or choose another group_column."
            )
    return [validation for _, validation in parts[: config.folds or 1]]


def _by_duplicates(
    examples: Examples, config: Config, show: Callable[[str], None]
) -> list[np.ndarray]:
    """Return the held-out rows of each fold, where groups of duplicates stay whole."""
    groups, strata = _groups(examples, config), examples.target.strata(examples.labels)
    number = len(np.unique(groups))
    if config.folds is None:
        _check(examples, config, len(examples), 1, "")
        share, what = config.data.validation_fraction, "since one of each label trains"
        validation = np.flatnonzero(whole_groups(strata, groups, share, config.seed))
        if len(validation):
            return [validation]
    else:
        what = f"for folds={config.folds}"
    if config.folds is None or number < config.folds:
        raise DataError(
            f"The {len(examples):,} rows lie in {number:,} groups of duplicates: too few, {what}; "
            "expected more.\nSet data.group_duplicates=False in the config (copies may then be on "
            "both sides of a split), or complete the table."
        )
    # A row of each group, in the order of the groups: one of the rarest label, so that copies with
    # another label hide none.
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    rare_first = np.argsort(counts[codes], kind="stable")
    first = rare_first[np.unique(groups[rare_first], return_index=True)[1]]
    # No split looks at the inputs.
    ids, labels = tuple(examples.ids[row] for row in first), examples.labels[first]
    alone = replace(examples, ids=ids, inputs=first, labels=labels, groups=None)
    return [
        np.flatnonzero(np.isin(groups, groups[first[validation]]))
        for validation in _by_rows(alone, config, show)
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
    # A cell is a stratum within a group: those of group g are starts[g] to starts[g + 1].
    cells, rows = np.unique(groups * len(left) + codes, return_counts=True)
    of_group, of_code = cells // len(left), cells % len(left)
    starts = np.searchsorted(of_group, np.arange(len(sizes) + 1))
    # A group that alone holds a stratum trains.
    free = np.minimum.reduceat(np.bincount(of_code)[of_code], starts[:-1]) > 1
    rate = min(max(round(len(groups) * share), 1) / max(int(sizes[free].sum()), 1), 1)
    # Of each stratum the small groups come last: they make up for what the large ones left.
    rarest = np.minimum.reduceat(left[of_code] * len(left) + of_code, starts[:-1]) % len(left)
    order = random.permutation(np.flatnonzero(free))
    places = random.permutation(len(left))[rarest[order]]
    order = order[np.lexsort((-sizes[order], places))]
    chosen, debt = np.zeros(len(sizes), bool), random.random() - 0.5
    for group in order:
        debt += rate * sizes[group]
        if 2 * debt >= sizes[group]:
            part = slice(starts[group], starts[group + 1])
            if (left[of_code[part]] > rows[part]).all():
                left[of_code[part]] -= rows[part]
                chosen[group], debt = True, debt - sizes[group]
    if len(order) and not chosen.any():
        chosen[order[sizes[order].argmin()]] = True
    return np.asarray(chosen[groups])


def fingerprint(examples: Examples, pair: Pair) -> str:
    """Return a sha256 over the examples and the split, which another version of this project or of
    scikit-learn may make differently.
    """
    digest = hashlib.sha256(examples.fingerprint.encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def held_out(examples: Examples, pair: Pair) -> str:
    """Return a sha256 over the ids of the held-out rows: equal if two runs hold out the same."""
    ids = sorted(examples.ids[row] for row in pair[1])
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _warn(examples: Examples, count: int, show: Callable[[str], None]) -> None:
    """Name the labels that have fewer rows than there are folds."""
    members = np.bincount(examples.labels) if examples.target.single else np.array([count])
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


def _check(examples: Examples, config: Config, number: int, count: int, what: str) -> None:
    """Raise `DataError` if there are fewer examples or groups than folds, or a label has no row."""
    if number < count:
        raise DataError(
            f"{what}; expected at least {count}, one for each fold.\n"
            f"{_fewer(config)}, or choose another group_column."
        )
    if examples.target.single:
        members = np.bincount(examples.labels, minlength=len(examples.classes))
        if not members.all():
            raise DataError(
                f"The label {examples.classes[int(members.argmin())]!r} has no row in "
                f"{_source(config)}; expected at least one to train on.\n"
                "Add one, or drop the label."
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

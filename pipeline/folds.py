"""Folds: which labelled images a run trains on and which it validates on, fixed by the seed.

Every fold has its share of each label, and a group of images lies in one fold as a whole. Without folds there is one pair, by
`data.validation_fraction`.
"""

import hashlib
import warnings
from typing import Any

import numpy as np

from pipeline import data
from pipeline.config import Config
from pipeline.data import Images
from pipeline.errors import DataError

Pair = tuple[np.ndarray, np.ndarray]


def splits(images: Images, config: Config) -> list[Pair]:
    """Return (training rows, validation rows) of each fold, int64 and sorted; every row validates in one fold.

    Without `config.folds` there is one pair, and what validates is a share of the rows.

    Raises:
        DataError: if there are fewer groups than folds, or fewer images of a label, or a fold would train without some label.
    """
    if config.folds is None and config.data.group_column is None:
        return [data.split(images, config)]
    count = config.folds or max(round(1 / config.data.validation_fraction), 2)
    _check(images, config, count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a label with fewer images than folds, which groups permit
        cut = list(_cut(count, config).split(np.zeros(len(images)), images.labels, images.groups))
    pairs = [(np.sort(rows), np.sort(held)) for rows, held in cut[: config.folds or 1]]
    for rows, held in pairs:
        # Only groups make this: what they hold may be too uneven to be shared out.
        absent = np.setdiff1d(np.arange(len(images.classes)), images.labels[rows])
        if len(absent) or not len(held):
            what = f"without the label {images.classes[absent[0]]!r}" if len(absent) else "with nothing to validate on"
            raise DataError(
                f"The groups of data.group_column={config.data.group_column!r} leave one of {count} folds {what}.\n"
                f"Expected each label in groups of several folds. {_less(config)}, merge labels, or take another group_column."
            )
    return pairs


def fingerprint(images: Images, config: Config, pair: Pair) -> str:
    """Return a sha256 over the images, and over which of them validate: another version of scikit-learn may choose others."""
    if config.folds is None and config.data.group_column is None:
        return images.fingerprint()
    digest = hashlib.sha256(images.fingerprint().encode())
    digest.update(np.ascontiguousarray(pair[1], np.int64).data)
    return digest.hexdigest()


def _cut(count: int, config: Config) -> Any:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if config.data.group_column is None else StratifiedGroupKFold
    return kind(count, shuffle=True, random_state=config.seed)


def _check(images: Images, config: Config, count: int) -> None:
    """Refuse what cannot be cut into `count` folds."""
    column, members = config.data.group_column, np.bincount(images.labels, minlength=len(images.classes))
    if column is None:
        label = int(members.argmin())
    elif images.groups is None:
        raise DataError(
            f"The images have no groups; expected those of data.group_column={column!r}.\nRead them with this config."
        )
    else:
        there = len(np.unique(images.groups))
        if there < count:
            raise DataError(
                f"data.group_column={column!r} has {there} groups; expected at least {count}, one for each fold.\n"
                f"{_less(config)}, or take another group_column."
            )
        label = int(members.argmax())  # a rare one may be missing where a fold validates
    if members[label] < count:
        raise DataError(
            f"The label {images.classes[label]!r} has {members[label]} images; expected at least {count}, one for each fold.\n"
            f"{_less(config)}, add images, or drop the label."
        )


def _less(config: Config) -> str:
    return "Raise data.validation_fraction in the config" if config.folds is None else "Lower folds in the config"

"""Ordinary splits: many small classes, long tails, and labels with fewer rows than folds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data import folds
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.errors import DataError

DIGITS = configs.load("digits")


def of_sizes(sizes: list[int], seed: int = 0) -> Examples:
    """Return images without pixels: so many of each class, in a random order."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    names = tuple(f"whale {number}" for number in range(len(sizes)))
    return Examples(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        labels.astype(np.int32),
        Target("classes", names),
    )


def config(share: float = 0.1, count: int | None = None, seed: int = 0) -> Config:
    return replace(
        DIGITS, folds=count, seed=seed, data=replace(DIGITS.data, validation_fraction=share)
    )


@pytest.mark.parametrize("each", [2, 3, 5])
def test_a_tenth_of_two_thousand_small_classes_is_held_out(each):
    images = of_sizes([each] * 2000)

    rows, held = folds.split(images, config(0.1))

    assert len(held) == 200 * each
    assert len(np.unique(images.labels[rows])) == 2000


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.floats(0.02, 0.5),
    st.integers(0, 2**32 - 1),
)
def test_the_held_out_share_is_as_asked_of_the_rows_and_of_each_class(sizes, share, seed):
    """To within one row of all, and within one row of each class; a single row trains."""
    images, counts = of_sizes(sizes, seed), np.array(sizes)
    most = counts[counts > 1].sum()
    if not most:
        return

    rows, held = folds.split(images, config(share, seed=seed))

    assert sorted([*rows, *held]) == list(range(len(images)))
    assert set(images.labels[rows]) == set(range(len(sizes)))
    of_class = np.bincount(images.labels[held], minlength=len(sizes))
    assert not of_class[counts == 1].any()
    wanted = max(share * len(images), 1)
    even = np.where(counts > 1, counts * min(wanted / most, 1), 0)
    assert (np.abs(of_class - even) <= 1.5).all()  # one row, and the rounding of `wanted`
    if wanted <= most / 2:  # else a class of two rows has to keep one of them
        assert abs(len(held) - wanted) <= 1
    assert np.array_equal(held, folds.split(images, config(share, seed=seed))[1])


def test_another_seed_holds_out_other_small_classes():
    images = of_sizes([2] * 100)
    one, other = (folds.split(images, config(seed=seed))[1] for seed in (1, 2))

    assert set(images.labels[one]) != set(images.labels[other])


def test_a_label_with_fewer_rows_than_folds_is_named_and_the_folds_are_made():
    images, lines = of_sizes([500, 500, 3, 1]), []

    pairs = folds.splits(images, config(count=5), lines.append)

    assert sorted(np.concatenate([held for _, held in pairs])) == list(range(1004))
    shares = [np.bincount(images.labels[held], minlength=4) for _, held in pairs]
    assert np.ptp(shares, axis=0).tolist() == [0, 0, 1, 1]
    (line,) = lines
    assert "2 of 4 labels have fewer rows than folds=5: 'whale 3' (1), 'whale 2' (3)." in line
    assert "only row trains without it" in line


def test_folds_of_classes_that_are_all_smaller_than_their_number_are_made():
    """scikit-learn's StratifiedKFold refuses these."""
    images, lines = of_sizes([3] * 200), []

    pairs = folds.splits(images, config(count=5), lines.append)

    assert [len(held) for _, held in pairs] == [120] * 5
    assert all(len(np.unique(images.labels[rows])) == 200 for rows, _ in pairs)
    assert lines[0].startswith("Warning: 200 of 200 labels") and len(lines[0]) < 500


def test_enough_rows_of_each_label_make_no_warning():
    lines = []

    folds.splits(of_sizes([5, 6]), config(count=5), lines.append)
    folds.splits(of_sizes([1, 2]), config(), lines.append)

    assert lines == []


# Copies of pictures


def of_groups(sizes: list[list[int]]) -> Examples:
    """Return images without pixels: of each class groups of duplicates, so many in each."""
    images = of_sizes([sum(each) for each in sizes])
    groups, rows = np.zeros(len(images), np.int32), np.argsort(images.labels, kind="stable")
    flat = [size for each in sizes for size in each]
    groups[rows] = np.repeat(np.arange(len(flat)), flat)
    return replace(images, groups=groups)


def grouped(share: float = 0.1, seed: int = 0) -> Config:
    made = config(share, seed=seed)
    return replace(made, data=replace(made.data, group_duplicates=True))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 12), min_size=4, max_size=12), min_size=1, max_size=12),
    st.floats(0.05, 0.3),
    st.integers(0, 2**32 - 1),
)
def test_whole_groups_of_copies_are_held_out_until_the_share_of_the_rows_is_reached(
    sizes, share, seed
):
    """To within the largest group; and each class trains."""
    images = of_groups(sizes)

    ((rows, held),) = folds.splits(images, grouped(share, seed))

    assert sorted([*rows, *held]) == list(range(len(images)))
    assert not set(images.groups[rows]) & set(images.groups[held])
    assert set(images.labels[rows]) == set(range(len(sizes)))
    assert abs(len(held) - share * len(images)) <= max(max(each) for each in sizes) + 1


def test_many_copies_of_few_pictures_leave_the_share_as_it_is():
    """Half of the rows are copies of ten pictures."""
    images = of_groups([[10] * 5 + [1] * 50] * 2)

    ((_, held),) = folds.splits(images, grouped(0.2))

    assert np.bincount(images.labels[held]).tolist() == [20, 20]


def test_classes_of_one_group_train_and_the_few_held_out_rows_are_named():
    """As of 200 near pictures in a class: nearly nothing is left to validate."""
    images, lines = of_groups([[3]] * 200 + [[1, 1]]), []

    ((rows, held),) = folds.splits(images, grouped(), lines.append)

    assert set(images.labels[rows]) == set(range(201)) and len(held) == 1
    (line,) = lines
    assert "1 of 602 rows are held out, where data.validation_fraction=0.1 asks for 60" in line
    assert "202 groups of duplicates" in line and "Set group_duplicates=False" in line


def test_uneven_groups_of_a_column_that_hold_out_too_little_are_named():
    images, lines = of_groups([[400, *[1] * 12]]), []
    by_patient = replace(DIGITS.data, group_column="patient", validation_fraction=0.3)

    folds.splits(images, replace(DIGITS, folds=None, data=by_patient), lines.append)

    (line,) = lines
    assert "rows are held out" in line and "data.group_column='patient'" in line


@pytest.mark.parametrize("count", [None, 6])
def test_copies_that_leave_nothing_to_hold_out_are_named_with_the_edit(count):
    images = of_groups([[10], [8], [6], [4], [2]])

    with pytest.raises(DataError, match=r"30 rows lie in 5 groups of duplicates.*(?s:.)*=False"):
        folds.splits(images, replace(grouped(), folds=count))

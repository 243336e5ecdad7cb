"""Every labelled row validates once, on one side of a split with its group, whatever the labels:
many small classes, long tails, fewer rows than folds.
"""

import re
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
from tests.pipeline.handmade import with_data

DIGITS = configs.load("digits")
COPIES, PATIENTS = {"group_duplicates": True}, {"group_column": "patient"}
seeds = st.integers(0, 2**32 - 1)


def labelled(labels: object, groups: object = None) -> Examples:
    """Return images without pixels, of these labels and groups."""
    names = np.unique(labels)
    return Examples(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        np.searchsorted(names, labels).astype(np.int32),
        Target("classes", tuple(map(str, names))),
        None if groups is None else np.asarray(groups, np.int32),
    )


def of_sizes(sizes: list[int], seed: int = 0) -> Examples:
    """Return so many images of each class, in a random order."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return labelled(np.random.default_rng(seed).permutation(rows))


def of_groups(sizes: list[list[int]]) -> Examples:
    """Return of each class groups of so many images."""
    flat = [size for each in sizes for size in each]
    return labelled(
        np.repeat(np.arange(len(sizes)), [sum(each) for each in sizes]),
        np.repeat(np.arange(len(flat)), flat),
    )


def config(share: float = 0.1, count: int | None = None, seed: int = 0, **data: object) -> Config:
    made = replace(DIGITS, folds=count, seed=seed)
    return with_data(made, validation_fraction=share, **data)


def cut(images: Examples, made: Config, show: object = None) -> list[folds.Pair]:
    """Return the split, which loses no row, holds out whole groups, and is the same every time."""
    pairs = folds.splits(images, made, show)
    assert len(pairs) == (made.folds or 1)
    for rows, held in pairs:
        assert np.array_equal(np.sort([*rows, *held]), np.arange(len(images)))
        assert list(rows) == sorted(rows) and list(held) == sorted(held) and len(held)
        if images.groups is not None:
            assert not set(images.groups[rows]) & set(images.groups[held])
    if made.folds:
        assert sorted(np.concatenate([held for _, held in pairs])) == list(range(len(images)))
    again = folds.splits(images, made)
    assert all(np.array_equal(one[1], two[1]) for one, two in zip(pairs, again, strict=True))
    return pairs


def counts(images: Examples, rows: np.ndarray) -> np.ndarray:
    """Return how many of the rows each class has."""
    return np.bincount(images.labels[rows], minlength=len(images.classes))


@given(st.lists(st.integers(1, 25), min_size=2, max_size=5), st.integers(2, 6), seeds)
def test_folds_share_out_each_label_evenly(sizes, count, seed):
    """Two folds differ by one image of a label at most, in whatever order the table is."""
    images = of_sizes([*sizes, 6], seed)

    pairs = cut(images, config(count=count, seed=seed))

    assert np.ptp([counts(images, held) for _, held in pairs], axis=0).max() <= 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.floats(0.02, 0.5), seeds)
def test_the_held_out_share_is_as_asked_of_the_rows_and_of_each_class(sizes, share, seed):
    """To within one row of all, and within one row of each class; a single row trains."""
    images, sizes = of_sizes(sizes, seed), np.array(sizes)
    most = sizes[sizes > 1].sum()
    if not most:
        return

    [(rows, held)] = cut(images, config(share, seed=seed))

    assert counts(images, rows).all()
    of_class = counts(images, held)
    assert not of_class[sizes == 1].any()
    wanted = max(share * len(images), 1)
    even = np.where(sizes > 1, sizes * min(wanted / most, 1), 0)
    assert (np.abs(of_class - even) <= 1.5).all()  # one row, and the rounding of `wanted`
    if wanted <= most / 2:  # else a class of two rows has to keep one of them
        assert abs(len(held) - wanted) <= 1


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=20, max_size=120),
    st.one_of(st.none(), st.integers(2, 5)),
    st.sampled_from([COPIES, PATIENTS]),
    seeds,
)
def test_a_group_is_never_on_both_sides(rows, count, grouping, seed):
    """What cannot be cut so is refused. Copies move the share of the pictures that each fold holds
    out by one of each label at most.
    """
    images = labelled(*zip(*rows, strict=True))
    try:
        pairs = cut(images, config(0.25, count, seed, **grouping))
    except DataError as error:
        assert "xpected" in str(error)
        return

    number = len(np.unique(images.groups))
    for trained, held in pairs:
        if grouping is PATIENTS or count is None:
            assert counts(images, trained).all()
        else:
            share = len(np.unique(images.groups[held])) - number / count
            assert abs(share) <= len(images.classes)


@given(
    st.lists(st.lists(st.integers(1, 12), min_size=4, max_size=12), min_size=1, max_size=12),
    st.floats(0.05, 0.3),
    seeds,
)
def test_whole_groups_of_copies_are_held_out_until_the_share_of_the_rows_is_reached(
    sizes, share, seed
):
    """To within the largest group; and each class trains."""
    images = of_groups(sizes)

    [(rows, held)] = cut(images, config(share, seed=seed, **COPIES))

    assert counts(images, rows).all()
    assert abs(len(held) - share * len(images)) <= max(max(each) for each in sizes) + 1


def test_many_copies_of_few_pictures_leave_the_share_as_it_is():
    images = of_groups([[10] * 5 + [1] * 50] * 2)

    [(_, held)] = cut(images, config(0.2, **COPIES))

    assert counts(images, held).tolist() == [20, 20]


def test_groups_of_a_column_are_shared_out_by_label_and_by_the_share_that_is_held_back():
    images = of_groups([[5] * 20] * 2)

    [(_, held)] = cut(images, config(0.25, **PATIENTS))

    assert counts(images, held).tolist() == [25, 25]


def test_copies_with_another_label_hide_no_rare_label():
    """One of the rarest label stands for its copies in a split."""
    images = labelled([*range(2)] * 20 + [2, 0, 2, 0], [*range(40), 40, 40, 41, 41])

    assert all(counts(images, rows).all() for rows, _ in cut(images, config(count=2, **COPIES)))


def test_numbers_are_held_out_in_proportion_of_each_tenth():
    numbers = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
    target = Target("regression", ("price",), (0.0,), (1.0,))
    images = replace(labelled(range(100)), labels=numbers, target=target)

    [(_, held)] = cut(images, config(0.2))

    assert np.bincount(target.strata(numbers)[held]).tolist() == [2] * 10


def test_another_seed_is_another_split_with_another_fingerprint():
    images = of_sizes([2] * 100)
    pairs = [pair for seed in (1, 2) for pair in cut(images, config(count=3, seed=seed))]
    one, other = (cut(images, config(seed=seed))[0][1] for seed in (1, 2))

    assert len({folds.fingerprint(images, pair) for pair in pairs}) == 6
    assert set(images.labels[one]) != set(images.labels[other])


# -- what is told


@pytest.mark.parametrize(
    ("images", "made", "said"),
    [
        (of_sizes([5, 6]), config(count=5), ""),
        (of_sizes([1, 2]), config(), ""),
        (of_sizes([10, *[1] * 10]), config(0.5), ""),  # 9 of the 10 that are asked for
        (of_sizes([500, 500, 3]), config(count=5), r"1 of 3 labels .* folds=5: '2' \(3\)"),
        (of_sizes([50, 1]), config(count=5), r"'1' \(1\).*only row trains without it"),
        (of_sizes([3] * 200), config(count=5), "200 of 200 labels have fewer rows"),
        (of_groups([[3]] * 200 + [[1, 1]]), config(**COPIES), "1 of 602 rows are held out.* 60"),
        (of_groups([[3]] * 200 + [[1, 1]]), config(**COPIES), "Set group_duplicates=False"),
        (of_groups([[400, *[1] * 12]]), config(0.3, **PATIENTS), "data.group_column='patient'"),
    ],
)
def test_a_warning_names_rare_labels_and_few_held_out_rows(images, made, said):
    lines = []

    cut(images, made, lines.append)

    assert len(lines) == bool(said)
    assert all(re.search(said, line) and len(line) < 500 for line in lines)


MISSING = replace(labelled([0, 1, 0]), labels=np.zeros(3, np.int32))
FEW = labelled([0, 1] * 9, [0, 1, 1] * 6)


@pytest.mark.parametrize(
    ("images", "made", "said"),
    [
        (labelled([0, 0, 0, 1, 1]), config(count=6), "5 examples; expected at least 6.*Lower fol"),
        (FEW, config(count=3, **PATIENTS), "2 groups; expected at least 3.*Lower folds"),
        (FEW, config(0.25, **PATIENTS), "2 groups; expected at least 4.*Raise data.validation_f"),
        (labelled([0, 1, 2], [0, 1, 2]), config(count=2, **PATIENTS), "has 1 rows in train.csv"),
        (
            labelled([0] * 9 + [1], range(10)),
            config(count=3, **PATIENTS),
            "leave one of 3 folds without the label '1'",
        ),
        (of_groups([[8], [6], [4]]), config(**COPIES), "18 rows lie in 3 groups of dup.*=False"),
        (of_groups([[8], [6], [4]]), config(count=4, **COPIES), "in 3 groups of dup.*=False"),
        (MISSING, config(), r"'1' has no row in train\.csv"),
        (of_sizes([1, 1, 1]), config(), "too few to hold any out"),
        (of_sizes([9, 9]), config(count=3, **PATIENTS), "those of data.group_column='patient'"),
        (of_sizes([9, 9]), config(count=3, **COPIES), "those of data.group_duplicates"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_edit(images, made, said):
    with pytest.raises(DataError, match=f"(?s){said}"):
        cut(images, made)

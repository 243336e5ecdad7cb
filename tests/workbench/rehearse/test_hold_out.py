"""Rows are hidden in whole groups, and enough remain for a session's own split."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from workbench.rehearse.hold_out import MOST_HIDDEN, HoldOut


def examples(kind: str, seed: int, rows: int, groups: int | None) -> Examples:
    random = np.random.default_rng(seed)
    labels = random.choice(3, rows, p=(0.7, 0.25, 0.05)).astype(np.int32)
    if kind == "multilabel":
        labels = (random.random((rows, 3)) < (0.7, 0.25, 0.05)).astype(np.float32)
    of = None if groups is None else random.integers(0, groups, rows).astype(np.int32)
    names = tuple(map(str, range(rows)))
    return Examples(names, np.zeros((rows, 1)), labels, Target(kind, ("a", "b", "c")), of)


def label_groups(given: Examples, rows: np.ndarray) -> list[int]:
    """Return the number of groups of each label."""
    groups = np.arange(len(given)) if given.groups is None else given.groups
    has = given.labels[rows] > 0
    if given.target.single:
        has = given.labels[rows][:, None] == np.arange(3)
    return [len(set(groups[rows][column])) for column in has.T]


@pytest.mark.parametrize("kind", ["classes", "multilabel"])
@settings(max_examples=30)
@given(
    seed=some.integers(0, 2**32 - 1),
    rows=some.integers(20, 200),
    groups=some.none() | some.integers(8, 60),
    folds=some.none() | some.integers(2, 6),
    most=some.integers(1, 100),
)
def test_each_label_keeps_a_group_per_fold_or_all_that_it_has(
    tiny, kind, seed, rows, groups, folds, most
):
    made = examples(kind, seed, rows, groups)
    choice = HoldOut(made, replace(tiny, folds=folds))
    hidden = choice.hide(np.arange(rows))
    kept = np.setdiff1d(np.arange(rows), hidden)
    if made.groups is not None:
        assert not set(made.groups[hidden]) & set(made.groups[kept])
    fewer = choice.fewer(kept, most)
    assert set(fewer) <= set(kept)
    before = label_groups(made, np.arange(rows))
    for rest in (kept, fewer):
        for now, had in zip(label_groups(made, rest), before, strict=True):
            assert now >= min(had, folds or 2)


def test_a_config_with_groups_and_no_folds_keeps_the_groups_of_its_split(tiny):
    made = examples("classes", 0, 120, 12)
    config = replace(tiny, data=replace(tiny.data, group_column="patient"))
    choice = HoldOut(made, config)  # a tenth is held out: one of ten parts
    kept = np.setdiff1d(np.arange(120), choice.hide(np.arange(120)))
    assert made.groups is not None
    assert len(set(made.groups[kept])) >= 10
    assert len(set(made.groups[choice.fewer(kept, 5)])) >= 10


def test_rows_of_many_small_labels_are_hidden_too(tiny):
    rows = 20_000
    labels = np.arange(rows, dtype=np.int32) % 5_000  # a tenth of four rows is less than half a row
    target = Target("classes", tuple(map(str, range(5_000))))
    made = Examples(tuple(map(str, range(rows))), np.zeros((rows, 1)), labels, target)
    assert len(HoldOut(made, tiny).hide(np.arange(rows))) == MOST_HIDDEN


@settings(max_examples=20)
@given(seed=some.integers(0, 2**32 - 1), most=some.integers(30, 100))
def test_fewer_rows_are_stratified(tiny, seed, most):
    made = examples("classes", seed, 200, None)
    rows = np.random.default_rng(seed).permutation(200)
    kept = HoldOut(made, tiny).fewer(rows, most)
    assert len(kept) == len(set(kept)) == most and set(kept) <= set(rows)
    shares = np.bincount(made.labels, minlength=3) * most / 200
    # A share is rounded up or down, and each label keeps two rows.
    assert (np.abs(np.bincount(made.labels[kept], minlength=3) - shares) <= 2).all()

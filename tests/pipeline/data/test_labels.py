"""What a model's outputs mean: every kind of target has one law, and labels that break it are
refused by name.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data import labels as target
from pipeline.data.labels import Target
from pipeline.errors import DataError
from tests.pipeline.rounding import EPS

DIGITS = configs.load("digits")
TABLE = Path("train.csv")
TAGS = Target("multilabel", ("a", "b"))

logits = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 9), st.integers(2, 6)),
    elements=st.floats(-1e4, 1e4, width=32),
)
numbers = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 30), st.integers(1, 3)),
    elements=st.floats(0, 1e6, allow_subnormal=False),
).filter(lambda values: (values.std(axis=0) > 1e-3).all())


def predicting(kind: str, *columns: str, num_classes: int = 0, metric: str = "") -> Config:
    """Return a config with this target in these columns."""
    given = replace(DIGITS.data, label_column=columns)
    return replace(DIGITS, data=given, target=kind, num_classes=num_classes, metric=metric)


def named(width: int) -> tuple[str, ...]:
    return tuple(map(str, range(width)))


@given(logits)
def test_the_predictions_of_classes_are_shares_of_one(values):
    """However large the outputs are, and in their order."""
    found = Target("classes", named(values.shape[1])).predictions(values)

    assert found.dtype == np.float32 and (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(1, abs=2 * values.shape[1] * EPS)
    assert (found[np.arange(len(values)), values.argmax(axis=1)] == found.max(axis=1)).all()


@given(logits)
def test_the_predictions_of_ordered_labels_are_shares_of_one(values):
    """Also of outputs that contradict each other; there is one label more than outputs."""
    found = Target("ordinal", named(values.shape[1] + 1)).predictions(values)

    assert found.shape == (len(values), values.shape[1] + 1)
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(1, abs=2 * found.shape[1] * EPS)


@given(logits, st.floats(0, 100))
def test_higher_outputs_never_mean_a_lower_label(values, more):
    """The mean of ordered labels rises with the outputs."""
    own = Target("ordinal", named(values.shape[1] + 1))
    places = np.arange(values.shape[1] + 1)

    below, above = (
        own.predictions(values) @ places,
        own.predictions(values + np.float32(more)) @ places,
    )

    # Each of the sigmoids that are summed is off by a few roundings of numbers up to 1.
    assert (above >= below - 16 * values.shape[1] * EPS).all()


@given(logits)
def test_the_predictions_of_several_labels_are_probabilities_of_each(values):
    """Independent of each other, and above 1/2 where the output is positive."""
    found = Target("multilabel", named(values.shape[1])).predictions(values)

    assert ((found >= 0) & (found <= 1)).all()
    assert (
        np.array_equal(found > 0.5, values > 0)
        # A sigmoid rises by a quarter of its output at 0, and is off by a few roundings of 1/2.
        or np.abs(values[(found > 0.5) != (values > 0)]).max() <= 16 * EPS
    )


@given(numbers, st.booleans())
def test_numbers_come_back_in_their_own_units(values, log):
    """Learned in standard deviations, of the logarithm for rmsle."""
    columns = ["a", "b", "c"][: values.shape[1]]
    table = pd.DataFrame(values, columns=columns).map(repr)

    own, labels = target.read(
        table, predicting("regression", *columns, metric="rmsle" if log else "rmse"), TABLE
    )

    assert labels.dtype == np.float32 and own.log == log
    learned = np.log1p(values) if log else values
    # A sum of n numbers is off by n roundings of the largest, in float64 before the division by the
    # deviation, and in float32 behind it.
    spread = (np.abs(learned).max(axis=0) / learned.std(axis=0)).max()
    bound = len(values) * (2 * EPS + 8 * np.finfo(float).eps * spread)
    assert labels.mean(axis=0) == pytest.approx(0, abs=bound)
    assert labels.std(axis=0) == pytest.approx(1, abs=bound)
    # Eight roundings of the largest number; the exponential of log1p multiplies them by it.
    bound = 8 * EPS * (values.max() + 1) * (1 + learned.max() if log else 1)
    assert own.truth(labels) == pytest.approx(values, rel=0, abs=bound)
    assert own.predictions(labels) == pytest.approx(values, rel=0, abs=bound)
    assert Target.from_json(json.loads(json.dumps(own.to_json()))) == own


def test_ordered_labels_are_in_the_order_of_numbers():
    """As texts 10 comes before 9."""
    table = pd.DataFrame({"grade": ["9", "10", "-1", "9"]})

    own, labels = target.read(table, predicting("ordinal", "grade", num_classes=3), TABLE)

    assert own.names == ("-1", "9", "10")
    assert list(labels) == [1, 2, 0, 1]


def test_several_labels_stand_in_one_column_or_in_one_each():
    """With blanks between them, or as 0 and 1; a row may have none."""
    tags = pd.DataFrame({"tags": ["b a", "", "c"]})
    each = pd.DataFrame({"c": ["0", "0", "1"], "a": ["1", "0.0", "0"]})

    one, labels = target.read(tags, predicting("multilabel", "tags", num_classes=3), TABLE)
    two, columns = target.read(each, predicting("multilabel", "c", "a"), TABLE)

    assert (one.names, labels.tolist()) == (("a", "b", "c"), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert (two.names, columns.tolist()) == (("c", "a"), [[0, 1], [0, 0], [1, 0]])
    assert one.best(labels) == ["a b", "", "c"]


@given(
    st.sampled_from(["|", ";", ",", ", ", " | ", "/"]),
    st.lists(st.lists(st.sampled_from(["cat", "big dog", "ß"]), unique=True), min_size=1),
)
def test_labels_are_read_at_their_separator_and_written_with_it(separator, rows):
    """Spaces around it do not count, and a label may have some within."""
    rows = [sorted(row) for row in [*rows, ["big dog", "cat", "ß"]]]
    config = predicting("multilabel", "tags", num_classes=3)
    config = replace(config, data=replace(config.data, label_separator=separator))
    table = pd.DataFrame({"tags": [f" {separator}  ".join(row) for row in rows]})

    found, labels = target.read(table, config, TABLE)

    assert found.names == ("big dog", "cat", "ß")
    assert found.best(labels) == [separator.join(row) for row in rows]
    assert Target.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_target_of_an_older_artifact_has_spaces_between_labels():
    value = TAGS.to_json()
    del value["separator"]

    assert Target.from_json(value) == TAGS


def test_a_split_keeps_in_proportion_what_is_rare():
    """Of several labels the rarest; of numbers the tenth that they lie in."""
    labels = np.array([[1, 1], [1, 0], [1, 0], [0, 0]], np.float32)
    values = np.arange(100, dtype=np.float32)[:, None]

    several = Target("multilabel", ("often", "rare")).strata(labels)
    tenths = Target("regression", ("x",), (0.0,), (1.0,)).strata(values)

    assert several[0] != several[1] == several[2] != several[3] and several[0] != several[3]
    assert np.ptp(np.bincount(tenths)) <= 1 and len(np.unique(tenths)) == 10
    assert (np.diff(tenths) >= 0).all()


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=50))
def test_numbers_have_at_most_ten_strata(values):
    """Also where many are equal."""
    found = Target("regression", ("x",), (0.0,), (1.0,)).strata(
        np.array(values, np.float32)[:, None]
    )

    assert ((found >= 0) & (found < 10)).all()


@pytest.mark.parametrize("kind", ["classes", "ordinal", "multilabel", "regression"])
def test_a_loss_is_least_where_the_prediction_is_right(kind):
    """And finite, however wrong it is."""
    right, labels = {
        "classes": ([[9.0, -9.0, -9.0]], np.array([0])),
        "ordinal": ([[9.0, -9.0]], np.array([1])),
        "multilabel": ([[9.0, -9.0]], np.array([[1, 0]], np.float32)),
        "regression": ([[1.5, -2.0]], np.array([[1.5, -2.0]], np.float32)),
    }[kind]
    outputs = np.array([right[0], [-1e4 * value for value in right[0]]], np.float32)
    twice = np.concatenate([labels, labels])

    good, bad = np.asarray(target.losses(kind, twice, outputs))

    assert 0 <= good < 1e-2 < 1 < bad < np.inf
    figures = np.asarray(target.figure(kind, twice, outputs))
    assert figures[0] == (0 if kind == "regression" else 1)


def test_a_miss_by_two_costs_more_than_a_miss_by_one():
    """Of labels in rising order."""
    outputs = np.array([[9, 9, 9], [9, 9, -9], [9, -9, -9]], np.float32)  # the labels 3, 2 and 1

    none, one, two = np.asarray(target.losses("ordinal", np.full(3, 3), outputs))

    assert none < one < two


@pytest.mark.parametrize(
    ("config", "columns", "said"),
    [
        (
            predicting("classes", "y", num_classes=3),
            {"y": ["a", "b"]},
            "2 different labels.*num_classes=3",
        ),
        (
            predicting("ordinal", "y", num_classes=2),
            {"y": ["1", "good"]},
            "the label 'good'.*numbers",
        ),
        (predicting("ordinal", "y", num_classes=2), {"y": ["1", "nan"]}, "the label 'nan'"),
        (
            predicting("ordinal", "y", num_classes=3),
            {"y": ["1", "2", "1.0"]},
            "in two ways, '1(.0)?' and '1(.0)?'",
        ),
        (
            predicting("multilabel", "y", num_classes=3),
            {"y": ["a b", "b"]},
            "2 different labels.*num_classes=3",
        ),
        (
            predicting("multilabel", "y", "z"),
            {"y": ["0", "1"], "z": ["0", "2"]},
            "'2' in 'z'.*0 or 1",
        ),
        (
            predicting("regression", "y"),
            {"y": ["1", ""]},
            "1 labels in 'y' that are not finite numbers: ''",
        ),
        (
            predicting("regression", "y"),
            {"y": ["1", "inf", "1_0"]},
            "2 labels in 'y'.*'inf', '1_0'",
        ),
        (
            predicting("regression", "y"),
            {"y": ["699050.6946514922"] * 3},
            "one and the same number in all of 'y'",
        ),
        (
            predicting("regression", "y", metric="rmsle"),
            {"y": ["3", "-1"]},
            "labels below 0.*rmsle",
        ),
        (predicting("regression", "y"), {"y": ["3e300", "1"]}, "labels in .y. beyond 1e.30"),
        (
            predicting("regression", "y", metric="rmsle"),
            {"y": ["3e300", "1"]},
            "labels in .y. beyond 1e.30",
        ),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(config, columns, said):
    """With the file, the column and the text."""
    with pytest.raises(DataError, match=f"(?s){said}") as caught:
        target.read(pd.DataFrame(columns), config, TABLE)

    assert "train.csv" in str(caught.value) and "expect" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "x"},
        {"names": []},
        {"center": [1.0]},
        {"spread": ["x"]},
        {"center": None},
        {"names": 3},
    ],
)
def test_what_is_no_target_is_refused(change):
    """It comes from a file that somebody else may have written."""
    value = {**Target("classes", ("a", "b")).to_json(), **change}

    with pytest.raises((KeyError, TypeError, ValueError)):
        Target.from_json(value)


@given(
    arrays.arrays(np.float64, st.integers(2, 50), elements=st.floats(0, 1e6, allow_subnormal=False))
)
def test_what_is_learned_by_its_logarithm_is_never_below_zero(values):
    """A label of 0 comes back as 0 and no hair below, which the metric would refuse; nor is
    anything predicted there.
    """
    values[0] = 0.0
    if np.log1p(values).std() < 1e-3:
        return
    table = pd.DataFrame({"price": list(map(repr, values.tolist()))}, dtype=object)

    found, labels = target.read(table, predicting("regression", "price", metric="rmsle"), TABLE)

    assert (found.truth(labels) >= 0).all()
    assert (found.predictions(np.array([[-100.0], [0.0]])) >= 0).all()


def test_a_row_without_a_label_is_no_class():
    table = pd.DataFrame({"label": ["cat", "dog", ""]}, dtype=object)

    with pytest.raises(DataError, match="1 rows without a label in 'label'"):
        target.read(table, predicting("classes", "label", num_classes=3), TABLE)

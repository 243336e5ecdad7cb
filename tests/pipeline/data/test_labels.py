"""The meaning of a model's outputs for each kind of target, and the labels that are refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipeline.config import Config
from pipeline.data import labels as target
from pipeline.data.labels import Target
from pipeline.errors import DataError
from tests.pipeline.handmade import with_data
from tests.pipeline.rounding import EPS
from tests.shipped import shipped

DIGITS = shipped("digits")
TABLE = Path("train.csv")

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


@given(logits, st.sampled_from(["classes", "ordinal"]))
def test_the_predictions_of_classes_are_shares_of_one(values, kind):
    """For outputs of any size. Ordinal outputs may contradict each other."""
    number = values.shape[1] + (kind == "ordinal")

    found = Target(kind, named(number)).predictions(values)

    assert found.shape == (len(values), number) and found.dtype == np.float32
    assert (found >= 0).all() and found.sum(axis=1) == pytest.approx(1, abs=2 * number * EPS)
    if kind == "classes":
        best = found[np.arange(len(values)), values.argmax(axis=1)]
        assert (best == found.max(axis=1)).all()


@given(logits, st.floats(0, 100))
def test_higher_outputs_never_mean_a_lower_label(values, more):
    """The mean of ordinal labels increases with the outputs."""
    own, places = Target("ordinal", named(values.shape[1] + 1)), np.arange(values.shape[1] + 1)

    below, above = (own.predictions(values + np.float32(add)) @ places for add in (0, more))

    # Each of the sigmoids that are summed is off by a few roundings of numbers up to 1.
    assert (above >= below - 16 * values.shape[1] * EPS).all()


@given(logits)
def test_the_predictions_of_several_labels_are_probabilities_of_each(values):
    """Independent of each other, and above 1/2 where the output is positive."""
    found = Target("multilabel", named(values.shape[1])).predictions(values)

    assert ((found >= 0) & (found <= 1)).all()
    # A sigmoid rises by a quarter of its output at 0, and is off by a few roundings of 1/2.
    clear = np.abs(values) > 16 * EPS
    assert np.array_equal(found[clear] > 0.5, values[clear] > 0)


@settings(max_examples=50)
@given(numbers, st.booleans())
def test_numbers_come_back_in_their_own_units(values, log):
    """Learned in standard deviations, of the logarithm for rmsle."""
    columns = ["a", "b", "c"][: values.shape[1]]
    table = pd.DataFrame(values, columns=columns).map(repr)

    config = predicting("regression", *columns, metric="rmsle" if log else "rmse")
    own, labels = target.read(table, config, TABLE)

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
    if log:  # the metric would refuse a number a hair below 0
        assert (own.truth(labels) >= 0).all()
        assert (own.predictions(np.full((1, len(columns)), -100.0)) >= 0).all()
    assert Target.from_json(json.loads(json.dumps(asdict(own)))) == own


def test_ordered_labels_are_in_the_order_of_numbers():
    """As texts 10 comes before 9."""
    table = pd.DataFrame({"grade": ["9", "10", "-1", "9"]})

    own, labels = target.read(table, predicting("ordinal", "grade", num_classes=3), TABLE)

    assert own.names == ("-1", "9", "10")
    assert list(labels) == [1, 2, 0, 1]


def test_several_labels_are_in_one_column_or_in_one_each():
    """Separated by spaces, or as 0 and 1; a row may have none."""
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
    """Spaces around it are ignored, and labels may contain some."""
    rows = [sorted(row) for row in [*rows, ["big dog", "cat", "ß"]]]
    config = predicting("multilabel", "tags", num_classes=3)
    config = with_data(config, label_separator=separator)
    table = pd.DataFrame({"tags": [f" {separator}  ".join(row) for row in rows]})

    found, labels = target.read(table, config, TABLE)

    assert found.names == ("big dog", "cat", "ß")
    assert found.best(labels) == [separator.join(row) for row in rows]
    assert Target.from_json(json.loads(json.dumps(asdict(found)))) == found


def test_a_split_keeps_the_rarest_of_several_labels_in_proportion():
    labels = np.array([[1, 1], [1, 0], [1, 0], [0, 0]], np.float32)

    first, second, third, none = Target("multilabel", ("often", "rare")).strata(labels)

    assert second == third and len({first, second, none}) == 3


@pytest.mark.parametrize(
    ("kind", "right", "label"),
    [
        ("classes", [9.0, -9.0, -9.0], 0),
        ("ordinal", [9.0, -9.0], 1),
        ("multilabel", [9.0, -9.0], [1.0, 0.0]),
        ("regression", [1.5, -2.0], [1.5, -2.0]),
    ],
)
def test_a_loss_is_least_where_the_prediction_is_right(kind, right, label):
    """And finite, however wrong it is."""
    outputs = np.array([right, [-1e4 * value for value in right]], np.float32)
    labels = np.array([label, label], np.int32 if isinstance(label, int) else np.float32)

    good, bad = np.asarray(target.losses(kind, labels, outputs))

    assert 0 <= good < 1e-2 < 1 < bad < np.inf
    assert target.figure(kind, labels, outputs)[0] == (0 if kind == "regression" else 1)


@pytest.mark.parametrize(
    ("kind", "texts", "said"),
    [
        ("classes", ["9" * 999, "b"], r"2 different labels \('9{60}…', 'b'\);.*=3"),
        ("classes", ["a", "b", ""], "'' in 'y' .row 3.; expected a label"),
        ("ordinal", ["1", "2", "good"], "'good' in 'y'.*expected numbers"),
        ("multilabel", ["a b", "b"], "2 different labels.*num_classes=3"),
        ("regression", ["1", "inf", "1_0"], "'inf', '1_0' in 'y' .2 rows, starting with row 2"),
        ("regression", ["699050.6946514922"] * 3, "expected different numbers"),
        ("rmsle", ["3", "-1"], "'-1' in 'y'.*expected .*0 or more for the metric rmsle"),
        ("rmsle", ["3e300", "1"], "'3e300' in 'y'.*expected finite numbers up to 1e.30"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(kind, texts, said):
    """With the file, the column and the text."""
    kind, metric = ("regression", kind) if kind == "rmsle" else (kind, "")
    number = 0 if kind == "regression" else 3
    config = predicting(kind, "y", num_classes=number, metric=metric)

    with pytest.raises(DataError, match=rf"(?s)train\.csv.*{said}"):
        target.read(pd.DataFrame({"y": texts}), config, TABLE)


def test_a_column_for_each_label_holds_0_and_1():
    table = pd.DataFrame({"y": ["0", "1"], "z": ["0", "2"]})

    with pytest.raises(DataError, match=r"'2' in 'z' .*expected only 0 and 1"):
        target.read(table, predicting("multilabel", "y", "z"), TABLE)

"""The numbers of a report are those of scikit-learn and SciPy, where these have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import calibration, metrics

from workbench.pages import statistics


@given(st.integers(1, 10**7), st.floats(0, 1))
def test_the_interval_of_a_share_is_wilson_s(rows, share):
    """Near 0 and 1 too, where the usual one would leave the scale."""
    right = round(share * rows)

    low, high = statistics.wilson(right, rows)

    expected = stats.binomtest(right, rows).proportion_ci(method="wilson") if rows < 10**5 else None
    assert 0 <= low <= right / rows + 1e-12 and right / rows - 1e-12 <= high <= 1
    assert expected is None or (low, high) == pytest.approx((expected.low, expected.high), abs=1e-6)


labelled = st.integers(2, 6).flatmap(
    lambda number: st.tuples(
        st.just(number),
        st.lists(st.tuples(*[st.integers(0, number - 1)] * 2), min_size=1, max_size=40),
    )
)


@given(labelled)
@settings(max_examples=30)
def test_precision_recall_and_f1_are_scikit_learn_s(drawn):
    """A share of nothing is no number, and in no mean; for scikit-learn it is 0."""
    number, pairs = drawn
    labels, predictions = np.array(pairs).T

    found = statistics.by_class(labels, predictions, number)

    names = range(number)
    expected = metrics.precision_recall_fscore_support(
        labels, predictions, labels=names, zero_division=0
    )
    for column, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
        assert np.allclose(found[column].fillna(0), values)
    counts = metrics.confusion_matrix(labels, predictions, labels=names)
    first = statistics.confusions(labels, predictions).drop_duplicates("label").set_index("label")
    for row in names:
        others = np.where(np.arange(number) == row, 0, counts[row])
        assert first["times"].get(row, 0) == others.max()
        assert first["prediction"].get(row, -1) == (others.argmax() if others.any() else -1)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.booleans()), min_size=1, max_size=60))
@settings(max_examples=30)
def test_the_calibration_is_scikit_learn_s_and_no_row_is_lost(rows):
    """Each row is in one bin; the error lies between 0 and 1."""
    confidence, right = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    found = statistics.calibration(confidence, right)

    assert found.bins["rows"].sum() == len(rows)
    assert 0 <= found.error <= 1
    assert (
        (found.bins["confidence"] > found.bins["low"] - 1e-9)
        & (found.bins["confidence"] <= found.bins["high"] + 1e-9)
    ).all()
    ends = np.arange(statistics.BINS + 1) / statistics.BINS
    if not np.isclose(confidence[:, None], ends[1:-1]).any():  # at an end the two round differently
        shares, means = calibration.calibration_curve(right, confidence, n_bins=statistics.BINS)
        assert np.allclose(found.bins["accuracy"], shares) and np.allclose(
            found.bins["confidence"], means
        )


def test_a_model_that_means_what_it_says_has_no_calibration_error():
    """Right 3 times of 4 with confidence 0.75."""
    assert (
        statistics.calibration(np.full(8, 0.75), np.array([True, True, True, False] * 2)).error == 0
    )


def test_the_loss_of_a_row_is_the_cross_entropy():
    """Also where the label got nothing: then it is large, and finite."""
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]], np.float32)
    labels = np.array([0, 1, 1])

    found = statistics.cross_entropy(probabilities[np.arange(3), labels])

    assert found[:2].mean() == pytest.approx(
        metrics.log_loss(labels[:2], probabilities[:2]), rel=1e-6
    )
    assert found[2] == pytest.approx(-np.log(1e-7))


def test_the_measures_of_a_regression_are_scikit_learn_s():
    """And the truth lies in the interval about 19 times of 20."""
    random = np.random.default_rng(0)
    labels = random.normal(5, 2, 300)
    predictions = labels + random.normal(0.1, 1, 300)

    estimate, more = statistics.regression(labels, predictions)

    assert estimate.value == pytest.approx(metrics.root_mean_squared_error(labels, predictions))
    assert more["mean absolute error"] == pytest.approx(
        metrics.mean_absolute_error(labels, predictions)
    )
    assert more["R²"] == pytest.approx(metrics.r2_score(labels, predictions))
    held = 0
    for _ in range(400):
        found, _ = statistics.regression(np.zeros(200), random.normal(0, 2, 200))
        held += found.low <= 2 <= found.high
    assert 0.91 < held / 400 < 0.98


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_the_f1_of_labels_is_scikit_learn_s_and_lies_in_its_interval(rows):
    """A label that neither is nor is chosen says nothing, and is left out."""
    random = np.random.default_rng(3)
    truth = random.random((rows, 4)) < 0.4
    chosen = truth ^ (random.random((rows, 4)) < 0.1)
    truth[:, 3] = chosen[:, 3] = False
    truth[0, 0] = True

    estimate = statistics.multilabel(truth, chosen)

    there = (truth | chosen).any(axis=0)
    expected = metrics.f1_score(truth[:, there], chosen[:, there], average="macro", zero_division=0)
    assert estimate.value == pytest.approx(expected)
    assert estimate.low <= estimate.high
    found = statistics.by_class(truth, chosen, 4)
    assert found["f1"][:3].fillna(0).mean() == pytest.approx(expected) or not there[:3].all()

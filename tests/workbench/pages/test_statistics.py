"""The numbers of a report agree with scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import calibration, metrics

from workbench.pages import statistics


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2), min_size=1, max_size=40))
@settings(max_examples=30)
def test_confusions_are_those_of_the_confusion_matrix(pairs):
    labels, predictions = np.array(pairs).T

    found = statistics.confusions(labels, predictions)

    counts = metrics.confusion_matrix(labels, predictions, labels=range(5))
    np.fill_diagonal(counts, 0)
    expected = {(row, column): times for (row, column), times in np.ndenumerate(counts) if times}
    listed = {(label, other): times for label, other, times in found.itertuples(index=False)}
    assert listed == expected and found["times"].is_monotonic_decreasing


def test_a_class_without_predictions_has_no_precision_rather_than_0():
    found = statistics.by_class(np.array([0, 1]), np.array([0, 0]), 3)

    assert found["precision"].isna().tolist() == [False, True, True]
    assert found["rows"].tolist() == [1, 1, 0]


@given(st.lists(st.tuples(st.floats(0.001, 1), st.booleans()), min_size=1, max_size=60))
@settings(max_examples=30)
def test_the_calibration_is_scikit_learn_s_and_no_row_is_lost(rows):
    confidence, right = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    found = statistics.calibration(confidence, right)

    assert found.bins["rows"].sum() == len(rows)
    assert 0 <= found.error <= 1
    assert (
        (found.bins["confidence"] > found.bins["low"] - 1e-9)
        & (found.bins["confidence"] <= found.bins["high"] + 1e-9)
    ).all()
    ends = np.arange(statistics.BINS + 1) / statistics.BINS
    if not np.isclose(confidence[:, None], ends[1:-1]).any():  # the two round ends differently
        shares, means = calibration.calibration_curve(right, confidence, n_bins=statistics.BINS)
        assert np.allclose(found.bins["accuracy"], shares) and np.allclose(
            found.bins["confidence"], means
        )


def test_the_loss_of_a_row_is_the_cross_entropy():
    """Also for a probability of 0: then it is large, and finite."""
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]], np.float32)
    labels = np.array([0, 1, 1])

    found = statistics.cross_entropy(probabilities[np.arange(3), labels])

    assert found[:2].mean() == pytest.approx(
        metrics.log_loss(labels[:2], probabilities[:2]), rel=1e-6
    )
    assert found[2] == pytest.approx(-np.log(1e-7))


def test_the_measures_of_a_regression_are_scikit_learn_s():
    """The true value is in the interval about 19 times out of 20."""
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
    """A label that neither rows nor predictions have is left out."""
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

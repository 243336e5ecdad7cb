"""Weights of an ensemble never lose against its best member where they are found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.labels import Target
from pipeline.evaluation import hill_climb

MEAN = Target("multilabel", ("a",)).mean
SHAPES = [(), (3,), (4, 4)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from(SHAPES), st.booleans())
@settings(max_examples=15)
def test_no_member_scores_better_than_the_mean_where_it_was_found(seed, members, shape, coarse):
    """For predictions of any shape, and for a score with many equals; and the seed decides all."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(7, *shape))
    predictions = [
        (truth + random.normal(size=truth.shape)).astype(np.float32) for _ in range(members)
    ]

    def score(values: np.ndarray) -> float:
        error = float(np.abs(values - truth).mean())
        return -round(error, 1) if coarse else -error

    weights = hill_climb.climb(predictions, score, seed, MEAN)

    assert sum(weights) == pytest.approx(1, abs=1e-12) and min(weights) >= 0
    mean = hill_climb.weighted(predictions, weights, MEAN)
    assert mean.shape == truth.shape and mean.dtype == np.float32
    assert score(mean) >= max(map(score, predictions))
    assert weights == hill_climb.climb(predictions, score, seed, MEAN)


def test_errors_that_cancel_out_are_found():
    """Two members that are wrong in opposite ways, beside one that is less wrong than either."""
    truth = np.linspace(0, 1, 11)
    predictions = [truth + 0.3, truth - 0.3, truth + 0.2]

    weights = hill_climb.climb(
        predictions, lambda found: -np.abs(found - truth).sum(), seed=0, mean=MEAN
    )

    # 0.3 a - 0.3 b + 0.2 c = 0 has many solutions.
    assert float(np.dot(weights, [0.3, -0.3, 0.2])) == pytest.approx(0, abs=0.3 / 50)
    assert weights[1] > 0


def test_a_member_that_adds_nothing_gets_nothing():
    """Not where the score does not move, either: accuracy has few values."""
    truth = np.arange(40) % 4
    good = np.eye(4, dtype=np.float32)[(truth + (np.arange(40) < 2)) % 4]  # 38 of 40 right
    chance = np.full((40, 4), 0.25, np.float32)

    def right(found: np.ndarray) -> float:
        return float((found.argmax(axis=1) == truth).mean())

    assert all(
        hill_climb.climb([chance, good], right, seed, MEAN) == [0.0, 1.0] for seed in range(5)
    )

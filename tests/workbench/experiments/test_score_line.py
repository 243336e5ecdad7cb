"""The line of local against given scores names a leak, and rarely a chance difference."""

from typing import Any

import numpy as np
import pytest

from workbench.experiments import score_line

LOCAL_ERROR, GIVEN_ERROR = 0.007, 0.010
# By `python -m benchmarks.experiments`: local and hidden score of 13 dry runs, with their errors.
# The last one trained on copies of its held-out rows.
MEASURED = """0.183 0.037 0.184 0.019  0.300 0.041 0.282 0.022  0.417 0.046 0.468 0.024
0.305 0.012 0.330 0.022  0.704 0.014 0.702 0.022  0.183 0.033 0.188 0.016  0.717 0.042 0.774 0.021
0.699 0.014 0.722 0.022  0.742 0.011 0.770 0.019  0.896 0.008 0.930 0.011  0.927 0.008 0.954 0.010
0.935 0.007 0.944 0.010  1.000 0.000 0.924 0.012"""


def rows(local: Any, given: Any, *, errors: bool = True) -> list[dict[str, Any]]:
    """Return runs with these scores."""
    return [
        {
            "number": number,
            "config": "leaves",
            "metric": "accuracy",
            "local": float(x),
            "local_error": LOCAL_ERROR if errors else None,
            "hidden": float(y),
            "hidden_error": GIVEN_ERROR if errors else None,
            "manifest": {"greater_is_better": True},
        }
        for number, (x, y) in enumerate(zip(local, given, strict=True), start=1)
    ]


def drawn(random: np.random.Generator, count: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return local and given scores of runs whose true scores spread that far."""
    true = 0.8 + spread * random.random(count)
    noise = random.normal(0, 1, (2, count))
    return true + LOCAL_ERROR * noise[0], true - 0.01 + GIVEN_ERROR * noise[1]


@pytest.mark.parametrize("errors", [True, False])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.1])
def test_chance_is_rarely_named_and_a_leak_usually(errors, spread):
    """Of 100 tables of 12 runs at most 5 name a run without a leak; at least 80 name the run whose
    local score is 0.08 too high, 6.5 standard errors.
    """
    random, alarms, found = np.random.default_rng(0), 0, 0
    for _ in range(100):
        local, given = drawn(random, 12, spread)
        honest = score_line.fit(rows(local, given, errors=errors), "hidden")
        local[4] = given[4] + 0.01 + 0.08
        leaky = score_line.fit(rows(local, given, errors=errors), "hidden")
        alarms += bool(honest.off.any())
        found += bool(leaky.off[4])

    assert alarms <= 5 and found >= 80


def test_the_leak_of_thirteen_measured_runs_is_named_and_no_other():
    """Some scores are of 120 rows, some of 1,197; the leak's local score is perfect."""
    local, local_errors, given, given_errors = np.reshape(MEASURED.split(), (13, 4)).T.astype(float)
    made = [
        row | {"local_error": error, "hidden_error": other}
        for row, error, other in zip(rows(local, given), local_errors, given_errors, strict=True)
    ]

    line = score_line.fit(made, "hidden")

    assert line.off.tolist() == [False] * 12 + [True]
    assert line.correlation == np.corrcoef(local, given)[0, 1]


def test_a_run_is_measured_by_its_own_errors():
    """A distance that is chance for 100 rows is not for 3,000."""
    local = np.linspace(0.7, 0.9, 12)
    noise = np.array([0.02, -0.03, 0.05, -0.04, 0.03, -0.03, *[0.003, -0.003] * 3])
    noise[[0, 11]] = -0.06
    made = rows(local, local + noise)
    made = [row | {"local_error": 0.04 if at < 6 else 0.005} for at, row in enumerate(made)]

    assert score_line.fit(made, "hidden").values()["off"] == [12]


def test_a_perfect_score_is_not_taken_for_certain():
    """All its resamples are perfect, so its error is 0."""
    local = np.linspace(0.8, 0.95, 8)
    made = rows([*local, 1.0], [*(local - 0.02 + np.tile([0.004, -0.004], 4)), 1.0])
    made[-1] |= {"local_error": 0.0, "hidden_error": 0.0}

    assert not score_line.fit(made, "hidden").off.any()


def test_two_seeds_of_one_leak_do_not_hide_each_other():
    local, given = drawn(np.random.default_rng(1), 12, 0.1)
    local[:2] = given[:2] + 0.11

    assert score_line.fit(rows(local, given), "hidden").off.tolist() == [True] * 2 + [False] * 10


def test_the_slope_is_1_unless_the_runs_show_a_different_one():
    local = np.linspace(0.6, 0.9, 20)

    near = score_line.fit(rows(local, 0.95 * local), "hidden")
    steep = score_line.fit(rows(local, 1.5 * local - 0.4), "hidden")

    assert (near.slope, near.off.any()) == (1.0, False)
    assert steep.slope == pytest.approx(1.5, rel=0.05) and not steep.off.any()


@pytest.mark.parametrize("errors", [True, False])
def test_scores_that_fall_where_local_scores_rise_get_a_warning(errors):
    local = np.linspace(0.6, 0.9, 20)

    line = score_line.fit(rows(local, 2 - 1.5 * local, errors=errors), "hidden")

    assert line.slope == 1
    assert "local scores do not predict hidden scores" in next(line.warnings())


@pytest.mark.parametrize("others", [[0.94] * 4, [0.94, 0.942, 0.939, 0.941]])
def test_one_leak_among_few_public_scores_makes_no_slope(others):
    """Errors are unknown, so only the warning about opposed scores appears."""
    local = [0.9, 0.9, 0.9, 0.9 if others[1] == 0.94 else 0.902, 0.99]

    line = score_line.fit(rows(local, [*others, 0.7], errors=False), "hidden")

    (text,) = line.warnings()
    assert line.slope == 1 and not line.off.any()
    assert text.startswith("local scores do not predict hidden scores")


def test_unrelated_scores_are_rarely_called_opposed():
    random = np.random.default_rng(3)
    drawings = [drawn(random, count, 0.0) for count in (3, 5, 8, 12) for _ in range(50)]

    for errors in (True, False):
        lines = [score_line.fit(rows(*each, errors=errors), "hidden") for each in drawings]
        assert sum(line.opposed for line in lines) <= 4


def test_a_leak_among_exact_reruns_is_named():
    """More than half of the runs have the same gap, so the median distance is 0."""
    line = score_line.fit(rows([0.95] * 4 + [0.97, 1.0], [0.94] * 4 + [0.958, 0.6]), "hidden")

    assert line.values()["off"] == [6]


def test_exact_reruns_do_not_measure_chance():
    """If errors are unknown, the other runs do, and a leak among them is named."""
    one = rows([0.95] * 20 + [0.97], [0.94] * 20 + [0.956], errors=False)
    others = [0.97, 0.96, 0.94, 0.92, 0.93], [0.958, 0.951, 0.928, 0.911, 0.919]
    leak = rows([0.95] * 8 + others[0] + [1.0], [0.94] * 8 + others[1] + [0.6], errors=False)

    assert not score_line.fit(one, "hidden").off.any()
    assert score_line.fit(leak, "hidden").values()["off"] == [14]


def test_a_run_that_is_better_in_both_scores_is_not_blamed():
    local, given = drawn(np.random.default_rng(2), 12, 0.01)
    local[0], given[0] = 0.95, 0.935

    assert not score_line.fit(rows(local, given), "hidden").off.any()


def test_runs_with_a_different_metric_are_left_out():
    made = rows([0.7, 0.8, 0.9, 0.95], [0.69, 0.79, 0.89, 0.94])
    made[0]["metric"] = "log_loss"

    assert score_line.fit(made, "hidden").values()["runs"] == [2, 3, 4]


@pytest.mark.parametrize("scores", [[0.9, 0.8], [0.9, 0.9, 0.9], []])
def test_there_is_no_line_through_too_few_or_equal_scores(scores):
    made = [*rows(scores, scores), *rows([0.5], [0.5])[: not scores]]

    assert score_line.fit(made, "hidden") is None

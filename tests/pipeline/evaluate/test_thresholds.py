"""The nested score shows what thresholds add, since no row decides itself."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.labels import Target
from pipeline.errors import ConfigError
from pipeline.evaluate import metrics, thresholds
from tests.shipped import shipped

SEEDS = range(4)
FOLDS = 5


def rare(seed: int, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of two classes, one of them with about 8 % of the rows, and probabilities."""
    random = np.random.default_rng(seed)
    logits = 1.5 * random.normal(size=rows) - 3.3
    likely = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return (random.random(rows) < likely).astype(np.int32), np.stack([1 - likely, likely], axis=1)


def tags(seed: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return several labels of different frequency, the last of which no row has."""
    columns = [rare(10 * seed + number, rows) for number in range(3)]
    truth = np.stack([*(labels for labels, _ in columns), np.zeros(rows, np.int32)], axis=1)
    likely = [found[:, 1] for _, found in columns] + [np.full(rows, 0.01, np.float32)]
    return truth.astype(np.float32), np.stack(likely, axis=1)


def grades(seed: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return four grades, and probabilities that spread too far."""
    random = np.random.default_rng(seed)
    truth = random.choice(4, size=rows, p=(0.55, 0.25, 0.15, 0.05)).astype(np.int32)
    noisy = truth + 1.2 * random.normal(size=rows)
    found = np.exp(-np.abs(noisy[:, None] - np.arange(4)) / 1.5) * (0.55, 0.25, 0.15, 0.05)
    return truth, (found / found.sum(axis=1, keepdims=True)).astype(np.float32)


CASES = {
    "classes": ("f1", rare),
    "multilabel": ("f_beta:2", tags),
    "ordinal": ("qwk", grades),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_nested_score_is_above_the_default_and_below_the_optimistic_one(kind):
    """On average over four draws, and the gain is above 0 in each of them."""
    name, drawn = CASES[kind]
    metric, scores = metrics.find(name, kind), []
    for seed in SEEDS:
        truth, found = drawn(seed)
        parts = np.arange(len(truth)) % FOLDS
        made, scored = thresholds.fit(metric, kind, truth, found, parts)
        scores.append([made["plain"], made["nested"], made["optimistic"]])
        assert made["used"] and metric(truth, scored) == made["nested"] > made["plain"]

    plain, nested, optimistic = np.mean(scores, axis=0)
    print(f"{kind}: plain {plain:.4f}, nested {nested:.4f}, optimistic {optimistic:.4f}")
    assert plain < nested < optimistic


@pytest.mark.parametrize("kind", CASES)
def test_a_row_s_own_label_never_decides_it(kind):
    """Its decision stays the same if all labels of its part are replaced."""
    name, drawn = CASES[kind]
    metric, (truth, found) = metrics.find(name, kind), drawn(0)
    parts = np.arange(len(truth)) % FOLDS
    other = truth.copy()
    other[parts == 2] = other[parts == 2][::-1]

    one, two = (thresholds.fit(metric, kind, each, found, parts)[1] for each in (truth, other))

    assert not np.array_equal(truth, other)
    assert np.array_equal(one[parts == 2], two[parts == 2])


def test_soft_labels_are_decided_by_the_most_probable_class():
    truth, found = rare(0)
    soft = np.eye(2, dtype=np.float32)[truth] * 0.6 + 0.2
    metric, parts = metrics.find("f1", "classes"), np.arange(len(truth)) % FOLDS

    hard = thresholds.fit(metric, "classes", truth, found, parts)
    assert thresholds.fit(metric, "classes", soft, found, parts)[0] == hard[0]


def test_noise_keeps_the_defaults_and_says_so():
    """Probabilities that tell nothing, and a metric for which the default is the optimum."""
    random, metric = np.random.default_rng(0), metrics.find("accuracy", "classes")
    truth = (random.random(300) < 0.3).astype(np.int32)
    likely = random.uniform(0.1, 0.5, 300).astype(np.float32)
    found = np.stack([1 - likely, likely], axis=1)

    made, scored = thresholds.fit(metric, "classes", truth, found, np.arange(300) % FOLDS)

    assert not made["used"] and scored is found
    assert made["optimistic"] >= made["plain"] >= made["nested"]
    assert thresholds.apply(made, found) is found
    assert "so the defaults are used" in thresholds.line(made, "accuracy")


def test_the_default_is_kept_where_nothing_can_be_learned():
    """For a label that no row has, and if every value has the same score."""
    truth, found = tags(0)

    for metric in ("f_beta:2", "accuracy"):
        made = thresholds.search(metrics.find(metric, "multilabel"), "multilabel", truth, found)
        assert made["values"][3] == 0.5 and made["values"][:3] != [0.5] * 3

    sure = np.eye(3, dtype=np.float32)[np.arange(30) % 3] * 0.6 + np.float32(0.4 / 3)
    metric = metrics.find("f1", "classes")
    made = thresholds.search(metric, "classes", np.arange(30) % 3, sure)
    assert made["values"] == [1.0, 1.0, 1.0]


def test_the_best_threshold_of_a_label_is_found_exactly():
    """Among few rows, by comparison with all possible thresholds."""
    metric, random = metrics.find("f_beta:2", "multilabel"), np.random.default_rng(0)
    for _ in range(20):
        found = random.random((24, 1)).astype(np.float32)
        truth = (random.random((24, 1)) < found**3).astype(np.float32)
        truth[:2, 0] = 0, 1

        made = thresholds.search(metric, "multilabel", truth, found)

        every = [metric(truth, (found >= value).astype(float)) for value in found[:, 0]]
        assert metric(truth, thresholds.apply(made, found)) == max(every)
        assert made["values"] not in found.tolist()


def test_cut_points_increase_and_factors_are_positive():
    for kind, (name, drawn) in CASES.items():
        truth, found = drawn(3)
        made = thresholds.search(metrics.find(name, kind), kind, truth, found)
        assert min(made["values"]) > 0
        if kind == "ordinal":
            assert made["values"] == sorted(set(made["values"]))


@pytest.mark.parametrize("kind", CASES)
def test_a_decision_has_the_same_labels_for_a_metric_and_for_a_submission(kind):
    name, drawn = CASES[kind]
    metric, (truth, found) = metrics.find(name, kind), drawn(1)
    made = thresholds.search(metric, kind, truth, found)
    decision = thresholds.apply(made, found)
    target = Target(kind, tuple("abcd"[: found.shape[1]]))

    _, labels = metric.arguments(truth, decision)

    assert decision.dtype == np.float32 and decision.min() >= 0 and decision.max() == 1
    texts = [
        target.separator.join("abcd"[place] for place in np.flatnonzero(row)) for row in labels
    ]
    if kind != "multilabel":
        texts = ["abcd"[label] for label in labels]
        assert set(decision.ravel().tolist()) == {0.0, 1.0}
    assert target.best(decision) == texts and len(set(texts)) > 1


def test_a_row_without_a_label_is_closest_to_the_one_nearest_its_threshold():
    """A submission cannot be empty. 0.5 is nearer to its threshold of 0.9 than 0.1 is to 0.4."""
    made = {"kind": "multilabel", "values": [0.4, 0.9], "used": True}

    decision = thresholds.apply(made, np.array([[0.1, 0.5], [0.39, 0.95]], np.float32))

    assert (decision[0] <= 0.5).all() and decision[0].argmax() == 1
    assert (decision[1] > 0.5).tolist() == [False, True]


def test_random_parts_keep_groups_together_and_spread_each_label():
    random = np.random.default_rng(0)
    groups = np.sort(random.integers(0, 200, 500))
    strata = (groups % 20 == 0).astype(int)

    parts = thresholds.random_parts(strata, groups, 7)

    assert all(len({*parts[groups == group]}) == 1 for group in groups)
    rare_groups = [np.unique(groups[(parts == part) & (strata == 1)]).size for part in range(5)]
    assert max(rare_groups) - min(rare_groups) <= 1
    assert np.array_equal(parts, thresholds.random_parts(strata, groups, 7))
    assert not np.array_equal(parts, thresholds.random_parts(strata, groups, 8))


@pytest.mark.parametrize(("target", "metric"), [("classes", "log_loss"), ("multilabel", "")])
def test_thresholds_for_a_metric_of_probabilities_are_refused(target, metric):
    config = replace(shipped("digits"), target=target, metric=metric, thresholds=True)

    with pytest.raises(ConfigError, match=re.escape("thresholds=True is invalid")):
        metrics.of(config)

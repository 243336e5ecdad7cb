"""Each metric is what its definition says, and where it has no value it says so."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipeline import metrics
from pipeline.errors import ConfigError, DataError
from pipeline.metrics import Metric

pytestmark = pytest.mark.filterwarnings("error")  # scikit-learn warns where a value does not exist

NAMES = [name.replace("<k>", "3").replace("<beta>", "2") for name in metrics.METRICS]
PAIRS = [
    pytest.param(name, target, id=f"{name} of {target}")
    for name, entry in zip(NAMES, metrics.METRICS.values(), strict=True)
    for target in sorted(entry.targets - {"ordinal"})  # of the same form as classes
]
Rows = tuple[np.ndarray, np.ndarray]


@st.composite
def rows_of(draw: st.DrawFn, target: str) -> Rows:
    """Return truth and predictions, few and coarse, so that ties, absent classes and constant
    columns are common.
    """
    n = draw(st.integers(1, 8))
    k = draw(st.integers(1 if target in ("multilabel", "regression") else 2, 4))

    def table(low: int, high: int) -> np.ndarray:
        return np.array(
            draw(
                st.lists(
                    st.lists(st.integers(low, high), min_size=k, max_size=k), min_size=n, max_size=n
                )
            )
        )

    if target == "regression":
        return table(0, 5) / 2, table(-2, 5).astype(np.float32)
    if target == "multilabel":
        return table(0, 1), (table(0, 4) / 4).astype(np.float32)
    weights = table(0, 4)
    weights[:, 0] += weights.sum(axis=1) == 0  # no row of zeros
    truth = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return np.array(truth, np.int32), (weights / weights.sum(axis=1, keepdims=True)).astype(
        np.float32
    )


def some(name: str, target: str, n: int = 200, k: int = 3) -> Rows:
    """Return rows of which every metric has a value."""
    random = np.random.default_rng(len(name))
    if target == "regression":
        truth = random.random((n, k))
        return truth, truth + random.normal(0, 0.1, (n, k))
    if target == "multilabel":
        truth = (random.random((n, k)) < 0.4).astype(np.int64)
        return truth, 0.6 * random.random((n, k)) + 0.4 * truth
    labels = random.integers(0, k, n).astype(np.int32)
    scores = random.random((n, k)) + np.eye(k)[labels] / 2
    return labels, scores / scores.sum(axis=1, keepdims=True)


def value(name: str, target: str, rows: Rows) -> float | None:
    """Return the metric of these rows, or None where it says that there is none."""
    try:
        return metrics.find(name, target)(*rows)
    except DataError as error:
        assert "has no value" in str(error)
        return None


def suited(name: str) -> str:
    """Return a kind of target that the metric suits."""
    return "regression" if name in ("rmse", "rmsle", "mae", "r2") else "classes"


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


# -- the definitions, one row and one column at a time


def hard(truth: np.ndarray, predicted: np.ndarray) -> list[tuple[int, int]]:
    return [(int(t), list(p).index(max(p))) for t, p in zip(truth, predicted, strict=True)]


def yes(column: np.ndarray) -> list[bool]:
    return [bool(p > 0.5) for p in column]


def of_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    if truth.ndim == 2:
        return mean([float(yes(p) == list(t)) for t, p in zip(truth, predicted, strict=True)])
    return mean([float(t == p) for t, p in hard(truth, predicted)])


def of_balanced_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    pairs = hard(truth, predicted)
    return mean(
        [
            sum(p == c for t, p in pairs if t == c) / sum(t == c for t, _ in pairs)
            for c in set(truth)
        ]
    )


def of_f(beta: float) -> Callable[[np.ndarray, np.ndarray], float | None]:
    def definition(truth: np.ndarray, predicted: np.ndarray) -> float | None:
        if truth.ndim == 2:
            columns = [
                list(zip(t, yes(p), strict=True)) for t, p in zip(truth.T, predicted.T, strict=True)
            ]
        else:
            pairs = hard(truth, predicted)
            columns = [[(t == c, p == c) for t, p in pairs] for c in range(predicted.shape[1])]
        found = []
        for column in columns:
            both, missed, false = (
                sum((bool(t), bool(p)) == case for t, p in column)
                for case in ((1, 1), (1, 0), (0, 1))
            )
            if both + missed + false:
                found.append(
                    (1 + beta**2) * both / ((1 + beta**2) * both + beta**2 * missed + false)
                )
        return mean(found)

    return definition


def of_qwk(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    pairs = hard(truth, predicted)
    chance = sum((t - p) ** 2 for t, _ in pairs for _, p in pairs) / len(pairs)
    return 1 - sum((t - p) ** 2 for t, p in pairs) / chance if len(set(truth)) > 1 else None


def of_auc(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    if truth.ndim == 1:
        truth = np.array([[t == c for c in range(predicted.shape[1])] for t in truth])
        if predicted.shape[1] == 2:
            truth, predicted = truth[:, 1:], predicted[:, 1:]
    found = []
    for t, p in zip(truth.T, predicted.T, strict=True):
        wins = [(a > b) + (a == b) / 2 for a in p[t == 1] for b in p[t == 0]]
        found += [sum(map(float, wins)) / len(wins)] if wins else []
    return mean(found)


def of_log_loss(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    rows = predicted.astype(float)
    if truth.ndim == 2:
        chances = [p if t else 1 - p for t, p in zip(truth.flat, rows.flat, strict=True)]
    else:
        chances = [p[t] / sum(p) for t, p in zip(truth, rows, strict=True)]
    return mean([-math.log(min(max(chance, 2**-52), 1 - 2**-52)) for chance in chances])


def of_map_at_3(truth: np.ndarray, predicted: np.ndarray) -> float | None:
    found = []
    for t, p in zip(truth, predicted, strict=True):
        best = sorted(range(len(p)), key=lambda c: (-p[c], c))[:3]
        found.append(1 / (best.index(t) + 1) if t in best else 0)
    return mean(found)


def by_column(
    of_one: Callable[[list[float], list[float]], float | None],
) -> Callable[[np.ndarray, np.ndarray], float | None]:
    def definition(truth: np.ndarray, predicted: np.ndarray) -> float | None:
        found = [of_one(t.tolist(), p.tolist()) for t, p in zip(truth.T, predicted.T, strict=True)]
        return mean([one for one in found if one is not None])

    return definition


def of_rmse(truth: list[float], predicted: list[float]) -> float:
    return math.sqrt(sum((t - p) ** 2 for t, p in zip(truth, predicted, strict=True)) / len(truth))


def of_rmsle(truth: list[float], predicted: list[float]) -> float:
    return of_rmse([math.log(1 + t) for t in truth], [math.log(1 + max(p, 0)) for p in predicted])


def of_mae(truth: list[float], predicted: list[float]) -> float:
    return sum(abs(t - p) for t, p in zip(truth, predicted, strict=True)) / len(truth)


def of_r2(truth: list[float], predicted: list[float]) -> float | None:
    middle = sum(truth) / len(truth)
    spread = sum((t - middle) ** 2 for t in truth)
    return (
        1 - sum((t - p) ** 2 for t, p in zip(truth, predicted, strict=True)) / spread
        if len(set(truth)) > 1
        else None
    )


DEFINITIONS = {
    "accuracy": of_accuracy,
    "balanced_accuracy": of_balanced_accuracy,
    "f1": of_f(1),
    "f_beta:2": of_f(2),
    "qwk": of_qwk,
    "auc": of_auc,
    "log_loss": of_log_loss,
    "map@3": of_map_at_3,
    "rmse": by_column(of_rmse),
    "rmsle": by_column(of_rmsle),
    "mae": by_column(of_mae),
    "r2": by_column(of_r2),
}


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_metric_is_what_its_definition_says(name, target):
    """Also where a class is absent, a column constant, or there is one row; and no value where the
    definition has none.
    """

    @settings(max_examples=30)
    @given(rows_of(target))
    def agrees(rows):
        expected = DEFINITIONS[name](*rows)

        assert value(name, target, rows) == (
            None if expected is None else pytest.approx(expected, abs=1e-12)
        )

    agrees()


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_perfect_predictions_have_the_best_value_and_none_is_out_of_range(name, target):
    """1 or 0; whatever else is predicted for the same rows is no better, and no lower than the
    metric can be.
    """
    metric = metrics.find(name, target)
    best, least = (
        (1, {"qwk": -1, "r2": -math.inf}.get(name, 0)) if metric.greater_is_better else (0, 0)
    )

    @settings(max_examples=20)
    @given(rows_of(target))
    def holds(rows):
        truth, predicted = rows
        perfect = truth if truth.ndim == 2 else np.eye(predicted.shape[1])[truth]

        at_best, found = value(name, target, (truth, perfect)), value(name, target, rows)

        assert at_best is None or at_best == pytest.approx(best, abs=1e-15)
        if found is not None:
            assert least <= found + 1e-15
            assert found - 1e-15 <= best if metric.greater_is_better else found + 1e-15 >= best

    holds()


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_order_of_the_rows_does_not_matter(name, target):
    """A table may come in any."""
    truth, predicted = some(name, target)
    order = np.random.default_rng(1).permutation(len(truth))

    metric = metrics.find(name, target)

    assert metric(truth[order], predicted[order]) == pytest.approx(
        metric(truth, predicted), rel=1e-12
    )


@pytest.mark.parametrize(
    "rising",
    [lambda s: 3 * s - 7, lambda s: s**3, np.exp, np.tanh],
    ids=["linear", "cube", "exp", "tanh"],
)
@pytest.mark.parametrize("target", ["classes", "multilabel"])
def test_auc_sees_only_the_order_of_the_scores(rising, target):
    """A strictly rising function changes nothing, so the scores need not be probabilities."""

    @settings(max_examples=15)
    @given(rows_of(target))
    def holds(rows):
        truth, predicted = rows
        scores = np.round(8 * predicted.astype(float))

        assert value("auc", target, (truth, rising(scores / 4))) == value(
            "auc", target, (truth, scores)
        )

    holds()


@settings(max_examples=40)
@given(rows_of("regression"))
def test_the_root_mean_square_is_no_less_than_the_mean(rows):
    """By the inequality of the means."""
    assert (
        metrics.find("rmse", "regression")(*rows)
        >= metrics.find("mae", "regression")(*rows) - 1e-12
    )


@settings(max_examples=40)
@given(rows_of("classes"))
def test_map_rises_with_k_up_to_the_number_of_classes(rows):
    """It begins as the accuracy, with the same answer to ties; more labels never cost anything, and
    there are no more than classes.
    """
    values = [metrics.find(f"map@{k}", "classes")(*rows) for k in (1, 2, 3, 4, 5, 999999)]

    assert values[0] == metrics.find("accuracy", "classes")(*rows)
    assert all(low <= high for low, high in pairwise(values))
    assert values[3] == values[4] == values[5] > 0


def test_auc_is_that_of_scikit_learn_for_many_rows():
    """With ties, as float32 and of more than two classes."""
    truth, predicted = some("auc", "classes", n=2000, k=4)
    predicted = np.round(predicted, 2).astype(np.float32)
    truth[truth == 3] = 2  # and one that is absent

    areas = [roc_auc_score(truth == c, predicted[:, c]) for c in range(3)]

    assert metrics.find("auc", "classes")(truth, predicted) == pytest.approx(
        np.mean(areas), rel=1e-12
    )


def test_the_area_of_two_classes_is_that_of_the_second():
    """A submission holds its probability alone; the first column is not looked at."""
    truth, scores = np.array([0, 1, 0, 1]), np.array([0.1, 0.3, 0.4, 0.8])

    for first in (1 - scores, scores, np.zeros(4)):
        assert metrics.find("auc", "classes")(truth, np.stack([first, scores], axis=1)) == 3 / 4


# -- hard cases


def test_of_equal_probabilities_the_first_class_counts():
    """As numpy's argmax, and so as a submission of hard labels."""
    even = np.full((3, 3), 1 / 3, np.float32)

    assert metrics.find("accuracy", "classes")(np.array([0, 1, 2]), even) == pytest.approx(1 / 3)
    assert metrics.find("map@3", "classes")(np.array([2, 2, 2]), even) == pytest.approx(1 / 3)


def test_half_is_not_yet_a_label():
    """The threshold is 0.5, and at it the answer is 0, as of two equal classes."""
    predicted = np.array([[0.5, 0.5001]], np.float32)

    assert metrics.find("accuracy", "multilabel")(np.array([[0, 1]]), predicted) == 1


def test_classes_that_are_not_in_the_truth_are_left_out():
    """The first and last of four are missing: of neither there is a recall or an area; predicted,
    they are wrong all the same.
    """
    truth = np.array([1, 1, 2, 2])
    predicted = np.array(
        [[0.1, 0.7, 0.2, 0], [0.6, 0.3, 0.1, 0], [0.1, 0.2, 0.7, 0], [0.1, 0.1, 0.8, 0]]
    )

    found = {
        name: metrics.find(name, "classes")(truth, predicted)
        for name in ("balanced_accuracy", "auc", "f1")
    }

    # F: 0 of the first, which was predicted once; 2/3 and 1 of those in the truth; the last one,
    # which is nowhere, is left out.
    assert found == pytest.approx({"balanced_accuracy": 3 / 4, "auc": 1, "f1": (0 + 2 / 3 + 1) / 3})


def test_a_distance_of_classes_counts_those_between_that_nobody_has():
    """0 and 4 are four apart, although no other class occurs beside 1."""
    truth, answers = np.array([0, 4, 0, 4]), np.eye(5)[[0, 4, 1, 4]]

    # Of the four rows one is off by 1; of the sixteen pairs of a truth with an answer, 116 in all.
    assert metrics.find("qwk", "ordinal")(truth, answers) == pytest.approx(1 - (1 / 4) / (116 / 16))


@pytest.mark.parametrize("name", ["auc", "qwk"])
def test_one_class_alone_has_no_area_and_no_kappa(name):
    """Whatever is predicted: the refusal does not come and go with the model."""
    truth = np.array([2, 2, 2])
    for answers in ([2, 2, 2], [0, 1, 2]):
        with pytest.raises(
            DataError, match=rf"{name} has no value for these 3 rows.*\n.*two classes"
        ):
            metrics.find(name, "ordinal")(truth, np.eye(3)[answers])


@pytest.mark.parametrize(
    ("name", "target"), [("auc", "multilabel"), ("r2", "regression"), ("f1", "multilabel")]
)
def test_a_column_without_a_value_is_left_out_and_the_last_one_refused(name, target):
    """Its absence does not show in the mean of the others."""
    metric = metrics.find(name, target)
    truth, predicted = (
        np.array([[0, 0], [1, 0], [1, 0]]),
        np.array([[0.2, 0.1], [0.7, 0.3], [0.1, 0.2]]),
    )

    assert metric(truth, predicted) == metric(truth[:, :1], predicted[:, :1])
    with pytest.raises(DataError, match="has no value"):
        metric(truth[:, 1:], predicted[:, 1:])


def test_one_row_has_a_value_where_no_spread_is_asked_for():
    """A single row is no class against another, and no variance."""
    rows = {
        "classes": (np.array([1]), np.array([[0.2, 0.8]])),
        "regression": (np.array([[2.0]]), np.array([[1.5]])),
    }

    without = {name for name in NAMES if value(name, suited(name), rows[suited(name)]) is None}

    assert without == {"auc", "qwk", "r2"}


def test_a_certain_error_costs_36_and_not_infinity():
    """Probabilities are clipped as scikit-learn does it in float64, also where they came as
    float32.
    """
    metric = metrics.find("log_loss", "classes")
    sure = np.array([[1, 0], [1, 0]], np.float32)

    assert metric(np.array([1, 1]), sure) == pytest.approx(52 * math.log(2))
    assert metric(np.array([0, 0]), sure) == pytest.approx(0, abs=1e-15)
    assert metrics.find("log_loss", "multilabel")(np.array([[0, 1]]), sure[:1]) == pytest.approx(
        52 * math.log(2)
    )


def test_rows_of_probabilities_are_divided_by_their_sum():
    """Those of an average in float16 do not add up to 1."""
    truth, predicted = some("log_loss", "classes")
    metric = metrics.find("log_loss", "classes")

    assert metric(truth, predicted * np.linspace(0.5, 1, len(truth))[:, None]) == pytest.approx(
        metric(truth, predicted)
    )


def test_a_probability_may_be_above_1_by_rounding():
    """The float32 weights of a blend add up to 1.0000001."""
    just_above = np.array([[1 + 1e-7, 1e-9], [1e-9, 1 + 1e-7]])

    assert metrics.find("log_loss", "classes")(np.array([0, 1]), just_above) == pytest.approx(
        0, abs=1e-8
    )
    assert metrics.find("log_loss", "multilabel")(np.eye(2), just_above) == pytest.approx(
        0, abs=1e-8
    )


@pytest.mark.parametrize("row", [[-0.1, 1.1], [0.0, 0.0], [0.4, 1.2], [-3.0, 0.5]])
def test_log_loss_refuses_what_is_no_probability(row):
    """Logits, as a rule."""
    with pytest.raises(
        DataError,
        match=r"(?s)log_loss was given predictions from .*expected probabilities.*softmax",
    ):
        metrics.find("log_loss", "classes")(np.array([0, 1]), np.array([[0.5, 0.5], row]))


def test_a_negative_prediction_has_the_logarithm_of_zero_and_a_negative_truth_is_refused():
    """A model may fall below 0 by a little; labels may not."""
    metric = metrics.find("rmsle", "regression")

    assert metric(np.array([[0.0], [3.0]]), np.array([[-7.0], [3.0]])) == 0
    with pytest.raises(DataError, match=r"(?s)truth of -0\.5; expected 0 or more.*rmse"):
        metric(np.array([[-0.5], [3.0]]), np.array([[1.0], [1.0]]))


@pytest.mark.parametrize(("name", "target"), PAIRS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_predictions_that_are_not_finite_are_refused(name, target, bad):
    """By the number of their rows, and the first."""
    truth, predicted = some(name, target)
    predicted[[7, 9], [0, 1]] = bad

    with pytest.raises(
        DataError, match=rf"2 of 200 rows .* not finite, the first of them row 7; {name} expects"
    ):
        metrics.find(name, target)(truth, predicted)


def test_a_value_past_every_number_is_refused():
    """The square of 1e200 is infinite."""
    with np.errstate(over="ignore"), pytest.raises(DataError, match="came out as inf"):
        metrics.find("rmse", "regression")(np.zeros((2, 1)), np.full((2, 1), 1e200))


@pytest.mark.parametrize(
    ("name", "truth", "predicted"),
    [
        ("accuracy", (3,), (4, 2)),
        ("accuracy", (3,), (3, 1)),
        ("accuracy", (3,), (3,)),
        ("accuracy", (3, 2), (3, 4)),
        ("accuracy", (0,), (0, 2)),
        ("accuracy", (3, 2, 2), (3, 2)),
        ("qwk", (3, 2), (3, 2)),
        ("rmse", (3,), (3, 1)),
        ("rmse", (3, 1), (3, 2)),
        ("rmse", (3, 0), (3, 0)),
        ("rmse", (), (1, 1)),
    ],
)
def test_truth_and_predictions_of_other_shapes_are_refused(name, truth, predicted):
    """numpy would spread one over the other, and give a number."""
    metric = metrics.find(name, suited(name))

    with pytest.raises(DataError) as refusal:
        metric(np.zeros(truth, int), np.zeros(predicted))

    assert (
        f"truth of the shape {truth} and predictions of the shape {predicted}.\nExpected "
        in str(refusal.value)
    )


@pytest.mark.parametrize(
    ("name", "target", "truth", "expected"),
    [
        ("accuracy", "classes", np.array([0, 2]), "whole numbers from 0 to 1"),
        ("accuracy", "classes", np.array([-1, 1]), "whole numbers from 0 to 1"),
        ("auc", "classes", np.array([0.0, 1.0]), "whole numbers from 0 to 1"),
        ("auc", "multilabel", np.array([[0, 1], [1, 2]]), "0 or 1"),
        ("f1", "multilabel", np.array([[0, 1], [1, np.nan]]), "0 or 1"),
        ("rmse", "regression", np.array([[0, 1], [1, np.inf]]), "finite numbers"),
    ],
)
def test_a_truth_that_the_metric_cannot_take_is_refused(name, target, truth, expected):
    """A label from -1 on would count from the end, and 0.7 of a label for none."""
    with pytest.raises(DataError, match=f"that {name} does not take; expected {expected}"):
        metrics.find(name, target)(truth, np.full((2, 2), 0.5))


# -- names


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_metric_is_found_by_its_name(name, target):
    """With its number in it."""
    assert metrics.find(name, target).name == name


@pytest.mark.parametrize("target", ["classes", "ordinal", "multilabel", "regression"])
def test_each_target_has_a_usual_metric_that_suits_it(target):
    """The one of a config that names none."""
    assert target in metrics.find(metrics.default(target), target).targets


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Accuracy",
        "accuracy ",
        "acc",
        "f_beta",
        "map",
        "f1:2",
        "accuracy@3",
        "<k>",
        "x" * 999,
        None,
        3,
    ],
)
def test_an_unknown_name_is_refused_with_those_that_suit(name):
    """Nothing is guessed."""
    with pytest.raises(ConfigError) as refusal:
        metrics.find(name, "classes")

    said = str(refusal.value)
    assert said.startswith(f"metric={name!r}"[:200]) and len(said) < 600
    assert "accuracy, balanced_accuracy, f1, f_beta:<beta>, qwk, auc, log_loss, map@<k>." in said
    assert "into the config's own file (docs/own-code.md)" in said


@pytest.mark.parametrize(
    "number",
    ["0", "-1", "", "x", "1.5", "05", " 5", "5\n", "٣", "1e3", "nan", "<k>", "1000000", "5@5"],
)
def test_a_k_that_is_no_whole_number_from_1_is_refused(number):
    """None of these is read as another number."""
    with pytest.raises(
        ConfigError,
        match=r"(?s)metric='map@.* cannot work: expected map@<k>, where <k> is a whole number"
        r".*\"map@2\"",
    ):
        metrics.find(f"map@{number}", "classes")


@pytest.mark.parametrize(
    "number", ["0", "0.0", "-1", "", "x", "1.", ".5", "1e3", "inf", "nan", "1000", "2:2", "٣"]
)
def test_a_beta_that_is_no_number_above_0_is_refused(number):
    """At 0 the recall would not count at all."""
    with pytest.raises(
        ConfigError,
        match=r"(?s)expected f_beta:<beta>, where <beta> is a number above 0.*\"f_beta:2\"",
    ):
        metrics.find(f"f_beta:{number}", "classes")


def test_recall_counts_more_with_a_higher_beta():
    """f_beta:1 is f1; the number may have a point."""
    truth, predicted = (
        np.array([[1], [1], [0], [0]]),
        np.array([[0.9], [0.1], [0.2], [0.3]]),
    )  # precision 1, recall 1/2

    values = [
        metrics.find(name, "multilabel")(truth, predicted)
        for name in ("f_beta:0.5", "f1", "f_beta:1", "f_beta:2.0")
    ]

    assert values == pytest.approx([5 / 6, 2 / 3, 2 / 3, 5 / 9])


@pytest.mark.parametrize(
    ("name", "target"),
    [("rmse", "classes"), ("map@3", "multilabel"), ("qwk", "multilabel"), ("auc", "regression")],
)
def test_a_metric_that_does_not_suit_the_target_is_refused_with_those_that_do(name, target):
    """Either may be what is wrong."""
    with pytest.raises(ConfigError) as refusal:
        metrics.find(name, target)

    said = str(refusal.value)
    assert (
        f"metric={name!r} cannot work with target={target!r}: expected one of " in said
        and metrics.default(target) in said
    )
    assert "or target to one of " in said


def test_an_unknown_kind_of_target_is_refused():
    """By the field that names it."""
    for call in (lambda: metrics.find("auc", "boxes"), lambda: metrics.default("boxes")):
        with pytest.raises(
            ConfigError,
            match="target='boxes' cannot work: "
            "expected one of classes, ordinal, multilabel, regression",
        ):
            call()


def test_a_metric_says_what_a_submission_holds():
    """Hard labels where only these are scored; labels by rank for map@k; else the probabilities or
    numbers themselves.
    """
    takes = {name: metrics.find(name, suited(name)).takes for name in NAMES}

    hard_labels = dict.fromkeys(
        ["accuracy", "balanced_accuracy", "f1", "f_beta:2", "qwk"], "classes"
    )
    assert takes == {**dict.fromkeys(NAMES, "scores"), **hard_labels, "map@3": "ranking"}


def test_a_metric_of_ones_own_is_a_function_and_a_line(monkeypatch):
    """It gets what it asks for, its number included; NaN is refused for it."""

    def cost(truth, answers, k):
        return float(np.mean((answers != truth) * k)) if 1 in truth else math.nan

    monkeypatch.setitem(
        metrics.METRICS, "cost@<k>", Metric("cost@<k>", cost, False, "classes", metrics.CLASSES)
    )
    metric = metrics.find("cost@12", "classes")

    assert metric(np.array([0, 1, 1]), np.eye(2)[[0, 1, 0]]) == pytest.approx(4)
    with pytest.raises(
        DataError, match="cost@12 has no value for these 2 rows: it came out as nan"
    ):
        metric(np.array([0, 0]), np.eye(2)[[0, 1]])


# -- intervals


def test_the_interval_of_an_accuracy_is_that_of_its_binomial():
    """Of 320 right rows of 400: 0.8, with 1.96 standard errors of 0.02 on each side."""
    truth = np.zeros(400, int)
    predicted = np.eye(2)[np.arange(400) % 5 // 4]
    metric = metrics.find("accuracy", "classes")

    low, high = metrics.interval(metric, truth, predicted, 0)

    assert (low, high) == pytest.approx((0.8 - 0.0392, 0.8 + 0.0392), abs=0.006)


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_an_interval_holds_the_value(name, target, monkeypatch):
    """Of rows like these, for every metric."""
    monkeypatch.setattr(metrics, "MOST_RESAMPLES", 100)
    rows = some(name, target)
    metric = metrics.find(name, target)

    low, high = metrics.interval(metric, *rows, 3)

    assert low < metric(*rows) < high


def test_resamples_without_a_value_are_skipped():
    """A third of them lack the only row of the second class."""
    truth, scores = np.array([0, 0, 0, 1]), np.array([0.1, 0.2, 0.4, 0.3])

    low, high = metrics.interval(
        metrics.find("auc", "classes"), truth, np.stack([1 - scores, scores], axis=1), 0
    )

    assert 0 <= low < 2 / 3 < high <= 1


def test_the_seed_fixes_the_interval():
    """A report says the same each time it is made."""
    rows, metric = some("mae", "regression"), metrics.find("mae", "regression")

    first, again, other = (metrics.interval(metric, *rows, seed) for seed in (0, 0, 1))

    assert first == again != other


def test_one_row_has_an_interval_without_width():
    """Every resample is that row."""
    rows = np.array([[2.0]]), np.array([[1.5]])

    assert metrics.interval(metrics.find("mae", "regression"), *rows, 0) == (0.5, 0.5)


def test_what_has_no_value_has_no_interval():
    """Neither where the metric refuses the rows, nor where it refuses each resample."""
    with pytest.raises(DataError, match="auc has no value for these 2 rows"):
        metrics.interval(metrics.find("auc", "classes"), np.array([1, 1]), np.eye(2), 0)

    picky = Metric(
        "picky",
        lambda truth, _: 1.0 if len(set(truth)) == 60 else math.nan,
        True,
        "scores",
        metrics.CLASSES,
    )
    with pytest.raises(DataError, match="picky has no value for any resample of these 60 rows"):
        metrics.interval(picky, np.arange(60), np.eye(60), 0)


@pytest.mark.parametrize(
    ("rows", "resamples"), [(1, 1000), (5000, 1000), (10_000, 500), (100_000, 100)]
)
def test_many_values_are_resampled_less_often(rows, resamples):
    """The more there are, the less the interval gains by another resample."""
    calls = []
    metric = Metric(
        "counted", lambda truth, _: calls.append(len(truth)) or 1.0, True, "scores", metrics.CLASSES
    )

    metrics.interval(metric, np.zeros(rows, int), np.full((rows, 2), 0.5), 0)

    assert calls == [rows] * (resamples + 1)

"""Each metric follows its definition, and is an error if it has no value."""

import math

import numpy as np
import pytest
import sklearn.metrics

from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import standard_error

pytestmark = pytest.mark.filterwarnings("error")  # scikit-learn warns where a value does not exist

NAMES = [name.replace("<k>", "3").replace("<beta>", "2") for name in metrics.METRICS]
PAIRS = [
    pytest.param(name, target, id=f"{name} of {target}")
    for name, entry in zip(NAMES, metrics.METRICS.values(), strict=True)
    for target in sorted(entry.targets - {"ordinal"})  # of the same form as classes
]
Rows = tuple[np.ndarray, np.ndarray]


def some(name: str, target: str) -> Rows:
    """Return rows for which every metric has a value."""
    random, n, k = np.random.default_rng(len(name)), 200, 3
    if target == "regression":
        truth = random.random((n, k))
        return truth, truth + random.normal(0, 0.1, (n, k))
    if target == "multilabel":
        truth = (random.random((n, k)) < 0.4).astype(np.int64)
        return truth, 0.6 * random.random((n, k)) + 0.4 * truth
    labels = random.integers(0, k, n).astype(np.int32)
    scores = random.random((n, k)) + np.eye(k)[labels] / 2
    return labels, scores / scores.sum(axis=1, keepdims=True)


# A truth and predictions per target, and each metric's value by hand: the last class is predicted
# and never true, the last label never true nor predicted, the last number constant.
CLASSES = (
    np.array([0, 0, 1, 1]),
    np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1]], np.float32),
)
LABELS = (
    np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]),
    np.array([[0.9, 0.6, 0.1], [0.4, 0.8, 0.2], [0.2, 0.3, 0.1], [0.4, 0.5, 0.1]], np.float32),
)
NUMBERS = (
    np.array([[0.0, 2], [1, 2], [3, 2]]),
    np.array([[-1.0, 2], [1, 3], [3, 5]], np.float32),
)
log = math.log


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("accuracy", "classes", 1 / 2),
        ("accuracy", "multilabel", 1 / 4),
        ("balanced_accuracy", "classes", (1 / 2 + 1 / 2) / 2),
        ("f1", "classes", (2 / 4 + 2 / 3 + 0) / 3),
        ("f1", "multilabel", (2 / 3 + 1 / 2) / 2),
        ("f_beta:2", "classes", (5 / 10 + 5 / 9 + 0) / 3),
        ("f_beta:2", "multilabel", (5 / 9 + 5 / 10) / 2),
        # The squared distance of a row, and of a pair of any truth with any answer.
        ("qwk", "classes", 1 - (5 / 4) / (16 / 16)),
        ("auc", "classes", (2.5 / 4 + 1) / 2),
        ("auc", "multilabel", (3.5 / 4 + 3 / 4) / 2),
        ("log_loss", "classes", -(log(0.6) + log(0.2) + log(0.7) + log(0.4)) / 4),
        (
            "log_loss",
            "multilabel",
            -log(0.9 * 0.4 * 0.8 * 0.6 * 0.4 * 0.8 * 0.7 * 0.5 * 0.9**3 * 0.8) / 12,
        ),
        ("map@1", "classes", 1 / 2),
        ("map@2", "classes", (1 + 0 + 1 + 1 / 2) / 4),
        ("map@999999", "classes", (1 + 1 / 3 + 1 + 1 / 2) / 4),
        ("rmse", "regression", ((1 / 3) ** 0.5 + (10 / 3) ** 0.5) / 2),
        ("mae", "regression", (1 / 3 + 4 / 3) / 2),
        ("rmsle", "regression", ((log(4 / 3) ** 2 + log(6 / 3) ** 2) / 3) ** 0.5 / 2),
        ("r2", "regression", 1 - 1 / (14 / 3)),
    ],
)
def test_a_metric_is_what_its_definition_says(name, target, expected):
    """Labels and numbers are averaged over the columns that have a value."""
    rows = {"classes": CLASSES, "multilabel": LABELS, "regression": NUMBERS}[target]

    assert metrics.find(name, target)(*rows) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_metric_is_best_of_the_truth_whatever_the_order_of_the_rows(name, target):
    truth, predicted = some(name, target)
    perfect = truth if truth.ndim == 2 else np.eye(predicted.shape[1])[truth]
    order = np.random.default_rng(1).permutation(len(truth))
    metric = metrics.find(name, target)

    found, best = metric(truth, predicted), metric(truth, perfect)

    assert best == pytest.approx(float(metric.greater_is_better), abs=1e-15)
    assert (found < best) == metric.greater_is_better
    assert metric(truth[order], predicted[order]) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "target", "theirs", "options"),
    [
        ("auc", "classes", "roc_auc_score", {"multi_class": "ovr"}),
        ("auc", "multilabel", "roc_auc_score", {}),
        ("map@3", "classes", "label_ranking_average_precision_score", {}),
    ],
)
def test_a_metric_agrees_with_scikit_learn(name, target, theirs, options):
    """Also with equal predictions. For one true class, the mean of 1 / rank is the average
    precision of a ranking.
    """
    truth, predicted = some(name, target)
    predicted = predicted.round(2)
    if name == "map@3":  # ties count differently there
        predicted = predicted + np.linspace(0, 1e-6, predicted.size).reshape(predicted.shape)
    if options:
        predicted = predicted / predicted.sum(axis=1, keepdims=True)
    given = np.eye(3, dtype=int)[truth] if name == "map@3" else truth

    expected = getattr(sklearn.metrics, theirs)(given, predicted, **options)

    assert metrics.find(name, target)(truth, predicted) == pytest.approx(expected, rel=1e-12)


# -- hard cases

EVEN = np.full((3, 3), 1 / 3, np.float32)
SURE = np.array([[1, 0]], np.float32)
ABOVE = np.array([[1 + 1e-7, 1e-9], [1e-9, 1 + 1e-7]])


@pytest.mark.parametrize(
    ("name", "target", "truth", "predicted", "expected"),
    [
        # Of equal probabilities the first class counts, as of numpy's argmax; half is not yet a
        # label.
        ("accuracy", "classes", [0, 1, 2], EVEN, 1 / 3),
        ("map@3", "classes", [2, 2, 2], EVEN, 1 / 3),
        ("accuracy", "multilabel", [[0, 1]], [[0.5, 0.5001]], 1),
        # 0 and 4 are four apart, although no other class occurs beside 1. Of the four rows one is
        # off by 1; of the sixteen pairs of a truth with an answer, 116 in all.
        ("qwk", "ordinal", [0, 4, 0, 4], np.eye(5)[[0, 4, 1, 4]], 1 - (1 / 4) / (116 / 16)),
        # A submission holds the probability of the second class; the first is not looked at.
        ("auc", "classes", [0, 1, 0, 1], [[0.1, 0.1], [0, 0.3], [0.9, 0.4], [0, 0.8]], 3 / 4),
        # Rows are divided by their sum: those of an average in float16 do not add up to 1.
        ("log_loss", "classes", [0, 1], [[0.4, 0.1], [0.3, 0.6]], -log(0.8 * 2 / 3) / 2),
        # Probabilities are clipped as scikit-learn does it in float64.
        ("log_loss", "classes", [1], SURE, 52 * log(2)),
        ("log_loss", "multilabel", [[0, 1]], SURE, 52 * log(2)),
        # The float32 weights of a blend add up to 1.0000001.
        ("log_loss", "classes", [0, 1], ABOVE, 0),
        ("log_loss", "multilabel", np.eye(2), ABOVE, 0),
        # A model may fall below 0 by a little.
        ("rmsle", "regression", [[0.0], [3.0]], [[-7.0], [3.0]], 0),
    ],
)
def test_a_hard_case_has_the_value_competitors_expect(name, target, truth, predicted, expected):
    found = metrics.find(name, target)(np.array(truth), np.array(predicted))

    assert found == pytest.approx(expected, abs=1e-8)


def test_an_infinite_value_is_refused():
    """The square of 1e200 is infinite."""
    with np.errstate(over="ignore"), pytest.raises(DataError, match="the result is inf"):
        metrics.find("rmse", "regression")(np.zeros((2, 1)), np.full((2, 1), 1e200))


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        (
            "Accuracy",
            "classes",
            r"accuracy, .* qwk, auc, log_loss, kl_divergence, map@<k>,.*config's file",
        ),
        *((name, "classes", "expected one of acc") for name in ("f1:2", "", "map@<k>", "f_beta:")),
        *((f"map@{k}", "classes", "a positive integer") for k in ("0", "1.5", "٣", "5\n")),
        *((f"f_beta:{beta}", "classes", "instead of <beta>") for beta in ("-1", "nan")),
        ("rmse", "classes", "target='classes': expected one of accuracy"),
        ("auc", "regression", "expected one of rmse, rmsle, mae, r2"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(name, target, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        metrics.find(name, target)


@pytest.mark.parametrize(
    ("name", "target", "truth", "predicted", "message"),
    [
        (
            "log_loss",
            "classes",
            [0, 1],
            [[0.5, 0.5], [-0.1, 1.1]],
            "log_loss has no value.*contains values",
        ),
        ("accuracy", "classes", [0, 1], [[0.5, 0.5], [np.nan, 1]], "not all .* are finite"),
        ("rmse", "regression", [[0, 1], [1, np.inf]], np.eye(2), "contains infinity"),
        ("rmsle", "regression", [[-1.5], [3]], np.ones((2, 1)), "targets contain"),
        # Whatever is predicted: the refusal does not come and go with the model.
        ("auc", "ordinal", [2, 2, 2], np.eye(3), "auc has no value for these 3 rows.*two classes"),
        ("qwk", "ordinal", [2, 2, 2], np.eye(3), "qwk has no value for these 3 rows.*two classes"),
        ("qwk", "ordinal", [1, 1], [[0, 1], [0, 1]], "qwk has no value for these 2 rows"),
        # A column without a value is left out of the mean, as above, and the last one refused.
        ("auc", "multilabel", [[0], [0]], [[0.1], [0.3]], "auc has no value"),
        ("f1", "multilabel", [[0], [0]], [[0.1], [0.3]], "f1 has no value"),
        ("r2", "regression", [[2], [2]], [[0.1], [0.3]], "r2 has no value"),
    ],
)
def test_rows_for_which_a_metric_has_no_value_are_refused(name, target, truth, predicted, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        metrics.find(name, target)(np.array(truth), np.array(predicted))


# -- standard errors


def test_the_standard_error_of_an_accuracy_is_that_of_its_binomial():
    """Of 320 right rows of 400: the root of 0.8 x 0.2 / 400. The seed fixes it."""
    truth = np.zeros(400, int)
    predicted = np.eye(2)[np.arange(400) % 5 // 4]
    metric = metrics.find("accuracy", "classes")

    found, again, other = (standard_error(metric, truth, predicted, seed) for seed in (0, 0, 1))

    assert found == pytest.approx(0.02, abs=0.002)
    assert found == again != other


def test_resamples_without_a_value_are_skipped():
    """A third of them lack the only row of the second class."""
    truth, predicted = np.array([0, 0, 0, 1]), np.array([[0, 0.1], [0, 0.2], [0, 0.4], [0, 0.3]])

    assert 0.1 < standard_error(metrics.find("auc", "classes"), truth, predicted, 0) < 0.5

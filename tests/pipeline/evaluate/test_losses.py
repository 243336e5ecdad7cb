"""The loss of each row, and the weights of rows."""

from dataclasses import replace

import keras
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config as configs
from pipeline.data import dataset
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import losses
from tests.pipeline.rounding import EPS
from tests.shipped import shipped
from tests.small_competition import write_competition

DIGITS = shipped("digits")
WIDTH, ROWS = 10, 6
DRAW = np.random.default_rng(0)
LOGITS = DRAW.standard_normal((ROWS, WIDTH), np.float32)
LABELS = {
    "classes": DRAW.integers(0, WIDTH, ROWS).astype(np.int32),
    "multilabel": DRAW.integers(0, 2, (ROWS, WIDTH)).astype(np.float32),
}


def alike(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=64 * EPS)


@pytest.mark.parametrize("kind", LABELS)
def test_smoothed_labels_are_those_of_keras_and_only_in_training(kind):
    smooth = replace(DIGITS, target=kind, label_smoothing=0.1)
    labels = LABELS[kind]
    given = np.eye(WIDTH, dtype=np.float32)[labels] if kind == "classes" else labels
    name = {"classes": "CategoricalCrossentropy", "multilabel": "BinaryCrossentropy"}[kind]
    words = {"from_logits": True, "reduction": None}

    trained, judged = (
        losses.of(smooth, training=each)(labels, LOGITS)["loss"] for each in (True, False)
    )

    alike(trained, getattr(keras.losses, name)(label_smoothing=0.1, **words)(given, LOGITS))
    alike(judged, getattr(keras.losses, name)(**words)(given, LOGITS))


@pytest.mark.parametrize("kind", LABELS)
def test_the_focal_loss_weighs_a_row_by_what_the_truth_lacks(kind):
    found = losses.of(replace(DIGITS, target=kind, loss="focal"))(LABELS[kind], LOGITS)["loss"]

    if kind == "multilabel":
        words = {"gamma": 2.0, "from_logits": True}
        expected = keras.losses.binary_focal_crossentropy(LABELS[kind], LOGITS, **words)
    else:
        shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
        true = shares[np.arange(ROWS), LABELS[kind]]
        expected = -((1 - true) ** 2) * np.log(true)
    alike(found, expected)


def test_a_loss_that_is_not_ours_or_not_of_the_target_is_refused(tmp_path):
    text = "from pipeline.config import from_json\nCONFIG = from_json({!r})\n"
    for change in ({"loss": "vocal"}, {"loss": "focal", "target": "ordinal"}):
        wrong = replace(DIGITS, **change)
        (tmp_path / "digits.py").write_text(text.format(wrong.to_json()))
        with pytest.raises(ConfigError, match=f"(?s)loss='{wrong.loss}' is invalid.*focal"):
            configs.load(str(tmp_path / "digits.py"))


def some(labels, weights=None):
    """Return examples with these labels, of three classes."""
    labels = np.array(labels, np.int32)
    ids, inputs = tuple(map(str, range(len(labels)))), np.zeros((len(labels), 1), np.uint8)
    return Examples(ids, inputs, labels, Target("classes", ("a", "b", "c")), weights=weights)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=50),
    st.just("balanced") | st.fixed_dictionaries({"a": st.floats(0.1, 9), "b": st.floats(0.1, 9)}),
)
def test_the_weights_of_classes_have_a_mean_of_one_over_the_training_rows(labels, asked):
    """Held-out rows, here of class 2, do not matter."""
    examples, config = some([*labels, 2, 2]), replace(DIGITS, class_weights=asked)
    rows = np.arange(len(labels))

    found = losses.row_weights(examples, config, rows)

    assert found is not None and found.dtype == np.float32
    assert found[rows].mean(dtype=float) == pytest.approx(1, abs=4 * EPS)
    sums = [found[rows][np.array(labels) == each].sum() for each in set(labels)]
    if asked == "balanced":
        assert sums == pytest.approx([sums[0]] * len(sums), rel=64 * EPS)
    else:
        assert found[0] / found[-1] == pytest.approx(asked.get("abc"[labels[0]], 1), rel=8 * EPS)


def test_the_weights_of_a_column_multiply_those_of_classes():
    column = np.array([0.0, 1, 2, 3])
    examples, rows = some([0, 0, 0, 1], column), np.arange(4)

    alone = losses.row_weights(examples, DIGITS, rows)
    both = losses.row_weights(examples, replace(DIGITS, class_weights="balanced"), rows)

    assert alone is not None and both is not None
    assert alone.tolist() == column.tolist()
    alike(both, column * [2 / 3, 2 / 3, 2 / 3, 2])
    assert losses.row_weights(some([0, 1]), DIGITS, rows[:2]) is None


def test_weights_that_leave_nothing_to_learn_are_refused():
    rows = np.arange(2)
    with pytest.raises(ConfigError, match=r"class_weights=.*-1.0.* is invalid"):
        replace(DIGITS, class_weights={"1": -1.0})
    with pytest.raises(ConfigError, match="'d'; expected labels of the data: 'a', 'b', 'c'"):
        losses.row_weights(some([0, 1]), replace(DIGITS, class_weights={"d": 2.0}), rows)
    for examples, weights in ((some([0, 0]), {"a": 0.0}), (some([0, 1], np.zeros(2)), "")):
        with pytest.raises(DataError, match="are 0 for all 2 training rows"):
            losses.row_weights(examples, replace(DIGITS, class_weights=weights), rows)


def test_a_column_s_weights_reach_the_batches_with_their_labels(tmp_path, tiny):
    folder = write_competition(tmp_path / "competition", train=12)
    table, path = pd.read_csv(folder / "train.csv", dtype=str), folder / "train.csv"
    weighted = replace(tiny, data=replace(tiny.data, weight_column="sure"))
    table.assign(sure=np.arange(12) / 4).to_csv(path, index=False)

    examples, chosen = dataset.read_training(folder, weighted), np.arange(1, 12)
    weights = losses.row_weights(examples, weighted, chosen)
    batches = dataset.Batches(
        examples.inputs,
        examples.labels,
        batch=weighted.batch,
        seed=weighted.seed,
        rows=chosen,
        weights=weights,
    )

    inputs, given = batches.at(3)
    assert np.array_equal(given.weights, batches.rows_of(3) / 4)
    assert np.array_equal(given.labels, examples.labels[batches.rows_of(3)])
    assert len(inputs) == len(given.labels) == weighted.batch
    assert examples.fingerprint != dataset.read_training(folder, tiny).fingerprint
    for wrong in ("-1", "nan", "many", ""):
        table.assign(sure=["1"] * 11 + [wrong]).to_csv(path, index=False)
        with pytest.raises(DataError, match=f"has '{wrong}' in 'sure'"):
            dataset.read_training(folder, weighted)

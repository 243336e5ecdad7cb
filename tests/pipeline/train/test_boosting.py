"""Trees that scikit-learn grows are a layer of the model: they give what scikit-learn's would."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from sklearn import ensemble

from localkaggle import competitions
from pipeline import artifact
from pipeline.errors import ConfigError
from pipeline.infer import inference
from pipeline.models import architectures, trees
from pipeline.train import boosting, training
from tests.pipeline.models.test_published import asked, preset
from tests.shipped import shipped
from tests.small_competition import write_competition

__all__ = ["asked"]
LIMITS = {"max_leaf_nodes": trees.LEAVES, "max_depth": trees.DEPTH, "random_state": 0}


def rows(number: int, seed: int = 0) -> np.ndarray:
    """Return values on a grid of fewer than 255, so that thresholds lie between them."""
    return np.random.default_rng(seed).normal(size=(number, 5)).round(1).astype(np.float32)


def asks(target: str, outputs: int):
    return SimpleNamespace(target=target, outputs=outputs, seed=0)


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Return whether they differ by no more than sums in float32 and in float64."""
    rounding = trees.ITERATIONS * np.finfo(np.float32).eps * np.abs(theirs).max()
    return bool(np.abs(ours - theirs.reshape(ours.shape)).max() <= rounding)


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_that_no_tree_has_seen_get_what_scikit_learn_gives_them(classes):
    seen, new = rows(400), rows(300, seed=1)
    edges = np.linspace(-1, 1, classes - 1)
    labels = np.digitize(seen[:, 0] * seen[:, 1] + seen[:, 2], edges)

    found = boosting.fit(asks("classes", classes), seen, labels, None).outputs(new)

    theirs = ensemble.HistGradientBoostingClassifier(**LIMITS).fit(seen, labels)
    wanted = theirs.decision_function(new)
    assert close(found[:, 1:] if classes == 2 else found, wanted)
    assert (found.argmax(axis=1) == theirs.predict(new)).all()


def test_a_regression_of_several_columns_and_weights_is_scikit_learns():
    seen, new = rows(300), rows(200, seed=1)
    labels = np.stack([seen[:, 0] ** 2, np.sin(seen[:, 1])], axis=1).astype(np.float32)
    weights = np.random.default_rng(2).uniform(0.5, 2, 300)

    found = boosting.fit(asks("regression", 2), seen, labels, weights).outputs(new)

    for output, column in enumerate(labels.T):
        theirs = ensemble.HistGradientBoostingRegressor(**LIMITS).fit(seen, column, weights)
        assert close(found[:, output], theirs.predict(new))


def test_several_labels_and_grades_have_trees_each():
    seen = rows(300)
    columns = np.stack([seen[:, 0] > 0, seen[:, 1] > 0.5, np.zeros(300)], axis=1).astype(np.float32)
    grades = np.digitize(seen[:, 0], [-0.5, 0.5])

    several = boosting.fit(asks("multilabel", 3), seen, columns, None).outputs(seen)
    ordered = boosting.fit(asks("ordinal", 2), seen, grades, None).outputs(seen)

    assert ((several > 0) == columns).mean() > 0.99  # no row has the third one
    assert ((ordered > 0).sum(axis=1) == grades).mean() > 0.99


@pytest.mark.parametrize("labels", [[2], [1, 3]])
def test_labels_without_rows_are_unlikely(labels):
    seen = rows(60)
    given = np.resize(labels, 60)

    found = boosting.fit(asks("classes", 4), seen, given, None).outputs(seen)

    others = np.setdiff1d(np.arange(4), labels)
    shares = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    assert shares[:, others].max() < 0.05 and set(found.argmax(axis=1)) <= set(labels)


def test_no_threshold_is_the_value_of_a_row():
    """Another device may compute such a row a little larger, which would change its side."""
    seen = np.random.default_rng(0).normal(size=(2_000, 3)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 2, 2_000)

    found = boosting.fit(asks("classes", 2), seen, labels, None)

    for nudge in (1 - 1e-7, 1 + 1e-7):
        moved = np.nextafter(seen * np.float32(nudge), seen)
        assert np.array_equal(found.outputs(moved), found.outputs(seen))
    assert (found.thresholds != 0).sum() > 1_000


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        ("classes", np.arange(60) % 2),  # too few rows for a split
        ("regression", np.zeros((60, 1), np.float32)),
        ("classes", np.array([1] + [0] * 10_999)),  # more rows than those from which it stops early
    ],
)
def test_rows_that_no_tree_can_split_get_finite_outputs(target, labels):
    seen = np.random.default_rng(0).normal(size=(len(labels), 2)).astype(np.float32)
    outputs = 2 if target == "classes" else 1

    found = boosting.fit(asks(target, outputs), seen, labels, None).outputs(seen)

    assert np.isfinite(found).all()


def test_a_value_on_a_threshold_stays_on_its_side():
    """A threshold of float64 between two neighbouring float32 must not become the upper one."""
    low = np.float32(1.0)
    seen = np.repeat([low, np.nextafter(low, np.float32(2))], 40)[:, None]
    labels = np.repeat([0.0, 1.0], 40)[:, None].astype(np.float32)

    found = boosting.fit(asks("regression", 1), seen, labels, None).outputs(seen)

    assert found[0] < 0.1 and found[-1] > 0.9


@pytest.fixture
def table(tmp_path):
    """The embedded table, and a config that boosts its columns."""
    config = shipped("breast_cancer")
    competitions.EMBEDDED[config.competition]().write(tmp_path / "table")
    options = {"differences": 3}
    fields = {"model": "columns", "model_options": options, "fit": "boosting", "folds": 2}
    return tmp_path / "table", replace(config, keep="last", patience=None, **fields)


def test_a_boosted_table_goes_through_the_chain_and_is_the_same_again(table, tmp_path):
    folder, config = table
    runs = [training.train(config, folder, tmp_path / name, show=str) for name in ("one", "two")]

    one, two = (artifact.load(tmp_path / name / "artifact") for name in ("one", "two"))

    assert all(map(np.array_equal, one.weights.values(), two.weights.values()))
    assert runs[0].manifest["metrics"]["validation_auc"] > 0.9
    assert runs[0].manifest["applied"] == {"trees": trees.ITERATIONS}
    inference.infer(one, folder, tmp_path / "inferred", show=str)
    assert (tmp_path / "inferred" / "submission.csv").is_file()


@pytest.mark.slow  # it starts TensorFlow
def test_tensorflow_gives_the_same_sums(table, tmp_path):
    folder, config = table
    path = tmp_path / "boosted.py"
    path.write_text(
        "from dataclasses import replace\nfrom pipeline.configs.breast_cancer import CONFIG\n"
        "CONFIG = replace(CONFIG, name='boosted', model='columns', model_options="
        "{'differences': 3}, fit='boosting', keep='last', patience=None)\n"
    )
    code = f"""
import os
os.environ["KERAS_BACKEND"] = "tensorflow"
from pathlib import Path
from pipeline import artifact
from pipeline.infer import inference
inference.infer(artifact.load(Path({str(tmp_path / "out" / "artifact")!r})),
                Path({str(folder)!r}), Path({str(tmp_path / "inferred")!r}), show=print)
"""
    training.train(config, folder, tmp_path / "out", show=str)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]  # golden outputs agree
    assert (tmp_path / "inferred" / "submission.csv").is_file()


def test_the_features_of_a_published_network_can_be_boosted(asked, hub, tmp_path):
    folder = write_competition(tmp_path / "competition", train=80)
    config = replace(asked, pretrained=preset(tmp_path), fit="boosting", model_options={})

    done = training.train(config, folder, tmp_path / "out", show=str)

    assert done.manifest["applied"]["trees"] > 0
    assert done.manifest["metrics"]["validation_accuracy"] >= 0.5


def test_trees_get_the_differences_of_each_two_of_the_first_columns():
    seen = rows(20)
    inputs = keras.Input((5,))

    logits = architectures.columns(inputs, 2, 0.9, differences=3)

    below = keras.Model(inputs, trees.last_layer(logits, "boosting").input)
    first, second, third = seen[:, :3].T
    added = np.stack([first - second, first - third, second - third], axis=1)
    assert np.array_equal(below(seen), np.concatenate([seen, added], axis=1))


def test_differences_of_more_columns_than_there_are_are_refused(table, tmp_path):
    folder, config = table

    with pytest.raises(ConfigError, match="differences=99; expected 0 to 60 columns"):
        training.train(
            replace(config, model_options={"differences": 99}), folder, tmp_path, show=str
        )


def test_columns_are_for_a_table_that_is_fitted(tiny):
    for fields in ({}, {"fit": "boosting"}):
        with pytest.raises(ConfigError, match="a table with fit='boosting'"):
            replace(tiny, model="columns", model_options={}, **fields)

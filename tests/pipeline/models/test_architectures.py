"""The shipped models."""

import re
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras.src.utils import rng_utils

from pipeline import config as configs
from pipeline.config import Data
from pipeline.errors import ConfigError
from pipeline.models import architectures
from tests.shipped import shipped

DIGITS = shipped("digits")
TOO_SMALL = replace(DIGITS.data, height=1, width=1)
SMALL_WRN = replace(
    DIGITS,
    num_classes=7,
    model="wide_resnet",
    model_options={"k": 1, "n": 1, "kernel_size": 3},
    data=replace(DIGITS.data, height=32, width=32, channels=3),
)
STRIDED = replace(
    DIGITS,
    model="strided_resnet",
    model_options={"width": 4, "stride": 2},
    data=replace(DIGITS.data, height=13, width=10),  # of which neither 2 nor 4 is a divisor
)


TABULAR = replace(
    DIGITS,
    model="tabular",
    model_options={"width": 8},
    data=Data(
        kind="table",
        label_column="kind",
        numeric_columns=("age", "size"),
        categorical_columns=("sex",),
        most_categories=4,
    ),
)


@pytest.mark.parametrize(
    "config", [DIGITS, SMALL_WRN, STRIDED, TABULAR], ids=lambda config: config.model
)
def test_a_model_takes_its_inputs_and_returns_float32_logits(config):
    """Under any policy. Each layer with weights has its own name: one that Keras numbers differs
    between sessions. BatchNorm has the momentum that was asked for.
    """
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with architectures.without_numbers():
            first, built = (architectures.build(config, 0.8) for _ in range(2))
            images = keras.KerasTensor((2, *config.data.shape), config.data.dtype)
            found = built.compute_output_spec(images)
    finally:
        keras.config.set_dtype_policy("float32")

    assert found.shape == (2, config.outputs)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    paths = [weight.path for weight in built.weights]
    assert paths == [weight.path for weight in first.weights] and len(set(paths)) == len(paths)
    counted = re.compile(r"(\w*conv2d|dense|embedding|\w*_normalization|\w*_attention)(_\d+)?/")
    assert not any(map(counted.match, paths))
    norms = [one for one in built.layers if isinstance(one, keras.layers.BatchNormalization)]
    assert {layer.momentum for layer in norms} <= {0.8}


WIDE = {"model": "wide_resnet", "model_options": {"k": 1, "n": 1, "kernel_size": 3}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "resnet"}, "expected one of small_cnn, wide_resnet"),
        ({"model_options": {"depth": 3}}, "unexpected .*'depth'"),
        ({"model": "wide_resnet", "model_options": {"k": 3}}, "missing 2 required"),
        ({"model": "strided_resnet", "model_options": {"stride": 0}}, "'stride': 0"),
        ({"model_options": {"width": 0}}, "model='small_cnn' cannot be built: ValueError"),
        ({"model_options": {"width": "4"}}, "width': '4'"),
        ({"model_options": {"dropout": "0.1"}}, "dropout': '0.1'"),
        ({**WIDE, "data": TOO_SMALL}, "height"),
        (
            {"drop_path": 0.1},
            r"unexpected.*'drop_path'(.|\n)*model accepts width, dropout",
        ),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_its_options(changes, said):
    with pytest.raises(ConfigError, match=said):
        architectures.build(replace(DIGITS, **changes))


def test_a_seed_gives_the_same_weights_and_dropout_as_keras_own_function(monkeypatch):
    """A different seed gives different ones."""
    # Keras would seed TensorFlow, too, and import it for that.
    monkeypatch.setattr(rng_utils, "tf", SimpleNamespace(available=False))
    options = {"width": 4, "depth": 1, "dropout": 0.1}
    config = replace(DIGITS, model="mlp", model_options=options)

    def state(seed, number):
        seed(number)
        drawn = [np.asarray(each) for each in architectures.build(config).variables]
        return [*drawn, np.random.random()]  # as a custom model may draw

    ours, keras_own = architectures.seed, keras.utils.set_random_seed
    first, again, other = state(ours, 1), state(keras_own, 1), state(ours, 2)
    assert all(map(np.array_equal, first, again))
    paths = [variable.path for variable in architectures.build(config).variables]
    drawn = [place for place, path in enumerate(paths) if "kernel" in path or "seed_gen" in path]
    assert len(drawn) == 3
    assert not any(np.array_equal(first[place], other[place]) for place in drawn)


@pytest.mark.parametrize("gaps", [False, True])
def test_gaps_and_categories_unseen_in_training_add_no_noise(gaps):
    """They count as the mean, and as no category."""
    data = configs.Data(
        kind="table", numeric_columns=("a", "b"), categorical_columns=("c",), most_categories=5
    )
    config = replace(DIGITS, data=data, model="mlp", model_options={"dropout": 0.0}, num_classes=3)
    architectures.seed(0)
    built = architectures.build(config)
    random = np.random.default_rng(0)
    rows = np.zeros((64, 5), np.float32)  # two numbers, two marks of what is missing, one category
    rows[:, :2], rows[:, 4] = random.normal(size=(64, 2)), random.integers(1, 5, 64)
    rows[:, 2] = random.integers(0, 2, 64) if gaps else 0
    built.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    built.train_on_batch(rows, (rows[:, 0] > 0).astype(int) + (rows[:, 2] > 0))

    known, missing = np.zeros((2, 1, 5), np.float32)
    known[0, 4] = missing[0, 4] = 2
    missing[0, 2] = 1
    same = np.array_equal(built.predict_on_batch(known), built.predict_on_batch(missing))
    embedded = np.asarray(built.get_layer("category1_embedding")(np.arange(5)))
    assert same != gaps
    assert not embedded[0].any() and embedded[1:].all()


def test_a_square_of_pixels_becomes_one_pixel_with_all_their_values():
    """By rows, padded with zeros."""
    images = np.arange(1, 16, dtype=np.float32).reshape(1, 3, 5, 1)
    inputs = keras.Input((3, 5, 1))

    joined = keras.Model(inputs, architectures._squares_to_channels(inputs, 2, "x"))(images)

    assert np.asarray(joined).tolist() == [
        [
            [[1, 2, 6, 7], [3, 4, 8, 9], [5, 0, 10, 0]],
            [[11, 12, 0, 0], [13, 14, 0, 0], [15, 0, 0, 0]],
        ]
    ]


def test_drop_path_grows_linearly_with_depth():
    with architectures.without_numbers():
        model = architectures.build(replace(SMALL_WRN, drop_path=0.3))

    rates = {layer.name: layer.rate for layer in model.layers if "drop_path" in layer.name}
    assert list(rates) == [f"stage{stage}_block1_drop_path" for stage in (1, 2, 3)]
    assert list(rates.values()) == pytest.approx([0.1, 0.2, 0.3])


def test_an_image_skips_a_whole_branch_or_keeps_all_of_it():
    """The mean over many images does not change."""
    branch = keras.Input((2, 2, 3))
    start = keras.Input((2, 2, 3))
    model = keras.Model([start, branch], architectures._add(start, branch, 0.25, "block"))
    ones = np.ones((4000, 2, 2, 3), np.float32)

    found = np.asarray(model([0 * ones, ones], training=True)).reshape(4000, -1)

    assert (found == found[:, :1]).all()
    assert sorted(set(found[:, 0])) == pytest.approx([0, 1 / 0.75])
    assert found.mean() == pytest.approx(1, abs=6 * (0.25 / 0.75 / 4000) ** 0.5)
    assert (np.asarray(model([0 * ones[:9], ones[:9]], training=False)) == 1).all()

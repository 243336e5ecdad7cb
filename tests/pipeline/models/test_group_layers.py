"""Custom layers compute the same for any micro-batch."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers

from pipeline.errors import ConfigError
from pipeline.models import architectures
from pipeline.models.group_layers import KERAS
from tests.pipeline.one_ulp import TIMES
from tests.pipeline.train.test_train_step import drawn, given, made

SIZE, GROUP, WIDTH = 16, 4, 8


class Drawing(layers.Layer):
    """Draws with two generators in a list and an inner layer, adds a loss, and counts calls."""

    def __init__(self, **words):
        super().__init__(**words)
        self.generators = [keras.random.SeedGenerator(seed) for seed in (1, 2)]
        self.inner = layers.Dropout(0.5, seed=3)
        self.weight = self.add_weight(name="weight", shape=(), initializer="ones")
        self.calls = self.add_weight(name="calls", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs, training=None):
        """As Keras calls it."""
        self.add_loss(keras.ops.mean(keras.ops.square(self.weight * inputs)))
        self.calls.assign(self.calls + 1)
        for generator in self.generators if training else []:
            inputs = keras.random.dropout(inputs, 0.3, seed=generator)
        return self.inner(inputs, training=training) * self.weight


class Around(layers.Layer):
    """A layer around another."""

    def __init__(self, inner, drawing=False, **words):
        super().__init__(**words)
        self.inner = inner
        if drawing:
            self.generator = keras.random.SeedGenerator(1)

    def call(self, inputs, training=None):
        """As Keras calls it."""
        return self.inner(inputs, training=training)


class Louder(layers.BatchNormalization):
    """With a custom call."""

    def call(self, inputs, training=None, mask=None):
        """As Keras calls it."""
        return 2 * super().call(inputs, training=training, mask=mask)


def after(tiny, monkeypatch, layer, **changes):
    """Return the state's arrays after a step of a model with such a layer."""

    def model(images, num_classes, batchnorm_momentum):
        x = layers.Dense(WIDTH, name="first")(layers.Flatten(name="flat")(images))
        return layers.Dense(num_classes, dtype="float32", name="logits")(layer()(x))

    monkeypatch.setitem(architectures.MODELS, "own", model)
    sgd = replace(tiny.optimizer, name="sgd", base_rate=0.1, base_batch=GROUP)
    options = {"model": "own", "model_options": {}, "warmup_epochs": 0, "optimizer": sgd}
    step, state = made(replace(tiny, batch=SIZE, **options, **changes))
    state, _ = step.train(state, (), given(step, drawn(SIZE)), 1)
    return step.layout.to_arrays(state)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda: Drawing(name="own"), id="generators in a list, a loss and a state"),
        pytest.param(
            lambda: Around(layers.BatchNormalization(name="norm"), name="own"),
            id="BatchNormalization inside",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_custom_layer_computes_the_same_for_any_micro_batch(tiny, monkeypatch, layer):
    whole, parts = (after(tiny, monkeypatch, layer, micro_batch=size) for size in (None, GROUP))

    for name, array in whole.items():
        if np.issubdtype(array.dtype, np.floating):
            bound = TIMES * np.finfo(np.float32).eps * SIZE * max(np.abs(array).max(), 1)
            assert np.abs(array - parts[name]).max() <= bound, name


FIRST = "params/0.0 first/kernel"


def test_losses_and_state_of_a_drawing_layer_are_kept(tiny, monkeypatch):
    arrays = after(tiny, monkeypatch, lambda: Drawing(name="own"))

    kept = [
        array for name, array in arrays.items() if name.startswith("buffers/") and not array.ndim
    ]
    assert 1.0 in [float(array) for array in kept]
    plain = after(tiny, monkeypatch, lambda: Around(Drawing(name="own"), name="around"))
    assert np.array_equal(arrays[FIRST], plain[FIRST])


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        (lambda: Louder(name="own"), "a custom call"),
        (lambda: Around(layers.BatchNormalization(), drawing=True), "a random layer"),
        pytest.param(
            lambda: layers.BatchNormalization(renorm=True, name="own"),
            "renorm=True",
            marks=pytest.mark.skipif(KERAS < (3, 15), reason="this Keras has no renorm"),
        ),
    ],
)
def test_batch_normalization_that_cannot_be_grouped_is_refused(tiny, monkeypatch, layer, problem):
    with pytest.raises(ConfigError, match=problem):
        after(tiny, monkeypatch, layer)

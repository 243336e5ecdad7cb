"""Models as people write them: the artifact scores what was validated, and an interrupted run ends
with the numbers of an uninterrupted one.
"""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers

from pipeline import artifact
from pipeline.__main__ import main
from pipeline.data import dataset
from pipeline.errors import ConfigError
from pipeline.models import architectures, group_layers, weight_names
from pipeline.train import custom_check, training
from tests.pipeline import rounding

MODELS = {
    "an encoder that is called twice": """
def made(images, num_classes, batchnorm_momentum):
    inputs = keras.Input((4, 8, 1))
    x = layers.Conv2D(6, 3, activation="relu")(inputs)
    x = layers.BatchNormalization(momentum=0.8)(x)
    encoder = keras.Model(inputs, layers.Flatten()(x))
    x = layers.Concatenate()([encoder(images[:, :4]), encoder(images[:, 4:])])
    return layers.Dense(num_classes)(x)
""",
    "a subclassed model": """
class Net(keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.conv, self.norm = layers.Conv2D(6, 3), layers.BatchNormalization(momentum=0.8)
        self.flat, self.drop = layers.Flatten(), layers.Dropout(0.1)
        self.head = layers.Dense(num_classes)

    def call(self, images, training=None):
        x = ops.relu(self.norm(self.conv(images), training=training))
        return self.head(self.drop(self.flat(x), training=training))

def made(images, num_classes, batchnorm_momentum):
    return Net(num_classes)(images)
""",
    "a transformer block": """
class Block(keras.layers.Layer):
    def __init__(self, heads, size, **words):
        super().__init__(**words)
        self.attention = layers.MultiHeadAttention(heads, size // heads, dropout=0.1)
        self.mlp = keras.Sequential([layers.Dense(size * 2, activation="gelu"), layers.Dense(size)])
        self.norms = layers.LayerNormalization(), layers.LayerNormalization()
        self.drop = layers.Dropout(0.1)

    def call(self, x, training=None):
        y = self.norms[0](x)
        x = x + self.drop(self.attention(y, y, training=training), training=training)
        return x + self.mlp(self.norms[1](x))

class Places(keras.layers.Layer):
    def __init__(self, length, size):
        super().__init__()
        self.embedding = layers.Embedding(length, size)
        self.length = length

    def call(self, x):
        return x + self.embedding(ops.arange(self.length))

def made(images, num_classes, batchnorm_momentum):
    x = Places(8, 8)(layers.Dense(8)(layers.Reshape((8, 8))(images)))
    for _ in range(2):
        x = Block(2, 8)(x)
    return layers.Dense(num_classes)(layers.GlobalAveragePooling1D()(x))
""",
    "recurrent layers, and layers and models with several outputs": """
def made(images, num_classes, batchnorm_momentum):
    x = layers.Bidirectional(layers.GRU(6, return_sequences=True))(layers.Reshape((8, 8))(images))
    x = layers.TimeDistributed(layers.Dense(6, name="each"))(x)
    rows, last, cell = layers.LSTM(6, return_sequences=True, return_state=True)(x)
    seen, scores = layers.MultiHeadAttention(2, 3)(rows, rows, return_attention_scores=True)
    inputs = keras.Input((6,))
    outputs = {"small": layers.Dense(2)(inputs), "large": layers.Dense(4)(inputs)}
    heads = keras.Model(inputs, outputs)
    both = heads(last)
    x = layers.Concatenate()([layers.Flatten()(seen), both["small"], both["large"]])
    return layers.Dense(num_classes)(x)
""",
    "weights without names, some of them one number": """
class Linear(keras.layers.Layer):  # of Keras' guide
    def __init__(self, units=32, input_dim=32):
        super().__init__()
        self.w = self.add_weight(shape=(input_dim, units), initializer="random_normal")
        self.b = self.add_weight(shape=(units,), initializer="zeros")
        self.gain = self.add_weight(shape=(), initializer="ones")
        self.offset = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        return (ops.matmul(inputs, self.w) + self.b) * self.gain + self.offset

def made(images, num_classes, batchnorm_momentum):
    x = ops.relu(Linear(16, 64)(layers.Flatten()(images)))
    return Linear(num_classes, 16)(x)
""",
}


@pytest.fixture
def written(custom):
    """Return a function that makes a config from code with the model `made`."""
    return partial(custom, epochs=2, batch=32, precision="float32")


def within_rounding(outputs, model):
    """Return a model's outputs, and how far a different order of additions may move them."""
    weights = model.get_weights()
    return outputs(weights), rounding.of_outputs(outputs, weights)


def unchecked(config, show):
    """Replace the check of custom code, which the first training has passed."""


QUICK = "weights without names, some of them one number"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != QUICK)) for name in MODELS]
)
def test_the_artifact_scores_what_was_validated_and_a_resumed_run_ends_the_same(
    name, written, competition, tmp_path
):
    config = written(MODELS[name])

    def train(output, **words):
        return training.train(config, competition, tmp_path / output, show=str, **words)

    whole = train("whole", check=custom_check.by_jax)
    part = train("parts", max_steps=2, check=unchecked)
    parts = train("parts", check=unchecked)

    loaded = artifact.load(tmp_path / "whole" / "artifact")
    model = architectures.build(loaded.config)
    artifact.assign(model, loaded.weights)
    examples = dataset.read_training(competition, config)
    saved = np.load(tmp_path / "whole" / "validation.npz")["probabilities"]
    ids = (tmp_path / "whole" / "validation.csv").read_text().splitlines()[1:]
    rows = [examples.ids.index(line.split(",")[0]) for line in ids]

    def predictions(weights):
        model.set_weights(weights)
        return loaded.target.predictions(architectures.outputs(model, examples.inputs[rows], 16))

    found, bound = within_rounding(predictions, model)
    assert np.abs(found - saved).max() <= bound  # the same arithmetic in different batches
    assert part.status == "partial"
    resumed = artifact.load(tmp_path / "parts" / "artifact").weights
    assert resumed.keys() == loaded.weights.keys()
    assert all(np.array_equal(resumed[key], loaded.weights[key]) for key in resumed)
    metrics = [one.manifest["metrics"] for one in (whole, parts)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            """
def made(images, num_classes, batchnorm_momentum):
    x = layers.Dense(8)(layers.Reshape((8, 8))(images))
    x = x + layers.Embedding(8, 8)(ops.arange(8))
    return layers.Dense(num_classes)(layers.GlobalAveragePooling1D()(x))
""",
            "not part of the model",
        ),
        (
            """
encoder = layers.Dense(8)

def made(images, num_classes, batchnorm_momentum):
    return layers.Dense(num_classes)(encoder(layers.Flatten()(images)))
""",
            "inside the function",
        ),
    ],
    ids=["an embedding of a constant", "a layer outside of the function"],
)
def test_weights_outside_the_model_are_refused_before_training(code, said, written):
    """All folds would share them, but inference builds a model per fold."""
    with pytest.raises(ConfigError, match=said):
        custom_check.by_jax(written(code), lambda line: None)


def test_recurrent_dropout_draws_for_each_row():
    """A recurrent layer makes its cell's masks for all rows before the first step."""
    inputs = keras.Input((1, 32))
    model = keras.Model(inputs, layers.SimpleRNN(8, dropout=0.5, seed=1)(inputs))

    with group_layers.computing(model, group_layers.MicroBatch(np.arange(8), 8, 1)):
        found = np.asarray(model(np.ones((8, 1, 32), np.float32), training=True))

    assert len(np.unique(found.round(4), axis=0)) == 8


@pytest.mark.parametrize(
    ("layer", "steps"), [("layers.Dropout(0.1)", 8), ("layers.BatchNormalization()", 16)]
)
def test_a_layer_with_time_before_the_batch_is_refused(written, layer, steps):
    """Training would take each time step for an image; 16 is the number of rows in the check."""
    config = written(f"""
def made(images, num_classes, batchnorm_momentum):
    x = layers.Dense(4)(ops.reshape(images, (-1, {steps}, {64 // steps})))
    x = {layer}(ops.transpose(x, (1, 0, 2)))
    return layers.Dense(num_classes)(ops.mean(x, axis=0))
""")

    with pytest.raises(ConfigError, match="so that the batch axis comes first"):
        custom_check.by_jax(config, lambda line: None)


def test_layers_outside_functions_have_a_fixed_seed(written):
    """They are made when the file is imported, before a training sets its seed."""
    code = """
turned = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.02)])

def made(images, num_classes, batchnorm_momentum):
    return layers.Dense(num_classes)(layers.Flatten()(turned(images)))
"""
    models = architectures.build(written(code)), architectures.build(written(code))

    first, again = ([np.asarray(one) for one in each.non_trainable_variables] for each in models)
    assert len(first) == 2 and all(map(np.array_equal, first, again))


@pytest.mark.slow
def test_train_checks_a_model_with_tensorflow_too(written, competition, tmp_path, capsys):
    """Inference on a GPU uses TensorFlow, after the training."""
    written("""
import jax.numpy as jnp

class Jax(keras.layers.Layer):
    def call(self, x):
        return jnp.asarray(x) * 2

    def compute_output_shape(self, shape):
        return shape

def made(images, num_classes, batchnorm_momentum):
    return layers.Dense(num_classes)(Jax()(layers.Flatten()(images)))
""")

    words = ["--config", tmp_path / "tiny.py", "--input", competition, "--output", tmp_path / "out"]
    code = main(["train", *map(str, words)])

    assert code == 2
    assert "works with JAX but not with TensorFlow" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("checkpoints/*"))


@pytest.mark.parametrize("name", MODELS)
def test_each_weight_has_its_own_key_which_is_the_same_when_built_again(name, written):
    config = written(MODELS[name])

    with architectures.without_numbers():
        ours, again = (weight_names.keys(architectures.build(config)) for _ in range(2))

    assert list(ours.values()) == list(again.values())
    assert len(set(ours.values())) == len(ours)


def test_places_are_the_same_under_every_keras(written):
    """CI runs this under both images' Keras."""
    with architectures.without_numbers():
        keys = weight_names.keys(architectures.build(written(MODELS["a transformer block"])))

    assert list(keys.values())[2:6] == [
        "1.0.0 places/embedding/embeddings",
        "2.0.0.0 block/multi_head_attention/query/kernel",
        "2.0.0.1 block/multi_head_attention/query/bias",
        "2.0.1.0 block/multi_head_attention/key/kernel",
    ]
    places = [key.split()[0] for key in keys.values()]
    assert places[:3] + places[-3:] == ["0.0", "0.1", "1.0.0", "3.3.1", "4.0", "4.1"]
    assert len(set(places)) == len(places) == 37

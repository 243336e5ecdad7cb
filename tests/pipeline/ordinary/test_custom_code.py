"""Functions as competitors write them into the file of their config."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import artifact
from pipeline.config import Optimizer, custom_code
from pipeline.errors import ConfigError
from pipeline.evaluate import metrics
from pipeline.models import architectures
from pipeline.train import custom_check, warm_start
from tests.pipeline.train.test_train_step import after, apart, made, rounding

NET = '''
WIDTH = 8


def made(images, num_classes, momentum):
    """A small network."""
    x = layers.Flatten()(images)
    x = layers.Dense(WIDTH, activation="relu", name="hidden")(x)
    return layers.Dense(num_classes, name="logits")(x)
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('    """A small network."""\n', "", True),
        ("    x = layers.Flatten", "    # as a vector\n\n    x = layers.Flatten", True),
        ('activation="relu", name', "activation='relu',\n name", True),
        ("WIDTH = 8", "WIDTH = 9", False),
        ("WIDTH = 8", "WIDTH = 8.0", False),
        ("(x)\n    return", "(x) + 1\n    return", False),
    ],
)
def test_a_comment_and_a_number_of_the_config_are_no_other_code_and_a_function_s_is(
    custom, before, after, same
):
    first = custom_code.digest(custom(NET))

    assert before in NET and custom_code.digest(custom(NET, epochs=2)) == first
    assert (custom_code.digest(custom(NET.replace(before, after, 1))) == first) is same


CONTRAST = '''
def contrast(labels, outputs):
    """Supervised contrastive loss (Khosla et al. 2020, 2004.11362): rows of a label are drawn
    together, and others pushed away."""
    ops = keras.ops
    rows = outputs / ops.sqrt(ops.sum(ops.square(outputs), axis=-1, keepdims=True) + 1e-6)
    other = 1 - ops.eye(ops.shape(rows)[0])
    alike = (rows @ ops.transpose(rows)) / 0.5
    same = ops.cast(labels[:, None] == labels[None], "float32") * other
    chance = alike - ops.log(ops.sum(ops.exp(alike) * other, axis=-1, keepdims=True))
    return -ops.sum(same * chance, axis=-1) / ops.maximum(ops.sum(same, axis=-1), 1)
'''
FOCAL = """
def focal(labels, outputs):
    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return (1 - keras.ops.exp(-losses)) ** 2 * losses
"""


@pytest.fixture
def rows():
    """Return images uint8 (1, 64, 8, 8, 1) and labels int32 (1, 64) of a step."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, (1, 64)).astype(np.int32)
    return random.integers(0, 256, (1, 64, 8, 8, 1), np.uint8), labels


CONTRASTED = {"loss": "contrast", "batch": 64, "batchnorm_batch": 16}


def test_a_loss_that_compares_rows_is_the_same_whatever_the_machine(custom, rows):
    """It gets groups of 16, also where a replica has 8 rows, and a micro-batch could be smaller."""
    sgd = Optimizer(name="sgd", base_rate=0.1, base_batch=16)
    config = custom(NET + CONTRAST, optimizer=sgd, **CONTRASTED)
    bound = rounding(config, rows)

    for micro_batch, replicas in ((16, 1), (None, 8)):
        other = after(replace(config, micro_batch=micro_batch), rows, replicas)
        assert apart(other, after(config, rows)) < bound


def test_out_of_memory_divides_no_group_of_a_loss_that_compares_rows(custom):
    compares, _ = made(custom(NET + CONTRAST, **CONTRASTED))
    alone, _ = made(custom(NET + FOCAL, **(CONTRASTED | {"loss": "focal"})))

    assert compares.smaller == [32, 16]
    assert min(alone.smaller) == 1


@pytest.mark.parametrize(
    ("code", "says"),
    [(CONTRAST, "compares rows, so it receives groups of 8"), (FOCAL, "depends on the labels$")],
)
def test_the_check_takes_losses_of_a_row_and_of_rows(custom, code, says):
    """The supervised contrastive loss depends on which labels are equal, and not on their names."""
    told = []
    custom_check.by_jax(custom(NET + code, loss=code.split("(")[0].split()[-1]), told.append)

    assert re.search(says, told[0])


UNBUILT = """
class Unbuilt(layers.Layer):
    def build(self, shape):
        self.dense = layers.Dense(8)

    def call(self, x):
        return self.dense(x)

    def compute_output_shape(self, shape):
        return (*shape[:-1], 8)
"""


@pytest.mark.parametrize(
    ("code", "layer", "says"),
    [
        # Keras calls no layer that says its shape, so it builds nothing inside.
        (UNBUILT, "Unbuilt()(x)", r"its build\(\) method, or remove compute_output_shape"),
        ("", "x - keras.ops.mean(x, axis=0)", "if other rows change"),
        (
            "",
            "keras.ops.sqrt(x * 0)",
            r"line \d+\) has a loss of .* and non-finite gradients for 2 of 4 weights",
        ),
        (
            "",
            'layers.Dense(4)(x)\n    return keras.ops.cast(x, "int32")',
            "expected float32 outputs, got int32",
        ),
        ("", "layers.Dense(4)(x)\n    return keras.ops.softmax(x)", "returns probabilities"),
        (
            FOCAL,
            "layers.Dense(4)(x)\n    return keras.ops.softmax(x)",
            "from_logits=True in a custom",
        ),
        (
            FOCAL.replace("return", "return keras.ops.log(-1.0) +"),
            "x",
            "has a loss of nan .*; expected finite numbers.*\nCheck loss='focal'",
        ),
    ],
    ids=["unbuilt", "no layer", "gradient", "type", "softmax", "own loss of it", "loss"],
)
def test_what_no_step_can_be_made_of_is_refused_before_training(custom, code, layer, says):
    loss = "focal" if "focal" in code else ""
    config = custom(code + NET.replace("    return", f"    x = {layer}\n    return"), loss=loss)

    with pytest.raises(ConfigError, match=says):
        custom_check.by_jax(config, str)


SEQUENTIAL = """
def made(images, num_classes, momentum):
    return keras.Sequential([layers.Flatten(), layers.Dense(num_classes)])
"""


def test_a_function_may_return_a_model_as_many_write_it_and_is_listed_where_a_name_is_wrong(custom):
    assert architectures.count(architectures.build(custom(SEQUENTIAL)))["total"] == 64 * 4 + 4

    with pytest.raises(ConfigError, match=r"model='mad' .*expected one of small_cnn.*, made"):
        architectures.build(custom(SEQUENTIAL, model="mad"))


def test_a_layer_may_have_any_usual_name(custom):
    """Keras takes each name once a model, those of the template's own layers too."""
    for name in ("images", "inputs", "features", "to_unit"):
        named = custom(NET.replace('"hidden"', f'"{name}"'))
        assert name in [layer.name for layer in architectures.build(named).layers]


METRICS = """
from sklearn.metrics import cohen_kappa_score, roc_auc_score

def kappa(truth, labels):
    return cohen_kappa_score(truth, labels, weights="quadratic")

def area(truth, probabilities):
    return roc_auc_score(truth, probabilities, multi_class="ovr")
"""


@pytest.mark.parametrize(("metric", "classes"), [("kappa", 2), ("area", 4)])
def test_a_metric_without_a_value_where_a_class_is_missing_is_taken(custom, metric, classes):
    """A stratified validation set never lacks one."""
    custom_check.by_jax(custom(NET + METRICS, metric=metric, num_classes=classes), str)


def test_a_metric_with_other_names_of_parameters_is_refused_with_a_wrapper(
    custom,
):
    code = "\nfrom sklearn.metrics import median_absolute_error as mdae\n"
    config = custom(NET + code, metric="mdae", target="regression", num_classes=1)
    with pytest.raises(ConfigError) as refused:
        metrics.of(config)

    wrapper = re.search(r"def .*\(truth, numbers\)(?=, and)", str(refused.value))[0]
    name = re.search(r"and set metric='(\w+)'", str(refused.value))[1]
    wrapped = custom(NET + code + wrapper, metric=name, target="regression", num_classes=1)
    assert not metrics.of(wrapped).greater_is_better


def test_a_custom_model_with_a_layer_more_is_told_to_name_the_layers_of_both(custom):
    """Keras numbers the layers without a name, so that each after the new one has another name."""
    unnamed = NET.replace(', name="hidden"', "").replace(', name="logits"', "")
    one = custom(unnamed)
    first = SimpleNamespace(config=one, folds=[artifact.weights_of(architectures.build(one))])
    more = custom(unnamed.replace("    return", "    x = layers.Dense(8)(x)\n    return"))

    with pytest.raises(ConfigError, match=r"Mismatched shapes.*\n.*In custom models, name shared"):
        warm_start.begin(architectures.build(more), first, more, 1, str)

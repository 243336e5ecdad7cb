"""float32 is float32: a TPU multiplies it in bfloat16 unless it is told not to."""

import re
from dataclasses import replace
from importlib.util import find_spec

import jax
import keras
import pytest

from pipeline.config import Data
from pipeline.models import architectures
from pipeline.train import learning_rate
from pipeline.train.step import TrainStep
from tests.shipped import shipped
from workbench.plan import compiled_step
from workbench.plan.accelerators import RUNTIMES

IMAGES = replace(shipped("digits"), batch=16, batchnorm_batch=8)
TABLE = replace(
    IMAGES,
    num_classes=2,
    data=Data(kind="table", label_column="sick", numeric_columns=("age", "size")),
    model="mlp",
    model_options={"width": 32, "depth": 1},
)
PRODUCT = r"(?:dot_general|convolution)\b.*?precision = \[(?:#stablehlo<precision )?(\w+)"


def precisions(lowered):
    """Return the precisions of the products in a program."""
    found = re.findall(PRODUCT, lowered.as_text())
    assert found
    return set(found)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed")
def test_a_table_trains_in_float32_on_a_tpu():
    """In the step that `plan` compiles."""
    with compiled_step._topology(RUNTIMES["tpu-v5e-8"].core) as devices:
        lowered = compiled_step.lowered(TABLE, devices, "float32")
        compiled = lowered.compile().as_text().splitlines()

    assert precisions(lowered) == {"HIGHEST"}
    products = [line for line in compiled if re.search(r" (dot|convolution)\(", line)]
    assert products and all("operand_precision={highest,highest}" in line for line in products)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("mixed_bfloat16", "DEFAULT"), pytest.param("float32", "HIGHEST", marks=pytest.mark.slow)],
)
def test_images_train_in_the_precision_that_the_config_asks_for(policy, expected):
    lowered = compiled_step.lowered(IMAGES, jax.devices("cpu")[:1], policy)

    assert precisions(lowered) == {expected}


def test_validation_is_computed_as_the_golden_outputs_are():
    """Otherwise validation and inference would differ."""
    assert keras.config.dtype_policy().name == "float32"
    applied = learning_rate.apply(TABLE, 320)
    step = TrainStep(TABLE, applied, architectures.build(TABLE), None)
    state = step.layout.initial()
    rows = jax.ShapeDtypeStruct((8, *TABLE.data.shape), TABLE.data.dtype)
    labels = jax.ShapeDtypeStruct((8,), "int32")

    assert precisions(step.forward.lower(state.params, state.buffers, rows)) == {"HIGHEST"}
    assert precisions(step.evaluate.lower(state.params, state.buffers, rows, labels, 8)) == {
        "HIGHEST"
    }

"""Functions as competitors write them into the file of their config."""

from dataclasses import replace

import pytest

from pipeline import config as configs
from pipeline.config import Config

HEADER = """
import keras
from keras import layers

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="own",
    competition="own-letters",
    num_classes=4,
    data=Data(height=8, width=8, channels=1),
    model="net",
    optimizer=Optimizer(name="adam", base_rate=1e-2, base_batch=8),
    batch=16,
    epochs=1,
    warmup_epochs=0,
)
"""
NET = '''
def net(images, num_classes, momentum):
    """A small network."""
    x = layers.Flatten()(images)
    x = layers.Dense(8, activation="relu", name="hidden")(x)
    return layers.Dense(num_classes, name="logits")(x)
'''


@pytest.fixture
def own(tmp_path):
    """Return a function: the config in a file with this code, its fields changed."""

    def made(code: str, **fields) -> Config:
        path = tmp_path / "own.py"
        path.write_text(HEADER + code)
        return replace(configs.load(str(path)), **fields)

    return made


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('    """A small network."""\n', "", True),
        ("    x = layers.Flatten", "    # as a vector\n\n    x = layers.Flatten", True),
        ("(images)\n", "(images)  # one row a picture\n", True),
        ('(8, activation="relu", name="hidden")', "(8,\n activation='relu', name='hidden')", True),
        ("Dense(8", "Dense(9", False),
        ("Dense(8", "Dense(8.0", False),
        ('"relu"', '"gelu"', False),
        ("(x)\n    return", "(x) + 1\n    return", False),
    ],
)
def test_a_comment_in_a_function_is_no_other_code_and_a_number_is(own, before, after, same):
    first = own(NET).code

    assert before in NET
    assert (own(NET.replace(before, after, 1)).code == first) is same

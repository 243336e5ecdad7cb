"""What is frozen is neither computed for, nor kept track of, nor changed by a bit."""

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest
from keras import layers

from pipeline import artifact
from pipeline import config as configs
from pipeline.config import Data, Optimizer
from pipeline.errors import ConfigError
from pipeline.models import architectures, weight_names
from pipeline.models.backbones import BACKBONES, Backbone
from pipeline.models.families import AROUND_ZERO
from pipeline.train import custom_check, learning_rate, training
from pipeline.train.step import Batch, TrainStep
from tests.pipeline.rounding import EPS
from workbench.plan import compiled_step

FROZEN = '''
def body():
    images = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3)(images)
    x = layers.BatchNormalization(momentum=0.5)(x)
    return keras.Model(images, layers.GlobalAveragePooling2D()(layers.Activation("relu")(x)))


def made(images, num_classes, momentum, *, frozen: bool = True, head: bool = True):
    """A head on a body that does not train, as in Keras' guide to transfer learning."""
    backbone = body()
    backbone.trainable = not frozen
    return layers.Dense(num_classes, trainable=head)(backbone(images))

'''


@pytest.fixture
def own(custom, tiny):
    """Return the config of that file."""
    average = replace(tiny.optimizer, ema_momentum=0.9)
    return custom(FROZEN, optimizer=average, batchnorm_batch=8, epochs=2, warmup_epochs=0)


def test_a_frozen_part_of_an_own_model_stays_to_the_bit(own, competition, tmp_path):
    """Its BatchNormalization, too, and the average of the weights; also in a run that resumes."""
    architectures.seed(own.seed)
    first = artifact.weights_of(architectures.build(own))

    for steps in (4, None):
        training.train(own, competition, tmp_path / "out", max_steps=steps, show=str)

    found = artifact.load(tmp_path / "out" / "artifact").folds[0]
    assert {name for name in first if not np.array_equal(first[name], found[name])} == {
        name for name in first if weight_names.name(name).startswith("dense/")
    }


def network(*, input_tensor, **words):
    """A network of the form of those in keras.applications; one of theirs takes 20 s to trace."""
    x = input_tensor
    for number in range(4):
        x = layers.Conv2D(16, 3, padding="same", name=f"conv{number}")(x)
        x = layers.BatchNormalization(name=f"norm{number}")(x)
    x = layers.LayerNormalization(epsilon=1e-5)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(keras.utils.get_source_inputs(input_tensor), x)


@pytest.fixture
def pretrained(monkeypatch):
    """Return a config of that network, whose backbone is frozen."""
    monkeypatch.setattr(keras.applications, "Network", network, raising=False)
    monkeypatch.setitem(BACKBONES, "network", Backbone("Network", AROUND_ZERO))
    sgd = Optimizer(name="sgd", base_rate=0.1, momentum=0.0, base_batch=8, clip_norm=1e-3)
    data, batches = Data(height=32, width=32, channels=3), {"batch": 8, "batchnorm_batch": 8}
    options = {"backbone_rate": 0.0}
    config = replace(configs.load("digits_mobilenet"), data=data, warmup_epochs=0, **batches)
    return replace(config, model="network", optimizer=sgd, model_options=options)


def test_the_step_of_a_frozen_backbone_computes_no_gradient_for_it(pretrained):
    """A forward pass is a third of a step."""
    whole = replace(pretrained, model_options={})
    steps = (
        compiled_step.lowered(each, jax.devices()[:1], "float32") for each in (pretrained, whole)
    )

    frozen, trained = (step.cost_analysis()["flops"] for step in steps)

    assert frozen < 0.45 * trained


def test_a_frozen_backbone_has_no_optimizer_state_and_clips_nothing(pretrained):
    """Else the head would go less far than the clipped norm, since the backbone had a share."""
    architectures.seed(0)
    applied = learning_rate.apply(pretrained, 800)
    step = TrainStep(pretrained, applied, architectures.build(pretrained), None)
    state = step.layout.initial()
    kept = [name for name in step.layout.names if name.startswith(("params/", "opt_state/"))]
    assert [name.split("/", 1)[1].split()[1] for name in kept] == [
        "logits/kernel", "logits/bias", "iteration"
    ]  # fmt: skip
    state = jax.device_put(state, jax.devices()[0])
    before = step.layout.to_arrays(state)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (1, 8, 32, 32, 3), np.uint8)
    labels = np.arange(8, dtype=np.int32)[None]
    batch = Batch(images, labels, step.augmentation.draws(0)[None])
    state, _ = step.train(state, (), batch, 1)
    after = step.layout.to_arrays(state)

    moved = [after[name] - before[name] for name in before if name.startswith("params/")]
    norm = np.sqrt(sum(np.square(one).sum() for one in moved))
    # A weight near 1 loses up to half an EPS of what is added to it.
    lost = EPS * np.sqrt(sum(one.size for one in moved))
    assert norm == pytest.approx(0.1 * 1e-3, abs=lost)
    real = [
        name for name in before if name.startswith("buffers/") and before[name].dtype.kind == "f"
    ]
    assert real and all(np.array_equal(before[name], after[name]) for name in real)


def test_an_own_model_that_freezes_all_is_refused(own):
    config = replace(own, model_options={"frozen": True, "head": False})
    with pytest.raises(ConfigError, match="has no weight that trains"):
        custom_check.by_jax(config, str)

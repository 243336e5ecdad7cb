"""What is frozen is neither computed for, nor kept track of, nor changed by a bit."""

from dataclasses import replace

import jax
import keras
import numpy as np
import pytest
from keras import layers

from pipeline import artifact
from pipeline.config import Data, Optimizer
from pipeline.errors import ConfigError
from pipeline.models import architectures, weight_names
from pipeline.models.backbones import BACKBONES, Backbone
from pipeline.models.families import AROUND_ZERO
from pipeline.train import checkpoint, custom_check, learning_rate, training
from pipeline.train.phases import Phase
from pipeline.train.session import Session
from pipeline.train.step import TrainStep
from tests.pipeline.rounding import EPS
from tests.pipeline.train.test_train_step import drawn, given, made
from tests.shipped import shipped
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


def test_a_frozen_part_of_a_custom_model_keeps_its_bits(own, competition, tmp_path):
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
    """A network like those of keras.applications, which take 20 s to trace."""
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
    config = replace(shipped("digits_mobilenet"), data=data, warmup_epochs=0, **batches)
    return replace(config, model="network", optimizer=sgd, model_options=options)


def test_the_step_of_a_frozen_backbone_computes_no_gradient_for_it(pretrained):
    """A forward pass is a third of a step, and all that a linear model needs."""
    whole = replace(pretrained, model_options={})
    linear = replace(whole, fit="linear", frozen_epochs=1)
    frozen, once, trained = (
        compiled_step.lowered(each, jax.devices()[:1], "float32").cost_analysis()["flops"]
        for each in (pretrained, linear, whole)
    )

    assert frozen < 0.45 * trained and once < 0.45 * trained


def test_a_frozen_backbone_has_no_optimizer_state_and_clips_nothing(pretrained):
    """Otherwise the backbone would have a share of the clipped norm."""
    step, state = made(pretrained)
    kept = [name for name in step.layout.names if name.startswith(("params/", "opt_state/"))]
    assert [name.split("/", 1)[1].split()[1] for name in kept] == [
        "logits/kernel", "logits/bias", "iteration"
    ]  # fmt: skip
    before = step.layout.to_arrays(state)
    images = np.random.default_rng(0).integers(0, 256, (1, 8, 32, 32, 3), np.uint8)
    labels = np.arange(8, dtype=np.int32)[None]
    state, _ = step.train(state, (), given(step, (images, labels)), 1)
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


def test_a_custom_model_that_freezes_all_its_weights_is_refused(own):
    config = replace(own, model_options={"frozen": True, "head": False})
    with pytest.raises(ConfigError, match="has no trainable weights"):
        custom_check.by_jax(config, str)


@pytest.fixture
def late(own):
    """A config whose head trains alone in the first of three epochs."""
    adam = replace(own.optimizer, name="adamw", base_rate=1e-2, weight_decay=0.1, ema_momentum=None)
    fields = {"epochs": 3, "frozen_epochs": 1, "warmup_epochs": 0, "optimizer": adam}
    return replace(own, model_options={"frozen": False}, **fields)


def test_a_run_that_unfreezes_resumes_there_to_the_bit(late, competition, tmp_path):
    """Before, at and after the end of the frozen epoch."""
    lines = []
    whole = training.train(late, competition, tmp_path / "whole", show=lines.append)
    number = whole.manifest["applied"]["frozen_steps"]
    for stop in (number - 1, number, number + 1):
        training.train(late, competition, tmp_path / "out", max_steps=stop, show=str)
    kept = checkpoint.latest(tmp_path / "out" / "checkpoints").arrays
    training.train(late, competition, tmp_path / "out", show=str)

    wanted, found = (
        artifact.load(tmp_path / name / "artifact").weights for name in ("whole", "out")
    )
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert [line for line in lines if "frozen_epochs" in line] == [
        "From step 1 on, only new layers train (frozen_epochs)",
        f"From step {number + 1} on, all weights train (frozen_epochs)",
    ]
    assert kept["step"] == number + 1


def test_a_session_keeps_time_for_the_program_of_all_weights(late, competition, tmp_path):
    """It compiles within a session, which may be nearly over."""
    kept = {}

    class Watched(Session):
        def over(self, reserve):
            kept[loop.step] = reserve - loop.seconds["compile"]
            return super().over(reserve)

    run = training.Training(late, competition, tmp_path / "out", str)
    run.prepare(None, custom_check.by_jax, fresh=False)
    with run._keras_set_up(), Watched(None, tmp_path) as session:
        loop = run._loop(0)
        loop.run(run._origin(0), session, max_steps=None)

    assert kept[loop.applied.frozen_steps] >= 0 > kept[1]


def test_weights_that_are_frozen_at_first_keep_their_bits_until_then(late, competition, tmp_path):
    """Neither decay nor momentum moves them; only BatchNormalization's statistics change."""
    architectures.seed(late.seed)
    first = artifact.weights_of(architectures.build(late))
    number = learning_rate.apply(late, 88).frozen_steps

    training.train(late, competition, tmp_path / "out", max_steps=number, show=str)

    kept = checkpoint.latest(tmp_path / "out" / "checkpoints").arrays
    weights = {name: kept[f"params/{name}"] for name in first if f"params/{name}" in kept}
    changed = {name for name in weights if not np.array_equal(weights[name], first[name])}
    assert {weight_names.name(name) for name in changed} == {"dense/kernel", "dense/bias"}
    assert len(weights) == 6 and kept["step"] == number
    assert kept["buffers/0 moving_mean"].all()  # it begins with 0
    inside = [name for name in kept if name.startswith("opt_state/") and "conv2d" in name]
    assert inside and not any(kept[name].any() for name in inside)


def test_a_frozen_epoch_computes_no_gradient_for_the_network(pretrained):
    step, state = made(replace(pretrained, model_options={}, epochs=2, frozen_epochs=1))
    rows, costs = (np.zeros((1, 8, 32, 32, 3), np.uint8), np.zeros((1, 8), np.int32)), []
    for frozen in (True, False):
        step.phase = Phase(frozen, 0)
        costs.append(step.lowered(state, (), given(step, rows)).cost_analysis()["flops"])

    assert costs[0] < 0.45 * costs[1]


def test_adam_takes_no_larger_steps_where_it_begins_late(late):
    """Its first step is the learning rate, whatever the gradient; its moments have seen one step,
    and it counts forty.
    """
    adam = replace(late.optimizer, name="adam", weight_decay=0.0)
    step, state = made(replace(late, optimizer=adam, epochs=50, frozen_epochs=2))
    for number in range(41):
        step.phase = Phase(number < 40, 0)
        before = step.layout.to_arrays(state)
        state, report = step.train(state, (), given(step, drawn(16)), 1)
    after = step.layout.to_arrays(state)

    name = next(name for name in after if name.startswith("params/") and "conv2d/kernel" in name)
    moved = np.abs(after[name] - before[name]) / float(report.learning_rate)
    assert moved.max() < 1.001 and np.median(moved) > 0.99


@pytest.mark.parametrize(
    ("options", "said"), [({"frozen": True}, "would freeze none"), ({}, "fewer than epochs")]
)
def test_freezing_nothing_or_too_long_is_refused(late, options, said):
    with pytest.raises(ConfigError, match=said):
        config = replace(late, model_options=options, frozen_epochs=1 if options else 3)
        TrainStep(config, learning_rate.apply(config, 88), architectures.build(config), None)


SAM = """
import jax

def sam(step, state, batch, held):
    grads, _ = step.gradients(state, batch, held)
    moved = [value + 0.01 * grad for value, grad in zip(state.params, grads)]
    grads, sums = step.gradients(state, batch, held, params=moved)
    return step.update(state, grads, sums)
"""


def test_a_custom_step_freezes_weights_too(late, custom):
    """The check before a run takes its first step with all weights."""
    config = custom(SAM + FROZEN, train_step="sam", model_options={"frozen": False})
    fields = {"optimizer": late.optimizer, "epochs": 3, "frozen_epochs": 1, "warmup_epochs": 0}
    lines = []

    custom_check.check(replace(config, batchnorm_batch=8, **fields), lines.append)

    assert any(line.startswith("train_step='sam'") for line in lines)

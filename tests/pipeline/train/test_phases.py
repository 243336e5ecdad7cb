"""The step number decides how large images are, and nothing else of a run depends on it."""

import gc
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from PIL import Image

from pipeline.__main__ import main
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Data
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.errors import ConfigError
from pipeline.models import architectures
from pipeline.train import checkpoint, custom_check, learning_rate, phases, training
from pipeline.train.phases import Phase
from pipeline.train.step import TrainStep
from tests.pipeline.handmade import with_data
from tests.pipeline.models.test_published import SIZES, preset
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged
from tests.pipeline.train.test_train_step import begun, given

SMALL, WHOLE = Phase(frozen=False, size=0), Phase(frozen=False, size=1)
NET = """
def made(images, num_classes, momentum):
    x = layers.Conv2D(8, 3, padding="same", activation="gelu")(images)
    x = layers.BatchNormalization(momentum=momentum)(x)
    x = layers.Conv2D(16, 3, padding="same", activation="gelu")(layers.Dropout(0.2)(x))
    return layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(x))
"""


@pytest.fixture
def growing(custom, tiny):
    """A config whose images of 16 x 16 have 8 x 8 pixels in the first half of the epochs."""
    data = replace(tiny.data, height=16, width=16, flip=True, crop_padding=2)
    fields = {"data": data, "progressive": (0.5,), "epochs": 4, "warmup_epochs": 0}
    return custom(NET, batchnorm_batch=8, **fields)


def drawn():
    """Return images and labels of a batch, uint8 (1, 16, 16, 16, 1) and int32 (1, 16)."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (1, 16, 16, 16, 1), np.uint8)
    return images, random.integers(0, 4, (1, 16)).astype(np.int32)


def after(config, phase, batch, count=1, seed=None):
    """Return the arrays after two steps in a phase; `seed`: from nudged weights."""
    step, state, start = begun(config, count)
    step.phase = phase
    if seed is not None:
        weights = {name: start[name] for name in start if name.startswith("params/")}
        start = start | nudged(weights, seed)
    state = step.layout.from_arrays(start, state)
    for _ in range(2):
        state, _ = step.train(state, (), given(step, batch), 1)
    return step.layout.to_arrays(state)


def rounding(config, phase, batch):
    """Return the arrays, and their distance from those of another order of additions."""
    wanted = after(config, phase, batch)
    nudges = (after(config, phase, batch, seed=seed) for seed in SEEDS)
    return wanted, TIMES * max(apart(each, wanted) for each in nudges)


def test_a_step_of_smaller_images_augments_them_and_then_resizes_them(growing):
    """It equals the step of a config of that size, on such images."""
    (images,), labels = drawn()
    augmentation = Augmentation(growing.data, growing.seed, growing.batch)
    changed, _ = augmentation.applied(images, augmentation.draws(0))
    smaller = np.asarray(phases.resized(changed, (None, 8, 8, 1)))
    plain = {"height": 8, "width": 8, "flip": False, "crop_padding": 0}
    reference = with_data(replace(growing, progressive=()), **plain)
    wanted, allowed = rounding(reference, SMALL, (smaller[None], labels))

    assert apart(after(growing, SMALL, drawn()), wanted) <= allowed < 1e-3
    assert apart(after(growing, WHOLE, drawn()), wanted) > 10 * allowed


@pytest.mark.parametrize("size", [(8, 8), (24, 12)])
def test_images_are_resized_as_pillow_does_it(size):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, 32, 32, 3), np.uint8)

    found = np.asarray(phases.resized(images, (None, *size, 3))).astype(int)

    wanted = [
        Image.fromarray(each).resize(size[::-1], Image.Resampling.BILINEAR) for each in images
    ]
    apart = found - np.stack(list(map(np.asarray, wanted)))
    assert np.abs(apart).max() <= 1 and abs(apart.mean()) < 0.2


@pytest.mark.parametrize(("count", "micro"), [(2, None), (1, 8)])
def test_replicas_and_micro_batches_of_smaller_images_add_up_to_the_batch(growing, count, micro):
    wanted, allowed = rounding(growing, SMALL, drawn())

    found = after(replace(growing, micro_batch=micro), SMALL, drawn(), count)

    assert apart(found, wanted) <= allowed < 1e-3


def test_the_models_of_smaller_images_have_no_numbers(growing):
    model = architectures.build(growing)
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())

    smaller, same = phases.models(growing, model)
    model.predict_on_batch(drawn()[0][0])  # after a call Keras fills arrays that wait

    assert same is model and smaller.inputs[0].shape == (None, 8, 8, 1)
    assert sum(array.nbytes for array in jax.live_arrays()) == before


def examples():
    """Return 96 images of 16 x 16 whose brightness determines the label."""
    random, labels = np.random.default_rng(0), np.arange(96, dtype=np.int32) % 4
    pixels = random.integers(0, 60, (96, 16, 16, 1)) + 60 * labels[:, None, None, None]
    target = Target("classes", tuple("abcd"))
    return Examples(tuple(map(str, range(96))), pixels.astype(np.uint8), labels, target)


def trained(config, folder, stops=(), show=str):
    """Train with a resume after each of some steps, and return the result."""
    for stop in (*stops, None):
        given = {"examples": examples(), "max_steps": stop, "show": show}
        run = training.train(config, folder, folder, **given)
    return run


def test_a_run_resumes_in_each_phase_to_the_bit(growing, tmp_path):
    """Before, at and after each change of phase, with a head that trains alone at first."""
    config, lines = replace(growing, frozen_epochs=1), []
    applied = trained(config, tmp_path / "whole", show=lines.append).manifest["applied"]
    frozen, grown = applied["frozen_steps"], *applied["growing_steps"]
    trained(config, tmp_path / "out", [end + by for end in (frozen, grown) for by in (-1, 0, 1)])

    wanted, found = (
        checkpoint.latest(tmp_path / name / "checkpoints").arrays for name in ("whole", "out")
    )
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert [line for line in lines if "progressive" in line] == [
        "From step 1 on, only new layers train (frozen_epochs) and images have 8x8 pixels"
        " (progressive)",
        f"From step {frozen + 1} on, all weights train (frozen_epochs) and images have 8x8 pixels"
        " (progressive)",
        f"From step {grown + 1} on, all weights train (frozen_epochs) and images have 16x16 pixels"
        " (progressive)",
    ]


def test_a_call_of_several_steps_is_of_one_size(growing, custom, tmp_path):
    code = "def made(images, *_):\n    x = layers.GlobalMaxPooling2D()(images)\n"
    fields = {"batch": 8, "batchnorm_batch": 8, "progressive": (0.5,), "epochs": 5}
    config, lines = custom(f"{code}    return layers.Dense(4)(x)", data=growing.data, **fields), []
    model = architectures.build(config)
    assert TrainStep(config, learning_rate.apply(config, 88), model, None).steps_per_call == 2

    trained(config, tmp_path, show=lines.append)

    assert [line for line in lines if "progressive" in line] == [
        "From step 1 on, images have 8x8 pixels (progressive)",
        "From step 23 on, images have 16x16 pixels (progressive)",
    ]


POSITIONS = """
class Positions(layers.Layer):
    def build(self, shape):
        self.place = self.add_weight(shape=shape[1:], name="place")

    def call(self, x):
        return x + self.place


def made(images, *_):
    x = Positions(name="positions")(images)
    return layers.Dense(4)(layers.GlobalAveragePooling2D()(x))
"""
MASK = """
def made(images, *_):
    return layers.Conv2D(1, 1)(images)[..., 0]

def other(*given):
    return given
"""
FIXED = """
def made(images, *_):
    assert images.shape[1] == 16, "16 pixels alone"
    return layers.Dense(4)(layers.GlobalAveragePooling2D()(images))
"""


@pytest.mark.parametrize(
    ("code", "share", "said"),
    [
        (
            POSITIONS,
            0.5,
            r"positions/place \(8, 8, 1\) for images of 8x8 pixels and .* \(16, 16, 1\)",
        ),
        (MASK, 0.5, r"output \(None, 8, 8\) for"),
        (FIXED, 0.5, "with images of 8x8 pixels, .*16 pixels alone"),
        (NET, 0.9, "the sizes are 16x16 pixels, 16x16 pixels; expected increasing sizes"),
    ],
)
def test_a_model_that_cannot_take_smaller_images_is_refused(growing, custom, code, share, said):
    """Before anything is read."""
    fields = {"data": growing.data, "progressive": (share,)}
    if code == MASK:
        image = "uint8", 16, 16, 1
        fields["data"] = Data(
            kind="custom", custom_inputs={"image": image}, custom_labels=image[:3]
        )
        names = ("loss", "metric", "write_submission", "read_training", "read_test")
        fields |= {"target": "custom", "num_classes": 0, **dict.fromkeys(names, "other")}
    with pytest.raises(ConfigError, match=f"(?s)progressive=.*{said}.*remove progressive"):
        custom_check.check_optimizer_of(custom(code, **fields))


OWN = """
def own(step, state, batch, held):
    def loss_fn(params, state, examples):
        computed = step.compute(params, state.buffers, examples)
        CALL
        return step.loss_of(computed, examples, state)

    return step.update(state, *step.gradients(state, batch, held, loss_fn=loss_fn))

"""
WHOLE_ALONE = "examples.inputs + ops.ones((16, 16, 1))"
SIMPLE = """
def made(images, *_):
    return layers.Dense(4)(layers.GlobalAveragePooling2D()(images))
"""


def test_a_custom_step_that_takes_full_images_alone_is_refused(growing, custom):
    """Before anything is read. A step that uses `step.compute` is accepted."""
    fields = {"data": growing.data, "progressive": (0.5,), "train_step": "own"}
    config = custom(OWN.replace("CALL", WHOLE_ALONE) + SIMPLE, **fields)
    with pytest.raises(ConfigError, match=r"'own'.* raised .*line \d+\)"):
        custom_check.by_jax(config, str)

    custom_check.by_jax(custom(OWN.replace("CALL", "") + SIMPLE, **fields), str)


@pytest.fixture
def published(tiny, tmp_path):
    """Return a function that makes a config of a published network, for images of 32 x 32."""

    def made(kind, patch, share):
        source = preset(tmp_path, kind, {**SIZES[kind], "patch_size": patch})
        data = replace(tiny.data, height=32, width=32, resize="stretch", crop_padding=0)
        fields = {"pretrained": source, "model_options": {}, "progressive": (share,)}
        return replace(tiny, model="published", data=data, **fields)

    return made


@pytest.mark.usefixtures("hub")
def test_sides_are_multiples_of_the_patch_of_a_published_network(published):
    config = published("DINOV3Backbone", 4, 0.4)

    smaller, _ = phases.models(config, architectures.build(config))

    assert smaller.inputs[0].shape == (None, 12, 12, 1)


@pytest.mark.usefixtures("hub")
def test_a_published_network_that_has_learned_positions_is_refused(published):
    with pytest.raises(ConfigError, match=r"(?s)position_embedding.*remove progressive"):
        custom_check.check_optimizer_of(published("ViTBackbone", 8, 0.5))


def test_describe_prints_the_sizes_by_epoch(tiny, written_config, capsys):
    data = replace(tiny.data, height=224, width=160, resize="crop")
    grown = {"model": "strided_resnet", "model_options": {"width": 4}, "progressive": (0.3, 0.75)}
    path = written_config(replace(tiny, data=data, epochs=10, **grown))

    assert main(["describe", "--config", str(path), "--images", "100", "--json"]) == 0

    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert [tuple(each.values()) for each in sizes] == [
        (1, 3, 64, 48), (4, 6, 160, 128), (7, 10, 224, 160)
    ]  # fmt: skip

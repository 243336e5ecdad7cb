"""A backbone starts from published weights, prepares pixels like its application, and has the same
names everywhere.
"""

import math
import shutil
from dataclasses import replace

import h5py
import keras
import numpy as np
import pytest
from keras.src.legacy.saving import legacy_h5_format

from pipeline import artifact
from pipeline.config import Data
from pipeline.errors import ConfigError
from pipeline.infer import inference
from pipeline.models import architectures, backbones, weight_names
from pipeline.models.backbones import Backbone
from pipeline.models.families import AROUND_ZERO
from pipeline.train import training
from tests.pipeline import rounding
from tests.pipeline.train.test_train_step import after, apart, begun
from tests.pipeline.train.test_train_step import rounding as by_rounding
from tests.small_competition import write_competition

SUMMED = 16 * 4 * 4  # numbers in the longest sum of a gradient: images of a batch, and pixels
# One of each family, the smallest.
LEAST = "mobilenetv3_small"
FAMILIES = (LEAST, "efficientnetv2b0", "convnext_tiny", "resnet50v2")


class Reached(Exception):
    """Carries the input of an application's first layer with weights."""


def reached(self, values):
    raise Reached(values)


def prepared(application, monkeypatch):
    """Return the part of an application before its first weights."""
    start = keras.Input((32, 32, 3))
    with monkeypatch.context() as patch:
        patch.setattr(keras.layers.Conv2D, "__call__", reached)
        patch.setattr(keras.Sequential, "__call__", reached)
        with pytest.raises(Reached) as found:
            application(include_top=False, weights=None, input_tensor=start)
    return keras.Model(start, found.value.args[0])


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_pixels_are_prepared_as_the_application_does(name, monkeypatch):
    backbone = backbones.BACKBONES[name]
    pixels = (np.arange(32 * 32 * 3).reshape(1, 32, 32, 3) % 256).astype(np.float32)
    ours = pixels * np.float32(backbone.pixels.scale) + np.float32(backbone.pixels.offset)

    wanted = keras.applications.resnet_v2.preprocess_input(pixels.copy())
    if backbone.prepares:
        application = getattr(keras.applications, backbone.application)
        wanted = np.asarray(prepared(application, monkeypatch)(pixels))

    # Eight roundings of numbers below 4.4, such as 1 / 0.229. A level is at least 0.007.
    assert np.abs(ours - wanted).max() <= 8 * 4.4 * rounding.EPS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != LEAST)) for name in FAMILIES]
)
def test_a_backbone_is_its_whole_application_and_the_same_when_built_again(name, tiny):
    """Checkpoints and artifacts store weights by name."""
    backbone, data = backbones.BACKBONES[name], Data(height=32, width=32, channels=3)
    config = replace(tiny, data=data, model=name, pretrained="none", model_options={})

    def named():
        built = architectures.build(config)
        keys = weight_names.keys(built)
        pixels = built.get_layer("prepared")
        assert np.array_equal(pixels.scale, np.float32(backbone.pixels.scale))
        assert np.array_equal(pixels.offset, np.float32(backbone.pixels.offset))
        return [(weight_names.name(keys[id(one)]), tuple(one.shape)) for one in built.weights]

    with architectures.without_numbers():  # names and shapes need no numbers
        found, again = named(), named()
        application = getattr(keras.applications, backbone.application)
        theirs = application(include_top=False, weights=None, input_shape=(32, 32, 3))

    assert found == again and len(dict(found)) == len(found)
    ours = [shape for path, shape in found if not path.startswith("logits/")]
    assert sum(map(math.prod, ours)) == sum(math.prod(one.shape) for one in theirs.weights)


class Scale(keras.layers.Layer):
    """A layer with an unnamed weight, like ConvNeXt's."""

    def build(self, shape):
        """Add the weight."""
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, values):
        """Return the values times the weight."""
        return values * self.gamma


def network(
    include_top, weights, input_shape, input_tensor=None, include_preprocessing=True, pooling=None
):
    """A small network with the interface of keras.applications: with BatchNorm, dropout and unnamed
    last layers.
    """
    layers = keras.layers
    x = start = layers.Input(input_shape) if input_tensor is None else input_tensor
    if include_preprocessing:
        x = layers.Rescaling(1 / 127.5, -1.0)(x)
    x = layers.Conv2D(6, 8, strides=8, name="stem_conv")(x)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.Activation("relu")(x)
    x = layers.Dropout(0.2, noise_shape=(None, 1, 1, 1), name="block_drop")(x)
    x = layers.Conv2D(6, 1, name="block_conv")(x)
    x = Scale(name="block_scale")(x)
    x = layers.GlobalAveragePooling2D()(x) if pooling else x
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    model = keras.Model(keras.utils.get_source_inputs(start), x)
    if weights == "imagenet":
        weights = keras.utils.get_file("no_such.h5", "http://127.0.0.1:9/no_such.h5")
    if weights:
        model.load_weights(weights)
    return model


@pytest.fixture
def small(tiny, monkeypatch):
    """A config for images of 32 x 32 with that network and random weights."""
    monkeypatch.setattr(keras.applications, "SmallNetwork", network, raising=False)
    monkeypatch.setitem(backbones.BACKBONES, "small_network", Backbone("SmallNetwork", AROUND_ZERO))
    yield replace(
        tiny,
        model="small_network",
        pretrained="none",
        model_options={},
        data=replace(tiny.data, height=32, width=32, resize="stretch", crop_padding=0),
        optimizer=replace(tiny.optimizer, name="sgd", base_rate=0.1, ema_momentum=0.9),
    )
    backbones._read.cache_clear()


def file(path, seed=1):
    """Write the network's weights as keras.applications publishes them or, by the suffix, as
    save_weights does; return them.
    """
    model = network(False, None, (64, 64, 3))
    random = np.random.default_rng(seed)
    model.set_weights([random.uniform(0.5, 1.5, weight.shape) for weight in model.weights])
    if path.name.endswith(".weights.h5"):
        model.save_weights(path)
    else:
        with h5py.File(path, "w") as opened:
            legacy_h5_format.save_weights_to_hdf5_group(opened, model)
    return model.get_weights()


def starting(config, path):
    return replace(config, pretrained=str(path))


def test_a_run_starts_from_mounted_weights(small, tmp_path, monkeypatch):
    """Either kind of file, by path or by dataset. Both kinds have the same sha256."""
    monkeypatch.setenv("LOCALKAGGLE_ROOT", str(tmp_path))
    place = tmp_path / "input" / "datasets" / "keras" / "weights"
    place.mkdir(parents=True)
    paths = [tmp_path / "notop.h5", tmp_path / "saved.weights.h5", place / "notop.h5"]
    wanted = file(paths[0])
    file(paths[1])
    shutil.copy(paths[0], paths[2])
    built, origins = architectures.build(small), []
    found = [weight for weight in built.weights if not weight.path.startswith("logits/")]
    for source in (*map(str, paths[:2]), "keras/weights/notop.h5"):
        built.set_weights([np.zeros(weight.shape) for weight in built.weights])

        origins.append(backbones.load_published(built, starting(small, source)))

        assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, wanted, strict=True))
        assert origins[-1]["source"] == source
    assert len({origin["arrays_sha256"] for origin in origins}) == 1


def test_without_internet_a_run_is_refused_before_it_reads_anything(small, tmp_path):
    """Building needs no internet, because inference builds too."""
    config = starting(small, "imagenet")
    architectures.build(config)

    said = r"(?s)URL fetch failure.*To enable it for the train notebook.*upload the file"
    with pytest.raises(ConfigError, match=said):
        training.train(config, tmp_path / "nothing", tmp_path / "out", show=lambda line: None)


@pytest.mark.parametrize("content", [None, b""])
def test_an_invalid_file_is_refused_with_what_was_expected(small, tmp_path, content):
    if content is not None:
        (tmp_path / "weights.h5").write_bytes(content)

    with pytest.raises(ConfigError, match="weights file for SmallNetwork without its top"):
        backbones.published(starting(small, tmp_path / "weights.h5"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batchnorm": "off"}, "expected 'auto', 'frozen' or 'groups'"),
        (
            {"batchnorm": "groups", "backbone_rate": 0.0},
            "freezes what batchnorm='groups' trains",
        ),
        ({"backbone_rate": 1.5}, "backbone_rate=1.5; expected a number from 0 to 1"),
        ({"backbone_rate": "0.1"}, "backbone_rate='0.1'; expected a number from 0 to 1"),
        ({"depth": 3}, r"unexpected .*'depth'(.|\n)*model accepts .*dropout"),
        ({"model": LEAST, "height": 31}, r"at least 32x32(.|\n)*data.height and data.width"),
        ({"pretrained": "imagenet"}, r"Config\(…, pretrained='imagenet'\)"),
    ],
)
def test_invalid_options_are_refused(small, options, said):
    data = replace(small.data, height=options.pop("height", 32))
    model = options.pop("model", small.model)
    with pytest.raises(ConfigError, match=said):
        architectures.build(replace(small, model=model, model_options=options, data=data))


DRAW = np.random.default_rng(0)
PICTURES = DRAW.integers(0, 256, (1, 16, 32, 32, 1), np.uint8)
BATCH = PICTURES, DRAW.integers(0, 4, (1, 16)).astype(np.int32)


def moved(config):
    """Return the changes that a step makes to arrays, by the end of their names."""
    before, found = begun(config, 1)[2], after(config, BATCH)
    return {
        name.split(" ")[-1]: found[name] - before[name]
        for name in before
        if not name.startswith("ema/") and not np.array_equal(before[name], found[name])
    }


def grouped(small, **options):
    """Return a config that trains published BatchNorm."""
    options = {"batchnorm": "groups", **options}
    return replace(small, warmup_epochs=0, pretrained="weights.h5", model_options=options)


def test_frozen_statistics_stay_bit_for_bit_and_trained_ones_move(small):
    """Scales and shifts too; frozen weights have no average. Published ones freeze by default."""
    published = grouped(small, batchnorm="auto")
    statistics = {"moving_mean", "moving_variance", "stem_bn/gamma", "stem_bn/beta"}

    assert not statistics & moved(published).keys()
    assert statistics <= moved(grouped(small)).keys()
    state = begun(published, 1)[2]
    assert not any("stem_bn" in name for name in state if not name.startswith("buffers/"))


def test_the_backbone_moves_by_its_share_of_the_head_s_rate(small):
    """In one step of SGD. For a share of 0 see tests/pipeline/ordinary/test_freezing.py."""
    bound, trains = SUMMED * rounding.EPS, ("kernel", "bias", "gamma", "beta")
    whole, part = moved(grouped(small)), moved(grouped(small, backbone_rate=0.25))

    for name in (name for name in whole if name.endswith(trains)):
        wanted = whole[name] * (1 if name.startswith("logits/") else 0.25)
        assert np.allclose(part[name], wanted, rtol=bound, atol=bound)
    assert np.abs(whole["stem_conv/kernel"]).max() > 4 * bound


@pytest.mark.parametrize(
    ("batchnorm", "change", "replicas"),
    [
        ("groups", {}, 4),
        ("groups", {"micro_batch": 8}, 1),
        ("frozen", {}, 2),
    ],
)
@pytest.mark.slow
def test_a_backbone_trains_the_same_on_any_machine(small, batchnorm, change, replicas):
    """A group of eight images spans two of four replicas."""
    config = grouped(small, batchnorm=batchnorm)

    parts = after(replace(config, **change), BATCH, replicas)

    assert apart(parts, after(config, BATCH)) < by_rounding(config, BATCH)


def test_a_pretrained_run_infers_without_the_file(small, tmp_path):
    """The manifest has the weights at the start, the artifact the trained ones."""
    folder, source = write_competition(tmp_path / "competition", train=40), tmp_path / "weights.h5"
    file(source)
    config, quiet = starting(replace(small, epochs=2), source), {"show": lambda line: None}

    run = training.train(config, folder, tmp_path / "out", **quiet)
    source.unlink()
    backbones._read.cache_clear()

    assert run.manifest["pretrained"][0]["source"] == str(source)
    loaded = artifact.load(tmp_path / "out" / "artifact")
    inference.infer(loaded, folder, tmp_path / "inferred", **quiet)
    assert (tmp_path / "inferred" / "submission.csv").is_file()

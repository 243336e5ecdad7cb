"""A backbone begins with what was published, prepares its pixels as its application does, and has
the same names everywhere.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import jax
import keras
import numpy as np
import pytest
from keras.src.legacy.saving import legacy_h5_format

from pipeline import artifact
from pipeline.errors import ConfigError
from pipeline.inference import inference
from pipeline.models import architectures, backbones
from pipeline.models.backbones import Backbone
from pipeline.runtime import replicas as replication
from pipeline.session import checkpoint
from pipeline.training import learning_rate, training
from pipeline.training.train_step import Step
from tests.pipeline import rounding
from tests.pipeline.conftest import write_competition

ROOT = Path(__file__).resolve().parents[3]
SUMMED = 16 * 4 * 4  # numbers in the longest sum of a gradient: images of a batch, and pixels
# Of the names and shapes of all weights, the first digits of a sha256: made with Keras 3.15.1 and
# 3.13.2 alike.
NAMES = {
    "efficientnetv2b0": "4ce238ab1d4ef48d",
    "efficientnetv2b1": "c0873e1104f9f944",
    "efficientnetv2b2": "485a4e2d43b04e1e",
    "efficientnetv2b3": "1b8b875bf0fcb796",
    "efficientnetv2s": "df162015936222fb",
    "efficientnetv2m": "54be8affe318049d",
    "convnext_tiny": "6d15783e988511a7",
    "convnext_small": "f20769f890fb710f",
    "convnext_base": "2836938b7fc23ed1",
    "mobilenetv3_small": "0c9cb2c9a2e109d2",
    "mobilenetv3_large": "37d051e579b6a7fb",
    "resnet50v2": "2b875c43bdc97927",
}
# One of each family, the smallest.
FAMILIES = ("efficientnetv2b0", "convnext_tiny", "mobilenetv3_small", "resnet50v2")
SURVEY = """
import hashlib, json, sys
from dataclasses import replace
from unittest import mock
import keras, numpy as np
from pipeline import config
from pipeline.config import Data
from pipeline.models import architectures, backbones, weight_names
# Takes the input of an application's first layer with weights out of it.
class Reached(Exception): pass

def reached(self, values):
    raise Reached(values)

def prepared(application):
    start = keras.Input((32, 32, 3))
    with mock.patch.object(keras.layers.Conv2D, "__call__", reached):
        with mock.patch.object(keras.Sequential, "__call__", reached):
            try:
                application(include_top=False, weights=None, input_tensor=start)
            except Reached as found:
                return keras.Model(start, found.args[0])

def named(built):
    keys = weight_names.keys(built)
    return [(weight_names.name(keys[id(one)]), tuple(one.shape)) for one in built.weights]

digits = config.load("digits")
pixels = (np.arange(32 * 32 * 3).reshape(1, 32, 32, 3) % 256).astype(np.uint8)
found = {}
for name, backbone in backbones.BACKBONES.items():
    data, options = Data(height=32, width=32, channels=3), {"pretrained": "none"}
    chosen = replace(digits, data=data, model=name, model_options=options)
    application = getattr(keras.applications, backbone.application)
    with keras.StatelessScope(initialize_variables=False):  # names and shapes need no numbers
        built = architectures.build(chosen)
        weights = named(built)
        found[name] = {"names": hashlib.sha256(repr(weights).encode()).hexdigest()[:16]}
        if name in sys.argv[1:]:
            theirs = application(include_top=False, weights=None, input_shape=(32, 32, 3))
            found[name] |= {
                "again": named(architectures.build(chosen)) == weights,
                "theirs": sum(int(np.prod(w.shape)) for w in theirs.weights),
                "ours": sum(int(np.prod(s)) for path, s in weights if path[:7] != "logits/"),
            }
        ours = keras.Model(built.input, built.get_layer("prepared").output)(pixels)
        if backbone.prepares:
            wanted = prepared(application)(pixels.astype("float32"))
        else:
            wanted = keras.applications.resnet_v2.preprocess_input(pixels.astype("float32"))
    found[name] |= {
        "unique": len({path for path, _ in weights}) == len(weights),
        "apart": float(np.abs(np.asarray(ours) - np.asarray(wanted)).max()),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def survey():
    """Return of each backbone what is to be known without its weights, from a process of its own:
    nothing is made of them.
    """
    done = subprocess.run(
        [sys.executable, "-c", SURVEY, *FAMILIES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Scale(keras.layers.Layer):
    """A layer that does not name its weight, as ConvNeXt's does not."""

    def build(self, shape):
        """Make the weight, without a name."""
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, values):
        """Return the values times the weight."""
        return values * self.gamma


def network(include_top, weights, input_shape, input_tensor=None, include_preprocessing=True):
    """A network of the form of those in keras.applications, small enough for a test: with
    BatchNorm, dropout, and an unnamed end.
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
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    made = keras.Model(
        keras.utils.get_source_inputs(start) if input_tensor is not None else start, x
    )
    if weights == "imagenet":
        weights = keras.utils.get_file(
            "no_such_network.h5", "http://127.0.0.1:9/no_such_network.h5"
        )
    if weights:
        made.load_weights(weights)
    return made


@pytest.fixture
def small(tiny, monkeypatch):
    """A config for images of 32 x 32 with that network, which begins with random weights."""
    monkeypatch.setattr(keras.applications, "SmallNetwork", network, raising=False)
    monkeypatch.setitem(
        backbones.BACKBONES, "small_network", Backbone("SmallNetwork", (1 / 127.5,), (-1.0,))
    )
    yield replace(
        tiny,
        model="small_network",
        model_options={"pretrained": "none"},
        data=replace(tiny.data, height=32, width=32, resize="stretch", crop_padding=0),
        optimizer=replace(tiny.optimizer, name="sgd", base_rate=0.1, ema_momentum=0.9),
    )
    backbones._read.cache_clear()


def file(path, seed=1):
    """Write the network's weights as keras.applications publishes them, or, by the path's end, as
    save_weights does; return them.
    """
    made = network(False, None, (64, 64, 3))
    random = np.random.default_rng(seed)
    made.set_weights(
        [random.uniform(0.5, 1.5, weight.shape).astype(np.float32) for weight in made.weights]
    )
    if path.name.endswith(".weights.h5"):
        made.save_weights(path)
    else:
        with h5py.File(path, "w") as opened:
            legacy_h5_format.save_weights_to_hdf5_group(opened, made)
    return made.get_weights()


def starting(config, path):
    return replace(config, model_options={**config.model_options, "pretrained": str(path)})


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_names_and_shapes_of_weights_are_those_of_every_keras(survey, name):
    """Checkpoints and artifacts know weights by name."""
    assert survey[name]["names"] == NAMES[name]
    assert survey[name]["unique"]


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_pixels_are_prepared_as_the_application_does(survey, name):
    # Eight roundings of numbers below 4.4, such as 1 / 0.229. A level is 0.007 or more.
    assert survey[name]["apart"] <= 8 * 4.4 * rounding.EPS


@pytest.mark.parametrize("name", FAMILIES)
def test_a_backbone_is_all_of_its_application_and_the_same_when_built_again(survey, name):
    """Not a number less, and the head beside it; a second build has the first one's names."""
    assert survey[name]["ours"] == survey[name]["theirs"]
    assert survey[name]["again"]


@pytest.mark.parametrize("name", ["published_notop.h5", "saved.weights.h5"])
def test_a_run_begins_with_the_mounted_weights(small, tmp_path, name):
    wanted = file(tmp_path / name)
    config = starting(small, tmp_path / name)
    built = architectures.build(config)

    origin = backbones.load_published(built, config)

    found = [weight for weight in built.weights if not weight.path.startswith("logits/")]
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, wanted, strict=True))
    assert origin["source"] == str(tmp_path / name)
    assert len(origin["file_sha256"]) == len(origin["arrays_sha256"]) == 64


def test_weights_are_found_in_a_mounted_dataset(small, tmp_path, monkeypatch):
    """Named as the dataset is, since where Kaggle mounts it has changed before."""
    monkeypatch.setenv("LOCALKAGGLE_ROOT", str(tmp_path))
    place = tmp_path / "input" / "datasets" / "keras" / "weights"
    place.mkdir(parents=True)
    wanted = file(place / "notop.h5")
    config = starting(small, "keras/weights/notop.h5")

    origin = backbones.load_published(built := architectures.build(config), config)

    found = [weight for weight in built.weights if not weight.path.startswith("logits/")]
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, wanted, strict=True))
    assert origin["source"] == "keras/weights/notop.h5"


def test_both_forms_of_the_same_weights_have_one_sha256(small, tmp_path):
    paths = tmp_path / "a.h5", tmp_path / "b.weights.h5"
    for path in paths:
        file(path)

    origins = [
        backbones.load_published(architectures.build(starting(small, path)), starting(small, path))
        for path in paths
    ]

    assert origins[0]["arrays_sha256"] == origins[1]["arrays_sha256"]
    assert origins[0]["file_sha256"] != origins[1]["file_sha256"]


def test_without_the_internet_a_run_says_so_before_it_reads_anything(small, tmp_path):
    """With what to do; and building needs none, since inference builds, too."""
    config = starting(small, "imagenet")
    architectures.build(config)

    with pytest.raises(
        ConfigError,
        match=r"URL fetch failure(.|\n)*Turn it on for the train notebook(.|\n)*mount the file",
    ):
        training.train(config, tmp_path / "nothing", tmp_path / "out", show=lambda line: None)


def linked(path):
    file(path.with_name("elsewhere.h5"))
    with h5py.File(path, "w") as opened:
        opened["stem_conv"] = h5py.ExternalLink("elsewhere.h5", "/stem_conv")


def outside(path):
    with h5py.File(path, "w") as opened:
        opened.create_dataset("a", (4,), "u1", external=[("/etc/hostname", 0, 4)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.write_bytes(b"no HDF5"), "Expected an HDF5 file"),
        (lambda path: path.write_bytes(b""), "Expected an HDF5 file"),
        (linked, "'stem_conv' in it points to another file"),
        (outside, "'a' in it points to another file"),
        (
            lambda path: h5py.File(path, "w").close(),
            r"Expected the weights of SmallNetwork without its top",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_what_was_expected(small, tmp_path, make, said):
    make(tmp_path / "weights.h5")

    with pytest.raises(ConfigError, match=said):
        backbones.published(starting(small, tmp_path / "weights.h5"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batchnorm": "off"}, "expected 'auto', 'frozen' or 'groups'"),
        ({"backbone_rate": 1.5}, "expected 0 to 1"),
        ({"pretrained": ""}, "expected 'imagenet', a file of weights, or 'none'"),
        ({"depth": 3}, "unknown: depth"),
    ],
)
def test_options_that_cannot_work_are_refused(small, options, said):
    with pytest.raises(ConfigError, match=said):
        architectures.build(replace(small, model_options=options))


def test_an_image_too_small_for_a_backbone_is_refused(small):
    with pytest.raises(ConfigError, match="32 x 32 or more"):
        architectures.build(replace(small, data=replace(small.data, height=31)))


def stepped(config, steps=3, replicas=1, nudge=0.0):
    """Return the state's arrays by name before and after some steps on one random batch.

    `nudge`: the share by which each weight is larger or smaller at the start.
    """
    distribution = None
    if replicas > 1:
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:replicas]
        )
    keras.distribution.set_distribution(distribution)
    try:
        architectures.seed(0)
        applied = learning_rate.apply(config, 320)
        built = architectures.build(config, applied.batchnorm_momentum)
        backbones.load_published(built, config)
        built.set_weights(rounding.nudged(built.get_weights(), nudge))
        step = Step(config, applied, built, replication.mesh())
        state = step.initial()
        if distribution is None:
            state.tree = jax.device_put(state.tree, jax.devices()[0])
    finally:
        keras.distribution.set_distribution(None)
    before = state.arrays()
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (1, config.batch, 32, 32, 1), np.uint8)
    labels = random.integers(0, 4, (1, config.batch)).astype(np.int32)
    given = replication.put(step.mesh, images, labels, step.augmentation.draws(0)[None], axis=1)
    for _ in range(steps):
        state.tree, _ = step.train(state.tree, (), given, 1)
    return before, state.arrays()


def moved(before, after, part):
    return {
        name
        for name in before
        if name.startswith(part) and not np.array_equal(before[name], after[name])
    }


def test_frozen_statistics_stay_to_the_bit_and_trained_ones_move(small, tmp_path):
    """Scales and shifts as well; of what is frozen no average is kept."""
    file(tmp_path / "weights.h5")
    begun = starting(replace(small, warmup_epochs=0), tmp_path / "weights.h5")
    groups = replace(begun, model_options={**begun.model_options, "batchnorm": "groups"})

    frozen, trained = stepped(begun), stepped(groups)

    assert not any("stem_bn" in name for name in frozen[1] if not name.startswith("other/"))
    kept = [
        name for name in frozen[0] if name.startswith("other/") and frozen[0][name].shape == (6,)
    ]
    assert len(kept) == 4
    assert not moved(*frozen, "other/") & set(kept)
    assert {name.split(" ")[-1] for name in moved(*trained, "other/")} >= {
        "moving_mean",
        "moving_variance",
    }
    assert any(name.endswith(" stem_bn/gamma") for name in moved(*trained, "trainable/"))


def test_the_backbone_s_rate_is_a_part_of_the_head_s(small):
    """After one step of plain SGD it has gone so much less far. At 0 the head alone trains
    (tests/pipeline/ordinary/test_freezing.py).
    """
    plain = replace(small, warmup_epochs=0, optimizer=replace(small.optimizer, momentum=0.0))
    changes, bound = {}, SUMMED * rounding.EPS
    for rate in (1.0, 0.25):
        before, after = stepped(
            replace(plain, model_options={"pretrained": "none", "backbone_rate": rate}), steps=1
        )
        changes[rate] = {
            name: after[name] - before[name] for name in before if name.startswith("trainable/")
        }

    for name, change in changes[1.0].items():
        head = " logits/" in name
        wanted = change * (1 if head else 0.25)
        assert np.allclose(changes[0.25][name], wanted, rtol=bound, atol=bound)
    (stem,) = (name for name in changes[1.0] if name.endswith(" stem_conv/kernel"))
    assert np.abs(changes[1.0][stem]).max() > 4 * bound


@pytest.mark.parametrize(
    ("batchnorm", "ways"),
    [("frozen", [({}, 2)]), ("groups", [({"micro_batch": 8}, 1), ({}, 4)])],
    ids=["frozen", "groups"],
)
def test_a_backbone_is_trained_alike_whatever_the_machine(small, batchnorm, ways):
    """But for rounding, whose effect on three steps is measured beside it. A group of eight images
    lies on one of two replicas, and on two of four.
    """
    config = replace(
        small, warmup_epochs=0, model_options={"pretrained": "none", "batchnorm": batchnorm}
    )
    _, whole = stepped(config)
    _, other = stepped(config, nudge=SUMMED * rounding.EPS)

    for change, replicas in ways:
        _, parts = stepped(replace(config, **change), replicas=replicas)
        for name in whole:
            bound = 2 * np.abs(other[name] - whole[name]).max() + SUMMED * rounding.EPS
            assert np.abs(parts[name] - whole[name]).max() <= bound, name


def test_a_pretrained_run_goes_on_bit_for_bit_and_infers_without_the_file(small, tmp_path):
    """The weights at the start are told in the manifest, and are in the artifact as training left
    them.
    """
    folder = write_competition(tmp_path / "competition", train=40)
    file(tmp_path / "weights.h5")
    mixing = replace(small.data, mixup=0.2, cutmix=1.0, rand_augment=2, flip=True)
    config = starting(replace(small, epochs=8, batch=16, data=mixing), tmp_path / "weights.h5")

    whole = training.train(config, folder, tmp_path / "whole", show=lambda line: None)
    for steps in (3, None):
        parts = training.train(
            config, folder, tmp_path / "parts", max_steps=steps, show=lambda line: None
        )

    assert whole.manifest["weights_sha256"] == parts.manifest["weights_sha256"]
    found = [
        checkpoint.latest(tmp_path / name / "checkpoints").arrays for name in ("whole", "parts")
    ]
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
    assert whole.manifest["pretrained"]["source"] == str(tmp_path / "weights.h5")
    (tmp_path / "weights.h5").unlink()
    backbones._read.cache_clear()
    loaded = artifact.load(tmp_path / "whole" / "artifact")
    inference.infer(loaded, folder, tmp_path / "inferred", show=lambda line: None)
    assert (tmp_path / "inferred" / "submission.csv").is_file()

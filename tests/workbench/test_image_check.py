"""Whether two images build the same model: blueprints by two versions of a library, compared."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import blueprint
from pipeline import config as configs
from pipeline.errors import ConfigError
from pipeline.models.families import MEASURED
from tests.doors.given import write_config
from tests.shipped import shipped
from workbench import image_check, image_environments
from workbench.image_environments import GPU, IMAGES, TPU

# A library with a model of two towers; its versions differ in what is in braces.
LIBRARY = """
import keras
from keras import layers


class Towers(keras.Model):
    def __init__(self, width=6):
        super().__init__()
        {layers}
        self.join = layers.Dense(width)

    def build(self, shape):
        for tower in (self.left, self.right):
            tower.build(shape)
        self.join.build((None, 2 * {wide}))

    def call(self, x):
        return self.join(keras.ops.concatenate([self.left(x), -self.right(x)], -1))
"""
LEFT, RIGHT = (
    'self.left = layers.Dense({wide}, name="{left}")',
    'self.right = layers.Dense({wide}, name="right")',
)
MODEL = """

def towers(images, num_classes, batchnorm_momentum):
    from keras import layers

    import {library}

    x = {library}.Towers()(layers.Flatten()(images))
    return layers.Dense(num_classes, dtype="float32")(x)
"""


def library(
    folder: Path, name: str, *, exchanged: bool = False, wide: int = 6, left: str = "left"
) -> Path:
    """Write a version of the library, and return its folder."""
    written = [text.format(wide=wide, left=left) for text in (LEFT, RIGHT)]
    lines = "\n        ".join(reversed(written) if exchanged else written)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(LIBRARY.format(layers=lines, wide=wide))
    return folder


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Return a function that draws the blueprint with a version of the library."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def draw(name, **version):
        library(tmp_path, name, **version)
        path = write_config(tmp_path, MODEL.format(library=name), model="towers", model_options={})
        return blueprint.draw(configs.load(str(path)))

    return draw


def test_a_layer_with_a_different_name_is_harmless(drawn):
    told = image_check.compared("ants", drawn("first"), drawn("second", left="port"))

    assert told == (
        "both build the same model (8 weights, outputs differ by 0e+00); 2 have different names,"
        " which is harmless"
    )


def test_two_layers_of_equal_shape_that_changed_places_are_found(drawn):
    with pytest.raises(
        ConfigError, match=r"a different order: towers/left, towers/right\.\nUse"
    ) as told:
        image_check.compared("ants", drawn("third"), drawn("fourth", exchanged=True))

    assert "ants: with the same weights" in str(told.value)


def test_a_different_shape_is_refused_with_the_first_weight_that_differs(drawn):
    with pytest.raises(ConfigError, match="towers/left/kernel") as told:
        image_check.compared("ants", drawn("fifth"), drawn("sixth", wide=7))

    assert "(64, 6) on the TPU image, but" in str(told.value)


@pytest.mark.parametrize(("apart", "found"), [(5e-5, False), (2e-4, True)])
def test_outputs_may_differ_as_much_as_in_the_golden_check(apart, found):
    weights = [{"place": "0.0", "path": "dense/kernel", "shape": [2], "dtype": "float32"}]
    plan = {"weights": weights, "outputs": [[1.0, 10.0]]}
    other = plan | {"outputs": [[1.0 + 10 * apart, 10.0]]}

    with pytest.raises(ConfigError, match="or a layer computes") if found else nullcontext():
        image_check.compared("ants", plan, other)


def test_outputs_that_are_not_finite_are_not_called_the_same(drawn):
    plan = drawn("seventh")
    broken = plan | {"outputs": [[float("nan")] * 4] * 2}

    assert "not finite and cannot be compared" in image_check.compared("ants", plan, broken)


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Return a function that makes each image's Python: this one, with a version of the library."""
    monkeypatch.setenv("RELAY_IMAGES", str(tmp_path / "images"))
    monkeypatch.setattr(image_environments, "_installed", lambda package: "")

    def make(**versions):
        for image in IMAGES:
            folder = library(tmp_path / image.backend, "towerslib", **versions[image.backend])
            python = image.folder / "bin" / "python"
            python.parent.mkdir(parents=True)
            path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
            log = f"echo $KERAS_BACKEND $@ >> {tmp_path}/log"
            python.write_text(f'#!/bin/sh\n{log}\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
            python.chmod(0o755)

    return make


def test_each_image_builds_by_its_own_interpreter_and_backend(tmp_path, images):
    """TensorFlow gets the networks of JAX's blueprint, and its outputs are compared with JAX's."""
    images(jax={}, tensorflow={"left": "port"})
    path = write_config(
        tmp_path, MODEL.format(library="towerslib"), model="towers", model_options={}
    )

    told, seen = image_check.check(configs.load(str(path)), str(path), lambda line: None)

    trained, inferred = (tmp_path / "log").read_text().splitlines()
    assert trained.startswith("jax -m pipeline blueprint") and "--networks" not in trained
    assert inferred.startswith("tensorflow -m pipeline blueprint") and "--networks" in inferred
    assert seen and told.startswith("both build the same model (8 weights, outputs ")
    assert told.endswith("; 2 have different names, which is harmless")


def test_a_class_that_one_image_lacks_is_refused_with_its_version(tmp_path, images):
    images(jax={}, tensorflow={})
    (tmp_path / "tensorflow" / "towerslib.py").write_text("")
    path = write_config(
        tmp_path, MODEL.format(library="towerslib"), model="towers", model_options={}
    )

    with pytest.raises(ConfigError, match="no attribute 'Towers'") as told:
        image_check.check(configs.load(str(path)), str(path), lambda line: None)

    assert f"tiny: the GPU image (Keras {GPU.versions['keras']}, KerasHub" in str(told.value)
    assert "Use a network that both images include" in str(told.value)


def test_if_pip_fails_the_table_answers_and_no_partial_environment_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAY_IMAGES", str(tmp_path / "images"))
    monkeypatch.setattr(image_environments, "_installed", lambda package: "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    shown: list[str] = []

    told, seen = image_check.check(published(tmp_path, "ViTBackbone"), "ants", shown.append)

    known, warning = told.split("\n", 1)
    assert known.startswith("both include ViTBackbone, according to") and not seen
    assert warning.startswith("Warning: The environment for the ")
    assert not [path for path in (tmp_path / "images").iterdir() if path.is_dir()]


def published(folder: Path, kind: str) -> configs.Config:
    """Return a config whose preset is of a class of KerasHub."""
    (folder / "preset").mkdir(exist_ok=True)
    value = {"class_name": kind, "registered_name": f"keras_hub>{kind}", "config": {}}
    (folder / "preset" / "config.json").write_text(json.dumps(value))
    network = {"model": "published", "model_options": {}}
    return replace(shipped("digits"), **network, pretrained=str(folder / "preset"))


def test_the_table_refuses_a_network_that_only_one_image_has(tmp_path):
    config = published(tmp_path, "SwinTransformerBackbone")

    said = r"SwinTransformerBackbone is in KerasHub 0\.29\.1 of the TPU image but not in 0\.26\.0"
    with pytest.raises(ConfigError, match=said):
        image_check.by_table(config)


def test_the_table_warns_about_a_network_that_it_lacks(tmp_path):
    told = image_check.by_table(published(tmp_path, "NewBackbone"))

    assert told.startswith("Warning: it is unknown whether both of Kaggle's images build New")


def test_the_table_is_for_the_versions_in_constraints():
    found = {"tpu": TPU.versions["keras-hub"], "gpu": GPU.versions["keras-hub"]}

    assert found == MEASURED


@pytest.mark.parametrize(
    ("code", "asked"),
    [("from keras import layers", False), ("from keras import applications", True)],
)
def test_only_a_model_on_a_library_whose_versions_differ_is_compared(tmp_path, code, asked):
    path = write_config(
        tmp_path, f"{code}\n{MODEL.format(library='os')}", model="towers", model_options={}
    )

    assert image_check.concerns(configs.load(str(path))) == asked
    assert image_check.concerns(published(tmp_path, "ViTBackbone"))
    assert not image_check.concerns(shipped("digits_mobilenet"))

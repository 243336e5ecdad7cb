"""Before a push: the check that both images build the same model."""

import os
import sys

import pytest

from commands import other_image
from commands.push_plan import PushPlan
from deploy.bundle import Bundle, Code
from deploy.calls import Quota
from deploy.errors import UsageError
from deploy.preview import Preview
from tests.doors.given import write_config
from workbench.image_environments import IMAGES

NET = """

def net(images, num_classes, batchnorm_momentum):
    from keras import layers  # and keras_hub

    x = layers.Dense(4, name="{name}")(layers.Flatten()(images))
    return layers.Dense(num_classes, dtype="float32")(x)
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Return the list of questions that were asked."""
    monkeypatch.setenv("RELAY_IMAGES", str(tmp_path / "images"))
    return []


def required(tmp_path, path, asked, answer=True):
    def agreed(question):
        asked.append(question)
        return answer

    other_image.require(str(path), "a digest", tmp_path / "runs", agreed)


def interpreters(script):
    """Replace the interpreter of each image with a script."""
    for image in IMAGES:
        python = image.folder / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)


def test_a_model_of_plain_keras_layers_needs_no_check(tmp_path, asked, capsys):
    required(tmp_path, write_config(tmp_path), asked)

    assert not asked and not capsys.readouterr().out


def test_a_verdict_is_kept_for_the_same_code(tmp_path, asked, capfd):
    interpreters(f'exec {sys.executable} "$@"')
    path = write_config(tmp_path, NET.format(name="a"), model="net", model_options={})
    required(tmp_path, path, asked)
    shown = capfd.readouterr()
    interpreters("exit 1")

    required(tmp_path, path, asked)

    first, seconds = shown.out.splitlines()
    assert first.startswith("images      both build the same model (4 weights, outputs ")
    assert seconds.startswith("            This took ") and not asked
    assert "Building tiny with the versions of the GPU image (Keras" in shown.err
    assert capfd.readouterr().out.startswith(first)


def test_after_a_no_the_table_answers(tmp_path, asked, capsys):
    path = write_config(
        tmp_path, f"{NET.format(name='a')}# ViTBackbone", model="net", model_options={}
    )

    required(tmp_path, path, asked, answer=False)

    *plan, told = capsys.readouterr().out.splitlines()
    assert asked == ["Download them? Otherwise, a table of known networks is used."]
    assert any(" GB in " in line for line in plan)
    assert told.startswith("images      both include ViTBackbone, according to pipeline/models/")
    assert not (tmp_path / "runs").exists()


def test_a_network_that_only_one_image_has_is_refused_before_a_download(tmp_path, asked, capsys):
    code = NET.replace("keras_hub", "keras_hub.models.SwinTransformerBackbone")
    path = write_config(tmp_path, code.format(name="a"), model="net", model_options={})

    with pytest.raises(UsageError, match=r"Nothing was pushed\. tiny: SwinTransformerBackbone is"):
        required(tmp_path, path, asked)

    assert not asked and not capsys.readouterr().out


def test_the_plan_of_a_push_to_a_tpu_asks_first(tmp_path, asked):
    """Two T4 train with the image that infers."""
    code = NET.replace("keras_hub", "keras_hub.models.SwinTransformerBackbone")
    path = write_config(tmp_path, code.format(name="a"), model="net", model_options={})
    built = Bundle(
        tmp_path,
        Code({"kernel": "train-tpu"}, {}, (), {}, "", False),
        {"machine_shape": "TpuV5E8"},
        {},
    )
    costs = Preview(built, 0, (), "TPU", Quota(0.0, 0.0), (), (), "", "", 0)

    with pytest.raises(UsageError, match="SwinTransformerBackbone is in KerasHub"):
        PushPlan(str(path), asked.append, tmp_path / "runs").show(costs)

    assert not asked


@pytest.mark.slow
def test_a_failed_installation_is_a_warning_with_its_reason(tmp_path, asked, capsys, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    path = write_config(tmp_path, NET.format(name="a"), model="net", model_options={})

    required(tmp_path, path, asked)

    assert (
        "Warning: The environment for the TPU image could not be created" in capsys.readouterr().out
    )
    assert not (tmp_path / "runs").exists()

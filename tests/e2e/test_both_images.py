"""Published networks with the versions of both of Kaggle's images: trained with one, inferred with
the other, to a score. Only the training has their presets, and no session has a network.
"""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import config as configs
from pipeline.config import Optimizer
from pipeline.models.families import FAMILIES, KNOWN, ONE_IMAGE_HAS
from tests.e2e.project import ROOT, copied, variables
from tests.shipped import shipped, written
from workbench import image_check, image_environments
from workbench.image_environments import GPU, TPU

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(image_environments.missing()),
        reason="no environments of Kaggle's images: python -m workbench images",
    ),
]
PATCHES = {"patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
IMAGES = {"image_shape": [32, 32, 3]}
EFFICIENT = KNOWN["keras/efficientnet/keras/efficientnet2_rw_s_ra2_imagenet"].numbers
TWO_STAGES = {
    name: each[:2] if isinstance(each, list) else each for name, each in EFFICIENT.items()
}
# Model of Kaggle → its class, and arguments that make it small.
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "keras/vit/keras/vit_small/1": ("ViTBackbone", {**PATCHES, **IMAGES, "mlp_dim": 32}),
    "keras/dinov3/keras/dinov3_small/1": (
        "DINOV3Backbone",
        {**PATCHES, **IMAGES, "intermediate_dim": 32},
    ),
    "keras/siglip/keras/siglip_small/1": (
        "SigLIPVisionEncoder",
        {**PATCHES, **IMAGES, "intermediate_dim": 32},
    ),
    "keras/efficientnet/keras/efficientnet2_small/1": (
        "EfficientNetBackbone",
        {
            **TWO_STAGES,
            "stackwise_num_repeats": [1, 1],
            "stackwise_input_filters": [8, 8],
            "stackwise_output_filters": [8, 16],
            "num_features": 32,
        },
    ),
    "keras/roberta/keras/roberta_base_en/3": (
        "RobertaBackbone",
        {"vocabulary_size": 300, "num_layers": 2, "hidden_dim": 16, "num_heads": 2}
        | {"intermediate_dim": 32, "max_sequence_length": 128},
    ),
}  # fmt: skip
# Prints the sha256 of a preset's weights as KerasHub reads them.
DIGEST = """
import hashlib, json, sys
from pathlib import Path
import keras, keras_hub

folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
made = getattr(keras_hub.models, config["class_name"]).from_config(config["config"])
made.load_weights(str(folder / "model.weights.h5"))
print(hashlib.sha256(b"".join(one.tobytes() for one in made.get_weights())).hexdigest())
"""
CONVNEXT = """
import hashlib, sys
import keras

made = keras.applications.ConvNeXtTiny(include_top=False, weights=None, input_shape=(32, 32, 3))
made.save_weights(sys.argv[1] + "/tiny.weights.h5")
print(hashlib.sha256(b"".join(one.tobytes() for one in made.get_weights())).hexdigest())
"""
NAMES = """
import json
import keras_hub
known = vars(keras_hub.models).items()
kinds = [name for name, each in known
         if isinstance(each, type) and issubclass(each, keras_hub.models.Backbone)]
print(json.dumps(kinds))
"""


def by(image: image_environments.Image, project: Path, *words: object) -> str:
    """Run an image's interpreter in a copy of the project, and return the last line."""
    done = subprocess.run(
        [str(image.python), *map(str, words)],
        cwd=project,
        env=variables(project, KERAS_BACKEND="jax"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.splitlines()[-1]


def write_config(folder: Path, source: str) -> Path:
    """Write a config with a one-line network, or that of docs/text.md, and return its path."""
    if "roberta" in source:
        page = (ROOT / "docs/text.md").read_text()
        code = next(
            each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "BPE" in each
        )
        path = folder / "reviews_roberta.py"
        for old, new in {"LENGTH = 128": "LENGTH = 16", "epochs=3": "epochs=1"}.items():
            code = code.replace(old, new)
        path.write_text(code)
        return path
    digits = shipped("digits")
    network = "convnext_tiny" if source.endswith(".h5") else "published"
    value = replace(
        digits,
        name="small",
        model=network,
        model_options={},
        pretrained=source,
        batch=64,
        epochs=1,
        warmup_epochs=0.5,
        optimizer=Optimizer(name="adamw", base_rate=1e-3, base_batch=64),
        data=replace(digits.data, height=32, width=32, resize="stretch"),
    )
    return written(folder, value)


def rehearsed(project: Path, config: Path, *words: object) -> dict[str, Any]:
    """Return the manifest of a dry run with a score and the versions of both images."""
    pythons = ["--tpu-python", TPU.python, "--gpu-python", GPU.python]
    given = ["-m", "invoke", "dry-run", "--config", config, *pythons, *words, "--json"]

    end = json.loads(by(TPU, project, *given))

    assert 0 <= end["score"] <= 1
    (path,) = project.glob("runs/*/*-train-tpu-v1/artifact/manifest.json")
    manifest: dict[str, Any] = json.loads(path.read_text())
    assert manifest["versions"]["keras-hub"] == TPU.versions["keras-hub"]
    (log,) = project.glob("runs/*/*-infer-gpu-v1/*.log")
    assert f'"keras-hub": "{GPU.versions["keras-hub"]}"' in log.read_text().replace("\\", "")
    return manifest


@pytest.mark.parametrize("source", SMALL)
def test_a_one_line_network_trains_on_one_image_and_infers_on_the_other(source, tmp_path):
    """It starts with exactly the preset's weights. The images name ViT differently."""
    project, (kind, numbers) = copied(tmp_path), SMALL[source]
    (tmp_path / "numbers").mkdir()
    value = {"class_name": kind, "registered_name": f"keras_hub>{kind}", "config": numbers}
    (tmp_path / "numbers" / "config.json").write_text(json.dumps(value))
    preset = tmp_path / "preset"
    by(TPU, project, "-m", "pipeline", "preset", tmp_path / "numbers", "--output", preset)
    config = write_config(tmp_path, source)

    manifest = rehearsed(project, config, "--model", f"{source}={preset}")

    (origin,) = manifest["pretrained"]
    assert origin["arrays_sha256"] == by(TPU, project, "-c", DIGEST, preset)


def test_a_network_of_keras_applications_does_so_too(tmp_path):
    project, weights = copied(tmp_path), tmp_path / "weights"
    weights.mkdir()
    digest = by(TPU, project, "-c", CONVNEXT, weights)
    config = write_config(tmp_path, "ann/convnext/tiny.weights.h5")

    manifest = rehearsed(project, config, "--dataset", f"ann/convnext={weights}")

    (origin,) = manifest["pretrained"]
    assert origin["arrays_sha256"] == digest


def test_vit_is_the_same_under_different_names(tmp_path, monkeypatch):
    numbers = {"class_name": "ViTBackbone", "registered_name": "keras_hub>ViTBackbone"}
    _, sizes = SMALL["keras/vit/keras/vit_small/1"]
    (tmp_path / "config.json").write_text(json.dumps({**numbers, "config": sizes}))
    config = write_config(tmp_path, str(tmp_path))

    told, seen = image_check.check(configs.load(str(config)), str(config), lambda line: None)

    assert seen and told.startswith("both build the same model") and "different names" in told


def test_the_table_lists_the_networks_that_only_one_image_has():
    tpu, gpu = (set(json.loads(by(image, ROOT, "-c", NAMES))) for image in (TPU, GPU))

    found = dict.fromkeys(tpu - gpu, "tpu") | dict.fromkeys(gpu - tpu, "gpu")
    assert found == ONE_IMAGE_HAS
    assert FAMILIES.keys() <= tpu & gpu

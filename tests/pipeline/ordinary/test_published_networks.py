"""Networks of KerasHub itself: the well-known ones, and the example in docs/text.md. Tests without
KerasHub are in tests/pipeline/models/test_published.py.
"""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from localkaggle import competitions
from pipeline import config as configs
from pipeline.models import architectures, presets
from pipeline.models.families import KNOWN
from pipeline.train import training

ROOT = Path(__file__).resolve().parents[3]
hub = pytest.importorskip("keras_hub", reason="needs keras-hub: pip install -e '.[hub]'")
ROBERTA = {
    "vocabulary_size": 300, "num_layers": 2, "hidden_dim": 16, "num_heads": 2,
    "intermediate_dim": 32, "max_sequence_length": 128,
}  # fmt: skip


# One of each class is quick.
QUICK = {known.kind: name for name, known in reversed(KNOWN.items())}.values()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in KNOWN],
)
def test_a_well_known_network_has_the_published_number_of_parameters(name):
    known = KNOWN[name]
    with architectures.without_numbers():
        made = presets.network(presets.find(f"{name}/1"), None, "backbone")

    assert sum(math.prod(one.shape) for one in made.weights) == known.parameters


def test_the_part_of_siglip_that_sees_images_is_used(tmp_path):
    models = hub.models
    sees = models.SigLIPVisionEncoder(16, 32, 2, 2, 64, image_shape=(32, 32, 3), name="sees")
    reads = models.SigLIPTextEncoder(20, 32, 32, 2, 2, 64, name="reads")
    models.SigLIPBackbone(vision_encoder=sees, text_encoder=reads).save_to_preset(str(tmp_path))

    found = presets.find(str(tmp_path))

    assert found.kind == "SigLIPVisionEncoder" and found.shape == (32, 32, 3)
    wanted = [np.asarray(one) for one in sees.get_weights()]
    assert all(map(np.array_equal, presets.arrays(str(tmp_path)), wanted))
    made = presets.network(found, (32, 32, 3), "backbone")
    assert [tuple(one.shape) for one in made.weights] == [one.shape for one in wanted]


def test_an_argument_that_kerashub_leaves_out_is_known(tmp_path, monkeypatch):
    """The number of features of EfficientNetV2, without which its weights do not fit."""
    name = "keras/efficientnet/keras/efficientnet2_rw_s_ra2_imagenet"
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    small = {"stackwise_num_repeats": [1] * 6, "stackwise_depth_coefficients": [1.0] * 6}
    made = hub.models.EfficientNetBackbone(**{**KNOWN[name].numbers, **small})
    made.save_to_preset(str(tmp_path / "models" / name / "1"))

    assert all(map(np.array_equal, presets.arrays(f"{name}/1"), made.get_weights()))
    assert presets.find(f"{name}/1").numbers["num_features"] == 1792


def test_a_text_network_infers_with_the_tokenizer_in_its_artifact(tmp_path):
    """The page's example with a small preset; TensorFlow infers without the preset."""
    page = (ROOT / "docs" / "text.md").read_text()
    code = next(
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "BPE" in each
    )
    path, out, numbers = tmp_path / "reviews_roberta.py", tmp_path / "out", tmp_path / "numbers"
    numbers.mkdir()
    named = {"class_name": "RobertaBackbone", "registered_name": "keras_hub>RobertaBackbone"}
    (numbers / presets.CONFIG).write_text(json.dumps({**named, "config": ROBERTA}))
    presets.write(str(numbers), tmp_path / "preset")
    code = code.replace("keras/roberta/keras/roberta_base_en/3", str(tmp_path / "preset"))
    path.write_text(code.replace("LENGTH = 128", "LENGTH = 16"))
    competitions.EMBEDDED["reviews"]().write(tmp_path / "reviews")
    config = configs.load(str(path))
    short = replace(config, epochs=1, optimizer=replace(config.optimizer, base_rate=1e-3))

    training.train(short, tmp_path / "reviews", out, show=str)
    (tmp_path / "preset").rename(tmp_path / "away")

    words = ["--config", path, "--input", tmp_path / "reviews", "--artifact", out / "artifact"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "infer", *words, "--output", tmp_path / "inferred"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ids = pd.read_csv(tmp_path / "reviews" / "sample_submission.csv", dtype=str)["id"]
    table = pd.read_csv(tmp_path / "inferred" / "submission.csv", dtype=str)
    assert table["id"].tolist() == ids.tolist()

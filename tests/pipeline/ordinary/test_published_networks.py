"""A published network of KerasHub in a custom model, as docs/published-networks.md has it."""

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
from pipeline.training import training

ROOT = Path(__file__).resolve().parents[3]
HERE = "data/dinov3-small"
hub = pytest.importorskip("keras_hub", reason="needs keras-hub: pip install -e '.[hub]'")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a preset, the page's config, and an artifact that it trained."""
    folder = tmp_path_factory.mktemp("published")
    page = (ROOT / "docs" / "published-networks.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    path = folder / "digits_dinov3.py"
    path.write_text(code.replace(HERE, str(folder / "preset")))
    sizes = {
        "patch_size": 8, "num_layers": 2, "hidden_dim": 32, "num_heads": 2, "intermediate_dim": 64,
    }  # fmt: skip
    made = hub.models.DINOV3Backbone(**sizes, image_shape=(64, 64, 3))
    made.save_to_preset(str(folder / "preset"))
    competitions.EMBEDDED["digits"]().write(folder / "digits")
    config = configs.load(str(path))
    config = replace(config, epochs=1, warmup_epochs=0, model_options={"frozen": True})
    training.train(config, folder / "digits", folder / "out", show=str)
    return folder


def test_a_run_begins_with_the_weights_of_the_preset(run):
    """The head alone was trained."""
    preset = hub.models.DINOV3Backbone.from_preset(str(run / "preset"), image_shape=(32, 32, 3))
    with np.load(run / "out" / "artifact" / "weights.npz") as arrays:
        found = list(arrays.values())

    for weight in preset.weights:
        array = np.asarray(weight)
        assert any(array.shape == one.shape and np.array_equal(array, one) for one in found)


def test_inference_needs_no_preset(run):
    """The artifact has the weights, and the config the sizes."""
    (run / "preset").rename(run / "gone")
    words = ["--config", run / "digits_dinov3.py", "--input", run / "digits"]
    words += ["--artifact", run / "out" / "artifact", "--output", run / "inferred"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "infer", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        check=False,
    )
    (run / "gone").rename(run / "preset")

    assert done.returncode == 0, done.stderr[-2000:]
    ids = pd.read_csv(run / "digits" / "sample_submission.csv", dtype=str)["id"]
    table = pd.read_csv(run / "inferred" / "submission.csv", dtype=str)
    assert table["id"].tolist() == ids.tolist()


def test_training_without_the_preset_is_refused(run):
    """It would begin with random weights."""
    (run / "preset").rename(run / "away")
    config = configs.load(str(run / "digits_dinov3.py"))

    with pytest.raises(Exception, match="no preset in any of"):
        training.train(config, run / "digits", run / "again", show=str)

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
from pipeline.train import training

ROOT = Path(__file__).resolve().parents[3]
HERE = "data/dinov3-small"
hub = pytest.importorskip("keras_hub", reason="needs keras-hub: pip install -e '.[hub]'")


def test_a_run_begins_with_a_preset_and_infers_without_it(tmp_path):
    """The head alone was trained; the artifact has the weights, and the config the sizes. Without
    the preset a training would begin with random weights.
    """
    page = (ROOT / "docs" / "published-networks.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    path, place, out = tmp_path / "digits_dinov3.py", tmp_path / "preset", tmp_path / "out"
    path.write_text(code.replace(HERE, str(place)))
    sizes = {
        "patch_size": 8, "num_layers": 2, "hidden_dim": 32, "num_heads": 2, "intermediate_dim": 64,
    }  # fmt: skip
    hub.models.DINOV3Backbone(**sizes, image_shape=(64, 64, 3)).save_to_preset(str(place))
    competitions.EMBEDDED["digits"]().write(tmp_path / "digits")
    config = configs.load(str(path))
    short = replace(config, epochs=1, warmup_epochs=0, model_options={"frozen": True})

    training.train(short, tmp_path / "digits", out, show=str)

    preset = hub.models.DINOV3Backbone.from_preset(str(place), image_shape=(32, 32, 3))
    with np.load(out / "artifact" / "weights.npz") as arrays:
        found = list(arrays.values())
    for array in map(np.asarray, preset.weights):
        assert any(array.shape == one.shape and np.array_equal(array, one) for one in found)
    place.rename(tmp_path / "away")
    words = ["--config", path, "--input", tmp_path / "digits", "--artifact", out / "artifact"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "infer", *words, "--output", tmp_path / "inferred"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ids = pd.read_csv(tmp_path / "digits" / "sample_submission.csv", dtype=str)["id"]
    table = pd.read_csv(tmp_path / "inferred" / "submission.csv", dtype=str)
    assert table["id"].tolist() == ids.tolist()
    with pytest.raises(Exception, match="no preset in any of"):
        training.train(config, tmp_path / "digits", tmp_path / "again", show=str)
